"""Find duplicate pairs exactly and in bounded memory.

The two texts of a pair, in either order, give one 64-bit key. Rows are partitioned by key so that each partition fits
in memory and contains all repetitions of its pairs, from all files. The texts of equal keys are then compared,
because two different pairs can have the same key: once in 10^5 runs of 10^7 pairs.

One batch for every input and partition would make the number of batches quadratic in the size of the inputs: 10^9 pairs
gave 14 million batches of 73 rows. An input is therefore split into at most 64 buckets, in batches of about 4,096 rows,
and a bucket of several partitions is split again into a spill file. Rows are then read twice, but batches keep their
size.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.text.hashing import pair_keys, text_column

RowNumbers = npt.NDArray[np.int64]

_PARTITION_BYTES = 64 << 20  # of input per partition: 0.3M lines of PPDB, 6M of the shortest pairs, so under 1 GB
_MOST_BUCKETS = 64
_BATCH_ROWS = 4096  # on average
_WAITING_BYTES = 64 << 20
_TEXTS = [("first", pa.string()), ("second", pa.string())]
_SCHEMA = pa.schema([("key", pa.uint64()), ("rank", pa.int64()), ("row", pa.int64()), *_TEXTS])  # row: from 0
_PLACED = pa.schema([("key", pa.uint64()), ("place", pa.int64()), ("row", pa.int64()), *_TEXTS])


def num_partitions(input_bytes: int) -> int:
    """Return the number of partitions for inputs of this size, so that each partition fits in memory."""
    return 1 + input_bytes // _PARTITION_BYTES


def num_buckets(partitions: int) -> int:
    """Return the number of buckets of an input; each bucket holds one or more partitions."""
    return min(partitions, _MOST_BUCKETS)


@contextmanager
def _class_writer(
    file: BinaryIO | pa.NativeFile, schema: pa.Schema, classes: int
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield a function that writes rows, whose first column is their class; batch i has class ``i % classes``."""
    waiting: list[pa.RecordBatch] = []
    num_rows = num_bytes = 0

    def write(rows: pa.RecordBatch) -> None:
        nonlocal num_rows, num_bytes
        waiting.append(rows)
        num_rows += rows.num_rows
        num_bytes += rows.nbytes
        if num_rows >= classes * _BATCH_ROWS or num_bytes >= _WAITING_BYTES:
            flush()
            waiting.clear()
            num_rows = num_bytes = 0

    def flush() -> None:
        rows = (pa.Table.from_batches(waiting).combine_chunks().to_batches() or waiting)[0]
        row_classes = rows.column(0).to_numpy()
        rows = rows.remove_column(0)
        if classes == 1:
            writer.write_batch(rows)
            return
        order = np.argsort(row_classes, kind="stable")
        rows = rows.take(pa.array(order))
        for start, end in pairwise(np.searchsorted(row_classes[order], np.arange(classes + 1)).tolist()):
            writer.write_batch(rows.slice(start, end - start))

    with pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        yield write
        if waiting:
            flush()


@contextmanager
def partition_writer(file: BinaryIO, partitions: int) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that sorts rows, with columns first, second and rank, into buckets of an open file."""
    buckets, written = num_buckets(partitions), 0
    with _class_writer(file, _SCHEMA, buckets) as write_classes:

        def write(table: pa.Table) -> None:
            nonlocal written
            keys = pair_keys(table)
            bucket = (keys % np.uint64(partitions)).astype(np.int64) * buckets // partitions
            row = np.arange(written, written + len(keys))
            written += len(keys)
            rank, *texts = (text_column(table, name) for name in ("rank", "first", "second"))
            columns = [pa.array(bucket), pa.array(keys), rank, pa.array(row), *texts]
            write_classes(pa.record_batch(columns, names=["bucket", *_SCHEMA.names]))

        yield write


def find_repeats(
    files: Sequence[Path],
    bucket: int = 0,
    partitions: int = 1,
    first_ranks: Sequence[int] = (),
    spill: Path | None = None,
) -> tuple[RowNumbers, RowNumbers]:
    """Return file number and row number of each row of a bucket that repeats an unordered pair.

    The row with the lowest rank stays, then the one in the first file. ``files`` are those of ``partition_writer``, in
    the order of the inputs, with ranks ascending from the first rank of each (default: 0). The rows of a bucket of
    several partitions go to the file ``spill``.
    """
    rows = _rows_of(files, bucket, partitions, first_ranks)
    numbers = [number for number in range(partitions) if number * num_buckets(partitions) // partitions == bucket]
    if len(numbers) == 1:
        return _repeats_in(pa.Table.from_batches(rows, _PLACED), len(files))
    assert spill is not None
    repeats: list[tuple[RowNumbers, RowNumbers]] = []
    try:
        with pa.OSFile(str(spill), "wb") as file, _class_writer(file, _PLACED, len(numbers)) as write:
            for batch in rows:
                classes = (batch["key"].to_numpy() % np.uint64(partitions)).astype(np.int64) - numbers[0]
                write(pa.record_batch([pa.array(classes), *batch.columns], names=["partition", *_PLACED.names]))
        with pa.ipc.open_file(pa.memory_map(str(spill))) as reader:
            for first in range(len(numbers)):
                batches = [reader.get_batch(piece) for piece in range(first, reader.num_record_batches, len(numbers))]
                repeats.append(_repeats_in(pa.Table.from_batches(batches, _PLACED), len(files)))
    finally:
        spill.unlink(missing_ok=True)
    sources, rows_of_sources = zip(*repeats, strict=True)
    return np.concatenate(sources), np.concatenate(rows_of_sources)


def _rows_of(
    files: Sequence[Path], bucket: int, partitions: int, first_ranks: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a bucket from all files; ``place`` orders them by rank, then by file."""
    buckets = num_buckets(partitions)
    for number, path in enumerate(files):
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            for piece in range(bucket, reader.num_record_batches, buckets):
                batch = reader.get_batch(piece)
                rank = batch["rank"].to_numpy() + (first_ranks[number] if first_ranks else 0)
                columns = [batch["key"], pa.array(rank * len(files) + number), batch["row"]]
                yield pa.record_batch([*columns, batch["first"], batch["second"]], schema=_PLACED)


def _repeats_in(rows: pa.Table, num_files: int) -> tuple[RowNumbers, RowNumbers]:
    """Return file number and row number of each row of a partition that repeats another row."""
    _, key, counts = np.unique(rows["key"].to_numpy(), return_inverse=True, return_counts=True)
    rows = rows.filter(pa.array(counts[key] > 1))  # few: only their texts are compared
    texts = rows["first"], rows["second"]
    pairs = pa.table(
        [pc.min_element_wise(*texts), pc.max_element_wise(*texts), rows["place"]], ["low", "high", "place"]
    )
    kept = pairs.group_by(["low", "high"], use_threads=False).aggregate([("place", "min")])["place_min"]
    rows = rows.filter(pc.invert(pc.is_in(rows["place"], value_set=kept)))
    return rows["place"].to_numpy() % num_files, rows["row"].to_numpy()
