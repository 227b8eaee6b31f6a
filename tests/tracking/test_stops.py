"""The MLflow run of a job that is stopped, or that ends without unwinding, is closed while the store answers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from mlflow.tracking import MlflowClient

from paraembed.tracking.runs import send_left, tracked_run
from paraembed.tracking.spool import held_spool, spool_path

JOB = """
import sys
from dataclasses import dataclass
from pathlib import Path
from paraembed.commands.job import run
from paraembed.tracking.runs import send_left, tracked_run
import os, signal
from paraembed.stops import fail_now

def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)

@dataclass
class Flags:
    "End within a run."

def main(_: Flags) -> None:
    with tracked_run("outer", Path("outer")), tracked_run("inner", Path("inner")) as run:
        run.metrics({"loss": 1.0})
        END()

sys.exit(run(main, Flags))
"""


@pytest.mark.parametrize(
    ("end", "exit_status", "status"),
    [("hang_up", 130, "KILLED"), pytest.param("fail_now", 1, "FAILED", marks=pytest.mark.slow)],
)
def test_a_process_that_ends_at_once_closes_its_runs(empty_store, tmp_path, end, exit_status, status):
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    done = subprocess.run(
        [sys.executable, "-c", JOB.replace("END", end)],
        env={**os.environ, "MLFLOW_TRACKING_URI": uri},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == exit_status, done.stderr
    assert "Traceback" not in done.stderr
    runs = {run.info.run_name: run for run in MlflowClient(uri).search_runs(["1"])}
    assert {name: run.info.status for name, run in runs.items()} == {"outer": status, "inner": status}
    assert runs["inner"].data.metrics == {"loss": 1.0}
    assert not [*tmp_path.glob("*.jsonl")]


def test_a_stop_while_the_store_opens_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)  # making the default database takes seconds
    stop = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    stop.start()
    with pytest.raises(KeyboardInterrupt), tracked_run("stopped", tmp_path / "out"):
        raise AssertionError("the stop came too late")
    send_left(tmp_path / "out")  # of a machine so busy that the store was not open within the seconds of a stop
    (run,) = MlflowClient(f"sqlite:///{tmp_path}/mlruns/mlflow.db").search_runs(["1"])
    assert run.info.status == "KILLED"
    assert not spool_path(tmp_path / "out").exists()


@pytest.mark.parametrize(
    "value",
    [
        {"run_id": "../../x"},
        {"run_id": "\0"},
        {"run_id": "x" * 10_000},
        {"key": "a' or '1'='1"},
        {"key": "1" * 32, "start": True},
        {"key": "1" * 32, "start": 10**30},
        {"run_id": "0" * 32, "start": -(2**70)},
    ],
    ids=str,
)
def test_a_memo_that_no_job_wrote_costs_no_record(empty_store, tmp_path, monkeypatch, value):
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    memo = tmp_path / "memo.json"
    memo.write_text(json.dumps({"uri": uri, **value}))
    with tracked_run("after", tmp_path / "out", memo) as run:
        run.metrics({"loss": 1.0})
    logged = MlflowClient(uri).get_run(run.run_id)
    assert (logged.info.status, logged.data.metrics) == ("FINISHED", {"loss": 1.0})
    assert not [*tmp_path.glob("*.jsonl")]


def test_records_of_a_second_job_are_sent_once_they_are_moved(empty_store, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/nowhere/mlflow.db")
    out = tmp_path / "out"
    with held_spool(out), tracked_run("second", out) as run:
        run.metrics({"loss": 1.0})
    assert run.spool is not None
    assert run.spool != spool_path(out)
    assert f"{run.spool}: the same command sends them once the file is moved to {spool_path(out)}" in caplog.text
    shutil.move(run.spool, spool_path(out))
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    send_left(out)
    (sent,) = MlflowClient(uri).search_runs(["1"])
    assert (sent.info.run_name, sent.info.status, sent.data.metrics) == ("second", "FINISHED", {"loss": 1.0})
    assert not spool_path(out).exists()
