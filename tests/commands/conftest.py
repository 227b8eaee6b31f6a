"""Run a job as a user does, in a folder of the test's own."""

import shutil

import pytest

from tests.jobs import run_job as run_in_this_process


@pytest.fixture
def run_job(tmp_path, monkeypatch, empty_store):
    """Return a function from a job and its command line to the exit status."""
    monkeypatch.chdir(tmp_path)
    # Elsewhere, since tests look at all that a job wrote. A server that does not answer costs each job 2 to 5 s.
    store = shutil.copy(empty_store, tmp_path.parent / f"{tmp_path.name}.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    return lambda name, line: run_in_this_process(name, *line.split())
