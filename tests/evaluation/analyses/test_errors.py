import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.evaluation.analyses.content import Inputs
from paraembed.evaluation.analyses.errors import (
    by_gold,
    by_ratio,
    gold_ranges,
    gold_scale,
    in_range,
    length_ratio,
    means_by,
    on_gold_scale,
    overlap_ratio,
)
from paraembed.text import tokenise


def test_cosines_are_mapped_onto_the_gold_scale() -> None:
    assert on_gold_scale(np.array([-1.0, 0.0, 0.5, 1.0]), 1, 5).tolist() == [1, 1, 3, 5]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 5, [(1, 2), (2, 3), (3, 4), (4, 5)]),  # Wieting 2015 table 7
        (0, 10, [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]),
        (0, 1, [(0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1)]),
    ],
)
def test_ranges_of_a_scale(low: float, high: float, expected: list[tuple[float, float]]) -> None:
    assert gold_ranges(low, high) == expected


@given(st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 3.25, 5.0]), min_size=2).map(np.array))
def test_every_score_is_in_exactly_one_range(gold: np.ndarray) -> None:
    low, high = gold_scale(gold)
    high = max(high, low + 1)
    inside = np.stack([in_range(gold, *bounds, high) for bounds in gold_ranges(low, high)])
    assert (inside.sum(axis=0) == 1).all()


def test_ratios_of_a_hand_example() -> None:
    pairs = [
        ("the cat sat", "the cat sat on the mat"),  # 3 of 6 tokens, all of them shared
        ("can not be separated from", "is inseparable from"),  # 3 of 5, one shared
        ("the the cat", "the dog"),  # 2 of 3, "the" shared once
        ("", "home"),
        ("", ""),
    ]
    sides = [tokenise(pa.array([pair[at] for pair in pairs]), "space") for at in range(2)]
    lengths = np.stack([np.diff(side.offsets) for side in sides])
    assert length_ratio(lengths).tolist() == [0.5, 0.6, 2 / 3, 0, 1]
    assert overlap_ratio(*sides).tolist() == [1, 1 / 3, 0.5, 0, 0]


def test_means_by_subset() -> None:
    errors = np.array([1.0, 2.0, 4.0])
    means = means_by([np.array([True, True, False]), np.array([False] * 3)], errors)
    assert means[0] == 1.5
    assert np.isnan(means[1])


def test_the_tables_of_a_small_evaluation(inputs: Inputs) -> None:
    (table,) = by_gold(inputs).tables
    gold = np.concatenate([pairs.scores for group in inputs.suites[0].groups for pairs in group.sets])
    names = [f"sts/{group.name}/{pairs.name}" for group in inputs.suites[0].groups for pairs in group.sets]
    means = []
    for label in ("avg", "gran"):
        cosines = np.concatenate([inputs.report.predictions[label, name] for name in names])
        errors = [abs(score - 5 * min(max(cosine, 0), 1)) for score, cosine in zip(gold, cosines, strict=True)]
        means.append(np.mean([error for error, score in zip(errors, gold, strict=True) if score >= 4]))
    assert table.rows[4][0] == "[4, 5]"
    assert np.allclose(np.array(table.rows[4][2:], float), [*means, 100 * (means[0] / means[1] - 1)])
    assert sum(int(row[1] or 0) for row in table.rows) == len(gold)

    (table,) = by_ratio(inputs).tables
    counts = {(row[0], row[2]): 0 for row in table.rows}
    for row in table.rows:
        counts[row[0], row[2]] += int(row[3] or 0)
    positive, negative = int((gold > 3.75).sum()), int((gold < 1.25).sum())
    for what in ("length", "overlap"):
        assert [counts[what, kind] for kind in ("positive", "negative", "both")] == [
            positive,
            negative,
            positive + negative,
        ]
