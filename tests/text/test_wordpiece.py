"""WordPiece: the ids of the `tokenizers` library, in the definition and in the compiled loops."""

import gzip
import random
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import uncased
from paraembed.text import WORDPIECE, tokens
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import UNKNOWN
from paraembed.text.wordpiece import WordPieces, occurring, uncased_vocabulary
from tests.text.pieces import RARE, SPECIAL, Texts, ids_of, library, rows_of, small

SHARED = Path(__file__).parents[3] / "shared/data"


def readers_of(vocabulary):
    return TokenIds(vocabulary, WORDPIECE), WordPieces(vocabulary)


@pytest.fixture(scope="module")
def minilm():
    """The library's tokenizer, and the readers of its vocabulary."""
    tokenizer, vocabulary = library()
    return tokenizer, readers_of(vocabulary)


def check(texts, tokenizer, readers):
    expected = ids_of(tokenizer, texts)
    for ids in readers:
        found = ids(pa.array(texts, pa.string()))
        assert rows_of(found) == expected
        assert (found.ids.dtype, found.offsets.dtype) == (np.int32, np.int64)


def test_hard_texts(minilm):
    texts = Texts(minilm[1][0].vocabulary)
    rng = random.Random(0)
    alone = [*SPECIAL, *RARE, "", " ", "a" * 100, "a" * 101, "é" * 100, "e\u0301" * 101, "a[MASK]b", "[MASK][MASK]"]
    check([*alone, " ".join(alone), *(texts.text(rng) for _ in range(500))], *minilm)


def test_pieces_that_no_text_has_can_be_left_out():
    _, vocabulary = library()
    occurs = occurring(vocabulary.to_pylist())
    kept = vocabulary.filter(pa.array(occurs))
    assert {"[CLS]", UNKNOWN, "##ing", "the", "!", "中"} < set(kept.to_pylist())
    assert not {"[unused0]", "##!", "##中"} & set(kept.to_pylist())
    texts, rng = Texts(vocabulary), random.Random(1)
    array = pa.array([*SPECIAL, *RARE, *vocabulary.to_pylist(), *(texts.text(rng) for _ in range(2_000))])
    assert np.array_equal(
        np.flatnonzero(occurs)[TokenIds(kept, WORDPIECE)(array).ids], TokenIds(vocabulary, WORDPIECE)(array).ids
    )


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_any_text(minilm, texts):
    check(texts, *minilm)


@given(st.lists(st.sampled_from(["", " ", "a ", "un ", "\u00e9 ", "un", "[CLS] ", "\u1b44\U0001e944 "]), max_size=40))
def test_texts_that_end_with_blanks_are_copied_together(minilm, texts):
    """Also across the end of what is copied together, and texts whose accents are not in order."""
    check(texts * 12, *minilm)


def test_accents_are_put_in_unicode_order():
    tokenizer, vocabulary = library()
    high, low, barrier = "\U0001e944", "\u1b44", "\u0e31"  # of the classes 230 and 9, and an accent of class 0
    texts = [f"a{high}{low}", f"a{high}\x00{low}", f"a{high}{barrier}{low}", f"{high}b{low}", f"x {high}\u0301{low} y"]
    found = TokenIds(vocabulary, WORDPIECE)(pa.array(texts))
    assert len(found.ids) == sum(map(len, ids_of(tokenizer, texts)))
    letters = ["[UNK]", "a", f"##{low}", f"##{high}", f"##{low}{high}", f"##{high}{low}", "b", "x", high, low]
    contents, tokenizer = small(letters)
    check([*texts, "a", *texts], tokenizer, readers_of(uncased_vocabulary(contents)))


@pytest.mark.parametrize(
    "words", [["[UNK]", "a", "##b", "##bb", "[MASK]"], ["##a", "é", "a" * 70, "##" + "b" * 80, "[UNK]"]]
)
def test_small_and_long_pieces(words):
    contents, tokenizer = small(words)
    readers = readers_of(uncased_vocabulary(contents))
    pieces = ["a", "b", "[MASK]", "[PAD]", " ", "é", "a" * 70, "b" * 80, "b" * 79, "c", "a" * 69]
    rng = random.Random(1)
    check(["".join(rng.choices(pieces, k=6)) for _ in range(300)], tokenizer, readers)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data")
def test_all_novels():
    tokenizer, vocabulary = library()
    to_ids, num_texts = TokenIds(vocabulary, WORDPIECE), 0
    with gzip.open(SHARED / "train/text/gutenberg-prose.sentences.txt.gz", "rt", encoding="utf-8") as file:
        while texts := [line.rstrip("\n") for line in islice(file, 50_000)]:
            found, expected = to_ids(pa.array(texts)), ids_of(tokenizer, texts)
            assert np.array_equal(found.lengths, [len(ids) for ids in expected])
            assert np.array_equal(found.ids, [row for ids in expected for row in ids])
            num_texts += len(texts)
    assert num_texts == 718_769


@pytest.mark.slow
def test_the_table_is_that_of_the_library(tmp_path):
    pytest.importorskip("tokenizers")
    uncased.main(tmp_path / "table.npz")
    with np.load(tmp_path / "table.npz") as made, np.load(Path(tokens.__file__).with_name("uncased.npz")) as kept:
        assert sorted(made) == sorted(kept)
        for name in made:
            np.testing.assert_array_equal(made[name], kept[name])


def test_nulls_slices_and_invalid_texts():
    ids = TokenIds(pa.array(["[CLS]", UNKNOWN, "un", "##do"]), WORDPIECE)
    texts = pa.array(["x", "undo [CLS]", None, "", "Ündo[UNK] un"]).slice(1)
    assert ids(texts).ids.tolist() == [2, 3, 0, 2, 3, 1, 2]
    assert ids(texts).offsets.tolist() == [0, 3, 3, 3, 7]
    with pytest.raises(ValueError, match="text 2 of 2 is not UTF-8"):
        ids(pa.array([b"a ", b"a\xe2\x80"]).view(pa.string()))


WRONG = {
    "cased": (("normalizer", "lowercase", False), "normalizer"),
    "accents": (("normalizer", "strip_accents", False), "normalizer"),
    "splitter": (("pre_tokenizer", "type", "Whitespace"), "pre-tokenizer"),
    "model": (("model", "type", "BPE"), "expected WordPiece"),
    "prefix": (("model", "continuing_subword_prefix", "@@"), "expected WordPiece"),
    "longer words": (("model", "max_input_chars_per_word", 200), "expected WordPiece"),
    "gap": (("model", "vocab", {"[UNK]": 0, "a": 2}), "gaps"),
    "no row for OOV tokens": (("model", "vocab", {"[PAD]": 0, "a": 1}), "no \\[UNK\\]"),
    "special token that is not added": (("model", "vocab", {"[UNK]": 0, "[CLS]": 1}), "added tokens"),
    "other added token": (("added_tokens", None, [{"content": "[UNK]"}, {"content": "<new>"}]), "added tokens"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_other_tokenizers_are_refused(change, message):
    contents, _ = small(["[UNK]", "a"])
    part, name, value = change
    contents[part] = {**(contents[part] or {}), name: value} if name else value
    with pytest.raises(ValueError, match=message):
        uncased_vocabulary(contents)
