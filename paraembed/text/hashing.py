"""Hash texts and unordered pairs for partitions, splits and samples; the hashes are equal on every machine."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.compiled import compiled
from paraembed.text.oov import GOLDEN, finalizer
from paraembed.text.ragged import string_bytes

Hashes = npt.NDArray[np.uint64]

_WORD = 8  # bytes


def text_column(table: pa.Table, name: str) -> pa.StringArray:
    """Return a column [n] of a table as one array."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def mixed(hashes: Hashes, seed: int = 0) -> Hashes:
    """Return a bijective hash of hashes, uint64 [n], in which every bit depends on all bits (SplitMix64)."""
    return finalizer(hashes + np.uint64(int(GOLDEN) * (seed + 1) % 2**64))


_finalized = compiled(finalizer)


def pair_keys(table: pa.Table) -> Hashes:
    """Return a hash of each row's unordered pair of texts, uint64 [n]."""
    return mixed(hash_strings(text_column(table, "first")) + hash_strings(text_column(table, "second")))


def hash_strings(texts: pa.StringArray) -> Hashes:
    """Return a hash of each string, uint64 [n], reading eight bytes at a time."""
    hashes = np.zeros(len(texts), np.uint64)
    if len(texts):
        octets, offsets = string_bytes(texts)
        padded = np.concatenate((octets, np.zeros(_WORD, np.uint8)))
        words = np.ndarray(len(octets) + 1, "<u8", padded.data, strides=(1,))  # one begins at each byte
        _hash(words, offsets, hashes)
    return hashes


@compiled
def _hash(words: Hashes, offsets: npt.NDArray[np.int64], hashes: Hashes) -> None:
    for row in range(len(hashes)):
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        total = np.uint64(length)
        for place in range((length + _WORD - 1) // _WORD):
            word = words[start + _WORD * place]
            beyond = _WORD * (place + 1) - length
            if beyond > 0:  # bytes of the last word that belong to the next string
                word &= np.uint64(2**64 - 1) >> np.uint64(8 * beyond)
            total += _finalized(word + np.uint64(place + 1) * GOLDEN)
        hashes[row] = _finalized(total + GOLDEN)
