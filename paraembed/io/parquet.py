"""Read rows of Parquet files in batches of limited size, estimated from the footer.

A file may store equal strings once, in a dictionary, so that a few bytes become many gigabytes in memory. A column with
such a dictionary is therefore read as a dictionary array and decoded one batch at a time. This does not include strings
inside of lists and structs, which pyarrow 25 cannot read as dictionary arrays. Some writers start a dictionary and
abandon it because most strings differ. Such a row group is read as plain strings, 30 times as fast, and the longest
string of the dictionary limits the rows per batch.
"""

import mmap
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.io.inflate import ALWAYS_INFLATED
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.places import Place, locate, open_place, require_file, shown

READ_BYTES = 1 << 20
"""Bytes of a column to read at a time (``buffer_size``); by default, pyarrow holds the whole column of a row group in
memory.
"""

_WRITTEN_OUT = 8  # times the given size, if all rows of a batch were the longest string of a dictionary
_VALUE_BYTES = 8  # of a list's value in memory, at least: repeated values take no bytes in a file
_INDEX_BYTES = 5  # of a value in a dictionary, at most: its index (4) and its levels

_FOOTER_BYTES = 8 << 20  # of all footers in the cache; parsed, they take ten times as much
_LOCK = Lock()
_footers: dict[tuple[Place, str], pq.FileMetaData] = {}
_footers_bytes = [0]  # in all: to add them up for each of many files takes longer than to read it


@contextmanager
def open_parquet(place: Place, in_dictionary: Sequence[str] = (), state: str = "") -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; string columns ``in_dictionary`` are read as dictionary arrays.

    With ``state``, a value that changes with the file, the process caches the footers of the latest files: parsing a
    footer of 100,000 row groups takes a second, and every part of an input opens the file several times. Raise
    ValueError if the file cannot be opened, or a read inside of the block fails.
    """
    if isinstance(place, Path):  # an object is opened without further requests
        require_file(place)
    filesystem, path = locate(str(place))
    options = {"buffer_size": READ_BYTES, "read_dictionary": list(in_dictionary)}
    try:
        with (
            filesystem.open_input_file(path) as raw,
            pq.ParquetFile(raw, metadata=_footers.get((place, state)), **options) as file,
        ):
            if state:
                _keep_footer((place, state), file.metadata)
            yield file
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # an error of the disk, not of the file
            raise
        raise unreadable(shown(place), error) from None


def _keep_footer(key: tuple[Place, str], footer: pq.FileMetaData) -> None:
    """Cache the footer of a file, and forget those that were kept first if they are too large together."""
    with _LOCK:
        if key not in _footers:
            _footers[key] = footer
            _footers_bytes[0] += footer.serialized_size
        while _footers_bytes[0] > _FOOTER_BYTES and len(_footers) > 1:
            _footers_bytes[0] -= _footers.pop(next(iter(_footers))).serialized_size


def unreadable(name: str, error: Exception) -> ValueError:
    """Return the error for a Parquet file that cannot be opened or read."""
    reason = str(error).splitlines()[0]
    if "crypt" in reason:
        return ValueError(f"{name} is encrypted ({reason}); decrypt it first")
    return ValueError(f"{name} is not a complete Parquet file ({reason}); download or write it again")


def is_parquet(place: Place) -> bool:
    """Return whether a file is Parquet, according to its first bytes; raise ValueError if it is encrypted."""
    with open_place(place) as file:
        return begins_parquet(file.read(4), place)


def begins_parquet(magic: bytes, place: Place) -> bool:
    """Return whether the first four bytes of a file are those of Parquet; the error is that of ``is_parquet``."""
    if magic == b"PARE":
        raise ValueError(f"{shown(place)} is an encrypted Parquet file; decrypt it first")
    return magic == b"PAR1"


def read_batches(
    place: Place,
    columns: list[str],
    rows: int,
    size: int,
    groups: range | None = None,
    *,
    limits: ReadLimits = DEFAULT_LIMITS,
    state: str = "",
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file in batches of at most ``rows`` rows and about ``size`` bytes, but at least one row.

    ``groups`` are the row groups to read, by default all, ``limits`` those of ``check_parquet``; for ``state``, see
    ``open_parquet``.
    """
    with ExitStack() as stack:

        def opened(in_dictionary: Sequence[str]) -> pq.ParquetFile:
            return stack.enter_context(open_parquet(place, in_dictionary, state))

        file = opened(())
        groups = range(file.metadata.num_row_groups) if groups is None else groups
        check_parquet(file, columns, shown(place), limits, groups)
        fields = [nested_field(file.schema_arrow, name) for name in columns]
        in_file = file.schema_arrow.names
        strings = tuple(field.name for field in fields if _is_binary(field.type) and field.name in in_file)
        files = {(): file, strings: opened(strings) if strings else file}
        of_groups = zip(groups, chunks_of(file, groups, columns), strict=True)
        readings = (
            (group, _reading(files[strings], group, chunks, strings, rows, size)) for group, chunks in of_groups
        )
        for (batch_rows, in_dictionary), run in groupby(readings, key=itemgetter(1)):
            if in_dictionary not in files:
                files[in_dictionary] = opened(in_dictionary)
            alike = [group for group, _ in run]
            of_file = files[in_dictionary].iter_batches(batch_rows, row_groups=alike, columns=columns)
            for batch in (flat(read, fields) for read in _naming_column(of_file, file, alike, columns, shown(place))):
                for start, stop in cuts(_row_ends(batch), size):
                    arrays = [batch[name].slice(start, stop - start) for name in columns]
                    for index, name in enumerate(columns):
                        if name in in_dictionary:
                            strings_of_rows = arrays[index].dictionary.take(arrays[index].indices)
                            arrays[index] = strings_of_rows.cast(fields[index].type)
                    yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _naming_column(
    batches: Iterator[pa.RecordBatch], file: pq.ParquetFile, groups: list[int], columns: list[str], name: str
) -> Iterator[pa.RecordBatch]:
    """Yield batches; if one cannot be read, raise ValueError with the column, for which the columns are read again."""
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # an error of the disk, not of the file
            raise
        for column in columns:
            try:
                for _ in file.iter_batches(row_groups=groups, columns=[column]):
                    pass
            except (pa.ArrowException, OSError) as found:
                raise ValueError(
                    f"{name}: column {column!r} cannot be read ({str(found).splitlines()[0]}); download or write the "
                    "file again, or leave the column out"
                ) from None
        raise


def _reading(
    file: pq.ParquetFile, group: int, chunks: list[pq.ColumnChunkMetaData], strings: Sequence[str], rows: int, size: int
) -> tuple[int, tuple[str, ...]]:
    """Return the rows per batch of a row group, and which columns are read as dictionary arrays."""
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
    by_footer = 1 << (at_once.bit_length() - 1)  # a power of two, so that similar row groups are read in one call
    return min(rows, by_footer, max(1, _WRITTEN_OUT * size // longest)), tuple(in_dictionary)


def nested_field(schema: pa.Schema, name: str) -> pa.Field:
    """Return a column by its name, or a field of a struct by its path (``doc.body``), with this name. Raise KeyError if
    there is none.
    """
    if name in schema.names:
        return schema.field(name)
    first, *path = name.split(".")
    field = schema.field(first)
    for step in path:
        index = field.type.get_field_index(step) if pa.types.is_struct(field.type) else -1
        if index < 0:
            raise KeyError(f"Column {name} does not exist in schema")
        field = field.type.field(index)
    return field.with_name(name).with_nullable(True)


def flat(batch: pa.RecordBatch, fields: list[pa.Field]) -> pa.RecordBatch:
    """Return the columns of a batch with these names, of which some are paths in structs."""
    names = batch.schema.names
    columns = [
        batch[field.name] if field.name in names else pc.struct_field(batch[path[0]], path[1:])
        for field, path in ((field, field.name.split(".")) for field in fields)
    ]
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])


def _is_binary(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}


def _row_ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the end of each row in bytes, int64 [n], for a batch whose dictionary values were written in row order."""
    ends = np.zeros(len(batch), np.int64)
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray) and _is_binary(column.type.value_type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            ends += np.cumsum(pc.fill_null(lengths, 0).to_numpy(), dtype=np.int64)
    return ends


def cuts(ends: npt.NDArray[np.int64], size: int, rows: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield slices (start, stop) of rows with the given ends, of about ``size`` bytes and at most ``rows`` rows."""
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
        stop = stop if rows is None else min(stop, start + rows)
        yield start, stop
        start = stop


def check_parquet(
    file: pq.ParquetFile, columns: Collection[str], name: str, limits: ReadLimits, groups: range | None = None
) -> None:
    """Check in a Parquet file's footer that the chosen columns, of all row groups or ``groups``, are not too large to
    read.

    Raise ValueError if a row group, or the whole selection, decompresses to more than the limits allow; OSError if a
    column is encrypted, or the footer is damaged.
    """
    all_stored = all_inflated = 0
    groups = range(file.metadata.num_row_groups) if groups is None else groups
    for number, chunks in zip(groups, chunks_of(file, groups, columns), strict=True):
        stored = sum(chunk.total_compressed_size for chunk in chunks)
        inflated = sum(chunk.total_uncompressed_size for chunk in chunks)
        values = sum(chunk.num_values for chunk in chunks)
        _check(f"{name}: row group {number}", stored, inflated, limits)
        in_memory = f"{_VALUE_BYTES * values:,} in memory, {values:,} values"
        _check(f"{name}: row group {number}", stored, _VALUE_BYTES * values, limits, in_memory)
        all_stored, all_inflated = all_stored + stored, all_inflated + inflated
    _check(name, all_stored, all_inflated, limits)


def over_zeros(footer: pq.FileMetaData, size: int) -> pq.ParquetFile:
    """Return a file of ``size`` bytes with this footer, and zeros as pages, for ``check_parquet``: it begins to read
    each row group, which would be a request to an object store.
    """
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)  # takes no memory
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(pages)), metadata=footer, buffer_size=READ_BYTES)


def chunks_of(file: pq.ParquetFile, groups: range, columns: Collection[str]) -> Iterator[list[pq.ColumnChunkMetaData]]:
    """Yield for each row group the footer entries of the given columns; lists and structs have one entry per leaf.

    Raise OSError if a column is encrypted, or the footer is damaged.
    """
    paths = [file.metadata.schema.column(index).path for index in range(file.metadata.num_columns)]
    of_lists = tuple(f"{column}." for column in columns)
    places = [index for index, path in enumerate(paths) if path in columns or path.startswith(of_lists)]
    for group in groups:
        if places:  # reads nothing, but raises where ``column`` would end the process (pyarrow 25): it is encrypted
            next(file.reader.iter_batches(0, row_groups=[group], column_indices=places, use_threads=False), None)
        yield [file.metadata.row_group(group).column(index) for index in places]


def _check(name: str, stored: int, inflated: int, limits: ReadLimits, in_memory: str = "") -> None:
    if inflated > ALWAYS_INFLATED and inflated > limits.max_inflation * stored:
        remedy = "" if in_memory else "write the file again without compression, or "
        raise ValueError(
            f"{name} has {stored:,} bytes but inflates to {in_memory or f'{inflated:,}'}; the limit is "
            f"{limits.max_inflation} times its size; if the file is valid, {remedy}give a larger `max_inflation`"
        )
