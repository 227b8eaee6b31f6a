"""Files: open plain or gzipped, digest, and put into place so that a reader never sees half of one."""

import fcntl
import gzip
import hashlib
import io
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

log = logging.getLogger(__name__)

BinaryFile = io.BufferedReader | gzip.GzipFile
SUCCESS = "_SUCCESS"


def require_file(path: Path) -> None:
    """Raise FileNotFoundError or IsADirectoryError, in words for a user, unless ``path`` is a file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a file is expected")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryFile]:
    """Open a file for reading, gunzipped when its name ends in ``.gz``.

    Raises:
        ValueError: the gzip stream is broken or cut off; said when the reading gets there.
    """
    try:
        with path.open("rb") as raw:
            yield gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}); fetch or make it again") from None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_file(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: not JSON.
    """
    require_file(path)
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when the block ends well.

    Whatever stood at ``path`` is replaced then; callers decide beforehand whether that is allowed.
    """
    temporary = path.with_name(f".{path.name}.tmp")  # a fixed name: what a killed run left is swept by the next
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        sync_folder(temporary)
        replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(new: Path, path: Path) -> None:
    """Rename a folder into the place of what stands at ``path``, which is removed only then."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    new.rename(path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def differences(before: Any, now: Any) -> str:
    """Where two JSON values differ: ``recipe.margin (was 0.4, is 0.5); …``; empty if they are equal."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    changed = (name for name in {**new, **old} if old.get(name) != new.get(name))
    return "; ".join(f"{name} (was {_short(old.get(name))}, is {_short(new.get(name))})" for name in changed)


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
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}$", r"\1…", str(value))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder alone for the length of the block; the lock dies with the process.

    Raises:
        ValueError: another run holds it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another run is writing to {folder}; wait for it, or stop it") from None
        except OSError as error:
            log.warning("%s cannot be locked (%s); see that no other run writes to it", folder, error.strerror)
        yield
    finally:
        os.close(handle)


@contextmanager
def work_folder(path: Path) -> Iterator[None]:
    """Hold a folder alone for the length of the block; it is made where it is missing, and not left behind empty.

    Raises:
        ValueError: another run holds it, or a file stands there.
    """
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file where a folder for unfinished work belongs; move it away")
    path.mkdir(parents=True, exist_ok=True)
    try:
        with locked(path):
            yield
    finally:
        with suppress(OSError):  # not empty, or gone
            path.rmdir()


def empty_folder(folder: Path) -> None:
    """Remove what a folder holds."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
