from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from paraembed.evaluation.analyses.content import Inputs
from paraembed.evaluation.analyses.unknown_share import Points, make, rank_correlation
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, Suite


def test_the_rank_correlation_of_a_hand_example() -> None:
    unknown = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    # ranks 1 2 3 5 4 reversed: 1 - 6·Σd²/(n(n²-1)) with d = 4 2 0 -3 -3
    assert np.isclose(rank_correlation(unknown, np.array([50.0, 40.0, 30.0, 10.0, 20.0])), 1 - 6 * 38 / 120)
    assert rank_correlation(unknown, np.array([np.nan, 1.0, 2.0, 3.0, np.nan])) == 1
    assert np.isnan(rank_correlation(unknown, np.array([1.0, 2.0, np.nan, np.nan, np.nan])))
    assert np.isnan(rank_correlation(np.ones(5), unknown))


def test_the_deviation_is_from_the_systems_of_the_task() -> None:
    points = Points("avg", ("sts/2012/MSRpar", "pairs/own"), np.zeros(2), np.array([42.6, 50.0]))
    assert np.isclose(points.deviation[0], -15.0)  # paragram-phrase, and 57.6
    assert np.isnan(points.deviation[1])


def test_shares_are_counted_in_the_texts(inputs: Inputs) -> None:
    correlations, table = make(inputs).tables
    row = next(row for row in table.rows if row[:2] == ("avg", "sts/2013/OnWN"))
    pairs = inputs.suites[0].groups[1].sets[0]
    tokens = [token for side in pairs.texts for text in side.to_pylist() for token in text.split()]
    assert np.isclose(row[2], 100 * tokens.count("zebra") / len(tokens))
    assert [row[:2] for row in correlations.rows] == [("avg", 3), ("gran", 3)]


def test_both_counts_of_sets_are_told(inputs: Inputs) -> None:
    """A set of one's own has a score, and no 75th percentile."""
    own = Suite("pairs", (Group("", (replace(inputs.suites[0].groups[0].sets[0], name="own"),)),))
    suites = (*inputs.suites, own)
    report = compare(inputs.candidates, suites, resamples=0)
    correlations, table = make(replace(inputs, suites=suites, report=report)).tables
    assert correlations.head == (
        *("encoder", "sets", "ρ with the score", "sets with a 75th percentile", "ρ with the deviation"),
    )
    assert [row[1::2] for row in correlations.rows] == [(4, 3), (4, 3)]
    there = [row for row in table.rows if row[0] == "avg" and row[4] is not None]
    expected = stats.spearmanr([row[2] for row in there], [row[4] for row in there]).statistic
    assert correlations.rows[0][4] == pytest.approx(100 * expected)
