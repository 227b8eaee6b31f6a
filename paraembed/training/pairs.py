"""Pairs as word ids, in flat memory or in files, and the order in which an epoch visits them.

Pair i is the texts 2i and 2i + 1 of one ragged array, so that consecutive pairs are one slice of it.

Pairs that do not fit in memory: arrays that grow into files, and the order of an epoch over them.

The order is that of a shuffle buffer over blocks: the data are cut into blocks of consecutive pairs. The blocks come in
random order, some at a time: a window of them is read from the disk, block after block, and its pairs are shuffled.
What is given up: pairs of one block always come in one window, so that an epoch is no longer any order with equal
probability.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.text.ragged import Ragged, joined
from paraembed.text.tokenize import tokenize
from paraembed.text.trees import fitting_trees
from paraembed.text.vocabulary import word_ids

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


_TEXTS, _TREES = ("first", "second"), ("first_tree", "second_tree")
_CHUNK_PAIRS = 8_192  # pairs brought into epoch order at a time: under 2 ms, and no Python work a pair


def pairs_to_ids(
    blocks: Iterable[pa.Table],
    vocabulary: pa.StringArray,
    with_trees: bool = False,
    *,
    max_tokens: int | None = None,
    limit: MemoryLimit | None = None,
) -> Ragged:
    """Return the pairs of shard blocks as word ids.

    Args:
        blocks: tables with string columns ``first`` and ``second``: tokens with one space between.
        vocabulary: string array [V].
        with_trees: whether the texts get trees: those of the columns ``first_tree`` and ``second_tree``, and
            right-branching ones where these are null or missing (see ``num_without_tree``).
        max_tokens: truncate texts to this number of tokens (see ``num_cut``); None: no limit.
        limit: ids of more bytes are kept in files, and mapped; None: in memory, whatever their size.

    Returns:
        2n texts, the two of a pair adjacent; ``MappedPairs`` if they are over the limit.

    Raises:
        ValueError: a tree does not fit its text.
        OSError: the limit's folder cannot be written to, or its disk is full.
    """
    ids, offsets, merges = columns = GrowingArray(np.int32), GrowingArray(np.int64), GrowingArray(np.int32)
    offsets.append(np.zeros(1, np.int64))
    num_tokens = 0
    try:
        for block in blocks:
            pairs = _block_ids(block, vocabulary, with_trees)
            pairs = pairs if max_tokens is None else pairs.cut(max_tokens)
            ids.append(pairs.ids)
            offsets.append(pairs.offsets[1:] + num_tokens)
            if pairs.merges is not None:
                merges.append(pairs.merges)
            num_tokens += len(pairs.ids)
            if limit is not None and sum(column.nbytes for column in columns) > limit.max_bytes:
                for column in columns:
                    column.to_file(limit.folder)
        texts = Ragged(ids.finished(), offsets.finished(), merges.finished() if with_trees else None)
        return texts if limit is None or ids.file is None else MappedPairs.of(texts, limit.max_bytes)
    finally:
        for column in columns:
            column.close()


def _block_ids(block: pa.Table, vocabulary: pa.StringArray, with_trees: bool) -> Ragged:
    tokens = tokenize(_both_sides(block, _TEXTS), "space")
    merges = fitting_trees(_both_sides(block, _TREES), tokens).merges if with_trees else None
    sides = Ragged(word_ids(tokens.flat, vocabulary), tokens.offsets, merges)
    return sides.take(np.arange(len(sides)).reshape(2, -1).T.reshape(-1))


def pair_columns(shard: pa.Schema, with_trees: bool) -> list[str]:
    """Return the columns of a pair shard that ``pairs_to_ids`` reads; shards of older versions have no trees."""
    wanted = (*_TEXTS, *_TREES) if with_trees else _TEXTS
    return [name for name in wanted if name in shard.names]


def num_without_tree(block: pa.Table) -> int:
    """Count the texts of three or more tokens in a shard block without a tree; shorter texts have only one tree."""
    long = pc.greater(pc.count_substring(_both_sides(block, _TEXTS), " "), 1)
    return int(pc.sum(pc.and_(long, pc.is_null(_both_sides(block, _TREES)))).as_py() or 0)


def num_cut(block: pa.Table, max_tokens: int) -> int:
    """Count the texts of more than ``max_tokens`` tokens in a shard block."""
    return int(pc.sum(pc.greater(pc.count_substring(_both_sides(block, _TEXTS), " "), max_tokens - 1)).as_py() or 0)


def _both_sides(block: pa.Table, names: tuple[str, str]) -> pa.StringArray:
    """Concatenate two string columns; null for a missing column."""
    missing = pa.nulls(len(block), pa.string())
    columns = [block[name].combine_chunks() if name in block.column_names else missing for name in names]
    return pa.concat_arrays([pa.array(column).cast(pa.string()) for column in columns])  # a block may hold nulls alone


@dataclass(frozen=True)
class Batch:
    """One worker's part of a step.

    Attributes:
        texts: texts of its pairs, the two of a pair adjacent; empty if a last batch leaves none for this worker.
        total: pairs of the step over all workers.
        ahead: the texts of a mega-batch, with the first of its batches.
        may_pause: whether a run may be broken off behind it: not within a mega-batch.
    """

    texts: Ragged
    total: int
    ahead: Ragged | None = None
    may_pause: bool = True


def num_steps(num_pairs: int, batch_size: int, world: int = 1, first_pair: int = 0) -> int:
    """Return the number of steps of an epoch from its pair ``first_pair`` on; the last one may be smaller."""
    return -(-(num_pairs - first_pair) // (batch_size * world))


def epoch_batches(
    pairs: Ragged,
    *,
    epoch: int,
    seed: int,
    batch_size: int,
    rank: int = 0,
    world: int = 1,
    first_pair: int = 0,
) -> Iterator[Batch]:
    """Yield the batches of one worker in one epoch.

    The order of the pairs is f(seed, epoch), whatever the number of workers (of ``MappedPairs``: f(seed, epoch,
    window)): a step takes the next ``world * batch_size`` of them and hands each worker ``batch_size`` (the last step:
    equal shares). So over all workers every pair comes exactly once an epoch, also when it is broken off and resumed
    by another number of workers.

    Args:
        pairs: 2n texts.
        epoch: from 0.
        seed: of the run.
        batch_size: pairs a step and worker.
        rank: which worker, from 0.
        world: number of workers.
        first_pair: pairs of this epoch that are done already, over all workers.

    Yields:
        ``num_steps(n, batch_size, world, first_pair)`` batches.
    """
    in_order = _in_order(pairs, epoch, seed)
    for places_SB, total in shares(len(pairs) // 2, batch_size, rank, world, first_pair, _CHUNK_PAIRS):
        texts = in_order(places_SB.reshape(-1))
        num_texts = 2 * places_SB.shape[1]
        for step in range(len(places_SB)):
            yield Batch(texts.slice(num_texts * step, num_texts * (step + 1)), total)


def _in_order(pairs: Ragged, epoch: int, seed: int) -> Callable[[npt.NDArray[np.int64]], Ragged]:
    """Return a function from positions in the epoch's order, ascending, to the texts of their pairs."""
    if isinstance(pairs, MappedPairs):
        return Windows(pairs, epoch=epoch, seed=seed).take
    order = epoch_order(len(pairs) // 2, epoch, seed)
    return lambda places: pairs.take_pairs(order[places])


def epoch_order(num_pairs: int, epoch: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the pairs in the order of an epoch, int64 [n]."""
    return np.random.default_rng((seed, epoch)).permutation(num_pairs)


def shares(
    num_pairs: int, batch_size: int, rank: int, world: int, first_pair: int, at_once: int
) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
    """Yield a worker's positions in the epoch's order, for several steps of equal size at a time.

    Args:
        num_pairs: of the epoch.
        batch_size: pairs a step and worker.
        rank: which worker, from 0.
        world: number of workers.
        first_pair: places that are done already.
        at_once: pairs of this worker, about, whose places are given at a time.

    Yields:
        places [S, B] of S steps, and the pairs of each of them over all workers.
    """
    step_size = batch_size * world
    smaller = num_pairs - (num_pairs - first_pair) % step_size  # where the last step begins if it is a smaller one
    steps_at_once = max(1, at_once // batch_size)
    own = np.arange(rank * batch_size, (rank + 1) * batch_size)
    for start in range(first_pair, smaller, steps_at_once * step_size):
        starts = np.arange(start, min(start + steps_at_once * step_size, smaller), step_size)
        yield starts[:, None] + own, step_size
    if smaller < num_pairs:
        total = num_pairs - smaller
        first, last = share_bounds(total, world)[rank : rank + 2]
        yield np.arange(smaller + first, smaller + last)[None], total


def share_bounds(total: int, world: int) -> list[int]:
    """Return the first pair of each worker's part of a step, and the end of the last part, [world + 1].

    A step of fewer than two pairs a worker goes to fewer workers: a pair alone has no negative.
    """
    sharing = min(world, max(1, total // 2))
    return [total * min(rank, sharing) // sharing for rank in range(world + 1)]
