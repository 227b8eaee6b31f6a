"""Read plain and compressed files (gzip, bz2, zst, zip of one file) in bounded memory."""

import bz2
import itertools
import logging
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Literal

import pyarrow as pa
import pyarrow.fs

from paraembed.io.limits import MAX_INFLATION
from paraembed.io.places import Place, name_of, open_place, shown, size_of

log = logging.getLogger(__name__)
Compression = Literal["", "gzip", "bz2", "zst", "zip"]
_HEAD_BYTES = 10
_GZIP, _ZST, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_SKIPPED, _SKIPPED_BYTES = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL), 8  # before the data of such a zst frame
_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zst", ".zip": "zip"}
_BROKEN = (EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)  # RuntimeError: encrypted
ALWAYS_INFLATED = 1 << 30
_READ_BYTES = 1 << 20  # compressed, at a time
_MEMBER_BYTES = 1 << 10  # of a gzip member, at first
BLOCK_BYTES = 8 << 20
"""Default number of bytes that text readers read at a time."""


def read_blocks(place: Place, size: int, max_inflation: int = MAX_INFLATION) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in pieces of up to ``size``; its first bytes show the compression.

    For large pieces of gzip, ISA-L is over twice as fast as zlib, and it releases the interpreter lock. Raise
    ValueError if the compressed stream is damaged or truncated (after all readable pieces), if the name ends in .gz,
    .bz2, .zst or .zip but the content is not compressed that way, if a zip archive has several files, or if
    ``check_inflation`` fails.
    """
    with open_place(place) as raw:
        head = raw.read(_HEAD_BYTES)
        kind = compression_of(raw, head)
        raw.seek(len(head))
        claimed: Compression = next((kind for end, kind in _SUFFIXES.items() if name_of(place).endswith(end)), "")
        if claimed and kind != claimed:
            raise _broken(place, claimed, f"it begins with {head[:4]!r}")
        at_once = min(size, _READ_BYTES) if kind else size
        chunks = itertools.chain(filter(None, [head + raw.read(at_once)]), iter(lambda: raw.read(at_once), b""))
        try:
            match kind:
                case "gzip":
                    yield from _bounded(place, _joined(_inflated(place, chunks, size), size), max_inflation)
                case "":
                    yield from chunks
                case "zip":
                    with zipfile.ZipFile(raw) as archive, archive.open(_only_file(archive, place)) as member:
                        yield from _bounded(place, iter(partial(member.read, size), b""), max_inflation)
                case _:
                    raw.seek(0)
                    is_bz2 = kind == "bz2"
                    opened = bz2.BZ2File(raw) if is_bz2 else pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
                    with opened as stream:
                        yield from _bounded(place, iter(partial(stream.read, size), b""), max_inflation)
        except _BROKEN as error:
            if not kind or getattr(error, "errno", None):  # an error of the disk, not of the stream
                raise
            raise _broken(place, kind, error) from None


def _only_file(archive: zipfile.ZipFile, place: Place) -> str:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise ValueError(f"{shown(place)} has {len(names)} files; expected one file in a zip archive: extract it first")
    return names[0]


def zipped_name(place: Place) -> str:
    """Return the name of the only file of a zip archive; raise ValueError if there are others."""
    try:
        with open_place(place) as raw, zipfile.ZipFile(raw) as archive:
            return _only_file(archive, place)
    except zipfile.BadZipFile as error:
        raise _broken(place, "zip", error) from None


def check_inflation(place: Place, inflated: int, most: int = MAX_INFLATION) -> None:
    """Raise ValueError if the decompressed size of a file suggests a decompression bomb.

    Text compresses 3 to 20 times; zeros compress a thousand times with gzip, and many thousands with bz2 and zstd.
    """
    if inflated > ALWAYS_INFLATED and inflated > most * size_of(place):
        raise ValueError(
            f"{shown(place)} has {size_of(place):,} bytes but inflates to over {inflated:,}; the limit is {most} "
            "times its size; if the file is valid, decompress it, or give a larger `max_inflation`"
        )


def _bounded(place: Place, pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield the pieces; raise ValueError if their total size fails ``check_inflation``."""
    inflated, checked = 0, 0
    for piece in pieces:
        inflated += len(piece)
        if inflated - checked > ALWAYS_INFLATED:  # rarely: it asks for the file's size
            check_inflation(place, inflated, most)
            checked = inflated
        yield piece


def is_compressed(place: Place) -> bool:
    """Return whether a file is compressed, according to its first bytes."""
    with open_place(place) as raw:
        return bool(compression_of(raw, raw.read(_HEAD_BYTES)))


def compression_of(raw: IO[bytes], head: bytes) -> Compression:
    """Return the compression of a file, according to ``head``, at least its first ten bytes."""
    # Text cannot begin with the magic bytes of gzip, zip or zst. It can begin with ``BZh``, so more bytes are checked,
    # and like the skippable frames of zst, which pzstd writes, so these must be followed by a data frame.
    if head.startswith((_GZIP, _ZIP)):
        return "gzip" if head.startswith(_GZIP) else "zip"
    start = 0
    while _SKIPPED.fullmatch(head[:4]) and len(head) >= _SKIPPED_BYTES:
        start += _SKIPPED_BYTES + int.from_bytes(head[4:8], "little")
        raw.seek(start)
        head = raw.read(_HEAD_BYTES)
    if head.startswith(_ZST):
        return "zst"
    return "bz2" if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head, re.DOTALL) else ""


Span = tuple[int, int]
"""Part of a file: offset of its first byte, and offset after its last byte."""


def cut_at_lines(place: Place, size: int, *, read_bytes: int = 1 << 16) -> list[Span]:
    """Split a plain text file at line ends into spans of ``size`` bytes or slightly more."""
    total = size_of(place)
    spans, start = [], 0
    with open_place(place) as raw:
        while start < total:
            pos = start + size - 1  # a line that ends with the span's last byte is the span's last
            raw.seek(min(pos, total))
            while (piece := raw.read(read_bytes)) and (feed := piece.find(b"\n")) < 0:
                pos += len(piece)
            stop = pos + feed + 1 if piece else total
            spans.append((start, stop))
            start = stop
    return spans


def read_span(place: Place, span: Span, size: int) -> Iterator[bytes]:
    """Yield the raw bytes of a part of a file in pieces of up to ``size``."""
    with open_place(place) as raw:
        raw.seek(span[0])
        left = span[1] - span[0]
        while piece := raw.read(min(size, left)):
            left -= len(piece)
            yield piece


def _broken(place: Place, kind: Compression, why: object) -> ValueError:
    return ValueError(f"{shown(place)} is not a complete {kind} file ({why}); download or write it again")


def _inflated(place: Place, chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield pieces of a gzip stream with one or more members; trailing bytes are ignored, as by gzip."""
    from isal import igzip_lib, isal_zlib  # noqa: PLC0415 - a bare machine, where training is measured, has none

    inflate, window = isal_zlib.decompressobj(31), _MEMBER_BYTES
    left = b""
    try:
        for chunk in chunks:
            left, pos = left + chunk, 0
            while pos < len(left):
                if inflate.eof:
                    pos = _skip_zeros(left, pos)  # padding after a member, which gzip allows
                    magic = left[pos : pos + 2]
                    if magic in {b"", _GZIP[:1]}:
                        break  # the next chunk says what it is
                    if magic != _GZIP:
                        log.warning("%s has bytes after its gzip data; they are ignored, as gzip does", shown(place))
                        return
                    inflate, window = isal_zlib.decompressobj(31), _MEMBER_BYTES
                given = left[pos : pos + window]
                if piece := inflate.decompress(given, size):
                    yield piece
                pos += len(given) - len(inflate.unused_data if inflate.eof else inflate.unconsumed_tail)
                window *= 2  # each member copies what comes after it: a large piece would be copied for each of many
            left = left[pos:]
        if piece := inflate.flush():
            yield piece
    except igzip_lib.IsalError as error:  # type: ignore[misc]  # its stub calls it an instance
        raise EOFError(error) from None
    if not inflate.eof or left:
        raise EOFError("the stream ended before its end marker")


def _joined(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in larger pieces, including all bytes that precede an error."""
    waiting, num_bytes, error = list[bytes](), 0, None
    try:
        for piece in pieces:
            waiting.append(piece)
            num_bytes += len(piece)
            if num_bytes >= min(size, _READ_BYTES):
                yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
                waiting, num_bytes = [], 0
    except EOFError as broken:
        error = broken
    if waiting:
        yield b"".join(waiting)
    if error is not None:
        raise error


def _skip_zeros(data: bytes, pos: int) -> int:
    while pos < len(data) and not data[pos]:
        pos += 1
    return pos


def ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same blocks, while a thread reads the next block; most files have one block, which needs no thread."""
    for _ in range(2):
        if (block := next(blocks, None)) is None:
            return
        yield block
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, blocks, None)
        try:
            while (block := coming.result()) is not None:
                coming = reader.submit(next, blocks, None)
                yield block
        finally:
            del coming  # an error in it refers to this frame: together they would keep the file open
