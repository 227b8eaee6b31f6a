import bz2
import gzip
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.output import Embeddings
from paraembed.embedding.plan import inputs_identity, make_plan
from paraembed.embedding.rows import read_part
from paraembed.embedding.search import search
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from tests.embedding.without_ray import build, list_inputs
from tests.jobs import digests


def zipped(data):
    """A zip archive as a Mac makes it, of one file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/t", data)
        archive.writestr("__MACOSX/folder/._t", b"")
    return packed.getvalue()


PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zip": zipped,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def read_all(paths, chosen, limits=DEFAULT_TABLE_LIMITS, **options):
    plan = make_plan(list_inputs(paths, limits, **options), chosen)
    found = []
    for part in plan.parts:
        blocks = list(read_part(plan.sources(part), part, chosen))
        assert sum(len(some.texts) + len(some.rejected) for some in blocks) == part.rows
        found += blocks
    return found


def column(blocks, place):
    return [value for some in blocks for value in some.carried[place].to_pylist()]


def texts(blocks):
    return [text for some in blocks for text in some.texts.to_pylist()]


def numbered(blocks):
    return [pair for block in blocks for pair in zip(block.row_numbers, block.texts.to_pylist(), strict=True)]


def rejected(blocks):
    return [(one.row, one.reason) for some in blocks for one in some.rejected]


@pytest.mark.parametrize(
    ("name", "data", "settings", "kept", "reasons"),
    [
        (
            "t.tsv",
            b'\xef\xbb\xbfkey\tbody\n1\t"a\n\n2\tb"\r\n3\n4\tx\ty\n5\tcaf\xe9\n',
            Settings("body", "key", part_rows=4),
            [("1", '"a'), ("2", 'b"'), ("5", "caf\ufffd")],
            {1: "empty line", 3: "1 cells, the header has 2", 4: "3 cells, the header has 2"},
        ),
        ("t.csv", b"body\na\n\n\nb\n", Settings("body"), [(0, "a"), (1, ""), (2, ""), (3, "b")], {}),
        (
            "t.jsonl",
            b'{"body": "a"}\r\n\r\n{"body": "b"\r\n[1]\r\n{"text": "c"}\r\n{"body": 3}\r\n%s\r\n{"body": null}\r\n'
            rb'{"body": "\ud800 d"}' % (b"[" * 100_000),
            Settings("body", id_kind="file-row", part_rows=3),
            [("t.jsonl:0", "a"), ("t.jsonl:7", None), ("t.jsonl:8", "\ufffd d")],
            dict(
                enumerate(["empty line", "no JSON", "no JSON object", "no 'body'", "'body' is no string", "no JSON"], 1)
            ),
        ),
    ],
    ids=["TSV has no quotes", "CSV of one column", "JSON lines"],
)
def test_rows_that_cannot_be_read_say_why(tmp_path, name, data, settings, kept, reasons):
    (tmp_path / name).write_bytes(data)
    read = read_all([tmp_path / name], settings)
    assert list(zip(column(read, 0), texts(read), strict=True)) == kept
    assert dict(rejected(read)) == reasons
    assert sum(some.num_replaced for some in read) == data.count(b"\xe9")


def test_values_of_hive_folders_decide_whether_parts_are_used_again(tmp_path):
    for lang in ("en", "de"):
        (tmp_path / lang / f"lang={lang}").mkdir(parents=True)
        (tmp_path / lang / f"lang={lang}" / "t.txt").write_text("a\n")
    for keep, count in ((("lang",), 2), (("text",), 1)):
        files = [make_plan(list_inputs([tmp_path / lang]), Settings(keep=keep)).inputs for lang in ("en", "de")]
        of_files = [inputs_identity(some, Settings(keep=keep)) for some in files]
        assert len({json.dumps(one) for one in of_files}) == count


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "parquet"])
def test_the_names_of_hive_folders_are_columns(kind, tmp_path):
    """A column of the file itself is kept as it is."""
    folders = {"lang=en": "en", "lang=d%20e": "d e", "lang=__HIVE_DEFAULT_PARTITION__": None, "lang=": ""}
    lines = {"txt": "a\n", "csv": "body,year\na,7\n", "jsonl": '{"body": "a", "year": "7"}\n'}
    for folder in folders:
        path = tmp_path / "year=2024" / folder / f"t.{kind}"
        path.parent.mkdir(parents=True)
        if kind == "parquet":
            pq.write_table(pa.table({"body": ["a"], "year": [7]}), path)
        else:
            path.write_text(lines[kind])
    settings = Settings(None if kind == "txt" else "body", keep=("lang", "year"))
    blocks = read_all([tmp_path], settings)
    assert column(blocks, 1) == [folders[folder] for folder in sorted(folders)]
    assert column(blocks, 2) == [{"txt": "2024", "parquet": 7}.get(kind, "7")] * 4
    if kind != "jsonl":
        of_all = complete_settings(replace(settings, keep=("all",)), list_inputs([tmp_path]), reads_trees=False)
        assert of_all.keep == ("text" if kind == "txt" else "body", "year", "lang")


STRAY = [
    ({10: '10,"the cat,x'}, [10]),
    ({10: '10,"the cat,x', 900: '900,the dog",x'}, [10]),
    ({10: '10,"the cat,x', 600: '600,"dog",x'}, [10]),
    ({10: '10,the "cat",x', 11: '11,"a"b,x', 12: '12,"a\nb"c,"x"'}, [11, 12, 13]),
    ({10: '10,"the cat', 400: '400,dog"'}, [10, 400]),  # two cells together, the header has three
    ({999: '999,the cat,"x'}, [999]),
    ({10: '10,"the cat,x', 500: '500,the dog",x'}, [10]),  # three cells together, and right quotes
    ({10: '10,"the cat,x', 15: '15,the dog",x'}, [10]),
]


@pytest.mark.parametrize(("packed", "end"), [("", "\n"), (".zip", "\r")])
def test_a_stray_quote_costs_its_line_and_no_other_row(packed, end, tmp_path):
    for stray, bad_rows in STRAY:
        lines = [stray.get(row, f"{row},the cat {row},x") for row in range(1000)]
        lines[700] = '700,"legal, ""too""\nreally",x'
        path = tmp_path / f"t.csv{packed}"
        path.write_bytes(PACKED[packed](end.join(['\ufeff"id",text,label', *lines, ""]).replace("\n", end).encode()))
        small, large = (read_all([path], Settings("text", "id", part_rows=rows)) for rows in (150, 100_000))
        assert rejected(small) == rejected(large)
        assert [row for row, _ in rejected(small)] == bad_rows
        assert sorted(numbered(small)) == sorted(numbered(large))
        assert f'legal, "too"{end}really' in texts(small)
        assert {*column(small, 0)} >= {str(row) for row in range(1000)} - {str(row) for row in stray}
        first_line, num_lines = max((pair for some in large for pair in some.lines), key=lambda pair: pair[1])
        assert (num_lines, first_line) == (2, 702 + (12 in stray))


@pytest.mark.timeout(20)
def test_quotes_that_never_close_take_linear_time(tmp_path):
    """A line may leave a quote open whether or not it began inside of one."""
    for header in (b"a,b,c", b'"a,b,c'):
        (tmp_path / "t.csv").write_bytes(header + b"\n" + b'x","c\n' * 100_000)
        with suppress(ValueError):
            (part,) = make_plan(list_inputs([tmp_path / "t.csv"]), Settings("b", part_rows=200_000)).parts
            assert part.rows == 100_000


@pytest.mark.parametrize(
    "own",
    [
        {"max_field_lines": 3},
        {"encoding": "cp1252"},
        {"csv_delimiter": "x"},
        {"csv_escape": "/", "csv_skip_blanks": True},
    ],
    ids=str,
)
def test_what_decides_the_rows_is_of_the_identity_of_an_input_if_it_is_not_the_default(tmp_path, own):
    (tmp_path / "t.csv").write_text('id,xext\n1,"two\nlines"\n2,"open\n')
    few, usual = (
        make_plan(
            list_inputs([tmp_path / "t.csv"], limits), Settings(list_inputs([tmp_path / "t.csv"], limits)[0].columns[0])
        )
        for limits in (TableLimits(**own), DEFAULT_TABLE_LIMITS)
    )
    assert few.inputs[0].to_json() == {**usual.inputs[0].to_json(), "columns": few.inputs[0].columns, **own}
    assert inputs_identity(few.inputs, few.settings) != inputs_identity(usual.inputs, usual.settings)


@pytest.mark.parametrize("header", ['id,"text', 'id,"text\n0,a\n0,b"', 'id,"te"xt', "", "\ufeff"])
def test_a_header_whose_quotes_are_wrong_is_an_error(header, tmp_path):
    (tmp_path / "t.csv").write_text(f"{header}\n1,a\n2,b\n")
    with pytest.raises(ValueError, match=r"t\.csv(, line 1, .*quote|: .*line is empty)"):
        list_inputs([tmp_path / "t.csv"])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_equal_texts_that_parquet_holds_once_are_written_out_a_slice_at_a_time(kind, tmp_path):
    some = ["a" * 20_000, None, "b" * 30_000, "short"] * 500
    values = pa.array(some, pa.string())
    table = pa.table({"key": range(len(values)), "body": values.dictionary_encode().cast(kind), "twin": values})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1500)
    written_out = values.nbytes
    del values, table
    plan = make_plan(
        list_inputs([tmp_path / "t.parquet"], block_bytes=1 << 18), Settings("body", "key", keep=("body", "twin"))
    )
    before, most, read = pa.total_allocated_bytes(), 0, []
    for part in plan.parts:
        for rows in read_part(plan.inputs, part, plan.settings):
            most = max(most, pa.total_allocated_bytes() - before)
            assert rows.carried[1].type == kind
            of_rows = rows.carried[0], rows.texts, *rows.carried[1:]
            read += zip(*map(pa.Array.to_pylist, of_rows), strict=True)
    assert read == [(row, value, value, value) for row, value in enumerate(some)]
    assert most < written_out // 8, (most, written_out)


TEXTS = ["the cat sat", "a dog", "the cat sat on the mat"]


def embedded(encoder, tables, settings, out):
    """The rows of the output of these tables, a file each, and their types."""
    out.with_name("in").mkdir()
    for name, table in tables.items():
        pq.write_table(pa.table(table), out.with_name("in") / f"{name}.parquet")
    build(encoder, out.with_name("in"), settings, out)
    assert all(check.ok for check in verify(out, encoder, [str(out.with_name("in"))]))
    before = digests(out)
    assert build(encoder, out.with_name("in"), settings, out) == {}
    assert digests(out) == before
    return pq.read_table(out / "data")


CATEGORIES = [
    pa.array(["x", "y"]).dictionary_encode().cast(pa.dictionary(kind, pa.string())) for kind in (pa.int8(), pa.uint32())
]
# Of a column in both files, and its type in the output.
COMMON = [
    (pa.array([1, 2], pa.int32()), pa.array([3, 4]), pa.int64()),
    (pa.array(["x", "y"]), pa.array(["x", None], pa.large_string()), pa.large_string()),
    (pa.array(["x", "y"]), pa.array(["x", "y"], pa.string_view()), pa.string()),
    (pa.array(["x", "y"]), pa.nulls(2), pa.string()),
    (pa.array(["x", "y"]), None, pa.string()),
    (*CATEGORIES, pa.string()),
    (CATEGORIES[0], pa.array(["x", "y"]), pa.string()),
    (CATEGORIES[0], CATEGORIES[0], CATEGORIES[0].type),
    (pa.array([1, 2]), pa.array([1.5, None]), pa.float64()),
    (pa.array([[1], []]), pa.array([None, [2]], pa.large_list(pa.int16())), pa.large_list(pa.int64())),
]


def test_columns_that_differ_between_files_get_their_common_type(tiny_encoder_folder, tmp_path, capsys):
    a, b = {"text": TEXTS[:2]}, {"text": pa.array(TEXTS[1:], pa.large_string())}
    for number, (first, second, _) in enumerate(COMMON):
        a |= {f"k{number}": first}
        b |= {} if second is None else {f"k{number}": second}
    settings = Settings("text", keep=("all",), id_kind="file-row")
    table = embedded(tiny_encoder_folder, {"a": a, "b": b}, settings, tmp_path / "out")
    assert table["text"].to_pylist() == TEXTS[:2] + TEXTS[1:]
    assert table["id"].to_pylist() == ["a.parquet:0", "a.parquet:1", "b.parquet:0", "b.parquet:1"]
    assert not table.schema.field("id").nullable
    said = capsys.readouterr().err
    for number, (first, second, kind) in enumerate(COMMON):
        assert table.schema.field(f"k{number}").type == kind
        expected = [*first.to_pylist(), *([None, None] if second is None else second.to_pylist())]
        assert table[f"k{number}"].to_pylist() == expected
        is_other = second is None or (first.type != second.type and not pa.types.is_string_view(second.type))
        assert (f"k{number} is" in said) == is_other


# pyarrow writes lists of fixed size with a null, but cannot read them
FIXED = pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2))


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        (([1, 2, 3], TEXTS), {"keep": ("kept",)}, r"b\.parquet: .*'kept' is string, but int64 .*a\.parquet"),
        (([1, 2, 2**60 + 1], [0.5, 1, 2]), {"keep": ("kept",)}, r"a\.parquet: .*'kept' is int64 .* double"),
        (([1.0, 2.5, 3.0],), {"id_column": "kept"}, r"a\.parquet, row 2: 'kept' is 2\.5"),
        ((FIXED,), {"keep": ("kept",)}, r"a\.parquet: column 'kept' .*Expected all lists"),
        ((TEXTS, TEXTS), {"keep": ("txet",)}, r"a\.parquet has no column 'txet'; `keep` can"),
    ],
)
def test_columns_that_are_refused_are_named_with_their_file(tiny_encoder_folder, tmp_path, columns, settings, message):
    tables = {name: {"text": TEXTS, "kept": column} for name, column in zip("ab", columns, strict=False)}
    with pytest.raises(ValueError, match=message):
        embedded(tiny_encoder_folder, tables, Settings("text", **settings), tmp_path / "out")


IDS = [
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(int=3).bytes, UUID(int=1).bytes] * 2, pa.binary(16))),
    pa.array([b"0123", b"0000"] * 2, pa.binary(4)),
    pa.array(["b", "a"] * 2).dictionary_encode(),
    pa.array([datetime(2026, 1, 2), datetime(2025, 1, 2)] * 2),
    pa.array([date(2026, 1, 2), date(2025, 1, 2)] * 2),
    pa.array([Decimal(2), Decimal(1)] * 2, pa.decimal128(38, 0)),
    pa.array([2.0, 1.0] * 2),
    pa.array([2**64 - 1, 2**53 + 1] * 2, pa.uint64()),
    pa.array(["b", "a"] * 2, pa.string_view()),
]


@pytest.mark.parametrize("ids", IDS, ids=lambda ids: str(ids.type))
def test_ids_keep_their_type_and_equal_ones_are_counted(tiny_encoder_folder, tmp_path, ids):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": [TEXTS[0]] * 4, "key": ids}), tmp_path / "in" / "a.parquet")
    build(tiny_encoder_folder, tmp_path / "in", Settings("text", "key"), tmp_path / "out", "keep")
    table = pq.read_table(tmp_path / "out" / "data")
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    assert table.schema.field("key").type == (pa.string() if pa.types.is_string_view(kind) else kind)
    assert table["key"].to_pylist() == ids.to_pylist()
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["n_duplicate_ids"] == 2
    hits = search(Embeddings(tmp_path / "out"), checkpoint.load(tiny_encoder_folder).encode(TEXTS[:1]), 4)
    assert hits.row.tolist() == [1, 3, 0, 2], "ties are ordered by id"


def test_texts_in_structs_lists_and_bytes(tmp_path):
    texts = [*TEXTS, None]
    split = [None if text is None else text.split(" ", 1) for text in texts]
    split[1] = ["a", None, "dog"]
    columns = {
        "octets": pa.array([None if text is None else text.encode() for text in texts]),
        "views": pa.array(texts, pa.string_view()),
        "doc": [{"body": {"text": text}, "lang": "en"} for text in texts],
        "doc.title": texts,
        "parts": split,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    for column in ("octets", "views", "doc.body.text", "doc.title", "parts"):
        plan = make_plan(list_inputs([tmp_path / "t.parquet"]), Settings(column, keep=("doc.lang",)))
        (block,) = read_part(plan.inputs, plan.parts[0], plan.settings)
        assert [text and text.replace("  ", " ") for text in block.texts.to_pylist()] == texts
        assert block.carried[1].to_pylist() == ["en"] * 4


@pytest.mark.parametrize(("kind", "octets"), [(pa.list_, pa.large_binary()), (pa.large_list, pa.string())])
def test_lists_are_texts_in_every_slice_and_their_bytes_need_not_be_utf8(tiny_encoder_folder, tmp_path, kind, octets):
    words = [[b"the", b"cat"], None, [b"a", b"d\xffg", b"\xff"], [], [b"dog"]]
    items = pa.array(words, kind(pa.binary() if octets == pa.string() else octets))
    lists = type(items).from_arrays(items.offsets, items.values.view(octets), type=kind(octets), mask=items.is_null())
    settings, out = Settings("text", keep=("number",), batch_size=2, part_rows=3), tmp_path / "out"
    made = embedded(tiny_encoder_folder, {"a": {"text": lists, "number": range(5)}}, settings, out)
    texts = ["the cat", "", "a d\ufffdg \ufffd", "", "dog"]
    np.testing.assert_array_equal(
        np.stack(made["embedding"].to_numpy()), checkpoint.load(tiny_encoder_folder).encode(texts)
    )
    assert json.loads((out / "_manifest.json").read_text())["n_replaced"] == 1
