"""The first seconds of every job: a stop, or an interpreter without the packages, is one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paraembed.signals import STOPPED, STOPPED_LINE

ROOT = Path(__file__).parents[1]
JOBS = sorted((ROOT / "jobs").glob("*.py"))
STOP_AT_IMPORT = """
import os, sys

class Stop:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in {"numpy", "ray", "torch", "tyro"}:
            os.kill(os.getpid(), int(os.environ["STOP"]))

sys.meta_path.insert(0, Stop)
"""


def run_job(job, *options, **environment):
    flags = ["encoders"] if job.name == "bench.py" else ["--help"]  # its help needs none of them
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PARAEMBED_TRACEBACK"}}
    return subprocess.run(
        [sys.executable, *options, job, *flags],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_a_stop_while_a_job_imports_its_modules_is_one_line(job, number, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STOP_AT_IMPORT)
    done = run_job(job, PYTHONPATH=f"{tmp_path}:{ROOT}", STOP=str(int(number)))
    assert (done.returncode, done.stderr) == (STOPPED, f"{STOPPED_LINE}\n")


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_an_interpreter_without_the_packages_is_named_with_the_remedy(job):
    done = run_job(job, "-S")  # no site-packages, as where the virtual environment is not active
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} has no package '")
    assert line.split("'")[1] in {"ray", "torch", "tyro", "numpy"}
    assert "bin/activate" in line or "pip install" in line
