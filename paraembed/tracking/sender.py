"""Thread that sends the records of a file to MLflow, in order.

If the store does not answer, the thread retries every few seconds; what it cannot send stays in the file. MLflow is
imported when a job has run for some seconds. At the end of the job a process of its own sends what is left, so that
nobody waits for it; where such a process would be ended with the job, the job waits.
"""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraembed.console import doing
from paraembed.io.places import in_submitted_job, without_credentials
from paraembed.process import on_cluster
from paraembed.tracking.place import StorePlace
from paraembed.tracking.records import SUFFIX, Opening, RecordFile, record_path

if TYPE_CHECKING:
    from paraembed.tracking.store import TrackingStore

_BEFORE_SECONDS = 10.0  # before MLflow is imported, which would take time from a short job
_PROMPT_SECONDS = 1.0  # that a user waits for MLflow at the end
_BATCH_JOBS = ("CI", "JENKINS_URL", "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_WAITED_FOR = ("PARAEMBED_WAIT_FOR_MLFLOW", *_BATCH_JOBS)
_BACKGROUND = """
import sys
sys.path.append(sys.argv[2])
from paraembed.tracking.background import main
main(sys.argv[1])
"""
_IDLE_SECONDS = 1.0  # between looks at the file, which other processes append to
_PAUSE_SECONDS = 10.0  # between tries while the store does not answer
_LAST_TRIES = 3  # at the end of the job
_LAST_SECONDS, _STOPPED_SECONDS = 60.0, 10.0  # without success at the end of the job; a file may take longer
_METRICS = 500  # a call: 0.07-0.35 ms each in a batch, 6 ms each alone (SQLite)
# Errors of the record; with any other code the store may take it later.
_REJECTIONS = {
    *("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE", "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"),
    *("NOT_FOUND", "NOT_IMPLEMENTED", "MALFORMED_REQUEST", "MAX_BLOCK_SIZE_EXCEEDED"),
}

log = logging.getLogger(__name__)


class _AwayError(Exception):
    """Error for a store that is temporarily unavailable."""


def is_waited_for() -> bool:
    """Return whether a job waits at its end until MLflow has its records: on a cluster, in a container or a batch job,
    where all processes end with the job, and if PARAEMBED_WAIT_FOR_MLFLOW is set.
    """
    is_last = 1 in {os.getpid(), os.getppid()}
    is_set = any(os.environ.get(name, "") not in {"", "0", "false"} for name in _WAITED_FOR)
    return is_last or is_set or on_cluster() or in_submitted_job()


class Sender:
    """A thread that sends the records of a file to a store; without ``waits``, a process sends what is left at the end.

    Attributes:
        ids: the ids of runs in the store, by their keys, as soon as the store has answered.
    """

    def __init__(self, file: RecordFile, place: StorePlace, *, waits: bool) -> None:
        """Begin to send; ``waits``: at once, and the end of the job waits for the store."""
        self.file, self.place, self._waits = file, place, waits
        self.store: TrackingStore | None = None
        self.ids: dict[str, str] = {}
        self._opening: Opening | None = None  # of the run that the records are of
        self._offset = self._sent = 0  # bytes of the file that were read; before which the store has everything
        for end, kind, value in file.read():
            match kind, value:
                case "sent", [int(offset), place.shown] if offset < end:
                    self._sent = offset
        self._later: list[tuple[int, Opening, str, Any]] = []  # what failed by itself, each with its offset and run
        self._closing = threading.Event()
        self._is_away, self._is_done, self._is_abandoned = False, False, False
        self._success, self._sending = time.monotonic(), ""
        self._thread = threading.Thread(target=self._run, name="MLflow", daemon=True)
        self._thread.start()

    def finish(self, *, is_stopped: bool = False) -> bool:
        """Send the remaining records and remove the file; if the store does not accept them, log where the file is
        kept. Return whether the store has all of them.

        If the job ``is_stopped``, the user is waiting for its end, so an unavailable store is given up soon.
        """
        if not self._waits and not self._is_needed_now():
            return self._finish_later()
        self._waits = True
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
        path = self.file.path
        if self._is_done:
            path.unlink(missing_ok=True)
        elif path.exists():  # not removed by anybody
            again = ", or run the same command again" if path == record_path(self.file.out) else ""
            log.warning(
                "MLflow at %s does not have all records of this job, which are kept in %s; send them with paraembed "
                "log %s%s",
                *(self.place.shown, path, str(path).removesuffix(SUFFIX), again),
            )
        return self._is_done

    def _is_needed_now(self) -> bool:
        """Return whether records must be sent before the job ends: the next job may ask for a model that this one
        registers, and files that are not in the output, or next to it, may be temporary.
        """
        folder = self.place.out.absolute()
        paths = [
            (kind, Path(value[0])) for _, kind, value in self.file.read(self._sent) if kind in {"artifacts", "model"}
        ]
        return any(
            kind == "model" or not (path.is_relative_to(folder) or path.parent == folder.parent) for kind, path in paths
        )

    def _finish_later(self) -> bool:
        """Send the remaining records, or leave them to another process if that takes longer than a second."""
        self._closing.set()
        try:
            self._thread.join(_PROMPT_SECONDS)
        finally:
            self._is_abandoned = True
        path = self.file.path
        if self._is_done:
            path.unlink(missing_ok=True)
        elif path.exists():
            try:
                _start_process(path)
                log.info("records for MLflow at %s are sent in the background, from %s", self.place.shown, path)
            except OSError as error:
                log.warning("records for MLflow are kept in %s, because no process can be started: %s", path, error)
        return self._is_done

    def _run(self) -> None:
        if not self._waits and "mlflow" not in sys.modules:
            self._closing.wait(_BEFORE_SECONDS)
            if self._closing.is_set() and not self._waits:
                return
        from paraembed.tracking.store import TrackingStore  # noqa: PLC0415 - imports MLflow

        self.store = TrackingStore(self.place.out)
        tries = 0
        while not self._is_abandoned and tries < _LAST_TRIES:
            is_closing = self._closing.is_set()  # asked first: what was appended before is in this pass
            is_done = self._pass()
            if not is_closing:
                self._closing.wait(_IDLE_SECONDS if is_done else _PAUSE_SECONDS)
            elif is_done:
                if self.store.address:
                    log.info("runs in MLflow: %s", self.store.address)
                self._is_done = True
                return
            else:
                tries += 1
                time.sleep(0.25 * 2**tries)

    def _pass(self) -> bool:
        """Send what failed by itself before, and the new records; return whether the store has everything."""
        is_sent = False
        try:
            for item in [*self._later]:
                if self._is_taken(*item[1:]):
                    self._later.remove(item)
                    is_sent = True
            for end, kind, value in _merged(self.file.read(self._offset)):
                if kind == "open":
                    self._opening = value
                if end > self._sent and kind != "sent" and self._opening is not None:
                    if not self._is_taken(self._opening, kind, value):
                        self._later.append((self._offset, self._opening, kind, value))
                    is_sent = True
                self._offset = end
        except (_AwayError, OSError) as error:
            self._say_away(error)
            return False
        finally:
            self._sending = ""
            offset = min([self._offset, *(item[0] for item in self._later)])
            if offset > self._sent and is_sent and not self._is_abandoned:
                self._sent = offset
                self.file.append("sent", [offset, self.place.shown])
        if self._is_away and not self._later:
            log.warning("MLflow at %s is reachable again; buffered records were sent", self.place.shown)
            self._is_away = False
        return not self._later

    def _say_away(self, error: Exception) -> None:
        if not self._is_away and not self._is_abandoned:
            log.warning(
                "MLflow at %s does not answer (%s); the job continues, and its records are buffered in %s",
                *(self.place.shown, in_a_line(error), self.file.path),
            )
        self._is_away = True

    def _is_taken(self, opening: Opening, kind: str, value: Any) -> bool:
        """Send one record; return False if it is to be sent later, although the store takes other records.

        A record that the store rejects is named in a message, and counts as sent. Raise _AwayError if the store is
        temporarily unavailable.
        """
        if self._is_abandoned or self.store is None:
            raise _AwayError
        key, self._sending = opening["key"], kind
        try:
            if key not in self.ids or kind == "open":
                self.ids[key] = self.store.open(opening)
            if kind != "open":
                self.store.send(self.ids[key], kind, value)
        except Exception as error:
            if self._is_abandoned or key not in self.ids or not self.store.probe(self.ids[key], key):
                raise _AwayError(in_a_line(error)) from error
            if not _is_rejection(error):
                self._say_away(error)
                return False
            if kind in {"params", "tags", "metrics"} and len(value) > 1:
                half = len(value) // 2
                return self._is_taken(opening, kind, value[:half]) and self._is_taken(opening, kind, value[half:])
            log.warning("MLflow rejects %s %.100r (%s)", kind, value, in_a_line(error))
        self._success = time.monotonic()
        return True


def _start_process(path: Path) -> None:
    """Start a process that sends the records of a file, and outlives this one; what it says goes to ``log_path``."""
    with os.fdopen(os.open(log_path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as output:
        subprocess.Popen(  # noqa: S603 - our own code; -P: no module of the working folder is imported
            [sys.executable, "-P", "-c", _BACKGROUND, str(path), str(Path(__file__).parents[2])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )


def log_path(path: Path) -> Path:
    """Return the file for the messages of the process that sends the records of a file."""
    return Path(f"{str(path).removesuffix(SUFFIX)}.mlflow.log")


def in_a_line(error: BaseException) -> str:
    """Return the first line of an error, without passwords, for messages."""
    return without_credentials(str(error).strip()).split("\n")[0][:300]


def _is_rejection(error: Exception) -> bool:
    """Return whether the error is caused by the record itself, so that a retry would not help."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - imported by now

    from paraembed.tracking.store import STORE_ERRORS  # noqa: PLC0415

    if isinstance(error, MlflowException):
        return error.error_code in _REJECTIONS
    return not isinstance(error, STORE_ERRORS)


def _merged(records: Iterator[tuple[int, str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """Yield the same records, with those of metrics merged into batches."""
    batch: list[Any] = []
    end = 0
    for record in records:
        is_metrics = record[1] == "metrics" and isinstance(record[2], list)
        if batch and not (is_metrics and len(batch) + len(record[2]) <= _METRICS):
            yield end, "metrics", batch
            batch = []
        if is_metrics:
            end, batch = record[0], batch + record[2]
        else:
            yield record
    if batch:
        yield end, "metrics", batch
