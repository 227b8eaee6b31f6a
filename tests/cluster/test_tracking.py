import time
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from paraembed.cluster.tracking import Run, system_metrics, tracked_run

MEMORY = "system/system_memory_usage_megabytes"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    database = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.chdir(tmp_path)
    return database


def test_system_metrics_go_on_where_a_killed_run_stopped(store: Path, tmp_path: Path) -> None:
    client = MlflowClient(f"sqlite:///{store}")
    for begun in range(2):
        with tracked_run("watched", tmp_path / "out", tmp_path / "memo.json") as run, system_metrics(run):
            deadline = time.monotonic() + 30
            while len(client.get_metric_history(run.address.run_id, MEMORY)) < 2 * (begun + 1):  # type: ignore[union-attr]
                assert time.monotonic() < deadline
                time.sleep(0.05)
    assert run.address is not None
    steps = [metric.step for metric in client.get_metric_history(run.address.run_id, MEMORY)]
    assert steps == list(range(len(steps)))
    assert client.get_run(run.address.run_id).data.metrics[MEMORY] > 0


def test_a_store_that_breaks_meanwhile_costs_a_warning(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tracked_run("broken", tmp_path / "out") as run, system_metrics(run):
        store.write_bytes(b"no database " * 9999)
        time.sleep(0.2)
        run.metrics({"loss": 1.0}, 1)
        run.flush()
    assert caplog.text.count("failed; the job goes on without it") == 1


def test_without_a_store_nothing_is_watched() -> None:
    with system_metrics(Run(None)):
        pass
