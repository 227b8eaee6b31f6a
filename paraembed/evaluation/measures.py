"""Cosine, Pearson's r and Spearman's ρ with percentile-bootstrap intervals (Efron 1979); thresholds and choices.

A resample draws n of n pairs with replacement, that is, a count of 0 or more for each pair. Its correlation is that of
the pairs weighted by their counts; equal values share their mean rank within the resample.
"""

import zlib
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.compiled import compiled
from paraembed.encoders.protocol import Embeds, warn_of_unread
from paraembed.evaluation.candidates import PairScorer
from paraembed.evaluation.sets import AnySet, Choices, ScoredPairs, Suite

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

SEED = 0
_LARGEST = 1e100
_PERCENTILES = (2.5, 97.5)
_DRAWS = 1 << 20  # at a time, 4 MB


def cosine(first_NH: npt.NDArray[np.float32], second_NH: npt.NDArray[np.float32]) -> Vector:
    """Return the cosine of each row with the same row of the other matrix, float64 [N]; 0 for a zero row."""
    first, second = first_NH.astype(np.float64), second_NH.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    dots: Vector = np.einsum("nh,nh->n", first, second)
    cosines: Vector = np.divide(dots, norms, out=np.zeros(len(norms)), where=norms != 0)
    return cosines


def unit_rows(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the rows, divided by their lengths; zero rows stay zero."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    units: npt.NDArray[np.float32] = np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms != 0)
    return units


def pearson(predicted: Vector, gold: Vector) -> float:
    """Return Pearson's correlation of two vectors [N].

    Raises:
        ValueError: the correlation is undefined: fewer than two pairs, or a side that is constant or not finite.

    Example:
        >>> round(pearson(np.array([0.1, 0.4, 0.9]), np.array([1.0, 3.0, 5.0])), 4)
        0.9897
    """
    from scipy import stats  # noqa: PLC0415 - 1 s, which workers that do not evaluate do without

    _check(predicted, gold)
    return float(stats.pearsonr(predicted, gold).statistic)


def spearman(predicted: Vector, gold: Vector) -> float:
    """Return Spearman's rank correlation of two vectors [N], with mean ranks for ties; errors as in ``pearson``."""
    from scipy import stats  # noqa: PLC0415 - as in ``pearson``

    _check(predicted, gold)
    return float(stats.spearmanr(predicted, gold).statistic)


def draws(num_pairs: int, resamples: int, name: str) -> Iterator[Ints]:
    """Yield the pairs of the resamples in blocks [R, n]; they depend only on the name and the number of pairs."""
    generator = np.random.default_rng([SEED, zlib.crc32(name.encode()), num_pairs])
    at_once = max(1, _DRAWS // num_pairs)
    for start in range(0, resamples, at_once):
        yield generator.integers(0, num_pairs, (min(at_once, resamples - start), num_pairs), np.int32)


def resampled_correlations(predicted: Vector, gold: Vector, resamples: int, name: str) -> tuple[Vector, Vector]:
    """Return Pearson's r and Spearman's ρ, [resamples] each, of resamples of two sides [n] that are not constant; NaN
    for a resample with a constant side.
    """
    # Around 0 and of size 1, so that the sums of squares keep their digits.
    sides = [(side - side.mean()) / side.std() for side in (predicted, gold)]
    groups = [np.unique(side, return_inverse=True)[1].astype(np.int32) for side in (predicted, gold)]
    blocks = [_correlations(drawn_RN, *sides, *groups) for drawn_RN in draws(len(gold), resamples, name)]
    both: Vector = np.concatenate(blocks, axis=1)
    return both[0], both[1]


def resampled_means(hits: Vector, resamples: int, name: str) -> Vector:
    """Return the mean of hits [n] in each resample, [resamples]."""
    return np.concatenate([hits[drawn_RN].mean(axis=1) for drawn_RN in draws(len(hits), resamples, name)])


def correlations(
    predicted: Vector, gold: Vector, resamples: int | None, name: str
) -> tuple[dict[str, float], dict[str, Vector]]:
    """Return Pearson's r and Spearman's ρ, and their values in each resample, if there are any; None: no values, which
    take scipy. Errors as in ``pearson``.
    """
    if resamples is None:
        _check(predicted, gold)
        return {"pearson": 0.0, "spearman": 0.0}, {}
    values = {"pearson": pearson(predicted, gold), "spearman": spearman(predicted, gold)}
    if not resamples:
        return values, {}
    return values, dict(zip(values, resampled_correlations(predicted, gold, resamples, name), strict=True))


def intervals(replicates: Mapping[str, Vector]) -> dict[str, tuple[float, float]]:
    """Return the middle 95 % of each measure's values in the resamples, without measures for which fewer than half of
    them are numbers.
    """
    bounds = {}
    for measure, values in replicates.items():
        finite = values[np.isfinite(values)]
        if 2 * len(finite) >= len(values):
            low, high = np.percentile(finite, _PERCENTILES)
            bounds[measure] = float(low), float(high)
    return bounds


def _check(predicted: Vector, gold: Vector) -> None:
    if len(predicted) == len(gold) == 1:
        raise ValueError("the correlation of a single pair is undefined; give at least 2 pairs")
    if len(predicted) != len(gold) or len(gold) < 2:
        raise ValueError(
            f"{len(predicted)} predictions and {len(gold)} gold scores; a correlation needs the same number of both, "
            "at least 2"
        )
    for what, values in (("predictions", predicted), ("gold scores", gold)):
        if not np.isfinite(values).all():
            number = int(np.argmin(np.isfinite(values))) + 1
            raise ValueError(
                f"number {number} of the {what} is {values[number - 1]}; a correlation needs finite numbers"
            )
        largest = float(np.abs(values).max())
        if largest > _LARGEST:
            raise ValueError(
                f"one of the {what} has the magnitude {largest:g}; allowed: up to {_LARGEST:g}, because squares are "
                "summed"
            )
        # scipy's own limit, below which rounding decides the result.
        if np.std(values) <= 1e-13 * abs(np.mean(values)):
            raise ValueError(
                f"the {len(values)} {what} are all {values[0]:.6g}; a correlation needs different values"
                + ("; check that the words of the texts are in the vocabulary" if what == "predictions" else "")
            )


@compiled
def _correlations(drawn_RN: Ints, x_N: Vector, y_N: Vector, x_groups_N: Ints, y_groups_N: Ints) -> Vector:
    """Return Pearson's r and Spearman's ρ of each resample, [2, R]; groups are indices of the distinct values."""
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
            count, first, other = count_N[pair], x_N[pair], y_N[pair]
            x += count * first
            y += count * other
            xx += count * first * first
            yy += count * other * other
            xy += count * first * other
            first, other = x_ranks[x_groups_N[pair]], y_ranks[y_groups_N[pair]]
            rank_xx += count * first * first
            rank_yy += count * other * other
            rank_xy += count * first * other
        found_2R[0, resample] = _ratio(xy - x * y / num_pairs, xx - x * x / num_pairs, yy - y * y / num_pairs)
        found_2R[1, resample] = _ratio(rank_xy, rank_xx, rank_yy)
    return found_2R


@compiled
def _mean_ranks(count_N: Vector, group_N: Ints, ranks: Vector) -> None:
    """Write the mean rank of each group minus (n + 1) / 2, the mean rank of the resample."""
    ranks[:] = 0
    for pair in range(len(count_N)):
        ranks[group_N[pair]] += count_N[pair]
    before = -len(count_N) / 2
    for group in range(len(ranks)):
        size = ranks[group]
        ranks[group] = before + size / 2
        before += size


@compiled
def _ratio(covariance: float, first: float, other: float) -> float:
    """Return the covariance divided by the root of the product of the variances; NaN if one is 0 up to rounding."""
    return covariance / np.sqrt(first * other) if min(first, other) > 1e-10 else np.nan


Flags = npt.NDArray[np.bool_]

_TIE = 1e-6  # float32 vectors of one text from two batches give cosines that differ by up to 1e-7
_CELLS = 1 << 24  # numbers at a time, 64 MB in float32


class Similarities:
    """Cosines between the texts of a suite, each distinct text encoded once; or the similarities of a pair scorer."""

    def __init__(self, encoder: Embeds | PairScorer, suite: Suite) -> None:
        self._pairs = encoder if isinstance(encoder, PairScorer) else None
        self._has_no_oov: Flags | None = None  # whether each distinct text has no OOV word, if tokens are counted
        if isinstance(encoder, PairScorer):
            return
        self._known = pc.unique(pa.chunked_array(suite.texts, pa.string()))
        self._embedded = encoder.embed(self._known)
        warn_of_unread(self._embedded, getattr(encoder, "max_tokens", None))  # baselines read whole texts
        if self._embedded.num_tokens.any():
            self._has_no_oov = self._embedded.num_unknown == 0

    @property
    def has_vectors(self) -> bool:
        """Whether the similarities come from text vectors; a scorer of pairs has none."""
        return self._pairs is None

    def of(self, first: pa.StringArray, second: pa.StringArray) -> Vector:
        """Return the similarity of each of n texts to its counterpart, float64 [n]."""
        if self._pairs is not None:
            return self._pairs.similarity(first, second)
        vectors = self._embedded.vectors
        return cosine(vectors[self._rows(first)], vectors[self._rows(second)])

    def of_options(self, choices: Choices) -> npt.NDArray[np.float32]:
        """Return the cosine of the two texts of each option, float32 [n, k]."""
        units = unit_rows(self._embedded.vectors[self._rows(choices.distinct)])
        num_options = choices.first.shape[1]
        at_once = max(1, _CELLS // (num_options * units.shape[1]))
        parts = [
            np.einsum(
                "nkh,nkh->nk",
                units[choices.first[start : start + at_once]],
                units[choices.second[start : start + at_once]],
            )
            for start in range(0, len(choices), at_once)
        ]
        return np.concatenate(parts)

    def counts(self, questions: AnySet) -> tuple[int, int]:
        """Return the numbers of tokens and OOV tokens in a set; for choices, both texts of every option count."""
        if self._pairs is not None:
            return 0, 0
        if isinstance(questions, Choices):
            rows = self._rows(questions.distinct)
            times = np.bincount(questions.first.ravel(), minlength=len(rows))
            times += np.bincount(questions.second.ravel(), minlength=len(rows))
        else:
            sides = questions.texts if isinstance(questions, ScoredPairs) else questions.test.texts
            rows = np.concatenate([self._rows(side) for side in sides])
            times = np.ones(len(rows), np.int64)
        embedded = self._embedded
        return int((times * embedded.num_tokens[rows]).sum()), int((times * embedded.num_unknown[rows]).sum())

    def are_covered(self, pairs: ScoredPairs) -> Flags | None:
        """Return whether each pair has no OOV word, bool [n]; None if tokens are not counted."""
        if self._has_no_oov is None:
            return None
        covered: Flags = np.logical_and(*(self._has_no_oov[self._rows(side)] for side in pairs.texts))
        return covered

    def _rows(self, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        rows = pc.index_in(texts, value_set=self._known)
        return np.frombuffer(rows.buffers()[1], np.int32)[rows.offset :][: len(rows)]  # ``to_numpy`` imports pandas


def best_threshold(similarities: Vector, labels: Vector) -> float:
    """Return the similarity threshold that classifies most pairs correctly; the lowest of equally good thresholds.

    Pairs with a similarity [n] at or above the threshold count as equal in meaning (label 1, otherwise 0). Thresholds
    are midpoints between similarities, below all of them, or above all of them. Raise ValueError if the similarities
    are all equal or not finite.
    """
    _check_spread(similarities)
    order = np.argsort(similarities, kind="stable")
    values, same = similarities[order], labels[order] > 0
    right = same.sum() + np.concatenate(([0], np.cumsum(np.where(same, -1, 1))))  # the first i are called different
    cuts = np.concatenate(([-np.inf], (values[:-1] + values[1:]) / 2, [np.inf]))
    possible = np.concatenate(([True], values[:-1] < values[1:], [True]))
    return float(cuts[np.argmax(np.where(possible, right, -1))])


def first_place(similarities_NK: npt.NDArray[np.float32]) -> tuple[Flags, Vector]:
    """Return whether option 0 of k is the most similar one, [n], false for a tie; and its share of the first place.

    The share, float64 [n], is 1/m for a tie of m first options, the expected value of a random choice among them. Raise
    ValueError if the similarities are all equal or not finite.
    """
    _check_spread(similarities_NK)
    right_N = similarities_NK[:, 0]
    others_N = similarities_NK[:, 1:].max(axis=1)
    equal_N = 1 + (np.abs(similarities_NK[:, 1:] - right_N[:, None]) <= _TIE).sum(axis=1)
    return right_N > others_N + _TIE, np.where(right_N >= others_N - _TIE, 1 / equal_N, 0.0)


def _check_spread(similarities: npt.NDArray[np.floating]) -> None:
    if not np.isfinite(similarities).all():
        raise ValueError("a similarity is not finite; check the encoder's weights for NaN")
    if np.ptp(similarities) <= _TIE:
        raise ValueError(
            f"the {similarities.size} predictions are all {similarities.flat[0]:.6g}; check that the words of the "
            "texts are in the vocabulary"
        )
