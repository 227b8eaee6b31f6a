"""Atomic writes of files and folders, and locks, so that readers never see a partial file."""

import errno
import hashlib
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from paraembed.io.fingerprint import json_bytes

log = logging.getLogger(__name__)

SUCCESS = "_SUCCESS"


def write_file(path: Path, write: Callable[[BinaryIO], object], *, overwrite: bool = True) -> str:
    """Write a file under a temporary name, flush it to disk, rename it into place; return its SHA-256, hexadecimal. The
    errors are those of ``check_file``, before and after the writing.
    """
    check_file(path, overwrite=overwrite)
    temporary = hidden_name(path, "tmp")
    try:
        with temporary.open("w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        check_file(path, overwrite=overwrite)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return digest


def check_file(path: Path, *, overwrite: bool = True) -> None:
    """Raise ValueError or IsADirectoryError unless a path is new, or with ``overwrite`` a regular file. As root, a
    rename would replace even ``/dev/null`` or the link ``/dev/stdout``.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise NotADirectoryError(f"{path.parent} is a file; give a path in a folder") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; give the path of a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is a link, FIFO, socket or device, which is not replaced; give the path of a file")
    if not overwrite:
        raise FileExistsError(f"{path} already exists; choose another `out`, or replace it with `overwrite`")


def check_new(path: Path) -> None:
    """Raise FileExistsError unless a path is an empty folder, or new."""
    if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} already exists and is not an empty folder; choose another `out`")


def any_content(path: Path) -> None:
    """Allow the content of a path, which is the job's own, to be replaced."""


def write_json(path: Path, value: Any) -> str:
    """Write a value as indented JSON, atomically; return the SHA-256 of the file, hexadecimal."""
    return write_file(path, lambda file: file.write(json_bytes(value)))


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: Path, check: Callable[[Path], object] = check_new) -> Iterator[Path]:
    """Create a folder that appears under its name only when the block ends without an error.

    ``check`` raises an error if what is at ``path`` must not be replaced; it is called before the block, and again when
    the folder is complete. The folder is built under a unique name, so that no other folder is ever emptied. Temporary
    folders of killed processes are removed.
    """
    check(path)
    _remove_leftovers(path)
    temporary = hidden_name(path, "tmp")
    temporary.mkdir(parents=True)
    handle = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: then no other process removes leftovers, either
            lock_file(handle)
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        sync_folder(temporary)
        replace_folder(temporary, path, hidden_name(path, "old"), check)
    finally:
        os.close(handle)
        shutil.rmtree(temporary, ignore_errors=True)


def hidden_name(path: Path, suffix: str) -> Path:
    """Return a unique hidden name next to a path. It does not contain the process id, which repeats between
    containers.
    """
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.{suffix}")


def _remove_leftovers(path: Path) -> None:
    """Remove the hidden folders that killed ``new_folder(path)`` calls left behind: those without a held lock."""
    hidden = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    for folder in path.parent.iterdir() if path.parent.is_dir() else ():
        if not hidden.fullmatch(folder.name):
            continue
        with suppress(OSError):  # held, or gone
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                lock_file(handle)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def replace_folder(new: Path, path: Path, old: Path, check: Callable[[Path], object]) -> None:
    """Rename the folder ``new`` to ``path``; the previous content is first renamed to ``old``, then removed.

    ``check`` raises an error if what is at ``path`` must not be replaced. Raise OSError if ``old`` exists and is not
    empty, or if another program creates or replaces ``path`` meanwhile; nothing was changed.
    """
    before = path.lstat() if os.path.lexists(path) else None
    check(path)
    if before is not None:
        path.rename(old)
        if not os.path.samestat(before, old.lstat()):
            old.rename(path)
            raise FileExistsError(f"{path} was replaced by another program; choose another `out`")
    new.rename(path)  # fails if another program has put files there
    sync_folder(path.parent)
    if old.is_symlink():
        old.unlink()  # only the link: its target belongs to somebody else
    else:
        shutil.rmtree(old, ignore_errors=True)


def foreign_file(folder: Path, own: re.Pattern[str]) -> Path | None:
    """Return the first file below a folder whose path in it does not match ``own``; None if all match."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    return next((path for path in files if not own.fullmatch(path.relative_to(folder).as_posix())), None)


@contextmanager
def locked(folder: Path, *, make: bool = False) -> Iterator[None]:
    """Lock a folder for the length of the block; the lock ends with the process. With ``make``, create a missing
    folder.

    The lock is a file next to the folder, as for ``work_folder``, and the folder itself. Raise ValueError if another
    run holds the lock, FileNotFoundError if the folder does not exist.
    """
    folder = folder.absolute()
    if make:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; check the path")
    with _lock_file(folder), _locked_directory(folder, make=make):
        yield


@contextmanager
def _locked_directory(folder: Path, *, make: bool = False) -> Iterator[None]:
    """Lock a folder itself, as versions without a lock file do. On NFS, only processes of this machine see the lock."""

    def open_folder() -> int:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    handle = lock_path(folder, open_folder, folder)
    try:
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool | None:
    """Return whether another process holds the lock of a folder; None if that cannot be seen. For some microseconds,
    this process holds the lock.
    """
    lock = _lock_name(folder.absolute())
    for path, flags in ((lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), (folder, os.O_RDONLY | os.O_DIRECTORY)):
        try:
            handle = os.open(path, flags)
        except FileNotFoundError:  # its holder would have made it, or cannot write to the parent
            continue
        except OSError:
            return None
        try:
            lock_file(handle)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(handle)
    return False


def lock_file(handle: int, *, waits: bool = False) -> None:
    """Lock a descriptor until it is closed. Raise BlockingIOError if it is locked and the caller does not wait, another
    OSError if the system or the file system has no such locks: Windows has no ``fcntl``.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where encoders can be loaded
    except ImportError:
        raise OSError(errno.ENOLCK, "this system has no module fcntl") from None
    fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def lock_path(path: Path, open_path: Callable[[], int], folder: Path) -> int:
    """Open and lock a path, for work in ``folder``; return the descriptor that holds the lock.

    Between opening and locking, another run may remove or replace the path. A lock on the old file protects nothing, so
    the path is opened again. Raise ValueError if another run holds the lock.
    """
    while True:
        handle = open_path()
        try:
            lock_file(handle)
        except BlockingIOError:
            os.close(handle)
            raise ValueError(f"another run is writing to {folder}; wait for it, or stop it") from None
        except OSError as error:
            log.warning("%s cannot be locked (%s); make sure that no other run writes to it", folder, error.strerror)
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


@contextmanager
def work_folder(path: Path) -> Iterator[None]:
    """Lock a work folder for the length of the block; a missing folder is created, and an empty one is removed at the
    end.

    The lock is a file next to the folder, ``.NAME.lock``: only its holder may create, fill, empty or remove the folder,
    and removes the file before it releases the lock. If the parent is read-only, nobody can remove the folder, and a
    lock on the folder is enough. Raise ValueError if another run holds the lock, or the path is a file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(path):
        try:
            path.mkdir(exist_ok=True)
        except FileExistsError:
            raise ValueError(
                f"{path} is a file or a broken link, but unfinished work needs a folder there; move it away"
            ) from None
        try:
            with _locked_directory(path):
                yield
        finally:
            with suppress(OSError):  # not empty, or gone
                path.rmdir()


def _lock_name(folder: Path) -> Path:
    return folder.with_name(f".{folder.name.removeprefix('.')}.lock")


@contextmanager
def _lock_file(folder: Path) -> Iterator[None]:
    """Lock the file ``.NAME.lock`` next to a folder. It is opened for writing, because NFS has no lock on a folder, or
    on a file that is open for reading. If the parent is read-only, nothing is locked.
    """
    if not folder.name or not os.access(folder.parent, os.W_OK):
        yield
        return
    path = _lock_name(folder)

    not_ours = ValueError(f"{path} is not an empty file, so it is not the lock file of a job; move it away")

    def open_file() -> int:
        if path.is_symlink() or path.is_dir():
            raise not_ours
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size:
            os.close(handle)
            raise not_ours
        return handle

    handle = lock_path(path, open_file, folder)
    try:
        yield
    finally:
        with suppress(OSError):  # while the lock is held: a process that opened the file meanwhile tries again
            path.unlink()
        os.close(handle)
