"""Pairs as word ids in flat memory, and the order in which an epoch visits them.

Pair i is the texts 2i and 2i + 1 of one ragged array, so that consecutive pairs are one slice of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.trees import fitting_trees
from paraembed.ragged import Ragged
from paraembed.text import tokenise
from paraembed.words import word_ids

_TEXTS, _TREES = ("first", "second"), ("first_tree", "second_tree")
_CHUNK_PAIRS = 65_536  # pairs brought into epoch order at a time: a few MB, and no work a pair inside the step


def pairs_to_ids(blocks: Iterable[pa.Table], vocabulary: pa.StringArray, with_trees: bool = False) -> Ragged:
    """Pairs of shard blocks as word ids.

    Args:
        blocks: tables with string columns ``first`` and ``second``: tokens with one space between.
        vocabulary: string array [V].
        with_trees: whether the texts get trees: those of the columns ``first_tree`` and ``second_tree``, and
            right-branching ones where these are null or missing (see ``num_without_tree``).

    Returns:
        2n texts, the two of a pair side by side.

    Raises:
        ValueError: a tree does not fit its text.
    """
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    merges = [np.zeros(0, np.int32)]
    for block in blocks:
        tokens = tokenise(_both_sides(block, _TEXTS), "space")
        of_sides = None
        if with_trees:
            of_sides = fitting_trees(_both_sides(block, _TREES), tokens).merges
        sides = Ragged(word_ids(tokens.flat, vocabulary), tokens.offsets, of_sides)
        pairs = sides.take(np.arange(len(sides)).reshape(2, -1).T.reshape(-1))
        ids.append(pairs.ids)
        lengths.append(pairs.lengths)
        if pairs.merges is not None:
            merges.append(pairs.merges)
    offsets = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    return Ragged(np.concatenate(ids), offsets, np.concatenate(merges) if with_trees else None)


def pair_columns(shard: pa.Schema, with_trees: bool) -> list[str]:
    """The columns of a pair shard that ``pairs_to_ids`` reads; shards of older versions have no trees."""
    wanted = (*_TEXTS, *_TREES) if with_trees else _TEXTS
    return [name for name in wanted if name in shard.names]


def num_without_tree(block: pa.Table) -> int:
    """Texts of three tokens or more in a shard block that have no tree; of one or two tokens there is one tree only."""
    long = pc.greater(pc.count_substring(_both_sides(block, _TEXTS), " "), 1)
    return int(pc.sum(pc.and_(long, pc.is_null(_both_sides(block, _TREES)))).as_py() or 0)


def _both_sides(block: pa.Table, names: tuple[str, str]) -> pa.StringArray:
    """Two string columns, one behind the other; null for a column that is missing."""
    missing = pa.nulls(len(block), pa.string())
    columns = [block[name].combine_chunks() if name in block.column_names else missing for name in names]
    return pa.concat_arrays([pa.array(column).cast(pa.string()) for column in columns])  # a block may hold nulls alone


@dataclass(frozen=True)
class Batch:
    """One worker's share of a step.

    Attributes:
        texts: the texts of its pairs, two a pair, side by side; empty where a last batch leaves none for a worker.
        total: pairs of the step over all workers.
    """

    texts: Ragged
    total: int


def num_steps(num_pairs: int, batch_size: int, world: int = 1) -> int:
    """Steps of an epoch; the last one may be smaller."""
    return -(-num_pairs // (batch_size * world))


def epoch_batches(
    pairs: Ragged, *, epoch: int, seed: int, batch_size: int, rank: int = 0, world: int = 1, first_step: int = 0
) -> Iterator[Batch]:
    """The batches of one worker in one epoch.

    The order of the pairs is f(seed, epoch), whatever the number of workers: step k takes the next
    ``world * batch_size`` pairs and hands each worker ``batch_size`` of them (the last step: equal shares). So over
    all workers every pair comes exactly once an epoch.

    Args:
        pairs: 2n texts.
        epoch: from 0.
        seed: of the run.
        batch_size: pairs a step and worker.
        rank: which worker, from 0.
        world: how many workers.
        first_step: steps of this epoch that are done already.

    Yields:
        ``num_steps(n, batch_size, world) - first_step`` batches.
    """
    order = np.random.default_rng((seed, epoch)).permutation(len(pairs) // 2)
    step_size = batch_size * world
    shares = [_share(start, len(order), batch_size, rank, world) for start in range(0, len(order), step_size)]
    per_chunk = max(1, _CHUNK_PAIRS // batch_size)
    for at in range(first_step, len(shares), per_chunk):
        chunk = shares[at : at + per_chunk]
        mine = np.concatenate([order[start:stop] for start, stop in chunk])
        texts = pairs.take(np.stack([2 * mine, 2 * mine + 1], axis=1).reshape(-1))
        done = 0
        for step, (start, stop) in enumerate(chunk, at):
            count = stop - start
            total = min(step_size, len(order) - step * step_size)
            yield Batch(texts.slice(2 * done, 2 * (done + count)), total)
            done += count


def _share(start: int, num_pairs: int, batch_size: int, rank: int, world: int) -> tuple[int, int]:
    """Range of the epoch's order that is a worker's share of the step that begins at ``start``.

    A last step of fewer than two pairs a worker goes to fewer workers: a pair alone has no negative.
    """
    total = min(batch_size * world, num_pairs - start)
    sharing = min(world, max(1, total // 2))
    first, last = min(rank, sharing), min(rank + 1, sharing)
    return start + total * first // sharing, start + total * last // sharing
