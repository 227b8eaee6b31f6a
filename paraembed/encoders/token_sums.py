"""Sums of token states: for each token of a vocabulary, the states that a transformer computes for it in many texts."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse


class StateSums(NamedTuple):
    """Sums of the states of u tokens."""

    tokens: npt.NDArray[np.int64]  # ids of the tokens that occur, int64 [u], ascending
    counts: npt.NDArray[np.int64]  # occurrences of each, int64 [u]
    sums: npt.NDArray[np.floating]  # sum of the states of each, float [u, H]


def sums_of(tokens_T: npt.NDArray[np.int64], states_TH: npt.NDArray[np.float32]) -> StateSums:
    """Return the sums of the states of T tokens, in float32, as for a batch."""
    tokens_U, rows_T, counts_U = np.unique(tokens_T, return_inverse=True, return_counts=True)
    return StateSums(tokens_U, counts_U, _summed(rows_T, states_TH))


def merged(parts: Iterable[StateSums], width: int) -> StateSums:
    """Return the sums of several sums, in float64; their order decides the last digits."""
    empty = np.zeros(0, np.int64)
    tokens, counts = empty, empty
    sums: npt.NDArray[np.floating] = np.zeros((0, width))
    for part in parts:
        union, rows = np.unique(np.concatenate((tokens, part.tokens)), return_inverse=True)
        counts = np.bincount(rows, np.concatenate((counts, part.counts)), len(union)).astype(np.int64)
        sums = _summed(rows, np.concatenate((sums, part.sums)))
        tokens = union
    return StateSums(tokens, counts, sums)


def _summed(rows_N: npt.NDArray[np.int64], vectors_NH: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return the sum of the vectors of each row, in the order of the vectors."""
    shape = int(rows_N.max(initial=-1)) + 1, len(rows_N)
    ones = np.ones(len(rows_N), vectors_NH.dtype)
    sums: npt.NDArray[np.floating] = sparse.csr_matrix((ones, (rows_N, np.arange(len(rows_N)))), shape) @ vectors_NH
    return sums
