"""Limits on input files: line length, compression ratio, lines of a quoted cell."""

from dataclasses import dataclass

MAX_INFLATION = 200
"""Default maximum compression ratio, checked after the first GiB."""
MOST_LINE_BYTES = 512 << 20  # tokens are at most three times as long, and an Arrow string array is below 2 GiB


@dataclass(frozen=True)
class ReadLimits:
    """Limits on reading an input file, which keep a small file from filling memory or disk."""

    max_line_bytes: int = 64 << 20
    """Maximum bytes of a line, row or text of an input file, at most 512 MiB."""
    max_inflation: int = MAX_INFLATION
    """Maximum compression ratio of an input file, checked after the first GiB."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_line_bytes <= MOST_LINE_BYTES:
            raise ValueError(f"`max_line_bytes` is {self.max_line_bytes}; allowed: 1 to {MOST_LINE_BYTES:,}")
        if self.max_inflation < 1:
            raise ValueError(f"`max_inflation` is {self.max_inflation}; it must be at least 1")


@dataclass(frozen=True)
class TableLimits(ReadLimits):
    """``ReadLimits`` and the limit on lines of a quoted CSV cell."""

    max_field_lines: int = 1000
    """Maximum number of lines of a quoted CSV cell; a row whose quote is not closed within it is rejected."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_field_lines < 1:
            raise ValueError(f"`max_field_lines` is {self.max_field_lines}; it must be at least 1")


DEFAULT_LIMITS = ReadLimits()
DEFAULT_TABLE_LIMITS = TableLimits()
