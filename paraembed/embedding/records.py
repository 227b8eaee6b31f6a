"""Where the records of a text file end: lines, or the rows of a CSV file, in which a quoted cell may hold line ends."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled

BLOCK_BYTES = 8 << 20  # read at a time
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_FEED, _CARRIAGE_RETURN, _QUOTE, _COMMA = b'\n\r",'
_NOT_COUNTED = 5  # bytes of a mark of byte order and a line end
_FIELD_START, _IN_FIELD, _IN_QUOTES, _QUOTE_IN_QUOTES = range(4)


@dataclass(frozen=True)
class Records:
    """Some whole records.

    Attributes:
        data: their bytes, with their line ends; the last record of a file may have none.
        ends: int64 [n], the byte behind each.
    """

    data: bytes
    ends: npt.NDArray[np.int64]


def read_records(pieces: Iterable[bytes], kind: str, name: str, most: int) -> Iterator[Records]:
    """Cut bytes that come in pieces into whole records.

    Args:
        pieces: bytes, from the beginning of a record on.
        kind: ``csv`` or ``tsv`` (records end with LF, CRLF or CR; in CSV not inside of quotes, which open at the
            beginning of a cell only), else lines, which end with LF.
        name: of the file, for messages.
        most: bytes of a record; its line end and the mark of byte order do not count.

    Raises:
        ValueError: a record that is longer.
    """
    rest, before = b"", 0
    for piece in pieces:
        data = rest + piece if rest else piece
        ends = _ends(data, kind)
        stop = int(ends[-1]) if len(ends) else 0
        rest = data[stop:]
        if max(len(rest) - _NOT_COUNTED, _longest(data, ends, before)) > most:
            raise _too_long(name, kind, most)
        if stop:
            yield Records(data[:stop], ends)
        before += stop
    if rest:
        ends = np.array([len(rest)])
        if _longest(rest, ends, before) > most:
            raise _too_long(name, kind, most)
        yield Records(rest, ends)


def _longest(data: bytes, ends: npt.NDArray[np.int64], before: int) -> int:
    """Bytes of the longest record that ends there, without line end; ``before`` stand in front of ``data``."""
    if not len(ends):
        return 0
    octets, starts = np.frombuffer(data, np.uint8), np.concatenate(([0], ends[:-1]))
    if before == 0 and data.startswith(BYTE_ORDER_MARK):
        starts[0] = len(BYTE_ORDER_MARK)
    stops = ends - (octets[ends - 1] == _LINE_FEED)
    stops -= octets[np.maximum(stops - 1, 0)] == _CARRIAGE_RETURN
    return int((stops - starts).max())


def _too_long(name: str, kind: str, most: int) -> ValueError:
    reason = "a quote is never closed, perhaps" if kind == "csv" else "expected one text a line"
    return ValueError(f"{name}: a row is longer than --max-line-bytes, {most:,} bytes; {reason}")


def _ends(data: bytes, kind: str) -> npt.NDArray[np.int64]:
    """Ends [n] of the records that are surely whole."""
    octets = np.frombuffer(data, np.uint8)
    if kind not in {"csv", "tsv"}:
        return np.flatnonzero(octets == _LINE_FEED) + 1
    ends = np.empty(np.count_nonzero((octets == _LINE_FEED) | (octets == _CARRIAGE_RETURN)), np.int64)
    return ends[: _row_ends(octets, kind == "csv", ends)]


@compiled
def _row_ends(octets: npt.NDArray[np.uint8], quotes: bool, ends: npt.NDArray[np.int64]) -> int:
    """Fill ``ends``; returns how many there are. A CR that is the last byte may be half of a CRLF: no end yet."""
    count, state = 0, _FIELD_START
    for at in range(len(octets)):
        octet = octets[at]
        if state == _IN_QUOTES:
            if octet == _QUOTE:
                state = _QUOTE_IN_QUOTES
        elif octet == _QUOTE and quotes and state != _IN_FIELD:
            state = _IN_QUOTES  # a cell begins, or two quotes that stand for one
        elif octet == _LINE_FEED or (
            octet == _CARRIAGE_RETURN and at + 1 < len(octets) and octets[at + 1] != _LINE_FEED
        ):
            ends[count] = at + 1
            count += 1
            state = _FIELD_START
        elif octet == _COMMA:
            state = _FIELD_START
        else:
            state = _IN_FIELD
    return count
