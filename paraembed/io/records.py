"""Record ends of text, JSON lines, CSV and TSV, found block by block.

A row of CSV may hold line breaks inside of quotes, so one stray quote could join all lines up to the next quote to one
row. Quoting is therefore read strictly (RFC 4180): a quote may open at the start of a cell only, and behind the quote
that closes it a comma or a line end must follow. A row over several lines is kept if its quoting is right, each of its
quoted cells has at most ``max_field_lines`` lines, all of it at most ``max_line_bytes``, it has as many cells as the
header, and its lines do not look like rows that two stray quotes joined: each with as many commas as a row, 12 or more
together. Otherwise its first line alone is rejected and reading resumes at the next line: a stray quote costs one line.
Every line of a file is therefore in one kept record, or is one rejected record. What this gives up: lines inside of a
quoted cell whose row is rejected are read as rows of their own; so are those of a cell that holds another table of as
many columns.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled, inlined

Kind = Literal["text", "jsonl", "csv", "tsv", "parquet"]

BLOCK_BYTES = 8 << 20  # read at a time
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_FEED, _CARRIAGE_RETURN, _QUOTE, _COMMA, _TAB, _SPACE = b'\n\r",\t '
_NOT_COUNTED = 5  # bytes of a mark of byte order and a line end
_CELL_START, _BARE, _QUOTED, _QUOTE_IN_QUOTED = range(4)
_NO_FAULT, _STRAY_QUOTE, _TEXT_AFTER_QUOTE, _OPEN_QUOTE, _EMPTY_LINE, _WIDTH = range(6)
_JOINED_SEPARATORS = 12  # in six lines of two each, or twelve of one: no prose
_FAULTS = {
    _STRAY_QUOTE: "a quote inside of a cell that does not begin with one; quote the whole cell and double the quote",
    _TEXT_AFTER_QUOTE: "text behind the quote that closes a cell; double a quote that belongs to the text",
    _OPEN_QUOTE: "a quote opens here and is not closed in this line, and with the next lines this is no row",
    _EMPTY_LINE: "empty line",
}


class Table(NamedTuple):
    """How the rows of a CSV or TSV file are read.

    Attributes:
        width: cells of a row; 0: any number, to read the header itself.
        max_field_lines: most lines of a quoted cell.
        from_start: the bytes are the file's first, before which a mark of byte order may be.
    """

    width: int = 0
    max_field_lines: int = 1000
    from_start: bool = False


@dataclass(frozen=True)
class Records:
    """Some whole records, kept and rejected ones.

    Attributes:
        data: their bytes, with their line ends; the last record of a file may have none.
        ends: int64 [n], the byte behind each.
        faults: uint8 [n], why a record of CSV or TSV is rejected, 0 for those that are kept; empty for other kinds.
        cells: int32 [n], cells of a record of CSV or TSV without a fault in its quoting.
        breaks: int32 [n], line breaks inside of the cells of a kept record of CSV or TSV.
        width: cells of a row.
    """

    data: bytes
    ends: npt.NDArray[np.int64]
    faults: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    cells: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    breaks: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    width: int = 0

    def fault(self, number: int) -> str:
        """Why a record is rejected."""
        if self.faults[number] == _WIDTH:
            return f"{self.cells[number]} cells, the header has {self.width}"
        return _FAULTS[int(self.faults[number])]

    def kept(self) -> bytes:
        """The bytes of the records that are kept. Each that ended with CR ends with LF, if any record is left out."""
        if not self.faults.any():
            return self.data
        octets = np.frombuffer(self.data, np.uint8).copy()
        lasts = self.ends - 1
        octets[lasts[octets[lasts] == _CARRIAGE_RETURN]] = _LINE_FEED  # before LF it would be one line end
        is_kept = np.repeat(self.faults == _NO_FAULT, np.diff(self.ends, prepend=0))
        return bytes(octets[is_kept])


def read_records(
    pieces: Iterable[bytes], kind: Kind, name: str, max_line_bytes: int, table: Table
) -> Iterator[Records]:
    """Cut bytes that come in pieces into whole records.

    Args:
        pieces: bytes, from the beginning of a record on.
        kind: ``csv`` or ``tsv`` (lines end with LF, CRLF or CR; quotes in CSV alone), else lines, which end with LF.
        name: of the file, for messages.
        max_line_bytes: most bytes of a record; its line end and the mark of byte order do not count.
        table: how CSV and TSV are read.

    Raises:
        ValueError: a line that is longer, or ``table.max_field_lines`` below 1.
    """
    if table.max_field_lines < 1:
        raise ValueError(f"`max_field_lines` is {table.max_field_lines}; it must be at least 1")
    rest, waiting, before = b"", list[bytes](), 0
    num_waiting = 0
    for piece in pieces:
        waiting.append(piece)
        num_waiting += len(piece)
        # No record ends in a piece without a line end: many tiny pieces (gzip members) are scanned once, not each time.
        is_inside = b"\n" not in piece and b"\r" not in piece and not rest.endswith(b"\r")
        if is_inside and len(rest) + num_waiting <= max_line_bytes:
            continue
        data = b"".join([rest, *waiting]) if rest or len(waiting) > 1 else piece
        waiting, num_waiting = [], 0
        records, stop = _cut(data, kind, table, before, max_line_bytes, is_whole=False)
        rest = data[stop:]
        if max(len(rest) - _NOT_COUNTED, _longest(records, before)) > max_line_bytes:
            raise _too_long(name, max_line_bytes)
        if stop:
            yield records
        before += stop
    if rest or waiting:
        records, _ = _cut(b"".join([rest, *waiting]), kind, table, before, max_line_bytes, is_whole=True)
        if _longest(records, before) > max_line_bytes:
            raise _too_long(name, max_line_bytes)
        yield records


def _longest(records: Records, before: int) -> int:
    """Bytes of the longest record, without line end; ``before`` bytes precede the records."""
    ends = records.ends
    if not len(ends):
        return 0
    octets, starts = np.frombuffer(records.data, np.uint8), np.concatenate(([0], ends[:-1]))
    if before == 0 and records.data.startswith(BYTE_ORDER_MARK):
        starts[0] = len(BYTE_ORDER_MARK)
    stops = ends - (octets[ends - 1] == _LINE_FEED)
    stops -= octets[np.maximum(stops - 1, 0)] == _CARRIAGE_RETURN
    return int((stops - starts).max())


def _too_long(name: str, max_line_bytes: int) -> ValueError:
    return ValueError(
        f"{name}: a line is longer than `max_line_bytes`, {max_line_bytes:,} bytes; expected one text or row a line: "
        "mend the file, or give a larger `max_line_bytes`"
    )


def _cut(
    data: bytes, kind: Kind, table: Table, before: int, max_line_bytes: int, *, is_whole: bool
) -> tuple[Records, int]:
    """The records of ``data`` that are surely whole, or all of them, and where the last of them ends."""
    octets = np.frombuffer(data, np.uint8)
    if kind not in {"csv", "tsv"}:
        ends = np.flatnonzero(octets == _LINE_FEED) + 1
        if is_whole and (not len(ends) or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        stop = int(ends[-1]) if len(ends) else 0
        return Records(data[:stop], ends), stop
    size = data.count(b"\n") + data.count(b"\r") + 1
    ends, faults = np.empty(size, np.int64), np.empty(size, np.uint8)
    cells, breaks = np.empty(size, np.int32), np.empty(size, np.int32)
    marked = table.from_start and before == 0 and data.startswith(BYTE_ORDER_MARK)
    limits = len(BYTE_ORDER_MARK) if marked else 0, table.width, table.max_field_lines, max_line_bytes, is_whole
    separator, quote = (_COMMA, _QUOTE) if kind == "csv" else (_TAB, -1)
    count = _scan(octets, separator, quote, *limits, ends, faults, cells, breaks)
    stop = int(ends[count - 1]) if count else 0
    return Records(data[:stop], ends[:count], faults[:count], cells[:count], breaks[:count], table.width), stop


@compiled
def _scan(
    octets: npt.NDArray[np.uint8],
    separator: int,
    quote: int,
    start: int,
    width: int,
    max_field_lines: int,
    max_bytes: int,
    is_whole: bool,
    ends: npt.NDArray[np.int64],
    faults: npt.NDArray[np.uint8],
    cells: npt.NDArray[np.int32],
    breaks: npt.NDArray[np.int32],
) -> int:
    """Fill the last four arrays; returns how many records there are. ``start`` is the first byte.

    A record that is still open at the end of ``octets`` is left to the next call, unless ``is_whole`` or it is longer
    than ``max_bytes`` already.

    It is linear although it goes back: each quote opens or closes a cell, so a line that leaves a quote open where one
    was open before leaves none open where it is read from its own start. No line is read more than three times.
    """
    size, count = len(octets), 0
    while start < size:
        at, stop, line_end, fault, num_cells, num_breaks, of_each = _walk(
            octets, separator, quote, start, max_field_lines, is_whole
        )
        if stop < 0 and not is_whole:
            is_too_long = line_end >= 0 and size - start > max_bytes + 2
            if not is_too_long and (line_end < 0 or fault == _NO_FAULT):
                return count
        are_rows = of_each == num_cells - 1 and of_each * (num_breaks + 1) >= _JOINED_SEPARATORS
        are_rows |= width == 0 and of_each > 0 and num_breaks > 1  # below the names of columns
        if line_end >= 0 and (
            stop < 0 or fault != _NO_FAULT or stop - start > max_bytes or (width > 0 and num_cells != width) or are_rows
        ):
            at, fault, num_breaks = line_end, _OPEN_QUOTE, 0
        elif fault == _NO_FAULT and width > 1 and stop == start:
            fault = _EMPTY_LINE
        elif fault == _NO_FAULT and width > 0 and num_cells != width:
            fault = _WIDTH
        ends[count], faults[count], cells[count], breaks[count] = at, fault, num_cells, num_breaks
        count += 1
        start = at
    return count


@inlined
def _walk(  # noqa: C901, PLR0912 - a machine of four states, in one loop
    octets: npt.NDArray[np.uint8], separator: int, quote: int, start: int, max_field_lines: int, is_whole: bool
) -> tuple[int, int, int, int, int, int, int]:
    """Read one record, or as far as it is right.

    Returns:
        The byte behind the record; the byte behind its text, -1 where its end was not reached; the byte behind its
        first line, -1 where it has one line; its fault; its cells; the line breaks inside of them; the separators in
        each of its lines, quoted ones, too, -1 where the lines differ in that.
    """
    size, at, line_end = len(octets), start, -1
    state, fault, num_cells, num_breaks, cell_lines = _CELL_START, _NO_FAULT, 1, 0, 1
    separators, of_each = 0, -1  # inside of quotes, too; of each line, if all have as many
    while at < size:
        octet = octets[at]
        at += 1
        if octet > _COMMA and state != _QUOTE_IN_QUOTED:  # no separator, quote or line end
            if state == _CELL_START:
                state = _BARE
            while at < size and (octets[at] > _COMMA or octets[at] == _SPACE):
                at += 1
        elif octet in (_LINE_FEED, _CARRIAGE_RETURN):
            stop = at - 1
            if octet == _CARRIAGE_RETURN and at == size and not is_whole:
                break  # half of a CRLF perhaps
            if octet == _CARRIAGE_RETURN and at < size and octets[at] == _LINE_FEED:
                at += 1
            of_each = separators if line_end < 0 else of_each if separators == of_each * (num_breaks + 1) else -1
            if state != _QUOTED:
                return at, stop, line_end, fault, num_cells, num_breaks, of_each
            num_breaks, cell_lines = num_breaks + 1, cell_lines + 1
            line_end = at if line_end < 0 else line_end
            fault = _OPEN_QUOTE if cell_lines > max_field_lines else fault
        elif state == _QUOTED:
            state = _QUOTE_IN_QUOTED if octet == quote else state
            separators += octet == separator
        elif fault != _NO_FAULT:
            continue  # to the end of the line
        elif octet == separator:
            state, num_cells, separators = _CELL_START, num_cells + 1, separators + 1
        elif octet == quote and state != _BARE:
            cell_lines = 1 if state == _CELL_START else cell_lines
            state = _QUOTED
        else:
            if octet == quote:
                fault = _STRAY_QUOTE
            elif state == _QUOTE_IN_QUOTED:
                fault = _TEXT_AFTER_QUOTE
            state = _BARE
        if fault != _NO_FAULT and line_end >= 0:
            return at, -1, line_end, fault, num_cells, num_breaks, -1
    if is_whole and state == _QUOTED:
        return size, -1 if line_end >= 0 else size, line_end, _OPEN_QUOTE, num_cells, num_breaks, -1
    of_each = of_each if separators == of_each * (num_breaks + 1) else -1
    return size, size if is_whole else -1, line_end, fault, num_cells, num_breaks, of_each
