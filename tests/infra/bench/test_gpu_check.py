"""The check of a GPU, tried on a CPU: what it compares there agrees, and what fails is shown."""

import json
import os
import time
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


def program(tmp_path, monkeypatch, text):
    path = tmp_path / "program.py"
    path.write_text(text)
    monkeypatch.setattr(gpu_check, "__file__", str(path))


ROW = 'print(\'{"what": "a", "measured": "1", "expected": "2", "ok": true}\', flush=True)'


def test_what_fails_is_in_the_table_and_in_the_exit_status(monkeypatch, capsys, tmp_path):
    """Of a section that fails, what it measured before is kept."""
    program(tmp_path, monkeypatch, f"{ROW}; raise SystemExit(3)")
    assert main(["--device", "cpu", "--sections", "memory", "--json", str(tmp_path / "rows.json")]) == 1
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["section"], row["what"], row["ok"]) for row in rows] == [
        ("memory", "a", True),
        ("memory", "the section as a whole", False),
    ]
    lines = [line.rsplit("|", 2)[0] for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        "| memory | a | 1 | 2 | ok ",
        "| memory | the section as a whole | exit status 3 | finished | **FAILED** ",
    ]


@pytest.mark.slow
def test_sections_that_hang_are_ended_and_their_rows_are_printed_before(monkeypatch, capsys, tmp_path):
    program(tmp_path, monkeypatch, f"import time; {ROW}; time.sleep(600)")
    started = time.monotonic()
    assert main(["--device", "cpu", "--seconds", "6", "--sections", "memory", "outlier", "steps", "embed"]) == 1
    assert time.monotonic() - started < 60
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines].count("a") == 4
    assert sum("not finished after" in line for line in lines) == 4


def test_a_section_has_the_callers_python_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    text = 'import json, os; print(json.dumps({"what": os.environ["PYTHONPATH"], "measured": "", "expected": ""}))'
    program(tmp_path, monkeypatch, text)
    (row,) = gpu_check._rows("memory", "cpu", 60)
    assert row == Row(f"{gpu_check.ROOT}{os.pathsep}elsewhere", "", "")


@pytest.mark.skipif(gpu_check.torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert main([]) == 2
    assert "give --device cpu" in capsys.readouterr().err
