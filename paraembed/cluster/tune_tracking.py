"""What a sweep tells MLflow: a run for the sweep, one nested in it for each trial, and the winner in the registry."""

import os
import warnings
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.entities import Metric, Param, RunStatus
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from paraembed.cluster.tracking import Run
from paraembed.tuning.ledger import Record

ALIAS = "champion"
_MODEL_CODE = Path(__file__).with_name("registered_encoder.py")
_BATCH = 500  # metrics a call
_TRIAL = "trial"
_KEPT_TAGS = {"mlflow.user", "mlflow.source.name"}
_PARENT = "mlflow.parentRunId"
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class TrialRuns:
    """The runs of a sweep's trials, nested in the sweep's; made here, since Ray's callback for MLflow cannot nest.

    Args:
        sweep: the sweep's run.
    """

    def __init__(self, sweep: Run) -> None:
        self.sweep = sweep
        self._client = MlflowClient(sweep.address.uri) if sweep.address else None
        self._experiment = ""
        self._logged: set[int] = set()
        self._tags: dict[str, str] = {}
        sweep.attempt(self._look)

    def add(self, record: Record, shown: dict[str, Any]) -> None:
        """Log a trial that has ended, unless it is logged already: ``shown`` are the values of the searched fields."""
        if record.number not in self._logged:
            self.sweep.attempt(lambda: self._write(record, shown))

    def _look(self) -> None:
        """Learn which trials are logged; what a killed driver left half is removed."""
        assert self._client is not None
        assert self.sweep.address is not None
        run = self.sweep.address.run_id
        sweep = self._client.get_run(run)
        self._experiment = sweep.info.experiment_id
        self._tags = {name: tag for name, tag in sweep.data.tags.items() if name in _KEPT_TAGS}
        token = None
        while True:
            page = self._client.search_runs([self._experiment], f"tags.`{_PARENT}` = '{run}'", page_token=token)
            for one in page:
                if _TRIAL not in one.data.tags:
                    continue
                if one.info.status == RunStatus.to_string(RunStatus.RUNNING):
                    self._client.delete_run(one.info.run_id)
                else:
                    self._logged.add(int(one.data.tags[_TRIAL]))
            token = page.token
            if not token:
                return

    def _write(self, record: Record, shown: dict[str, Any]) -> None:
        client, address = self._client, self.sweep.address
        assert client is not None
        assert address is not None
        ended = int(1000 * record.ended)
        started = ended - int(1000 * record.seconds)
        tags = {**self._tags, _PARENT: address.run_id, _TRIAL: str(record.number), "status": record.status}
        tags |= {"reason": record.reason[:5000]} if record.reason else {}
        name = f"trial {record.number}"
        run = client.create_run(self._experiment, start_time=started, run_name=name, tags=tags).info.run_id
        recipe = {**record.recipe, "encoder": record.recipe["encoder"]["name"], **shown}
        params = [Param(key, str(value)) for key, value in recipe.items()]
        metrics = [
            Metric(key, value, started + int(1000 * epoch.seconds), epoch.epoch)
            for epoch in record.curve
            for key, value in {"score": epoch.score, "loss": epoch.loss, **epoch.metrics}.items()
        ]
        metrics.append(Metric("seconds", record.seconds, ended, len(record.curve)))
        client.log_batch(run, params=params)
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(run, metrics=metrics[start : start + _BATCH])
        client.set_terminated(run, _STATUS[record.status], ended)
        self._logged.add(record.number)


def nest(sweep: Run, fingerprint: str) -> None:
    """Put the run that trained an encoder below the sweep's run."""
    found = sweep.run_with_tag("fingerprint", fingerprint)
    if found is not None and sweep.address is not None:
        address = sweep.address
        sweep.attempt(lambda: MlflowClient(address.uri).set_tag(found, _PARENT, address.run_id))


def register(sweep: Run, folder: Path, name: str, tags: dict[str, str]) -> str | None:
    """Put an encoder folder into the registry, as a model for ``mlflow.pyfunc`` under the alias ``champion``.

    Args:
        sweep: the run that it belongs to.
        folder: the encoder.
        name: of the registered model.
        tags: of the version.

    Returns:
        The version; None where the store does not answer.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # its own, of its own types
        pyfunc = import_module("mlflow.pyfunc")  # 1 s, and only here; a plain import puts it off
    versions: list[str] = []
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

    def call() -> None:
        assert sweep.address is not None
        client = MlflowClient(sweep.address.uri)
        with TemporaryDirectory() as at:
            pyfunc.save_model(
                path=f"{at}/{ALIAS}",
                python_model=str(_MODEL_CODE),  # as code: nothing is pickled
                artifacts={"encoder": str(folder)},
                pip_requirements=["paraembed"],
            )
            client.log_artifacts(sweep.address.run_id, at)
        source = f"{client.get_run(sweep.address.run_id).info.artifact_uri}/{ALIAS}"
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        version = client.create_model_version(name, source, sweep.address.run_id, tags)
        client.set_registered_model_alias(name, ALIAS, version.version)
        versions.append(str(version.version))

    sweep.attempt(call)
    return versions[0] if versions else None
