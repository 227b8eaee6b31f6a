"""Compiled loops that sum or average word vectors directly into the result array."""

from functools import partial

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled
from paraembed.encoders.tables import Floats
from paraembed.text.oov import add_hashed
from paraembed.text.ragged import Ragged

NO_TYPES = np.zeros((0, 0), np.float32)
"""Vectors of no OOV types."""


def add_words(
    matrix_VD: Floats,
    texts: Ragged,
    mean: bool,
    vectors_ND: Floats,
    oov_length: float | None = None,
    types_UD: Floats = NO_TYPES,
) -> None:
    """Write the sum or the mean of the word vectors of N texts; zeros for a text without words.

    With ``oov_length``, negative ids are OOV tokens: -1 - u if types u have vectors [U, D], else the code of a hashed
    vector of this length.

    Words are added in the order of the text and in float32, like in PyTorch's ``embedding_bag``, but without a second
    thread and without copies. Raise ValueError for ids and offsets outside of the arrays, which the loops do not
    check.
    """
    ids, last = texts.ids, int(texts.offsets[-1])
    least = 0 if oov_length is None else -len(types_UD) or np.iinfo(np.int32).min
    if last > len(ids) or (last and not least <= ids.min() <= ids.max() < len(matrix_VD)):
        raise ValueError(
            f"texts have {last:,} tokens with ids from {ids.min(initial=0):,} to {ids.max(initial=0):,}; there are "
            f"{len(ids):,} tokens and {len(matrix_VD):,} vectors"
        )
    if oov_length is None:
        _add_words(matrix_VD, texts.ids, texts.offsets, mean, vectors_ND)
    else:
        value = np.float32(oov_length / matrix_VD.shape[1] ** 0.5)
        _add_words_and_codes(matrix_VD, texts.ids, texts.offsets, mean, vectors_ND, value, types_UD)


@partial(compiled, fastmath=False)  # the order of the text on every processor
def _add_words(
    matrix_VD: Floats, ids_T: npt.NDArray[np.int32], offsets_N1: npt.NDArray[np.int64], mean: bool, vectors_ND: Floats
) -> None:
    width = matrix_VD.shape[1]
    for text in range(len(offsets_N1) - 1):
        start, end = offsets_N1[text], offsets_N1[text + 1]
        vectors_ND[text] = 0
        while start + 4 <= end:  # four rows at a time: their memory is waited for together
            first, second, third, fourth = ids_T[start], ids_T[start + 1], ids_T[start + 2], ids_T[start + 3]
            for place in range(width):
                total = vectors_ND[text, place] + matrix_VD[first, place]
                total += matrix_VD[second, place]
                total += matrix_VD[third, place]
                vectors_ND[text, place] = total + matrix_VD[fourth, place]
            start += 4
        while start < end:
            row = ids_T[start]
            for place in range(width):
                vectors_ND[text, place] += matrix_VD[row, place]
            start += 1
        if mean and end > offsets_N1[text]:
            share = np.float32(1) / np.float32(end - offsets_N1[text])
            for place in range(width):
                vectors_ND[text, place] *= share


@partial(compiled, fastmath=False)
def _add_words_and_codes(
    matrix_VD: Floats,
    ids_T: npt.NDArray[np.int32],
    offsets_N1: npt.NDArray[np.int64],
    mean: bool,
    vectors_ND: Floats,
    value: np.float32,
    types_UD: Floats,
) -> None:
    width = matrix_VD.shape[1]
    for text in range(len(offsets_N1) - 1):
        start, end = offsets_N1[text], offsets_N1[text + 1]
        vectors_ND[text] = 0
        for token in range(start, end):
            row = ids_T[token]
            if row < 0 and len(types_UD) > 0:
                for place in range(width):
                    vectors_ND[text, place] += types_UD[-1 - row, place]
            elif row < 0:
                add_hashed(row, value, vectors_ND[text])
            else:
                for place in range(width):
                    vectors_ND[text, place] += matrix_VD[row, place]
        if mean and end > start:
            share = np.float32(1) / np.float32(end - start)
            for place in range(width):
                vectors_ND[text, place] *= share
