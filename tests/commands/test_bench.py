"""jobs/bench.py as a user runs it, and the batches it measures on."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mlflow.tracking import MlflowClient
from ray.exceptions import RayTaskError, WorkerCrashedError

from infra.bench import command
from infra.bench import encoders as measuring
from infra.bench.command import Encoders
from infra.bench.encoders import NATIVE, draw_batches
from infra.bench.shard import NAMES
from paraembed.encoders import ENCODERS

JOB = Path(__file__).parents[2] / "jobs" / "bench.py"
SMALL = "--batch-size 5 --width 8 --mean-tokens 3 --rounds 2 --threads 1"


@pytest.fixture
def store(monkeypatch, tmp_path):
    """MLflow's store."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
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


def test_every_encoder_is_measured(bench, capsys, tmp_path):
    assert bench(f"encoders {SMALL} --out numbers.json") == 0
    said = capsys.readouterr()
    (head, cells), *_ = (rows := rows_of(said.out)).items()
    assert [head, *cells] == ["encoder", "ms/step", "pairs/s", "parameters", "× lstm_avg"]
    names = [*rows][2:]
    assert names == [name for one in ENCODERS for name in ([one, NATIVE] if one == "lstm_avg" else [one])]
    assert rows["avg"][2] == "0"
    assert rows["proj"][2] == "72"
    assert rows["lstm_avg"][3] == "1.000"
    assert f"median of 2 rounds; torch {torch.__version__}, CPU, threads: 1" in said.err
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [one["encoder"] for one in numbers["encoders"]] == names
    assert all(len(one["milliseconds"]) == 2 for one in numbers["encoders"])
    assert numbers["settings"]["batch_size"] == 5


def test_only_what_is_named(bench, capsys):
    assert bench(f"encoders --encoders gru avg {SMALL}") == 0
    rows = [*rows_of(capsys.readouterr().out).items()][2:]
    assert [(name, cells[-1]) for name, cells in rows] == [("gru", "-"), ("avg", "-")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--encoders avg gpt", f"unknown encoder 'gpt'; allowed: {', '.join(ENCODERS)}"),
        ("--rounds 0", "`rounds` is 0; allowed: 1 to 1,000"),
        ("--width 0", "`width` is 0; allowed: 1 to 65,536"),
        ("--mean-tokens 0.5", "`mean_tokens` is 0.5; allowed: 1 to 10,000"),
        (
            "--distinct-words 5000",
            "distinct_words is 5000, but 3,000 tokens per step contain fewer than 2,890; give fewer",
        ),
        ("--threads 0", "`threads` is 0; allowed: 1 to 1,024"),
        pytest.param(
            "--device cuda",
            "--device cuda: PyTorch sees no GPU on this machine; use --device cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_what_is_not_allowed_is_one_line(bench, capsys, flags, message):
    assert bench(f"encoders {flags}") == 1
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.ray
@pytest.mark.slow
def test_the_sharding_beside_other_programs(ray_cluster, bench, capsys, tmp_path):
    line = "shard --folder work --lines 600 --files 3 --rounds 2 --loop-lines 50 --small-files 2 --out numbers.json"
    assert bench(line) == 0
    said = capsys.readouterr().out
    rows = rows_of(said)
    assert [rows[name][0] for name in NAMES.values()] == ["600", "600", "50", "50"]
    assert rows["shard_pairs"][3] == "1.00"
    assert {"read, decompress", "split into fields", "write: shards"} < set(rows)
    assert re.findall(r"^\| (?:files|rows in 1,000 partitions) +\| +([\d,]+) ", said, re.MULTILINE) == [
        *("2", "8", "100,000", "400,000")
    ]
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [one["program"] for one in numbers["timings"]] == [*NAMES.values()]
    assert [len(one["seconds"]) for one in numbers["timings"]] == [2] * 4
    assert numbers["line_bytes"] > 700
    assert numbers["peak_bytes"] > 1 << 20
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.gz")}
    assert len(before) == 3
    assert bench(line) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.gz")} == before
    assert bench("shard --folder work --rounds 0") == 1


TRAIN = "train --texts phrases --batch-sizes 5 --pairs 1000 --words 60 --width 8 --rounds 2 --seconds 0.05"
BARE = """
import sys

AT_HAND = {"torch", "numpy", "pyarrow", "paraembed", "infra"}
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
def test_training_where_there_is_nothing_but_torch_numpy_and_pyarrow(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BARE)
    done = subprocess.run(
        [sys.executable, JOB, *TRAIN.split(), "--out", "new/numbers.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "without Ray and MLflow: " in done.stderr
    rows = rows_of(done.stdout)
    assert rows["sentence-transformers StaticEmbedding"][0] == "datasets is not installed"
    measured = {name: cells for name, cells in rows.items() if cells[0][:1].isdigit()}
    assert list(measured) == [
        "paraembed",
        "paraembed, batches ready",
        "EmbeddingBag(sparse=True), SparseAdam",
        "Embedding, Adam",
        "paraembed, mega-batches of 20",
        "paraembed, 2 workers",
        "paraembed, 2 workers without shared memory",
    ]
    numbers = json.loads((tmp_path / "new" / "numbers.json").read_text())
    (case,) = numbers["cases"]
    assert case["case"]["pairs"] == 1000
    assert not numbers["machine"]["compiled loops"]
    for key, program in case["programs"].items():
        assert len(program["turns"]) == (0 if key == "static_embedding" else 2)
        for turn in program["turns"]:
            assert turn["seconds"] >= 0.05
            assert turn["steps"] >= 20
    ours = case["programs"]["paraembed"]["turns"]
    rate = 5 / np.median([turn["seconds"] / turn["steps"] for turn in ours])
    assert measured["paraembed"][2] == f"{rate:,.0f}"
    assert measured["paraembed"][3] == "1.00"
    assert case["programs"]["workers"]["turns"][0]["loopback_bytes"] > 0


@pytest.mark.ray
@pytest.mark.slow
def test_training_on_ray_beside_the_bare_loop(bench, capsys, tmp_path, store):
    assert bench(f"{TRAIN} --rounds 1 --programs paraembed machines3 ray --out numbers.json") == 0
    said = capsys.readouterr()
    assert re.search(r"a step on Ray takes [+-]\d+\.\d%", said.out)
    programs = json.loads((tmp_path / "numbers.json").read_text())["cases"][0]["programs"]
    assert re.search(r"as on three machines, 3 workers train \d\.\d\d × the pairs of one", said.out)
    assert programs["machines3"]["workers"] == 3
    assert programs["machines3"]["turns"][0]["loopback_bytes"] > 0
    (turn,) = programs["ray"]["turns"]
    assert turn["steps"] > 200
    assert turn["peak_bytes"] > 100e6
    (run,) = MlflowClient(store).search_runs(["1"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["avg/phrases/5/ray/pairs_per_second"] == pytest.approx(5 * turn["steps"] / turn["seconds"])
    assert not [*tmp_path.rglob("model.safetensors")]


EMBED = (
    "embed --rows 300 --memory-rows 100 --small-rows 200 --large-rows 600 --part-rows 80 --small-part-rows 20 "
    "--words 50 --width 8 --rounds 1"
)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)  # five times a Ray of its own
def test_embedding_end_to_end(bench, capsys, tmp_path, store):
    (tmp_path / "work").mkdir()
    line = f"{EMBED} --programs encode float32 floor few many large read tokenize gather write part"
    assert bench(f"{line} --folder work --out new/numbers.json") == 0
    said = capsys.readouterr()
    rows = rows_of(said.out)
    assert [rows[name][:2] for name in ("jobs/embed.py", "jobs/embed.py, few rows in many parts")] == [
        ["300", "4"],
        ["200", "10"],
    ]
    assert "Ray, commit" in rows
    for note in ("of the bare floor", "peak memory of a worker: ", "a part costs "):
        assert note in said.out
    (turn,) = json.loads((tmp_path / "new" / "numbers.json").read_text())["programs"]["float32"]["turns"]
    assert turn["steps"] == 300
    assert 0 < turn["start_seconds"] < turn["whole_seconds"] - turn["seconds"]
    assert turn["peak_bytes"] > 100e6
    assert not [*(tmp_path / "work").iterdir()]
    (run,) = MlflowClient(store).search_runs(["1"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["float32/rows_per_second"] == pytest.approx(300 / turn["seconds"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (WorkerCrashedError(), "Ray has lost a process"),
        (RayTaskError("parse", "traceback", ValueError("pairs.gz: wrong quoting")), "pairs.gz: wrong quoting"),
    ],
)
def test_an_error_of_ray_is_one_line(bench, capsys, monkeypatch, error, message):
    def fail(*_):
        raise error

    monkeypatch.setattr(measuring, "run", fail)
    assert bench("encoders") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")


def test_without_a_subcommand_it_says_which_there_are(bench, capsys):
    for line, status in (("", 2), ("--help", 0), ("shard --folder work --lines many", 2)):
        with pytest.raises(SystemExit) as ended:
            bench(line)
        assert ended.value.code == status
    said = capsys.readouterr()
    usage = " ".join(said.out.split())  # the line is wrapped
    assert usage.startswith("usage: bench.py [-h] {embed,encoders,export,models,search,shard,students,train}")
    assert "{embed,encoders,export,models,search,shard,students,train}" in said.err
    assert "argument --lines: invalid int value: 'many'" in said.err


def test_help_and_wrong_values_need_no_torch():
    code = (
        "import sys\nfrom infra.bench.command import main, parse\nassert main(['encoders', '--rounds', '0']) == 1\n"
        "try:\n  parse(['embed', '--help'])\nfinally:\n"
        "  assert not {'torch', 'numpy', 'ray', 'mlflow'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=JOB.parents[1], capture_output=True, text=True, check=True)
    assert "--small-part-rows N" in done.stdout


@pytest.mark.parametrize(("distinct_words", "about"), [(None, 1200), (300, 300), (2500, 2500)])
def test_batches_hold_the_words_asked_for(distinct_words, about):
    batches = draw_batches(Encoders(distinct_words=distinct_words, rounds=3))
    assert [len(batch) for batch in batches] == [200] * 3
    assert np.mean([batch.lengths.mean() for batch in batches]) == pytest.approx(15, rel=0.05)
    assert np.mean([len(np.unique(batch.ids)) for batch in batches]) == pytest.approx(about, rel=0.05)
