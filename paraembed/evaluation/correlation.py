"""How well predicted similarities follow the gold scores: Pearson's r, Spearman's ρ; the cosine that predicts."""

import numpy as np
import numpy.typing as npt
from scipy import stats

Vector = npt.NDArray[np.float64]
_LARGEST = 1e100


def cosine(first_NH: npt.NDArray[np.float32], second_NH: npt.NDArray[np.float32]) -> Vector:
    """Cosine of each row with the same row of the other matrix: float64 [N]; 0 where a row is all zeros."""
    first, second = first_NH.astype(np.float64), second_NH.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    dots: Vector = np.einsum("nh,nh->n", first, second)
    cosines: Vector = np.divide(dots, norms, out=np.zeros(len(norms)), where=norms != 0)
    return cosines


def pearson(predicted: Vector, gold: Vector) -> float:
    """Pearson's correlation of two vectors [N].

    Raises:
        ValueError: where it is not defined: fewer than two pairs, a side that is constant or not finite.
    """
    _check(predicted, gold)
    return float(stats.pearsonr(predicted, gold).statistic)


def spearman(predicted: Vector, gold: Vector) -> float:
    """Spearman's rank correlation of two vectors [N], equal values sharing their mean rank.

    Raises:
        ValueError: as for ``pearson``.
    """
    _check(predicted, gold)
    return float(stats.spearmanr(predicted, gold).statistic)


def _check(predicted: Vector, gold: Vector) -> None:
    if len(predicted) == len(gold) == 1:
        raise ValueError("one pair has no correlation; it takes at least 2")
    if len(predicted) != len(gold) or len(gold) < 2:
        raise ValueError(
            f"{len(predicted)} predictions and {len(gold)} gold scores; a correlation needs as many of both, at least 2"
        )
    for what, values in (("predictions", predicted), ("gold scores", gold)):
        if not np.isfinite(values).all():
            number = int(np.argmin(np.isfinite(values))) + 1
            raise ValueError(f"number {number} of the {what} is {values[number - 1]}; a correlation needs finite ones")
        largest = float(np.abs(values).max())
        if largest > _LARGEST:
            raise ValueError(
                f"one of the {what} is of size {largest:g}; allowed: up to {_LARGEST:g}, for squares are summed"
            )
        # scipy's own limit, below which rounding decides the result.
        if np.std(values) <= 1e-13 * abs(np.mean(values)):
            raise ValueError(
                f"the {len(values)} {what} are all {values[0]:.6g}; a correlation needs some that differ"
                + ("; are the words of the texts in the vocabulary?" if what == "predictions" else "")
            )
