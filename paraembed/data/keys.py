"""Hashes of texts and of unordered pairs, the same on every machine: for partitions, splits and samples."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def text_column(table: pa.Table, name: str) -> pa.StringArray:
    """A string column [n] of a table in one piece."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def pair_keys(table: pa.Table) -> npt.NDArray[np.uint64]:
    """One hash a row, uint64 [n], of the texts ``first`` and ``second``; a pair and its swap have the same."""
    return mixed(hash_strings(text_column(table, "first")) + hash_strings(text_column(table, "second")))


def hash_strings(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    """A hash of each string, uint64 [n], of eight bytes at a time."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if not lengths.any():
        return mixed(np.zeros(len(texts), np.uint64))
    octets = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate((octets, np.zeros(8, np.uint8)))
    counts = (lengths + 7) // 8
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    starts = np.repeat(offsets[:-1] - offsets[0], counts) + 8 * place
    words = np.ndarray(len(padded) - 7, "<u8", padded.data, strides=(1,))[starts].astype(np.uint64, copy=False)
    filled = counts > 0
    beyond = (8 * counts - lengths)[filled].astype(np.uint64)  # bytes of a last word that are the next string's
    words[ends[filled] - 1] &= np.uint64(2**64 - 1) >> (np.uint64(8) * beyond)
    words = mixed(words + place.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    sums = np.zeros(len(texts), np.uint64)
    sums[filled] = np.add.reduceat(words, (ends - counts)[filled])
    return mixed(sums + lengths.astype(np.uint64))


def mixed(hashes: npt.NDArray[np.uint64], seed: int = 0) -> npt.NDArray[np.uint64]:
    """Another hash of hashes [n], uint64 [n]: one to one, every bit depends on all (the finaliser of SplitMix64)."""
    step = np.uint64(0x9E3779B97F4A7C15 * (seed + 1) % 2**64)
    bits = hashes + step
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return result
