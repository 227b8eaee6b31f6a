"""Where the records of a text file end: lines, or the rows of a CSV file, in which a quoted cell may hold line ends."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled

BLOCK_BYTES = 8 << 20  # read at a time
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_FEED, _CARRIAGE_RETURN, _QUOTE, _COMMA = b'\n\r",'
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
        most: bytes of a record, without a line feed.

    Raises:
        ValueError: a record that is longer.
    """
    rest = b""
    for piece in pieces:
        data = rest + piece if rest else piece
        ends = _ends(data, kind)
        stop = int(ends[-1]) if len(ends) else 0
        rest = data[stop:]
        longest = int(np.diff(ends, prepend=0).max(initial=0)) - 1
        if max(len(rest), longest) > most:
            reason = "a quote is never closed, perhaps" if kind == "csv" else "expected one text a line"
            raise ValueError(f"{name}: a row is longer than --max-line-bytes, {most:,} bytes; {reason}")
        if stop:
            yield Records(data[:stop], ends)
    if rest:
        yield Records(rest, np.array([len(rest)]))


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
