"""``paraembed JOB``: the jobs without the checkout."""

import sys
from pathlib import Path

import pytest

import paraembed
from paraembed.commands import JOBS
from tests.jobs import ran, run_named

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run ``paraembed`` in a folder, which must end with a status; return what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, status=0):
        capsys.readouterr()
        assert run_named(*arguments) == status
        return capsys.readouterr()

    return run


def test_every_job_of_the_checkout_has_its_name():
    assert {*JOBS} == {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"bench"} | {"completion", "log", "sample"}


def test_a_job_runs_by_its_name(run, tmp_path):
    listed = ran(sys.executable, "-m", "paraembed", "--help", cwd=tmp_path).stdout
    assert all(name in listed for name in JOBS)
    _, start, docs, *_ = listed.splitlines()
    assert start.startswith("start: paraembed sample --out")
    assert (ROOT / "docs/quickstart.md").exists()
    assert "docs/quickstart.md" in docs
    assert run("--version").out == f"paraembed {paraembed.__version__}\n"
    unknown = run("emebd", status=2)
    assert unknown.out == ""
    assert "'emebd'; did you mean embed?" in unknown.err
    assert str(tmp_path / "nothing") in run("verify", tmp_path / "nothing", status=2).err
