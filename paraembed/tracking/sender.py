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
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
_LAST_PAUSES = (0.5, 1.0, 2.0)  # between tries at the end of the job
_LAST_SECONDS, _STOPPED_SECONDS = 60.0, 10.0  # without success at the end of the job
_FILE_SECONDS = 1800.0  # for a file or a model at the end of the job
# Errors of the record; with any other code the store may take it later.
_REJECTIONS = {
    *("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE", "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"),
    *("NOT_FOUND", "NOT_IMPLEMENTED", "MALFORMED_REQUEST", "MAX_BLOCK_SIZE_EXCEEDED"),
}

log = logging.getLogger(__name__)


class _Record(NamedTuple):
    opening: Opening  # of its run
    kind: str
    value: Any


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
        self._offset = 0  # bytes of the file that were read
        self._opening: Opening | None = None  # of the run that the next records are of
        self._waiting = deque[_Record]()  # read, but not sent
        self._failed: list[_Record] = []  # by itself, while the store took others
        self._closing = threading.Event()
        self._is_away, self._is_done, self._is_abandoned = False, False, False
        self._success, self._sending = time.monotonic(), ""
        self._thread = threading.Thread(target=self._run, name="MLflow", daemon=True)
        self._thread.start()

    def finish(self, *, is_stopped: bool = False) -> bool:
        """Send the remaining records and remove the file, or leave them to another process if that takes more than a
        second; where the job waits, log where records are kept that the store does not accept. Return whether the
        store has all of them.

        If the job ``is_stopped``, the user is waiting for its end, so an unavailable store is given up soon.
        """
        self._waits = self._waits or self._is_needed_now()
        self._success = time.monotonic()
        self._closing.set()
        try:
            if self._waits:
                doing("sending the last records to MLflow")
                self._wait(_STOPPED_SECONDS if is_stopped else _LAST_SECONDS)
                doing("")
            else:
                self._thread.join(_PROMPT_SECONDS)
        finally:  # after a second stop, too
            self._is_abandoned = True
        path = self.file.path
        if self._is_done:
            path.unlink(missing_ok=True)
        elif path.exists():  # not removed by anybody
            self._keep(path)
        return self._is_done

    def _is_needed_now(self) -> bool:
        """Return whether records cannot wait: a new model, or files that may be temporary."""
        folder = self.place.out.absolute()
        paths = [(kind, Path(value[0])) for _, kind, value in self.file.read() if kind in {"artifacts", "model"}]
        return any(
            kind == "model" or not (path.is_relative_to(folder) or path.parent == folder.parent) for kind, path in paths
        )

    def _wait(self, seconds: float) -> None:
        """Wait for the end of the thread, at most some seconds since the store took a record."""
        while self._thread.is_alive():
            self._thread.join(0.1)
            limit = _FILE_SECONDS if self._sending in {"artifacts", "model"} else seconds
            if time.monotonic() - self._success > limit:
                return

    def _keep(self, path: Path) -> None:
        """Leave the records to a process, or where the job waited, to the user."""
        if not self._waits:
            try:
                _start_process(path)
                log.info("records for MLflow at %s are sent in the background, from %s", self.place.shown, path)
                return
            except OSError as error:
                log.warning("no process can be started: %s", error)
        again = ", or run the same command again" if path == record_path(self.file.out) else ""
        log.warning(
            "MLflow at %s does not have all records of this job, which are kept in %s; send them with "
            "paraembed log %s%s",
            *(self.place.shown, path, str(path).removesuffix(SUFFIX), again),
        )

    def _run(self) -> None:
        if not self._waits and "mlflow" not in sys.modules:
            self._closing.wait(_BEFORE_SECONDS)
            if self._closing.is_set() and not self._waits:
                return
        from paraembed.tracking.store import TrackingStore  # noqa: PLC0415 - imports MLflow

        self.store = TrackingStore(self.place.out)
        while not self._closing.is_set():
            self._closing.wait(_IDLE_SECONDS if self._pass() else _PAUSE_SECONDS)
        for pause in _LAST_PAUSES:
            if self._pass():
                if self.store.address:
                    log.info("runs in MLflow: %s", self.store.address)
                self._is_done = True
                return
            time.sleep(pause)

    def _pass(self) -> bool:
        """Send the new records, then what failed by itself before; return whether the store has everything."""
        failed = []
        try:
            self._read()
            self._waiting.extend(self._failed)
            self._failed = []
            while self._waiting:
                if not self._is_taken(*self._waiting[0]):
                    failed.append(self._waiting[0])
                self._waiting.popleft()
        except (_AwayError, OSError) as error:
            self._say_away(error)
        self._failed += failed
        self._sending = ""
        is_done = not (self._waiting or self._failed)
        if self._is_away and is_done:
            log.warning("MLflow at %s is reachable again; buffered records were sent", self.place.shown)
            self._is_away = False
        return is_done

    def _read(self) -> None:
        """Read the records that were appended to the file since the last call; successive metrics become one record."""
        for end, kind, value in self.file.read(self._offset):
            self._offset = end
            self._opening = value if kind == "open" else self._opening
            last = self._waiting[-1] if self._waiting else None
            if last and kind == last.kind == "metrics" and last.opening is self._opening:
                last.value.extend(value)
            elif self._opening is not None and kind != "sent":  # which earlier versions wrote
                self._waiting.append(_Record(self._opening, kind, value))

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
