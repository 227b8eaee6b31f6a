"""Run a job as a user does, in a folder of the test's own."""

import logging
import runpy
import signal
import sys
from pathlib import Path

import pytest

from paraembed.stops import STOP_SIGNALS

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture
def run_job(tmp_path, monkeypatch):
    """Return a function from a job and its command line to the exit status; MLflow does not answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    root, stops = logging.getLogger(), {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def call(name, line):
        monkeypatch.setattr(sys, "argv", [f"jobs/{name}.py", *line.split()])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")
        return ended.value.code

    yield call
    root.handlers, root.level = handlers, level
    for number, handler in stops.items():
        signal.signal(number, handler)
