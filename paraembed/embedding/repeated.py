"""Encode equal texts of a part once: those of a batch, and those of earlier batches whose vectors are in memory.

A part remembers vectors in the order of its rows, and none of other parts, so its bytes do not depend on the worker.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.embedding.cache import Cache, CachedVectors, hashes_of
from paraembed.encoders.protocol import ComputeLock, Embedded, NotFiniteError, OnRows, Rows, TextEncoder
from paraembed.text import TreeError
from paraembed.text.ragged import Ragged

_MEMORY_BYTES = 64 << 20  # of vectors that a part remembers


class DistinctTexts:
    """Texts of a part, of which each is encoded once if the encoder ``encodes_once``."""

    def __init__(self, encoder: TextEncoder, cache: Cache | None = None) -> None:
        self.encoder = encoder
        self._is_used = bool(getattr(encoder, "encodes_once", False))
        self._known: list[pa.Array] = []  # keys of the texts in memory
        self._memory = Embedded.blank(max(1, _MEMORY_BYTES // (4 * encoder.width)), encoder.width)
        self._count = 0  # of texts in memory
        self.cached = None if cache is None else CachedVectors(cache)
        """Vectors of earlier runs."""
        self.num_repeated = 0
        """Number of texts that took the vector of an earlier text of the part."""
        self.num_distinct = 0
        """Number of texts that are not in memory, so they are looked up in the cache."""
        self.num_cached = 0
        """Number of texts that took the vector of an earlier run."""

    def embed(
        self, texts: pa.Array, trees: pa.Array | None, lock: ComputeLock, on_rows: OnRows, tokens: Ragged | None = None
    ) -> Embedded:
        """Return vectors and counts of n texts. If no text is repeated or in the cache, they are encoded in one call,
        as without this class. ``tokens`` are those of the texts, if they are known.
        """
        known_tokens: dict[str, Any] = {} if tokens is None else {"tokens": tokens}
        if not self._is_used or not len(texts):
            return self.encoder.embed(texts, max(1, len(texts)), trees, lock=lock, on_rows=on_rows, **known_tokens)
        coded = keys_of(texts, trees).dictionary_encode()
        keys, codes = coded.dictionary, coded.indices.to_numpy().astype(np.int64)
        known = pc.fill_null(pc.index_in(keys, pa.concat_arrays([keys[:0], *self._known])), -1).to_numpy()
        new = np.flatnonzero(known < 0)
        distinct = Embedded.blank(len(keys), self.encoder.width)
        if len(new) < len(keys):
            distinct.write(np.flatnonzero(known >= 0), self._memory.take(known[known >= 0]))
        hashes, is_known = np.zeros((0, 2), np.uint64), np.zeros(len(new), np.bool_)
        if self.cached is not None:
            hashes = hashes_of(keys.take(pa.array(new)))
            is_known = self.cached.find(hashes, distinct, new)
        left = new[~is_known]  # texts to encode
        if len(left) == len(texts):
            distinct = self.encoder.embed(texts, len(texts), trees, lock=lock, on_rows=on_rows, **known_tokens)
        elif len(left):
            firsts = np.unique(codes, return_index=True)[1]  # row of each distinct text
            encoded = self._encoded(texts, trees, firsts[left], lock, on_rows)
            if len(left) == len(keys):
                distinct = encoded
            else:
                distinct.write(left, encoded)
        if self.cached is not None and len(left):
            self.cached.add(hashes[~is_known], distinct.take(left))
        self._remember(keys, distinct, new)
        on_rows(len(texts) - len(left))
        self.num_repeated += len(texts) - len(new)
        self.num_distinct += len(new)
        self.num_cached += int(is_known.sum())
        return distinct if len(left) == len(texts) else distinct.take(codes)

    def _encoded(
        self, texts: pa.Array, trees: pa.Array | None, rows: Rows, lock: ComputeLock, on_rows: OnRows
    ) -> Embedded:
        """Encode some rows; errors name the row."""
        taken = pa.array(rows)
        try:
            return self.encoder.embed(
                texts.take(taken), len(rows), None if trees is None else trees.take(taken), lock=lock, on_rows=on_rows
            )
        except (TreeError, NotFiniteError) as error:
            error.text = int(rows[error.text])
            raise

    def _remember(self, keys: pa.Array, embedded: Embedded, new: Rows) -> None:
        """Keep the first of the ``new`` texts, as many as fit in memory."""
        new = new[: len(self._memory.vectors) - self._count]
        if len(new):
            self._memory.write(self._count + np.arange(len(new)), embedded.take(new))
            self._known.append(keys.take(pa.array(new)))
            self._count += len(new)


def keys_of(texts: pa.Array, trees: pa.Array | None) -> pa.Array:
    """Return what decides the vectors of texts: the text, of which null counts as empty; with trees, both and the
    length of the text, in one string.
    """
    texts = pc.fill_null(texts.cast(pa.large_string()), "")
    if trees is None:
        return texts
    lengths, trees = (array.cast(pa.large_string()) for array in (pc.binary_length(texts), pc.fill_null(trees, "")))
    return pc.binary_join_element_wise(lengths, texts, trees, pa.scalar(":", pa.large_string()))
