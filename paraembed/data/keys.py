"""Keys of texts: their column in one piece, and another hash of a hash."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

GOLDEN = 0x9E3779B97F4A7C15
"""The step of SplitMix64."""

Bits = TypeVar("Bits", np.uint64, npt.NDArray[np.uint64])


def text_column(table: pa.Table, name: str) -> pa.StringArray:
    """A string column [n] of a table in one piece."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def mixed(hashes: npt.NDArray[np.uint64], seed: int = 0) -> npt.NDArray[np.uint64]:
    """Another hash of hashes [n], uint64 [n]: one to one, every bit depends on all (SplitMix64)."""
    return finalised(hashes + np.uint64(GOLDEN * (seed + 1) % 2**64))


def finalised(bits: Bits) -> Bits:
    """The finaliser of SplitMix64, of one number or of many."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
