import bz2
import gzip
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.embedding.columns import complete_settings
from paraembed.embedding.plan import inputs_identity, make_plan
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import Settings
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from tests.embedding.without_ray import list_inputs


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
    """What the parts of a plan hold, a block at a time."""
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


def parquet_of(values):
    """A Parquet file whose strings were never checked to be UTF-8, as other writers may leave them."""
    octets = pa.array(values, pa.binary())
    strings = pa.Array.from_buffers(pa.string(), len(values), octets.buffers())
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"body": strings}), out)
    return out.getvalue().to_pybytes()


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


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "tsv", "parquet"])
def test_bytes_that_are_not_utf8_are_replaced_and_counted(kind, tmp_path):
    values = [b"fine", b"caf\xe9", b"\xff\xfe\0", "\ufffd é".encode(), b"\xe2\x82", b"last"]
    data = {
        "txt": b"\n".join(values),
        "jsonl": b"".join(b'{"body": "%s"}\n' % value.replace(b"\0", b"\\u0000") for value in values),
        "csv": b"body\n" + b"\n".join(values),
        "tsv": b"body\n" + b"\n".join(values),
        "parquet": parquet_of(values),
    }
    (tmp_path / f"t.{kind}").write_bytes(data[kind])
    column_name, kept = (None, "text") if kind == "txt" else ("body", "body")
    for batch_size in (2, 100):
        chosen = Settings(column_name, keep=(kept,), batch_size=batch_size)
        read = read_all([tmp_path / f"t.{kind}"], chosen)
        assert texts(read) == column(read, 1) == [value.decode("utf-8", "replace") for value in values]
        assert sum(some.num_replaced for some in read) == 3


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
