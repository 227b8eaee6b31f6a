"""How far a score would move with other pairs: percentile bootstrap (Efron 1979).

A resample draws n of n pairs with replacement, so it is a count for each pair, 0 or more. Its correlation is that of
the pairs weighted by their counts; equal values share their mean rank within the resample.
"""

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

SEED = 0
_PERCENTILES = (2.5, 97.5)
_DRAWS = 1 << 20  # at a time, 4 MB


def draws(num_pairs: int, resamples: int, name: str) -> Iterator[Ints]:
    """Pairs of the resamples, in blocks [R, n]; the same for a name and a number of pairs, whoever is scored."""
    generator = np.random.default_rng([SEED, zlib.crc32(name.encode()), num_pairs])
    at_once = max(1, _DRAWS // num_pairs)
    for start in range(0, resamples, at_once):
        yield generator.integers(0, num_pairs, (min(at_once, resamples - start), num_pairs), np.int32)


def correlations(predicted: Vector, gold: Vector, resamples: int, name: str) -> tuple[Vector, Vector]:
    """Pearson's r and Spearman's ρ of resamples of n pairs.

    Args:
        predicted: float64 [n], not constant.
        gold: the same.
        resamples: how many.
        name: of the set; see ``draws``.

    Returns:
        Two vectors [resamples]; NaN where a resample has a side that is constant.
    """
    # Around 0 and of size 1, so that the sums of squares keep their digits.
    sides = [(side - side.mean()) / side.std() for side in (predicted, gold)]
    groups = [np.unique(side, return_inverse=True)[1].astype(np.int32) for side in (predicted, gold)]
    blocks = [_correlations(drawn_RN, *sides, *groups) for drawn_RN in draws(len(gold), resamples, name)]
    both: Vector = np.concatenate(blocks, axis=1)
    return both[0], both[1]


def shares(hits: Vector, resamples: int, name: str) -> Vector:
    """Mean of hits [n] in each resample, [resamples]."""
    return np.concatenate([hits[drawn_RN].mean(axis=1) for drawn_RN in draws(len(hits), resamples, name)])


def interval(replicates: Vector) -> tuple[float, float] | None:
    """The middle 95 % of replicates; None where under half of them are numbers, for that says nothing."""
    finite = replicates[np.isfinite(replicates)]
    if 2 * len(finite) < len(replicates):
        return None
    low, high = np.percentile(finite, _PERCENTILES)
    return float(low), float(high)


@compiled
def _correlations(drawn_RN: Ints, x_N: Vector, y_N: Vector, x_groups_N: Ints, y_groups_N: Ints) -> Vector:
    """Pearson's r and Spearman's ρ of each resample, [2, R]; a group is a value's place among the distinct ones."""
    num_resamples, num_pairs = drawn_RN.shape
    found_2R = np.empty((2, num_resamples))
    count_N = np.empty(num_pairs)
    x_ranks, y_ranks = np.empty(x_groups_N.max() + 1), np.empty(y_groups_N.max() + 1)
    for resample in range(num_resamples):
        count_N[:] = 0
        for pair in drawn_RN[resample]:
            count_N[pair] += 1
        _mean_ranks(count_N, x_groups_N, x_ranks)
        _mean_ranks(count_N, y_groups_N, y_ranks)
        x = y = xx = yy = xy = rank_xx = rank_yy = rank_xy = 0.0
        for pair in range(num_pairs):
            count, one, other = count_N[pair], x_N[pair], y_N[pair]
            x += count * one
            y += count * other
            xx += count * one * one
            yy += count * other * other
            xy += count * one * other
            one, other = x_ranks[x_groups_N[pair]], y_ranks[y_groups_N[pair]]
            rank_xx += count * one * one
            rank_yy += count * other * other
            rank_xy += count * one * other
        found_2R[0, resample] = _ratio(xy - x * y / num_pairs, xx - x * x / num_pairs, yy - y * y / num_pairs)
        found_2R[1, resample] = _ratio(rank_xy, rank_xx, rank_yy)
    return found_2R


@compiled
def _mean_ranks(count_N: Vector, group_N: Ints, ranks: Vector) -> None:
    """Write the mean rank of each group, less (n + 1) / 2, their mean over the resample."""
    ranks[:] = 0
    for pair in range(len(count_N)):
        ranks[group_N[pair]] += count_N[pair]
    before = -len(count_N) / 2
    for group in range(len(ranks)):
        size = ranks[group]
        ranks[group] = before + size / 2
        before += size


@compiled
def _ratio(covariance: float, one: float, other: float) -> float:
    """Covariance over the root of the variances' product; NaN where one of them is 0 but for rounding."""
    return covariance / np.sqrt(one * other) if min(one, other) > 1e-10 else np.nan
