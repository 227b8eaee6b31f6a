"""Paired tests: published examples, the rate of false alarms in a simulation, and what has no difference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paraembed.evaluation.measures import correlations, draws, pearson
from paraembed.evaluation.paired import BEST, TIE, bootstrap_p, marks, paired_test, paired_test_of_mean, steiger_p
from paraembed.evaluation.scoring import Score


@pytest.mark.parametrize(
    ("first", "second", "between", "num_pairs", "z"),
    [
        (0.4, 0.5, 0.1, 103, 0.8887185),  # Steiger 1980, case A, p. 249, without its rounding of s to 0.0042
        (0.3, 0.4, 0.5, 100, 1.0718),  # Silver, Hittner and May 2006, program DEPCOR
    ],
)
def test_published_examples(first, second, between, num_pairs, z):
    p = steiger_p(first, second, between, num_pairs)
    assert p == steiger_p(second, first, between, num_pairs)
    assert stats.norm.isf(p / 2) == pytest.approx(z, abs=5e-5)


def test_steiger_has_the_rate_of_false_alarms_and_agrees_with_the_bootstrap():
    """Two encoders of equal quality with correlated errors; an unpaired test would hardly ever reject."""
    generator = np.random.default_rng(0)
    p_values = []
    for _ in range(2000):
        gold, shared, *own = generator.normal(size=(4, 60))
        first, second = (gold + shared + 0.5 * noise for noise in own)
        r = np.corrcoef([first, second, gold])
        p_values.append(steiger_p(r[0, 2], r[1, 2], r[0, 1], 60))
    for alpha in (0.05, 0.2):
        assert np.mean(np.array(p_values) < alpha) == pytest.approx(alpha, rel=0.25)
    better = gold + shared
    result = paired_test(better, second, gold)
    replicates = [
        pearson(better[rows], gold[rows]) - pearson(second[rows], gold[rows])
        for block in draws(60, 1000, "set")
        for rows in block
    ]
    assert (result.low, result.high) == pytest.approx(tuple(np.percentile(replicates, (2.5, 97.5))), abs=1e-9)
    assert result.difference == pearson(better, gold) - pearson(second, gold)
    assert bootstrap_p(np.array(replicates)) == pytest.approx(result.p, rel=0.5, abs=0.02)


@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_equal_predictions_are_a_tie_and_the_order_does_not_matter(num_pairs, seed):
    first, second, gold = np.random.default_rng(seed).normal(size=(3, num_pairs))
    for measure in ("pearson", "spearman"):
        same = paired_test(first, 3 * first + 1, gold, measure=measure, resamples=50)
        assert (same.p, same.difference) == (1, pytest.approx(0, abs=1e-12))
        one, other = (
            paired_test(*sides, gold, measure=measure, resamples=50) for sides in ((first, second), (second, first))
        )
        assert (one.difference, one.p) == (-other.difference, other.p)
        np.testing.assert_allclose((one.low, one.high), (-other.high, -other.low))
        assert num_pairs > 3 or one.p == 1


def test_perfect_predictions_and_undefined_correlations():
    gold = np.arange(20.0)
    noisy = gold + np.random.default_rng(0).normal(size=20)
    assert paired_test(gold, noisy, gold).p < 1e-6
    assert paired_test(gold, 2 * gold, gold).p == 1
    for predicted, message in ((np.ones(20), "20 predictions are all 1"), (np.where(gold, gold, np.nan), "is nan")):
        with pytest.raises(ValueError, match=message):
            paired_test(noisy, predicted, gold)
    with pytest.raises(ValueError, match="`resamples` is 0"):
        paired_test(noisy, gold, gold, resamples=0)


def test_a_mean_over_sets_shows_what_no_set_shows_alone():
    generator = np.random.default_rng(3)
    sets = []
    for _ in range(12):
        gold, shared, noise = generator.normal(size=(3, 40))
        sets.append((gold + shared, gold + shared + 0.6 * noise, gold))
    alone = [paired_test(*of_set) for of_set in sets]
    mean = paired_test_of_mean(sets)
    assert mean.difference == pytest.approx(np.mean([result.difference for result in alone]))
    assert mean.p < min(result.p for result in alone)
    assert not mean.is_tie
    assert mean.high - mean.low < min(result.high - result.low for result in alone)
    swapped = paired_test_of_mean([(second, first, gold) for first, second, gold in sets])
    assert (swapped.difference, swapped.p) == (-mean.difference, mean.p)
    assert paired_test_of_mean([(first, first, gold) for first, _, gold in sets]).p == 1


def test_marks():
    generator = np.random.default_rng(0)
    gold, shared = generator.normal(size=(2, 200))

    def score(noise, resamples=100):
        predicted = gold + shared + noise * generator.normal(size=200)
        values, replicates = correlations(predicted, gold, resamples, "set")
        return Score("set", "set", values, "pearson", 200, 0, 0, replicates=replicates, predicted=predicted)

    good, as_good, bad, unsampled = score(0.5), score(0.5), score(3), score(0, 0)
    assert marks([bad, good, unsampled]) == ["", BEST, ""]
    assert marks([good, bad, as_good]) == [TIE, "", TIE]
    assert marks([good, unsampled]) == ["", ""]
