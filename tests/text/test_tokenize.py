"""The tokenizers: every documented rule by example, and what must hold for any text."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paraembed.text import TOKENIZERS, check_tokenizer
from paraembed.text.tokenize import tokenize

EXAMPLES = {
    "lower-case": ("Hello WORLD ÉCOLE İ ΑΣ", "hello world école i ασ"),
    "punctuation": ("Hello, world! (yes); “no”?", 'hello , world ! ( yes ) ; " no " ?'),
    "money and percent": ("$5.00 or 50%", "$ 5.00 or 50 %"),
    "dots": ("well... yes.. no.", "well ... yes .. no ."),
    "dashes": ("so--that is---it - or – that — ok", "so -- that is --- it - or – that — ok"),
    "quote pairs": ("``quoted'' text", "`` quoted '' text"),
    "single quotes": ("'quoted' the dogs' bones", "' quoted ' the dogs ' bones"),
    "hyphens": ("Well-known mother-in-law covid-19", "well-known mother-in-law covid-19"),
    "hyphen at the edge": ("-pre post- a-", "- pre post - a -"),
    "clitics": ("It's we're I've they'll he'd I'm", "it 's we 're i 've they 'll he 'd i 'm"),
    "n't": ("Don't can't WON'T isn’t", "do n't ca n't wo n't is n't"),
    "stacked clitics": ("wouldn't've I'd've x's's's's", "would n't 've i 'd 've x 's 's 's 's"),
    "clitics that stand alone": ("it 's do n't 're", "it 's do n't 're"),
    "no clitic": ("o'clock rock'n'roll d'être l'été don'ts", "o'clock rock'n'roll d'être l'été don'ts"),
    "clitic inside a word": ("don't-care 'n't s-n't", "don't-care ' n't s-n't"),
    "a quoted word is no clitic": ("'mémoire' ‘déjà vu’ 'sixty'", "' mémoire ' ' déjà vu ' ' sixty '"),
    "curly quotes": ("‘it’s’ “so”", "' it 's ' \" so \""),
    "abbreviations": ("The U.S. p.m. e.g., J.R.R. Tolkien", "the u.s. p.m. e.g. , j.r.r. tolkien"),
    "no abbreviation": ("I. Mr. café.x", "i . mr . café . x"),
    "numbers": ("1,650 0.11 3:30 1/2 1,000,000.5", "1,650 0.11 3:30 1/2 1,000,000.5"),
    "number and punctuation": ("In 1999, 5. -3 10:30am", "in 1999 , 5 . - 3 10:30 am"),
    "other digits": ("٣٫٥ １２ ½", "٣ ٫ ٥ １２ ½"),
    "URLs": (
        "see http://a.b/c?d=e, www.x.org. HTTPS://Foo.com/",
        "see http://a.b/c?d=e , www.x.org . https://foo.com/",
    ),
    "tags and names": ("#Tag @Name_1 a#b # @ #", "#tag @name_1 a #b # @ #"),
    "URL in Chinese": ("去http://a.b/c看", "去 http://a.b/c 看"),
    "Han and kana": ("中文abc 日本の カナ", "中 文 abc 日 本 の カ ナ"),
    "other scripts": ("שלום, עולם привет мир नमस्ते", "שלום , עולם привет мир नमस्ते"),
    "combining marks": ("cafe\u0301's", "cafe\u0301 's"),
    "control characters": ("a\x00b\x12c\x7fd", "a b c d"),
    "format characters": ("soft\u00adhyphen zero\u200bwidth \ufeffbom", "soft hyphen zero width bom"),
    "white space": ("a\tb\r\nc\u00a0d\u3000e\u2028f\x85g", "a b c d e f g"),
    "emoji": ("ok😀😀 👨‍👩‍👧 ❤️ 🇩🇪", "ok 😀 😀 👨 👩 👧 ❤ 🇩 🇪"),
    "empty": ("", ""),
    "white space only": (" \t\r\n\u3000\u200b", ""),
}


def words(text, tokenizer="ptb-v1"):
    return tokenize(pa.array([text], pa.string()), tokenizer).flat.to_pylist()


def per_text(texts, tokenizer):
    tokens = tokenize(texts, tokenizer)
    flat = tokens.flat.to_pylist()
    return [flat[start:end] for start, end in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_rules(text, expected):
    assert words(text) == expected.split(" ") if expected else words(text) == []


def test_space_splits_at_white_space_only():
    assert words("  It's  A\u00a0b\tc, \r\n", "space") == ["it's", "a", "b", "c,"]
    assert words("", "space") == words(" \u3000", "space") == []


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_null_and_empty_texts_have_no_tokens(tokenizer):
    tokens = tokenize(pa.array([None, "", "a b", " ", None, "c"]), tokenizer)
    assert tokens.flat.to_pylist() == ["a", "b", "c"]
    assert tokens.offsets.tolist() == [0, 0, 0, 2, 2, 2, 3]
    assert tokens.joined().to_pylist() == ["", "", "a b", "", "", "c"]
    assert tokenize(pa.array([], pa.string()), tokenizer).offsets.tolist() == [0]


def test_unknown_tokenizer_is_refused():
    with pytest.raises(ValueError, match="unknown tokenizer 'ptb'; allowed: ptb-v1, space"):
        check_tokenizer("ptb")


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Pieces whose neighbours decide, so that they meet more often than among all of Unicode.
PIECES = st.lists(
    st.sampled_from(
        [
            *"xntsd1½_#@/:.,-`'’\"–中éİ😀 ",
            *("ll", "n't", "'s", "'d", "``", "''", "--", "www.", "http://", "u.s.", "\r\n"),
            *"\u0301\u0378\ufe0f\u00ad\u200b\x00\u00a0\u3000",
        ]
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(texts=st.lists(ANY_TEXT | PIECES, max_size=5))
@example(texts=["can't've 's's x's's's", "www._'s", "http://a.'s"])
def test_tokens_joined_and_split_again_are_the_same(tokenizer, texts):
    once = tokenize(pa.array(texts, pa.string()), tokenizer).joined()
    assert tokenize(once, tokenizer).joined().equals(once)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(texts=st.lists(st.none() | ANY_TEXT | PIECES, max_size=5), before=PIECES, data=st.data())
def test_tokens_do_not_depend_on_neighbours_or_slices(tokenizer, texts, before, data):
    alone = [per_text(pa.array([text], pa.string()), tokenizer)[0] for text in texts]
    assert per_text(pa.array(texts, pa.string()), tokenizer) == alone
    sliced = pa.array([before, *texts, "end’s"], pa.string()).slice(1, len(texts))
    assert per_text(sliced, tokenizer) == alone
    start = data.draw(st.integers(0, len(texts)))
    assert per_text(sliced.slice(start), tokenizer) == alone[start:]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=ANY_TEXT | PIECES)
def test_tokens_are_filled_and_lower_case_and_hold_no_white_space(tokenizer, text):
    tokens = tokenize(pa.array([text]), tokenizer)
    for token in tokens.flat.to_pylist():
        assert token
        assert not re.search(r"\s", token)
    assert pc.utf8_lower(tokens.flat).equals(tokens.flat)
    assert tokens.offsets.dtype == np.int64


@pytest.mark.parametrize("piece", ["'s", "n't", "a.", "‘", "www.", "#"])
def test_time_grows_no_faster_than_the_text(piece):
    assert words("x" + piece * 100_000)  # a quadratic way takes minutes; the suite's timeout is the limit
