"""The default MLflow database is whole whatever is killed when."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
from mlflow.tracking import MlflowClient
from sqlalchemy import create_engine

from paraembed.tracking.database import whole_database

MAKE = "import sys; from pathlib import Path; from paraembed.tracking.database import whole_database; "
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


def tables(database):
    with closing(sqlite3.connect(database)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.fixture
def copied(empty_store, tmp_path):
    database = tmp_path / "mlruns" / "mlflow.db"
    database.parent.mkdir()
    database.write_bytes(empty_store.read_bytes())
    return database


@pytest.mark.slow
@pytest.mark.parametrize("num_bytes", [1, 50_000, 200_000, 400_000, 600_000])
def test_a_kill_while_it_is_made_leaves_none_or_a_whole_one(tmp_path, num_bytes):
    folder = tmp_path / "mlruns"
    with started(folder) as process:
        new, database = folder / ".mlflow.db.new", folder / "mlflow.db"
        while (
            process.poll() is None and not (new.exists() and new.stat().st_size >= num_bytes) and not database.exists()
        ):
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
    assert not list((tmp_path / "mlruns").glob("*broken*"))


@pytest.mark.filterwarnings("ignore:Unnamed CHECK constraint")
@pytest.mark.parametrize(
    "how",
    ["half made", "cut", *(pytest.param(name, marks=pytest.mark.slow) for name in ("no database", "a column twice"))],
)
def test_a_broken_one_is_set_aside(copied, caplog, how):
    if how in {"half made", "a column twice"}:  # what MLflow leaves that is killed between two steps of a migration
        with closing(sqlite3.connect(copied)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
            if how == "half made":
                connection.execute("DELETE FROM experiments")
            connection.commit()
    elif how == "cut":
        copied.write_bytes(copied.read_bytes()[:300_000])
    else:
        copied.write_bytes(b"no database " * 9999)
    before = copied.read_bytes()
    assert whole_database(copied.parent) == copied
    assert can_be_used(copied)
    (kept,) = copied.parent.glob("mlflow.db.broken-*")
    assert kept.read_bytes() == before
    assert kept.name in caplog.text


def test_an_older_one_is_brought_up_to_date_with_its_runs(tmp_path):
    database = tmp_path / "mlruns" / "mlflow.db"
    database.parent.mkdir()
    engine = create_engine(f"sqlite:///{database}")
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        config = _get_alembic_config(f"sqlite:///{database}")
        config.attributes["connection"] = connection
        command.upgrade(config, "2d6e25af4d3e")  # of MLflow 2.3
    engine.dispose()
    with closing(sqlite3.connect(database)) as older:
        older.execute("INSERT INTO experiments (experiment_id, name, lifecycle_stage) VALUES (7, 'mine', 'active')")
        older.execute(
            "INSERT INTO runs (run_uuid, name, experiment_id, status, source_type, user_id, start_time, "
            "lifecycle_stage, artifact_uri) VALUES ('a', 'old', 7, 'FINISHED', 'LOCAL', 'me', 1, 'active', 'x')"
        )
        older.commit()
    before = tables(database)
    whole_database(database.parent)
    assert before < tables(database)
    assert MlflowClient(f"sqlite:///{database}").get_run("a").info.status == "FINISHED"
    assert can_be_used(database)
    assert not list(database.parent.glob("*broken*"))
    (kept,) = database.parent.glob("mlflow.db.before-*")
    assert tables(kept) == before


def test_a_newer_one_is_left_alone(copied):
    with closing(sqlite3.connect(copied)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        connection.commit()
    before = copied.read_bytes()
    with pytest.raises(Exception, match=r"another version of MLflow"):
        whole_database(copied.parent)
    assert copied.read_bytes() == before
    assert not list(copied.parent.glob("*broken*"))


def test_a_whole_one_is_not_touched(copied):
    before = copied.read_bytes(), copied.stat().st_mtime_ns
    whole_database(copied.parent)
    assert (copied.read_bytes(), copied.stat().st_mtime_ns) == before
    assert sorted(path.name for path in copied.parent.iterdir()) == [".lock", "mlflow.db"]
