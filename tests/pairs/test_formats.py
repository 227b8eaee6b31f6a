"""Formats of pair files beyond PPDB; compression; addresses; anything else."""

import bz2
import csv
import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.io.limits import ReadLimits
from paraembed.pairs import parse
from paraembed.pairs.formats import Reading, read_pairs, sources_of
from paraembed.pairs.settings import ShardSettings

CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


def rows_of(source, more=(), **options):
    """Reason, both texts, and the columns ``more`` of each row."""
    rows, end = [], None
    for block in read_pairs(source, Reading(**options)):
        assert end in {None, block.first_row}
        end = block.first_row + len(block)
        columns = (getattr(block.pairs, name) for name in ("refused", "first", "second", *more))
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return rows


SCORED = ("score", "relation")


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_two_columns_without_a_header(tmp_path):
    path = write(tmp_path / "p.tsv", "a b\tc\r\n\nx\nd\te\tf\ng\th\n")
    assert rows_of(path, SCORED) == [
        (None, "a b", "c", None, None),
        ("empty line", "", "", None, None),
        ("too few fields", "x", "", None, None),
        ("too many fields", "d", "e", None, None),
        (None, "g", "h", None, None),
    ]


def test_a_header_names_the_columns(tmp_path):
    path = write(tmp_path / "p.tsv", "\ufeffscore\tsentence1\tsentence2\n4.5\ta\tb\nhigh\tc\td\n\te\tf\n")
    assert rows_of(path, SCORED) == [
        (None, "a", "b", 4.5, None),
        ("score is no number", "c", "d", None, None),
        (None, "e", "f", None, None),
    ]


def test_columns_by_flag(tmp_path):
    path = write(tmp_path / "p.tsv", "a\tb\t1\tz\n")
    assert rows_of(path, SCORED, columns=("second", "first", "relation", "ignore")) == [(None, "b", "a", None, "1")]
    with pytest.raises(ValueError, match=r"4 columns and no header; .*`columns`"):
        rows_of(path)
    with pytest.raises(ValueError, match="must contain first and second once each"):
        rows_of(path, columns=("first", "first", "second"))


@pytest.mark.parametrize("names", ["tree1 tree2", "first_tree second_tree", "Parse1 PARSE2"])
@pytest.mark.parametrize("comma", ["\t", ","])
def test_columns_of_trees(tmp_path, names, comma):
    rows = [["source", "target", *names.split()], ["a b", "c", "(a b)", " "], ["d", "e", "", " (X e) "]]
    path = write(tmp_path / ("p.tsv" if comma == "\t" else "p.csv"), "".join(comma.join(row) + "\n" for row in rows))
    flagged = write(tmp_path / f"q{path.suffix}", "".join(comma.join(row) + "\n" for row in rows[1:]))
    columns = ("first", "second", "first_tree", "second_tree")
    for pairs in (next(read_pairs(path)).pairs, next(read_pairs(flagged, Reading(columns=columns))).pairs):
        assert pairs.first_tree.to_pylist() == ["(a b)", None]
        assert pairs.second_tree.to_pylist() == [None, "(X e)"]
        assert pairs.refused.null_count == 2


def test_a_tree_column_stands_once(tmp_path):
    path = write(tmp_path / "p.tsv", "source\ttarget\ttree1\tparse1\na\tb\ta\ta\n")
    with pytest.raises(ValueError, match="roles first and second with `columns`"):
        rows_of(path)
    with pytest.raises(ValueError, match=r"first and second once each.* tree twice"):
        rows_of(path, columns=("first", "second", "first_tree", "first_tree"))
    assert len(rows_of(path, columns=("first", "second", "first_tree", "ignore"))) == 1


def test_a_header_that_does_not_say_the_pair_is_refused(tmp_path):
    with pytest.raises(ValueError, match="roles first and second with `columns`"):
        rows_of(write(tmp_path / "p.csv", "source,target,text1\na,b,c\n"))


def test_unknown_format_says_what_came(tmp_path):
    with pytest.raises(ValueError, match="begins with 'just text'"):
        rows_of(write(tmp_path / "p.txt", "just text\n"))


def test_invalid_utf8_is_refused_row_by_row(tmp_path):
    for name, comma in (("p.tsv", b"\t"), ("p.csv", b",")):
        path = write(tmp_path / name, b"a%sb\n\xff\xfe%sd\ne%sf\n" % (comma, comma, comma))
        assert [row[0] for row in rows_of(path)] == [None, "invalid UTF-8", None]


@given(st.lists(st.tuples(CELL, CELL), min_size=1))
def test_csv_reads_back_what_was_quoted(tmp_path_factory, rows):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("source", "target"), *rows])
    path = tmp_path_factory.mktemp("csv") / "p.csv.gz"
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    broken = ["line break in a field" if re.search("[\\r\\n]", "".join(row)) else None for row in rows]
    assert rows_of(path) == [(reason, *row) for reason, row in zip(broken, rows, strict=True)]


def test_lines_between_stray_quotes_of_csv_are_no_pair(tmp_path):
    found = rows_of(write(tmp_path / "p.csv", 'a,b\nc,"d\ne,f\ng",h\ni,j\n'))
    assert [row[0] for row in found] == [None, "line break in a field", None]


def test_a_word_list_makes_many_pairs_of_a_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"fawn crawl\nset  put\tlay place \n\nalone\n\xff x\nhero h\xc3\xa9ros\n")
    assert rows_of(path, form="words") == [
        (None, "fawn", "crawl"),
        (None, "set", "put"),
        (None, "set", "lay"),
        (None, "set", "place"),
        ("empty line", "", ""),
        ("too few fields", "alone", "alone"),
        ("invalid UTF-8", "", ""),
        (None, "hero", "héros"),
    ]
    report = parse.parse_source(path, "w", ShardSettings(format="words"), tmp_path / "w.parquet")
    assert [(one["line"], one["reason"]) for one in report.sample] == [
        (3, "empty line"), (4, "too few fields"), (5, "invalid UTF-8"),
    ]  # fmt: skip
    assert pq.read_table(tmp_path / "w.parquet")["rank"].to_pylist() == [0, 1, 2, 3, 7]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_aligned_files(tmp_path, block):
    one, other = tmp_path / "normal.aligned", tmp_path / "simple.aligned.gz"
    one.write_bytes(b"Cat\t0\tThe cat sat .\nDog\t3\tA dog\n\nx\xff\nlast")
    other.write_bytes(gzip.compress(b"Cat\t0\tA cat .\nDog\t1\tThe dog runs\n\ny\nend\n"))
    assert rows_of((one, other), block_bytes=block) == [
        (None, "The cat sat .", "A cat ."),
        (None, "A dog", "The dog runs"),
        ("empty line", "", ""),
        ("invalid UTF-8", "", "y"),
        (None, "last", "end"),
    ]
    one.write_bytes(b"a\nb\nc\n")
    with pytest.raises(ValueError, match=r"normal.aligned has 3 lines, .*simple.aligned.gz has more"):
        rows_of((one, other), block_bytes=block)
    with pytest.raises(ValueError, match=r"aligned needs an even number .*got 3"):
        sources_of([one, other, one], "aligned")


def test_parquet_and_jsonl_columns_by_name(tmp_path):
    table = pa.table({"id": [1, 2], "Sentence1": ["a", None], "sentence2": ["b", "c"], "similarity": [4.5, 1.0]})
    pq.write_table(table, tmp_path / "p")
    assert rows_of(tmp_path / "p") == [(None, "a", "b"), ("too few fields", "", "c")]
    assert next(read_pairs(tmp_path / "p")).pairs.score.to_pylist() == [4.5, 1.0]
    rows = [
        '{"source": "a", "target": "b", "score": 2}',
        "[1]",
        "{",
        '{"source": "a"}',
        '{"source": 1, "target": "\\ud800"}',
    ]
    (tmp_path / "p.jsonl").write_text("\n".join([*rows, '{"target": "d", "source": "c", "score": "x"}']))
    assert rows_of(tmp_path / "p.jsonl") == [
        (None, "a", "b"),
        ("no JSON object", "", ""),
        ("no JSON object", "", ""),
        ("too few fields", "a", ""),
        ("too few fields", "1", ""),
        ("score is no number", "c", "d"),
    ]
    pq.write_table(pa.table({"x": ["a"], "y": ["b"]}), tmp_path / "q")
    with pytest.raises(ValueError, match=r"has columns x, y; .*first, source"):
        rows_of(tmp_path / "q")
    (tmp_path / "r").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match="is not a complete Parquet file"):
        rows_of(tmp_path / "r")


def test_parquet_and_jsonl_columns_by_flag(tmp_path):
    table = pa.table({"key": [7, 8], "x": ["a", "b"], "how": [0.5, 1.0], "y": ["c", None], "list": [[1], [2]]})
    pq.write_table(table, tmp_path / "p")
    (tmp_path / "p.jsonl").write_text("".join(["{\n", *(json.dumps(row) + "\n" for row in table.to_pylist())]))
    columns = ("ignore", "second", "score", "first", "ignore")
    assert rows_of(tmp_path / "p", columns=columns) == [(None, "c", "a"), ("too few fields", "", "b")]
    assert next(read_pairs(tmp_path / "p", Reading(columns=columns))).pairs.score.to_pylist() == [0.5, 1.0]
    assert rows_of(tmp_path / "p.jsonl", columns=columns)[1:] == [(None, "c", "a"), ("too few fields", "", "b")]
    for name in ("p", "p.jsonl"):
        with pytest.raises(ValueError, match=r"5 columns: key, x, .*`columns` has 2"):
            rows_of(tmp_path / name, columns=("first", "second"))
        with pytest.raises(ValueError, match=r"columns (how, .*x, y|key, .*y, list)"):
            rows_of(tmp_path / name)
        with pytest.raises(ValueError, match="must contain first and second once each"):
            rows_of(tmp_path / name, columns=("first", "first"))
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 3, names=["x", "y", "x"]), tmp_path / "twice")
    with pytest.raises(ValueError, match="columns x, y, x; x occurs twice"):
        rows_of(tmp_path / "twice", columns=("first", "second", "ignore"))


def test_keys_of_jsonl_that_come_late(tmp_path):
    rows = [{"first": "a", "second": "b"}, {"text1": "c", "second": "d"}, {"first": "e", "second": "f", "score": 2}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path, blocks = tmp_path / "p.jsonl", Reading(block_bytes=30)
    assert rows_of(path, block_bytes=30) == [(None, "a", "b"), ("too few fields", "", "d"), (None, "e", "f")]
    assert [s for b in read_pairs(path, blocks) for s in b.pairs.score.to_pylist()] == [None, None, 2.0]


TEXT = b"".join(b"one %d\tuno %d\n" % (number, number) for number in range(5000))


def zst(data):
    return bytes(pa.compress(data, "zstd", asbytes=True))


@pytest.mark.parametrize("zip_", [bytes, gzip.compress, bz2.compress, zst], ids=["plain", "gz", "bz2", "zst"])
def test_compression_by_the_first_bytes_and_addresses(tmp_path, zip_):
    path = tmp_path / "no-suffix"
    path.write_bytes(zip_(TEXT))
    rows = rows_of(path)
    assert len(rows) == 5000
    assert rows[-1] == (None, "one 4999", "uno 4999")
    assert rows_of(path.as_uri()) == rows
    if zip_ is not bytes:
        path.write_bytes(zip_(TEXT)[:-9])
        with pytest.raises(ValueError, match="no-suffix is not a complete"):
            rows_of(path)


@pytest.mark.parametrize(("uri", "message"), [
    ("ftp://x/y", "is not a supported URI"), ("file:///none/x.tsv", "does not exist"),
])  # fmt: skip
def test_addresses_that_lead_nowhere(uri, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        rows_of(uri)


LINE = b"[NP] ||| a ||| b ||| x=1 ||| 0-0"
PIECES = [LINE, b" ||| ", b"\t", b"\n", b"\r\n", b",", b'"', b"a b", b"\xff", b"{}", b" "]
ANYTHING = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=40).map(b"".join)


@given(
    data=ANYTHING,
    form=st.sampled_from(["auto", "ppdb", "tsv", "words", "jsonl", "parquet", "csv"]),
    block=st.sampled_from([1, 3, 50, 1 << 20]),
)
def test_any_bytes_are_read_or_refused_and_counted(tmp_path_factory, data, form, block):
    folder = tmp_path_factory.mktemp("any")
    (folder / "input").write_bytes(data)
    try:
        what = folder / "input", "x", ShardSettings(format=form), folder / "out.parquet", 3
        report = parse.parse_source(*what, block_bytes=block)
    except ValueError as error:  # unusable as a whole
        assert str(folder / "input") in str(error)  # noqa: PT017
        return
    assert report.read == report.parsed + sum(report.refused.values())
    assert report.parsed == pq.read_metadata(folder / "out.parquet").num_rows
    if form in {"ppdb", "jsonl"}:
        text = data.removeprefix(b"\xef\xbb\xbf")
        assert report.read == text.count(b"\n") + (not text.endswith(b"\n"))


def test_a_long_line_is_one_row(tmp_path):
    long = b"[NP] ||| a ||| " + b"b " * (1 << 20)
    (tmp_path / "p").write_bytes(b"\n".join([LINE, long, long[: 1 << 19] + b" ||| y=1", b""]))
    options = {"limits": ReadLimits(max_line_bytes=1 << 20), "block_bytes": 1 << 16}
    report = parse.parse_source(tmp_path / "p", "p", ShardSettings(), tmp_path / "out.parquet", **options)
    assert (report.read, report.parsed, report.refused) == (3, 2, {"longer than --max-line-bytes": 1})
    assert json.dumps(report.sample).count("[NP]") == 1


def test_cells_of_parquet_that_are_no_utf8_are_refused_row_by_row(tmp_path):
    cells = pa.array([b"a", b"\xff\xfe", b"b", None], pa.binary())
    as_strings = pa.Array.from_buffers(pa.string(), 4, cells.buffers())
    for column in (cells, cells.cast(pa.large_binary()), as_strings):
        pq.write_table(pa.table({"source": column, "target": ["x", "y", "z", "w"]}), tmp_path / "p")
        assert rows_of(tmp_path / "p") == [
            (None, "a", "x"), ("invalid UTF-8", "", ""), (None, "b", "z"), ("too few fields", "", "w"),
        ]  # fmt: skip
    report = parse.parse_source(tmp_path / "p", "p", ShardSettings(), tmp_path / "out.parquet")
    assert report.refused == {"invalid UTF-8": 1, "too few fields": 1}
    assert [row["text"] for row in report.sample] == ["��\ty", "\tw"]


def test_unusable_files_are_named_in_a_short_line(tmp_path):
    (tmp_path / "p").write_bytes(b"PARE\0\0\0\0PARE")
    with pytest.raises(ValueError, match="p is an encrypted Parquet file"):
        rows_of(tmp_path / "p")
    names = [f"column{number}" for number in range(5000)]
    pq.write_table(pa.table({name: ["x"] for name in names}), tmp_path / "p")
    (tmp_path / "p.jsonl").write_text(json.dumps(dict.fromkeys(names, "x")))
    (tmp_path / "p.tsv").write_text("\t".join(["source", *["id"] * 5000]) + "\n")
    (tmp_path / "q.tsv").write_text("\t".join(names) + "\nx" + "\t1" * 4999)
    for name in ("p", "p.jsonl", "p.tsv", "q.tsv"):
        with pytest.raises(ValueError, match=r" and [45],99\d more") as raised:
            rows_of(tmp_path / name)
        assert len(str(raised.value)) < 800
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FileNotFoundError, match="loop does not exist"):
        rows_of(tmp_path / "loop")


def test_a_cell_of_csv_may_be_as_long_as_a_row(tmp_path):
    long = "x " * (1 << 20)
    (tmp_path / "p.csv").write_text(f"{long},b\n")
    assert rows_of(tmp_path / "p.csv") == [(None, long, "b")]
