"""Packed texts: one array of word ids and one of offsets, so that a batch is a slice and needs no padding."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_BLOCK_TEXTS = 1 << 18  # to compare at a time, to bound memory


@dataclass(frozen=True)
class Ragged:
    """Word ids of n texts; text i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: npt.NDArray[np.int32]  # int32 [T]
    offsets: npt.NDArray[np.int64]  # int64 [n + 1], starting at 0
    # Array int32 [T], or None without trees. A binary tree over the tokens of a text, as the number of inner nodes that
    # close after each token, each over the last two subtrees (shift-reduce). A text of m tokens closes m - 1 nodes; if
    # all close after the last token, the tree is right-branching.
    merges: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each text, int64 [n]."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Total size of the arrays in bytes."""
        arrays = self.ids, self.offsets, self.merges
        return sum(array.nbytes for array in arrays if array is not None)

    def num_longer(self, tokens: int, *, block: int = _BLOCK_TEXTS) -> int:
        """Return the number of texts with more than ``tokens`` tokens."""
        blocks = (self.offsets[first : first + block + 1] for first in range(0, len(self), block))
        return sum(int((np.diff(offsets) > tokens).sum()) for offsets in blocks)

    def slice(self, start: int, stop: int) -> "Ragged":
        """Return texts ``start`` to ``stop`` - 1; only the offsets are copied."""
        first, last = self.offsets[start], self.offsets[stop]
        merges = None if self.merges is None else self.merges[first:last]
        return Ragged(self.ids[first:last], self.offsets[start : stop + 1] - first, merges)

    def take(self, texts: npt.NDArray[np.int64]) -> "Ragged":
        """Return the texts with the given numbers, in the given order."""
        return self.spans(texts, texts + 1)

    def spans(self, firsts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> "Ragged":
        """Return texts that are texts ``firsts[i]`` to ``stops[i]`` - 1 joined; none of them may have a tree."""
        starts = self.offsets[firsts]
        lengths = self.offsets[stops] - starts
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        merges = None if self.merges is None else self.merges[positions]
        return Ragged(self.ids[positions], offsets, merges)

    def take_pairs(self, pairs: npt.NDArray[np.int64]) -> "Ragged":
        """Return texts 2i and 2i + 1 of each given pair i, in the given order."""
        return self.take(np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1))

    def right_branching(self) -> "Ragged":
        """Return the same texts with right-branching trees."""
        lengths = self.lengths
        merges = np.zeros(len(self.ids), np.int32)
        merges[self.offsets[1:][lengths > 0] - 1] = lengths[lengths > 0] - 1
        return replace(self, merges=merges)

    def cut(self, max_tokens: int) -> "Ragged":
        """Truncate each text to its first ``max_tokens`` tokens, and prune its tree."""
        if not self.num_longer(max_tokens):
            return self
        kept = np.minimum(self.lengths, max_tokens)
        offsets = np.concatenate(([0], np.cumsum(kept)))
        positions = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1] - offsets[:-1], kept)
        if self.merges is None:
            return replace(self, ids=self.ids[positions], offsets=offsets)
        # A node without its right child disappears; the remaining subtrees join from the right.
        merges = self.merges[positions]
        lasts = offsets[1:][kept > 0] - 1
        merges[lasts] = 0
        merges[lasts] = (kept - 1)[kept > 0] - np.add.reduceat(merges, offsets[:-1][kept > 0])
        return replace(self, ids=self.ids[positions], offsets=offsets, merges=merges)

    def with_ends(self, start: int | None, end: int | None) -> "Ragged":
        """Return the texts with the ids ``start`` before and ``end`` after each, if given (BOS and EOS).

        No text may be empty. In a tree, the start token joins the whole text, and the end token joins the result.
        """
        extra = (start is not None) + (end is not None)
        if not extra:
            return self
        offsets = self.offsets + extra * np.arange(len(self.offsets))
        inner = np.arange(len(self.ids)) + np.repeat(extra * np.arange(len(self)) + (start is not None), self.lengths)
        ids = np.empty(offsets[-1], np.int32)
        ids[inner] = self.ids
        if start is not None:
            ids[offsets[:-1]] = start
        if end is not None:
            ids[offsets[1:] - 1] = end
        if self.merges is None:
            return replace(self, ids=ids, offsets=offsets)
        merges = np.zeros(len(ids), np.int32)
        merges[inner] = self.merges
        if start is not None:
            merges[inner[self.offsets[1:] - 1]] += 1
        if end is not None:
            merges[offsets[1:] - 1] = 1
        return replace(self, ids=ids, offsets=offsets, merges=merges)


def joined(*parts: Ragged) -> Ragged:
    """Concatenate texts; the result has trees if all parts have."""
    firsts = np.concatenate(([0], np.cumsum([len(part.ids) for part in parts])))
    ends = [part.offsets[1:] + first for part, first in zip(parts, firsts[:-1], strict=True)]
    merges = [part.merges for part in parts if part.merges is not None]
    return Ragged(
        np.concatenate([part.ids for part in parts]),
        np.concatenate(([0], *ends)),
        np.concatenate(merges) if len(merges) == len(parts) else None,
    )


def string_bytes(texts: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of the n strings of an array, and the offset of each string in them, int64 [n + 1].

    The array is of type string or large_string, and may be a slice. The bytes are read-only, since numba would compile
    another version for writable memory. Raise ValueError if an offset is outside of the bytes, as arrays from a file of
    Arrow can have.
    """
    octets, offsets = np.frombuffer(b"", np.uint8), np.zeros(1, np.int64)
    if len(texts):
        _, starts, data = texts.buffers()
        size = np.int64 if pa.types.is_large_string(texts.type) else np.int32
        offsets = np.frombuffer(starts, size)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        octets = np.frombuffer(data or b"", np.uint8)
        if offsets[0] < 0 or offsets[-1] > len(octets) or (np.diff(offsets) < 0).any():
            raise ValueError("a string array has offsets outside of its bytes; read it again from its source")
        octets = octets[offsets[0] : offsets[-1]]
    octets.flags.writeable = False
    return octets, offsets - offsets[0]
