"""``paraembed JOB``: the jobs without the checkout."""

import subprocess
import sys
from pathlib import Path

import paraembed
from paraembed.commands import JOBS

ROOT = Path(__file__).parents[2]


def run(*arguments, folder):
    command = [sys.executable, "-m", "paraembed", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_every_job_of_the_checkout_has_its_name():
    assert {*JOBS} == {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"bench"} | {"log", "sample"}


def test_a_job_runs_by_its_name(tmp_path):
    listed = run("--help", folder=tmp_path)
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in JOBS)
    version = run("--version", folder=tmp_path)
    assert (version.returncode, version.stdout) == (0, f"paraembed {paraembed.__version__}\n")
    unknown = run("emebd", folder=tmp_path)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "'emebd'" in unknown.stderr
    failed = run("verify", tmp_path / "nothing", folder=tmp_path)
    assert failed.returncode == 2
    assert str(tmp_path / "nothing") in failed.stderr
