"""The bootstrap against a plain loop over resamples with scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paraembed.evaluation.bootstrap import correlations, draws, interval, shares


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=4, max_size=40), st.booleans())
def test_as_a_plain_loop(pairs: list[tuple[int, int]], far_from_zero: bool) -> None:
    predicted, gold = (np.array(side, np.float64) / 7 + 100 * far_from_zero for side in zip(*pairs, strict=True))
    if np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        return
    rs, rhos = correlations(predicted, gold, 20, "a set")
    drawn = np.concatenate(list(draws(len(gold), 20, "a set")))
    assert drawn.shape == (20, len(gold))
    for at, rows in enumerate(drawn):
        one, other = predicted[rows], gold[rows]
        if np.ptp(one) == 0 or np.ptp(other) == 0:
            assert np.isnan(rs[at])
            assert np.isnan(rhos[at])
        else:
            assert rs[at] == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-9)
            assert rhos[at] == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-9)


def test_each_set_has_its_resamples_and_every_candidate_the_same() -> None:
    def first(num_pairs: int, name: str) -> list[int]:
        return next(draws(num_pairs, 1, name))[0].tolist()

    assert first(9, "a") == first(9, "a")
    assert first(9, "a") != first(9, "b")
    rows = np.concatenate(list(draws(3, 1_000_000, "many")))  # in several blocks
    assert len(rows) == 1_000_000
    assert set(np.unique(rows)) == {0, 1, 2}


def test_shares_and_intervals() -> None:
    hits = np.repeat([1.0, 0.0], [80, 20])
    found = shares(hits, 2000, "hits")
    assert found.mean() == pytest.approx(0.8, abs=0.005)
    low, high = interval(found)  # type: ignore[misc]
    # The normal approximation: 0.8 ± 1.96 · √(0.8 · 0.2 / 100).
    assert (low, high) == pytest.approx((0.8 - 0.078, 0.8 + 0.078), abs=0.015)
    assert interval(np.array([0.1, np.nan, np.nan])) is None
    assert interval(np.array([0.5, np.nan])) == (0.5, 0.5)


def test_the_interval_of_a_correlation_is_about_fishers() -> None:
    generator = np.random.default_rng(1)
    gold = generator.standard_normal(800)
    predicted = 0.6 * gold + 0.8 * generator.standard_normal(800)
    r = stats.pearsonr(predicted, gold)
    low, high = interval(correlations(predicted, gold, 2000, "fisher")[0])  # type: ignore[misc]
    assert (low, high) == pytest.approx(tuple(r.confidence_interval(0.95)), abs=0.01)
