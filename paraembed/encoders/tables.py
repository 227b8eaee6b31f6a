"""Arithmetic on rows of vectors: int8 with a scale for each row, lengths, principal axes."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_LARGEST = 127  # steps of an int8 row


def principal_axes(squares_DD: npt.NDArray[np.float64], dim: int) -> npt.NDArray[np.float64]:
    """Return the first ``dim`` principal axes of text vectors X [n, D], given XᵀX, as unit vectors [D, dim], the
    largest first.

    The scalar product of two text vectors changes least by these dimensions; the vectors are not centered.
    """
    _, axes_DD = np.linalg.eigh(squares_DD)  # in ascending order
    axes_DK = axes_DD[:, ::-1][:, :dim]
    signs_K = np.sign(axes_DK[np.abs(axes_DK).argmax(axis=0), np.arange(dim)])  # eigenvectors have no sign of their own
    signed_DK: npt.NDArray[np.float64] = axes_DK * signs_K
    return signed_DK


def of_mean_length(matrix_VD: Floats) -> Floats:
    """Return the vectors times a factor, so that their mean length is 1; Adam's steps do not scale with the vectors.

    Vectors of bigrams count, too. They are a twelfth as long as those of tokens; where only tokens counted, a training
    doubled their length with noise (STS ρ 76.1 instead of 76.6).
    """
    lengths = np.linalg.norm(matrix_VD.astype(np.float64), axis=1)
    mean = lengths[lengths > 0].mean() if lengths.any() else 1.0
    return (matrix_VD / mean).astype(np.float32)


def with_row_length(matrix_VD: Floats, row: int, length: float) -> Floats:
    """Return the vectors with that of one row scaled to a length; a zero vector becomes one of equal values."""
    scaled_VD = matrix_VD.copy()
    if not scaled_VD[row].any():
        scaled_VD[row] = 1
    scaled_VD[row] *= length / np.linalg.norm(scaled_VD[row])
    return scaled_VD


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
