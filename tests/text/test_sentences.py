"""Sentences, blocks of Markdown and words: where texts are cut, by examples and for any text."""

import gzip
import json
import re
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.text.ragged import string_bytes
from paraembed.text.sentences import blocks, halves, pack, sentences, words

BROWN = Path(__file__).parents[3] / "shared/data/train/text/brown.sentences.txt.gz"  # where a machine has it
CUT = json.loads(Path(__file__).with_name("sentences.json").read_text())
"""Texts in the pieces that they are cut into."""


def pieces(split, text):
    octets, places = string_bytes(pa.array([text], pa.string()))
    cuts, breaks = np.empty(len(octets), np.int64), np.empty(len(octets), np.uint8)
    count = split(octets, places[:-1], places[1:], cuts, breaks)
    bounds = [0, *cuts[:count].tolist(), len(octets)]
    return [text.encode()[a:b].decode() for a, b in pairwise(bounds)], breaks[:count].tolist()


@pytest.mark.parametrize("expected", CUT["sentences"], ids=lambda expected: expected[0])
def test_sentences_end_where_a_reader_ends_them(expected):
    assert pieces(sentences, "".join(expected))[0] == [*expected]


@pytest.mark.parametrize("expected", CUT["blocks"])
def test_markdown_is_cut_at_blocks_and_breaks_at_headings(expected):
    found, breaks = pieces(blocks, "".join(expected))
    assert found == [*expected]
    assert breaks == [piece.startswith("#") and not piece.startswith("#######") for piece in expected[1:]]


ANY = st.lists(
    st.sampled_from(["a", "B", "é", "。", "。」", ".", "!", "…", "'", "“", " ", "\n", "\n\n", "#", "```", "1", "𝄞"])
)


def test_the_time_of_a_run_of_marks_is_linear():
    text = "." * 3_000_000 + "x ate. "
    assert pieces(sentences, text + "It did.")[0] == [text, "It did."]  # quadratic: hours


@given(ANY.map("".join), st.sampled_from([sentences, blocks, words, halves]))
def test_the_pieces_of_a_text_are_the_text(text, split):
    found, _ = pieces(split, text)
    assert "".join(found) == text
    assert all(found) or not text
    if split is words:
        assert [piece.split(maxsplit=1)[0] for piece in found if piece.strip()] == text.split()


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), max_size=4),
    st.integers(1, 12),
    st.integers(0, 11),
)
def test_chunks_are_full_and_begin_with_the_end_of_the_one_before(texts, limit, overlap):
    sizes = np.array([size for text in texts for size, _ in text], np.int64)
    breaks = np.array([is_break for text in texts for _, is_break in text], np.uint8)
    bounds = np.cumsum([0, *map(len, texts)])
    firsts, lasts, rows = np.empty((3, len(sizes) + len(texts)), np.int64)
    count = pack(sizes, bounds, breaks, np.full(len(texts), limit), overlap, firsts, lasts, rows)
    for number, (start, stop) in enumerate(pairwise(bounds)):
        chunks = [(int(firsts[c]), int(lasts[c])) for c in range(count) if rows[c] == number]
        assert (chunks[0][0], chunks[-1][1]) == (start, stop)
        for first, last in chunks:
            assert last - first == 1 or sizes[first:last].sum() <= limit
        for (before, end), (first, last) in pairwise(chunks):
            assert before < first <= end < last
            assert first == end or 0 < overlap >= sizes[first:end].sum()
            assert sizes[before : end + 1].sum() > limit or breaks[end]
            assert first == end or not breaks[first + 1 : last].any() or not breaks[end]


@pytest.mark.slow
@pytest.mark.skipif(not BROWN.is_file(), reason="no real texts on this machine")
def test_sentence_ends_of_brown_are_as_exact_as_documented():
    """Boundary F1 of ``docs/chunks.md``, on each fifth of its documents."""
    with gzip.open(BROWN, "rt", encoding="utf-8") as file:
        lines = [re.sub(r" ([,.;:?!%)\]}])", r"\1", re.sub(r"`` ?| ?''", '"', line.strip())) for line in file]
    ended = [line for line in lines if re.search(r"[.?!][\"')\]]*$", line)]
    right = wrong = missing = 0
    for start in range(0, len(ended), 500):
        expected = {*accumulate(len(f"{line} ".encode()) for line in ended[start : start + 100])}
        found = {
            *accumulate(
                len(piece.encode()) for piece in pieces(sentences, " ".join([*ended[start : start + 100], ""]))[0]
            )
        }
        right, wrong, missing = (
            right + len(found & expected),
            wrong + len(found - expected),
            missing + len(expected - found),
        )
    assert 2 * right / (2 * right + wrong + missing) > 0.97
