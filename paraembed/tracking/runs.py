"""One MLflow run per job. Records go to a file next to the job's output, and from there to the store.

If the store does not answer, the job continues with a warning. A thread sends the records when the store is reachable
again; otherwise the next run of the same command does. ``tracking.records`` has the run that a job logs to,
``tracking.spool`` the file, ``tracking.sender`` the thread.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

from paraembed.io.fingerprint import read_json
from paraembed.io.places import without_credentials
from paraembed.process import mlflow_is_quiet
from paraembed.stops import STOPPED, last_act
from paraembed.tracking.records import Run, now
from paraembed.tracking.sender import Sender, last_run, write_memo
from paraembed.tracking.spool import Spool, held_spool, spool_path
from paraembed.tracking.store import PARENT, TrackingStore

_ID = re.compile(r"[0-9a-f]{32}")  # of a run, MLflow's and paraembed's

log = logging.getLogger(__name__)
_enclosing: ContextVar[Run | None] = ContextVar("run", default=None)


@contextmanager
def tracked_run(name: str, out: Path, memo: Path | None = None) -> Iterator[Run]:
    """Open an MLflow run for the length of the block; it is closed as FINISHED, FAILED or KILLED.

    Its records are buffered in ``<out>.mlflow.jsonl``, which is removed once they are sent. Records of an earlier job
    in this file are sent first. A run inside the block of another one becomes its child. The file ``memo`` has the id
    of the run, so that a resumed job also resumes its run.
    """
    enclosing = _enclosing.get()
    with mlflow_is_quiet(), held_spool(out) as spool:
        store = TrackingStore(out)
        store.check()
        key, is_new = _begin(spool, store, name, memo, enclosing)
        sender = Sender(spool, store, memo, key if is_new else "")
        run = Run(spool.path, sender, key)
        token = _enclosing.set(run)
        status = ""

        def end(how: str) -> None:
            nonlocal status
            if not status:
                status = how
                spool.append("end", [status, now()])
            sender.finish(is_stopped=status == "KILLED")

        with last_act(lambda exit_status: end("KILLED" if exit_status == STOPPED else "FAILED")):
            try:
                sender.start()
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
                _enclosing.reset(token)
                if enclosing is not None and enclosing.run_id is None:
                    enclosing.adopt(key)  # it could not be named as the parent


def send_left(out: Path) -> None:
    """Send the records that an earlier job with this output, now complete, could not send."""
    if not spool_path(out).is_file():
        return
    with mlflow_is_quiet(), held_spool(out) as spool:
        if spool.path != spool.home:  # a job is writing it
            return
        store = TrackingStore(out)
        if _close_left(spool, "FINISHED") and not _is_elsewhere(spool, store):
            sender = Sender(spool, store)
            sender.start()
            sender.finish()


def _begin(spool: Spool, store: TrackingStore, name: str, memo: Path | None, enclosing: Run | None) -> tuple[str, bool]:
    """Append the start or continuation of a run; return its key, and whether the run is new."""
    if _is_elsewhere(spool, store):
        _move_aside(spool)
    remembered = _remembered(memo, store)
    records = list(spool.read())
    last = last_run(records)
    ids = {record.value[0]: record.value[1] for record in records if record.kind == "opened"}
    # A run that was never opened has no id, and neither has its memo: two outputs may share a spool.
    if last and remembered and (last == remembered.get("key") or ids.get(last, "") == remembered.get("run_id")):
        spool.append("resume", last)
        return last, False
    _close_left(spool, "KILLED")
    key = remembered.get("key") or uuid4().hex
    parent = enclosing.run_id if enclosing else None
    tags = {
        "mlflow.user": os.environ.get("USER", str(os.getuid())),
        "mlflow.source.name": f"jobs/{Path(sys.argv[0]).name}",
        **({PARENT: parent} if parent else {}),
    }
    opening = {
        "key": key,
        "name": without_credentials(name),
        "start": remembered.get("start", now()),
        "tags": [list(pair) for pair in tags.items()],
        "run_id": remembered.get("run_id"),
        "parent": enclosing.key if enclosing and parent is None else None,
    }
    spool.append("open", opening)
    if remembered:
        spool.append("resume", key)
    elif memo is not None:
        write_memo(memo, {"uri": store.shown, "key": key, "start": opening["start"]})
    return key, not remembered


def _remembered(memo: Path | None, store: TrackingStore) -> dict[str, Any]:
    """Return a memo's entry for a run in this store; empty if it has none."""
    try:
        value = read_json(memo) if memo and memo.exists() else {}
    except (OSError, ValueError) as error:
        log.warning("%s; a new MLflow run is started", error)
        return {}
    if not isinstance(value, dict) or without_credentials(str(value.get("uri"))) != store.shown:
        return {}
    ids = {name: value[name] for name in ("run_id", "key") if _ID.fullmatch(str(value.get(name)))}
    start = value.get("start")
    is_time = isinstance(start, int) and not isinstance(start, bool) and 0 < start <= now()
    return ids | {"start": start} if ids and is_time else ids


def _close_left(spool: Spool, status: str) -> bool:
    """Close the run that a killed job left open, with the time of its last record; return whether there are records."""
    records = list(spool.read())
    kinds = [record.kind for record in records]
    begun = max((number for number, kind in enumerate(kinds) if kind in {"open", "resume"}), default=None)
    if begun is not None and "end" not in kinds[begun:]:
        spool.append("end", [status, int(spool.path.stat().st_mtime * 1000)])
    return bool(records)


def _is_elsewhere(spool: Spool, store: TrackingStore) -> bool:
    """Return whether the last run in a spool belongs to another store."""
    records = list(spool.read())
    last = last_run(records)
    stores = {record.value[0]: record.value[2] for record in records if record.kind == "opened"}
    return last in stores and stores[last] != store.shown


def _move_aside(spool: Spool) -> None:
    kept = spool.path.with_name(f"{spool.path.name}.{time.strftime('%Y%m%d-%H%M%S')}")
    kept.write_bytes(spool.path.read_bytes())
    os.truncate(spool.path, 0)
    log.warning("%s contains records for another MLflow store than MLFLOW_TRACKING_URI; they are kept there", kept)
