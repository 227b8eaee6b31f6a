"""The tokenizers: every documented rule by example, what must hold for any text, and the compiled way to word ids."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paraembed.text import TOKENIZERS, WORD_TOKENIZERS
from paraembed.text import scan as token_scan
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import UNKNOWN, word_ids

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


def check(texts, tokenizer, unknown=0):
    """That ids and offsets are those of the definition, for a vocabulary without the first ``unknown`` tokens."""
    defined = tokenize(texts, tokenizer)
    vocabulary = pa.concat_arrays([pc.unique(defined.flat).slice(unknown).cast(pa.string()), pa.array([UNKNOWN])])
    found = TokenIds(vocabulary, tokenizer)(texts)
    np.testing.assert_array_equal(found.offsets, defined.offsets)
    np.testing.assert_array_equal(found.ids, word_ids(defined.flat, vocabulary))
    assert found.ids.dtype == np.int32
    assert found.offsets.dtype == np.int64


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_the_examples_of_the_definition(tokenizer):
    texts, expected = zip(*EXAMPLES.values(), strict=True)
    check(pa.array([*texts, None, *expected, "", *texts]), tokenizer)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(texts=st.lists(st.none() | ANY_TEXT | PIECES, max_size=5), unknown=st.integers(0, 3), start=st.integers(0, 5))
@example(
    texts=["httphttp://a:1:2,½/3http://", "www.www.x.'éx'd", "éa.b.cé.d.", "#'s's 1.5'sé", "x1,2-3"], unknown=0, start=0
)
@example(
    texts=["a://b", "https:///'n't", "www.", "http://x.'sé", "http://x's've'n't", "n't's n'tn't"], unknown=0, start=0
)
@example(
    texts=["x's-'s", "'mé ''dé –'dé 中'ré ll'llé 's½", "a.½.é.b-c", "...'--.-`'```", "a-'s a-n't"], unknown=0, start=0
)
def test_any_text(tokenizer, texts, unknown, start):
    check(pa.array(texts, pa.string()), tokenizer, unknown)
    check(pa.array(["x’s", *texts, "end"], pa.string()).slice(start), tokenizer, unknown)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_characters_of_all_of_unicode(tokenizer):
    points = np.random.default_rng(0).integers(0x80, 0x110000, 6_000).tolist()
    characters = [
        chr(point) for point in [*range(0x600), *range(0x1FF0, 0x2070), *points] if not 0xD800 <= point < 0xE000
    ]
    check(pa.array([f"{one}'s {one}{one} a{one}'d'{one}1{one}.{one}. #{one}" for one in characters]), tokenizer)


def test_of_equal_words_the_first_counts_as_in_the_definition():
    vocabulary = pa.array(["x", "two words", "", "a", UNKNOWN, "a", "sixteen-letters-", "x"])
    texts = pa.array(["a two words x sixteen-letters- b"])
    found = TokenIds(vocabulary, "space")(texts)
    assert found.ids.tolist() == word_ids(tokenize(texts, "space").flat, vocabulary).tolist() == [3, 4, 4, 0, 6, 4]


def test_long_offsets_of_texts_and_vocabulary():
    for texts in (pa.array(["no", "the cat’s", None], pa.large_string()).slice(1), pa.array(["the cat’s", None])):
        for kind in (pa.string(), pa.large_string()):
            vocabulary = pa.array(["no", "'s", "the", UNKNOWN], kind).slice(1)
            found = TokenIds(vocabulary, "ptb-v1")(texts)
            assert (found.ids.tolist(), found.offsets.tolist()) == ([1, 2, 0], [0, 3, 3])


def test_a_slice_behind_two_gib_of_text(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(1 << 31)
        file.write(b"the cat")
    octets = pa.memory_map(str(tmp_path / "sparse")).read_buffer()
    starts = np.array([0, 1 << 31, (1 << 31) + 3, (1 << 31) + 7])
    texts = pa.LargeStringArray.from_buffers(3, pa.py_buffer(starts), octets).slice(1)
    assert TokenIds(pa.array([UNKNOWN, "cat", "the"]), "ptb-v1")(texts).ids.tolist() == [2, 1]


def sent(strings):
    """The same array in the memory of a message."""
    with pa.ipc.new_stream(sink := pa.BufferOutputStream(), pa.schema({"strings": pa.string()})) as stream:
        stream.write(pa.record_batch([strings], ["strings"]))
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()["strings"]


def test_the_loops_are_compiled_once_wherever_the_texts_lie():
    texts, empty = pa.array(["a b", "", "c"]), pa.array(["", ""])
    vocabulary = pa.array(["a", UNKNOWN])
    pq.write_table(pa.table({"text": texts}), sink := pa.BufferOutputStream())
    read = pq.read_table(pa.BufferReader(sink.getvalue()))["text"].chunk(0)
    for tokenizer in TOKENIZERS:
        for words in (vocabulary, sent(vocabulary)):
            found = TokenIds(words, tokenizer)
            for some in (texts, empty, sent(texts), sent(empty), read, empty.slice(2), texts.cast(pa.large_string())):
                assert found(some).ids.tolist() == [0, 1, 1][: 3 if len(some) == 3 else 0]
    assert len(token_scan.scan.machine_code.signatures) == len(token_scan.fill_slots.machine_code.signatures) == 1


def test_what_is_refused():
    with pytest.raises(ValueError, match="unknown tokenizer 'ptb'; allowed: ptb-v1, space"):
        TokenIds(pa.array([UNKNOWN]), "ptb")
    with pytest.raises(ValueError, match=f"no row '{UNKNOWN}'"):
        TokenIds(pa.array(["a"]), "space")


@pytest.mark.parametrize(
    "octets", [b"a\xe2\x80", b"\xed\xa0\x80", b"\x80a", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xe2a a", b"\xf4\x90\x80\x80"]
)
@pytest.mark.parametrize("end", [b"", b"\xf8\x88\x80\x80\x80", b" \xff   "])
def test_what_is_not_utf8_is_refused(octets, end):
    texts = pa.array([b"a\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80", octets + end])
    with pytest.raises(ValueError, match="text 2 of 2 is not UTF-8"):
        TokenIds(pa.array([UNKNOWN]), "space")(texts.view(pa.string()))


@pytest.mark.parametrize("piece", ["'s", "n't", "a.", "‘", "www.", "#", "://", "http://", "1,", "a-", "'d"])
def test_a_text_of_one_piece_again_and_again(piece):
    check(pa.array(["x" + piece * 20_000]), "ptb-v1")
