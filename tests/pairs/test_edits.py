import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.pairs import filters
from paraembed.pairs.filters import MOST_TOKENS, one_edit_apart, word_overlap

WORD = st.text("abé雪", max_size=5)
PHRASE = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=5).map(" ".join)


def levenshtein(first, second):
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def overlap(first, second):
    def share(tokens, others):
        return sum(any(levenshtein(one, other) <= 1 for other in others) for one in tokens) / len(tokens)

    one, other = first.split(" "), second.split(" ")
    if len(one) == len(other):
        return max(share(one, other), share(other, one))
    return share(one, other) if len(one) < len(other) else share(other, one)


@settings(max_examples=200, deadline=None)
@given(pairs=st.lists(st.tuples(WORD, WORD), max_size=20), start=st.integers(0, 3))
def test_one_edit_apart_is_levenshtein(pairs, start):
    first, second = (pa.array([pair[side] for pair in pairs], pa.string()).slice(start) for side in (0, 1))
    assert one_edit_apart(first, second).tolist() == [levenshtein(*pair) <= 1 for pair in pairs[start:]]


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(PHRASE, PHRASE), max_size=12), at_a_time=st.integers(1, 30))
def test_word_overlap_is_that_of_loops_and_of_the_swap(pairs, at_a_time):
    first, second = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "_PAIRS_AT_A_TIME", at_a_time)
        scores = word_overlap(first, second)
        np.testing.assert_array_equal(scores, word_overlap(second, first))
    np.testing.assert_allclose(scores, [overlap(*pair) for pair in pairs], rtol=1e-12)


def test_the_examples_of_the_paper_overlap():
    first = pa.array(["my dad had", "ballistic missiles"])
    second = pa.array(["my father had", "of ballistic missiles"])
    assert word_overlap(first, second).tolist() == [1.0, 1.0]  # dad: one edit from had


def test_texts_that_are_no_phrases_have_no_overlap():
    long = " ".join(["a"] * (MOST_TOKENS + 1))
    scores = word_overlap(pa.array([long, "a b", long[2:]]), pa.array(["a", long, "a"]))
    assert np.isnan(scores).tolist() == [True, True, False]
