import bz2
import csv
import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import Settings
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from tests.embedding.without_ray import list_inputs

EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def read_all(paths, chosen, limits=DEFAULT_TABLE_LIMITS, **options):
    """What the parts of a plan hold, a block at a time."""
    plan = make_plan(list_inputs(paths, limits, **options), chosen)
    found = []
    for part in plan.parts:
        blocks = list(read_part(plan.inputs[part.file], part, chosen))
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


CELLS = st.text(st.sampled_from('ab,"\n\r;é \t\0'), max_size=6)


@EXAMPLES
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=30),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    packed=st.sampled_from(list(PACKED)),
    part_rows=st.integers(1, 20),
    block=st.integers(1, 60),
)
def test_csv_as_python_writes_it(rows, end, packed, part_rows, block, tmp_path):
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([("key", "body"), *rows])
    path = tmp_path / f"t.csv{packed}"
    path.write_bytes(PACKED[packed](buffer.getvalue().encode()))
    read = read_all([path], Settings("body", "key", part_rows=part_rows), block_bytes=block)
    assert list(zip(column(read, 0), texts(read), strict=True)) == rows
    assert not rejected(read)


@EXAMPLES
@given(
    body=st.lists(st.sampled_from(["a", ",", '"', "\n", "\r", "\r\n", " ", '""', "b\n", "x,y\n", ',"']), max_size=40),
    mark=st.sampled_from(["", "\ufeff"]),
    packed=st.sampled_from(["", ".gz"]),
    part_rows=st.integers(1, 20),
    block=st.integers(1, 60),
    max_lines=st.integers(1, 5),
    max_bytes=st.sampled_from([24, 1000]),
)
@example(body=["a", "b", "\n", "\r"], mark="", packed="", part_rows=1, block=1, max_lines=5, max_bytes=1000)
def test_csv_of_any_bytes_is_read_line_by_line_where_its_quotes_are_wrong(
    body, mark, packed, part_rows, block, max_lines, max_bytes, tmp_path
):
    data = mark + '"key",body\n' + "".join(body)
    path = tmp_path / f"t.csv{packed}"
    path.write_bytes(PACKED[packed](data.encode()))
    limits = TableLimits(max_line_bytes=max_bytes, max_field_lines=max_lines)
    chosen = Settings("body", keep=("key",), part_rows=part_rows)
    try:
        (_, *kept), lines_rejected = csv_rows(data.removeprefix(mark), limits)
        if not kept and not lines_rejected:
            raise ValueError
    except ValueError:
        with pytest.raises(ValueError, match=r"has no rows|longer than"):
            read_all([path], chosen, limits, block_bytes=block)
        return
    read = read_all([path], chosen, limits, block_bytes=block)
    assert list(zip(column(read, 1), texts(read), strict=True)) == [tuple(cells) for cells, _ in kept]
    assert [one.line for some in read for one in some.rejected] == lines_rejected
    numbers = sorted([*column(read, 0), *(row for row, _ in rejected(read))])
    assert numbers == list(range(len(kept) + len(lines_rejected)))
    assert [lines for some in read for lines in some.lines[:, 1]] == [lines for _, lines in kept]


CSV_ROW = re.compile(r'(?:"(?:[^"]|"")*"|[^",\r\n]*)(?:,(?:"(?:[^"]|"")*"|[^",\r\n]*))*(?:\r\n|\n|\r|\Z)')
LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
LINE_END = re.compile(r"\r\n|\n|\r")


def csv_rows(data, limits):
    """Another reading of CSV, a character a byte: rows with their number of lines, the header first; rejected lines."""
    csv.field_size_limit(1 << 24)  # another reader may have set a small one in this process
    kept, lines_rejected, at, line = [], [], 0, 1
    while at < len(data):
        first, row = LINE.match(data, at), CSV_ROW.match(data, at)
        if len(first[0].rstrip("\r\n")) > limits.max_line_bytes:
            raise ValueError("longer than")
        cells = (next(csv.reader(io.StringIO(row[0], newline="")), []) or [""]) if row else []
        lines = [len(LINE_END.findall(cell)) for cell in cells]
        is_row = len(cells) == len(kept[0][0]) if kept else bool(cells)
        if row and row.end() > first.end():
            num_bytes = len(row[0]) - len(re.search(r"(?:\r\n|\n|\r|)\Z", row[0])[0])
            is_row &= max(lines) < limits.max_field_lines and num_bytes <= limits.max_line_bytes
            commas = {line.count(",") for line in LINE_END.split(row[0].removesuffix("\n").removesuffix("\r"))}
            is_row &= not (commas == {len(cells) - 1} and (len(cells) - 1) * (1 + sum(lines)) >= 12)
            is_row &= bool(kept) or not (len(commas) == 1 and max(commas) and sum(lines) > 1)
        if is_row:
            kept.append((cells, 1 + sum(lines)))
            at, line = row.end(), line + 1 + sum(lines)
        elif kept:
            lines_rejected.append(line)
            at, line = first.end(), line + 1
        else:
            raise ValueError("the header")
    return kept, lines_rejected


def test_tsv_has_no_quotes_and_says_what_is_wrong(tmp_path):
    (tmp_path / "t.tsv").write_bytes(b'\xef\xbb\xbfkey\tbody\n1\t"a\n\n2\tb"\r\n3\n4\tx\ty\n5\tcaf\xe9\n')
    read = read_all([tmp_path / "t.tsv"], Settings("body", "key", part_rows=4))
    assert list(zip(column(read, 0), texts(read), strict=True)) == [("1", '"a'), ("2", 'b"'), ("5", "caf\ufffd")]
    assert rejected(read) == [
        (1, "empty line"),
        (3, "1 cells, the header has 2"),
        (4, "3 cells, the header has 2"),
    ]
    assert sum(some.num_replaced for some in read) == 1


def test_a_csv_file_of_one_column_may_have_empty_texts(tmp_path):
    (tmp_path / "t.csv").write_text("body\na\n\n\nb\n")
    assert texts(read_all([tmp_path / "t.csv"], Settings("body"))) == ["a", "", "", "b"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@EXAMPLES
@given(
    values=st.lists(JSON | st.fixed_dictionaries({"body": st.text() | JSON, "key": JSON}), max_size=25),
    packed=st.sampled_from(list(PACKED)),
    part_rows=st.integers(1, 20),
    block=st.integers(1, 60),
)
def test_json_lines(values, packed, part_rows, block, tmp_path):
    path = tmp_path / f"t.jsonl{packed}"
    lines = [json.dumps({"body": "first", "key": 0}), *map(json.dumps, values)]
    path.write_bytes(PACKED[packed](("\n".join(lines) + "\n").encode()))
    read = read_all([path], Settings("body", keep=("key",), part_rows=part_rows), block_bytes=block)
    good = [
        (row, value)
        for row, value in enumerate([{"body": "first", "key": 0}, *values])
        if isinstance(value, dict) and "body" in value and isinstance(value["body"], str | None)
    ]
    assert numbered(read) == [(row, value["body"]) for row, value in good]
    for carried, (_, value) in zip(column(read, 1), good, strict=True):
        assert carried == value.get("key") or json.loads(carried) == value["key"]
    assert {row for row, _ in rejected(read)} == set(range(len(lines))) - {row for row, _ in good}


def test_json_lines_that_cannot_be_read_say_why(tmp_path):
    deep = "[" * 100_000
    lines = ['{"body": "a"}', "", '{"body": "b"', "[1]", '{"text": "c"}', '{"body": 3}', deep, '{"body": null}']
    (tmp_path / "t.jsonl").write_bytes("\r\n".join([*lines, r'{"body": "\ud800 d"}', ""]).encode())
    read = read_all([tmp_path / "t.jsonl"], Settings("body", id_kind="file-row", part_rows=3))
    assert list(zip(column(read, 0), texts(read), strict=True)) == [
        ("t.jsonl:0", "a"),
        ("t.jsonl:7", None),
        ("t.jsonl:8", "\ufffd d"),
    ]
    assert rejected(read) == [
        (1, "empty line"),
        (2, "no JSON"),
        (3, "no JSON object"),
        (4, "no 'body'"),
        (5, "'body' is no string"),
        (6, "no JSON"),
    ]


def parquet_of(values):
    """A Parquet file whose strings were never checked to be UTF-8, as other writers may leave them."""
    octets = pa.array(values, pa.binary())
    strings = pa.Array.from_buffers(pa.string(), len(values), octets.buffers())
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"body": strings}), out)
    return out.getvalue().to_pybytes()


def test_rows_of_every_depth_are_kept_or_rejected(tmp_path):
    """Python's json reads one level more than it writes."""
    rows = [f'{{"body": "a", "k": {"[" * depth}{"]" * depth}}}\n' for depth in range(1, 1010)]
    (tmp_path / "t.jsonl").write_text("".join(rows))
    read = read_all([tmp_path / "t.jsonl"], Settings("body", keep=("k",)))
    assert {reason for _, reason in rejected(read)} == {"no JSON"}
    assert 500 < len(texts(read)) < len(rows)


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
    ({10: '10,"the cat,x', 900: '900,the dog",x'}, [10, 900]),
    ({10: '10,"the cat,x', 600: '600,"dog",x'}, [10]),
    ({10: '10,the "cat",x', 11: '11,"a"b,x', 12: '12,"a\nb"c,"x"'}, [10, 11, 12, 13]),
    ({10: '10,"the cat', 400: '400,dog"'}, [10, 400]),  # two cells together, the header has three
    ({999: '999,the cat,"x'}, [999]),
    ({10: '10,"the cat,x', 500: '500,the dog",x'}, [10, 500]),  # three cells together, and right quotes
    ({10: '10,"the cat,x', 15: '15,the dog",x'}, [10, 15]),
]


@pytest.mark.parametrize("packed", list(PACKED))
@pytest.mark.parametrize(("end", "mark"), [("\n", ""), ("\r\n", "\ufeff"), ("\r", "\ufeff")])
def test_a_stray_quote_costs_its_line_and_no_other_row(packed, end, mark, tmp_path):
    for stray, bad_rows in STRAY:
        lines = [stray.get(row, f"{row},the cat {row},x") for row in range(1000)]
        lines[700] = '700,"legal, ""too""\nreally",x'
        data = (mark + "\n".join(['"id",text,label', *lines, ""])).replace("\n", end).encode()
        path = tmp_path / f"t.csv{packed}"
        path.write_bytes(PACKED[packed](data))
        small, large = (read_all([path], Settings("text", "id", part_rows=rows)) for rows in (150, 100_000))
        assert rejected(small) == rejected(large)
        assert [row for row, _ in rejected(small)] == bad_rows
        assert sorted(numbered(small)) == sorted(numbered(large))
        assert f'legal, "too"{end}really' in texts(small)
        assert {*column(small, 0)} >= {str(row) for row in range(1000)} - {str(row) for row in stray}
        num_rows, num_rejected = len(column(small, 0)), len(rejected(small))
        num_breaks = sum(int((some.lines[:, 1] - 1).sum()) for some in small)
        assert 1 + num_rows + num_rejected + num_breaks == len(data.decode().split(end)) - 1
        first_line, num_lines = max((pair for some in large for pair in some.lines), key=lambda pair: pair[1])
        assert (num_lines, first_line) == (2, 702 + (12 in stray))


def test_an_open_quote_ends_with_its_lines_its_bytes_or_the_file(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{row},the cat" for row in range(40)]
    lines[5] = '5,"open'
    lines[30] = '30,"closed\nhere"'
    for more, limits in (
        ("", TableLimits(max_field_lines=3)),
        ("", TableLimits(max_line_bytes=50)),
        ("", DEFAULT_TABLE_LIMITS),
        ('40,"and', DEFAULT_TABLE_LIMITS),
    ):
        path.write_text("\n".join(["id,text", *lines, more]))
        blocks = read_all([path], Settings("text", "id"), limits)
        assert [one.line for some in blocks for one in some.rejected] == ([7, 43] if more else [7])
        assert column(blocks, 0) == [str(row) for row in range(40) if row != 5]
    identity = [
        make_plan(list_inputs([path], limits), Settings("text")).to_json()["inputs"][0]
        for limits in (TableLimits(max_field_lines=3), DEFAULT_TABLE_LIMITS)
    ]
    assert identity[0] == {**identity[1], "max_field_lines": 3}


@pytest.mark.parametrize("header", ['id,"text', 'id,"text\n0,a\n0,b"', 'id,te"xt"', 'id,"te"xt', "", "\ufeff"])
def test_a_header_whose_quotes_are_wrong_is_an_error(header, tmp_path):
    (tmp_path / "t.csv").write_text(f"{header}\n1,a\n2,b\n")
    with pytest.raises(ValueError, match=r"t\.csv(, line 1, .*quote|: .*line is empty)"):
        list_inputs([tmp_path / "t.csv"])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
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
        for rows in read_part(plan.inputs[0], part, plan.settings):
            most = max(most, pa.total_allocated_bytes() - before)
            assert rows.carried[1].type == kind
            of_rows = rows.carried[0], rows.texts, *rows.carried[1:]
            read += zip(*map(pa.Array.to_pylist, of_rows), strict=True)
    assert read == [(row, value, value, value) for row, value in enumerate(some)]
    assert most < written_out // 8, (most, written_out)
