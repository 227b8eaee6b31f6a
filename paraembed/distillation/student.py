"""From the teacher's vectors and token states of units to the prior of the regression, and to the student."""

import numpy as np
import numpy.typing as npt

from paraembed.distillation.ridge import Regression
from paraembed.encoders.tables import principal_axes, with_row_length
from paraembed.encoders.token_sums import StateSums
from paraembed.text.ragged import Ragged

Matrix = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]


def prior_of(vectors_VD: npt.NDArray[np.floating], counts_V: Counts, smoothing: float) -> Matrix:
    """Return the prior [V, D]: vectors of the units, centered by their mean in the texts, times a / (a + p(unit)) with
    the ``smoothing`` a; a unit without a vector has zeros, and stays zero.
    """
    scale_V1 = (smoothing / (smoothing + counts_V / max(1, counts_V.sum())))[:, None]
    prior_VD: Matrix = (centered(vectors_VD, counts_V) * scale_V1).astype(np.float32)
    return prior_VD


def centered(vectors_VD: npt.NDArray[np.floating], counts_V: Counts) -> npt.NDArray[np.float64]:
    """Return vectors minus their mean, weighted by counts; vectors that are zero stay zero."""
    is_filled_V: npt.NDArray[np.bool_] = np.any(vectors_VD, axis=1)
    weights_V = counts_V * is_filled_V
    mean_D = (weights_V @ vectors_VD.astype(np.float64)) / max(weights_V.sum(), 1)
    differences_VD: npt.NDArray[np.float64] = (vectors_VD - mean_D) * is_filled_V[:, None]
    return differences_VD


def with_states(
    alone_VD: Matrix, counts_V: Counts, states: StateSums, tokens: Ragged, alone_weight: float
) -> npt.NDArray[np.float64]:
    """Return for each unit the mean of its token states and of its vector alone, both centered [V, D].

    A unit of n occurrences as a token has n times its mean state and ``alone_weight`` times its vector alone; all
    vectors alone are scaled by the factor with which they are closest to the mean states. A unit of several tokens has
    only the vector alone.

    Args:
        alone_VD: the teacher's vector of each unit alone.
        counts_V: occurrences in the texts.
        states: sums of the states of the teacher's tokens in the texts.
        tokens: the teacher's tokens of each unit.
        alone_weight: weight of the vector alone, in occurrences.
    """
    first_V = tokens.ids[np.minimum(tokens.offsets[:-1], len(tokens.ids) - 1)]
    rows_V = np.minimum(np.searchsorted(states.tokens, first_V), len(states.tokens) - 1)
    is_token_V = (tokens.lengths == 1) & (states.tokens[rows_V] == first_V)
    weights_V = np.where(is_token_V, states.counts[rows_V], 0)
    means_VD = states.sums[rows_V] / np.maximum(weights_V, 1)[:, None] * is_token_V[:, None]
    means_VD, alone_centered_VD = centered(means_VD, weights_V), centered(alone_VD, counts_V)
    shared_VD = alone_centered_VD * is_token_V[:, None]
    squares = np.square(shared_VD).sum()
    scale = (means_VD * shared_VD).sum() / squares if squares else 1.0
    sums_VD = means_VD * weights_V[:, None] + alone_weight * scale * alone_centered_VD
    mixed_VD: npt.NDArray[np.float64] = sums_VD / (weights_V + alone_weight)[:, None]
    return mixed_VD


def principal(matrix_VD: Matrix, regression: Regression, dim: int) -> Matrix:
    """Return the word vectors in the first ``dim`` principal components of the text vectors, [V, dim].

    The mean of the text vectors is near zero; see ``principal_axes``.
    """
    width = matrix_VD.shape[1]
    squares_DD = np.zeros((width, width))
    for A in regression.blocks(len(matrix_VD)):
        texts_ND = A @ matrix_VD.astype(np.float64)
        squares_DD += texts_ND.T @ texts_ND
    components_VK: Matrix = (matrix_VD @ principal_axes(squares_DD, dim)).astype(np.float32)
    return components_VK


def with_rare_length(matrix_VD: Matrix, unknown: int) -> Matrix:
    """Return the vectors, sorted by the frequency of their words, with the vector of OOV tokens as long as those of the
    rarer half of the words: their root mean square. It may be zero before, if the texts have no such token.
    """
    squares_V = np.square(matrix_VD.astype(np.float64)).sum(axis=1)
    rare_V = np.delete(squares_V, unknown)[(len(squares_V) - 1) // 2 :]
    length = np.sqrt(rare_V.mean()) if len(rare_V) else 0.0
    return with_row_length(matrix_VD, unknown, length)
