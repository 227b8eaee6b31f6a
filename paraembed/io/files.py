"""Files: open plain or compressed, digest, and put into place so that a reader never sees half of one."""

import bz2
import fcntl
import gzip
import hashlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs

from paraembed.options import MOST_BYTES, json_value

log = logging.getLogger(__name__)

BinaryFile = io.BufferedReader | gzip.GzipFile
Compression = Literal["", "gzip", "bz2", "zst"]
Place = Path | str
"""Where a file is: a path, or a URI (``s3://…``, ``gs://…``, ``hdfs://…``, ``file:///…``) for ``pyarrow.fs``."""

SUCCESS = "_SUCCESS"
# User and password, or the keys of an object store, in a URI; with a colon, up to an @ behind slashes, too, unless it
# begins a port.
_PORT = r"[^/?\s:@]*:\d{1,5}/"
_USER = re.compile(r"(?<=://)[^/?\s]+@")
_CREDENTIALS = re.compile(
    rf"(?<=://)(?!(?:(?<=http://)|(?<=https://)|(?<=hdfs://)|(?<=viewfs://)){_PORT})[^/?\s:@]*:(?:(?!://)\S)*@"
)
_ENCODED_URI = re.compile(r"(%(?:25)*3A%(?:25)*2F%(?:25)*2F)(\S+)", re.IGNORECASE)
# What may have names and values: behind a ? or #, or a semicolon as in JDBC and ODBC addresses, up to a blank.
_OPTIONS = re.compile(r"[?#;&]\S+")
_OPTION = re.compile(r"(?:^|(?<=[?#;&=]))([^?#;&=\s]+)=")
_SECRET_NAME = re.compile(
    "pass|pwd|pw$|secret|token|tok$|sig|cred|auth(?!ors?$)|key|jwt|sas$|sess|cookie|bearer|code$|policy|accessid|"
    "private|pin$|otp$|hmac|ticket|assertion|saml|^pat$"
)
_HIDDEN = "***"
_HEAD_BYTES = 10
_GZIP, _ZST = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPED, _SKIPPED_BYTES = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL), 8  # before the data of such a zst frame
_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zst"}
MAX_INFLATION = 200
"""Times as many bytes may come out of a compressed file as it has, beyond the first GiB."""

ALWAYS_INFLATED = 1 << 30
_READ_BYTES = 1 << 20  # compressed, at a time
_MEMBER_BYTES = 1 << 10  # of a gzip member, at first
_LINE_BYTES = 1 << 16
_DIFFERENCES, _VALUE_CHARACTERS = 20, 100  # in a message


def require_file(place: Place) -> None:
    """Raise FileNotFoundError, IsADirectoryError or ValueError unless ``place`` is a regular file.

    A FIFO, socket or device is refused: reading it may wait forever or never end.
    """
    if isinstance(place, Path):
        is_folder, exists, is_regular = place.is_dir(), place.exists(), place.is_file()
    else:
        filesystem, path = resolve(place)
        kind = filesystem.get_file_info(path).type
        is_folder, exists = kind == pa.fs.FileType.Directory, kind != pa.fs.FileType.NotFound
        is_regular = kind == pa.fs.FileType.File
    if is_folder:
        raise IsADirectoryError(f"{_shown(place)} is a folder; a file is expected")
    if not exists:
        raise FileNotFoundError(f"{_shown(place)} does not exist; check the path")
    if not is_regular:
        raise _not_regular(place)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file of this machine for reading.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: as ``require_file``.
    """
    require_file(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO put there since would wait
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(path)
    return os.fdopen(handle, "rb")


def _not_regular(place: Place) -> ValueError:
    return ValueError(f"{_shown(place)} is a FIFO, socket or device; a regular file is expected: save its data first")


def to_place(text: str) -> Place:
    """A path, or the URI that ``text`` is.

    Raises:
        ValueError: the text is empty, which would be the working folder.
    """
    if not text.strip():
        raise ValueError("an address is empty; give the path or the URI of a file")
    return text if "://" in text else Path(text)


def in_submitted_job() -> bool:
    """Whether this process runs in the temporary copy of the working folder that ``ray job submit`` makes."""
    return "runtime_resources" in Path.cwd().parts


def name_of(place: Place) -> str:
    """The file's name, without its folders, and without the options of a URI."""
    return place.name if isinstance(place, Path) else place.partition("?")[0].rstrip("/").rpartition("/")[2]


def without_credentials(text: str) -> str:
    """A text, a path or a URI without the users, passwords, keys, tokens and signatures that the URIs in it may hold.

    For messages, logs and records; what is opened keeps them.
    """
    text = _USER.sub("", text)
    text = _ENCODED_URI.sub(lambda uri: uri[1] + _HIDDEN if "@" in _decoded(uri[2]) else uri[0], text)
    return _CREDENTIALS.sub("", _OPTIONS.sub(lambda options: _without_secrets(options[0]), text))


def _without_secrets(options: str, depth: int = 0) -> str:
    """The options of a URI, ``?a=b&c=d``, with the values hidden whose names are those of secrets."""
    pieces = re.split("(&)", options)
    return "".join(_without_secret(piece, depth) for piece in pieces)


def _without_secret(piece: str, depth: int) -> str:
    """One option; a secret ends at the next ``&``, since it may have any other character."""
    shown = front = piece
    for option in _OPTION.finditer(piece):
        if _SECRET_NAME.search(_decoded(option[1]).lower()) and piece[option.end() :]:
            shown, front = piece[: option.end()] + _HIDDEN, piece[: option.start()]
            break
    decoded = _decoded(front)
    if decoded != front and depth < 3 and _without_secrets(decoded, depth + 1) != decoded:  # options in an option
        return re.split("[=%]", front)[0] + "=" + _HIDDEN
    return shown


def _decoded(text: str) -> str:
    """Percent-encoded text, decoded as often as it was encoded."""
    for _ in range(3):
        text, before = unquote(text), text
        if text == before:
            break
    return text


def _shown(place: Place) -> str:
    """A place for messages."""
    return without_credentials(str(place))


def size_of(place: Place) -> int:
    """Bytes of a file.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: as ``require_file``.
    """
    if isinstance(place, Path):
        return place.stat().st_size
    filesystem, path = resolve(place)
    info = filesystem.get_file_info(path)
    if info.type != pa.fs.FileType.File:
        require_file(place)
    return int(info.size)


def resolve(uri: str) -> tuple[pa.fs.FileSystem, str]:
    """The file system of a URI, and the path in it.

    Raises:
        ValueError: the URI is not understood.
    """
    try:
        filesystem, path = pa.fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"{_shown(uri)} is no address that can be read ({without_credentials(str(error))}); give a path, s3://…, "
            "gs://… or file:///…"
        ) from None
    return filesystem, path


@contextmanager
def open_place(place: Place) -> Iterator[IO[bytes]]:
    """Open a file for reading, its bytes as they are."""
    filesystem, path = (None, str(place)) if isinstance(place, Path) else resolve(place)
    if filesystem is None or isinstance(filesystem, pa.fs.LocalFileSystem):
        with open_regular(Path(path)) as file:
            yield file
    else:
        with filesystem.open_input_file(path) as stream:
            yield stream


def read_blocks(place: Place, size: int, max_inflation: int = MAX_INFLATION) -> Iterator[bytes]:
    """The bytes of a file, decompressed (by its first bytes: gzip, bz2, zst, or plain), in pieces of up to ``size``.

    ISA-L inflates gzip on large pieces: over twice as fast as zlib so used, and the interpreter is free meanwhile.

    Raises:
        ValueError: the compressed stream is broken or cut off; said when the reading gets there, after all pieces
            that could be read. Also a name that ends in .gz, .bz2 or .zst on a file that is none, and a stream that
            inflates beyond ``check_inflation``.
    """
    with open_place(place) as raw:
        head = raw.read(_HEAD_BYTES)
        kind = _kind_of(raw, head)
        raw.seek(len(head))
        claimed: Compression = next((kind for end, kind in _SUFFIXES.items() if name_of(place).endswith(end)), "")
        if claimed and kind != claimed:
            raise _broken(place, claimed, f"it begins with {head[:4]!r}")
        some = min(size, _READ_BYTES) if kind else size
        chunks = itertools.chain(filter(None, [head + raw.read(some)]), iter(lambda: raw.read(some), b""))
        try:
            match kind:
                case "gzip":
                    yield from _bounded(place, _joined(_inflated(place, chunks, size), size), max_inflation)
                case "":
                    yield from chunks
                case _:
                    raw.seek(0)
                    with _decompressor(raw, kind) as stream:
                        yield from _bounded(place, iter(partial(stream.read, size), b""), max_inflation)
        except (EOFError, OSError) as error:
            if not kind or getattr(error, "errno", None):  # the disk's fault, not the stream's
                raise
            raise _broken(place, kind, error) from None


def check_inflation(place: Place, inflated: int, most: int = MAX_INFLATION) -> None:
    """Raise ValueError where so many bytes have come out of a file that it is a decompression bomb.

    Text is inflated 3 to 20 times; zeros are by gzip a thousand times, by bz2 and zstd many thousand times.
    """
    if inflated > ALWAYS_INFLATED and inflated > most * size_of(place):
        raise ValueError(
            f"{_shown(place)} has {size_of(place):,} bytes and inflates to over {inflated:,}, more than "
            f"{most} times as many: no text does; if it is right, unpack it and give the plain file, which has no "
            "limit; shard.py and embed.py take a larger --max-inflation, too"
        )


def _bounded(place: Place, pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """The same pieces, until they are too many."""
    inflated, checked = 0, 0
    for piece in pieces:
        inflated += len(piece)
        if inflated - checked > ALWAYS_INFLATED:  # rarely: it asks for the file's size
            check_inflation(place, inflated, most)
            checked = inflated
        yield piece


def is_compressed(place: Place) -> bool:
    """Whether the first bytes of a file say that it is compressed."""
    with open_place(place) as raw:
        return bool(_kind_of(raw, raw.read(_HEAD_BYTES)))


def _kind_of(raw: IO[bytes], head: bytes) -> Compression:
    """How a file that begins so is compressed. A text in UTF-8 cannot begin as gzip or zst do, but with ``BZh``.

    A zst file may begin with frames to skip, as pzstd writes. A text could begin as these do, so a frame with data must
    follow.
    """
    if head.startswith(_GZIP):
        return "gzip"
    start = 0
    while _SKIPPED.fullmatch(head[:4]) and len(head) >= _SKIPPED_BYTES:
        start += _SKIPPED_BYTES + int.from_bytes(head[4:8], "little")
        raw.seek(start)
        head = raw.read(_HEAD_BYTES)
    if head.startswith(_ZST):
        return "zst"
    return "bz2" if re.fullmatch(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head, re.DOTALL) else ""


Span = tuple[int, int]
"""A part of a file: its first byte, and the one behind its last."""


def cut_at_lines(place: Place, size: int) -> list[Span]:
    """A file of plain text in spans of ``size`` bytes or a little more, each ending at the end of a line."""
    total = size_of(place)
    spans, start = [], 0
    with open_place(place) as raw:
        while start < total:
            at = start + size - 1  # a line that ends with the span's last byte is the span's last
            raw.seek(min(at, total))
            while (piece := raw.read(_LINE_BYTES)) and (feed := piece.find(b"\n")) < 0:
                at += len(piece)
            stop = at + feed + 1 if piece else total
            spans.append((start, stop))
            start = stop
    return spans


def read_span(place: Place, span: Span, size: int) -> Iterator[bytes]:
    """The bytes of a part of a file, as they are, in pieces of up to ``size``."""
    with open_place(place) as raw:
        raw.seek(span[0])
        left = span[1] - span[0]
        while piece := raw.read(min(size, left)):
            left -= len(piece)
            yield piece


def _broken(place: Place, kind: Compression, why: object) -> ValueError:
    return ValueError(f"{_shown(place)} is not a whole {kind} file ({why}); fetch or make it again")


def _inflated(place: Place, chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Pieces of a gzip stream of one member or several; what is no member after them is ignored, as gzip does it."""
    from isal import igzip_lib, isal_zlib  # noqa: PLC0415 - a bare machine, where training is measured, has none

    inflate, window = isal_zlib.decompressobj(31), _MEMBER_BYTES
    left = b""
    try:
        for chunk in chunks:
            left, at = left + chunk, 0
            while at < len(left):
                if inflate.eof:
                    at = _skip_zeros(left, at)  # padding after a member, which gzip allows
                    magic = left[at : at + 2]
                    if magic in {b"", _GZIP[:1]}:
                        break  # the next chunk says what it is
                    if magic != _GZIP:
                        log.warning("%s has bytes after its gzip data; they are ignored, as gzip does", _shown(place))
                        return
                    inflate, window = isal_zlib.decompressobj(31), _MEMBER_BYTES
                given = left[at : at + window]
                if piece := inflate.decompress(given, size):
                    yield piece
                at += len(given) - len(inflate.unused_data if inflate.eof else inflate.unconsumed_tail)
                window *= 2  # each member copies what comes after it: a large piece would be copied for each of many
            left = left[at:]
        if piece := inflate.flush():
            yield piece
    except igzip_lib.IsalError as error:  # type: ignore[misc]  # its stub calls it an instance
        raise EOFError(error) from None
    if not inflate.eof or left:
        raise EOFError("the stream ended before its end marker")


def _joined(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in larger pieces; all that came before an error, too."""
    held, num_bytes, error = list[bytes](), 0, None
    try:
        for piece in pieces:
            held.append(piece)
            num_bytes += len(piece)
            if num_bytes >= min(size, _READ_BYTES):
                yield held[0] if len(held) == 1 else b"".join(held)
                held, num_bytes = [], 0
    except EOFError as broken:
        error = broken
    if held:
        yield b"".join(held)
    if error is not None:
        raise error


def _skip_zeros(data: bytes, at: int) -> int:
    while at < len(data) and not data[at]:
        at += 1
    return at


def _decompressor(raw: IO[bytes], kind: Compression) -> Any:
    return bz2.BZ2File(raw) if kind == "bz2" else pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")


@contextmanager
def open_stream(place: Place, max_inflation: int = MAX_INFLATION) -> Iterator[io.BufferedReader]:
    """A file's bytes, decompressed as ``read_blocks`` does."""
    with closing(_Stream(read_blocks(place, _READ_BYTES, max_inflation))) as stream:
        yield io.BufferedReader(stream)


class _Stream(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._blocks, b""))
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, each read in a thread while the one before is worked on."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, blocks, None)
        try:
            while (block := coming.result()) is not None:
                coming = reader.submit(next, blocks, None)
                yield block
        finally:
            del coming  # an error in it refers to this frame: together they would keep the file open


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryFile]:
    """Open a file for reading, gunzipped when its name ends in ``.gz``.

    Raises:
        ValueError: the gzip stream is broken or cut off; said when the reading gets there.
    """
    try:
        with open_regular(path) as raw:
            yield gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}); fetch or make it again") from None


def sha256_of(place: Place) -> str:
    """SHA-256 of a file, hexadecimal."""
    if isinstance(place, Path):
        with open_regular(place) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    with open_place(place) as stream:
        while piece := stream.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def digest_of(value: Any) -> str:
    """SHA-256 of a value as canonical JSON, hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> str:
    """Write a file under a temporary name, flush it to disk, rename it into place.

    Returns:
        SHA-256 of the bytes, hexadecimal.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")  # a pid repeats between containers
    try:
        with temporary.open("w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return digest


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    write_file(path, lambda file: file.write(json_bytes(value)))


def json_bytes(value: Any) -> bytes:
    """A value as indented JSON."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_json(path: Path, kind: Any = Any, most_bytes: int = MOST_BYTES) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
        kind: type hint that its value must have; see ``paraembed.options``.
        most_bytes: a longer file is refused.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: as ``open_regular``.
        ValueError: not JSON, or a value that does not have the type.
    """
    with open_regular(path) as file:
        return json_value(file.read(most_bytes + 1), str(path), kind, most_bytes)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder that appears under its name only when the block ends without an error.

    It replaces whatever is at ``path``; callers decide beforehand whether that is allowed. It is built under a name
    that nobody else uses, so that no other folder is ever emptied; what killed processes left is removed.
    """
    _remove_leftovers(path)
    temporary = _hidden(path, "tmp")
    temporary.mkdir(parents=True)
    handle = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: then no other process removes leftovers, either
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        sync_folder(temporary)
        replace_folder(temporary, path, _hidden(path, "old"))
    finally:
        os.close(handle)
        shutil.rmtree(temporary, ignore_errors=True)


def _hidden(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.{suffix}")


def _remove_leftovers(path: Path) -> None:
    """Remove the hidden folders of ``new_folder(path)`` in processes that were killed: nobody holds their locks."""
    hidden = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    for folder in path.parent.iterdir() if path.parent.is_dir() else ():
        if not hidden.fullmatch(folder.name):
            continue
        with suppress(OSError):  # held, or gone
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def replace_folder(new: Path, path: Path, old: Path) -> None:
    """Rename the folder ``new`` to ``path``; what was there is first renamed to ``old``, then removed.

    Raises:
        OSError: ``old`` exists and is not empty; nothing was changed.
    """
    if path.exists() or path.is_symlink():
        path.rename(old)
    new.rename(path)
    sync_folder(path.parent)
    if old.is_symlink():
        old.unlink()  # the link; what it leads to is not ours
    else:
        shutil.rmtree(old, ignore_errors=True)


def foreign_file(folder: Path, ours: re.Pattern[str]) -> Path | None:
    """Return the first file below a folder whose path in it is not ``ours``; None if all are."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    return next((path for path in files if not ours.fullmatch(path.relative_to(folder).as_posix())), None)


def differences(before: Any, now: Any) -> str:
    """Where two JSON values differ: ``recipe.margin (was 0.4, is 0.5); …``; empty if they are equal."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    changed = (name for name in {**new, **old} if old.get(name) != new.get(name))
    shown = [f"{name} (was {_short(old.get(name))}, is {_short(new.get(name))})" for name in changed]
    more = [f"and {len(shown) - _DIFFERENCES:,} more"] if len(shown) > _DIFFERENCES else []
    return "; ".join([*shown[:_DIFFERENCES], *more])


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        yield name, f"{len(value)} values"
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{number}]")
    else:
        yield name, value


def _short(value: Any) -> str:
    """A value for a message; of a digest the first digits."""
    text = re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}$", r"\1…", str(value))
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"


@contextmanager
def locked(folder: Path, *, make: bool = False) -> Iterator[None]:
    """Hold a folder alone for the length of the block; the lock ends with the process.

    Args:
        folder: the folder.
        make: create it where it is missing.

    Raises:
        ValueError: another run holds it.
        FileNotFoundError: there is no such folder.
    """

    def open_folder() -> int:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    handle = _lock(folder, open_folder, folder)
    try:
        yield
    finally:
        os.close(handle)


def _lock(path: Path, open_path: Callable[[], int], folder: Path) -> int:
    """Open and lock a path, for work in ``folder``; return the descriptor that holds the lock.

    Between the two another run may remove the path, or put something else there. Then the lock keeps nobody out, so
    the path is opened again.

    Raises:
        ValueError: another run holds the lock.
    """
    while True:
        handle = open_path()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ValueError(f"another run is writing to {folder}; wait for it, or stop it") from None
        except OSError as error:
            log.warning("%s cannot be locked (%s); see that no other run writes to it", folder, error.strerror)
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


@contextmanager
def work_folder(path: Path) -> Iterator[None]:
    """Hold a folder alone for the length of the block; it is created if missing, and removed at the end if empty.

    The lock is a file beside the folder, ``.NAME.lock``: only who holds it may create, fill, empty or remove the
    folder, and the file is removed before the lock is given up. Where the parent is read-only, nobody can remove the
    folder, and its own lock is enough.

    Raises:
        ValueError: another run holds it, or a file is there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(path) if os.access(path.parent, os.W_OK) else nullcontext():
        try:
            path.mkdir(exist_ok=True)
        except FileExistsError:
            raise ValueError(
                f"{path} is a file or broken link; a folder for unfinished work belongs there: move it away"
            ) from None
        try:
            with locked(path):  # versions without the lock file lock the folder itself
                yield
        finally:
            with suppress(OSError):  # not empty, or gone
                path.rmdir()


@contextmanager
def _lock_file(folder: Path) -> Iterator[None]:
    path = folder.with_name(f".{folder.name.removeprefix('.')}.lock")
    not_ours = ValueError(f"{path} is not an empty file, so it is no lock of a job; move it away")

    def open_file() -> int:
        if path.is_symlink() or path.is_dir():
            raise not_ours
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size:
            os.close(handle)
            raise not_ours
        return handle

    handle = _lock(path, open_file, folder)
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held: who opened it meanwhile sees that it is gone, and tries again
            path.unlink()
        os.close(handle)


def empty_folder(folder: Path) -> None:
    """Remove what a folder holds."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def write_stream(stream: TextIO, text: str) -> None:
    """Write at once; a reader that has gone (``| head``) does not end the job, the rest is written to nowhere."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
