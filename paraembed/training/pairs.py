"""Pairs as word ids in flat memory, and the order in which an epoch visits them.

Pair i is the texts 2i and 2i + 1 of one ragged array, so that consecutive pairs are one slice of it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.text.ragged import Ragged
from paraembed.text.tokenize import tokenize
from paraembed.text.trees import fitting_trees
from paraembed.text.vocabulary import word_ids
from paraembed.training.out_of_core import GrowingArray, MappedPairs, MemoryLimit, Windows

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
