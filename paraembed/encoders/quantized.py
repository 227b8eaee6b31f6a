"""int8 tables, a row of which is 127 steps times the row's scale, and other rows divided by a number."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_LARGEST = 127


def to_int8(vectors_NH: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Return steps int8 [n, H] and scales [n], with vector ≈ scale · steps; a scale is the row's largest absolute value
    / 127.
    """
    scale_N = largest(vectors_NH) / np.float32(_LARGEST)
    steps_NH = np.clip(np.rint(divided(vectors_NH, scale_N)), -_LARGEST, _LARGEST).astype(np.int8)
    return steps_NH, scale_N


def from_int8(steps_NH: npt.NDArray[np.int8], scale_N: Floats) -> Floats:
    """Return the vectors of ``to_int8``, rounded."""
    vectors_NH: Floats = steps_NH * scale_N[:, None]
    return vectors_NH


def largest(vectors_NH: Floats) -> Floats:
    """Return the largest absolute value of each row; 0 for rows without values."""
    largest_N: Floats = np.abs(vectors_NH).max(axis=1, initial=0)
    return largest_N


def divided(vectors_NH: Floats, by_N: Floats) -> Floats:
    """Divide each row by its number; division by zero gives zeros."""
    return np.divide(vectors_NH, by_N[:, None], out=np.zeros_like(vectors_NH), where=by_N[:, None] > 0)


def normalized(vectors_NH: Floats) -> Floats:
    """Return the vectors with length 1; zeros stay zeros. Each is divided by its largest number first, so that squares
    neither overflow nor underflow.
    """
    scaled_NH = divided(vectors_NH, largest(vectors_NH))
    return divided(scaled_NH, np.sqrt(np.square(scaled_NH).sum(axis=1)))
