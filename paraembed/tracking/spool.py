"""Spool of MLflow records on disk, in order, until the store has them; any process of the job may append.

Each line is a JSON array ``[kind, value]``, appended by a single write, so a killed process loses at most its last
line. Only the driver reads the file, and it removes the file when the store has all records.
"""

import contextlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

from paraembed.io.atomic import lock_path
from paraembed.options import AnyFloat, checked

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpoolRecord:
    """One record."""

    end: int  # byte offset after the record in the file
    kind: str  # one of ``KINDS``
    value: Any


class AnySpool(Protocol):
    """What a run needs of its spool."""

    @property
    def started(self) -> int:
        """Start time of the last run, in milliseconds since 1970; 0 if there is none."""

    def append(self, kind: str, value: Any) -> None:
        """Append a record."""


class Spool:
    """File of MLflow records; the next job with the same output looks for it at ``home``, if that differs."""

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

    @property
    def started(self) -> int:
        """Start time of the last run, before any interruption; see ``AnySpool``."""
        starts = [int(record.value["start"]) for record in self.read() if record.kind == "open"]
        return starts[-1] if starts else 0

    def size(self) -> int:
        """Size of the file in bytes; 0 if it is missing."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self, start: int = 0) -> Iterator[SpoolRecord]:
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


def decoded(data: bytes, start: int) -> Iterator[SpoolRecord | None]:
    """Yield the records of a part of a spool that begins at byte ``start``; None for a line that is not a record.

    A last line without a line end is left for the next call.
    """
    end = start
    for line in data.split(b"\n")[:-1]:
        end += len(line) + 1
        if line.strip():
            yield _decode(line, end)


def _decode(line: bytes, end: int) -> SpoolRecord | None:
    try:
        kind, value = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    return SpoolRecord(end, kind, value) if is_record(kind, value) else None


def is_record(kind: Any, value: Any) -> bool:
    """Return whether a value is one of a kind of records."""
    for hint in KINDS.get(kind, ()) if isinstance(kind, str) else ():
        with contextlib.suppress(ValueError):
            checked(hint, value, "record")
            return True
    return False


_Pair = tuple[str, str]
_Metric = tuple[str, int | AnyFloat, int, int]  # an integer fits in 64 bits, as in a store's tables


class _Opening(TypedDict):
    key: str
    name: str
    start: int
    tags: list[_Pair]
    run_id: str | None
    parent: str | None


class _Trial(TypedDict):
    number: str
    name: str
    start: int
    end: int
    status: str
    tags: list[_Pair]
    params: list[_Pair]
    metrics: list[_Metric]


KINDS: dict[str, tuple[Any, ...]] = {
    "open": (_Opening,),
    "opened": (tuple[str, str, str],),
    "resume": (str,),
    "sent": (int,),
    "again": (tuple[str, str, Any],),
    "params": (list[_Pair],),
    "tags": (list[_Pair],),
    "dataset": (tuple[str, str, str, str, str, str], tuple[str, str, str, str]),
    "metrics": (list[_Metric],),
    "artifacts": (tuple[str, str | None, str | None], tuple[str, str | None]),
    "model": (tuple[str, str, str, str, list[_Pair]],),
    "link": (tuple[str, str, str],),
    "child": (str,),
    "trial": (_Trial,),
    "end": (tuple[str, int], str),
}
"""Kinds of records in a file, each with the types that its value may have. ``open`` starts the records of a run,
``opened`` gives its id in the store, ``sent`` the offset up to which records are processed, and ``again`` is a record
(run, kind, value) that the store did not accept when it was sent first.
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
    with contextlib.suppress(ValueError):
        return lock_path(path, lambda: os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), path)
    return None
