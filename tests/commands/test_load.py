"""jobs/load.py into real stores: the same rows, exactly once, also if the job is killed."""

import json
import shlex
import signal
import sys
import uuid
from contextlib import closing
from importlib.util import find_spec

import deltalake
import duckdb
import numpy as np
import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.embedding.load import Target, example
from paraembed.embedding.settings import Settings
from tests.embedding.output_of import encoder_of, output_of
from tests.embedding.without_ray import build
from tests.jobs import interrupted, job_command, run_job

STORES = {"duckdb": ("duckdb",), "delta": ("deltalake",), "lance": ("lancedb",), "pgvector": ("psycopg", "pgvector")}
VECTORS = np.random.default_rng(0).normal(size=(20, 6))


@pytest.fixture(params=STORES)
def target(request, tmp_path):
    """A new table of each store."""
    for package in STORES[request.param]:
        pytest.importorskip(package)
    table = f"t{uuid.uuid4().hex}"
    if request.param != "pgvector":
        yield Target(request.param, str(tmp_path / "target"), table)
        return
    place = request.getfixturevalue("postgres")
    yield Target("pgvector", place, table)
    with psycopg.connect(place) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def flags_of(target):
    table = () if target.kind == "delta" else ("--table", target.table)
    return "--to", f"{target.kind}:{target.place}", *table


def rows_of(target):
    """A table as another program reads it, in the order of the load."""
    if target.kind == "lance":
        return pytest.importorskip("lancedb").connect(target.place).open_table(target.table).to_arrow()
    if target.kind == "delta":
        return deltalake.DeltaTable(target.place).to_pyarrow_table().sort_by("row")
    if target.kind == "duckdb":
        with duckdb.connect(target.place, read_only=True) as database:
            return database.table(target.table).to_arrow_table()
    with psycopg.connect(target.place, row_factory=psycopg.rows.dict_row) as connection:
        rows = connection.execute(f"SELECT * FROM {target.table}").fetchall()
    vectors = [np.array(json.loads(row.pop("embedding", "[]")), np.float32) for row in rows]
    return pa.Table.from_pylist(rows).append_column("embedding", pa.array(vectors))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_table_has_every_row_once_after_two_loads(target, dtype, tmp_path, capsys):
    encoder = encoder_of(VECTORS, tmp_path / "encoder")
    out = output_of(encoder, [*range(20), None, 0], tmp_path / "out", dtype=dtype)
    assert run_job("load", out, *flags_of(target), "--json") == 0
    printed = capsys.readouterr()
    assert '"rows": 22' in printed.out
    assert "wrote 22 rows" in printed.err
    stored = pq.read_table(out / "data")
    vectors = np.array(stored["embedding"].to_pylist(), np.float32)
    if dtype == "int8":
        vectors *= stored["scale"].to_numpy()[:, None]
        stored = stored.drop("scale")
    expected = stored.set_column(3, "embedding", pa.array(list(vectors))).to_pylist()
    assert rows_of(target).to_pylist() == expected
    assert run_job("load", out, *flags_of(target)) == 0
    assert "22 rows; nothing to do" in capsys.readouterr().err
    other = output_of(encoder, [1, 2], tmp_path / "other", dtype=dtype)
    assert run_job("load", other, *flags_of(target)) == 2
    assert "exists and has another output" in capsys.readouterr().err
    assert rows_of(target).to_pylist() == expected
    if target.kind == "pgvector":
        with psycopg.connect(target.place) as connection:
            assert len(connection.execute(example(target)).fetchall()) == 3
    else:
        python, _, code = shlex.split(example(target))
        exec(code)
        assert (python, "embedding" in capsys.readouterr().out) == ("python", True)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Output of 100,000 rows in five parts."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "t.txt").write_text("".join(f"w{number % 20}\n" for number in range(100_000)))
    vectors = np.random.default_rng(0).normal(size=(20, 64))
    build(encoder_of(vectors, folder / "encoder"), folder / "t.txt", Settings(part_rows=20_000), folder / "out")
    return folder / "out"


def test_a_killed_load_leaves_no_table_and_the_same_command_loads_all_rows(target, large):
    def reads_later_part():
        files = [file.path for job in psutil.Process().children() for file in job.open_files()]
        return any(path.startswith(str(large)) and not path.endswith("-000000.parquet") for path in files)

    status, _ = interrupted(job_command("load", large, *flags_of(target)), reads_later_part)
    assert status == -signal.SIGKILL
    with pytest.raises(Exception, match=r"(?i)not found|does not exist|no files|not a table"):
        rows_of(target)
    assert run_job("load", large, *flags_of(target)) == 0
    assert rows_of(target)["row"].to_pylist() == list(range(100_000))


def test_tables_of_others_and_damaged_parts_are_refused(target, tmp_path, capsys):
    out = output_of(encoder_of(VECTORS, tmp_path / "encoder"), range(20), tmp_path / "out")
    part = sorted((out / "data").iterdir())[1]
    intact = part.read_bytes()
    position = intact.index(VECTORS[9].astype(np.float32).tobytes())  # the file can be read, with another number
    part.write_bytes(intact[:position] + b"\0" + intact[position + 1 :])
    assert run_job("load", out, *flags_of(target)) == 2
    assert f"{part.name} has another SHA-256" in capsys.readouterr().err
    part.write_bytes(intact)
    foreign(target)
    assert run_job("load", out, *flags_of(target)) == 2
    assert "was not written by jobs/load.py" in capsys.readouterr().err
    assert rows_of(target)["row"].to_pylist() == [7]
    (out / "_SUCCESS").unlink()
    assert run_job("load", out, *flags_of(target)) == 2
    assert "is not finished" in capsys.readouterr().err


def foreign(target):
    """Make a table as another program does."""
    table = pa.table({"row": [7]})
    if target.kind == "lance":
        pytest.importorskip("lancedb").connect(target.place).create_table(target.table, table)
    elif target.kind == "delta":
        deltalake.write_deltalake(target.place, table)
    else:
        with closing((duckdb if target.kind == "duckdb" else psycopg).connect(target.place)) as database:
            database.execute(f'CREATE TABLE {target.table} AS SELECT 7 AS "row"')
            database.commit()


def test_wrong_targets_are_answered_without_a_password(tmp_path, capsys, monkeypatch):
    out = output_of(encoder_of(VECTORS, tmp_path / "encoder"), [1], tmp_path / "out")
    wrong = {
        "sqlite:x": "--to has no known store",
        "postgresql://u:se3ret@h/d": "--to has no known store",
        f"delta:{out.parent}/encoder": "has other files",
        f"delta:{out}/data": "is inside of the input",
        "lance:s3://bucket/x": "--to is a URI",
        "duckdb:": "--to has no known store",
    }
    if all(map(find_spec, STORES["pgvector"])):
        wrong |= {f"pgvector:postgresql://u:se3ret{end}": "pgvector is invalid" for end in ("%zz@h/d", "@x@h", "/1@h")}
    for to, message in wrong.items():
        assert run_job("load", out, "--to", to) == 2, to
        printed = capsys.readouterr().err
        assert message in printed
        assert "se3ret" not in printed
    assert run_job("load", out, "--to", f"duckdb:{tmp_path}/x", "--table", "a b") == 2
    (tmp_path / "x").write_text("no database")
    assert run_job("load", out, "--to", f"duckdb:{tmp_path}/x") == 1
    assert "run the same command again" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "lancedb", None)  # not installed
    assert run_job("load", out, "--to", f"lance:{tmp_path}/lance") == 2
    assert "run pip install lancedb" in capsys.readouterr().err
