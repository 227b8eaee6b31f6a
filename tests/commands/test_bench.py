"""jobs/bench.py as a user runs it."""

import json
import re
import shutil
from contextlib import nullcontext

import pytest
import torch

from infra.bench import command
from infra.bench import encoders as measuring
from infra.bench.encoders import NATIVE
from paraembed.encoders import ENCODERS

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
