import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.embedding.commit import commit
from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.manifest import EmbeddingRun, begun_run, check_folder, continued_run, known_inputs, read_run
from paraembed.embedding.part import FOOTER
from paraembed.embedding.plan import Plan
from paraembed.embedding.records import ENTRIES, INPUTS, PIECES
from paraembed.embedding.replace import discard
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.fingerprint import sha256_of
from paraembed.io.limits import DEFAULT_TABLE_LIMITS
from paraembed.io.store import Folder
from tests.embedding.arrow_files import change_plan, parts_of, sign
from tests.embedding.arrow_files import rewrite as rewrite_arrow
from tests.embedding.without_ray import build, list_inputs
from tests.jobs import contents

TEXTS = ["the cat sat on the mat .", "a dog ran home", "", "the zebra", "a cat , a dog", "the mat", "home ."]
SETTINGS = Settings("body", "key", part_rows=3)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"key": [10 * row for row in range(7)], "body": TEXTS}), path, row_group_size=3)
    return path


@pytest.fixture
def out(tiny_encoder_folder, table, tmp_path):
    build(tiny_encoder_folder, table, SETTINGS, tmp_path / "out")
    return tmp_path / "out"


def failed(folder):
    return {check.name for check in verify(folder) if not check.ok}


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table).cast(table.schema), path)


CHECKS = ["_SUCCESS", "manifest", "parts", "sha256", "schema", "rows", "ids", "rejected", "vectors", "tokens"]


def test_a_finished_folder_verifies_and_reads_as_one_table(out):
    """pandas, Arrow and DuckDB pass over what is not a part, and the vectors keep their type."""
    assert [(check.name, check.ok) for check in verify(out)] == [(name, True) for name in CHECKS]
    assert (out / "_SUCCESS").read_text().strip() == sha256_of(out / "_manifest.json")
    assert pandas.read_parquet(out)["key"].tolist() == [10 * row for row in range(7)]
    kind = ds.dataset(out / "data").schema.field("embedding").type
    assert kind == pa.list_(pa.field("element", pa.float32(), nullable=False), 4)
    assert duckdb.sql(f"select count(*) from '{out}/data/*.parquet'").fetchall() == [(7,)]
    for place, error, message in (
        (out / "data", FileNotFoundError, "give the folder that contains it"),
        (out / "missing", FileNotFoundError, "does not exist"),
        (out / "_SUCCESS", NotADirectoryError, "is a file"),
    ):
        with pytest.raises(error, match=message):
            verify(place)


def put(table, name, values):
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (lambda table: table.slice(1), {"rows", "tokens"}),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), {"rows", "tokens", "ids"}),
        (lambda table: pa.concat_tables([table.slice(0, 2), table.slice(0, 1)]), {"tokens", "ids"}),
        (lambda table: put(table, "key", [0, 10, 50]), {"ids"}),  # 50 stands in another part
        (lambda table: put(table, "n_unknown", [1, 0, 0]), {"tokens"}),
        (lambda table: put(table, "n_unknown", [8, 0, 0]), {"tokens"}),
        (lambda table: put(table, "n_tokens", [7, -1, 0]), {"tokens"}),
        (lambda table: put(table, "embedding", [[0, 0, 0, np.nan], [0] * 4, [0] * 4]), {"vectors"}),
        (lambda table: put(table, "embedding", [[1] * 4, [1] * 4, [1, 0, 0, 0]]), {"vectors"}),
    ],
    ids=["dropped", "added", "repeated", "id twice", "unknown", "more unknown", "negative", "nan", "not zero"],
)
def test_changed_rows_are_found_even_when_the_digests_are_right(out, change, checks):
    rewrite(out / "data/part-000-000000.parquet", change)
    assert "sha256" in failed(out)
    sign(out)
    assert failed(out) == checks


def test_schema_is_compared_and_is_the_contract(out):
    path = out / "data/part-000-000000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "n_tokens", table["n_tokens"].cast(pa.int64())), path)
    sign(out)
    assert "schema" in failed(out)
    columns = pc.list_flatten(table["embedding"])
    pq.write_table(table.set_column(1, "embedding", columns.slice(0, len(table))), path)
    sign(out, lambda values: values.update(schema=[[f.name, str(f.type)] for f in pq.read_schema(path)]))
    assert "schema" in failed(out)


def test_missing_extra_and_unreadable_parts(tiny_encoder_folder, table, out):
    part = out / "data/part-000-000002.parquet"
    saved = part.read_bytes()
    for place in range(0, len(saved), len(saved) // 8):
        part.write_bytes(saved[:place] + bytes([saved[place] ^ 1]) + saved[place + 1 :])
        assert "sha256" in failed(out), place
    part.unlink()
    assert {"parts", "rows"} <= failed(out)
    part.write_bytes(saved[:100])
    sign(out)
    assert "rows" in failed(out)
    part.write_bytes(saved)
    sign(out)
    assert not failed(out)
    (out / "data/part-000-000003.parquet").write_bytes(saved)
    assert failed(out) == {"parts"}
    with pytest.raises(ValueError, match=r"did not write: data/part-000-000003\.parquet"):
        build(tiny_encoder_folder, table, SETTINGS, out)


def test_a_manifest_cannot_name_a_file_outside(out, tmp_path):
    (out / "data/part-000-000000.parquet").rename(tmp_path / "elsewhere.parquet")
    sign(out, lambda values: values["parts"][0].update(name="../elsewhere.parquet"))
    (check,) = (check for check in verify(out) if not check.ok)
    assert check.name == "manifest"
    assert "'../elsewhere.parquet' should be 'data/part-000-000000.parquet'" in check.detail


def set_to(text):
    """A manifest that holds this instead, with a _SUCCESS of the manifest before it."""
    return lambda out: (out / "_manifest.json").write_text(text)


def signed(change):
    """A manifest with changed values that _SUCCESS has the digest of."""
    return lambda out: sign(out, change)


COUNTS = ("n_cut", "n_without_tree")  # which the parts do not show


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        *((set_to(text), "_SUCCESS manifest") for text in ("", "[]", "{}")),
        (set_to('{"format": "paraembed-embeddings-3"}'), "_SUCCESS manifest"),
        (set_to('{"format": "paraembed-embeddings-3", "parts": [1]}'), "_SUCCESS manifest"),
        (set_to('{"format": "paraembed-embeddings-3", "generations": []}'), "_SUCCESS manifest"),
        (lambda out: (out / "_SUCCESS").write_text("0" * 64), "_SUCCESS"),
        (lambda out: (out / "_SUCCESS").unlink(), "_SUCCESS"),
        *((signed(lambda values, name=name: values.update({name: 1})), "tokens") for name in COUNTS),
        *((signed(lambda values, name=name: values["parts"][1].update({name: 1})), "tokens") for name in COUNTS),
        *((signed(lambda values, name=name: values.update({name: "1"})), "manifest") for name in COUNTS),
        *((signed(lambda values, name=name: values["parts"][1].pop(name)), "manifest") for name in COUNTS),
        (signed(lambda values: values["parts"][1].update(rows=-3)), "manifest"),
        (signed(lambda values: values["parts"][1].update(rows=2**63 - 1, n_rejected=2**63 - 1)), "manifest"),
        (signed(lambda values: values["settings"].update(dtype="int4")), "manifest"),
        (signed(lambda values: values["schema"].append(["x"])), "manifest"),
        (lambda out: damage(out / ENTRIES), "manifest"),
        (lambda out: damage(out / PIECES), "manifest"),
        (lambda out: (out / PIECES).unlink(), "manifest"),
        (lambda out: (out / ENTRIES).unlink(), "manifest"),
    ],
)
def test_a_manifest_that_is_wrong_is_found(out, change, checks):
    values = json.loads((out / "_manifest.json").read_text())
    assert [values["n_cut"], *(part["n_without_tree"] for part in parts_of(out))] == [0] * 4
    change(out)
    assert failed(out) == set(checks.split())


def damage(path):
    path.write_bytes(path.read_bytes()[:-1] + b"?")


PART, DONE = "data/part-000-000001.parquet", "_done/000-000000.arrow"


def flip_a_vector(path):
    """Change a bit of the vectors; only a checksum shows it."""
    column = pq.read_metadata(path).row_group(0).column(1)
    at, data = column.data_page_offset + column.total_compressed_size - 3, path.read_bytes()
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def add_to_footer(path, **changes):
    known = json.loads(pq.read_metadata(path).metadata[FOOTER.encode()]) | changes
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({FOOTER: json.dumps(known)})


@pytest.mark.parametrize(
    ("change", "is_embedded"),
    [
        (lambda out: (out / PART).unlink(), True),
        (lambda out: damage(out / PART), True),
        (lambda out: shutil.copy(out / "data/part-000-000002.parquet", out / PART), True),
        (lambda out: (out / DONE).unlink(), False),
        (lambda out: damage(out / DONE), False),
        (lambda out: (out / DONE).write_bytes(b"ARROW1"), False),
        (lambda out: rewrite_arrow(out / DONE, lambda rows, _: rows[1].update(stamp="of another disk")), False),
        (lambda out: rewrite_arrow(out / DONE, lambda rows, _: rows[1].update(rows="3")), False),
        *(
            (lambda out, change=change: ((out / DONE).unlink(), add_to_footer(out / PART, **change)), True)
            for change in ({"made_of": "another encoder"}, {"rows": 2}, {"rows": "3"}, {"n_tokens": None}, {"x": 1})
        ),
        (lambda out: ((out / DONE).unlink(), rewrite(out / PART, lambda rows: rows)), True),  # without a report
        (lambda out: ((out / DONE).unlink(), flip_a_vector(out / PART)), True),
    ],
)
def test_the_same_command_mends_and_gives_the_same_bytes(tiny_encoder_folder, table, out, change, is_embedded):
    before = contents(out)
    change(out)
    (out / "_SUCCESS").unlink()
    (out / "data/.part-000-000001.parquet.0123abcd.tmp").write_text("left by a worker that was killed")
    assert build(tiny_encoder_folder, table, SETTINGS, out) == ({PART: 3} if is_embedded else {})
    assert contents(out) == before
    assert not failed(out)
    assert build(tiny_encoder_folder, table, SETTINGS, out) == {}


def test_a_finished_run_embeds_nothing_again_files_may_move_and_one_runs_at_a_time(
    tiny_encoder_folder, table, out, tmp_path
):
    with Folder(out).held(), pytest.raises(ValueError, match="another run is writing"):
        build(tiny_encoder_folder, table, SETTINGS, out)
    table.rename(tmp_path / "moved.parquet")
    assert build(tiny_encoder_folder, tmp_path / "moved.parquet", SETTINGS, out) == {}
    os.utime(tmp_path / "moved.parquet")  # the footer is the same
    assert build(tiny_encoder_folder, tmp_path / "moved.parquet", SETTINGS, out) == {}


def test_tables_of_the_same_size_and_time_do_not_take_each_others_place(tiny_encoder_folder, tmp_path):
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path, text in zip(paths, ("cat", "dog"), strict=True):
        pq.write_table(pa.table({"body": [f"the {text}"] * 4}), path)
        os.utime(path, ns=(1, 1))
    assert paths[0].stat().st_size == paths[1].stat().st_size
    build(tiny_encoder_folder, paths, Settings("body"), tmp_path / "out")
    paths[0].rename(tmp_path / "c")
    paths[1].rename(paths[0])
    (tmp_path / "c").rename(paths[1])
    with pytest.raises(ValueError, match=r"inputs\[0\]\.sha256 \(was footer"):
        build(tiny_encoder_folder, paths, Settings("body"), tmp_path / "out")


def test_by_content_all_parts_are_read(tiny_encoder_folder, table, out):
    """Bits that change by themselves leave size and times, as the reports of ``_done`` say here."""
    before = contents(out)
    flip_a_vector(out / PART)
    stamp = Folder(out).stamp(PART)
    rewrite_arrow(out / DONE, lambda rows, _: rows[1].update(stamp=stamp))
    run = read_run(Folder(out))
    with begun_run(Folder(out), run) as reports:
        assert len([*reports]) == 3
    with begun_run(Folder(out), run, by_content=True) as reports:
        assert PART not in [report.name for report in reports]
    assert "sha256" in failed(out)
    (out / PART).unlink()
    assert build(tiny_encoder_folder, table, SETTINGS, out) == {PART: 3}
    assert contents(out) == before


def test_texts_and_inputs_with_a_digest_may_have_another_time(tiny_encoder_folder, table, tmp_path):
    (tmp_path / "t.txt").write_text("the cat\na dog\n")
    for path, settings, hashed in ((tmp_path / "t.txt", Settings(), tuple), (table, SETTINGS, hash_inputs)):
        out = tmp_path / f"of {path.name}"
        assert build(tiny_encoder_folder, path, settings, out, hashed=hashed)
        os.utime(path, ns=(1, 1))
        assert build(tiny_encoder_folder, path, settings, out, hashed=hashed) == {}
        data, times = path.read_bytes(), path.stat()
        path.write_bytes(data[:-1] + b"?")
        with pytest.raises(ValueError, match="started with another"):
            build(tiny_encoder_folder, path, settings, out, hashed=hashed)
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_inputs_of_a_plan_are_not_opened_again(tiny_encoder_folder, table, out, monkeypatch):
    known = known_inputs(Folder(out), DEFAULT_TABLE_LIMITS)
    assert known_inputs(Folder(out), replace(DEFAULT_TABLE_LIMITS, max_field_lines=7)) == {}
    monkeypatch.setattr("paraembed.embedding.inputs.open_place", None)
    assert find_inputs([table], known=known) == tuple(known.values()) == read_run(Folder(out)).plan.inputs
    with pytest.raises(TypeError):
        find_inputs([table])
    os.utime(table)
    with pytest.raises(TypeError):
        find_inputs([table], known=known)


def test_going_on_is_refused_when_something_differs(tiny_encoder_folder, table, out):
    config = checkpoint.read_config(tiny_encoder_folder)
    inputs = list_inputs([table])
    run = EmbeddingRun(config["fingerprint"], config["tokeniser"], Plan(inputs, SETTINGS), {})
    assert continued_run(Folder(out), run).plan.rows == 7
    for change, field in (
        ({"identity": {"device": "cuda"}}, r"model\.device"),
        ({"encoder": "f" * 64}, "encoder"),
        ({"tokenizer": "space"}, "tokenizer"),
        ({"inputs": (replace(inputs[0], size=1),)}, r"inputs\[0\].size"),
        ({"inputs": inputs * 2}, "inputs"),
        *(
            ({"settings": replace(SETTINGS, **{name: value})}, name)
            for name, value in {
                "part_rows": 4, "text_column": "key", "keep": ("body",), "batch_size": 1, "tree_column": "body"
            }.items()
        ),
    ):  # fmt: skip
        is_of_plan = change.keys() & {"inputs", "settings"}
        other = replace(run, plan=replace(run.plan, **change)) if is_of_plan else replace(run, **change)
        with pytest.raises(ValueError, match=rf"started with another (.*; )?{field} \(was .*`overwrite`"):
            continued_run(Folder(out), other)


def compress(path):
    """Write an Arrow file with compressed batches, and sign it."""
    with pa.ipc.open_file(path) as file:
        table = file.read_all()
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)
    change_plan(path.parents[1], pieces=None)


PIECE = [{"file": 1}, {"file": -1}, {"rows": "3"}, {"rows": 0}, {"row": 0}, {"start": 7}, {"part": 3}]


@pytest.mark.parametrize(
    "change",
    [
        lambda out: damage(out / PIECES),
        lambda out: (out / PIECES).write_bytes(b""),
        lambda out: (out / INPUTS).write_bytes(b"ARROW1"),
        lambda out: change_plan(out, pieces=lambda rows, _: rows.clear()),
        lambda out: change_plan(out, inputs=lambda _, about: about.update(format="paraembed-embeddings-4")),
        lambda out: change_plan(out, inputs=lambda _, about: about.update(settings={"dtype": "int4"})),
        lambda out: change_plan(out, inputs=lambda rows, _: rows[0].update(read_as="[" * 1000)),
        *(
            lambda out, one=one: change_plan(
                out, inputs=lambda rows, _: rows[0].update(read_as=json.dumps(json.loads(rows[0]["read_as"]) | one))
            )
            for one in ({"encoding": "nope"}, {"encoding": "zip"}, {"kind": "text"}, {"carried": "AAAA"})
        ),
        lambda out: compress(out / PIECES),
        *(
            lambda out, one=one: change_plan(out, pieces=lambda rows, _: rows[1].update(one))
            for one in [*PIECE, {"start": 0, "row_in_file": 0}]
        ),
    ],
)
def test_a_damaged_plan_is_refused(tiny_encoder_folder, table, out, change):
    change(out)
    with pytest.raises(ValueError, match=r"_plan/inputs-000\.arrow is damaged .*start over"):
        build(tiny_encoder_folder, table, SETTINGS, out)
    with pytest.raises(ValueError, match="is damaged"):
        read_run(Folder(out))


def test_parts_are_looked_at_again_before_the_commit(tiny_encoder_folder, table, out):
    store = Folder(out)
    run = read_run(store)
    (out / "_SUCCESS").unlink()
    with begun_run(store, run) as reports:
        (out / "data/part-000-000001.parquet").unlink()
        with pytest.raises(ValueError, match=r"part-000-000001\.parquet in .*out was removed or changed"):
            commit(store, run, reports)
        shutil.copy(out / "data/part-000-000002.parquet", out / "data/part-000-000001.parquet")
        with pytest.raises(ValueError, match=r"part-000-000001\.parquet in .*out was removed or changed"):
            commit(store, run, reports)
    assert not (out / "_SUCCESS").exists()
    assert build(tiny_encoder_folder, table, SETTINGS, out) == {"data/part-000-000001.parquet": 3}
    assert not failed(out)


def test_a_folder_that_holds_something_else_is_refused(out, tmp_path):
    assert check_folder(Folder(tmp_path / "new")) is False
    (tmp_path / "empty").mkdir()
    assert check_folder(Folder(tmp_path / "empty")) is False
    assert check_folder(Folder(out)) is True
    with pytest.raises(ValueError, match=r"contains a file .*: empty"):
        check_folder(Folder(tmp_path))
    with pytest.raises(NotADirectoryError, match="is a file"):
        check_folder(Folder(tmp_path / "t.parquet"))
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"contains a file .*: notes\.txt"):
        check_folder(Folder(out))
    with pytest.raises(ValueError, match=r"contains a file .*: notes\.txt"):
        discard(out)
    (out / "notes.txt").unlink()
    (out / INPUTS).unlink()
    with pytest.raises(ValueError, match=r"contains a file .*: _SUCCESS"):  # another job's output has that too
        check_folder(Folder(out))


def test_a_count_of_ids_is_checked(tiny_encoder_folder, tmp_path):
    """Null ids and ids that repeat are kept when that is asked for, counted, and looked for again."""
    path, folder = tmp_path / "ids.parquet", tmp_path / "ids"
    pq.write_table(pa.table({"key": ["a", "b", None, "a", "a", "../../c", None], "body": TEXTS}), path)
    settings = replace(SETTINGS, part_rows=7)
    with pytest.raises(ValueError, match=r"2 rows repeat .*'a'; .*`on_duplicate_id`"):
        build(tiny_encoder_folder, path, settings, folder)
    assert not (folder / "_manifest.json").exists()
    assert build(tiny_encoder_folder, path, settings, folder, "keep") == {}
    assert pq.read_table(folder)["key"].to_pylist() == ["a", "b", None, "a", "a", "../../c", None]
    footer = pq.read_metadata(folder / "data/part-000-000000.parquet").metadata[FOOTER.encode()]
    assert json.loads(footer)["null_id"] == "0:3"
    assert not failed(folder)
    for change in ({"n_duplicate_ids": 1}, {"n_null_ids": 1}):
        sign(folder, lambda values, change=change: values.update(change))
        assert "ids" in failed(folder)
        sign(folder, lambda values: values.update(n_duplicate_ids=2, n_null_ids=2))
    assert not failed(folder)


def test_rows_that_cannot_be_read_leave_gaps_and_reasons(tiny_encoder_folder, tmp_path):
    path, folder = tmp_path / "a\u2028b\x85c.jsonl", tmp_path / "out"
    lines = [json.dumps({"body": text}) for text in TEXTS]
    path.write_text("\n".join([*lines[:2], '{"body": ', *lines[2:], '{"body": 1}', "worse"]) + "\n")
    build(tiny_encoder_folder, path, Settings("body", part_rows=3), folder)
    values = json.loads((folder / "_manifest.json").read_text())
    assert (values["rows"], values["n_rejected"]) == (7, 3)
    assert [(part["rows"], part["n_rejected"]) for part in parts_of(folder)] == [(2, 1), (3, 0), (2, 1), (0, 1)]
    assert pq.read_table(folder)["row"].to_pylist() == [0, 1, 3, 4, 5, 6, 7]
    assert not failed(folder)
    listed, found = sorted((folder / "_rejected").iterdir()), []
    for one in listed:
        footer = pq.read_metadata(folder / "data" / f"{one.stem}.parquet").metadata[FOOTER.encode()]
        assert json.loads(footer)["rejected_sha256"] == sha256_of(one)
        found.append(json.loads(one.read_text()))
    reasons = {2: "no JSON", 8: "'body' is no string", 9: "no JSON"}
    assert found == [{"source": path.name, "row": row, "reason": reason} for row, reason in reasons.items()]
    before = contents(folder)
    listed[0].unlink()
    assert failed(folder) == {"rejected"}
    assert build(tiny_encoder_folder, path, Settings("body", part_rows=3), folder) == {
        "data/part-000-000000.parquet": 3
    }
    assert contents(folder) == before
    for numbers in ([0, 3], [1, 0]):  # that of another part, and not in their order
        rewrite(folder / "data/part-000-000000.parquet", lambda rows, numbers=numbers: put(rows, "row", numbers))
        sign(folder)
        assert failed(folder) == {"ids"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_rows_are_embedded_again_and_compared(tiny_encoder_folder, tiny_words, table, tmp_path, dtype):
    folder, part = tmp_path / "out", "data/part-000-000001.parquet"
    settings = replace(SETTINGS, dtype=dtype, normalize=True, dim=3)
    build(tiny_encoder_folder, table, settings, folder)
    assert all(check.ok for check in verify(folder, tiny_encoder_folder, [str(table)]))
    assert verify(folder, tiny_encoder_folder, [str(table)])[-1].name == "sample"
    swapped = pq.read_table(folder / part)["embedding"].take([1, 0, 2]).combine_chunks()
    rewrite(folder / part, lambda rows: rows.set_column(1, rows.schema.field("embedding"), swapped))
    sign(folder)
    assert not failed(folder)
    assert [check.detail for check in verify(folder, tiny_encoder_folder, [str(table)]) if not check.ok] == [
        f"{part} has another vector in row 0"
    ]
    other = tmp_path / "other"
    checkpoint.save(Encoder(AvgConfig(), tiny_words, "space"), other, recipe={}, provenance={}, model_card="")
    assert "fingerprint (was " in verify(folder, other, [str(table)])[-1].detail
    table.unlink()
    assert "cannot be checked" in verify(folder, tiny_encoder_folder, [str(table)])[-1].detail


def test_the_sample_reads_only_what_the_user_names(tiny_encoder_folder, table, out, tmp_path):
    def sample(*inputs):
        check = verify(out, tiny_encoder_folder, [str(one) for one in inputs])[-1]
        return check.ok, check.detail

    for named in (table, tmp_path, f"file://{tmp_path}", f"{tmp_path}/../{tmp_path.name}"):
        assert sample(named) == (True, "7 rows, vectors equal within 1e-05 of their largest value")
    (tmp_path / "other").mkdir()
    (tmp_path / "looped").symlink_to(tmp_path / "looped")
    for named in (tmp_path / "other", tmp_path / "t.parque", tmp_path / "looped", "s3://bucket/t"):
        assert sample(named)[0] is False
    assert sample() == (
        False,
        "the check needs the input files; give them, or folders or URIs that contain them, as `input`",
    )
    fifo = tmp_path / "other" / "f.parquet"
    os.mkfifo(fifo)
    for path in (fifo, "/dev/zero", f"{tmp_path}/other/../t.parquet?", tmp_path / "looped"):
        change_plan(out, inputs=lambda rows, _, path=path: rows[0].update(path=str(path)))
        assert sample(tmp_path, "/dev")[0] is False


def test_a_sample_of_no_rows_or_of_other_parts_is_not_ok(tiny_encoder_folder, table, out):
    whole = {name: (out / name).read_bytes() for name in (INPUTS, PIECES)}
    for change in (
        {"pieces": lambda rows, _: rows.clear()},
        {"pieces": lambda rows, _: rows.__delitem__(slice(1, None))},
        {"pieces": lambda rows, _: rows[2].update(rows=2)},
        {"inputs": lambda rows, _: rows[0].update(size=1)},
        {"inputs": lambda rows, _: rows[0].update(limits="1")},
    ):
        change_plan(out, **change)
        assert not verify(out, tiny_encoder_folder, [str(table)])[-1].ok
        for name, data in whole.items():
            (out / name).write_bytes(data)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path), Path.mkdir])
def test_what_is_no_file_is_found_at_once(tiny_encoder_folder, table, out, make):
    for name in ("_SUCCESS", "_manifest.json", INPUTS, PIECES, PART):
        (out / name).rename(out / "saved")
        make(out / name)
        assert not all(check.ok for check in verify(out, tiny_encoder_folder, [str(table)]))
        (out / name).rmdir() if make is Path.mkdir else (out / name).unlink()
        (out / "saved").rename(out / name)


def test_the_query_of_the_docs(tiny_encoder_folder, table, tmp_path, monkeypatch):
    """Nearest rows by cosine, against numpy; texts without tokens are left out."""
    text = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    (query,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    out = tmp_path / "embeddings"
    pq.write_table(pq.read_table(table).rename_columns(["key", "text"]), table, row_group_size=3)
    build(tiny_encoder_folder, table, Settings("text", keep=("text",), part_rows=3), out)
    monkeypatch.chdir(tmp_path)
    found = duckdb.sql(query).fetchall()
    made = pq.read_table(out)
    vectors = np.array(made["embedding"].to_pylist())
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors[0] / np.where(lengths, lengths, 1) / lengths[0]
    order = [row for row in np.argsort(-cosines) if lengths[row]]
    assert [text for text, _ in found] == [TEXTS[row] for row in order]
    assert np.allclose([cosine for _, cosine in found], cosines[order], atol=1e-6)
