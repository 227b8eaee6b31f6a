"""Rows of Parquet files in batches that hold about as many bytes as asked, judged by the footer.

A file may hold equal strings once, in a dictionary, so that a few bytes stand for many gigabytes. Where a row group
does, such strings stay in it until a batch is taken of them; those inside of lists or structs do not (pyarrow 25 cannot
read these so). Where a writer began a dictionary and gave it up, for most strings are different, the rows are read as
they are, 30 times as fast, and as few at a time as the longest string of the dictionary asks for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.io.limits import chunks_of

READ_BYTES = 1 << 20
"""Of a column at a time (``buffer_size``); without it, a row group's whole column is in memory."""

_WRITTEN_OUT = 8  # times the size asked for, where all rows of a batch were the longest string of a dictionary
_INDEX_BYTES = 5  # of a value that stands in a dictionary, at most: its place there (4) and its levels

Open = Callable[[Sequence[str]], AbstractContextManager[pq.ParquetFile]]
"""Opens the file; the columns named, of strings, are read as dictionary arrays."""


class _Reading(NamedTuple):
    """How a row group is read: so many rows at a time, and these columns as dictionary arrays."""

    rows: int
    in_dictionary: tuple[str, ...]


def unreadable(shown: str, error: Exception) -> ValueError:
    """What opening or reading a Parquet file raised, in words."""
    reason = str(error).splitlines()[0]
    if "crypt" in reason:
        return ValueError(f"{shown} is encrypted ({reason}); give it decrypted")
    return ValueError(f"{shown} is not a whole Parquet file ({reason}); fetch or make it again")


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
    with ExitStack() as held:
        file = held.enter_context(open_file(()))
        groups = range(file.metadata.num_row_groups) if groups is None else groups
        fields = [file.schema_arrow.field(name) for name in columns]
        strings = tuple(field.name for field in fields if _is_binary(field.type))
        files = {names: held.enter_context(open_file(names)) for names in {(), strings}}
        of_groups = zip(groups, chunks_of(file, groups, columns), strict=True)
        readings = (
            (group, _reading(files[strings], group, chunks, strings, rows, size)) for group, chunks in of_groups
        )
        for reading, run in groupby(readings, key=itemgetter(1)):
            if reading.in_dictionary not in files:
                files[reading.in_dictionary] = held.enter_context(open_file(reading.in_dictionary))
            some = [group for group, _ in run]
            for batch in files[reading.in_dictionary].iter_batches(reading.rows, row_groups=some, columns=columns):
                for start, stop in _cuts(_row_ends(batch), size):
                    arrays = [batch[name].slice(start, stop - start) for name in columns]
                    for at, name in enumerate(columns):
                        if name in reading.in_dictionary:
                            arrays[at] = arrays[at].dictionary.take(arrays[at].indices).cast(fields[at].type)
                    yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _reading(
    file: pq.ParquetFile, group: int, chunks: list[pq.ColumnChunkMetaData], strings: Sequence[str], rows: int, size: int
) -> _Reading:
    """How to read a row group; ``file`` reads the columns ``strings`` as dictionary arrays.

    Rows by the bytes of the footer are a power of two, so that row groups that are alike are read in one go.
    """
    inflated, longest, in_dictionary = 1, 1, list[str]()
    for chunk in chunks:
        inflated += chunk.total_uncompressed_size
        name = chunk.path_in_schema
        if not (chunk.has_dictionary_page and chunk.num_values and name in strings):
            continue
        batch = next(file.iter_batches(1, row_groups=[group], columns=[name]), None)
        if batch is None:
            raise pa.ArrowInvalid(f"row group {group} has no rows of column {name!r}")
        dictionary = batch[name].dictionary
        lengths = pc.binary_length(dictionary)
        whole = (pc.sum(lengths).as_py() or 0) + 4 * len(lengths) + _INDEX_BYTES * chunk.num_values
        if len(lengths) and chunk.total_uncompressed_size > whole:
            longest = max(longest, pc.max(lengths).as_py())
        else:
            in_dictionary.append(name)
    at_once = max(1, size * file.metadata.row_group(group).num_rows // inflated)
    by_footer = 1 << (at_once.bit_length() - 1)
    return _Reading(min(rows, by_footer, max(1, _WRITTEN_OUT * size // longest)), tuple(in_dictionary))


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
