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


@pytest.fixture
def call(capsys):
    """Run a job; return its status, what it printed and what it reported."""

    def call(job, *arguments):
        capsys.readouterr()
        return run_job(job, *arguments), *capsys.readouterr()

    return call


def test_a_query_prints_the_nearest_rows(folder, call):
    status, out, _ = call("search", folder / "out", "--query", "w1", "--top", "2")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["cosine", "row", "text"],
        ["------", "---", "----"],
        ["1.0000", "1", "w1"],
        ["1.0000", "3", "w1"],
    ]


def test_results_as_json_lines_and_parquet(folder, call, tmp_path):
    (tmp_path / "queries.txt").write_text("w2\n\nzebra\n")
    flags = [folder / "out", "--query", "w0", "--queries", tmp_path / "queries.txt", "--top", "1"]
    status, out, err = call("search", *flags, "--format", "jsonl")
    assert status == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["query"], row["row"]) for row in rows] == [(0, 0), (1, 2), (3, 0)]
    assert rows[1] == {"query": 1, "query_text": "w2", "rank": 1, "cosine": 1.0, "row": 2, "text": "w2"}
    assert "query 3 ''" in err
    assert "query 4 'zebra'" in err
    for name in ("hits.parquet", "hits.jsonl"):
        assert call("search", *flags, "--results", tmp_path / name)[:2] == (0, "")
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


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--query", ""], "no query"),
        ([], "--query"),
        (["--query", "w1", "--top", "0"], "--top is 0"),
        (["--query", "w1", "--format", "parquet"], "--results"),
        (["--query", "w1", "--format", "table", "--results", "hits.txt"], "--format"),
        (["--query", "w1", "--encoder", "nowhere"], "nowhere"),
        (["--query", "w1", "--prompt", "query: "], "--prompt"),
    ],
)
def test_what_cannot_be_searched_is_one_line(folder, call, flags, named):
    status, out, err = call("search", folder / "out", *flags)
    assert (status, out) == (2, "")
    assert err.count("error: ") == 1
    assert named in err.splitlines()[-1]


@pytest.mark.parametrize("job", ["search", "mine"])
def test_an_output_that_is_not_finished(folder, call, tmp_path, job):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_plan.json").write_text("{}")
    flags = ["--query", "w1"] if job == "search" else ["--out", tmp_path / "mined"]
    status, _, err = call(job, tmp_path / "out", *flags)
    assert status == 2
    assert f"{tmp_path / 'out'} is not finished" in err


def test_settings_of_mining_that_are_not_allowed(folder, call, tmp_path):
    for flags, named in ((["--threshold", "2"], "--threshold is 2.0"), (["--text-column", "body"], "--text-column")):
        status, _, err = call("mine", folder / "out", "--out", tmp_path / "mined", *flags)
        assert status == 2
        assert named in err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
