"""Whether one encoder is better than another: paired tests on one set, and of the mean over several sets.

On a set of graded pairs the p-value is that of Steiger's test, as in Wieting 2015 (tables 3, 5 and 6; there one-tailed,
here two-tailed). For accuracies and for means it is that of the paired bootstrap: both encoders are scored on the same
resamples. No p-value is corrected for the number of comparisons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paraembed.evaluation.measures import Vector, correlations, intervals, pearson, spearman
from paraembed.evaluation.scoring import Score, mean_score
from paraembed.evaluation.sets import Measure
from paraembed.settings import RESAMPLES

ALPHA = 0.05
"""Level of significance: a difference with a p-value below it is significant."""
BEST, TIE = "†", "="
"""Marks of a best score: significantly better than every other score, or not (then the scores in the tie have it)."""
_ROUNDING = 1e-12  # of a difference of correlations


@dataclass(frozen=True)
class PairedTest:
    """Difference between the scores of two encoders on the same pairs."""

    difference: float  # score of the first encoder minus that of the second
    p: float  # two-sided p-value
    low: float  # bounds of the difference's 95 % interval; NaN if over half of the resamples have no score
    high: float

    @property
    def is_tie(self) -> bool:
        """Whether the difference is not significant."""
        return self.p >= ALPHA


def paired_test(
    first: Vector, second: Vector, gold: Vector, *, measure: Measure = "pearson", resamples: int = RESAMPLES
) -> PairedTest:
    """Compare the predictions of two encoders for the same pairs with the gold scores, all [n].

    ``measure`` is ``pearson`` or ``spearman``; fewer than four pairs are a tie. Raise ValueError if a correlation is
    undefined (see ``pearson``) or there are no resamples.

    Example:
        >>> gold = np.arange(8.0)
        >>> paired_test(gold, gold[::-1], gold).is_tie
        False
    """
    return compare_scores(*(_score(side, gold, measure, resamples) for side in (first, second)))


def paired_test_of_mean(
    sets: Sequence[tuple[Vector, Vector, Vector]], *, measure: Measure = "pearson", resamples: int = RESAMPLES
) -> PairedTest:
    """Compare the mean correlations of two encoders over sets, given ``first``, ``second`` and ``gold`` of each set.

    The sets are resampled independently. Other arguments and errors are those of ``paired_test``.
    """
    scores = [
        [_score(side, gold, measure, resamples, f"set {number}") for side in sides]
        for number, (*sides, gold) in enumerate(sets)
    ]
    return compare_scores(*(mean_score(of_encoder, "mean", "mean") for of_encoder in zip(*scores, strict=True)))


def compare_scores(first: Score, second: Score) -> PairedTest:
    """Compare the scores of two encoders on a set, or their means over the same sets; both have resamples."""
    measure = first.measure
    differences = first.replicates[measure] - second.replicates[measure]
    low, high = intervals({measure: differences}).get(measure, (math.nan, math.nan))
    if first.predicted is None or second.predicted is None:
        p = bootstrap_p(differences)
    else:
        correlation = spearman if measure == "spearman" else pearson
        between = correlation(first.predicted, second.predicted)
        p = steiger_p(first.value, second.value, between, len(first.predicted))
    return PairedTest(first.value - second.value, p, low, high)


def compare_replicates(first: float, firsts: Sequence[float], second: float, seconds: Sequence[float]) -> PairedTest:
    """Compare two scores by the paired bootstrap, given their values in the same resamples [R]."""
    differences = np.subtract(firsts, seconds)
    low, high = intervals({"": differences}).get("", (math.nan, math.nan))
    return PairedTest(first - second, bootstrap_p(differences), low, high)


def steiger_p(first: float, second: float, between: float, num_pairs: int) -> float:
    """Return the two-sided p-value of the difference of two correlations that share the gold scores.

    Steiger 1980, equations 10 and 14. ``first`` and ``second`` are the correlations of two predictions with the gold
    scores of N pairs, ``between`` is that of the two predictions, and r̄ = (first + second) / 2:

        Z = (artanh first − artanh second) · √(N − 3) / √(2 − 2s)
        s = (between · (1 − 2r̄²) − r̄² · (1 − 2r̄² − between²) / 2) / (1 − r̄²)²

    For Spearman's ρ, which is Pearson's r of the ranks, the test is an approximation. Equal correlations and fewer than
    four pairs give 1.
    """
    if num_pairs < 4 or abs(first - second) < _ROUNDING:
        return 1.0
    square = ((first + second) / 2) ** 2
    covariance = between * (1 - 2 * square) - square * (1 - 2 * square - between**2) / 2
    variance = max(2 - 2 * covariance / (1 - square) ** 2, _ROUNDING)
    angles = np.arctanh(np.clip([first, second], _ROUNDING - 1, 1 - _ROUNDING))  # finite for r = ±1
    z = abs(float(angles[0] - angles[1])) * math.sqrt((num_pairs - 3) / variance)
    return math.erfc(z / math.sqrt(2))


def bootstrap_p(differences: Vector) -> float:
    """Return the two-sided p-value of a difference, given its values in the resamples [R].

    It is twice the smaller fraction of values at or beyond 0, with 1 added to both counts (Davison and Hinkley 1997,
    §4.2), so that at least 40 resamples are needed for a significant difference.
    """
    finite = differences[np.isfinite(differences)]
    beyond = min(np.count_nonzero(finite <= _ROUNDING), np.count_nonzero(finite >= -_ROUNDING))
    return min(1.0, 2 * (1 + beyond) / (1 + len(finite)))


def is_comparable(score: Score) -> bool:
    """Whether a score has a value and its resamples."""
    return score.measure in score.replicates


def marks(scores: Sequence[Score]) -> list[str]:
    """Return the mark of each encoder's score on one set or mean: ``BEST``, ``TIE`` or empty.

    The best score is compared with every other one. A single comparable score has no mark.
    """
    ranked = sorted(filter(is_comparable, scores), key=lambda score: -score.value)
    if len(ranked) < 2:
        return [""] * len(scores)
    tied = [score for score in ranked[1:] if compare_scores(ranked[0], score).is_tie]
    return [(TIE if tied else BEST) * any(score is other for other in (ranked[0], *tied)) for score in scores]


def _score(predicted: Vector, gold: Vector, measure: Measure, resamples: int, name: str = "set") -> Score:
    if resamples < 1:
        raise ValueError(f"`resamples` is {resamples}; a paired test needs at least 1, for example {RESAMPLES}")
    values, replicates = correlations(predicted, gold, resamples, name)
    return Score(name, name, values, measure, len(gold), 0, 0, replicates=replicates, predicted=predicted)
