"""Thread that sends the records of a spool to MLflow, in order.

The job waits for the store only at its start and end. If the store does not answer, the thread retries every few
seconds.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException

from paraembed.console import doing
from paraembed.io.atomic import write_json
from paraembed.tracking.kept import keep_files, remove_copies, with_copy
from paraembed.tracking.spool import Spool, SpoolRecord, is_record
from paraembed.tracking.store import STORE_ERRORS, TrackingStore, in_a_line

_IDLE_SECONDS = 1.0  # between looks at the file, which other processes append to
_PAUSE_SECONDS = 10.0  # between tries while the store does not answer
_LAST_TRIES = 3  # at the end of the job, in a row without success
_LAST_SECONDS, _STOPPED_SECONDS = 60.0, 10.0  # without success at the end of the job; a file may take longer
_FIRST_SECONDS, _FIRST_SECONDS_HERE = 15.0, 120.0  # that a job waits for a server, a file, at its start
_ITEM_TRIES = 5  # of a record that fails by itself, with an error that may pass
_MOST_NAMED = 5  # records that are set aside, in messages
_METRICS = 500  # a call: 0.07-0.35 ms each in a batch, 6 ms each alone (SQLite)
# Errors of the record; with any other code the store may take it later.
_REFUSALS = {
    *("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE", "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"),
    *("NOT_FOUND", "NOT_IMPLEMENTED", "MALFORMED_REQUEST", "MAX_BLOCK_SIZE_EXCEEDED"),
}
# Errors of the store, however often: no right to write, too many requests.
_OF_THE_STORE = {
    *("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED", "TEMPORARILY_UNAVAILABLE"),
    *("REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED", "RESOURCE_LIMIT_EXCEEDED", "QUOTA_EXCEEDED"),
}

log = logging.getLogger(__name__)


class _AwayError(Exception):
    """Error for a store that is temporarily unavailable."""


class Sender:
    """A thread that sends the records of a spool to a store.

    The file ``memo``, if given, gets the id of the last run, for the next job. No earlier job can have created the run
    with the key ``new``.
    """

    def __init__(self, spool: Spool, store: TrackingStore, memo: Path | None = None, new: str = "") -> None:
        self.spool, self.store = spool, store
        self._memo, self._new = memo, new
        records = list(spool.read())
        self._offset = max((record.value for record in records if record.kind == "sent"), default=0)
        self._openings: dict[str, Any] = {
            record.value["key"]: record.value for record in records if record.kind == "open"
        }
        self._ids: dict[str, str] = {record.value[0]: record.value[1] for record in records if record.kind == "opened"}
        sent = [record for record in records if record.end <= self._offset]
        self._key = last_run(sent) or next(filter(None, map(_run_of, records)), "")  # the first has what precedes it
        self._last = last_run(records)
        self._tries, self._num_refused, self._is_away = 0, 0, False
        self._looked, self._closing = threading.Event(), threading.Event()
        self._is_done, self._is_abandoned = False, False
        self._success, self._sending = time.monotonic(), ""
        self._thread = threading.Thread(target=self._run, name="MLflow", daemon=True)

    @property
    def run_id(self) -> str | None:
        """Id of the last run in the spool; None before the store has answered."""
        return self._ids.get(self._last)

    def start(self) -> None:
        """Start sending; the job waits briefly for the records that already exist."""
        self._thread.start()
        self._looked.wait(_FIRST_SECONDS_HERE if self.store.uri.startswith("sqlite") else _FIRST_SECONDS)

    def finish(self, *, is_stopped: bool = False) -> None:
        """Send the remaining records and remove the file; if the store does not accept them, log where the file is
        kept.

        If the job ``is_stopped``, the user is waiting for its end, so an unavailable store is given up soon.
        """
        doing("sending the last records to MLflow")
        self._success, seconds = time.monotonic(), _STOPPED_SECONDS if is_stopped else _LAST_SECONDS
        self._closing.set()
        try:
            while self._thread.is_alive():
                self._thread.join(0.1)
                if time.monotonic() - self._success > seconds * (30 if self._sending in {"artifacts", "model"} else 1):
                    break
        finally:  # a second stop, too
            self._is_abandoned = True
        doing("")
        if self._is_done:
            remove_copies(self.spool)
            self.spool.path.unlink(missing_ok=True)
        else:
            if self.spool.size():  # not removed by anybody
                keep_files(self.spool, self._offset)
            move = "" if self.spool.path == self.spool.home else f" once the file is moved to {self.spool.home}"
            log.warning(
                "MLflow at %s did not answer by the end of the job; its records are kept in %s: the same command "
                "sends them%s",
                *(self.store.shown, self.spool.path, move),
            )

    def _run(self) -> None:
        failures, before, last = 0, -1, -1
        while not self._is_abandoned:
            is_closing = self._closing.is_set()  # asked first: what was appended before is in this pass
            if is_closing and last < 0:
                last = self.spool.size()  # later records are retries of failed ones; sending them is no progress
            try:
                is_done = self._pass()
            finally:
                self._looked.set()
            if is_closing:
                failures = 1 if before < min(self._offset, last) else failures + 1
                before = self._offset
                if is_done or failures >= _LAST_TRIES:
                    self._is_done = is_done
                    return
                time.sleep(0.25 * 2**failures)
            else:
                self._closing.wait(_IDLE_SECONDS if is_done else _PAUSE_SECONDS)

    def _pass(self) -> bool:
        """Send the current records of the spool; return whether all were sent."""
        is_sent, self._num_postponed = False, 0
        if self.spool.size() < self._offset:  # the file was removed, and a new one begun
            self._offset = 0
        try:
            for record in _merged(self.spool.read(self._offset)):
                if self._is_abandoned:
                    return False
                before = self._num_postponed
                self._take(record)
                is_sent |= record.kind not in {"sent", "opened"}
                self._offset, self._tries = record.end, 0
                if self._num_postponed == before:
                    self._success = time.monotonic()
        except (_AwayError, OSError) as error:
            self._say_away(error)
            return False
        finally:
            self._sending = ""
            if is_sent and not self._is_abandoned:
                self.spool.append("sent", self._offset)
        if self._is_away and not self._num_postponed and not self._is_abandoned:
            log.warning("MLflow at %s is reachable again; buffered records were sent", self.store.shown)
            self._is_away = False
        return not self._num_postponed

    def _say_away(self, error: Exception) -> None:
        if not self._is_away and not self._is_abandoned:
            log.warning(
                "MLflow at %s does not answer (%s); the job continues, and its records are buffered in %s",
                *(self.store.shown, in_a_line(error), self.spool.path),
            )
        self._is_away = True

    def _take(self, record: SpoolRecord) -> None:
        """Send one record, or set it aside; raise _AwayError if the store is temporarily unavailable."""
        kind, value, key = record.kind, record.value, self._key
        if kind in {"sent", "opened"}:
            return
        if kind == "open":
            self._openings[value["key"]] = value
        if kind in {"open", "resume"}:
            self._key = self._last = key = _run_of(record)
        if kind == "again":
            key, kind, value = value
        self._sending = kind
        if key not in self._openings or not is_record(kind, value):
            self._set_aside(kind, value, "it belongs to no run")
            return
        self._ensure(key)
        if kind != "open":
            self._send(key, kind, value)

    def _ensure(self, key: str) -> None:
        """Open a run unless it is already open."""
        if key in self._ids:
            return
        is_new, self._new = key == self._new, ""  # after an error it may have been made all the same
        try:
            run = self.store.open(self._openings[key], is_new=is_new)
        except Exception as error:
            raise _AwayError(in_a_line(error)) from error
        self._ids[key] = run
        self.spool.append("opened", [key, run, self.store.shown])
        if self._memo is not None and key == self._last:
            start = self._openings[key]["start"]
            write_memo(self._memo, {"uri": self.store.shown, "run_id": run, "key": key, "start": start})

    def _send(self, key: str, kind: str, value: Any) -> None:
        try:
            self.store.send(self._ids[key], kind, with_copy(self.spool, kind, value))
        except Exception as error:
            if self._is_abandoned or not self._answers(key, error):
                raise _AwayError(in_a_line(error)) from error
            if not _is_refusal(error):
                self._postpone(key, kind, value, error)
            elif isinstance(value, list) and kind in {"params", "tags", "metrics"} and len(value) > 1:
                half = len(value) // 2
                self._send(key, kind, value[:half])
                self._send(key, kind, value[half:])
            else:
                self._set_aside(kind, value, in_a_line(error))

    def _answers(self, key: str, error: Exception) -> bool:
        """Return whether a store that rejected a record accepts another one of its run; a deleted run is forgotten."""
        code = getattr(error, "error_code", "")
        if code in _OF_THE_STORE:
            return False
        if self.store.probe(self._ids[key], key):
            return True
        if code in _REFUSALS and self.store.is_gone(self._ids[key]):
            del self._ids[key]
        return False

    def _postpone(self, key: str, kind: str, value: Any, error: Exception) -> None:
        """After several tries, move a record behind the others; the files of a run may be in a separate store."""
        self._tries += 1
        if self._tries < (2 if self._closing.is_set() else _ITEM_TRIES):
            raise _AwayError(in_a_line(error)) from error
        self._num_postponed += 1
        self.spool.append("again", [key, kind, value])

    def _set_aside(self, kind: str, value: Any, reason: str) -> None:
        """Write a record that the store rejects to a separate file, and log the file's name."""
        path = self.spool.path.with_name(self.spool.path.name.removesuffix(".jsonl") + "-refused.jsonl")
        Spool(path).append(kind, [value, reason])
        self._num_refused += 1
        if self._num_refused <= _MOST_NAMED:
            name = value[0] if isinstance(value, list) and value else value
            name = name[0] if isinstance(name, list) and name else name
            log.warning("MLflow rejects %s %.100r (%s); it is kept in %s", kind, name, reason, path)
        elif self._num_refused == _MOST_NAMED + 1:
            log.warning("MLflow rejects more records; all of them are in %s", path)


def _is_refusal(error: Exception) -> bool:
    """Return whether the error is caused by the record itself, so that a retry would not help."""
    if isinstance(error, MlflowException):
        return error.error_code in _REFUSALS
    return not isinstance(error, STORE_ERRORS)


def _run_of(record: SpoolRecord) -> str:
    """Return the key of the run that starts with a record; empty if none does."""
    if record.kind == "open":
        return str(record.value["key"])
    return str(record.value) if record.kind == "resume" else ""


def last_run(records: Sequence[SpoolRecord]) -> str:
    """Return the key of the run of the last records; empty if there is none."""
    return next(filter(None, map(_run_of, reversed(records))), "")


def _merged(records: Iterable[SpoolRecord]) -> Iterator[SpoolRecord]:
    """Yield the same records, with those of metrics merged into batches."""
    waiting: SpoolRecord | None = None
    for record in records:
        if waiting is None:
            waiting = record
        elif waiting.kind == record.kind == "metrics" and len(waiting.value) + len(record.value) <= _METRICS:
            waiting = SpoolRecord(record.end, "metrics", waiting.value + record.value)
        else:
            yield waiting
            waiting = record
    if waiting is not None:
        yield waiting


def write_memo(memo: Path, value: Mapping[str, Any]) -> None:
    """Write the memo file of a run."""
    try:
        write_json(memo, value)
    except OSError as error:
        log.warning("%s cannot be written (%s), so a resumed job will start a new MLflow run", memo, error)
