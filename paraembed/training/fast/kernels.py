"""Compiled loops of a training step on the CPU, which replace dozens of PyTorch operators by a few passes.

``tests/training/fast/test_cpu.py`` and ``tests/training/test_step.py`` check that they equal these operators.

At batch 100, most of the time of a PyTorch step is the operators' own overhead, not their arithmetic. If the loops are
not compiled, the step uses PyTorch, which computes the same result to 1e-6.

Shapes in names: T tokens, N texts, R distinct rows, V words, D width of a word.
"""

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_ZERO = np.float32(0)
_ONE = np.float32(1)


@compiled
def composed(
    matrix_VD: Floats, ids_T: Ints, offsets_N1: Longs, mean: bool, unit: bool, smallest: np.float32, vectors_ND: Floats
) -> Floats:
    """Write the sums or means of the word vectors of texts, none of them empty, to ``vectors_ND``; with ``unit``,
    scaled to length 1. A vector shorter than ``smallest`` is divided by this value instead of its length. Return the
    lengths before scaling, float32 [N]; ones without scaling.
    """
    width = matrix_VD.shape[1]
    norms_N = np.empty(len(offsets_N1) - 1, np.float32)
    for text in range(len(norms_N)):
        first, last = offsets_N1[text], offsets_N1[text + 1]
        vector = vectors_ND[text]
        vector[:] = matrix_VD[ids_T[first]]
        for place in range(first + 1, last):
            row = matrix_VD[ids_T[place]]
            for column in range(width):
                vector[column] += row[column]
        factor = _ONE / np.float32(last - first) if mean else _ONE
        norms_N[text] = _ONE
        if unit:
            square = 0.0
            for column in range(width):
                square += vector[column] * vector[column]
            norms_N[text] = np.float32(np.sqrt(square)) * factor
            factor /= max(norms_N[text], smallest)
        for column in range(width):
            vector[column] *= factor
    return norms_N


@compiled
def margin_gradient(
    vectors_PD: Floats, negatives_N: Longs, margin: np.float32, share: np.float32, counted: Longs, grad_PD: Floats
) -> tuple[float, int]:
    """Write the gradient of the margin loss (Wieting 2015 eq. 1, Wieting 2016 eq. 11) by the vectors of texts to
    ``grad_PD``.

    The vectors are the texts of N / 2 pairs, adjacent, then other texts that serve as negatives; their dot product is
    the similarity. A negative of -1 is none, and its term is 0. ``share`` is the weight of a term in the loss.
    Return the sum of the terms of the pairs from ``counted[0]`` to ``counted[1]`` - 1, and the number of those above
    zero; the gradient covers all pairs.
    """
    width = vectors_PD.shape[1]
    grad_PD[:] = _ZERO
    loss, active = 0.0, 0
    for text in range(len(negatives_N)):
        pair, negative = text // 2, negatives_N[text]
        partner = text + 1 - 2 * (text % 2)
        if negative < 0:
            continue
        vector, like, unlike = vectors_PD[text], vectors_PD[partner], vectors_PD[negative]
        closer = _ZERO
        for column in range(width):
            closer += vector[column] * (unlike[column] - like[column])
        term = margin + closer
        if term <= _ZERO:  # not so a term that is no number: it must reach the loss
            continue
        if counted[0] <= pair < counted[1]:
            loss += float(term)
            active += 1
        by_vector, by_like, by_unlike = grad_PD[text], grad_PD[partner], grad_PD[negative]
        for column in range(width):
            by_vector[column] += share * (unlike[column] - like[column])
            by_like[column] -= share * vector[column]
            by_unlike[column] += share * vector[column]
    return loss, active


@compiled
def gradient_by_token(
    vectors_ND: Floats,
    norms_N: Floats,
    offsets_N1: Longs,
    mean: bool,
    unit: bool,
    smallest: np.float32,
    grad_ND: Floats,
) -> None:
    """Convert the gradient of each text's vector to that of any of its words' vectors, in place; see ``composed``."""
    width = vectors_ND.shape[1]
    for text in range(len(vectors_ND)):
        factor = _ONE / np.float32(offsets_N1[text + 1] - offsets_N1[text]) if mean else _ONE
        grad, vector = grad_ND[text], vectors_ND[text]
        along = _ZERO  # the part of the gradient that the scaling to length 1 takes away
        if unit:
            factor /= max(norms_N[text], smallest)
            if norms_N[text] > smallest:
                for column in range(width):
                    along += grad[column] * vector[column]
        for column in range(width):
            grad[column] = factor * (grad[column] - along * vector[column])


@compiled
def texts_by_row(
    ids_T: Ints,
    offsets_N1: Longs,
    owner: tuple[int, int],
    places_V: Ints,
    rows_T: Ints,
    texts_T: Ints,
    starts_T1: Longs,
) -> int:
    """Find the distinct rows that texts contain, and for each row the texts that contain it, once per token.

    With the owner (r, w), only the rows r, r + w, r + 2w, … count. ``places_V`` is scratch memory, -1 everywhere,
    before and after. Return the number R of rows, written to ``rows_T``; the texts of row i are
    ``texts_T[starts_T1[i]:starts_T1[i + 1]]``.
    """
    rank, world = owner
    count = 0
    starts_T1[0] = 0
    for row in ids_T:
        if row % world != rank:
            continue
        place = places_V[row]
        if place < 0:
            place = count
            places_V[row], rows_T[count], starts_T1[count + 1] = place, row, 0
            count += 1
        starts_T1[place + 1] += 1
    for place in range(count):
        starts_T1[place + 1] += starts_T1[place]
    for text in range(len(offsets_N1) - 1):
        for token in range(offsets_N1[text], offsets_N1[text + 1]):
            place = places_V[ids_T[token]]
            if place >= 0:
                texts_T[starts_T1[place]] = text
                starts_T1[place] += 1
    for place in range(count, 0, -1):
        starts_T1[place] = starts_T1[place - 1]
    starts_T1[0] = 0
    for place in range(count):
        places_V[rows_T[place]] = -1
    return count


@compiled
def row_gradients(starts_R1: Longs, texts_T: Ints, grad_ND: Floats, grad_RD: Floats) -> None:
    """Sum the gradients that each token of a text contributes over the texts of each row; see ``texts_by_row``."""
    width = grad_ND.shape[1]
    for place in range(len(grad_RD)):
        total = grad_RD[place]
        total[:] = grad_ND[texts_T[starts_R1[place]]]
        for entry in range(starts_R1[place] + 1, starts_R1[place + 1]):
            grad = grad_ND[texts_T[entry]]
            for column in range(width):
                total[column] += grad[column]


@compiled
def pull_rows(matrix_VD: Floats, initial_VD: Floats, rows_R: Ints, pull: np.float32, grad_RD: Floats) -> None:
    """Add ``pull`` · (row - initial row) to the gradient of each row."""
    for place in range(len(rows_R)):
        row, initial, grad = matrix_VD[rows_R[place]], initial_VD[rows_R[place]], grad_RD[place]
        for column in range(len(grad)):
            grad[column] += pull * (row[column] - initial[column])


@compiled
def adam_rows(
    matrix_VD: Floats,
    mean_VD: Floats,
    square_VD: Floats,
    rows_R: Ints,
    grad_RD: Floats,
    keep: tuple[np.float32, np.float32],
    take: tuple[np.float32, np.float32],
    size: np.float32,
    root_factor: np.float32,
    eps: np.float32,
) -> None:
    """Update distinct rows with Adam (Kingma and Ba 2015), in place.

    ``keep`` is β1 and β2, ``take`` 1 - β1 and 1 - β2, each rounded once; ``size`` is learning rate / (1 - β1^step),
    ``root_factor`` (1 - β2^step)^-½.
    """
    for place in range(len(rows_R)):
        row, grad = matrix_VD[rows_R[place]], grad_RD[place]
        mean, square = mean_VD[rows_R[place]], square_VD[rows_R[place]]
        for column in range(len(grad)):
            mean[column] = keep[0] * mean[column] + take[0] * grad[column]
            square[column] = keep[1] * square[column] + take[1] * (grad[column] * grad[column])
            row[column] -= size * mean[column] / (np.sqrt(square[column]) * root_factor + eps)


@compiled
def adagrad_rows(
    matrix_VD: Floats,
    sum_VD: Floats,
    rows_R: Ints,
    grad_RD: Floats,
    rate: np.float32,
    eps_inside: np.float32,
    eps_outside: np.float32,
) -> None:
    """Update distinct rows with AdaGrad (Duchi et al. 2011), in place; ``sum_VD``: sums of squared gradients."""
    for place in range(len(rows_R)):
        row, grad, total = matrix_VD[rows_R[place]], grad_RD[place], sum_VD[rows_R[place]]
        for column in range(len(grad)):
            total[column] += grad[column] * grad[column]
            row[column] -= rate * grad[column] / (np.sqrt(total[column] + eps_inside) + eps_outside)
