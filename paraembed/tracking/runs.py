"""One MLflow run per job. Records go to a file next to the job's output, and from there to the store.

If the store does not answer, the job continues with a warning. A thread sends the records when the store is reachable
again; otherwise the next run of the same command does. ``tracking.spool`` is the file, ``tracking.sender`` the thread.
"""

import json
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

from mlflow.environment_variables import MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

from paraembed.io.fingerprint import digest_of, read_json
from paraembed.io.places import without_credentials
from paraembed.process import mlflow_is_quiet
from paraembed.stops import STOPPED, last_act
from paraembed.tracking.sender import Sender, last_run, write_memo
from paraembed.tracking.spool import AnySpool, Spool, held_spool, spool_path
from paraembed.tracking.store import PARENT, TrackingStore, stamp_of

_DIGEST_DIGITS = 36  # of a data set, in MLflow's tables
_SOURCE_CHARACTERS = 60_000  # of a data set; MLflow takes 65,535
_FIRST_SOURCES = 20  # of a data set with more than that
_PARAM_CHARACTERS, _TAG_CHARACTERS = 6000, 8000
_SAMPLE_SECONDS = 10.0  # between samples of the machine
_ID = re.compile(r"[0-9a-f]{32}")  # of a run, MLflow's and paraembed's

log = logging.getLogger(__name__)
_enclosing: "ContextVar[Run | None]" = ContextVar("run", default=None)


class Run:
    """A run to log to. Every call appends to the spool; none waits for the store.

    Through the file of its records, a worker logs to the run of its driver, whose thread sends them; other spools have
    ``append`` and ``started``. Without a spool, nothing is logged. ``key`` is the key of the run in the spool.
    """

    def __init__(self, spool: Path | AnySpool | None, sender: Sender | None = None, key: str = "") -> None:
        self.spool = spool if isinstance(spool, Path) else None
        self.key = key
        self._sender = sender
        self._file = Spool(spool) if isinstance(spool, Path) else spool

    @property
    def run_id(self) -> str | None:
        """Id of the run in the store; None before the store has answered."""
        return self._sender.run_id if self._sender else None

    @property
    def store(self) -> TrackingStore | None:
        """The store; None in a worker, which only appends to the spool."""
        return self._sender.store if self._sender else None

    def params(self, values: Mapping[str, Any]) -> None:
        """Log settings; nested mappings become dotted names."""
        pairs = [[name, without_credentials(str(value))[:_PARAM_CHARACTERS]] for name, value in _flat(values)]
        self._log("params", pairs)

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        self._log("tags", [[name, without_credentials(text)[:_TAG_CHARACTERS]] for name, text in values.items()])

    def dataset(
        self, name: str, digest: str, sources: Sequence[str], context: str = "input", rows: int | None = None
    ) -> None:
        """Log an input of the run; ``context`` is its use, such as training.

        A single path or URI is a source that ``mlflow.data`` can load; of many, the first, their number and a digest
        of all are logged.
        """
        shown = list(map(without_credentials, sources))
        kind, text = "files", json.dumps(shown)
        if len(text) > _SOURCE_CHARACTERS:
            about = {"files": len(shown), "names_sha256": digest_of(shown)}
            text = json.dumps({**about, "first": [source[:1000] for source in shown[:_FIRST_SOURCES]]})
        elif len(shown) == 1:
            kind, text = _source(shown[0], text)
        profile = "" if rows is None else json.dumps({"num_rows": rows})
        self._log("dataset", [name, digest[:_DIGEST_DIGITS], kind, text, context, profile])

    def link(self, tag: str, by: str, value: str) -> None:
        """Set a tag to the id of the newest other run of the experiment in which the tag ``by`` has this value."""
        self._log("link", [tag, by, value])

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log metrics at a step."""
        now = int(time.time() * 1000)
        self._log("metrics", [[name, float(value), now, step] for name, value in values.items()])

    def artifacts(self, path: Path, folder: str | None = None) -> None:
        """Log a file, or all files of a folder, which must stay in place because they may be sent later."""
        self._log("artifacts", [str(path), folder, stamp_of(path) if path.exists() else None])

    def model(self, folder: Path, path: str, fingerprint: str, register: str | None = None) -> None:
        """Log a model folder as an MLflow model (pyfunc); like an artifact, it must stay in place.

        With ``register``, a name in the model registry, the version gets the alias ``champion``; a model with the
        fingerprint of a registered one is not registered again.
        """
        self._log("model", [str(folder), path, stamp_of(folder), register or "", [["fingerprint", fingerprint]]])

    def trial(self, value: Mapping[str, Any]) -> None:
        """Log a whole child run; see ``tracking_store``."""
        self._log("trial", value)

    def adopt(self, key: str) -> None:
        """Make another run a child of this one."""
        self._log("child", key)

    @property
    def is_logged(self) -> bool:
        """Whether calls are recorded."""
        return self._file is not None

    @property
    def started(self) -> int:
        """Start time of the run, before any interruption, in milliseconds since 1970."""
        return (self._file.started if self._file else 0) or _now()

    def _log(self, kind: str, value: Any) -> None:
        if self._file is not None and value:
            self._file.append(kind, value)


def _source(place: str, text: str) -> tuple[str, str]:
    """Return the type and the JSON of a source of ``mlflow.data``; those of a list of files if it knows none."""
    from mlflow.data.dataset_source_registry import resolve_dataset_source  # noqa: PLC0415  with pandas, 1 s
    from mlflow.data.meta_dataset import MetaDataset  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two of its classes know a local path
            source = resolve_dataset_source(place)
    except MlflowException:
        return "files", text
    config = MetaDataset(source).to_dict()  # type: ignore[abstract]  # as MLflow's own example creates it
    return config["source_type"], config["source"]


@contextmanager
def system_metrics(run: Run) -> Iterator[None]:
    """Log the load of this machine during the block: CPU, memory, disk, network, NVIDIA GPUs.

    MLflow's samplers are used, every 10 seconds (MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL) and at the end. The step is
    the number of seconds since the run began, so that a resumed run continues after the earlier samples.
    """
    if not run.is_logged:
        yield
        return
    monitors, ended, started = _monitors(), threading.Event(), run.started
    interval: Any = MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL

    def sample() -> None:
        values: dict[str, float] = {}
        for monitor in monitors:
            monitor.collect_metrics()
            values |= monitor.aggregate_metrics()
            monitor.clear_metrics()
        run.metrics({f"system/{name}": value for name, value in values.items()}, (_now() - started) // 1000)

    def watch() -> None:
        while not ended.wait(interval.get() or _SAMPLE_SECONDS):
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
    kinds: list[Any] = [CPUMonitor, DiskMonitor, NetworkMonitor, GPUMonitor]  # without types
    monitors = [kind() for kind in kinds[:-1]]
    try:
        monitors.append(kinds[-1]())
    except Exception as error:  # noqa: BLE001  MLflow's, pynvml's and the driver's
        level = logging.WARNING if Path("/dev/nvidiactl").exists() else logging.DEBUG
        log.log(level, 'GPUs are not monitored (%s); pip install "paraembed[gpu]"', error)
    return monitors


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
                spool.append("end", [status, _now()])
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
    if last and remembered and (last == remembered.get("key") or ids.get(last) == remembered.get("run_id")):
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
        "start": remembered.get("start", _now()),
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
    is_time = isinstance(start, int) and not isinstance(start, bool) and 0 < start <= _now()
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


def _now() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
