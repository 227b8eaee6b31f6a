"""Limits on input files: line length, compression ratio, lines of a quoted cell."""

from dataclasses import dataclass

from paraembed.options import MOST_INT, check_fields

MAX_INFLATION = 200
"""Default maximum compression ratio, checked after the first GiB."""
MOST_LINE_BYTES = 512 << 20  # tokens are at most three times as long, and an Arrow string array is below 2 GiB
_RANGES = {"max_line_bytes": (1, MOST_LINE_BYTES), "max_inflation": (1, MOST_INT), "max_field_lines": (1, MOST_INT)}


@dataclass(frozen=True)
class ReadLimits:
    """Limits on reading an input file, which keep a small file from filling memory or disk."""

    max_line_bytes: int = 64 << 20
    """Maximum bytes of a line, row or text of an input file, at most 512 MiB."""
    max_inflation: int = MAX_INFLATION
    """Maximum compression ratio of an input file, checked after the first GiB."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES)


@dataclass(frozen=True)
class TableLimits(ReadLimits):
    """``ReadLimits`` and the limit on lines of a quoted CSV cell."""

    max_field_lines: int = 1000
    """Maximum number of lines of a quoted CSV cell; a row whose quote is not closed within it is rejected."""


DEFAULT_LIMITS = ReadLimits()
DEFAULT_TABLE_LIMITS = TableLimits()
