"""Records of an MLflow run in a JSON-lines file next to the job's output, and what a job and its workers append to it.

``tracking.sender`` sends the file to MLflow. MLflow takes 4 s to import, and training workers log, too. It is imported
by the thread that samples the load of the machine.
"""

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, Protocol, TypedDict

from paraembed.io.fingerprint import digest_of, stamp_of
from paraembed.io.places import without_credentials
from paraembed.options import checked

SUFFIX = ".mlflow.jsonl"
ID = re.compile(r"[0-9a-f]{32}")  # of a run, MLflow's and paraembed's
_DIGEST_DIGITS = 36  # of a data set, in MLflow's tables
_SOURCE_CHARACTERS = 60_000  # of a data set; MLflow takes 65,535
_FIRST_SOURCES = 20  # of a data set with more than that
_PARAM_CHARACTERS, _TAG_CHARACTERS = 6000, 8000
_SAMPLE_SECONDS = 10.0  # between samples of the machine

log = logging.getLogger(__name__)


class Opening(TypedDict):
    """Start of a run: its key, which becomes a tag, and what MLflow needs to create it."""

    key: str
    name: str
    start: int  # milliseconds since 1970
    tags: list[tuple[str, str]]
    parent: Any  # the opening of the enclosing run, or None
    experiment: NotRequired[str]  # missing in records of 0.1: EXPERIMENT


def record_path(out: Path) -> Path:
    """Return the path of a job's records, next to its output."""
    return out.with_name(f"{out.name or 'out'}{SUFFIX}")


class Records(Protocol):
    """Where a run logs to; ``started`` is its start, before any interruption, in milliseconds since 1970."""

    started: int

    def append(self, kind: str, value: Any) -> None:
        """Append a record."""


def tags_of(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return tags without secrets, as long as MLflow takes them."""
    return [(name, without_credentials(text)[:_TAG_CHARACTERS]) for name, text in values.items()]


@dataclass
class RecordFile:
    """File of records, each a line ``[kind, value]``; ``store.TrackingStore.send`` has the kinds.

    Besides them, ``open`` starts the records of a run. Any process of the job may append; a killed process loses at
    most its last line, because each record begins with a line break, too.
    """

    out: Path  # output of the job
    path: Path
    started: int = 0
    is_lost: bool = False
    is_damaged: bool = False

    def append(self, kind: str, value: Any) -> None:
        """Append a record; on a disk error, warn once and continue, so that MLflow does not get the record."""
        try:
            with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                file.write(f"\n{json.dumps([kind, value])}\n".encode())
        except OSError as error:
            if not self.is_lost:
                log.warning("%s cannot be written (%s); records for MLflow are lost", self.path, error)
            self.is_lost = True

    def read(self, start: int = 0) -> Iterator[tuple[int, str, Any]]:
        """Yield the complete records from byte ``start`` on: the offset behind each, its kind and its value.

        Damaged lines are skipped, with one warning; the value of a damaged ``open`` is None.
        """
        with self.path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                start += len(line)
                if line == b"\n":
                    continue
                kind, value = "", None
                try:
                    kind, value = json.loads(line)
                    if kind == "open":
                        _check_opening(value)
                    elif kind in {"params", "tags", "metrics"}:
                        checked(list[list[Any]], value, "record")
                except (ValueError, TypeError, RecursionError):
                    value = None
                    if not self.is_damaged:
                        log.warning("%s has damaged lines, probably from a killed process; they are skipped", self.path)
                    self.is_damaged = True
                if value is not None or kind == "open":
                    yield start, str(kind), value


def _check_opening(value: Any) -> None:
    if not ID.fullmatch(checked(Opening, value, "record")["key"]):
        raise ValueError(value["key"])
    if value["parent"] is not None:
        _check_opening(value["parent"])


class Run:
    """A run to log to. Every call appends a record; none waits for the store. Without ``records``, nothing is logged.

    ``ids`` are those of runs in the store, by their keys, as ``sender.Sender`` learns them; a worker, which logs to the
    file of its driver, has none.
    """

    def __init__(
        self, records: Records | None, ids: Mapping[str, str] = MappingProxyType({}), opening: Opening | None = None
    ) -> None:
        self.records, self.opening = records, opening
        self._ids = ids

    @property
    def run_id(self) -> str | None:
        """Id of the run in the store; None before the store has answered."""
        return self._ids.get(self.opening["key"]) if self.opening else None

    def params(self, values: Mapping[str, Any]) -> None:
        """Log settings; nested mappings become dotted names."""
        pairs = [[name, without_credentials(str(value))[:_PARAM_CHARACTERS]] for name, value in _flat(values)]
        self._log("params", pairs)

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        self._log("tags", tags_of(values))

    def dataset(
        self, name: str, digest: str, sources: Sequence[str], context: str = "input", rows: int | None = None
    ) -> None:
        """Log an input of the run; ``context`` is its use, such as training.

        Of many sources, the first, their number and a digest of all are logged.
        """
        shown = list(map(without_credentials, sources))
        text = json.dumps(shown)
        if len(text) > _SOURCE_CHARACTERS:
            about = {"files": len(shown), "names_sha256": digest_of(shown)}
            text = json.dumps({**about, "first": [source[:1000] for source in shown[:_FIRST_SOURCES]]})
        profile = "" if rows is None else json.dumps({"num_rows": rows})
        self._log("dataset", [name, digest[:_DIGEST_DIGITS], "files", text, context, profile])

    def link(self, tag: str, by: str, value: str) -> None:
        """Set a tag to the id of the newest other run of the experiment in which the tag ``by`` has this value."""
        self._log("link", [tag, by, value])

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log metrics at a step."""
        milliseconds = now()
        self._log("metrics", [[name, float(value), milliseconds, step] for name, value in values.items()])

    def artifacts(self, path: Path, folder: str | None = None) -> None:
        """Log a file, or all files of a folder.

        They must stay in place, because they may be sent later.
        """
        self._log("artifacts", [str(path.absolute()), folder, stamp_of(path) if path.exists() else None])

    def model(self, folder: Path, path: str, tags: Mapping[str, str], register: str | None = None) -> None:
        """Log a model folder as an MLflow model (pyfunc); it must stay in place like an artifact.

        With ``register``, a name in the model registry, the version gets the tags and the alias ``champion``; a model
        with the tag ``fingerprint`` of a registered one is not registered again.
        """
        self._log("model", [str(folder.absolute()), path, stamp_of(folder), register or "", [*tags.items()]])

    def trial(self, value: Mapping[str, Any]) -> None:
        """Log a whole child run; see ``tracking.store``."""
        self._log("trial", value)

    def _log(self, kind: str, value: Any) -> None:
        if self.records is not None and value:
            self.records.append(kind, value)


@contextmanager
def system_metrics(run: Run) -> Iterator[None]:
    """Log the load of this machine during the block: CPU, memory, disk, network, NVIDIA GPUs.

    MLflow's samplers are used, every 10 seconds (MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL) and at the end. The step is
    the number of seconds since the run began, so that a resumed run continues after the earlier samples.
    """
    if run.records is None:
        yield
        return
    monitors, ended, started = list[Any](), threading.Event(), run.records.started or now()
    seconds = _SAMPLE_SECONDS
    with suppress(ValueError):
        seconds = float(os.environ.get("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "")) or _SAMPLE_SECONDS

    def sample() -> None:
        values: dict[str, float] = {}
        for monitor in monitors:
            monitor.collect_metrics()
            values |= monitor.aggregate_metrics()
            monitor.clear_metrics()
        run.metrics({f"system/{name}": value for name, value in values.items()}, (now() - started) // 1000)

    def watch() -> None:
        if "mlflow" in sys.modules or not ended.wait(seconds):
            monitors.extend(_monitors())
        while not ended.wait(seconds):
            sample()

    thread = threading.Thread(target=watch, name="system metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sample()


def _monitors() -> list[Any]:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor  # noqa: PLC0415 - see the first lines
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor  # noqa: PLC0415
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor  # noqa: PLC0415
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor  # noqa: PLC0415

    kinds: list[Any] = [CPUMonitor, DiskMonitor, NetworkMonitor, GPUMonitor]  # without types
    monitors = [kind() for kind in kinds[:-1]]
    try:
        monitors.append(kinds[-1]())
    except Exception as error:  # noqa: BLE001  MLflow's, pynvml's and the driver's
        level = logging.WARNING if Path("/dev/nvidiactl").exists() else logging.DEBUG
        log.log(level, 'GPUs are not monitored (%s); pip install "paraembed[gpu]"', error)
    return monitors


def now() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
