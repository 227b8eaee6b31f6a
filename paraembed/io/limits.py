"""Limits on input files (line length, compression ratio, lines of a quoted cell), their encoding and CSV dialect."""

import codecs
from dataclasses import dataclass
from typing import Any

from paraembed.options import MOST_INT, check_fields

MAX_INFLATION = 200
"""Default maximum compression ratio, checked after the first GiB."""
MOST_LINE_BYTES = 512 << 20  # tokens are at most three times as long, and an Arrow string array is below 2 GiB
_RANGES = {"max_line_bytes": (1, MOST_LINE_BYTES), "max_inflation": (1, MOST_INT), "max_field_lines": (1, MOST_INT)}
_CSV = ("csv_delimiter", "csv_escape", "csv_skip_blanks")


class SettingError(ValueError):
    """Error of a setting, not of a file."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits on reading an input file, which keep a small file from filling memory or disk; and how text is encoded and
    the cells of CSV are separated.
    """

    max_line_bytes: int = 64 << 20
    """Maximum bytes of a line, row or text of an input file, at most 512 MiB."""
    max_inflation: int = MAX_INFLATION
    """Maximum compression ratio of an input file, checked after the first GiB."""
    csv_delimiter: str | None = None
    """Character between the cells of CSV, such as ';' or '\\t'; default: ',', or what a first line sep=; names."""
    csv_escape: str = ""
    """Character before a quote, or itself, within a quoted CSV cell, such as the backslash of Spark; default: none."""
    csv_skip_blanks: bool = False
    """Ignore blanks before a CSV cell."""
    encoding: str = "utf-8"
    """Encoding of text, CSV, TSV and JSON, such as cp1252 or utf-16."""

    def __post_init__(self) -> None:
        check_fields(self, _RANGES)
        delimiter = "," if self.delimiter is None else self.delimiter
        for name, value in (("csv_delimiter", delimiter), ("csv_escape", self.csv_escape or "/")):
            if len(value) != 1 or not value.isascii() or value in '"\r\n':
                raise ValueError(f"`{name}` is {value!r}; allowed: one ASCII character, no quote and no line end")
        if delimiter == self.csv_escape or (delimiter == " " and self.csv_skip_blanks):
            raise ValueError(f"`csv_delimiter` is {delimiter!r}, which is also skipped or an escape; give another one")
        try:
            codecs.getincrementaldecoder(self.encoding)
            "".encode(self.encoding)
        except LookupError:
            raise ValueError(
                f"`encoding` is {self.encoding!r}; allowed: an encoding of text that Python knows"
            ) from None

    @property
    def delimiter(self) -> str | None:
        """``csv_delimiter``, in which a backslash and t are a tab."""
        return "\t" if self.csv_delimiter == "\\t" else self.csv_delimiter

    @property
    def codec(self) -> str:
        """Name of the encoding, as Python's ``codecs`` has it."""
        return codecs.lookup(self.encoding).name.removesuffix("-sig")

    @property
    def dialect(self) -> dict[str, Any]:
        """Encoding and settings of CSV that are not the defaults, by name."""
        own = {name: getattr(self, name) for name in (*_CSV, "encoding")}
        return {name: value for name, value in own.items() if value != getattr(ReadLimits, name)}

    def check_kind(self, kind: str, shown: str) -> None:
        """Raise SettingError if a setting has no meaning for files of a kind."""
        unused = () if kind == "csv" else (*_CSV, "encoding") if kind in {"parquet", "arrow"} else _CSV
        if given := [name for name in self.dialect if name in unused]:
            raise SettingError(f"{shown} is {kind}, for which `{given[0]}` has no meaning; leave it out")


@dataclass(frozen=True)
class TableLimits(ReadLimits):
    """``ReadLimits``, and the limit on lines of a quoted CSV cell."""

    max_field_lines: int = 1000
    """Maximum number of lines of a quoted CSV cell; a row whose quote is not closed within it is rejected."""


DEFAULT_LIMITS = ReadLimits()
DEFAULT_TABLE_LIMITS = TableLimits()
