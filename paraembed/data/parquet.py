"""Rows of Parquet files in batches that hold about as many bytes as asked, judged by the footer.

A file may hold equal strings once, in a dictionary, so that a few bytes stand for many gigabytes. Such strings stay in
it until a batch is taken of them; those inside of lists or structs do not (pyarrow 25 cannot read these so).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.data.limits import chunks_of

READ_BYTES = 1 << 20
"""Of a column at a time (``buffer_size``); without it, a row group's whole column is in memory."""

Open = Callable[[Sequence[str]], AbstractContextManager[pq.ParquetFile]]
"""Opens the file; the columns named, of strings, are read as dictionary arrays."""


def read_batches(
    open_file: Open, columns: list[str], rows: int, size: int, groups: range | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, at most ``rows`` at a time, and a row or about ``size`` bytes.

    Args:
        open_file: opens the file.
        columns: their names.
        rows: most rows of a batch.
        size: bytes of a batch.
        groups: row groups; None: all.
    """
    with open_file(()) as file:
        groups = range(file.metadata.num_row_groups) if groups is None else groups
        rows = min(rows, _rows_at_once(file, groups, columns, size))
        schema, in_dictionary = file.schema_arrow, _in_dictionary(file, groups, columns)
    fields = [schema.field(name) for name in columns]
    with open_file(in_dictionary) as file:
        for batch in file.iter_batches(rows, row_groups=list(groups), columns=columns):
            for start, stop in _cuts(_row_ends(batch), size):
                arrays = [batch[name].slice(start, stop - start) for name in columns]
                for at, name in enumerate(columns):
                    if name in in_dictionary:
                        arrays[at] = arrays[at].dictionary.take(arrays[at].indices).cast(fields[at].type)
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _rows_at_once(file: pq.ParquetFile, groups: range, columns: list[str], size: int) -> int:
    """Rows that hold about ``size`` bytes of the columns in each of the row groups, judged by the footer."""
    chunks = chunks_of(file.metadata, groups, columns)
    sizes = [sum(chunk.total_uncompressed_size for chunk in of_group) for of_group in chunks]
    rows = [file.metadata.row_group(group).num_rows for group in groups]
    at_once = [size * row // max(1, of_group) for row, of_group in zip(rows, sizes, strict=True)]
    return max(1, min(at_once, default=1))


def _in_dictionary(file: pq.ParquetFile, groups: range, columns: list[str]) -> list[str]:
    """The string columns of which a row group holds equal values once: the footer counts them once, too."""
    chunks = chunks_of(file.metadata, groups, columns)
    found = {chunk.path_in_schema for of_group in chunks for chunk in of_group if chunk.has_dictionary_page}
    return [name for name in columns if name in found and _is_binary(file.schema_arrow.field(name).type)]


def _is_binary(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}


def _row_ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Where each row would end, int64 [n], were the values of all dictionaries written out one behind the other."""
    ends = np.zeros(len(batch), np.int64)
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray) and _is_binary(column.type.value_type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            ends += np.cumsum(pc.fill_null(lengths, 0).to_numpy(), dtype=np.int64)
    return ends


def _cuts(ends: npt.NDArray[np.int64], size: int) -> Iterator[tuple[int, int]]:
    """Slices of rows that end there: of one row, or about ``size`` bytes."""
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
        yield start, stop
        start = stop
