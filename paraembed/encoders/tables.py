"""Arithmetic on tables of word vectors: principal axes of their text vectors, and lengths of rows."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.text.bigrams import is_bigram

Floats = npt.NDArray[np.float32]


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


def of_mean_length(matrix_VD: Floats, vocabulary: pa.StringArray) -> Floats:
    """Return the vectors times a factor, so that the mean length of those of tokens is 1; Adam's steps do not scale
    with the vectors.
    """
    lengths = np.linalg.norm(matrix_VD[~is_bigram(vocabulary)].astype(np.float64), axis=1)
    mean = lengths[lengths > 0].mean() if lengths.any() else 1.0
    return (matrix_VD / mean).astype(np.float32)


def with_row_length(matrix_VD: Floats, row: int, length: float) -> Floats:
    """Return the vectors with that of one row scaled to a length; a zero vector becomes one of equal values."""
    scaled_VD = matrix_VD.copy()
    if not scaled_VD[row].any():
        scaled_VD[row] = 1
    scaled_VD[row] *= length / np.linalg.norm(scaled_VD[row])
    return scaled_VD
