"""jobs/bench.py as a user runs it."""

import json
import os
import re
import shutil
from contextlib import nullcontext
from statistics import median

import pytest
import torch
from mlflow.tracking import MlflowClient

from infra.bench import command, shard, train
from infra.bench import encoders as measuring
from infra.bench.encoders import NATIVE
from paraembed.encoders import ENCODERS
from tests.jobs import job_command, ran

SMALL = "--batch-size 5 --width 8 --mean-tokens 3 --rounds 2 --threads 1"


@pytest.fixture
def store(monkeypatch, tmp_path, empty_store):
    """MLflow's store."""
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path.parent / 'bench.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def bench(store, monkeypatch, tmp_path):
    """Runs the job on a command line and returns its exit status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "ROUND_SECONDS", 0.001)
    return lambda line: command.main(line.split())


def rows_of(tables):
    """Cells by the first one of each line of Markdown tables."""
    lines = [re.split(r" *(?<!\\)\| *", line)[1:-1] for line in tables.splitlines() if line.startswith("|")]
    return {first.replace("\\|", "|"): rest for first, *rest in lines}


@pytest.mark.slow
def test_every_encoder_is_measured(bench, capsys, tmp_path):
    (tmp_path / "numbers.json").write_text("of an earlier run, which is overwritten")
    assert bench(f"encoders {SMALL} --out numbers.json") == 0
    said = capsys.readouterr()
    (head, cells), *_ = (rows := rows_of(said.out)).items()
    assert [head, *cells] == ["encoder", "ms/step", "pairs/s", "parameters", "× lstm_avg"]
    names = [*rows][2:]
    assert names == [name for one in ENCODERS for name in ([one, NATIVE] if one == "lstm_avg" else [one])]
    assert rows["avg"][2] == "0"
    assert rows["proj"][2] == "72"
    assert rows["lstm_avg"][3] == "1.00"
    assert f"median of 2 rounds; torch {torch.__version__}, " in said.err
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert sorted(numbers["programs"]) == sorted(names)
    assert all(len(program["turns"]) == 2 for program in numbers["programs"].values())
    assert numbers["settings"]["batch_size"] == 5


def test_only_what_is_named(bench, capsys):
    assert bench(f"encoders --programs gru avg {SMALL}") == 0
    rows = [*rows_of(capsys.readouterr().out).items()][2:]
    assert [(name, cells[-1]) for name, cells in rows] == [("gru", ""), ("avg", "")]


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("encoders --programs avg gpt", 2, "'gpt'"),
        ("encoders --rounds 0", 2, "--rounds: 0"),
        ("encoders --width wide", 2, "'wide'"),
        ("shard --lines 5", 2, "--folder"),
        ("train --pairs 50", 1, "pairs is 50"),
        ("train --precision bfloat16", 1, "'bfloat16'"),
        pytest.param(
            "encoders --device cuda",
            0,
            "skipped: --device cuda",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_what_is_not_allowed_is_one_line(bench, capsys, line, status, message):
    with pytest.raises(SystemExit, match=str(status)) if status == 2 else nullcontext():
        assert bench(line) == status
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.ray
@pytest.mark.slow
def test_the_sharding_beside_other_programs(ray_cluster, bench, capsys, tmp_path):
    line = "shard --folder work --lines 600 --files 3 --rounds 2 --loop-lines 50 --out numbers.json"
    assert bench(line) == 0
    said = capsys.readouterr().out
    rows = rows_of(said)
    assert [rows[name][0] for name in shard.PROGRAMS.values()] == ["600", "600", "50"]
    assert rows["shard_pairs"][2] == "1.00"
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [len(program["turns"]) for program in numbers["programs"].values()] == [2] * 3
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.gz")}
    assert len(before) == 3
    assert bench(line) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.gz")} == before


TRAIN = "train --texts phrases --batch-sizes 5 --pairs 1000 --words 60 --width 8 --rounds 2 --seconds 0.05"

BARE = """
import sys

AT_HAND = {"torch", "numpy", "pyarrow", "numba", "llvmlite", "paraembed", "infra"}
OF_TORCH = {"typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock", "fsspec",
            "torchgen", "functorch"}


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top.startswith("_") or top in AT_HAND | OF_TORCH | sys.stdlib_module_names:
            return self.finder.find_spec(name, path, target)
        return None


sys.meta_path[:] = map(Without, sys.meta_path)
"""
"""What Python runs first: it finds no other package, in this process and in those that it starts."""


@pytest.mark.slow
def test_training_without_ray_and_mlflow(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BARE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = ran(*job_command("bench", *TRAIN.split(), "--out", "new/numbers.json"), cwd=tmp_path, env=environment)
    assert "without Ray and MLflow: " in done.stderr
    rows = rows_of(done.stdout)
    assert rows["sentence-transformers StaticEmbedding"][0] == "datasets is not installed"
    measured = {name: cells for name, cells in rows.items() if cells[0][:1].isdigit()}
    names = [name for key, name in train.PROGRAMS.items() if key != "static_embedding"]
    assert list(measured) == names
    numbers = json.loads((tmp_path / "new" / "numbers.json").read_text())
    (case,) = numbers["cases"]
    assert case["case"]["pairs"] == 1000
    for key, program in case["programs"].items():
        assert len(program["turns"]) == (0 if key == "static_embedding" else 2)
        for turn in program["turns"]:
            assert turn["seconds"] >= 0.05
            assert turn["steps"] >= 20
    rate = 5 / median(turn["seconds"] / turn["steps"] for turn in case["programs"]["paraembed"]["turns"])
    assert measured["paraembed"][2] == f"{rate:,.0f}"
    assert measured["paraembed"][3] == "1.00"
    assert case["programs"]["machines3"]["workers"] == 3


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_embedding_end_to_end(bench, capsys, tmp_path, store):
    (tmp_path / "work").mkdir()
    line = "embed --rows 300 --memory-rows 100 --part-rows 80 --words 50 --width 8 --rounds 1"
    assert bench(f"{line} --programs encode float32 floor --folder work --out new/numbers.json") == 0
    rows = rows_of(capsys.readouterr().out)
    assert [rows[name][0] for name in ("paraembed", "jobs/embed.py")] == ["100", "220"]  # the driver embeds 80
    (turn,) = json.loads((tmp_path / "new" / "numbers.json").read_text())["programs"]["float32"]["turns"]
    assert turn["steps"] == 220
    assert 0 < turn["row_seconds"] * turn["steps"] <= 2 * turn["seconds"]  # of two workers
    assert turn["peak_bytes"] > 100e6
    assert not [*(tmp_path / "work").iterdir()]
    (run,) = MlflowClient(store).search_runs(["1"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["float32/rows_per_second"] == pytest.approx(220 / turn["seconds"])
