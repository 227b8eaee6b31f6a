"""Hashes of texts and of unordered pairs, the same on every machine: for partitions, splits and samples."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.compiled import compiled

Hashes = npt.NDArray[np.uint64]

_WORD = 8  # bytes
_GOLDEN = 0x9E3779B97F4A7C15  # the step of SplitMix64
_STEP = np.uint64(_GOLDEN)
_Bits = TypeVar("_Bits", np.uint64, npt.NDArray[np.uint64])


def text_column(table: pa.Table, name: str) -> pa.StringArray:
    """A string column [n] of a table in one piece."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def mixed(hashes: npt.NDArray[np.uint64], seed: int = 0) -> npt.NDArray[np.uint64]:
    """Another hash of hashes [n], uint64 [n]: one to one, every bit depends on all (SplitMix64)."""
    return _finaliser(hashes + np.uint64(_GOLDEN * (seed + 1) % 2**64))


def _finaliser(bits: _Bits) -> _Bits:
    """The finaliser of SplitMix64, of one number or of many."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


_finalised = compiled(_finaliser)


def pair_keys(table: pa.Table) -> Hashes:
    """One hash a row, uint64 [n], of the texts ``first`` and ``second``; a pair and its swap have the same."""
    return mixed(hash_strings(text_column(table, "first")) + hash_strings(text_column(table, "second")))


def hash_strings(texts: pa.StringArray) -> Hashes:
    """A hash of each string, uint64 [n], of eight bytes at a time."""
    hashes = np.zeros(len(texts), np.uint64)
    if len(texts):
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        octets = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        padded = np.concatenate((octets, np.zeros(_WORD, np.uint8)))
        words = np.ndarray(len(octets) + 1, "<u8", padded.data, strides=(1,))  # one begins at each byte
        _hash(words, offsets, hashes)
    return hashes


@compiled
def _hash(words: Hashes, offsets: npt.NDArray[np.int32], hashes: Hashes) -> None:
    for row in range(len(hashes)):
        start, length = offsets[row] - offsets[0], offsets[row + 1] - offsets[row]
        total = np.uint64(length)
        for place in range((length + _WORD - 1) // _WORD):
            word = words[start + _WORD * place]
            beyond = _WORD * (place + 1) - length
            if beyond > 0:  # bytes of a last word that are the next string's
                word &= np.uint64(2**64 - 1) >> np.uint64(8 * beyond)
            total += _finalised(word + np.uint64(place + 1) * _STEP)
        hashes[row] = _finalised(total + _STEP)
