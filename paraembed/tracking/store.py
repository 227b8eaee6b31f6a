"""MLflow store of a job, and the calls that write records to it.

Every record can be sent twice: metrics, parameters and tags are rows with keys, files replace themselves, and a run is
found again by a tag.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT
from sqlalchemy.exc import SQLAlchemyError

from paraembed.io.atomic import hidden_name, lock_file, sync_folder
from paraembed.io.fingerprint import stamp_of
from paraembed.tracking.place import EXPERIMENT, StorePlace
from paraembed.tracking.records import Opening

RUN_KEY = "paraembed.run"  # tag: by it a run is found again
PARENT = "mlflow.parentRunId"
STORE_ERRORS = (MlflowException, SQLAlchemyError, OSError, ImportError)
_KIND = {"mlflow.experimentKind": "custom_model_development"}  # else the UI takes the runs for chats
_TRIAL = "trial"  # tag: its number
_opening = Lock()  # a run and its child may be opened at the same time


class TrackingStore(StorePlace):
    """Tracking store of a job, with the calls that write to it."""

    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self._experiments: dict[str, str] = {}  # name → id

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow client; the default database is created first."""
        if self.folder is not None:
            whole_database(self.folder)
        return MlflowClient(self.uri)

    @property
    def address(self) -> str | None:
        """Page of a server with the runs, since MLflow 3.17 without ``/runs`` opens that of traces; None: database."""
        if not self.uri.startswith(("http://", "https://")) or not self._experiments:
            return None
        return f"{self.shown.rstrip('/')}/#/experiments/{[*self._experiments.values()][-1]}/runs"

    def _experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it is missing."""
        if name not in self._experiments:
            existing = self.client.get_experiment_by_name(name)
            artifacts = str(self.folder / "artifacts") if self.folder else None
            created = existing.experiment_id if existing else self.client.create_experiment(name, artifacts, _KIND)
            self._experiments[name] = str(created)
        return self._experiments[name]

    def _experiment_of(self, run: str) -> str:
        return str(self.client.get_run(run).info.experiment_id)

    def find(self, experiment: str, tag: str, value: str, other_than: str = "") -> str | None:
        """Return the newest run of an experiment that has a tag with this value."""
        where = f"tags.`{tag}` = '{value}'" + (f" and attributes.run_id != '{other_than}'" if other_than else "")
        runs = self.client.search_runs([experiment], where, max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def open(self, opening: Opening) -> str:
        """Find or create a run, and the runs around it; return its id. Its status becomes RUNNING."""
        with _opening:
            run = self._open(opening)
        self.client.update_run(run, status="RUNNING")
        return run

    def _open(self, opening: Opening) -> str:
        experiment = self._experiment(opening.get("experiment", EXPERIMENT))
        run = self.find(experiment, RUN_KEY, opening["key"])
        if run is not None:
            return run
        tags = {**dict(opening["tags"]), RUN_KEY: opening["key"]}
        if opening["parent"] is not None:
            tags[PARENT] = self._open(opening["parent"])
        name, start = opening["name"][:250], opening["start"]
        return str(self.client.create_run(experiment, start, tags, run_name=name).info.run_id)

    def probe(self, run: str, key: str) -> bool:
        """Return whether the store accepts a harmless record of a run."""
        try:
            self.client.set_tag(run, RUN_KEY, key)
        except Exception:  # noqa: BLE001  the answer is no
            return False
        return True

    def send(self, run: str, kind: str, value: Any) -> None:
        """Write one record; its value has the arguments of the method of ``Run`` with the name of its kind.

        MLflow sends a batch in calls of at most 100 parameters or tags, or 1,000 metrics.
        """
        match kind:
            case "params":
                self.client.log_batch(run, params=[Param(*pair) for pair in value])
            case "tags":
                self.client.log_batch(run, tags=[RunTag(*pair) for pair in value])
            case "metrics":
                self.client.log_batch(run, metrics=[Metric(*metric) for metric in value])
            case "dataset":
                self._send_dataset(run, *value)
            case "artifacts":
                self._send_files(run, *value)
            case "model":
                self._send_model(run, *value)
            case "link":
                self._send_link(run, *value)
            case "trial":
                self._send_trial(run, value)
            case "end":
                self.client.set_terminated(run, *value)
            case _:
                raise ValueError(f"a record of kind {kind!r}, which this version does not know")

    def _send_dataset(
        self, run: str, name: str, digest: str, kind: str, source: str, context: str, profile: str
    ) -> None:
        dataset = Dataset(name, digest, kind, source, profile=profile or None)
        self.client.log_inputs(run, [DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, context)])])

    def _send_files(self, run: str, path: str, folder: str | None, stamp: str | None = None) -> None:
        source = _unchanged(path, stamp)
        send = self.client.log_artifacts if source.is_dir() else self.client.log_artifact
        send(run, path, folder)

    def _send_model(self, run: str, path: str, folder: str, stamp: str, name: str, tags: list[tuple[str, str]]) -> None:
        from paraembed.tracking.registry import log_model  # noqa: PLC0415 - with all encoders

        log_model(self.client, run, _unchanged(path, stamp), folder, name, dict(tags))

    def _send_link(self, run: str, tag: str, by: str, text: str) -> None:
        other = self.find(self._experiment_of(run), by, text, other_than=run)
        if other is not None:
            self.client.set_tag(run, tag, other)

    def _send_trial(self, parent: str, value: Mapping[str, Any]) -> None:
        """Write a child run of a trial; an existing one that differs or is incomplete is removed."""
        client, experiment = self.client, self._experiment_of(parent)
        where = f"tags.`{PARENT}` = '{parent}' and tags.`{_TRIAL}` = '{value['number']}'"
        for run in client.search_runs([experiment], where):
            if run.info.end_time == value["end"]:
                return
            client.delete_run(run.info.run_id)
        tags = {**dict(value["tags"]), PARENT: parent, _TRIAL: value["number"]}
        child = client.create_run(experiment, value["start"], tags, run_name=value["name"]).info.run_id
        for kind in ("params", "metrics"):
            self.send(child, kind, value[kind])
        client.set_terminated(child, value["status"], value["end"])


def _unchanged(path: str, stamp: str | None) -> Path:
    """Return a path; raise ValueError if it no longer exists, or was changed since its record."""
    source = Path(path)
    if not source.exists():
        raise ValueError(f"{path} no longer exists")
    if stamp is not None and stamp != stamp_of(source):
        raise ValueError(f"{path} was changed after the job wrote it")
    return source


def whole_database(folder: Path) -> Path:
    """Return the database in a folder; a missing one is created, complete, by one process at a time.

    MLflow creates a database in many steps, and one whose creation was killed cannot be opened again. Therefore it is
    created under a temporary name. Raise an error of OSError, MLflow or SQLAlchemy if that is not possible.
    """
    if "?" in str(folder):
        raise OSError(
            f"{folder}: SQLite does not allow a '?' in a database path; use another folder, or set MLFLOW_TRACKING_URI"
        )
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "mlflow.db"
    with (folder / ".lock").open("w") as lock:
        lock_file(lock.fileno(), waits=True)
        if not database.exists():
            for leftover in folder.glob(".mlflow.db.*"):  # of a killed process, with SQLite's journal
                leftover.unlink()
            new = hidden_name(database, "new")
            MlflowClient(f"sqlite:///{new}").search_experiments(max_results=1)
            with new.open("rb") as file:
                os.fsync(file.fileno())
            new.replace(database)
            sync_folder(folder)
    return database
