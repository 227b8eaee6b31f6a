"""Encode equal texts of a part once: those of a batch, and those of earlier batches whose vectors are in memory.

A part remembers vectors in the order of its rows, and none of other parts, so its bytes do not depend on the worker.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.encoders.protocol import ComputeLock, Embedded, NotFiniteError, OnRows, TextEncoder
from paraembed.text import TreeError

_MEMORY_BYTES = 64 << 20  # of vectors that a part remembers

Rows = npt.NDArray[np.int64]


class DistinctTexts:
    """Texts of a part, of which each is encoded once if the encoder ``encodes_once``."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._is_used = bool(getattr(encoder, "encodes_once", False))
        self._known: list[pa.Array] = []  # keys of the texts in memory
        self._memory = blank(max(1, _MEMORY_BYTES // (4 * encoder.width)), encoder.width)
        self._count = 0  # of texts in memory
        self.num_repeated = 0
        """Number of texts that took the vector of an earlier one."""

    def embed(self, texts: pa.Array, trees: pa.Array | None, lock: ComputeLock, on_rows: OnRows) -> Embedded:
        """Return vectors and counts of n texts. A text that is not repeated is encoded as without this class: if none
        is, all in one call.
        """
        if not self._is_used or not len(texts):
            return self._encoder.embed(texts, max(1, len(texts)), trees, lock=lock, on_rows=on_rows)
        coded = keys_of(texts, trees).dictionary_encode()
        keys, codes = coded.dictionary, coded.indices.to_numpy()
        known = pc.fill_null(pc.index_in(keys, pa.concat_arrays([keys[:0], *self._known])), -1).to_numpy()
        new = np.flatnonzero(known < 0)
        if len(new) == len(texts):
            embedded = self._encoder.embed(texts, len(texts), trees, lock=lock, on_rows=on_rows)
            self._remember(keys, embedded)
            return embedded
        firsts = np.unique(codes, return_index=True)[1]  # row of each distinct text
        distinct = blank(len(keys), self._encoder.width)
        write_rows(distinct, np.flatnonzero(known >= 0), take_rows(self._memory, known[known >= 0]))
        if len(new):
            write_rows(distinct, new, self._encoded(texts, trees, firsts[new], lock, on_rows))
            self._remember(keys.take(pa.array(new)), take_rows(distinct, new))
        on_rows(len(texts) - len(new))
        self.num_repeated += len(texts) - len(new)
        return take_rows(distinct, codes)

    def _encoded(
        self, texts: pa.Array, trees: pa.Array | None, rows: Rows, lock: ComputeLock, on_rows: OnRows
    ) -> Embedded:
        """Encode some rows; errors name the row."""
        taken = pa.array(rows)
        try:
            return self._encoder.embed(
                texts.take(taken), len(rows), None if trees is None else trees.take(taken), lock=lock, on_rows=on_rows
            )
        except (TreeError, NotFiniteError) as error:
            error.text = int(rows[error.text])
            raise

    def _remember(self, keys: pa.Array, embedded: Embedded) -> None:
        """Keep the first texts, as many as fit in memory."""
        count = min(len(keys), len(self._memory.vectors) - self._count)
        if count:
            rows = np.arange(count)
            write_rows(self._memory, self._count + rows, take_rows(embedded, rows))
            self._known.append(keys[:count])
            self._count += count


def keys_of(texts: pa.Array, trees: pa.Array | None) -> pa.Array:
    """Return what decides the vectors of texts: the text, of which null counts as empty; with trees, both and the
    length of the text, in one string.
    """
    texts = pc.fill_null(texts.cast(pa.large_string()), "")
    if trees is None:
        return texts
    lengths, trees = (array.cast(pa.large_string()) for array in (pc.binary_length(texts), pc.fill_null(trees, "")))
    return pc.binary_join_element_wise(lengths, texts, trees, pa.scalar(":", pa.large_string()))


def blank(count: int, width: int) -> Embedded:
    """Return arrays for vectors and counts of texts, to be written by ``write_rows``."""
    counts, flags = np.empty((2, count), np.int32), np.empty((2, count), np.bool_)
    return Embedded(np.empty((count, width), np.float32), *counts, *flags)


def _arrays(embedded: Embedded) -> list[npt.NDArray[Any]]:
    none = np.zeros(len(embedded.vectors), np.bool_)
    flags = (none if flag is None else flag for flag in (embedded.is_cut, embedded.lacks_tree))
    return [embedded.vectors, embedded.num_tokens, embedded.num_unknown, *flags]


def write_rows(target: Embedded, rows: Rows, values: Embedded) -> None:
    """Write vectors and counts to rows."""
    for array, of_values in zip(_arrays(target), _arrays(values), strict=True):
        array[rows] = of_values


def take_rows(embedded: Embedded, rows: Rows) -> Embedded:
    """Return vectors and counts of rows."""
    return Embedded(*(array[rows] for array in _arrays(embedded)))
