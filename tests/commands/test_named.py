"""``paraembed JOB``: the jobs without the checkout."""

import re
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


def test_messages_name_jobs_as_they_are_started(tmp_path):
    (tmp_path / "train.py").write_text("a text in a file of that name\n")
    embed = "--encoder", "small", "--input", "train.py", "--out", "out", "--text-column"
    assert "--encoder FOLDER" in run("embed", "--help", folder=tmp_path, status=0).stdout
    for name, said in (("embed", "paraembed train"), ("shard", "paraembed shard fetch")):
        text = run(name, "--help", folder=tmp_path, status=0).stdout
        assert said in " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())
        assert not re.search(r"jobs/|\b(embed|shard|train)\.py", text)
    assert f"{tmp_path}/train.py" in run(*("embed", *embed, "nope"), folder=tmp_path, status=2).stderr
    sample = run("sample", "--out", "s", "--lines", "200", folder=tmp_path, status=0).stderr
    assert "next: paraembed shard --input" in sample
