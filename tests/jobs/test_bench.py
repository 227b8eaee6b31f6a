"""jobs/bench.py as a user runs it, and the batches it measures on."""

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from paraembed.benchmarks import encoders as measuring
from paraembed.benchmarks.encoders import NATIVE, Workload
from paraembed.benchmarks.shard import GZIP, LOOP, OURS, SPLIT
from paraembed.cluster.job import run
from paraembed.encoders import ENCODERS

JOB = Path(__file__).parents[2] / "jobs" / "bench.py"
SMALL = "--batch-size 5 --width 8 --mean-tokens 3 --rounds 2 --threads 1"


@pytest.fixture(scope="module")
def job() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("jobs_bench", JOB)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def bench(job: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], int]:
    """Runs the job on a command line and gives its exit status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "TURN_SECONDS", 0.001)

    def call(line: str) -> int:
        monkeypatch.setattr(sys, "argv", ["jobs/bench.py", *line.split()])
        return run(job.main, job.Bench)

    return call


def test_every_encoder_is_measured(
    bench: Callable[[str], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert bench(f"encoders {SMALL} --out numbers.json") == 0
    said = capsys.readouterr()
    table = [re.split(r"  +", line) for line in said.out.splitlines()]
    assert table[0] == ["encoder", "ms/step", "pairs/s", "parameters", "× lstm_avg"]
    names = [row[0] for row in table[2:]]
    assert names == [name for one in ENCODERS for name in ([one, NATIVE] if one == "lstm_avg" else [one])]
    rows = {row[0]: row[1:] for row in table[2:]}
    assert rows["avg"][2] == "0"
    assert rows["proj"][2] == "72"
    assert rows["lstm_avg"][3] == "1.000"
    assert f"median of 2 rounds; torch {torch.__version__}, CPU, threads: 1" in said.err
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [one["encoder"] for one in numbers["encoders"]] == names
    assert all(len(one["milliseconds"]) == 2 for one in numbers["encoders"])
    assert numbers["settings"]["batch_size"] == 5


def test_only_what_is_named(bench: Callable[[str], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(f"encoders --encoders gru avg {SMALL}") == 0
    said = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in said] == ["gru", "avg"]
    assert all(line.endswith(" -") for line in said)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--encoders avg gpt", f"unknown encoder 'gpt'; allowed: {', '.join(ENCODERS)}"),
        ("--rounds 0", "rounds is 0; allowed: 1 to 1000"),
        ("--width 0", "width is 0; allowed: 1 to 65536"),
        ("--mean-tokens 0.5", "mean_tokens is 0.5; allowed: 1 to 10000"),
        ("--distinct-words 5000", "distinct_words is 5000; 3,000 tokens a step hold fewer than 2,890"),
        ("--threads 0", "--threads is 0; it must be at least 1"),
        pytest.param(
            "--device cuda",
            "--device cuda: PyTorch sees no GPU on this machine; take --device cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_what_is_not_allowed_is_one_line(
    bench: Callable[[str], int],
    capsys: pytest.CaptureFixture[str],
    flags: str,
    message: str,
) -> None:
    assert bench(f"encoders {flags}") == 1
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.ray
def test_the_sharding_beside_other_programs(
    ray_cluster: None, bench: Callable[[str], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = "shard --folder work --lines 600 --files 3 --rounds 2 --loop-lines 50 --out numbers.json"
    assert bench(line) == 0
    table = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in table[:2]] + [row[:2] for row in table[2:6]] == [
        ["program", "lines"], ["-" * 23, "-----"], [OURS, "600"], [GZIP, "600"], [SPLIT, "50"], [LOOP, "50"],
    ]  # fmt: skip
    assert table[2][4] == "1.00"
    assert {"read, decompress", "split into fields", "write: shards"} < {row[0] for row in table}
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [len(one["seconds"]) for one in numbers["timings"]] == [2] * 4
    assert numbers["line_bytes"] > 700
    assert numbers["peak_bytes"] > 1 << 20
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.gz")}
    assert len(before) == 3
    assert bench(line) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.gz")} == before
    assert bench("shard --folder work --rounds 0") == 1


def test_without_a_subcommand_it_says_which_there_are(
    bench: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench("")
    assert "encoders" in capsys.readouterr().err


@pytest.mark.parametrize(("distinct_words", "about"), [(None, 1200), (300, 300), (2500, 2500)])
def test_batches_hold_the_words_asked_for(distinct_words: int | None, about: int) -> None:
    batches = Workload(distinct_words=distinct_words, rounds=3).batches()
    assert [len(batch) for batch in batches] == [200] * 3
    assert np.mean([batch.lengths.mean() for batch in batches]) == pytest.approx(15, rel=0.05)
    assert np.mean([len(np.unique(batch.ids)) for batch in batches]) == pytest.approx(about, rel=0.05)
