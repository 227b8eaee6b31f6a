"""One MLflow run per job. Records go to a file next to the job's output, and from there to the store.

If the store does not answer, the job continues with a warning. A thread sends the records when the store is reachable
again, and a process in the background those that are left when a job ends; otherwise the next run of the same command
or ``paraembed log`` does. ``tracking.records`` has the run that a job
logs to and its file, ``tracking.sender`` the thread.
"""

import logging
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TypedDict
from uuid import uuid4

from paraembed.console import doing
from paraembed.io.atomic import lock_path, write_json
from paraembed.io.fingerprint import read_json
from paraembed.io.places import without_credentials
from paraembed.options import Count
from paraembed.process import mlflow_is_quiet, versions
from paraembed.signals import STOPPED, last_act
from paraembed.tracking.place import EXPERIMENT, StorePlace, labels
from paraembed.tracking.records import ID, Opening, RecordFile, Run, now, record_path, tags_of
from paraembed.tracking.sender import Sender, is_waited_for, log_path

log = logging.getLogger(__name__)
_enclosing: ContextVar[Run | None] = ContextVar("run", default=None)
_closers: list[Callable[[str], None]] = []  # of the open runs: record the end with a status


TEMPORARY = "paraembed-mlflow-"
"""Beginning of the names of folders for the records of jobs that cannot write them next to their output."""
_GIT_SECONDS = 5.0
_SENDER_SECONDS, _SENDER_PAUSE_SECONDS = 20.0, 0.1  # for the process that sends the records of the job before


class _Start(TypedDict):
    """Memo of a run: its key, and when it began, in milliseconds since 1970."""

    key: str
    start: Count


@contextmanager
def tracked_run(name: str, out: Path, memo: Path | None = None) -> Iterator[Run]:
    """Open an MLflow run for the length of the block; it is closed as FINISHED, FAILED or KILLED.

    Its records are buffered in ``<out>.mlflow.jsonl``, which is removed once they are sent. Records of an earlier job
    in this file are sent first. A run inside the block of another one becomes its child. The file ``memo`` has the key
    of the run, by which a resumed job also resumes its run.
    """
    with mlflow_is_quiet(), held_records(out) as file:
        place, enclosing = StorePlace(out), _enclosing.get()
        place.check()
        is_resumed, opening = bool(memo and memo.exists()), _opening(name, memo, enclosing)
        _close_left(file, "KILLED")
        file.append("open", opening)
        file.started = opening["start"]
        # Two processes would both create the enclosing run.
        sender = Sender(file, place, waits=enclosing is not None or is_waited_for())
        run = Run(file, sender.ids, opening)
        if is_resumed:  # a new run is created with them
            run.tags(dict(opening["tags"]))
        token = _enclosing.set(run)
        status = ""

        def close(how: str) -> None:
            nonlocal status
            if not status:
                status = how
                file.append("end", [status, now()])

        def end(how: str) -> None:
            close(how)
            sender.finish(is_stopped=status == "KILLED")

        def end_now(exit_status: int) -> None:
            how = "KILLED" if exit_status == STOPPED else "FAILED"
            for close_run in [*_closers]:  # all before any is sent, for which there may be no time
                close_run(how)
            end(how)

        _closers.append(close)
        with last_act(end_now):
            try:
                yield run
            except KeyboardInterrupt:
                end("KILLED")
                raise
            except BaseException:
                end("FAILED")
                raise
            else:
                end("FINISHED")
            finally:
                _closers.remove(close)
                _enclosing.reset(token)


def send_left(out: Path, status: str = "FINISHED", *, waits: bool | None = None, shows: bool = True) -> bool:
    """Send the records that an earlier job with this output could not send; return whether MLflow has all of them.

    A run that a killed job left open ends with ``status``, by default that of a job whose output is complete. Unless
    the caller ``waits`` (None: see ``is_waited_for``), another process sends them. ``shows``: log its
    earlier messages.
    """
    path, waits = record_path(out), is_waited_for() if waits is None else waits
    if not path.is_file():
        return True
    handle = _locked(path, _SENDER_SECONDS if waits else 0)
    if handle is None:  # a job is writing it, or a process sends it
        return False
    try:
        with mlflow_is_quiet():
            if shows:
                _show_messages(path)
            file = RecordFile(out, path)
            _close_left(file, status)
            return Sender(file, StorePlace(out), waits=waits).finish()
    finally:
        os.close(handle)


@contextmanager
def held_records(out: Path) -> Iterator[RecordFile]:
    """Open and lock the file of an output's records for the length of the block.

    If another job has locked it, or its folder is not writable, a temporary file is used instead. The process that
    sends the records of a job that has ended is waited for.
    """
    path = home = record_path(out)
    handle = _locked(path, _SENDER_SECONDS)
    if handle is not None:
        _show_messages(path)
    else:
        path = Path(tempfile.mkdtemp(prefix=TEMPORARY)) / path.name[-100:]
        log.warning("records for MLflow go to %s, because %s cannot be written or is in use", path, home)
        handle = _open_locked(path)
    try:
        yield RecordFile(out, path)
    finally:
        os.close(handle)
        if path != home:
            with suppress(OSError):  # it stays where it holds what MLflow has not got
                path.parent.rmdir()


def _locked(path: Path, seconds: float) -> int | None:
    """Return a locked file of records, after seconds of waiting for its sender; None if another job has it."""
    deadline, is_sent = time.monotonic() + seconds, None
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return _open_locked(path)
        except (OSError, ValueError):
            is_sent = _last_kind(RecordFile(path, path)) == "end" if is_sent is None else is_sent
            if time.monotonic() >= deadline or not is_sent:
                return None
        doing("waiting for the process that sends earlier records to MLflow")
        time.sleep(_SENDER_PAUSE_SECONDS)


def _show_messages(path: Path) -> None:
    """Log the messages of the process that sent earlier records of a file."""
    messages = log_path(path)
    with suppress(OSError):
        for line in messages.read_text(errors="replace").splitlines():
            log.warning("earlier records for MLflow: %s", line)
        messages.unlink()


def _open_locked(path: Path) -> int:
    return lock_path(path, lambda: os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), path)


def _opening(name: str, memo: Path | None, enclosing: Run | None) -> Opening:
    """Return the start of a run: of the run in the memo, or of a new one, which is written to the memo."""
    start: _Start = {"key": "", "start": 0}
    try:
        start = read_json(memo, _Start) if memo and memo.exists() else start
    except (OSError, ValueError) as error:
        log.warning("%s; a new MLflow run is started", error)
    if not ID.fullmatch(start["key"]):
        start = {"key": uuid4().hex, "start": now()}
        try:
            if memo is not None:
                write_json(memo, start)
        except OSError as error:
            log.warning("%s cannot be written (%s), so a resumed job will start a new MLflow run", memo, error)
    chosen = labels.get()
    return {
        "key": start["key"],
        "name": without_credentials(name if enclosing else chosen.name or name),
        "start": start["start"],
        "tags": tags_of({**_lineage(), **chosen.tags}),
        "parent": enclosing.opening if enclosing else None,
        "experiment": chosen.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT,
    }


def _lineage() -> dict[str, str]:
    """Return user, job, command line, versions, and Git commit of the code, as tags that may have secrets."""
    tags = {
        "mlflow.user": os.environ.get("USER", str(os.getuid())),
        "mlflow.source.name": f"jobs/{Path(sys.argv[0]).name}",
        "command": f"{sys.argv[0]} {shlex.join(sys.argv[1:])}".strip(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    with suppress(OSError, subprocess.SubprocessError):  # no Git, or no repository
        package = Path(__file__).parents[1]
        git = ["git", "-C", str(package), "rev-parse", "--show-prefix", "HEAD"]
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS)  # noqa: S603
        prefix, commit = done.stdout.splitlines()
        if prefix == f"{package.name}/":  # else the repository is one in which this package is installed
            tags["mlflow.source.git.commit"] = commit
    return tags


def _close_left(file: RecordFile, status: str) -> None:
    """Close the run that a killed job left open, with the time of its last record."""
    if _last_kind(file) == "open":
        file.append("end", [status, int(file.path.stat().st_mtime * 1000)])


def _last_kind(file: RecordFile) -> str:
    """Return ``open`` or ``end``, whichever comes last in a file; empty without both, or without a file."""
    try:
        kinds = [kind for _, kind, _ in file.read() if kind in {"open", "end"}]
    except OSError:
        return ""
    return kinds[-1] if kinds else ""
