"""The default MLflow database is complete, whatever is killed when."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from paraembed.tracking.store import whole_database

MAKE = "import sys; from pathlib import Path; from paraembed.tracking.store import whole_database; "
COMMAND = [sys.executable, "-c", MAKE + "print('begun', flush=True); whole_database(Path(sys.argv[1]))"]


def started(folder):
    """A process that makes a database, at the moment when it begins."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([*COMMAND, folder], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def can_be_used(database):
    client = MlflowClient(f"sqlite:///{database}")
    run = client.create_run(client.create_experiment(f"test-{time.time_ns()}")).info.run_id
    client.log_param(run, "a", "b")
    return bool(client.get_run(run).data.params == {"a": "b"})


def size_of_new(folder):
    with suppress(FileNotFoundError):  # it has been renamed
        return sum(new.stat().st_size for new in folder.glob(".mlflow.db.*.new"))
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("num_bytes", [1, 50_000, 200_000, 400_000, 600_000])
def test_a_kill_while_it_is_made_leaves_none_or_a_whole_one(tmp_path, num_bytes):
    folder = tmp_path / "mlruns"
    with started(folder) as process:
        database = folder / "mlflow.db"
        while process.poll() is None and not database.exists() and size_of_new(folder) < num_bytes:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    was_made = database.exists()
    assert whole_database(folder) == database
    assert can_be_used(database)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "mlflow.db"], was_made


@pytest.mark.slow
def test_two_jobs_at_once_make_one(tmp_path):
    processes = [started(tmp_path / "mlruns") for _ in range(2)]
    for process in processes:
        assert process.communicate()[1] == b""
        assert process.returncode == 0
    assert can_be_used(tmp_path / "mlruns" / "mlflow.db")
