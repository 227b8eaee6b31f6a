"""Files that are added by the job itself: what it says, refuses and counts."""

import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.cluster import embed as module
from paraembed.cluster.embed import embed
from paraembed.embedding.compact import compact
from paraembed.embedding.output import Embeddings
from paraembed.embedding.settings import Limits, Settings
from paraembed.embedding.verify import verify
from paraembed.signals import RunFailedError
from tests.jobs import contents, run_job

pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = Settings("text", "key", part_rows=2, stamp_column="at")


def write(path, *rows):
    path.write_text("key,text,at\n" + "".join(f"{key},{text},{at}\n" for key, text, at in rows))
    return path


@pytest.fixture
def add(tiny_encoder_folder, tmp_path):
    """Add files to an output."""

    def run(*files, settings=SETTINGS, **options):
        options = {"engine": "local", "append": True} | options
        return embed(tiny_encoder_folder, list(files), tmp_path / "out", settings, **options)

    return run


@pytest.fixture
def files(tmp_path):
    return [
        write(tmp_path / "1.csv", ("a", "the cat", 1), ("b", "the dog", 1), ("c", "sat", 1)),
        write(tmp_path / "2.csv", ("a", "the dog", 2), ("d", "the cat", 1)),
        write(tmp_path / "3.csv", ("e", "zebra", 1)),
    ]


def keys(out):
    return sorted(key for batch in Embeddings(out).batches() for key in batch["key"].to_pylist())


def test_counts_of_each_call(add, files, tmp_path, tiny_encoder_folder, capsys):
    out = tmp_path / "out"
    assert (add(files[0]).rows, add(*files[:2]).added) == (3, 2)
    done = add(*files)
    assert (done.rows, done.parts, done.embedded, done.added) == (6, 4, 1, 1)
    before = contents(out)
    for again in (add(*files), add(files[1]), add(*files, append=False)):
        assert (again.rows, again.parts, again.embedded, again.was_finished) == (6, 4, 0, True)
    assert contents(out) == before
    assert keys(out) == ["a", "b", "c", "d", "e"]
    columns = ("--text-column", "text", "--id-column", "key", "--stamp-column", "at", "--part-rows", "2")
    given = ("--encoder", tiny_encoder_folder, "--input", *files, "--out", out, *columns, "--append")
    capsys.readouterr()
    assert run_job("embed", *given, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 6
    write(tmp_path / "4.csv", ("f", "zebra", 1))
    assert run_job("embed", *given[:3], tmp_path / "4.csv", *given[3:], "--dry-run") == 0
    assert "rows" in capsys.readouterr().out
    assert contents(out) == before


def test_bad_files_are_added_when_they_can_be_read(add, files, tmp_path, tiny_encoder_folder):
    limits, out, bad = Limits(max_bad_files=2), tmp_path / "out", files[1]
    whole = bad.read_bytes()
    bad.write_bytes(b"PK\x03\x04")
    options = {"limits": limits}
    assert add(files[0], bad, **options).bad_files == 1
    assert (tmp_path / "out" / "_rejected" / "files.jsonl").read_text().count("\n") == 1
    assert add(files[0], bad, **options).was_finished
    bad.write_bytes(whole)
    done = add(files[0], bad, **options)
    assert (done.rows, done.bad_files) == (5, 0)
    assert (tmp_path / "out" / "_rejected" / "files.jsonl").read_text() == ""
    (out / "data" / "part-000-000000.parquet").unlink()
    assert add(files[0], bad, append=False, **options).embedded == 1
    checks = verify(out, tiny_encoder_folder, [str(tmp_path)])
    assert all(check.ok for check in checks), checks
    (tmp_path / "4.csv").write_bytes(b"PK\x03\x04")
    assert add(files[0], bad, tmp_path / "4.csv", **options).rows == 5


def test_a_file_with_only_a_header_adds_nothing_until_it_has_rows(add, files, tmp_path, capsys):
    add(files[0])
    empty, before = write(tmp_path / "empty.csv"), contents(tmp_path / "out")
    done = add(files[0], empty)
    assert (done.rows, done.embedded, done.added, done.was_finished) == (3, 0, 0, True)
    assert f"{empty} has no rows" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before
    write(empty, ("z", "the cat", 1))
    assert add(files[0], empty).added == 1
    assert keys(tmp_path / "out") == ["a", "b", "c", "z"]
    with pytest.raises(ValueError, match="has no rows"):
        embed("small", [write(tmp_path / "none.csv")], tmp_path / "new", SETTINGS, engine="local")


def test_an_append_that_failed_takes_the_corrected_file(add, files, tmp_path):
    plain = Settings("text", "key", part_rows=2)
    add(files[0], settings=plain)
    with pytest.raises(RunFailedError, match="repeat an id"):
        add(*files[:2], settings=plain)
    write(files[1], ("d", "the cat", 1))
    assert add(*files[:2], settings=plain).added == 1
    assert keys(tmp_path / "out") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("other", ["append", "compact"])
def test_what_another_command_committed_meanwhile_is_not_replaced(add, files, tmp_path, monkeypatch, other):
    """It comes between the choice of the generation and the lock."""
    out = tmp_path / "out"
    add(files[0])
    prepared, done = module.prepared, threading.Event()

    def late(*arguments, **options):
        if not done.is_set():
            done.set()
            add(*files[:2])
            if other == "compact":
                compact(out)
        return prepared(*arguments, **options)

    monkeypatch.setattr(module, "prepared", late)
    with pytest.raises((RunFailedError, ValueError), match="by another command"):
        add(files[0], files[2])
    assert keys(out) == ["a", "b", "c", "d"]
    assert add(*files).added == 1
    assert keys(out) == ["a", "b", "c", "d", "e"]
    assert all(check.ok for check in verify(out))


def test_a_folder_of_others_is_not_compacted(tmp_path):
    (tmp_path / "site" / "_next").mkdir(parents=True)
    (tmp_path / "site" / "_next" / "app.js").write_text("1")
    for place in (tmp_path / "site", tmp_path / "missing"):
        with pytest.raises((OSError, ValueError)):
            compact(place)
    assert (tmp_path / "site" / "_next" / "app.js").exists()
    assert not (tmp_path / "missing").exists()


def test_an_output_of_parquet_takes_later_types_only_if_they_fit(add, tmp_path):
    plain = Settings("text", "key", keep=("n",))
    for name, numbers in (("a", pa.array([1], pa.int32())), ("b", pa.array([2], pa.int8())), ("c", pa.array([2**40]))):
        table = {"key": [name], "text": ["the cat"], "n": numbers}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    add(tmp_path / "a.parquet", settings=plain)
    add(tmp_path / "b.parquet", settings=plain)
    with pytest.raises(ValueError, match=r"c\.parquet: column 'n' is int64"):
        add(tmp_path / "c.parquet", settings=plain)
    for number, kind in enumerate((pa.float64(), pa.bool_(), pa.struct([("a", pa.int64())]))):
        pq.write_table(
            pa.table({"key": ["x"], "text": ["the"], "n": pa.nulls(1, kind)}), tmp_path / f"{number}.parquet"
        )
        with pytest.raises(ValueError, match="column 'n' is"):
            add(tmp_path / f"{number}.parquet", settings=plain)
    assert Embeddings(tmp_path / "out").rows == 2


@pytest.mark.parametrize(
    ("stamps", "message"),
    [(pa.array([[1]]), "`stamp_column` 'at' is list"), (pa.array(["x"]), "'x' is neither a number")],
)
def test_stamps_that_have_no_order_are_errors(add, tmp_path, stamps, message):
    for name in ("a", "b"):
        pq.write_table(pa.table({"key": [name], "text": ["the cat"], "at": stamps}), tmp_path / f"{name}.parquet")
    with pytest.raises((ValueError, RunFailedError), match=message):
        add(tmp_path / "a.parquet", tmp_path / "b.parquet")


def test_an_empty_cell_is_the_oldest_stamp(add, tmp_path):
    add(write(tmp_path / "a.csv", ("k", "the cat", "")), write(tmp_path / "b.csv", ("k", "sat", -5)))
    (batch,) = Embeddings(tmp_path / "out").batches()
    assert batch["at"].to_pylist() == ["-5"]


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"part_rows": 3}, {}, "part_rows"),
        ({"dtype": "float16"}, {}, "dtype"),
        ({"text_column": "at"}, {}, "text_column"),
        ({}, {"overwrite": True}, "only one of them"),
    ],
)
def test_other_settings_are_refused_also_if_nothing_is_new(add, files, tmp_path, changed, options, message):
    add(files[0])
    before = contents(tmp_path / "out")
    for given in (files[:1], files[:2]):
        with pytest.raises(ValueError, match=message):
            add(*given, settings=Settings(**{**vars(SETTINGS), **changed}), **options)
    assert contents(tmp_path / "out") == before


def test_copies_and_moved_files(add, files, tmp_path):
    plain, limits = Settings("text", "key", part_rows=2), Limits(on_duplicate_id="keep")
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(f"key,text,at\n{name},the cat,1\n")
    add(tmp_path / "x", tmp_path / "y", settings=plain)
    for name in ("x", "y"):
        (tmp_path / name).rename(tmp_path / f"new-{name}")
    assert add(tmp_path / "new-x", tmp_path / "new-y", settings=plain).was_finished
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "t.csv").write_bytes((tmp_path / "new-x" / "t.csv").read_bytes())
    done = add(tmp_path / "new-x", tmp_path / "new-y", tmp_path / "x", settings=plain, limits=limits)
    assert done.rows in {2, 3}  # of one content at two places, one may be the known one
    assert keys(tmp_path / "out")[:1] == ["x"]
