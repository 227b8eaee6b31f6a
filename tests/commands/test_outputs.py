"""jobs/search.py, jobs/verify.py and the flags of jobs/mine.py as a user calls them."""

import json
import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from paraembed.commands import search
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from tests.embedding.output_of import encoder_of, output_of
from tests.embedding.without_ray import build
from tests.jobs import run_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder and an output of it that records its name."""
    folder = tmp_path_factory.mktemp("search")
    encoder_of(np.eye(4, dtype=np.float32) + 0.1, folder / "encoder")
    out = output_of(folder / "encoder", [0, 1, 2, 1, None], folder / "out", keep=("text",))
    (out / "_reports" / "encoder.json").write_text(json.dumps({"encoder": str(folder / "encoder")}))
    return folder


@pytest.mark.ray
def test_searches_on_ray_find_what_this_process_finds(folder, ray_cluster, capsys):
    output_of(folder / "encoder", [0, 1, 2, 3] * 9, folder / "parts", keep=("text",), part_rows=5)
    printed = []
    for engine in ("local", "ray"):
        flags = "--query", "w1", "--query", "w3", "--encoder", folder / "encoder", "--engine", engine
        assert run_job("search", folder / "parts", *flags, "--format", "jsonl") == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 20


def test_results_as_json_lines_and_parquet(folder, capsys, tmp_path):
    (tmp_path / "queries.txt").write_text("w2\n\nzebra\n")
    flags = [folder / "out", "--query", "w0", "--queries", tmp_path / "queries.txt", "--top", "1"]
    assert run_job("search", *flags, "--format", "jsonl") == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["query"], row["row"]) for row in rows] == [(0, 0), (1, 2), (3, 0)]
    assert rows[1] == {"query": 1, "query_text": "w2", "rank": 1, "cosine": 1.0, "row": 2, "text": "w2"}
    assert "query 3 ''" in err
    assert "query 4 'zebra'" in err
    for name in ("hits.parquet", "hits.jsonl"):
        assert run_job("search", *flags, "--results", tmp_path / name) == 0
        assert capsys.readouterr().out == ""
        stored = duckdb.sql(f"SELECT query, row, cosine FROM '{tmp_path / name}'").fetchall()
        assert stored == [(row["query"], row["row"], pytest.approx(row["cosine"])) for row in rows]


def test_dates_that_python_cannot_represent_are_text():
    days = pa.array([0, 2**31 - 1, None], pa.int32()).cast(pa.date32())
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], days)
    lines = search._json_lines(pa.table({"day": days, "days": lists, "row": [0, 1, 2]}))
    assert [json.loads(line)["row"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[0])["day"] == "1970-01-01"
    assert json.loads(lines[2]) == {"day": None, "days": [None], "row": 2}
    assert all("2147483647" in json.loads(lines[1])[name] for name in ("day", "days"))


PART = "data/part-000-000001.parquet"


def flip(path):
    data = bytearray(path.read_bytes())
    data[random.Random(0).randrange(len(data))] ^= 1
    path.write_bytes(data)


def test_the_exit_status_tells_a_tampered_copy(tiny_encoder_folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "t.txt").write_text("the cat sat\na dog ran home\nthe mat .\n" * 3)
    out = tmp_path / "out"
    build(tiny_encoder_folder, tmp_path / "t.txt", Settings(part_rows=3), out)
    assert run_job("verify", out, "--encoder", tiny_encoder_folder) == 1  # no row was compared
    assert run_job("verify", out, "--input", tmp_path) == 2
    monkeypatch.chdir(tmp_path)
    assert run_job("verify", out, "--encoder", tiny_encoder_folder, "--input", "") == 2  # not the working folder
    capsys.readouterr()
    assert run_job("verify", out, "--encoder", tiny_encoder_folder, "--input", tmp_path) == 0
    table = capsys.readouterr().out
    assert "FAILED" not in table
    flip(out / PART)
    assert run_job("verify", out) == 1
    printed = capsys.readouterr()
    found = {line.split()[0] for line in printed.out.splitlines() if " FAILED " in line}
    assert "sha256" in found
    assert printed.err.startswith(f"error: {len(found)} of 10 checks FAILED for {out}")


@pytest.fixture(scope="module")
def out(tiny_encoder_folder, tmp_path_factory):
    """Ten parts of three rows, two of them damaged, with ids of the input and two rejected rows."""
    folder = tmp_path_factory.mktemp("verify")
    lines = [json.dumps({"key": f"key {row}", "body": "the cat sat"}) for row in range(28)]
    (folder / "t.jsonl").write_text("\n".join([*lines[:5], "{", *lines[5:], "{"]))
    build(tiny_encoder_folder, folder / "t.jsonl", Settings("body", "key", part_rows=3), folder / "out")
    for number in (3, 7):
        flip(folder / f"out/data/part-000-{number:06d}.parquet")
    return folder / "out"


@pytest.mark.ray
def test_checks_on_ray_find_what_this_process_finds(out, ray_cluster, capsys):
    printed = []
    for engine in ("local", "ray"):
        assert run_job("verify", out, "--engine", engine, "--quiet") == 1
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("number", [1, 2, 4, 10, 99])
def test_a_spot_check_reads_evenly_spaced_parts(out, number, capsys):
    """Of ten parts, 4 are the first, the fourth (which is damaged), the seventh and the last."""
    checks = {check.name: check for check in verify(out, sample_parts=number)}
    assert checks["sha256"].ok == (number < 4)
    assert run_job("verify", out, "--sample-parts", number) == (number > 2)
    assert (f"{number} of them were read" in capsys.readouterr().out) == (number < 10)
    assert run_job("verify", out, "--sample-parts", "0") == 2
