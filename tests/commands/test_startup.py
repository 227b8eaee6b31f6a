"""Help, a wrong flag and a missing input are answered before anything is imported that takes seconds."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paraembed.commands import JOBS
from paraembed.pairs.sample import write_sample
from tests.jobs import answers, job_command, ran, run_job
from tune_spaces import SPACES

ARROW = {"numpy", "pyarrow"}  # 0.3 s
SLOW = {"ray", "mlflow", "torch", "scipy", "matplotlib", "numba", "optuna"}
CASES = json.loads(Path(__file__).with_name("startup.json").read_text())
"""Command lines of jobs: those that have run; those with a missing or empty file, an unknown name, a folder of
something else, another output; and those whose inputs are not there.
"""
FINISHED, WRONG = CASES["finished"], CASES["wrong"]


def test_help_is_printed_without_slow_imports():
    names = sorted(JOBS, key="sample".__eq__)  # which imports Arrow, last
    said, _ = answers(*(f"{name} --help" for name in names))
    assert [(name, status, found & SLOW) for name, status, found in said] == [(name, 0, set()) for name in names]
    assert not {name for name, _, found in said if found & ARROW} - {"sample"}


def test_help_ends_with_its_reader():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*job_command("evaluate"), "--help"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_mistakes_are_answered_without_slow_imports(tmp_path):
    missing = [f"{name} {flags}" for texts in ("missing", "missing texts") for name, flags in CASES[texts].items()]
    lines = [*(f"{name} --no-such-flag" for name in JOBS), *missing]
    said, errors = answers(*(line.replace("{}", str(tmp_path)) for line in lines))
    assert [(name, status, found & SLOW) for name, status, found in said] == [
        (line.split()[0], 2, set()) for line in lines
    ]
    absent = [line for line in errors.splitlines() if f"error: {tmp_path}/" in line]
    assert [re.findall("does not exist", line) for line in absent] == [["does not exist"]] * len(missing)
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def as_json(capsys):
    """Run a job with ``--json``, with an expected status; return what it prints, and its last line as an object."""

    def run(line, status=0):
        name, *flags = line.split()
        capsys.readouterr()
        assert run_job(name, *flags, "--json") == status
        printed = capsys.readouterr().out
        return printed, json.loads(printed.splitlines()[-1])

    return run


def test_json_has_the_estimate_of_a_dry_run(as_json, tmp_path):
    (tmp_path / "t.txt").write_text("a cat sat\non a mat\n" * 50)
    texts, shared = f"{tmp_path}/t.txt", f"--out {tmp_path}/out --dry-run"
    printed, embed = as_json(f"embed --encoder small --price-per-hour 3600 --input {texts} {shared}")
    teach, tune = (
        as_json(f"{job} {shared}")[1] for job in (f"teach --teacher small --texts {texts}", "tune acl2017/avg")
    )
    embed, teach, tune = (one["estimate"] for one in (embed, teach, tune))
    assert (embed["rows"], embed["parts"], tune) == (100, 1, {"trials": SPACES["acl2017/avg"].size})
    assert embed["cost"] == pytest.approx(embed["seconds"])
    assert f"{embed['bytes']:,}" in printed
    assert (teach["texts"], teach["seconds"].keys()) == (100, {"vectors", "ridge"})
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_small_jobs_run_without_ray_and_pytorch(tmp_path):
    (tmp_path / "t.txt").write_text("a cat\na dog\n")
    first, _ = answers(f"embed --encoder small --input {tmp_path}/t.txt --out {tmp_path}/out")
    jobs = "status {0}", "search {0} --query cat", "verify {0} --encoder small --input {1}"
    used, _ = answers(*(job.format(tmp_path / "out", tmp_path) for job in jobs))
    assert [(status, found & {"ray", "torch"}) for _, status, found in first] == [(0, set())]
    assert [(status, found & {"ray", "mlflow", "torch"}) for _, status, found in used] == [(0, set())] * 3
    assert not used[0][2] & (SLOW | {"pandas"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory, empty_store):
    """A folder in which each of these jobs has run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, folder / 'mlflow.db')}")
        patch.chdir(folder)
        write_sample(Path("demo"), lines=300, pairs=600, sentences=300, test_pairs=100, suites=True)
        for name in ("shard", "train", "finetune", "embed", "mine", "load"):
            assert run_job(name, *FINISHED[name].split()) == 0
        (folder / "empty.txt").touch()
        (folder / "table.csv").write_text("id,body\n" + '1,"a ""cat"", on a mat"\n' * 10_000)
        (folder / "folder").mkdir()
        (folder / "folder" / "notes").write_text("of something else")
        yield folder


def test_a_finished_output_is_recognized_without_slow_imports(finished):
    lines = [f"{name} {flags}" for name, flags in FINISHED.items()]
    again, said = answers(*lines)
    assert said.count("nothing to do") == len(lines)
    assert [(name, status, found & SLOW) for name, status, found in again] == [(name, 0, set()) for name in FINISHED]
    assert not [name for name, _, found in again if "pandas" in found]


@pytest.mark.slow
def test_wrong_inputs_are_answered_without_slow_imports(finished):
    said, errors = answers(*WRONG)
    assert [(line, status, found & SLOW) for line, (_, status, found) in zip(WRONG, said, strict=True)] == [
        (line, 2, set()) for line in WRONG
    ]
    assert errors.count("error: ") == len(WRONG)
    assert errors.count("table.csv has no column 'nope'; --text-column can be: id, body") == 2
    assert not (finished / "out").exists()


def test_the_package_is_imported_at_once_leaves_logging_alone_and_has_pytorch_when_asked_for():
    code = """
import logging, sys, time
before = logging.root.handlers[:], logging.root.level
started = time.process_time()
import paraembed
print(time.process_time() - started, *{name.partition(".")[0] for name in sys.modules})
assert (logging.root.handlers, logging.root.level) == before
assert {"load", "train", "embed", "evaluate", "search"} <= {*dir(paraembed)}
from paraembed import ENCODERS, RECIPES
assert "torch" not in sys.modules
from paraembed.encoders import Embedded, Encoder
print(Encoder.__module__, len(ENCODERS), "torch" in sys.modules)
"""
    first, last = ran(sys.executable, "-c", code).stdout.splitlines()
    seconds, *imported = first.split()
    assert float(seconds) < 0.1
    assert not (SLOW | ARROW | {"tyro"}) & {*imported}
    assert last.split() == ["paraembed.encoders.base", "22", "True"]
