"""How much an input may take: of a line, and of what comes out of a compressed file."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq

from paraembed.io.inflate import ALWAYS_INFLATED, MAX_INFLATION

MOST_LINE_BYTES = 512 << 20
_VALUE_BYTES = 8  # of a value of a list in memory, at least: repeated ones take no bytes in a file


@dataclass(frozen=True)
class ReadLimits:
    """What is read of an input at most, so that a small file cannot fill the memory or the disk."""

    max_line_bytes: int = 64 << 20
    """Most bytes of a line, a row or a text."""
    max_inflation: int = MAX_INFLATION
    """Times as many bytes as it has may come out of a compressed file, beyond the first GiB."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed.

        Tokenising triples a text at most, and an Arrow string array holds less than 2 GiB.
        """
        if not 1 <= self.max_line_bytes <= MOST_LINE_BYTES:
            raise ValueError(f"`max_line_bytes` is {self.max_line_bytes}; allowed: 1 to {MOST_LINE_BYTES:,}")
        if self.max_inflation < 1:
            raise ValueError(f"`max_inflation` is {self.max_inflation}; it must be at least 1")


@dataclass(frozen=True)
class TableLimits(ReadLimits):
    """``ReadLimits``, and how far a quoted cell of CSV may reach."""

    max_field_lines: int = 1000
    """Most lines of a quoted CSV cell; where a quote is not closed by then, its line is rejected."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        super().__post_init__()
        if self.max_field_lines < 1:
            raise ValueError(f"`max_field_lines` is {self.max_field_lines}; it must be at least 1")


DEFAULT_LIMITS = ReadLimits()
DEFAULT_TABLE_LIMITS = TableLimits()


def check_parquet(
    file: pq.ParquetFile, columns: Collection[str], shown: str, limits: ReadLimits, groups: range | None = None
) -> None:
    """Look, in a Parquet file's footer, at what reading some of its columns would take.

    Args:
        file: the file.
        columns: those that will be read.
        shown: the file, for messages.
        limits: what is allowed.
        groups: row groups; None: all.

    Raises:
        ValueError: one of the row groups, or all together, inflate beyond the limits.
        OSError: a column is encrypted, or the footer is broken.
    """
    all_stored = all_inflated = 0
    groups = range(file.metadata.num_row_groups) if groups is None else groups
    for number, chunks in zip(groups, chunks_of(file, groups, columns), strict=True):
        stored = sum(chunk.total_compressed_size for chunk in chunks)
        inflated = sum(chunk.total_uncompressed_size for chunk in chunks)
        values = sum(chunk.num_values for chunk in chunks)
        _check(
            f"{shown}: row group {number}", stored, inflated, limits, "write the file again without compression, or "
        )
        in_memory = f"{_VALUE_BYTES * values:,} in memory, {values:,} values"
        _check(f"{shown}: row group {number}", stored, _VALUE_BYTES * values, limits, said=in_memory)
        all_stored, all_inflated = all_stored + stored, all_inflated + inflated
    _check(shown, all_stored, all_inflated, limits, "write the file again without compression, or ")


def chunks_of(file: pq.ParquetFile, groups: range, columns: Collection[str]) -> Iterator[list[pq.ColumnChunkMetaData]]:
    """What each of the row groups holds of some columns; of lists and structs, each of their leaves.

    Raises:
        OSError: a column is encrypted, or the footer is broken.
    """
    paths = [file.metadata.schema.column(at).path for at in range(file.metadata.num_columns)]
    of_lists = tuple(f"{name}." for name in columns)
    places = [at for at, path in enumerate(paths) if path in columns or path.startswith(of_lists)]
    for group in groups:
        if places:  # reads nothing, but raises where ``column`` would end the process (pyarrow 25): it is encrypted
            next(file.reader.iter_batches(0, row_groups=[group], column_indices=places, use_threads=False), None)
        yield [file.metadata.row_group(group).column(at) for at in places]


def _check(shown: str, stored: int, inflated: int, limits: ReadLimits, helps: str = "", said: str = "") -> None:
    if inflated > ALWAYS_INFLATED and inflated > limits.max_inflation * stored:
        raise ValueError(
            f"{shown} has {stored:,} bytes and inflates to {said or f'{inflated:,}'}, more than {limits.max_inflation} "
            f"times as many: no text does; if it is right, {helps}give a larger `max_inflation`"
        )
