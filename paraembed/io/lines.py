"""Read text files as blocks of lines for NumPy and Arrow, without a Python loop over lines."""

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.compiled import compiled
from paraembed.io.codes import CARRIAGE_RETURN, LINE_FEED
from paraembed.io.convert import read_utf8
from paraembed.io.inflate import BLOCK_BYTES, Span, ahead, read_span
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.places import Place

TOO_LONG = "longer than --max-line-bytes"
INVALID_UTF8 = "invalid UTF-8"
"""Reasons to reject a line."""

Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lines:
    """n consecutive lines of a file: line i is ``data[starts[i]:ends[i]]``."""

    first: int  # number of the first line, from 0
    data: bytes  # the lines with their line ends; the last byte is a line feed
    starts: Positions  # int64 [n]
    ends: Positions  # int64 [n], before the line end (LF or CRLF)
    first_is_cut: bool = False  # whether the first line is truncated, because it is too long to keep
    limits: ReadLimits = DEFAULT_LIMITS  # a line longer than ``limits.max_line_bytes`` is null
    is_ended: bool = True  # whether the last line has a line end in the file

    @classmethod
    def of(
        cls, data: bytes, first: int = 0, first_is_cut: bool = False, limits: ReadLimits = DEFAULT_LIMITS
    ) -> "Lines":
        """Return the lines of bytes that end with a line feed."""
        octets = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(octets == LINE_FEED)
        starts = np.concatenate(([0], feeds[:-1] + 1)) if len(feeds) else feeds
        returns = (feeds > starts) & (octets[feeds - 1] == CARRIAGE_RETURN)
        return cls(first, data, starts, feeds - returns, first_is_cut, limits)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]]

    @cached_property
    def octets(self) -> Octets:
        """``data`` as uint8."""
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def too_long(self) -> pa.BooleanArray:
        """Whether each line [n], without its line end, is longer than ``limits.max_line_bytes``."""
        rows = self.ends - self.starts > self.limits.max_line_bytes
        rows[:1] |= self.first_is_cut
        return bool_array(rows)

    @cached_property
    def not_utf8(self) -> pa.BooleanArray:
        """Whether each line [n] is invalid UTF-8."""
        data = memoryview(self.data)
        # A line feed is never inside of a character, so a run of lines is valid if each of them is.
        wrong = invalid_rows(len(self), lambda start, stop: is_utf8(data[self.starts[start] : self.ends[stop - 1]]))
        return bool_array(wrong)

    def tests(self) -> list[tuple[pa.BooleanArray, str]]:
        """Return the tests that reject a line, with their reasons."""
        return [(self.too_long, TOO_LONG), (self.not_utf8, INVALID_UTF8)]

    @cached_property
    def text(self) -> pa.StringArray:
        """Return the lines as strings [n]; null for a line that is ``not_utf8`` or ``too_long``."""
        lengths = self.ends - self.starts
        body = self.data.replace(b"\r\n", b"\n") if b"\r" in self.data else self.data
        text = string_array(lengths, body.replace(b"\n", b""))
        unreadable = pc.or_(self.not_utf8, self.too_long)
        return pc.if_else(unreadable, pa.scalar(None, pa.string()), text) if pc.any(unreadable).as_py() else text

    def without_first(self) -> "Lines":
        """Return the lines without the first."""
        return Lines.of(self.data[self.data.find(b"\n") + 1 :], self.first + 1, limits=self.limits)


def joined_lines(blocks: Sequence[Lines]) -> Lines:
    """Return consecutive blocks as one; only in the first of them, a first line may be cut."""
    if len(blocks) == 1:
        return blocks[0]
    shifts = np.cumsum([0, *(len(lines.data) for lines in blocks[:-1])])
    starts, ends = (
        np.concatenate([getattr(lines, name) + shift for lines, shift in zip(blocks, shifts, strict=True)])
        for name in ("starts", "ends")
    )
    data = b"".join([lines.data for lines in blocks])
    return replace(blocks[0], data=data, starts=starts, ends=ends, is_ended=blocks[-1].is_ended)


def invalid_rows(size: int, is_valid: Callable[[int, int], bool]) -> npt.NDArray[np.bool_]:
    """Return which of n rows are invalid, by bisection; ``is_valid`` checks the rows from a start to before a stop."""
    wrong = np.zeros(size, bool)
    runs = [(0, size)] if size else []
    while runs:
        start, stop = runs.pop()
        if is_valid(start, stop):
            continue
        if stop - start == 1:
            wrong[start] = True
        else:
            middle = (start + stop) // 2
            runs += [(start, middle), (middle, stop)]
    return wrong


def bool_array(rows: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return booleans [n] in Arrow; ``pa.array`` imports pandas, 0.3 s."""
    return pa.Array.from_buffers(pa.bool_(), len(rows), [None, pa.py_buffer(np.packbits(rows, bitorder="little"))])


def strings_of(texts: Sequence[str]) -> pa.StringArray:
    """Return Python's strings [n] in Arrow, as ``bool_array``."""
    octets = [text.encode() for text in texts]
    return string_array(np.array([*map(len, octets)], np.int64), b"".join(octets))


def string_array(lengths: Positions, octets: bytes | Octets) -> pa.StringArray:
    """Return strings [n] that are stored one after the other in ``octets``, given their lengths in bytes."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def strings_at(octets: Octets, starts: Positions, stops: Positions) -> pa.StringArray:
    """Return ranges of bytes as strings [n]; the caller must check that they are UTF-8."""
    lengths = stops - starts
    out = np.empty(lengths.sum(), np.uint8)
    gather(octets, starts, stops, out)
    return string_array(lengths, out)


@compiled
def gather(octets: Octets, starts: Positions, stops: Positions, out: Octets) -> None:
    """Copy ranges of bytes, one after the other."""
    filled = 0
    for number in range(len(starts)):
        size = stops[number] - starts[number]
        out[filled : filled + size] = octets[starts[number] : stops[number]]
        filled += size


def read_lines(
    place: Place,
    span: Span | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    *,
    block_bytes: int = BLOCK_BYTES,
    shown_bytes: int = 1000,
) -> Iterator[Lines]:
    """Read a plain or compressed text file in blocks of lines; a thread reads the next block in the meantime.

    The memory is bounded by a few blocks or ``limits.max_line_bytes``; of a longer line, ``shown_bytes`` are kept. The
    lines of a ``span`` of a plain file (``cut_at_lines``) are numbered from its first. Raise FileNotFoundError or
    IsADirectoryError if the file is missing or a folder; ValueError if it is empty or binary (NUL bytes in its first
    64 KB), or its compressed stream is damaged (the message names the last complete line).
    """
    number = num_waiting = 0
    rest: list[bytes] = []  # of a line whose end has not come, yet: ``num_waiting`` bytes
    cut = False
    try:
        for block in ahead(_text_blocks(place, span, limits, block_bytes)):
            feed = block.find(b"\n")
            if not cut:
                rest.append(block if feed < 0 else block[:feed])
                num_waiting += len(rest[-1])
                if num_waiting > limits.max_line_bytes + 1:  # the last may be a carriage return, of the line's end
                    cut, rest = True, [b"".join(rest)[:shown_bytes]]
            if feed < 0:
                continue
            last = block.rfind(b"\n") + 1
            lines = Lines.of(b"".join((*rest, memoryview(block)[feed:last])), number, cut, limits)
            number, rest, cut = number + len(lines), [block[last:]] if last < len(block) else [], False
            num_waiting = len(block) - last
            yield lines
    except ValueError as error:
        raise ValueError(f"{error}; last complete line: {number}") if number else error from None
    if rest:
        yield replace(Lines.of(b"".join([*rest, b"\n"]), number, cut, limits), is_ended=False)
    elif not number:
        raise ValueError(f"{place} is empty; expected UTF-8 text, plain or compressed")


def read_text(path: Path) -> list[str]:
    """Return the lines of a small file, plain or compressed; the errors are those of ``text_blocks``."""
    return [line for block in text_blocks(path) for line in block.to_pylist()]


def text_blocks(path: Path) -> Iterator[pa.StringArray]:
    """Yield the lines of a file as string arrays; raise the errors of ``read_lines``, and ValueError if a line is not
    UTF-8, or too long.
    """
    for block in read_lines(path):
        if block.text.null_count:
            line = block.first + 1 + pc.index(block.text.is_null(), True).as_py()
            raise ValueError(
                f"{path}, line {line}: not UTF-8, or too long; correct or delete the line, or download the file again"
            )
        yield block.text


def _text_blocks(place: Place, span: Span | None, limits: ReadLimits, size: int) -> Iterator[bytes]:
    """Yield the blocks of a text file, without its byte order mark."""
    blocks = read_span(place, span, size) if span else read_utf8(place, size, limits.codec, limits.max_inflation)
    head = b""
    while (not span or not span[0]) and len(head) < len(codecs.BOM_UTF8) and (block := next(blocks, None)):
        head += block
    if b"\0" in head[:65_536]:
        raise ValueError(f"{place} is a binary file; expected UTF-8 text, plain or compressed")
    if head := head.removeprefix(codecs.BOM_UTF8):
        yield head
    yield from blocks


def is_utf8(data: memoryview) -> bool:
    """Return whether bytes are valid UTF-8; Arrow checks them without a copy."""
    offsets = np.array([0, len(data)])
    whole = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
