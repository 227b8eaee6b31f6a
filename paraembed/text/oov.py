"""Hashed vectors of out-of-vocabulary (OOV) tokens: one random direction for each type, without a table.

A token of hash h has the sign of bit j of SplitMix64(h + k) in dimension 64 k + j, times length / √d. Two types have a
cosine of about ±1/√d, as random vectors have.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled, inlined

Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Octets = npt.NDArray[np.uint8]
Bits = TypeVar("Bits", np.uint64, npt.NDArray[np.uint64])

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a
GOLDEN, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)  # the first: the step of SplitMix64
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def finalizer(bits: Bits) -> Bits:
    """Apply the finalizer of SplitMix64 to one number or an array."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


_mixed = inlined(finalizer)


@compiled
def oov_code(octets: Octets, start: int, stop: int) -> int:
    """Return a code of the token ``start`` … ``stop`` - 1, from -2³¹ to -1, so that it differs from all word ids."""
    code = _OFFSET
    for place in range(start, stop):
        code = (code ^ np.uint64(octets[place])) * _PRIME
    code_of: Any = np.int64(_mixed(code) >> np.uint64(33))
    return -1 - int(code_of)


@compiled
def add_hashed(code: int, value: np.float32, vector_D: Floats) -> None:
    """Add the vector of a code to ``vector_D``; ``value`` is the absolute value of each dimension."""
    seed = np.uint64(-np.int64(code)) * GOLDEN
    for first in range(0, len(vector_D), 64):
        bits = _mixed(seed + np.uint64(first + 1) * _MIX_2)
        for place in range(first, min(first + 64, len(vector_D))):
            vector_D[place] += value if bits & _ONE != 0 else -value
            bits >>= _ONE


def hashed_vectors(codes: Codes, length: float, width: int) -> Floats:
    """Return the vectors [n, width] of codes [n], each of length ``length``."""
    vectors = np.zeros((len(codes), width), np.float32)
    for row, code in enumerate(codes.tolist()):
        add_hashed(code, np.float32(length / width**0.5), vectors[row])
    return vectors
