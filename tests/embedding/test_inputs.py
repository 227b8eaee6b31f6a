import bz2
import gzip
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.embedding.columns import ALL, complete_settings
from paraembed.embedding.identity import changed_inputs, is_same_file
from paraembed.embedding.inputs import check_apart, comparable, would_find
from paraembed.embedding.plan import make_plan
from paraembed.embedding.records import inputs_of, inputs_table
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import Settings
from paraembed.io.store import Folder
from tests.embedding.test_rows import PACKED
from tests.embedding.without_ray import list_inputs

NAMES = ["a.txt", "b c.txt", "ä#%.txt", "deep/a.txt", "deep/er/z.txt"]


@pytest.fixture
def folder(tmp_path):
    """A corpus of five files, and what is none of it."""
    for name in [*NAMES, "_SUCCESS.txt", ".hidden.txt", "_old/x.txt", ".git/x.txt", "README.md"]:
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}\n")
    return tmp_path / "corpus"


def names_of(*asked):
    return [file.name for file in list_inputs(asked)]


def test_what_files_folders_and_globs_name(folder, caplog, monkeypatch):
    assert names_of(folder) == sorted(NAMES)
    (record,) = caplog.records
    assert "1 of 6 files are left out" in record.getMessage()
    assert "README.md" in record.getMessage()
    for pattern, expected in (
        ("*.txt", ["_SUCCESS.txt", "a.txt", "b c.txt", "ä#%.txt"]),
        ("deep/*.txt", ["a.txt"]),
        ("?.txt", ["a.txt"]),
        ("**/?.txt", ["_old/x.txt", "a.txt", "deep/a.txt", "deep/er/z.txt"]),
        ("deep/**/*.txt", ["a.txt", "er/z.txt"]),
        (".*.txt", [".hidden.txt"]),
    ):
        assert names_of(folder / pattern) == expected
    monkeypatch.chdir(folder)
    assert names_of("a.txt", "deep/*.txt") == ["a.txt", "a.txt"]
    assert names_of("*/a.txt") == ["deep/a.txt"]
    assert [file.path for file in list_inputs(["deep"])] == [str(folder / name) for name in NAMES[3:]]
    (folder / "star*.txt").write_text("x\n")
    assert names_of("star*.txt") == ["star*.txt"]
    for uri, name in (("/b%20c.txt", "b c.txt"), ("/%C3%A4%23%25.txt", "ä#%.txt")):
        (file,) = list_inputs([folder.as_uri() + uri])
        assert (file.name, file.path) == (name, folder.as_uri() + uri)


def texts_of(inputs, column=None):
    plan = make_plan(inputs, Settings(column, part_rows=2))
    blocks = (block for part in plan.parts for block in read_part(plan.sources(part), part, plan.settings))
    return [text for block in blocks for text in block.texts.to_pylist()]


BAD = {
    "empty.txt": (b"", "is empty"),
    "empty.txt.gz": (gzip.compress(b""), "is empty"),
    "utf16.txt": ("ab\n".encode("utf-16"), "is UTF-16; expected UTF-8 text"),
    "table.txt": (b"PAR1\0\0", "is a Parquet file; expected UTF-8 text"),
    "zip.txt": (b"PK\x03\x04\0\0", "not a complete zip file"),
    "cut.txt.gz": (gzip.compress(b"some text\n" * 1000)[:-20], "not a complete gzip file"),
    "cut.txt.zst": (PACKED[".zst"](b"some text\n" * 1000)[:-20], "not a complete zst file"),
    "cut.txt.bz2": (bz2.compress(b"some text\n" * 1000)[:-20], "not a complete bz2 file"),
    "cut.txt.zip": (PACKED[".zip"](b"some text\n" * 1000)[:-20], "not a complete zip file"),
    "two.txt.zip": (PACKED[".zip"](b"x").replace(b"__MACOSX", b"AnyOther"), "has 2 files; expected one"),
    "array.json": (b'[{"text": "a"}, {"text"', "element 2 of the JSON array"),
    "after.json": (b'[{"text": "a"}] {}', "text follows the array of 1"),
    "one.feather": (b"FEA1", "is Feather version 1"),
    "cut.arrow": (b"ARROW1", "not a complete Arrow file"),
    "plain.txt.gz": (b"not gzipped\n", "not a complete gzip file"),
    "text.parquet": (b"not Parquet\n", "not a Parquet file"),
    "secret.parquet": (b"PARE and no more PARE", "is an encrypted Parquet file"),
    "cut.parquet": (b"PAR1 and no more", "not a complete Parquet file"),
    "page.html": (b"<p>", r"unknown kind of file; expected \.txt"),
    "twice.csv": (b"body,body\na,b\n", "'body' occurs twice in the header"),
    "long.csv": (b"a" * 2_000_000 + b"," + b"a" * 2_000_000 + b"\n", r"'aaa.*…' occurs twice"),
    "many.csv": (
        ",".join(f"column{number}" for number in range(45_570)).encode() + b"\n",
        r"column0, column1, .* and 45,560 more",
    ),
    "only.csv": (b"body\n", "has no rows"),
    "keys.jsonl": (b'{"text": "a"}\n', r"no column 'body'; `text_column` can be: text"),
}
"""Files that cannot be embedded, with what is said of them."""


@pytest.fixture(scope="module")
def none(tmp_path_factory):
    folder = tmp_path_factory.mktemp("none")
    for name, (data, _) in BAD.items():
        (folder / name).write_bytes(data)
    for name in ("bare", "fifos", "links"):
        (folder / name).mkdir()
    pq.write_table(pa.table({"body": pa.array([], pa.string())}), folder / "norows.parquet")
    (folder / "good.txt").write_text("x\n")
    os.mkfifo(folder / "fifos" / "p.parquet")
    for link, to in (("l.csv", "fifos/p.parquet"), ("zero.txt", "/dev/zero"), ("loop.txt", "loop.txt")):
        (folder / link).symlink_to(to)
    (folder / "links" / "gone.txt").symlink_to("nowhere")
    return folder


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        *((name, ValueError, message) for name, (_, message) in BAD.items()),
        ("missing.txt", FileNotFoundError, "does not exist"),
        ("missing*.txt", FileNotFoundError, "matches no file"),
        ("bare", FileNotFoundError, "has no file to embed; expected .txt"),
        ("norows.parquet", ValueError, "has no rows"),
        ("good.txt good.txt", ValueError, "given twice"),
        ("good.txt norows.parquet", ValueError, r"of several kinds \(parquet, text\)"),
        ("", ValueError, "no input"),
        ("loop.txt", (ValueError, OSError), "symbolic link to itself"),
        ("fifos", FileNotFoundError, r"p\.parquet is a broken link"),
        ("fifos/*.parquet", FileNotFoundError, r"p\.parquet is a broken link"),
        ("fifos/p.parquet", ValueError, "is a FIFO"),
        ("l.csv", ValueError, "is a FIFO"),
        ("zero.txt", ValueError, "device"),
        ("links", FileNotFoundError, r"links/gone\.txt is a broken link"),
        ("links/*.txt", FileNotFoundError, r"links/gone\.txt is a broken link"),
    ],
)
def test_inputs_that_are_none(none, names, kind, message):
    for asked in ([none / name for name in names.split()], [f"{none.as_uri()}/{name}" for name in names.split()]):
        with pytest.raises(kind, match=message) as caught:
            make_plan(list_inputs(asked), Settings(None if "txt" in names else "body"))
        assert len(str(caught.value)) < 1000 + len(str(none))


def test_empty_files_of_a_folder_and_columns_without_a_name_are_left_out(tmp_path, caplog):
    (tmp_path / "a.csv").write_text(",text,,\n0,a cat,,\n")
    (tmp_path / "b.csv").touch()
    for asked in (tmp_path, f"{tmp_path}/*.csv"):
        caplog.clear()
        (file,) = list_inputs([asked])
        assert "empty files are left out: 1, the first is b.csv" in caplog.text
    settings = complete_settings(Settings("text", keep=[*ALL]), [file], reads_trees=False)
    (part,) = make_plan((file,), settings).parts
    (block,) = read_part([file], part, settings)
    assert (settings.keep, [column.to_pylist() for column in block.carried]) == (("text",), [[0], ["a cat"]])
    with pytest.raises(ValueError, match=r"b\.csv is empty"):
        list_inputs([tmp_path / "b.csv"])


def test_metadata_and_caches_are_no_rows(tmp_path, caplog):
    """As Hugging Face's ``save_to_disk`` and ``map`` write them; Spark has files of JSON only."""
    for name in ("state.json", "a/part-0.json", "a/part-1.json.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PACKED[".gz" * name.endswith("gz")](b'{"text": "a cat"}\n'))
    assert names_of(tmp_path / "a") == ["part-0.json", "part-1.json.gz"]
    for name in ("data-00000-of-00001.arrow", "cache-0123abcd.arrow"):
        with pa.ipc.new_stream(tmp_path / name, pa.schema({"text": pa.string()})) as writer:
            writer.write(pa.record_batch({"text": ["a dog"]}))
    (file,) = list_inputs([tmp_path])
    assert file.name == "data-00000-of-00001.arrow"
    assert "4 of 5 files are left out" in caplog.text


def test_the_current_version_of_a_delta_table_is_read(tmp_path, monkeypatch):
    delta = pytest.importorskip("deltalake")
    where, settings = str(tmp_path / "lake" / "t"), Settings("body", keep=("lang",))
    columns = {"body": pa.array(["a cat", "a dog"], pa.string_view()), "lang": ["en", "d e"]}
    for mode in ("append", "overwrite", "append"):
        delta.write_deltalake(where, pa.table(columns), mode=mode, partition_by=["lang"])
    delta.DeltaTable(where).delete("body = 'a dog'")
    files = list_inputs([where])
    assert [(file.partitions, len(pq.read_table(file.path))) for file in files] == [({"lang": "en"}, 1)] * 2
    assert make_plan(files, settings).rows == 2
    named = sorted((tmp_path / "lake").glob("t/*/*.parquet"))
    assert len(list_inputs(named)) == 6, "files that are named are read"
    for inside in (f"{where}/*/*.parquet", f"{where}/lang=en", f"{tmp_path}/**/*.parquet"):
        with pytest.raises(ValueError, match=r"lake/t is a Delta table"):
            list_inputs([inside])
    with pytest.raises(ValueError, match=r"lake/t/ is a Delta table"):
        list_inputs([tmp_path / "lake"])
    files[0].place.unlink()
    with pytest.raises(FileNotFoundError, match=r"/lang=en/.* of the table"):
        list_inputs([where])
    first = tmp_path / "lake" / "t" / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in first.read_text().splitlines()]
    for entry in entries:
        entry.get("metaData", {}).get("configuration", {})["delta.columnMapping.mode"] = "name"
    first.write_text("\n".join(map(json.dumps, entries)))
    with pytest.raises(ValueError, match="Delta table with renamed columns"):
        list_inputs([where])
    first.write_text("{")
    with pytest.raises(ValueError, match="log of the Delta table"):
        list_inputs([where])
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ValueError, match="pip install deltalake"):
        list_inputs([where])


def test_the_current_snapshot_of_an_iceberg_table_is_read(tmp_path, monkeypatch):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=(tmp_path / "lake").as_uri())
    catalog.create_namespace("n")
    rows = pa.table({"body": ["a cat", "a dog", "the mat"]})
    table = catalog.create_table("n.t", rows.schema)
    table.append(rows)
    table.delete("body = 'a dog'")
    table.append(rows[:1])
    where = tmp_path / "lake" / "n" / "t"
    assert make_plan(list_inputs([where]), Settings("body")).rows == 3
    assert len(list_inputs(sorted((where / "data").iterdir()))) == 3, "files that are named are read"
    for inside in (f"{where}/data/*.parquet", f"{where}/data", f"{tmp_path}/**/*.parquet"):
        with pytest.raises(ValueError, match=r"n/t is an Iceberg table"):
            list_inputs([inside])
    with pytest.raises(ValueError, match=r"lake/n/t/ is an Iceberg table"):
        list_inputs([tmp_path / "lake"])
    with table.update_schema() as update:
        update.rename_column("body", "text")
    with pytest.raises(ValueError, match="Iceberg table with renamed or dropped"):
        list_inputs([where])
    max((where / "metadata").glob("*.json")).write_text("{")
    with pytest.raises(ValueError, match="metadata of the Iceberg table cannot"):
        list_inputs([where])
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    with pytest.raises(ValueError, match="pip install 'pyiceberg"):
        list_inputs([where])


@pytest.mark.parametrize("name", ["", " "])
def test_inputs_without_a_name(name):
    with pytest.raises(ValueError, match=f"an input is '{name}'"):
        list_inputs([name])


def test_links_do_not_double_rows(folder):
    for link, to in ((folder / "deep" / "again", folder), (folder / "link.txt", folder / "a.txt")):
        link.symlink_to(to)
        with pytest.raises(ValueError, match="is given twice, possibly through a link"):
            list_inputs([folder])
        link.is_dir() and link.unlink()
    assert names_of(folder / "link.txt") == ["link.txt"]


def test_file_row_ids_need_names_that_differ(folder):
    inputs = list_inputs([folder / "a.txt", folder / "deep" / "a.txt"])
    make_plan(inputs, Settings())
    with pytest.raises(ValueError, match=r"two inputs are called 'a.txt'"):
        make_plan(inputs, Settings(id_kind="file-row"))


@pytest.fixture
def bucket(server):
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"body": [f"row {row}" for row in range(5)]}), table, row_group_size=2)
    lines = b"one\ntwo\nthree\n"
    server.objects |= {
        "texts/a.txt": lines,
        "texts/deep/b.txt.gz": gzip.compress(lines),
        "tables/a.parquet": table.getvalue().to_pybytes(),
        "rows/a.csv.zst": PACKED[".zst"](b'body\n"a\nb"\nc\n'),
    }
    return server


def test_inputs_of_an_object_store(bucket):
    for asked, column, names, expected in (
        ("texts", None, ["a.txt", "deep/b.txt.gz"], ["one", "two", "three"] * 2),
        ("texts/*.txt", None, ["a.txt"], ["one", "two", "three"]),
        ("tables/a.parquet", "body", ["a.parquet"], [f"row {row}" for row in range(5)]),
        ("rows/", "body", ["a.csv.zst"], ["a\nb", "c"]),
    ):
        inputs = list_inputs([bucket.uri(asked)])
        assert [file.name for file in inputs] == names
        plan = make_plan(inputs, Settings(column, part_rows=2))
        assert texts_of(inputs, column) == expected
        assert "secret" not in str(inputs_table(plan.inputs).to_pylist())
        assert inputs_of(inputs_table(plan.inputs))[0].path == inputs[0].shown
        assert changed_inputs(inputs) == []
    inputs = list_inputs([bucket.uri("texts")])
    young = replace(inputs[0], stamp=f"{inputs[0].size} 0 {inputs[0].stamp.split()[2]}", sha256="of no file")
    assert is_same_file(young, inputs[0]), "the ETag decides; nothing is read"
    bucket.objects["texts/a.txt"] = b"one\ntwo\nTHREE\n"  # its size and its time, in seconds, stay; its ETag does not
    assert [file.name for file in changed_inputs(inputs)] == ["a.txt"]


def _copied(path):
    """Replace a file by a copy with its times, as ``rsync --times`` does."""
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def planned(paths):
    """The inputs of a plan, which has read the texts for their digests."""
    column = None if paths[0].suffix == ".txt" else "body"
    return make_plan(list_inputs(paths), Settings(column)).inputs


def test_a_file_that_changes_is_known(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    looked = list_inputs([path])
    path.write_text("two\n")
    inputs = make_plan(looked, Settings()).inputs  # of the new text, but the stamp is the old one
    assert changed_inputs(inputs) == list(inputs)
    inputs = planned([path])
    assert changed_inputs(inputs) == []
    for change in (lambda: path.chmod(0o600), lambda: os.link(path, tmp_path / "backup"), lambda: _copied(path)):
        change()  # another status time or inode, the same bytes
        assert changed_inputs(inputs) == []
    times = path.stat().st_mtime_ns
    for text, replaced in (("TWO\n", False), ("six\n", True)):
        if replaced:
            path.unlink()
        path.write_text(text)
        os.utime(path, ns=(times, times))
        assert path.stat().st_mtime_ns == times
        assert changed_inputs(inputs) == list(inputs)
    path.unlink()
    assert changed_inputs(inputs) == list(inputs)


def test_names_that_are_not_utf8_are_refused_and_other_links_are_not(folder):
    (folder / "deep" / "gone.md").symlink_to("nowhere")
    assert names_of(folder) == sorted(NAMES)
    bad = os.fsencode(folder / "deep") + b"/\xff.txt"
    Path(os.fsdecode(bad)).write_text("x\n")
    for asked in (folder, folder / "deep" / "*.txt", os.fsdecode(bad)):
        with pytest.raises(ValueError, match=r"deep/\\xff\.txt' is not UTF-8; rename the file"):
            list_inputs([asked])


def test_no_message_holds_the_credentials_of_a_uri(bucket, caplog):
    cut = BAD["cut.txt.gz"][0]
    bucket.objects |= {"cut/a.txt.gz": cut, "none/page.html": b"", "some/page.html": b"", "some/a.txt": b"x\n"}
    for uri, message in (
        (bucket.uri("texts/missing.txt"), "does not exist"),
        (bucket.uri("texts/missing*.txt"), "matches no file"),
        (bucket.uri("none"), "has no file to embed"),
        (bucket.uri("cut/a.txt.gz"), "is not a complete gzip file"),
        ("s3://key:sec/secret@bucket/a.txt", "is not a supported URI"),
        ("other://key:secret@bucket/a.txt", "is not a supported URI"),
        (bucket.uri("texts") + "&unknown=1", "is not a supported URI"),
    ):
        with pytest.raises((ValueError, OSError), match=message) as caught:
            make_plan(list_inputs([uri]), Settings())
        assert "secret" not in str(caught.value)
    list_inputs([bucket.uri("some")])
    assert "page.html" in caplog.text
    assert "secret" not in caplog.text


def test_a_glob_that_would_find_the_output_is_known(tmp_path):
    for asked, path, found in (
        ("*/*.parquet", "out/part-00000-of-00001.parquet", True),
        ("**/part*", "a/out/part-00000-of-00001.parquet", True),
        ("*.parquet", "out/part-00000-of-00001.parquet", False),
        ("*/*.txt", "out/part-00000-of-00001.parquet", False),
        ("in/*/*.parquet", "out/part-00000-of-00001.parquet", False),
        ("out", "out/part-00000-of-00001.parquet", False),
    ):
        assert would_find(f"{tmp_path}/{asked}", comparable(tmp_path / path)) == found
        uri = f"s3://key:secret@bucket/{asked}?region=here"
        assert would_find(uri, comparable(f"s3://bucket/{path}")) == found


def test_inputs_and_output_in_each_other(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "t.txt").write_text("x\n")
    (tmp_path / "loop").symlink_to("loop")
    for asked, out, message in (
        ("a", "a/out", r"`out` .*a/out is inside of the input .*/a;"),
        ("a/**", "a/deep/out", r"is inside of the input .*a/\*\*;"),
        ("*/*", "out", r"is inside of the input"),
        ("a/t.txt", "a", r"the input .*a/t\.txt is inside of `out` .*/a;"),
        ("a/t.txt", "loop", "symbolic link to itself"),
    ):
        files = list_inputs([tmp_path / "a" / "t.txt"])
        with pytest.raises(ValueError, match=message):
            check_apart([tmp_path / asked], files, Folder(tmp_path / out), "part.parquet")
    check_apart([tmp_path / "a" / "t.txt"], files, Folder(tmp_path / "a" / "out"), "part.parquet")


def test_keys_of_json_lines_are_read_from_all_rows(tmp_path):
    path, other = tmp_path / "t.jsonl", tmp_path / "u.jsonl"
    first = json.dumps({"note": "x" * (2 << 20), "text": "first"})
    path.write_text("\n".join([first, *['{"text": "a"}'] * 1500, r'{"text": "b", "r\u0061re": 1}', ""]))
    other.write_text('{"text": "c"}\n')
    inputs = list_inputs([path, other])
    assert inputs[0].columns == ("note", "text")
    plan = make_plan(inputs, Settings("text", keep=("rare",)))
    rows = [rows for part in plan.parts for rows in read_part(plan.sources(part), part, plan.settings)]
    texts = [text for some in rows for text in some.texts.to_pylist()]
    assert [texts[0], texts[1], texts[-2], texts[-1], len(texts)] == ["first", "a", "b", "c", 1503]
    assert [value for some in rows for value in some.carried[1].to_pylist()] == [None] * 1501 + ["1", None]
    for settings, message in (
        (Settings("rare"), r"u\.jsonl has no column 'rare'; `text_column` can be: text"),
        (Settings("text", keep=("rarer",)), r"t\.jsonl has no column 'rarer'; `keep` can be: note, text"),
        (Settings("text", "key"), r"no column 'key'; `id_column` can be"),
    ):
        with pytest.raises(ValueError, match=message):
            make_plan(inputs, settings)
    with pytest.raises(ValueError, match=r"`keep` is all, .*columns of JSON lines"):
        complete_settings(Settings("text", keep=ALL), inputs, reads_trees=False)
