"""Word overlap by hand."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.evaluation.overlap import WordOverlap, overlap_candidates


def overlap(one: str, other: str, *, lemmatised: bool = False) -> float:
    return float(WordOverlap(lemmatised=lemmatised).similarity(pa.array([one]), pa.array([other]))[0])


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("my dad had", "my father had", 2 / 3),
        ("the cats sat", "cats", 1),
        ("the the cat", "the dog ran on", 2 / 3),  # of the shorter one's words, repeated ones too
        ("a a b", "a c d", 2 / 3),  # as long as each other: 2/3 and 1/3
        ("", "a", 0),
        ("A", "a", 1),
    ],
)
def test_by_hand(one: str, other: str, share: float) -> None:
    assert overlap(one, other) == pytest.approx(share)
    assert overlap(other, one) == pytest.approx(share)


def test_lemmas() -> None:
    assert overlap("two cats", "the cat sat") == 0
    assert overlap("two cats", "the cat sat", lemmatised=True) == 1 / 2


@given(*[st.lists(st.sampled_from("abcd"), min_size=1, max_size=6)] * 2)
def test_between_0_and_1_and_the_same_both_ways(one: list[str], other: list[str]) -> None:
    shares = overlap(" ".join(one), " ".join(other)), overlap(" ".join(other), " ".join(one))
    assert shares[0] == shares[1]
    assert 0 <= shares[0] <= 1
    assert (shares[0] > 0) == bool({*one} & {*other})


def test_they_are_baselines() -> None:
    assert [(one.label, one.kind, one.is_baseline) for one in overlap_candidates()] == [
        ("overlap", "", True), ("lemma overlap", "", True),
    ]  # fmt: skip
