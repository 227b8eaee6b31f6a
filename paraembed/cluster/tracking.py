"""One MLflow run a job. A store that does not answer costs a warning, never the job; a job that asks for it keeps what
the store missed in a file, and sends it at the end.

The store is ``MLFLOW_TRACKING_URI``, else an SQLite file and an artifact folder under ``mlruns`` in the working
folder (in a submitted job: beside the output, since the working folder is temporary there).
"""

import fcntl
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from mlflow.entities import Dataset, DatasetInput, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from paraembed.checked import json_value
from paraembed.cluster.session import in_submitted_job
from paraembed.files import read_json, write_json

EXPERIMENT = "paraembed"
_DIGEST_DIGITS = 36  # of a data set, in MLflow's tables
_BATCH = 500  # metrics a call: 0.07-0.35 ms each in a batch, 6 ms each alone (SQLite)

log = logging.getLogger(__name__)


class _Memo(TypedDict):
    """The run that a job wrote down to resume it."""

    uri: str
    run_id: str


@dataclass(frozen=True)
class RunAddress:
    """Where a run lives, so that another process can write to it."""

    uri: str
    run_id: str


class Run:
    """A run to write to. Once the store fails it warns; what follows goes to the spool, a file, where there is one."""

    def __init__(self, address: RunAddress | None, spool: Path | None = None) -> None:
        self.address = address
        self._spool = spool
        self._metrics: list[tuple[str, float, int, int]] = []
        self._client = MlflowClient(address.uri) if address else None

    def params(self, values: Mapping[str, Any]) -> None:
        """Log settings; nested mappings become dotted names."""
        self._write("params", [(name, str(value)[:6000]) for name, value in _flat(values)])

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        self._write("tags", list(values.items()))

    def dataset(self, name: str, digest: str, sources: Sequence[str]) -> None:
        """Log what data the run is of."""
        self._write("dataset", (name, digest[:_DIGEST_DIGITS], "files", json.dumps(list(sources))))

    def run_with_tag(self, name: str, value: str) -> str | None:
        """The newest other run of the experiment that has a tag, if the store knows one."""
        found = list[Any]()
        if self._client is not None and self.address is not None:
            client, run = self._client, self.address.run_id
            where = f"tags.`{name}` = '{value}' and attributes.run_id != '{run}'"
            self.attempt(
                lambda: found.extend(client.search_runs([client.get_run(run).info.experiment_id], where, max_results=1))
            )
        return str(found[0].info.run_id) if found else None

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log numbers at a step; they are written in batches, and when the run ends."""
        now = int(time.time() * 1000)
        self._metrics += [(name, float(value), now, step) for name, value in values.items()]
        if len(self._metrics) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the metrics that wait."""
        waiting, self._metrics = self._metrics, []
        for start in range(0, len(waiting), _BATCH):
            self._write("metrics", waiting[start : start + _BATCH])

    def artifacts(self, path: Path, folder: str | None = None) -> None:
        """Log a file, or all files of a folder."""
        self._write("artifacts", (str(path), folder))

    def end(self, status: str) -> None:
        """Write what waits and close the run: FINISHED, FAILED or KILLED."""
        self.flush()
        self._write("end", status)

    def send_spooled(self, reopen: Callable[[], RunAddress | None]) -> None:
        """Send what the store has missed, if it answers by now; ``reopen`` makes the run where there was none."""
        if self._spool is None or not self._spool.exists():
            return
        self.address = self.address or reopen()
        self._client = MlflowClient(self.address.uri) if self.address else None
        lines = self._spool.read_bytes().splitlines()
        missed = [json_value(line, f"{self._spool}, line {at}", tuple[str, Any]) for at, line in enumerate(lines, 1)]
        if all(self._sent(kind, value) for kind, value in missed):
            self._spool.unlink()
            log.warning("MLflow answers again; it has got what it missed")
        else:
            log.warning("what MLflow has missed is in %s", self._spool)

    def _write(self, kind: str, value: Any) -> None:
        if self._sent(kind, value) or self._spool is None:
            return
        try:
            with self._spool.open("a", encoding="utf-8") as file:
                file.write(json.dumps([kind, value]) + "\n")
        except OSError as error:
            log.warning("%s cannot be written (%s); what MLflow misses is lost", self._spool, _line(error))
            self._spool = None

    def _sent(self, kind: str, value: Any) -> bool:
        client, address = self._client, self.address
        if client is None or address is None:
            return False
        return self.attempt(lambda: _send(client, address.run_id, kind, value))

    def attempt(self, call: Callable[[], object]) -> bool:
        """Call something that writes to the store, unless that has failed already; whether it went well."""
        if self._client is None or self.address is None:
            return False
        try:
            call()
        except (MlflowException, SQLAlchemyError, OSError) as error:
            self._client = None
            log.warning("MLflow at %s failed; the job goes on without it (%s)", _public(self.address.uri), _line(error))
            return False
        return True


def _send(client: MlflowClient, run: str, kind: str, value: Any) -> None:
    """Write one thing to the store; its value is as JSON gives it back."""
    match kind:
        case "params":
            client.log_batch(run, params=[Param(*one) for one in value])
        case "tags":
            for name, text in value:
                client.set_tag(run, name, text)
        case "dataset":
            client.log_inputs(run, [DatasetInput(Dataset(*value))])
        case "metrics":
            client.log_batch(run, metrics=[Metric(*one) for one in value])
        case "artifacts" if Path(value[0]).is_dir():
            client.log_artifacts(run, *value)
        case "artifacts":
            client.log_artifact(run, *value)
        case "end":
            client.set_terminated(run, value)


@contextmanager
def system_metrics(run: Run) -> Iterator[None]:
    """Log how busy this machine is for the length of the block: CPU, memory, disk, network, NVIDIA GPUs.

    MLflow's own monitor samples every 10 seconds (MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL); one more sample at the end
    gives a shorter block some, too.
    """
    if run.address is None:
        yield
        return
    address, opened = run.address, list[Any]()

    def last_sample() -> None:
        for monitor in opened:
            monitor.finish()
            monitor.collect_metrics()
            monitor.publish_metrics(monitor.aggregate_metrics())
            monitor.mlflow_logger.flush()

    # The numbers go on from those of the run that was killed.
    monitor_of: Any = SystemMetricsMonitor
    run.attempt(lambda: opened.append(monitor_of(address.run_id, resume_logging=True, tracking_uri=address.uri)))
    for monitor in opened:
        monitor.start()
    try:
        yield
    finally:
        run.attempt(last_sample)


@contextmanager
def tracked_run(name: str, out: Path, memo: Path | None = None, spool: Path | None = None) -> Iterator[Run]:
    """An MLflow run for the length of the block; closed as FINISHED, FAILED or KILLED.

    Args:
        name: name of the run, for example ``train iclr2016/avg``.
        out: the job's output; in a submitted job the default store goes beside it.
        memo: file that remembers the run, so that a job that goes on after a kill goes on with its run, too.
        spool: file for what a store misses that does not answer; it is sent at the end, if the store answers then.
    """
    run = Run(_open(name, out, memo), spool)
    try:
        yield run
    except KeyboardInterrupt:
        run.end("KILLED")
        raise
    except BaseException:
        run.end("FAILED")
        raise
    else:
        run.end("FINISHED")
    finally:
        run.send_spooled(lambda: _open(name, out, memo))


def _open(name: str, out: Path, memo: Path | None) -> RunAddress | None:
    uri = os.environ.get("MLFLOW_TRACKING_URI") or None
    artifacts = None
    try:
        if uri is not None:
            return _open_in(uri, artifacts, name, memo)
        folder = (out.absolute().parent if in_submitted_job() else Path.cwd()) / "mlruns"
        folder.mkdir(parents=True, exist_ok=True)
        uri, artifacts = f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts")
        # Two jobs that both make the database leave it broken for ever ("duplicate column name").
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _open_in(uri, artifacts, name, memo)
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        log.warning("MLflow at %s does not answer; the job goes on without it (%s)", _public(uri or "?"), _line(error))
        return None


def _open_in(uri: str, artifacts: str | None, name: str, memo: Path | None) -> RunAddress:
    """The run that ``memo`` remembers, if it is of this store, or a new one."""
    remembered = read_json(memo, _Memo) if memo and memo.exists() else {}
    if remembered.get("uri") == _public(uri):
        MlflowClient(uri).update_run(remembered["run_id"], status="RUNNING")
        return RunAddress(uri, remembered["run_id"])
    address = _create_in(uri, artifacts, name)
    if memo:
        write_json(memo, {"uri": _public(uri), "run_id": address.run_id})
    return address


def _create_in(uri: str, artifacts: str | None, name: str) -> RunAddress:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        kind = {"mlflow.experimentKind": "custom_model_development"}  # else the UI takes the runs for chats
        number = client.create_experiment(EXPERIMENT, artifacts, kind)
    else:
        number = experiment.experiment_id
    user, source = os.environ.get("USER", str(os.getuid())), f"jobs/{Path(sys.argv[0]).name}"
    tags = {"mlflow.user": user, "mlflow.source.name": source}
    return RunAddress(uri, client.create_run(number, run_name=name, tags=tags).info.run_id)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _public(uri: str) -> str:
    """A URI without the user and password it may hold."""
    scheme, mark, rest = uri.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else uri


def _line(error: BaseException) -> str:
    return _public(str(error).strip().split("\n")[0][:200])
