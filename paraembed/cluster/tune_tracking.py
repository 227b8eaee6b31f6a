"""What a sweep tells MLflow: a run for the sweep, one nested in it for each trial, and the winner in the registry."""

import os
import warnings
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from paraembed.cluster.tracking import Run
from paraembed.tuning.ledger import Ledger, Record

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
        ledger: what has ended by now.
    """

    def __init__(self, sweep: Run, ledger: Ledger) -> None:
        self.sweep = sweep
        self._client = MlflowClient(sweep.address.uri) if sweep.address else None
        self._experiment = ""
        self._logged: set[int] = set()
        self._tags: dict[str, str] = {}
        sweep.attempt(lambda: self._look({one.number: _end_time(one) for one in ledger.in_order()}))

    def add(self, record: Record, shown: dict[str, Any]) -> None:
        """Log a trial that has ended, unless it is logged already: ``shown`` are the values of the searched fields."""
        if record.number not in self._logged:
            self.sweep.attempt(lambda: self._write(record, shown))

    def _look(self, ended: dict[int, int]) -> None:
        """Learn which trials are logged; what a killed driver left half, or a trial that runs again, is removed."""
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
                number = int(one.data.tags[_TRIAL])
                if number in ended and one.info.end_time == ended[number]:
                    self._logged.add(number)
                else:
                    self._client.delete_run(one.info.run_id)
            token = page.token
            if not token:
                return

    def _write(self, record: Record, shown: dict[str, Any]) -> None:
        client, address = self._client, self.sweep.address
        assert client is not None
        assert address is not None
        ended = _end_time(record)
        started = ended - int(1000 * record.seconds)
        tags = {**self._tags, _PARENT: address.run_id, _TRIAL: str(record.number), "status": record.status}
        tags |= {"reason": record.reason[:5000]} if record.reason else {}
        name = f"trial {record.number}"
        run = client.create_run(self._experiment, start_time=started, run_name=name, tags=tags).info.run_id
        options = {f"encoder.{key}": value for key, value in record.recipe["encoder"].items()}
        recipe = {**record.recipe, **options, "encoder": options.pop("encoder.name"), **shown}
        params = [Param(key, str(value)) for key, value in recipe.items()]
        metrics = [
            Metric(key, value, started + int(1000 * epoch.seconds), epoch.epoch)
            for epoch in record.curve
            for key, value in {"score": epoch.score, "loss": epoch.loss, **epoch.metrics}.items()
            if value is not None
        ]
        if record.keeps_best and record.counted:
            metrics.append(Metric("best_score", record.score, ended, record.counted.epoch))
        metrics.append(Metric("seconds", record.seconds, ended, len(record.curve)))
        client.log_batch(run, params=params)
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(run, metrics=metrics[start : start + _BATCH])
        client.set_terminated(run, _STATUS[record.status], ended)
        self._logged.add(record.number)


def _end_time(record: Record) -> int:
    """When a trial ended, in milliseconds since 1970."""
    return int(1000 * record.ended)


def nest(sweep: Run, fingerprint: str) -> None:
    """Put the run that trained an encoder below the sweep's run, unless it is older or another sweep's."""
    found = sweep.run_with_tag("fingerprint", fingerprint)
    if found is None or sweep.address is None:
        return
    client, parent = MlflowClient(sweep.address.uri), sweep.address.run_id

    def call() -> None:
        run = client.get_run(found)
        if _PARENT not in run.data.tags and run.info.start_time >= client.get_run(parent).info.start_time:
            client.set_tag(found, _PARENT, parent)

    sweep.attempt(call)


def register(sweep: Run, folder: Path, name: str, tags: dict[str, str]) -> str | None:
    """Put an encoder folder into the registry, as a model for ``mlflow.pyfunc`` under the alias ``champion``.

    An encoder that is there already, by its fingerprint, only gets the alias.

    Args:
        sweep: the run that it belongs to.
        folder: the encoder.
        name: of the registered model.
        tags: of the version, the fingerprint among them.

    Returns:
        The version; None where the store does not answer.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # its own, of its own types
        pyfunc = import_module("mlflow.pyfunc")  # 1 s, and only here; a plain import puts it off
    versions: list[str] = []
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

    def create(client: MlflowClient, run: str) -> Any:
        with TemporaryDirectory() as at:
            pyfunc.save_model(
                path=f"{at}/{ALIAS}",
                python_model=str(_MODEL_CODE),  # as code: nothing is pickled
                artifacts={"encoder": str(folder)},
                pip_requirements=["paraembed"],
            )
            client.log_artifacts(run, at)
        source = f"{client.get_run(run).info.artifact_uri}/{ALIAS}"
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return client.create_model_version(name, source, run, tags).version

    def call() -> None:
        assert sweep.address is not None
        client = MlflowClient(sweep.address.uri)
        there = client.search_model_versions(f"name = '{name}'")
        same = [one.version for one in there if one.tags.get("fingerprint") == tags["fingerprint"]]
        version = same[0] if same else create(client, sweep.address.run_id)
        client.set_registered_model_alias(name, ALIAS, version)
        versions.append(str(version))

    sweep.attempt(call)
    return versions[0] if versions else None
