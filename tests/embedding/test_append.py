"""An output grows by files: the same rows as at once, and a kill at any moment changes nothing."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.embedding.compact import compact
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.manifest import read_manifest
from paraembed.embedding.mine import Comparison
from paraembed.embedding.output import Embeddings
from paraembed.embedding.search import search
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.io.store import Folder
from paraembed.settings import MineSettings
from paraembed.signals import RunFailedError
from tests.embedding.without_ray import build
from tests.jobs import contents
from tests.object_store import GoneError, kill_client

TEXTS = st.lists(st.sampled_from(["the", "cat", "sat", "dog", "zebra"]), min_size=1, max_size=4).map(" ".join)
BY_STAMP = Settings("text", "key", part_rows=3, stamp_column="at", keep=("text",))


def write(path, rows, *, explode=False):
    """Rows (key, text, at) as JSON lines, with texts or the lists of their words."""
    texts = [re.findall("[a-z]+ ?", text) if explode else text for _, text, _ in rows]
    lines = (json.dumps({"key": row[0], "text": text, "at": row[2]}) for row, text in zip(rows, texts, strict=True))
    path.write_text("".join(f"{line}\n" for line in lines))


def current(out):
    """The rows that are not superseded: id, stamp, text and vectors, in the order of their ids; of chunks together."""
    rows = pa.Table.from_batches(Embeddings(out).batches()).to_pylist()
    return sorted(
        (key, of_key[0]["at"], "".join(row["text"] for row in of_key), [row["embedding"] for row in of_key])
        for key, of_key in ((key, [*of_key]) for key, of_key in groupby(rows, key=lambda row: row["key"]))
    )


def newest(rows):
    """The row of each id with the largest stamp, the first of several."""
    kept = {}
    for key, text, at in rows:
        rank = -1 if at is None else at
        if key not in kept or rank > kept[key][0]:
            kept[key] = rank, at, text
    return {key: kept[key][1:] for key in sorted(kept)}


@settings(max_examples=10, deadline=None)
@given(
    more=st.sampled_from([{}, {"chunk_tokens": 1, "chunk_by": "token"}, {"explode": True}]),
    files=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefg"), TEXTS, st.none() | st.integers(0, 30)), min_size=1),
        min_size=1,
        max_size=4,
    ),
    cuts=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_pieces_are_the_rows_of_one_run(tiny_encoder_folder, more, files, cuts):
    """Whatever the order of the stamps; ids with equal stamps keep the first row, and a null one loses."""
    chosen = replace(BY_STAMP, **more)
    rows = [row for of_file in files for row in of_file]
    with tempfile.TemporaryDirectory() as scratch:
        folder, places = Path(scratch), []
        for number, of_file in enumerate(files):
            places.append(folder / f"{number}.jsonl")
            write(places[-1], of_file, explode=chosen.explode)
            if cuts[number] or number + 1 == len(files):  # else two files are added together
                build(tiny_encoder_folder, list(map(str, places)), chosen, folder / "pieces", append=True)
        build(tiny_encoder_folder, list(map(str, places)), chosen, folder / "whole")
        made = current(folder / "pieces")
        assert made == current(folder / "whole")
        assert {key: (at and int(at), text) for key, at, text, _ in made} == newest(rows)
        count = sum(len(vectors) for *_, vectors in made)
        for name in ("pieces", "whole"):
            manifest = read_manifest(Folder(folder / name))
            further = sum(part["n_further_chunks"] for part in manifest["parts"])
            assert manifest["rows"] - further == len(rows)
            assert manifest["n_superseded"] == len(rows) - len(made)
            checks = verify(folder / name, tiny_encoder_folder, [str(folder)])
            assert all(check.ok for check in checks), checks
            done = compact(folder / name)
            is_changed = manifest["n_superseded"] or len(manifest["generations"]) > 1
            assert done.rows == count
            assert done.parts == (-(-count // 3) if is_changed else done.parts_before) or more
            assert all(check.ok for check in verify(folder / name))
            assert current(folder / name) == made
            assert compact(folder / name)[:2] == done[2:]
        assert build(tiny_encoder_folder, list(map(str, places)), chosen, folder / "pieces", append=True) == {}
        write(folder / "last.jsonl", [("a", "zebra", 31)], explode=chosen.explode)
        build(tiny_encoder_folder, [str(folder / "last.jsonl")], chosen, folder / "pieces", append=True)
        assert [row[:3] for row in current(folder / "pieces")][:1] == [("a", "31", "zebra")]
        assert [row for row in current(folder / "pieces") if row[0] != "a"] == [row for row in made if row[0] != "a"]
        assert all(check.ok for check in verify(folder / "pieces"))


@pytest.fixture
def grown(tiny_encoder_folder, tmp_path):
    """Two generations: b and d of the first one have newer rows in the second one, but not c."""
    write(tmp_path / "1.jsonl", [("a", "the cat", 1), ("b", "the dog", 1), ("c", "zebra", 9), ("d", "sat", 1)])
    write(tmp_path / "2.jsonl", [("b", "the cat", 2), ("c", "the cat", 2), ("e", "sat", 1), ("d", "", 3)])
    for count in (1, 2):
        inputs = [str(tmp_path / f"{number + 1}.jsonl") for number in range(count)]
        build(tiny_encoder_folder, inputs, BY_STAMP, tmp_path / "out", append=True)
    return tmp_path / "out"


def test_readers_leave_superseded_rows_out(grown):
    output = Embeddings(grown)
    texts = output.take(np.arange(output.rows), ["text"])["text"].to_pylist()
    hits = search(output, np.ones((1, output.width), np.float32), 8)
    assert {texts[row] for row in hits.row} <= {"the cat", "zebra", "sat"}
    assert sorted(hits.row.tolist()) == [0, 2, 4, 6]  # the newest d has no token
    assert output.superseded.tolist() == [1, 3, 5]
    assert Comparison(output, None, MineSettings(0.5)).output.rows == 8
    duckdb = pytest.importorskip("duckdb")
    text = (Path(__file__).parents[2] / "docs" / "append.md").read_text()
    (query,) = [line for line in text.splitlines() if "QUALIFY" in line]
    query = query.replace("embeddings/", f"{grown}/").replace("id ", "key ").replace("updated_at", '"at"::BIGINT')
    shown = duckdb.sql(query.replace("*", 'key, "at", text, embedding', 1)).fetchall()
    assert sorted(row[:3] for row in shown) == [row[:3] for row in current(grown)]


def test_what_cannot_be_added_is_refused_before_anything_changes(grown, tiny_encoder_folder, tmp_path):
    one, two, three = (str(tmp_path / f"{number}.jsonl") for number in (1, 2, 3))
    before = contents(grown)
    write(Path(three), [("x", "the cat", 1)])
    for inputs, changed, more, message in (
        ([one, two, three], BY_STAMP, {}, "not an input of"),
        ([one, three], BY_STAMP, {}, "not an input of"),
        ([three], Settings("text", "key", part_rows=4, stamp_column="at", keep=("text",)), {"append": True}, "another"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            build(tiny_encoder_folder, inputs, changed, grown, **more)
    write(Path(one), [("a", "the cat", 5)])
    with pytest.raises(ValueError, match="has changed since it was embedded"):
        build(tiny_encoder_folder, [one, three], BY_STAMP, grown, append=True)
    assert contents(grown) == before
    text = tmp_path / "t.txt"
    text.write_text("the cat\n")
    with pytest.raises(ValueError, match="these are row numbers over all inputs"):
        build(tiny_encoder_folder, text, Settings(), tmp_path / "numbered", append=True)
    named = Settings(id_kind="file-row")
    build(tiny_encoder_folder, text, named, tmp_path / "named", append=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "t.txt").write_text("the dog sat\n")
    with pytest.raises(ValueError, match="would be equal"):
        build(tiny_encoder_folder, tmp_path / "other" / "t.txt", named, tmp_path / "named", append=True)


@pytest.fixture(params=["Delta", "Iceberg"])
def lake(request, tmp_path):
    """Folder of an empty table, a function that appends rows, and one that deletes a text."""
    if request.param == "Delta":
        delta, where = pytest.importorskip("deltalake"), tmp_path / "t"
        delta.write_deltalake(where, pa.table({"body": ["the cat"]}))

        def append(rows):
            delta.write_deltalake(where, rows, mode="append")

        return where, append, lambda text: delta.DeltaTable(where).delete(f"body = '{text}'")
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=(tmp_path / "lake").as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", pa.schema({"body": pa.string()}))
    table.append(pa.table({"body": ["the cat"]}))
    return tmp_path / "lake/n/t", table.append, lambda text: table.delete(f"body = '{text}'")


def test_the_version_of_a_table_is_an_input_and_a_later_one_is_appended(lake, tiny_encoder_folder, tmp_path):
    (where, append, delete), out = lake, tmp_path / "out"
    settings, given = Settings("body", id_kind="file-row"), (tiny_encoder_folder, where)
    assert len(build(*given, settings, out)) == 1
    (first,) = find_inputs([where])
    if (where / "_delta_log").exists():  # a later version with the same files is the same input
        pytest.importorskip("deltalake").DeltaTable(where).alter.set_table_properties({"delta.appendOnly": "false"})
        assert find_inputs([where])[0].snapshot != first.snapshot
    assert build(*given, settings, out) == {}
    append(pa.table({"body": ["a dog", "the mat"]}))
    before, second = contents(out), next(file for file in find_inputs([where]) if file != first)
    with pytest.raises(ValueError, match=rf"snapshot \(was {first.snapshot}, is {second.snapshot}\)"):
        build(*given, settings, out)
    assert contents(out) == before
    assert sum(build(*given, settings, out, append=True).values()) == 2
    for options in ({}, {"append": True}):
        assert build(*given, settings, out, **options) == {}
    assert all(check.ok for check in verify(out, tiny_encoder_folder, [str(where)]))
    delete("a dog")
    before, (_, third) = contents(out), find_inputs([where])
    with pytest.raises(ValueError, match=f"from {second.snapshot},.*{third.snapshot}"):
        build(*given, settings, out, append=True)
    assert contents(out) == before


def test_repeated_ids_of_another_generation_are_found(tiny_encoder_folder, tmp_path):
    plain = Settings("text", "key", part_rows=3)
    for number, keys in enumerate(["abcb", "dea", "fda"]):
        write(tmp_path / f"{number}.jsonl", [(key, "the cat", 1) for key in keys])
    options = {"on_duplicate_id": "keep", "append": True}
    counts = []
    for count in (1, 2, 3):
        inputs = [str(tmp_path / f"{number}.jsonl") for number in range(count)]
        build(tiny_encoder_folder, inputs, plain, tmp_path / "out", **options)
        counts.append(read_manifest(Folder(tmp_path / "out"))["n_duplicate_ids"])
        assert all(check.ok for check in verify(tmp_path / "out"))
    assert counts == [1, 2, 4]
    shutil.rmtree(tmp_path / "out")
    build(tiny_encoder_folder, tmp_path / "1.jsonl", plain, tmp_path / "out")
    with pytest.raises(RunFailedError, match="2 rows repeat an id"):
        build(tiny_encoder_folder, [str(tmp_path / "2.jsonl")], plain, tmp_path / "out", append=True)
    assert all(check.ok for check in verify(tmp_path / "out"))  # as before


def test_the_command_without_append_repairs_any_generation(grown, tiny_encoder_folder, tmp_path):
    inputs, before = [str(tmp_path / f"{number}.jsonl") for number in (1, 2)], contents(grown)
    for part, number in (("part-000-000001.parquet", 0), ("part-001-000000.parquet", 1)):
        damaged = bytearray((grown / "data" / part).read_bytes())
        damaged[60] ^= 1
        (grown / "data" / part).write_bytes(damaged)
        assert not all(check.ok for check in verify(grown))
        embedded = build(tiny_encoder_folder, inputs[number:], BY_STAMP, grown)  # the other generation's may be missing
        assert [*embedded] == [f"data/{part}"]
        assert contents(grown) == before
    (grown / "_superseded" / "001.arrow").unlink()
    assert not all(check.ok for check in verify(grown))
    with pytest.raises((ValueError, OSError)):
        Embeddings(grown)
    build(tiny_encoder_folder, inputs, BY_STAMP, grown)
    assert all(check.ok for check in verify(grown, tiny_encoder_folder, [str(tmp_path)]))
    assert build(tiny_encoder_folder, inputs, BY_STAMP, grown) == {}
    (grown / "_SUCCESS").unlink()
    with pytest.raises(ValueError, match=r"1\.jsonl, too, which was embedded"):
        build(tiny_encoder_folder, inputs[1:], BY_STAMP, grown, append=True)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_is_finished_by_the_same_command(tiny_encoder_folder, tmp_path, step):
    """Of an append, and of a compaction after it; in a process that can fork."""
    script = "from tests.embedding.killed_append import main; main(*__import__('sys').argv[1:])"
    command = [sys.executable, "-c", script, str(tiny_encoder_folder), str(tmp_path), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert min(map(int, done.stdout.split())) > 30  # moments


@pytest.mark.slow
def test_a_kill_around_every_request_that_writes(tiny_encoder_folder, tmp_path, server):
    """The same on an object store, which has no locks and no renaming."""
    script = "from tests.embedding.killed_append import main; main(*__import__('sys').argv[1:])"
    command = [sys.executable, "-c", script, str(tiny_encoder_folder), str(tmp_path), "1", server.uri("out")]
    state = {"moment": 0, "at": 0}

    def hook(moment, port):
        if moment.split()[0] in {"PUT", "DELETE"}:
            state["moment"] += 1
            if state["moment"] == state["at"]:
                kill_client(port)
                if not moment.endswith(" done"):
                    raise GoneError

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def embed(count):
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            return process.stdout.readline() == "True\n"

        assert embed(1)
        begun = dict(server.objects)
        assert embed(2)
        unbroken, server.hook = decided(server), hook
        while True:
            server.objects.clear()
            server.objects.update(begun)
            state.update(moment=0, at=state["at"] + 1)
            if embed(2):
                break
            state["at"], killed_at = -1, state["at"]
            assert embed(2)
            assert decided(server) == unbroken, killed_at
            state["at"] = killed_at
        process.stdin.close()
    assert state["at"] > 40
    assert all(check.ok for check in verify(server.uri("out")))


def decided(server):
    """The objects that do not depend on the time."""
    return {key: data for key, data in server.objects.items() if data and "/_done/" not in key}
