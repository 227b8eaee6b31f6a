"""Pairs as word ids, in memory or in memory-mapped files, and the order of the pairs in an epoch.

The texts of pair i are the texts 2i and 2i + 1 of one ragged array, so consecutive pairs are a slice of it.

For pairs that do not fit in memory, an epoch uses a shuffle buffer over blocks. The data are split into blocks of
consecutive pairs, which are visited in random order. A window of several blocks is read from disk, and its pairs are
shuffled. A limitation: the pairs of a block are always in the same window, so not all orders of an epoch are equally
likely.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.atomic import any_content, new_folder, write_json
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.options import Count
from paraembed.text.bigrams import has_bigrams
from paraembed.text.ragged import Ragged, joined
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds
from paraembed.text.trees import fitting_trees
from paraembed.text.vocabulary import word_ids

_BLOCK_PAIRS = 4096
"""Consecutive pairs that are read together: 200 KB of phrase pairs; a window of a million pairs has 250 blocks from all
parts of the data.
"""
ORDER_BYTES = 8  # a pair's place in the order of its epoch, or window
_FORMAT, _MANIFEST = "paraembed-ids-1", "manifest.json"
_ARRAYS = {"ids": np.int32, "offsets": np.int64, "merges": np.int32}

Longs = npt.NDArray[np.int64]


class GrowingArray:
    """Array [n] to which blocks are appended, without ever making a second copy of it."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.array: npt.NDArray[Any] = np.empty(0, dtype)

    def append(self, block: npt.NDArray[Any]) -> None:
        """Add a block at the end."""
        start = len(self.array)
        self.array.resize(start + len(block), refcheck=False)  # realloc moves pages of large arrays, it copies none
        self.array[start:] = block


@dataclass(frozen=True)
class MappedPairs(Ragged):
    """2n texts in memory-mapped files."""

    # Number of pairs that are read and shuffled at a time. It decides the order of an epoch, so a resumed run must use
    # the same value.
    window: int = field(kw_only=True)
    # Number of adjacent pairs that a window reads at a time.
    block_pairs: int = field(default=_BLOCK_PAIRS, kw_only=True)

    @classmethod
    def of(cls, texts: Ragged, max_bytes: int) -> "MappedPairs":
        """Return pairs with windows of at most ``max_bytes`` bytes."""
        bytes_per_pair = 2 * texts.nbytes / max(1, len(texts)) + ORDER_BYTES
        window = max(1, int(max_bytes / bytes_per_pair) // _BLOCK_PAIRS) * _BLOCK_PAIRS
        return cls(texts.ids, texts.offsets, texts.merges, window=window)

    def cut(self, max_tokens: int) -> Ragged:
        """Return the texts; raise ValueError if one is too long, since texts on disk must be truncated when they are
        read.
        """
        if self.num_longer(max_tokens):
            raise ValueError(
                f"texts on disk have more than {max_tokens} tokens; set max_tokens of pairs_to_ids to truncate them"
            )
        return self

    def __str__(self) -> str:
        num_pairs = len(self) // 2
        return (
            f"{num_pairs:,} pairs on disk ({self.nbytes / 2**30:.2f} GiB), read and shuffled in windows of "
            f"{self.window:,} pairs ({-(-num_pairs // self.window):,} per epoch)"
        )


def epoch_order(num_pairs: int, epoch: int, seed: int) -> Longs:
    """Return the numbers of the pairs in the random order of an epoch, int64 [n]."""
    return np.random.default_rng((seed, epoch)).permutation(num_pairs)


class Windows:
    """Pairs in the order f(seed, epoch, window), with one window of them in memory at a time."""

    def __init__(self, pairs: MappedPairs, *, epoch: int, seed: int) -> None:
        """Initialize the order of an epoch (from 0); a window is rounded up to whole blocks."""
        num_pairs, block = len(pairs) // 2, pairs.block_pairs
        self.pairs, self.entropy = pairs, (seed, epoch)
        self._blocks = np.random.default_rng(self.entropy).permutation(-(-num_pairs // block))
        self._per_window = -(-pairs.window // block)
        sizes = np.minimum(block, num_pairs - self._blocks * block)
        ends = np.concatenate(([0], np.cumsum(sizes)))
        self._starts = np.append(ends[: -1 : self._per_window], num_pairs)
        self._number, self._order = -1, np.zeros(0, np.int64)
        self._texts: Ragged = pairs.slice(0, 0)

    def take(self, places: npt.NDArray[np.int64]) -> Ragged:
        """Return the texts of the pairs at ascending positions in the order, after those of the previous call."""
        parts = []
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(numbers):
            if number != self._number:
                self._read(int(number))
            of_window = places[numbers == number] - self._starts[number]
            parts.append(self._texts.take_pairs(self._order[of_window]))
        return joined(*parts) if parts else self.pairs.slice(0, 0)

    def _read(self, number: int) -> None:
        """Read a window into memory, replacing the previous one."""
        self._texts, self._number, block = self.pairs.slice(0, 0), number, self.pairs.block_pairs
        firsts = 2 * block * self._blocks[number * self._per_window : (number + 1) * self._per_window]
        lasts = np.minimum(firsts + 2 * block, len(self.pairs))
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
    tokenizer: str = "space",
    max_tokens: int | None = None,
) -> Ragged:
    """Return the pairs of shard blocks as word ids.

    Args:
        blocks: tables with string columns ``first`` and ``second``: tokens, separated by one space.
        vocabulary: string array [V].
        with_trees: whether the texts get trees: those of the columns ``first_tree`` and ``second_tree``, and
            right-branching trees if these are null or missing (see ``num_without_tree``).
        tokenizer: result of ``inputs.tokenizer_of_pairs``; ``space`` takes the shards' tokens.
        max_tokens: truncate texts to this number of tokens (see ``num_cut``); None: no limit.

    Returns:
        2n texts, the two of a pair adjacent.

    Raises:
        ValueError: a tree does not fit its text.
    """
    ids, offsets, merges = (GrowingArray(dtype) for dtype in _ARRAYS.values())
    offsets.append(np.zeros(1, np.int64))
    for texts in ids_of_blocks(blocks, vocabulary, with_trees, tokenizer=tokenizer, max_tokens=max_tokens):
        offsets.append(texts.offsets[1:] + len(ids.array))
        ids.append(texts.ids)
        if texts.merges is not None:
            merges.append(texts.merges)
    return Ragged(ids.array, offsets.array, merges.array if with_trees else None)


def ids_of_blocks(
    blocks: Iterable[pa.Table],
    vocabulary: pa.StringArray,
    with_trees: bool = False,
    *,
    tokenizer: str = "space",
    max_tokens: int | None = None,
) -> Iterator[Ragged]:
    """Yield the pairs of each shard block as word ids; arguments and errors are those of ``pairs_to_ids``."""
    to_ids = None if tokenizer == "space" and not has_bigrams(vocabulary) else TokenIds(vocabulary, tokenizer)
    for block in blocks:
        pairs = _block_ids(block, vocabulary, with_trees) if to_ids is None else _paired(to_ids(both_sides(block)))
        yield pairs if max_tokens is None else pairs.cut(max_tokens)


@dataclass(frozen=True)
class PairFiles:
    """Manifest of a folder with pairs as word ids."""

    format: str  # format of the folder
    source: str  # digest of what decides the ids
    sha256: dict[str, str]  # digests of the files by name
    remarks: dict[str, Count]  # numbers of texts by remark for the user, such as the one on truncated texts


def write_pairs(folder: Path, blocks: Iterable[Ragged], source: str, remarks: Mapping[str, int]) -> None:
    """Write pairs as word ids to a folder, atomically; ``remarks`` may grow while ``blocks`` are read.

    The files ``ids`` and ``merges`` (of trees) are int32 [T], ``offsets`` is int64 [2n + 1]; see ``Ragged``. Raise
    OSError if the folder cannot be written to, or the disk is full.
    """
    with new_folder(folder, any_content) as new:
        _append(new / "offsets", np.zeros(1, np.int64))
        num_tokens = 0
        for texts in blocks:
            _append(new / "offsets", texts.offsets[1:] + num_tokens)
            _append(new / "ids", texts.ids)
            if texts.merges is not None:
                _append(new / "merges", texts.merges)
            num_tokens += len(texts.ids)
        digests = {path.name: sha256_of(path) for path in new.iterdir()}
        write_json(new / _MANIFEST, asdict(PairFiles(_FORMAT, source, digests, dict(remarks))))


def _append(path: Path, block: npt.NDArray[Any]) -> None:
    try:
        with path.open("ab") as file:
            file.write(np.ascontiguousarray(block, _ARRAYS[path.name]).data)
    except OSError as error:
        raise OSError(
            f"the pairs could not be written as ids ({error}); free some space on the disk and start the job again"
        ) from None


def are_written(folder: Path, source: str) -> bool:
    """Return whether a folder has the pairs of a source, after a check of the digests."""
    try:
        files = read_json(folder / _MANIFEST, PairFiles)
        is_same = (files.format, files.source) == (_FORMAT, source)
        return is_same and all(sha256_of(folder / name) == digest for name, digest in files.sha256.items())
    except (OSError, ValueError):
        return False


def read_pairs(folder: Path, num_pairs: int) -> tuple[Ragged, dict[str, int]]:
    """Return the pairs of ``write_pairs``, memory-mapped, so that the processes of a machine share them, read-only; and
    the remarks. Raise OSError or ValueError if files are missing or too short.
    """
    files = read_json(folder / _MANIFEST, PairFiles)
    ids, offsets, merges = (
        _mapped(folder / name, dtype) if name in files.sha256 else None for name, dtype in _ARRAYS.items()
    )
    if ids is None or offsets is None or len(offsets) != 2 * num_pairs + 1 or len(ids) != offsets[-1]:
        raise ValueError(f"{folder} does not have the ids of {num_pairs:,} pairs; remove the folder, and start again")
    return Ragged(ids, offsets, merges), files.remarks


def _mapped(path: Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)


def _block_ids(block: pa.Table, vocabulary: pa.StringArray, with_trees: bool) -> Ragged:
    tokens = tokenize(both_sides(block), "space")
    merges = fitting_trees(both_sides(block, _TREES), tokens).merges if with_trees else None
    return _paired(Ragged(word_ids(tokens.flat, vocabulary), tokens.offsets, merges))


def _paired(sides: Ragged) -> Ragged:
    """Return the texts of the two sides, one side after the other, with those of a pair adjacent."""
    return sides.take(np.arange(len(sides)).reshape(2, -1).T.reshape(-1))


def pair_columns(shard: pa.Schema, with_trees: bool) -> list[str]:
    """Return the columns of a pair shard that ``pairs_to_ids`` reads; shards of older versions have no trees."""
    wanted = *_TEXTS, *(_TREES if with_trees else ())
    return [name for name in wanted if name in shard.names]


def num_without_tree(block: pa.Table) -> int:
    """Count the texts of three or more tokens in a shard block without a tree; shorter texts have only one tree."""
    long = pc.greater(pc.count_substring(both_sides(block), " "), 1)
    return int(pc.sum(pc.and_(long, pc.is_null(both_sides(block, _TREES)))).as_py() or 0)


def num_cut(block: pa.Table, max_tokens: int) -> int:
    """Count the texts of more than ``max_tokens`` tokens in a shard block."""
    return int(pc.sum(pc.greater(pc.count_substring(both_sides(block), " "), max_tokens - 1)).as_py() or 0)


def both_sides(block: pa.Table, names: tuple[str, str] = _TEXTS) -> pa.StringArray:
    """Return two string columns of a shard block, one after the other; null for a missing column."""
    missing = pa.nulls(len(block), pa.string())
    columns = [block[name].combine_chunks() if name in block.column_names else missing for name in names]
    return pa.concat_arrays([pa.array(column).cast(pa.string()) for column in columns])  # a block may hold nulls alone


@dataclass(frozen=True)
class Batch:
    """Part of a step that one worker computes."""

    # Texts of each worker's pairs, the two of a pair adjacent; empty if the last step has no pairs left for a worker.
    parts: tuple[Ragged, ...]
    total: int  # number of pairs in the step over all workers
    rank: int = 0  # number of this worker
    ahead: tuple[Ragged, ...] = ()  # the texts of a mega-batch by worker, in the first of its batches
    may_pause: bool = True  # whether a run may be interrupted after this batch; false within a mega-batch

    @property
    def texts(self) -> Ragged:
        """Texts of this worker."""
        return self.parts[self.rank]


def check_num_pairs(num_pairs: int, batch_size: int, world: int) -> None:
    """Raise ValueError if there are fewer pairs than a step needs, or fewer than two."""
    if num_pairs < 2:
        raise ValueError(f"{num_pairs} pairs to train on; negatives come from other pairs, so at least 2 are needed")
    if batch_size * world > num_pairs:
        workers = f" for each of {world} workers" if world > 1 else ""
        most = num_pairs // world
        advice = f"`batch_size` {most} or less" if most > 1 else f"`workers` {num_pairs // 2} or less"
        raise ValueError(
            f"`batch_size` is {batch_size}{workers}, but there are only {num_pairs:,} pairs to train on; give "
            f"{advice}, or more pairs"
        )


def num_steps(num_pairs: int, batch_size: int, world: int = 1, first_pair: int = 0) -> int:
    """Return the number of steps of an epoch from its pair ``first_pair`` on; the last step may be smaller."""
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
    chunk_pairs: int = _CHUNK_PAIRS,
) -> Iterator[Batch]:
    """Yield the batches of one worker in one epoch, counted from 0; ``first_pair`` pairs are finished, over all
    workers.

    The order of the pairs is f(seed, epoch), independent of the number of workers (for ``MappedPairs``: f(seed, epoch,
    window)). A step takes the next ``world * batch_size`` pairs and gives each worker ``batch_size`` of them (in the
    last step, equal parts). So every pair is seen exactly once per epoch, even if the epoch is interrupted and resumed
    by another number of workers.
    """
    in_order = _in_order(pairs, epoch, seed)
    for places_SB in whole_steps(len(pairs) // 2, batch_size * world, first_pair, chunk_pairs):
        texts, total = in_order(places_SB.reshape(-1)), places_SB.shape[1]
        bounds = step_bounds(total, world)
        for first in range(0, len(texts), 2 * total):
            parts = tuple(texts.slice(first + 2 * start, first + 2 * stop) for start, stop in pairwise(bounds))
            yield Batch(parts, total, rank)


def _in_order(pairs: Ragged, epoch: int, seed: int) -> Callable[[Longs], Ragged]:
    """Return a function from ascending positions in the epoch's order to the texts of their pairs."""
    if isinstance(pairs, MappedPairs):
        return Windows(pairs, epoch=epoch, seed=seed).take
    order = epoch_order(len(pairs) // 2, epoch, seed)
    return lambda places: pairs.take_pairs(order[places])


def whole_steps(num_pairs: int, step_size: int, first_pair: int, at_once: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the positions [S, pairs of a step] of S steps of equal size in the epoch's order, about ``at_once`` at a
    time; the last step of an epoch may be smaller.
    """
    smaller = num_pairs - (num_pairs - first_pair) % step_size  # where the last step begins if it is a smaller one
    at_once = max(1, at_once // step_size) * step_size
    for start in range(first_pair, smaller, at_once):
        yield np.arange(start, min(start + at_once, smaller)).reshape(-1, step_size)
    if smaller < num_pairs:
        yield np.arange(smaller, num_pairs)[None]


def step_bounds(total: int, world: int) -> list[int]:
    """Return the first pair of each worker's part of a step, and the end of the last part, [world + 1].

    A step with fewer than two pairs per worker goes to fewer workers, because a single pair has no negative.
    """
    sharing = min(world, max(1, total // 2))
    return [total * min(rank, sharing) // sharing for rank in range(world + 1)]
