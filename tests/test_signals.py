"""The first seconds of every job: a stop, or an interpreter without the packages, is one line."""

import os
import signal
import sys
from itertools import cycle
from pathlib import Path

import pytest

from paraembed.signals import STOPPED, STOPPED_LINE
from tests.jobs import ran

ROOT = Path(__file__).parents[1]
JOBS = sorted((ROOT / "jobs").glob("*.py"))
STOPS = list(zip(JOBS, cycle([signal.SIGINT, signal.SIGTERM]), strict=False))
STOP_AT_IMPORT = """
import os, sys

class Stop:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in {"numpy", "ray", "torch", "tyro"}:
            os.kill(os.getpid(), int(os.environ["STOP"]))

sys.meta_path.insert(0, Stop)
"""


def run_job(job, *options, status, **environment):
    flags = ["encoders"] if job.name == "bench.py" else ["--help"]  # its help needs none of them
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PARAEMBED_TRACEBACK"}}
    return ran(sys.executable, *options, job, *flags, status=status, env={**kept, **environment}, timeout=60)


@pytest.mark.parametrize(("job", "number"), STOPS, ids=str)
def test_a_stop_while_a_job_imports_its_modules_is_one_line(job, number, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STOP_AT_IMPORT)
    done = run_job(job, status=STOPPED, PYTHONPATH=f"{tmp_path}:{ROOT}", STOP=str(int(number)))
    assert done.stderr == f"{STOPPED_LINE}\n"


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_an_interpreter_without_the_packages_is_named_with_the_remedy(job):
    done = run_job(job, "-S", status=1)  # no site-packages, as where the virtual environment is not active
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} has no package '")
    assert line.split("'")[1] in {"ray", "torch", "tyro", "numpy"}
    assert "bin/activate" in line or "pip install" in line
