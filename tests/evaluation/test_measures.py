"""Correlations: by hand, by scipy, where they are not defined; the bootstrap against a plain loop over resamples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paraembed.evaluation import measures


def vector(*values):
    return np.array(values, np.float64)


@pytest.mark.parametrize("correlation", [measures.pearson, measures.spearman])
@pytest.mark.parametrize(
    ("predicted", "gold", "message"),
    [
        (vector(0.5, 0.5, 0.5), vector(1, 2, 3), r"the 3 predictions are all 0\.5; .* in the vocabulary"),
        (vector(1, 1, 1 + 1e-15), vector(1, 2, 3), "the 3 predictions are all 1;"),
        (vector(0, 0, 0), vector(1, 2, 3), "the 3 predictions are all 0;"),
        (vector(1, 2, 3), vector(5, 5, 5), "the 3 gold scores are all 5; a correlation needs different values$"),
        (vector(1, np.nan, 3), vector(1, 2, 3), "number 2 of the predictions is nan"),
        (vector(1, 2, 3), vector(1, 2, -np.inf), "number 3 of the gold scores is -inf"),
        (vector(1), vector(1), "the correlation of a single pair is undefined; give at least 2"),
        (vector(1, 2), vector(1, 2, 3), "2 predictions and 3 gold scores"),
    ],
)
def test_what_is_not_defined_is_said(correlation, predicted, gold, message):
    with pytest.raises(ValueError, match=message):
        correlation(predicted, gold)


def test_cosine():
    first = np.array([[3, 4], [1, 0], [1, 1], [0, 0], [1e-30, 0]], np.float32)
    second = np.array([[6, 8], [0, 2], [-1, -1], [1, 2], [1e-30, 1e-30]], np.float32)
    np.testing.assert_allclose(measures.cosine(first, second), [1, 0, -1, 0, np.sqrt(0.5)], atol=1e-7)
    assert measures.cosine(first, first)[3] == 0
    assert measures.cosine(first[:0], first[:0]).shape == (0,)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=4, max_size=40), st.booleans())
def test_resamples_as_a_plain_loop(pairs, far_from_zero):
    predicted, gold = (np.array(side, np.float64) / 7 + 100 * far_from_zero for side in zip(*pairs, strict=True))
    if np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        return
    rs, rhos = measures.resampled_correlations(predicted, gold, 20, "a set")
    drawn = np.concatenate(list(measures.draws(len(gold), 20, "a set")))
    assert drawn.shape == (20, len(gold))
    for at, rows in enumerate(drawn):
        one, other = predicted[rows], gold[rows]
        if np.ptp(one) == 0 or np.ptp(other) == 0:
            assert np.isnan(rs[at])
            assert np.isnan(rhos[at])
        else:
            assert rs[at] == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-9)
            assert rhos[at] == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-9)


def test_each_set_has_its_resamples_and_every_candidate_the_same():
    def first(num_pairs, name):
        return next(measures.draws(num_pairs, 1, name))[0].tolist()

    assert first(9, "a") == first(9, "a")
    assert first(9, "a") != first(9, "b")
    rows = np.concatenate(list(measures.draws(3, 1_000_000, "many")))  # in several blocks
    assert len(rows) == 1_000_000
    assert set(np.unique(rows)) == {0, 1, 2}


def test_shares_and_intervals():
    hits = np.repeat([1.0, 0.0], [80, 20])
    found = measures.resampled_means(hits, 2000, "hits")
    assert found.mean() == pytest.approx(0.8, abs=0.005)
    low, high = measures.intervals({"accuracy": found})["accuracy"]
    # The normal approximation: 0.8 ± 1.96 · √(0.8 · 0.2 / 100).
    assert (low, high) == pytest.approx((0.8 - 0.078, 0.8 + 0.078), abs=0.015)
    replicates = {"pearson": np.array([0.1, np.nan, np.nan]), "spearman": np.array([0.5, np.nan])}
    assert measures.intervals(replicates) == {"spearman": (0.5, 0.5)}


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=20))
def test_the_threshold_is_the_lowest_of_the_best(pairs):
    values, labels = (np.array(side, np.float64) for side in zip(*pairs, strict=True))
    if np.ptp(values) == 0:
        with pytest.raises(ValueError, match=r"predictions are all .*in the vocabulary"):
            measures.best_threshold(values, labels)
        return
    distinct = np.unique(values)
    tried = [-np.inf, *(distinct[:-1] + distinct[1:]) / 2, np.inf]
    right = [np.mean((values >= one) == (labels > 0)) for one in tried]
    assert measures.best_threshold(values, labels) == tried[int(np.argmax(right))]


def test_a_choice_by_hand():
    similarities = np.array(
        [[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.3, 0.3 + 1e-8, 0.3], [0.1, 0.2, 0.2], [0.5, 0.4, 0.5 + 1e-3]], np.float32
    )
    won, shared = measures.first_place(similarities)
    assert won.tolist() == [True, False, False, False, False]
    np.testing.assert_allclose(shared, [1, 1 / 2, 1 / 3, 0, 0])


def test_what_cannot_be_decided_is_an_error():
    with pytest.raises(ValueError, match=r"6 predictions are all 0\.25"):
        measures.first_place(np.full((2, 3), 0.25, np.float32))
    with pytest.raises(ValueError, match="not finite"):
        measures.first_place(np.array([[0.1, np.nan]], np.float32))
    with pytest.raises(ValueError, match="not finite"):
        measures.best_threshold(np.array([0.1, np.inf]), np.array([0.0, 1.0]))
