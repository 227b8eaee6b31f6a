"""Pairs that repeat another, exactly and in bounded memory.

The two texts of a pair, in either order, give one 64-bit key. Rows are cut by key into partitions, so that all repeats
of a pair are in one of them, whatever file they come from; equal keys are then compared letter by letter.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.hashing import pair_keys
from paraembed.data.keys import text_column

RowNumbers = npt.NDArray[np.int64]

_PARTITION_BYTES = 64 << 20  # of input a partition: 0.3M lines of PPDB, 6M of the shortest pairs, so under 1 GB
_SCHEMA = pa.schema(
    [
        ("key", pa.uint64()),
        ("rank", pa.int64()),
        ("row", pa.int64()),  # number in its parsed file, from 0
        ("first", pa.string()),
        ("second", pa.string()),
    ]
)


def num_partitions(input_bytes: int) -> int:
    """How many partitions the rows of inputs of this size are cut into, so that each fits in memory."""
    return 1 + input_bytes // _PARTITION_BYTES


class PartitionWriter:
    """Writes rows by partition: an Arrow file in which batch i holds rows of partition ``i % partitions``."""

    def __init__(self, writer: pa.RecordBatchFileWriter, partitions: int) -> None:
        self._writer, self._partitions, self._written = writer, partitions, 0

    def write(self, table: pa.Table) -> None:
        """Add rows, with columns first, second and rank."""
        first, second, rank = (text_column(table, name) for name in ("first", "second", "rank"))
        keys = pair_keys(table)
        row = pa.array(np.arange(self._written, self._written + len(keys)))
        self._written += len(keys)
        rows = pa.record_batch([pa.array(keys), rank, row, first, second], schema=_SCHEMA)
        if self._partitions == 1:
            self._writer.write_batch(rows)
            return
        partition = keys % np.uint64(self._partitions)
        order = np.argsort(partition, kind="stable")
        rows = rows.take(pa.array(order))
        ends = np.searchsorted(partition[order], np.arange(1, self._partitions + 1, dtype=np.uint64))
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            self._writer.write_batch(rows.slice(start, end - start))


@contextmanager
def partition_writer(file: BinaryIO, partitions: int) -> Iterator[PartitionWriter]:
    """Write rows by partition to a file that is open."""
    with pa.ipc.new_file(file, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        yield PartitionWriter(writer, partitions)


def find_duplicates(
    files: Sequence[Path], partition: int = 0, partitions: int = 1, first_ranks: Sequence[int] = ()
) -> list[RowNumbers]:
    """The rows that repeat an unordered pair; the one with the lowest rank (then in the first file) stays.

    Args:
        files: of ``partition_writer``, in the order of the inputs, ranks ascending in each.
        partition: the one that is looked at.
        partitions: how many there are.
        first_ranks: what the ranks of each file count from; 0 where none are given.

    Returns:
        For each file the numbers of its rows to drop, ascending.
    """
    batches, sources, ranks = [], [], []
    for number, path in enumerate(files):
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            for at in range(partition, reader.num_record_batches, partitions):
                batches.append(reader.get_batch(at))
                sources.append(np.full(batches[-1].num_rows, number))
                ranks.append(batches[-1]["rank"].to_numpy() + (first_ranks[number] if first_ranks else 0))
    rows = pa.Table.from_batches(batches, _SCHEMA)
    key = rows["key"].to_numpy()
    place = np.concatenate([np.zeros(0, np.int64), *ranks]) * len(files) + np.concatenate([[], *sources]).astype(int)
    order = np.argsort(key, kind="stable")
    equal = key[order[1:]] == key[order[:-1]]
    shared = order[np.append(equal, False) | np.append(False, equal)] if len(order) else order
    shared = shared[np.lexsort((place[shared], key[shared]))]  # by key, the one that stays first
    begins = np.diff(key[shared], prepend=~key[shared[:1]]) != 0
    heads = shared[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    texts = pa.table([rows["first"], rows["second"]], ["first", "second"]).combine_chunks()
    same = _same_pairs(texts.take(pa.array(shared)), texts.take(pa.array(heads)))
    dropped = shared[same & ~begins]
    collided = np.isin(key[shared], key[shared[~same]])
    if collided.any():  # two pairs with one key: once in 10^5 runs of 10^7 pairs, but exact is exact
        dropped = np.concatenate((dropped[~np.isin(dropped, shared[collided])], _repeats(texts, shared[collided])))
    source, row = place[dropped] % len(files), rows["row"].to_numpy()[dropped]
    return [np.sort(row[source == number]) for number in range(len(files))]


def _same_pairs(one: pa.Table, other: pa.Table) -> npt.NDArray[np.bool_]:
    straight = pc.and_(pc.equal(one["first"], other["first"]), pc.equal(one["second"], other["second"]))
    crossed = pc.and_(pc.equal(one["first"], other["second"]), pc.equal(one["second"], other["first"]))
    same: npt.NDArray[np.bool_] = pc.or_(straight, crossed).to_numpy()
    return same


def _repeats(texts: pa.Table, order: RowNumbers) -> RowNumbers:
    """The rows, taken in this order, whose unordered pair came before."""
    seen: set[frozenset[str]] = set()
    repeats = []
    for row, pair in zip(order.tolist(), texts.take(pa.array(order)).to_pylist(), strict=True):
        texts_of_pair = frozenset(pair.values())
        if texts_of_pair in seen:
            repeats.append(row)
        seen.add(texts_of_pair)
    return np.array(repeats, np.int64)
