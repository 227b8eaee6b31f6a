"""What a job and its workers log: records of a run, and the load of a machine. They go to a file, from which
``tracking.sender`` sends them to the store.

MLflow takes 4 s to import, and training workers log, too. It is imported for the source of a data set, and by the
thread that samples the load of the machine.
"""

import json
import logging
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraembed.io.fingerprint import digest_of, stamp_of
from paraembed.io.places import without_credentials
from paraembed.tracking.spool import AnySpool, Spool

if TYPE_CHECKING:
    from paraembed.tracking.sender import Sender
    from paraembed.tracking.store import TrackingStore

_DIGEST_DIGITS = 36  # of a data set, in MLflow's tables
_SOURCE_CHARACTERS = 60_000  # of a data set; MLflow takes 65,535
_FIRST_SOURCES = 20  # of a data set with more than that
_PARAM_CHARACTERS, _TAG_CHARACTERS = 6000, 8000
_SAMPLE_SECONDS = 10.0  # between samples of the machine

log = logging.getLogger(__name__)


class Run:
    """A run to log to. Every call appends to the spool; none waits for the store.

    Through the file of its records, a worker logs to the run of its driver, whose thread sends them; other spools have
    ``append`` and ``started``. Without a spool, nothing is logged. ``key`` is the key of the run in the spool.
    """

    def __init__(self, spool: Path | AnySpool | None, sender: "Sender | None" = None, key: str = "") -> None:
        self.spool = spool if isinstance(spool, Path) else None
        self.key = key
        self._sender = sender
        self._file = Spool(spool) if isinstance(spool, Path) else spool

    @property
    def run_id(self) -> str | None:
        """Id of the run in the store; None before the store has answered."""
        return self._sender.run_id if self._sender else None

    @property
    def store(self) -> "TrackingStore | None":
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
        milliseconds = now()
        self._log("metrics", [[name, float(value), milliseconds, step] for name, value in values.items()])

    def artifacts(self, path: Path, folder: str | None = None) -> None:
        """Log a file, or all files of a folder.

        What is in the output of the job must stay in place, because it may be sent later; other files must exist until
        the run ends, which keeps a copy if the store does not answer (``tracking.kept``).
        """
        self._log("artifacts", [str(path), folder, stamp_of(path) if path.exists() else None])

    def model(self, folder: Path, path: str, fingerprint: str, register: str | None = None) -> None:
        """Log a model folder as an MLflow model (pyfunc); it must stay in place like an artifact.

        With ``register``, a name in the model registry, the version gets the alias ``champion``; a model with the
        fingerprint of a registered one is not registered again.
        """
        self._log("model", [str(folder), path, stamp_of(folder), register or "", [["fingerprint", fingerprint]]])

    def trial(self, value: Mapping[str, Any]) -> None:
        """Log a whole child run; see ``tracking.store``."""
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
        return (self._file.started if self._file else 0) or now()

    def _log(self, kind: str, value: Any) -> None:
        if self._file is not None and value:
            self._file.append(kind, value)


def _source(place: str, text: str) -> tuple[str, str]:
    """Return the type and the JSON of a source of ``mlflow.data``; those of a list of files if it knows none."""
    from mlflow.data.dataset_source_registry import resolve_dataset_source  # noqa: PLC0415 - see the first lines
    from mlflow.data.meta_dataset import MetaDataset  # noqa: PLC0415
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

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
    monitors, ended, started = list[Any](), threading.Event(), run.started

    def sample() -> None:
        values: dict[str, float] = {}
        for monitor in monitors:
            monitor.collect_metrics()
            values |= monitor.aggregate_metrics()
            monitor.clear_metrics()
        run.metrics({f"system/{name}": value for name, value in values.items()}, (now() - started) // 1000)

    def watch() -> None:
        from mlflow.environment_variables import MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL  # noqa: PLC0415

        monitors.extend(_monitors())
        interval: Any = MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL
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
