import json
import threading
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
    before = set(threading.enumerate())
    with system_metrics(Run(None)):
        assert set(threading.enumerate()) == before


@pytest.mark.parametrize("moment", ["start", "middle"])
def test_what_a_store_misses_is_kept_and_sent_at_the_end(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    spool, artifact = tmp_path / "out.mlflow.jsonl", tmp_path / "manifest.json"
    artifact.write_text("{}")
    with tracked_run("first", tmp_path / "out"):
        pass  # makes the database
    whole = store.read_bytes()
    if moment == "start":
        store.write_bytes(b"no database " * 9999)
    with tracked_run("spooled", tmp_path / "out", tmp_path / "memo.json", spool) as run:
        before = store.read_bytes()
        store.write_bytes(b"no database " * 9999)
        run.params({"encoder": "abc"})
        run.tags({"workers": "2"})
        run.dataset("inputs", "f" * 64, ["a.txt"])
        run.metrics({"rows": 7.0}, 1)
        run.artifacts(artifact)
        run.flush()
        kinds = [json.loads(line)[0] for line in spool.read_text().splitlines()]
        assert kinds == ["params", "tags", "dataset", "artifacts", "metrics"]
        store.write_bytes(whole if moment == "start" else before)
    assert not spool.exists()
    assert "it has got what it missed" in caplog.text
    client = MlflowClient(f"sqlite:///{store}")
    kept = client.get_run(run.address.run_id)  # type: ignore[union-attr]
    assert (kept.data.params, kept.data.metrics, kept.data.tags["workers"]) == ({"encoder": "abc"}, {"rows": 7.0}, "2")
    assert kept.info.status == "FINISHED"
    assert kept.inputs.dataset_inputs[0].dataset.digest == "f" * 36
    assert [one.path for one in client.list_artifacts(kept.info.run_id)] == ["manifest.json"]


def test_what_never_reached_the_store_stays_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # the port "discard"
    spool = tmp_path / "out.mlflow.jsonl"
    with tracked_run("dead", tmp_path / "out", spool=spool) as run:
        run.metrics({"rows": 7.0})
    assert [json.loads(line)[0] for line in spool.read_text().splitlines()] == ["metrics", "end"]
    assert f"what MLflow has missed is in {spool}" in caplog.text
