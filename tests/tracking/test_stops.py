"""The MLflow run of a job that is stopped, or that ends without unwinding, is closed while the store answers."""

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import nullcontext

import pytest
from mlflow.tracking import MlflowClient

from paraembed.commands import log
from paraembed.signals import RunFailedError
from paraembed.tracking import runs as tracked
from paraembed.tracking import sender
from paraembed.tracking.records import RecordFile, record_path
from paraembed.tracking.runs import held_records, send_left, tracked_run
from tests.jobs import ran

JOB = """
import sys
from dataclasses import dataclass
from pathlib import Path
from paraembed.commands.job import run
from paraembed.tracking.runs import send_left, tracked_run
import os, signal, time
from paraembed.signals import fail_now

def opened(*runs):
    while not all(run.run_id for run in runs):
        time.sleep(0.01)

def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)

@dataclass
class Flags:
    "End within a run."

def main(_: Flags) -> None:
    with tracked_run("outer", Path("outer")) as outer, tracked_run("inner", Path("inner")) as run:
        run.metrics({"loss": 1.0})
        END

sys.exit(run(main, Flags))
"""


@pytest.mark.parametrize(
    ("end", "exit_status", "status"),
    [("hang_up", 130, "KILLED"), pytest.param("fail_now", 1, "FAILED", marks=pytest.mark.slow)],
)
def test_a_process_that_ends_at_once_closes_its_runs(empty_store, tmp_path, end, exit_status, status):
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri}
    job = JOB.replace("END", f"opened(outer, run); {end}()")  # importing MLflow may take longer than a process has
    done = ran(sys.executable, "-c", job, status=exit_status, env=environment, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    runs = {run.info.run_name: run for run in MlflowClient(uri).search_runs(["1"])}
    assert {name: run.info.status for name, run in runs.items()} == {"outer": status, "inner": status}
    assert runs["inner"].data.metrics == {"loss": 1.0}
    assert not [*tmp_path.glob("*.jsonl")]


@pytest.mark.slow
def test_the_ends_of_all_runs_are_kept_for_a_store_that_does_not_answer_in_time(tmp_path):
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "sqlite:////proc/nowhere/mlflow.db"}
    ran(sys.executable, "-c", JOB.replace("END", "fail_now()"), status=1, env=environment, cwd=tmp_path)
    for name in ("outer", "inner"):
        records = RecordFile(tmp_path / name, record_path(tmp_path / name)).read()
        assert [value[0] for _, kind, value in records if kind == "end"] == ["FAILED"], name


@pytest.mark.slow
def test_a_stop_while_the_store_opens_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)  # making the default database takes seconds
    stop = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    stop.start()
    with pytest.raises(KeyboardInterrupt), tracked_run("stopped", tmp_path / "out"):
        time.sleep(60)
    send_left(tmp_path / "out")  # of a machine so busy that the store was not open within the seconds of a stop
    (run,) = MlflowClient(f"sqlite:///{tmp_path}/mlruns/mlflow.db").search_runs(["1"])
    assert run.info.status == "KILLED"
    assert not record_path(tmp_path / "out").exists()


def test_the_command_log_sends_what_jobs_left(empty_store, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/nowhere/mlflow.db")
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(sender, "_LAST_SECONDS", 0.1)
        patch.setattr(tracked, "_SENDER_SECONDS", 0.1)
        for name in ("first", "second"):  # the second with the same output, while another job writes there
            with held_records(out) if name == "second" else nullcontext(), tracked_run(name, out) as run:
                run.metrics({"loss": 1.0})
            assert f"paraembed log {str(run.records.path).removesuffix('.mlflow.jsonl')}" in caplog.text
        with pytest.raises(RunFailedError, match=str(record_path(out))):
            log.main(log.Log(out))
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for path in (out, run.records.path):
        log.main(log.Log(path))
    runs = {run.info.run_name: run for run in MlflowClient(uri).search_runs(["1"])}
    assert {name: (run.info.status, run.data.metrics["loss"]) for name, run in runs.items()} == {
        "first": ("FINISHED", 1.0),
        "second": ("FINISHED", 1.0),
    }
    assert not [*tmp_path.glob("*.jsonl"), *run.records.path.parent.glob("*.jsonl")]
    log.main(log.Log(out))
    assert "nothing to send" in capsys.readouterr().err
