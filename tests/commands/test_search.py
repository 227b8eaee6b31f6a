"""jobs/search.py and the flags of jobs/mine.py as a user calls them."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from paraembed.commands import search
from tests.embedding.output_of import encoder_of, output_of
from tests.jobs import run_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder and an output of it that records its name."""
    folder = tmp_path_factory.mktemp("search")
    encoder_of(np.eye(4, dtype=np.float32) + 0.1, folder / "encoder")
    out = output_of(folder / "encoder", [0, 1, 2, 1, None], folder / "out", keep=("text",))
    (out / "_reports" / "encoder.json").write_text(json.dumps({"encoder": str(folder / "encoder")}))
    return folder


def test_a_query_prints_the_nearest_rows(folder, capsys):
    assert run_job("search", folder / "out", "--query", "w1", "--top", "2") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["cosine", "row", "text"],
        ["------", "---", "----"],
        ["1.0000", "1", "w1"],
        ["1.0000", "3", "w1"],
    ]


def test_tasks_of_ray_find_what_this_process_finds(folder, ray_cluster, capsys):
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
