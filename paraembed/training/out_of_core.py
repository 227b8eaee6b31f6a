"""Pairs that do not fit in memory: arrays that grow into files, and the order of an epoch over them.

The order is that of a shuffle buffer over blocks: the data are cut into blocks of consecutive pairs. The blocks come in
random order, some at a time: a window of them is read from the disk, block after block, and its pairs are shuffled.
What is given up: pairs of one block always come in one window, so that an epoch is no longer any order with equal
probability.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from paraembed.text.ragged import Ragged, joined

_BLOCK_PAIRS = 4096
"""Consecutive pairs read at once: 200 KB of phrase pairs, and 250 blocks from all over the data a million pairs."""
_ORDER_BYTES = 8  # a pair's place in the order of its window


@dataclass(frozen=True)
class MemoryLimit:
    """Memory of one worker that the data may take.

    Attributes:
        max_bytes: with more, the data are kept in files.
        folder: where these files are made. They have no name there, so that none outlives its process, however that
            ends.
    """

    max_bytes: int
    folder: Path


class GrowingArray:
    """An array [n] to which blocks are appended; at no time is there a second copy of it."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.array: npt.NDArray[Any] = np.empty(0, dtype)
        self.file: IO[bytes] | None = None
        self._folder = ""

    @property
    def nbytes(self) -> int:
        """Number of bytes in memory."""
        return self.array.nbytes

    def append(self, block: npt.NDArray[Any]) -> None:
        """Add a block at the end.

        Raises:
            OSError: the disk is full.
        """
        if self.file is not None:
            self._write(self.file, block)
            return
        start = len(self.array)
        self.array.resize(start + len(block), refcheck=False)  # realloc moves pages of large arrays, it copies none
        self.array[start:] = block

    def to_file(self, folder: Path) -> None:
        """Move the array to a file.

        Raises:
            OSError: the folder cannot be written to, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by ``close``
        self._folder = str(folder)
        whole, self.array = self.array, np.empty(0, self.array.dtype)
        self._write(self.file, whole)

    def finished(self) -> npt.NDArray[Any]:
        """Return the array; that of a file is memory-mapped, read-only, and stays valid after ``close``."""
        if self.file is None or not self.file.tell():
            return self.array
        return np.asarray(np.memmap(self.file, self.array.dtype, "r"))

    def _write(self, file: IO[bytes], block: npt.NDArray[Any]) -> None:
        try:
            file.write(np.ascontiguousarray(block, self.array.dtype).data)
            file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._folder) from None

    def close(self) -> None:
        """Close the file, if any."""
        if self.file is not None:
            self.file.close()


@dataclass(frozen=True)
class MappedPairs(Ragged):
    """2n texts in memory-mapped files.

    Attributes:
        window: pairs that are read and shuffled at a time. It decides the order of an epoch: a resumed run must go
            on with the same.
    """

    window: int = field(kw_only=True)

    @classmethod
    def of(cls, texts: Ragged, max_bytes: int) -> "MappedPairs":
        """Return pairs with windows of at most this number of bytes."""
        bytes_per_pair = 2 * texts.nbytes / max(1, len(texts)) + _ORDER_BYTES
        window = max(1, int(max_bytes / bytes_per_pair) // _BLOCK_PAIRS) * _BLOCK_PAIRS
        return cls(texts.ids, texts.offsets, texts.merges, window=window)

    def cut(self, max_tokens: int) -> Ragged:
        """The texts, which no longer may be longer; raises ValueError where they are: cut them as they are read."""
        if self.num_longer(max_tokens):
            raise ValueError(f"texts on disk have over {max_tokens} tokens; pairs_to_ids cuts them, by its max_tokens")
        return self

    def __str__(self) -> str:
        num_pairs = len(self) // 2
        return (
            f"{num_pairs:,} pairs on disk ({self.nbytes / 2**30:.2f} GiB), read in windows of {self.window:,} pairs "
            f"({-(-num_pairs // self.window):,} an epoch) and shuffled within each"
        )


class Windows:
    """Pairs in the order f(seed, epoch, window), with one window of them in memory at a time."""

    def __init__(self, pairs: MappedPairs, *, epoch: int, seed: int) -> None:
        """Take the pairs, the epoch from 0, and the seed of the run; a window is rounded up to whole blocks."""
        num_pairs = len(pairs) // 2
        self.pairs, self.entropy = pairs, (seed, epoch)
        self._blocks = np.random.default_rng(self.entropy).permutation(-(-num_pairs // _BLOCK_PAIRS))
        self._per_window = -(-pairs.window // _BLOCK_PAIRS)
        sizes = np.minimum(_BLOCK_PAIRS, num_pairs - self._blocks * _BLOCK_PAIRS)
        ends = np.concatenate(([0], np.cumsum(sizes)))
        self._starts = np.append(ends[: -1 : self._per_window], num_pairs)
        self._number, self._order = -1, np.zeros(0, np.int64)
        self._texts: Ragged = pairs.slice(0, 0)

    def take(self, places: npt.NDArray[np.int64]) -> Ragged:
        """Return the texts of the pairs at ascending positions in the order, none before those of the last call."""
        parts = []
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(numbers):
            if number != self._number:
                self._read(int(number))
            of_window = places[numbers == number] - self._starts[number]
            parts.append(self._texts.take_pairs(self._order[of_window]))
        return joined(*parts) if parts else self.pairs.slice(0, 0)

    def _read(self, number: int) -> None:
        """Read a window into memory, replacing the one before."""
        self._texts, self._number = self.pairs.slice(0, 0), number
        firsts = 2 * _BLOCK_PAIRS * self._blocks[number * self._per_window : (number + 1) * self._per_window]
        lasts = np.minimum(firsts + 2 * _BLOCK_PAIRS, len(self.pairs))
        self._texts = joined(*(self.pairs.slice(first, last) for first, last in zip(firsts, lasts, strict=True)))
        # The spawn key keeps these draws apart from those of the blocks.
        drawn = np.random.SeedSequence(self.entropy, spawn_key=(number,))
        self._order = np.random.default_rng(drawn).permutation(len(self._texts) // 2)
