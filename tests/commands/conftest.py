"""Run a job as a user does, in a folder of the test's own."""

import pytest

from tests.jobs import run_job as run_in_this_process


@pytest.fixture
def run_job(tmp_path, monkeypatch):
    """Return a function from a job and its command line to the exit status; MLflow does not answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    return lambda name, line: run_in_this_process(name, *line.split())
