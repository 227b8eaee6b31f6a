"""Rows of text, JSON lines, CSV and TSV: their ends, block by block, and the columns of CSV and TSV.

A quote at the start of a CSV cell opens it, and the closing quote must be followed by a comma or a line end (RFC 4180);
a quote inside of an unquoted cell is text. A quoted cell may contain line breaks, so a stray quote could join all lines
up to the next quote into one row. A row of several lines is kept if its quoting is correct, it has at most
``max_line_bytes``, each quoted cell has at most ``max_field_lines`` lines, it has as many cells as the header, and its
lines do not look like rows that two stray quotes joined (each line with as many commas as a row, and 12 or more commas
together). Otherwise only its first line is rejected and reading resumes at the next line, so a stray quote costs one
line. Every line of a file therefore belongs to one kept record or is one rejected record. A limitation: if a row with a
multi-line cell is rejected, the lines of the cell are read as separate rows. This includes a cell that holds another
table with the same number of columns.

If ``TableFormat.repairs`` is false, a row may have any number of lines and cells, and wrong quoting makes the whole row
invalid.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from paraembed.compiled import interpreted
from paraembed.io.codes import (
    CARRIAGE_RETURN,
    EMPTY_LINE,
    LINE_FEED,
    NO_FAULT,
    OPEN_QUOTE,
    QUOTE,
    TAB,
    TEXT_AFTER_QUOTE,
    WIDTH,
)
from paraembed.io.escape import listed
from paraembed.io.limits import MOST_LINE_BYTES, SettingError
from paraembed.io.lines import invalid_rows, is_utf8, read_text, strings_of
from paraembed.io.scan import scan
from paraembed.process import csv_cell_limit

Kind = Literal["text", "jsonl", "csv", "tsv", "parquet", "arrow"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SEP_LINE = re.compile(rb"(?:\xef\xbb\xbf)?sep=([ -~\t])(?:\r\n?|\n)")
"""First line of Excel, above the header, which names what separates the cells."""
_LINES_SNIFFED, _SNIFFED = 20, 500  # lines and characters of each
_NOT_COUNTED = 5  # bytes of a mark of byte order and a line end
_FAULTS = {
    TEXT_AFTER_QUOTE: "text after the quote that closes a cell; double a quote of the text, or set `csv_escape`",
    OPEN_QUOTE: "a quote opens here and is not closed in this line, and with the next lines this is no row",
    EMPTY_LINE: "empty line",
}


def check_delimiter(header: Sequence[str], head: bytes, shown: str) -> None:
    """Raise SettingError if the header of CSV is one cell, with what separates cells in the first lines."""
    delimiters = {";", "\t", "|"}.intersection(*header[:1])
    if len(header) == 1 and delimiters:
        lines = head.decode("utf-8", "replace").splitlines()[:_LINES_SNIFFED]
        with suppress(csv.Error):
            separator = csv.Sniffer().sniff("\n".join(line[:_SNIFFED] for line in lines), "".join(delimiters)).delimiter
            raise SettingError(
                f"{shown}: the header has one column, {listed(header)!r}; give `csv_delimiter` {separator!r} if that "
                "separates the columns, otherwise ','"
            )


class TableFormat(NamedTuple):
    """How to read the rows of a CSV or TSV file."""

    width: int = 0  # cells of a row; 0: any number, to read the header
    max_field_lines: int = 1000  # maximum lines of a quoted cell
    from_start: bool = False  # whether the bytes are the start of the file, which may have a byte order mark
    repairs: bool = True  # if quoting is wrong, reject one line instead of the whole row
    delimiter: str = ","  # between the cells of CSV
    escape: str = ""  # before a quote or itself within a quoted CSV cell
    skips_blanks: bool = False  # whether blanks before a CSV cell are no part of it

    def standard(self, data: bytes) -> bytes:
        """Return valid rows of CSV without escapes and skipped blanks."""
        if not self.escape and not self.skips_blanks:
            return data
        escape, end = (re.escape(character.encode()) for character in (self.escape, self.delimiter))
        text = rb'[^"%b]|%b["%b]?' % (escape, escape, escape) if escape else b'[^"]'
        blanks = b" *+" if self.skips_blanks else b""

        def cell(match: re.Match[bytes]) -> bytes:
            is_escaped = escape and match[1].startswith(b'"')
            return re.sub(rb'%b(["%b])' % (escape, escape), _unescaped, match[1]) if is_escaped else match[1]

        return re.sub(rb'%b("(?:%b|"")*+"|[^%b\r\n]*+)' % (blanks, text, end), cell, data)


_DEFAULT_FORMAT = TableFormat()


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b'""' if match[1] == b'"' else match[1]


@dataclass(frozen=True)
class Records:
    """n consecutive complete records, kept or rejected."""

    kind: Kind
    data: bytes  # bytes of the records with their line ends; the last record of a file may have no line end
    ends: npt.NDArray[np.int64]  # int64 [n], the byte after each record
    start: int = 0  # first byte of the first record, after a byte order mark
    # Array uint8 [n]: reason to reject a record of CSV or TSV, 0 for a kept one; empty for other kinds.
    faults: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    # Array int32 [n]: number of cells of each CSV or TSV record with correct quoting.
    cells: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    # Array int32 [n]: number of line breaks inside of the cells of each kept CSV or TSV record.
    breaks: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    table: TableFormat = _DEFAULT_FORMAT

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the first byte of each record [n], and the byte after its last one without the line end [n]."""
        octets = np.frombuffer(self.data, np.uint8)
        starts = np.concatenate(([self.start], self.ends))[: len(self.ends)]
        stops = self.ends - (octets[self.ends - 1] == LINE_FEED)
        stops -= octets[np.maximum(stops - 1, 0)] == CARRIAGE_RETURN
        return starts, np.maximum(stops, starts)

    def line_of(self, number: int) -> int:
        """Return the number of the line, from 0, in which a record begins; for n, the number of lines."""
        return number + int(self.breaks[:number].sum(dtype=np.int64))

    def fault(self, number: int) -> str:
        """Return the reason why a record is rejected."""
        if self.faults[number] == WIDTH:
            return f"{self.cells[number]} cells, the header has {self.table.width}"
        return _FAULTS[int(self.faults[number])]

    def row(self, number: int, most: int | None = None) -> list[str]:
        """Return the cells of a CSV or TSV record, or of its first ``most`` bytes; invalid UTF-8 becomes surrogates."""
        starts, stops = self.bounds
        data = self.data[starts[number] : stops[number]][:most]
        if self.kind == "tsv":
            return data.decode("utf-8", "surrogateescape").split("\t")
        text = self.table.standard(data).decode("utf-8", "surrogateescape")
        with csv_cell_limit(MOST_LINE_BYTES):
            return next(csv.reader(io.StringIO(text, newline=""), delimiter=self.table.delimiter), [])

    def without_first(self) -> "Records":
        """Return the records without the first."""
        others = self.faults[1:], self.cells[1:], self.breaks[1:]
        return Records(self.kind, self.data, self.ends[1:], int(self.ends[0]), *others, self.table)

    def not_utf8(self) -> npt.NDArray[np.bool_]:
        """Return whether each record [n] is invalid UTF-8."""
        data, (starts, stops) = memoryview(self.data), self.bounds
        return invalid_rows(len(self.ends), lambda start, stop: is_utf8(data[starts[start] : stops[stop - 1]]))

    def columns(
        self, names: Sequence[str], wanted: Sequence[str], kept: npt.NDArray[np.bool_] | None = None
    ) -> dict[str, pa.BinaryArray]:
        """Return the columns ``wanted`` of CSV or TSV records, given the names of all columns.

        ``kept`` [n] selects the records to read, all with as many cells as there are names; by default those without a
        fault.
        """
        kept = self.faults == NO_FAULT if kept is None else kept
        if not kept.any():
            return {name: pa.array([], pa.binary()) for name in wanted}
        table = _parsed(self.table.standard(self._bytes_of(kept)), self, names, wanted)
        assert len(table) == np.count_nonzero(kept), f"pyarrow reads {len(table):,} rows, not {kept.sum():,}"
        return {name: table[name].combine_chunks() for name in wanted}

    def _bytes_of(self, kept: npt.NDArray[np.bool_]) -> bytes:
        """Return the bytes of the kept records. If a record is left out, CR line ends become LF."""
        if kept.all():
            return self.data[self.start :]
        octets = np.frombuffer(self.data, np.uint8).copy()
        lasts = self.ends - 1
        octets[lasts[octets[lasts] == CARRIAGE_RETURN]] = LINE_FEED  # before LF it would be one line end
        lengths = np.diff(self.ends, prepend=self.start)
        return bytes(octets[self.start : self.ends[-1]][np.repeat(kept, lengths)])


def _parsed(data: bytes, records: Records, names: Sequence[str], wanted: Sequence[str]) -> pa.Table:
    # A byte order mark here belongs to a cell, and pyarrow removes one; it rejects less than three bytes.
    if data.startswith(BYTE_ORDER_MARK) or len(data) < len(BYTE_ORDER_MARK):
        data = BYTE_ORDER_MARK + data
    return pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
        pa.csv.ParseOptions(
            delimiter="\t" if records.kind == "tsv" else records.table.delimiter,
            quote_char='"' if records.kind == "csv" else False,
            newlines_in_values=records.kind == "csv",
            ignore_empty_lines=False,
        ),
        pa.csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.binary()),
            include_columns=wanted,
            strings_can_be_null=False,
        ),
    )


def read_records(
    pieces: Iterable[bytes], kind: Kind, name: str, max_line_bytes: int, table: TableFormat
) -> Iterator[Records]:
    """Split bytes, which start with a record and arrive in pieces, into complete records.

    Lines of ``csv`` and ``tsv`` end with LF, CRLF or CR, those of other kinds with LF; quotes count in CSV only. Raise
    ValueError, with the name of the file, if a record has more than ``max_line_bytes``, without its line end and the
    byte order mark; if its quoting is wrong and ``table.repairs`` is false; or if ``table.max_field_lines`` is below 1.
    """
    if table.max_field_lines < 1:
        raise ValueError(f"`max_field_lines` is {table.max_field_lines}; it must be at least 1")
    rest, waiting, line, is_first = b"", list[bytes](), 1, table.from_start
    num_waiting = 0

    def checked(records: Records, num_rest: int = 0) -> Records:
        starts, stops = records.bounds
        wrong = np.flatnonzero((stops - starts > max_line_bytes) | (not table.repairs and records.faults != NO_FAULT))
        if len(wrong) or num_rest - _NOT_COUNTED > max_line_bytes:
            record = int(wrong[0]) if len(wrong) else len(records)
            where = f"{name}, line {line + records.line_of(record)}" if table.from_start else name
            if record < len(records) and stops[record] - starts[record] <= max_line_bytes:
                raise ValueError(
                    f"{where}: wrong quoting ({records.fault(record)}); correct it, or set `format` to tsv for "
                    "columns without quotes"
                )
            raise ValueError(
                f"{where}: a row is longer than `max_line_bytes`, {max_line_bytes:,} bytes; expected one text or row "
                "per line, with closed quotes: correct the file, or give a larger `max_line_bytes`"
            )
        return records

    for piece in pieces:
        waiting.append(piece)
        num_waiting += len(piece)
        # No record ends in a piece without a line end, so many tiny pieces (gzip members) are scanned together.
        is_inside = b"\n" not in piece and b"\r" not in piece and not rest.endswith(b"\r")
        if is_inside and len(rest) + num_waiting <= max_line_bytes:
            continue
        data = b"".join([rest, *waiting]) if rest or len(waiting) > 1 else piece
        waiting, num_waiting = [], 0
        records = _cut(data, kind, table, max_line_bytes, is_first=is_first, is_whole=False)
        stop = len(records.data)
        rest = data[stop:]
        checked(records, len(rest))
        if stop:
            yield records
            is_first = False
        line += records.line_of(len(records))
    if rest or waiting:
        data = b"".join([rest, *waiting])
        yield checked(_cut(data, kind, table, max_line_bytes, is_first=is_first, is_whole=True))


def _cut(
    data: bytes, kind: Kind, table: TableFormat, max_line_bytes: int, *, is_first: bool, is_whole: bool
) -> Records:
    """Return the records of ``data`` that are certainly complete, or all of them if ``is_whole``."""
    octets = np.frombuffer(data, np.uint8)
    start = len(BYTE_ORDER_MARK) if is_first and data.startswith(BYTE_ORDER_MARK) else 0
    if kind not in {"csv", "tsv"}:
        ends = np.flatnonzero(octets == LINE_FEED) + 1
        if is_whole and (not len(ends) or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        return Records(kind, data[: ends[-1]] if len(ends) else b"", ends, start)
    size = data.count(b"\n") + data.count(b"\r") + 1
    ends, faults = np.empty(size, np.int64), np.empty(size, np.uint8)
    cells, breaks = np.empty(size, np.int32), np.empty(size, np.int32)
    separator, quote, escape = TAB, -1, -1
    if kind == "csv":
        separator, quote, escape = ord(table.delimiter), QUOTE, ord(table.escape or "\0") or -1
    limits = table.width, table.max_field_lines, max_line_bytes, table.repairs, is_whole
    with interpreted(table.repairs and not table.width):  # then it ends with the header
        count = scan(octets, separator, quote, escape, table.skips_blanks, start, *limits, ends, faults, cells, breaks)
    stop = int(ends[count - 1]) if count else 0
    others = faults[:count], cells[:count], breaks[:count]
    return Records(kind, data[:stop], ends[:count], start, *others, table)


def json_field(value: dict[str, Any], name: str, default: Any = None) -> Any:
    """Return the value of a key, or of a path such as ``doc.body`` in nested objects, or the default."""
    if name in value or "." not in name:
        return value.get(name, default)
    inner: Any = value
    for step in name.split("."):
        if inner is None:  # as in Parquet, a field of null is null
            return None
        if not isinstance(inner, dict) or step not in inner:
            return default
        inner = inner[step]
    return inner


def json_object(line: str | bytes) -> dict[str, Any] | str:
    """Return the JSON object of a line, or the reason why the line is not a JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON" if line.strip() else "empty line"
    return value if isinstance(value, dict) else "no JSON object"


@dataclass(frozen=True)
class Cells:
    """Rows of a small file, all with the same number of cells."""

    path: Path
    first: int  # number of the line of the first row, from 1
    rows: list[list[str]]
    expected: str  # description of the columns, for messages

    def texts(self, column: int) -> pa.StringArray:
        """Return a column as strings [n]."""
        return strings_of([row[column] for row in self.rows])

    def numbers(self, column: int) -> npt.NDArray[np.float64]:
        """Return a column as finite numbers, float64 [n]; raise ValueError, with the line, for any other cell."""
        values = np.empty(len(self.rows))
        for number, row in enumerate(self.rows):
            try:
                values[number] = float(row[column])
            except ValueError:
                values[number] = np.nan
            if not np.isfinite(values[number]):
                self.refuse(number, f"the score is {row[column][:40]!r}, which is not a finite number; {self.expected}")
        return values

    def refuse(self, row: int, fault: str) -> NoReturn:
        """Raise ValueError for a faulty row."""
        raise ValueError(f"{self.path}, line {self.first + row}: {fault}; correct the file, or download it again")


def read_cells(path: Path, separator: str, columns: int | str, *, header: bool | str = False) -> Cells:
    """Read a small UTF-8 file, plain or compressed, whose rows all have the same number of cells; quotes are plain
    characters.

    ``columns`` is the number of columns, or their names, separated by commas; ``header`` is True if the first line is a
    header, or the header, in lower case, that the first line may contain. Raise the errors of ``read_lines``, and
    ValueError if a row has another number of cells.
    """
    lines = read_text(path)
    has_header = lines[0].lower() == header if isinstance(header, str) else header
    num_columns = columns if isinstance(columns, int) else columns.count(",") + 1
    expected = f"expected {num_columns}{'' if columns == num_columns else f' ({columns})'}, separated by {separator!r}"
    cells = Cells(path, 1 + has_header, [line.split(separator) for line in lines[has_header:]], expected)
    for number, row in enumerate(cells.rows):
        if len(row) != num_columns:
            cells.refuse(number, f"{len(row)} columns; {expected}" if any(map(str.strip, row)) else "an empty line")
    if not cells.rows:
        raise ValueError(f"{path} has no rows; {expected}; download it again")
    return cells
