"""The check of a GPU, tried on a CPU: what it compares there agrees, and what fails is shown."""

import json
from dataclasses import asdict, replace

import pytest

from infra.bench import gpu_check
from infra.bench.gpu_check import Row, Size, main

CPU = Size.of("cpu")


@pytest.mark.parametrize("section", ["agreement", "exchange", "memory", "outlier", "steps", "embed"])
def test_a_section_runs_on_a_cpu(section):
    rows = list(gpu_check.SECTIONS[section](CPU))
    json.dumps([asdict(row) for row in rows])  # as they come from the section's process
    assert rows
    assert [row for row in rows if not row.ok] == []


def test_steps_that_a_gpu_could_not_record_fail_the_check():
    """They run eagerly, and so agree with the eager ones."""
    on_a_gpu = replace(CPU, device=gpu_check.torch.device("cuda"))
    rows = [gpu_check._is_recorded(size, "avg", num) for size in (CPU, on_a_gpu) for num in (0, 2)]
    assert [row.ok for row in rows] == [True, False, False, True]


@pytest.mark.slow
def test_the_benchmark_is_read(monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    small = ["--pairs", "400", "--words", "50", "--width", "8", "--batch-sizes", "20", "--encoders", "avg", "proj"]
    measured = list(gpu_check._bench("cpu", "--texts", "phrases", "--seconds", "0.1", *small))
    assert [(case["encoder"], case["batch_size"]) for case, *_ in measured] == [("avg", 20), ("proj", 20)]
    assert all(seconds > 0 and rate > 0 for _, seconds, rate in measured)


def test_what_fails_is_in_the_table_and_in_the_exit_status(monkeypatch, capsys, tmp_path):
    """Of a section that fails, what it measured before is kept."""
    program = tmp_path / "program.py"
    program.write_text('print(\'{"what": "a", "measured": "1", "expected": "2", "ok": true}\'); raise SystemExit(3)')
    monkeypatch.setattr(gpu_check, "__file__", str(program))
    assert main(["--device", "cpu", "--sections", "memory"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| memory | a | 1 | 2 | ok |",
        "| memory | the section as a whole | exit status 3; its error is above | finished | **FAILED** |",
    ]


def test_a_section_that_hangs_is_ended(monkeypatch, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(gpu_check, "__file__", str(program))
    monkeypatch.setattr(gpu_check, "_SECONDS", 1)
    assert list(gpu_check._rows("memory", "cpu")) == [
        Row("the section as a whole", "not finished after 1 s", "finished", ok=False)
    ]


@pytest.mark.skipif(gpu_check.torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert main([]) == 2
    assert "give --device cpu" in capsys.readouterr().err
