"""Spool of MLflow records on disk, in order, until the store has them; any process of the job may append.

Each line is a JSON array ``[kind, value]``, appended by a single write, so a killed process loses at most its last
line. Only the driver reads the file, and it removes the file when the store has all records.
"""

import contextlib
import fcntl
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_LARGEST = 2**63 - 1  # of a number in a store's tables


@dataclass(frozen=True)
class Record:
    """One record.

    Attributes:
        end: byte offset after the record in the file.
        kind: one of ``KINDS``.
        value: value of the record.
    """

    end: int
    kind: str
    value: Any


class Spool:
    """File of MLflow records.

    Args:
        path: the file; its folder exists.
        home: where the next job with the same output looks for the file; None: at ``path``.
    """

    def __init__(self, path: Path, home: Path | None = None) -> None:
        self.path, self.home = path, home or path
        self._lock = threading.Lock()
        self._is_lost = self._is_damaged = False

    def append(self, kind: str, value: Any) -> None:
        """Append a record; on a disk error, warn once and continue, so that MLflow does not get the record."""
        line = (json.dumps([kind, value]) + "\n").encode()
        try:
            with self._lock:
                self._write(line)
        except OSError as error:
            if not self._is_lost:
                log.warning("%s cannot be written (%s); records for MLflow are lost", self.path, error)
            self._is_lost = True

    def _write(self, line: bytes) -> None:
        # Opened anew each time: on NFS that is when the size is asked for, which another machine may have changed.
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":  # a process was killed, or the disk was full
                line = b"\n" + line
            while line:
                line = line[os.write(handle, line) :]
        finally:
            os.close(handle)

    def size(self) -> int:
        """Size of the file in bytes; 0 if it is missing."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self, start: int = 0) -> Iterator[Record]:
        """Yield the complete records from byte ``start`` on; damaged lines are skipped, with one warning."""
        with self.path.open("rb") as file:
            file.seek(start)
            data = file.read()
        for record in decoded(data, start):
            if record is not None:
                yield record
            elif not self._is_damaged:
                log.warning("%s has damaged lines, probably from a killed process; they are skipped", self.path)
                self._is_damaged = True


def decoded(data: bytes, start: int) -> Iterator[Record | None]:
    """Yield the records of a part of a spool that begins at byte ``start``; None for a line that is not a record.

    A last line without a line end is left for the next call.
    """
    end = start
    for line in data.split(b"\n")[:-1]:
        end += len(line) + 1
        if line.strip():
            yield _decode(line, end)


def _decode(line: bytes, end: int) -> Record | None:
    try:
        kind, value = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(kind, str) or kind not in KINDS or not KINDS[kind](value):
        return None
    return Record(end, kind, value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Return whether a value is an integer within 64 bits, such as a step, a time or an offset."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _are(*checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check for a list with one value for each of ``checks``."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(item) for check, item in zip(checks, value, strict=True))
    )


def _each(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_optional_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or _is_number(value)


_PAIR = _are(_is_text, _is_text)
_METRIC = _are(_is_text, _is_float, _is_number, _is_number)


def _has(**checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check for an object with these keys."""
    return lambda value: (
        isinstance(value, dict) and all(key in value and check(value[key]) for key, check in checks.items())
    )


_OPENING = _has(
    key=_is_text, name=_is_text, start=_is_number, tags=_each(_PAIR), run_id=_is_optional_text, parent=_is_optional_text
)
_TRIAL = _has(
    number=_is_text,
    name=_is_text,
    start=_is_number,
    end=_is_number,
    status=_is_text,
    tags=_each(_PAIR),
    params=_each(_PAIR),
    metrics=_each(_METRIC),
)
_ARTIFACTS, _OLD_ARTIFACTS = _are(_is_text, _is_optional_text, _is_optional_text), _are(_is_text, _is_optional_text)
_END = _are(_is_text, _is_number)
KINDS: dict[str, Callable[[Any], bool]] = {
    "open": _OPENING,
    "opened": _are(_is_text, _is_text, _is_text),
    "resume": _is_text,
    "sent": _is_number,
    "again": _are(_is_text, _is_text, lambda value: value is not None),
    "params": _each(_PAIR),
    "tags": _each(_PAIR),
    "dataset": _are(_is_text, _is_text, _is_text, _is_text),
    "metrics": _each(_METRIC),
    "artifacts": lambda value: _ARTIFACTS(value) or _OLD_ARTIFACTS(value),
    "link": _are(_is_text, _is_text, _is_text),
    "child": _is_text,
    "trial": _TRIAL,
    "end": lambda value: _END(value) or _is_text(value),
}
"""Kinds of records in a file, each with a check of its value. ``open`` starts the records of a run, ``opened`` gives
its id in the store, ``sent`` the offset up to which records are processed, and ``again`` is a record (run, kind, value)
that the store did not accept when it was sent first.
"""


def spool_path(out: Path) -> Path:
    """Return the path of a job's records, next to its output."""
    return out.with_name(f"{out.name or 'out'}.mlflow.jsonl")


@contextmanager
def held_spool(out: Path) -> Iterator[Spool]:
    """Open and lock the spool of an output for the length of the block: a new one, or the one of an earlier job.

    If another job has locked it, or its folder is not writable, a temporary file is used instead.
    """
    path = home = spool_path(out)
    handle = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _hold(path)
    except OSError as error:
        log.warning("%s cannot be written (%s); records for MLflow go to a temporary file", path, error)
    if handle is None:
        path = Path(tempfile.mkdtemp(prefix="paraembed-mlflow-")) / path.name[-100:]
        handle = _hold(path)
    try:
        yield Spool(path, home)
    finally:
        if handle is not None:
            os.close(handle)
        if path != home:
            with contextlib.suppress(OSError):  # it stays where it holds what MLflow has not got
                path.parent.rmdir()


def _hold(path: Path) -> int | None:
    """Open and lock a file; return None if another process has locked it. The lock ends with the process."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # a file system without locks
            return handle
        try:
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:  # its holder removed it between the two calls
            pass
        os.close(handle)
