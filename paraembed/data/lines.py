"""Text files as Arrow arrays of lines, block by block; no Python loop over lines."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from paraembed.files import BinaryFile, open_binary, require_file

_BLOCK_BYTES = 8 << 20
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file, without their line ends (LF or CRLF).

    Attributes:
        first: number of the first line, from 0.
        text: string array [n]; null where a line is not valid UTF-8.
        raw: binary array [n], the bytes as they came.
    """

    first: int
    text: pa.StringArray
    raw: pa.BinaryArray


def read_lines(path: Path) -> Iterator[Lines]:
    """Read a text file, plain or ``.gz``; memory is bounded by a block of 8 MB, or by the longest line.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: an empty file, a binary file (NUL bytes in its first block), or a broken gzip stream (the message
            names the last whole line before the break).
    """
    require_file(path)
    number, rest, first_block = 0, b"", True
    try:
        with open_binary(path) as file:
            for block in _blocks(file):
                if first_block and b"\0" in block[:65_536]:
                    raise ValueError(f"{path} is a binary file; expected UTF-8 text, plain or .gz")
                block = block.removeprefix(codecs.BOM_UTF8) if first_block else block  # noqa: PLW2901
                first_block = False
                whole, feed, tail = block.rpartition(b"\n")
                if not feed:
                    rest += tail
                    continue
                lines = _split(number, rest + whole + feed)
                number, rest = number + len(lines.raw), tail
                yield lines
    except ValueError as error:
        raise ValueError(f"{error}; last whole line: {number}") if number else error from None
    if rest:
        yield _split(number, rest + b"\n")
    elif first_block:
        raise ValueError(f"{path} is empty; expected UTF-8 text, plain or .gz")


def _blocks(file: BinaryFile) -> Iterator[bytes]:
    """The bytes of a file in blocks; those before the break of a broken gzip stream come, too."""
    held: list[bytes] = []
    try:
        while piece := file.read1(_BLOCK_BYTES):
            held.append(piece)
            if sum(map(len, held)) >= _BLOCK_BYTES:
                yield b"".join(held)
                held = []
    except (EOFError, gzip.BadGzipFile, zlib.error):
        yield b"".join(held)
        raise
    if held:
        yield b"".join(held)


def _split(first: int, data: bytes) -> Lines:
    """Lines of bytes that end with a line feed."""
    octets = np.frombuffer(data, np.uint8)
    feeds = np.flatnonzero(octets == _LINE_FEED)
    returns = feeds[(feeds > 0) & (octets[feeds - 1] == _CARRIAGE_RETURN)] - 1
    kept = np.ones(len(octets), bool)
    kept[feeds] = kept[returns] = False
    lengths = np.diff(feeds, prepend=-1) - 1
    lengths[np.searchsorted(feeds, returns)] -= 1
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(octets[kept])]
    raw = pa.Array.from_buffers(pa.binary(), len(feeds), buffers)
    text = pa.Array.from_buffers(pa.string(), len(feeds), buffers)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        text = pa.array([_decoded(line) for line in raw.to_pylist()], pa.string())
    return Lines(first, text, raw)


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None
