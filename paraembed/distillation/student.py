"""From the teacher's vectors of single units to the prior of the regression, and from its result to the student."""

import numpy as np
import numpy.typing as npt

from paraembed.distillation.ridge import Regression

Matrix = npt.NDArray[np.float32]


def prior_of(alone_VD: Matrix, counts_V: npt.NDArray[np.int64], smoothing: float) -> Matrix:
    """Return the prior [V, D]: units alone, centered by their mean in the texts, times a / (a + p(unit)).

    Args:
        alone_VD: the teacher's vector of each unit alone; zeros for a unit without one, which stays zero.
        counts_V: occurrences in the texts.
        smoothing: a.
    """
    frequencies_V = counts_V / max(1, counts_V.sum())
    is_filled_V: npt.NDArray[np.bool_] = np.any(alone_VD, axis=1)
    weights_V = frequencies_V * is_filled_V
    mean_D = (weights_V @ alone_VD.astype(np.float64)) / max(weights_V.sum(), np.finfo(np.float64).tiny)
    scale_V1 = (smoothing / (smoothing + frequencies_V))[:, None]
    prior_VD: Matrix = ((alone_VD - mean_D) * scale_V1 * is_filled_V[:, None]).astype(np.float32)
    return prior_VD


def principal(matrix_VD: Matrix, regression: Regression, dim: int) -> Matrix:
    """Return the first ``dim`` principal components of the text vectors, as unit vectors [V, dim].

    The scalar product of two text vectors changes least by these dimensions; the mean of the text vectors is near zero.
    """
    width = matrix_VD.shape[1]
    squares_DD = np.zeros((width, width))
    for _, A in regression.blocks(len(matrix_VD)):
        texts_ND = A @ matrix_VD.astype(np.float64)
        squares_DD += texts_ND.T @ texts_ND
    _, axes_DD = np.linalg.eigh(squares_DD)  # in ascending order
    axes_DK = axes_DD[:, ::-1][:, :dim]
    signs_K = np.sign(axes_DK[np.abs(axes_DK).argmax(axis=0), np.arange(dim)])  # eigenvectors have no sign of their own
    components_VK: Matrix = (matrix_VD @ (axes_DK * signs_K)).astype(np.float32)
    return components_VK


def with_rare_length(matrix_VD: Matrix, unknown: int) -> Matrix:
    """Return the vectors, sorted by the frequency of their words, with the vector of OOV tokens as long as those of the
    rarer half of the words: their root mean square. It may be zero before, if the texts have no such token.
    """
    squares_V = np.square(matrix_VD.astype(np.float64)).sum(axis=1)
    rare_V = np.delete(squares_V, unknown)[(len(squares_V) - 1) // 2 :]
    length = np.sqrt(rare_V.mean()) if len(rare_V) else 0.0
    scaled_VD = matrix_VD.copy()
    if not squares_V[unknown]:
        scaled_VD[unknown] = 1
    scaled_VD[unknown] *= length / np.linalg.norm(scaled_VD[unknown])
    return scaled_VD


def of_mean_length(matrix_VD: Matrix) -> Matrix:
    """Return the vectors times a factor, so that their mean length is 1; Adam's steps do not scale with the vectors."""
    lengths = np.linalg.norm(matrix_VD.astype(np.float64), axis=1)
    mean = lengths[lengths > 0].mean() if lengths.any() else 1.0
    return (matrix_VD / mean).astype(np.float32)
