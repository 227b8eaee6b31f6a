"""The tokenizers: every documented rule by example, and what must hold for any text."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paraembed.text import TOKENIZERS, WORD_TOKENIZERS
from paraembed.text.tokenize import tokenize

EXAMPLES = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
"""Rule: a text, and its tokens joined by spaces."""


def words(text, tokenizer="ptb-v1"):
    return tokenize(pa.array([text], pa.string()), tokenizer).flat.to_pylist()


def per_text(texts, tokenizer):
    tokens = tokenize(texts, tokenizer)
    flat = tokens.flat.to_pylist()
    return [flat[start:end] for start, end in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_rules(text, expected):
    assert words(text) == expected.split(" ") if expected else words(text) == []


LOOKALIKES = {  # of one text; the forms that make them equal
    ("the café is closed", "the cafe\u0301 is closed"): ("nfc", "nfkc"),
    ("full width text", "ｆｕｌｌ ｗｉｄｔｈ ｔｅｘｔ"): ("nfkc",),
    ("the office file", "the o\ufb03ce \ufb01le"): ("nfkc",),
    ("soft hyphen word", "soft hy\u00adphen w\u200bo\u200drd\ufeff"): ("nfkc",),
    ("e\u0301", "e\u00ad\u0301"): ("nfkc",),  # composed over what is removed
    ("cafe", "café"): (),
}


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize("rules", WORD_TOKENIZERS)
@pytest.mark.parametrize("texts", LOOKALIKES)
def test_texts_that_look_the_same_have_the_same_tokens(texts, rules, form):
    one, other = (words(text, f"{rules}+{form}") for text in texts)
    assert (one == other) is (form in LOOKALIKES[texts])
    assert words(texts[0], rules) != words(texts[1], rules)


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
