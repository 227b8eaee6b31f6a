"""``paraembed JOB``: the jobs without the checkout."""

import sys
from pathlib import Path

import paraembed
from paraembed.commands import JOBS
from tests.jobs import ran

ROOT = Path(__file__).parents[2]


def run(*arguments, folder, status):
    return ran(sys.executable, "-m", "paraembed", *arguments, cwd=folder, status=status, timeout=60)


def test_every_job_of_the_checkout_has_its_name():
    assert {*JOBS} == {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"bench"} | {"completion", "log", "sample"}


def test_a_job_runs_by_its_name(tmp_path):
    listed = run("--help", folder=tmp_path, status=0)
    assert all(name in listed.stdout for name in JOBS)
    _, start, docs, *_ = listed.stdout.splitlines()
    assert start.startswith("start: paraembed sample --out")
    assert (ROOT / "docs/quickstart.md").exists()
    assert "docs/quickstart.md" in docs
    version = run("--version", folder=tmp_path, status=0)
    assert version.stdout == f"paraembed {paraembed.__version__}\n"
    unknown = run("emebd", folder=tmp_path, status=2)
    assert unknown.stdout == ""
    assert "'emebd'; did you mean embed?" in unknown.stderr
    assert str(tmp_path / "nothing") in run("verify", tmp_path / "nothing", folder=tmp_path, status=2).stderr
