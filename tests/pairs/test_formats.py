"""Formats of pair files beyond PPDB: rows, headers, compression, addresses, and which labels are kept."""

import gzip
import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.io.fingerprint import sha256_of
from paraembed.io.limits import ReadLimits
from paraembed.io.places import name_of, size_of
from paraembed.pairs import parse
from paraembed.pairs.columns import looks_like_header
from paraembed.pairs.formats import Reading, read_pairs, sources_of
from paraembed.pairs.parse import parse_source, reading_of
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.source_parts import read_heads
from tests.embedding.test_rows import PACKED


def rows_of(source, more=(), **options):
    """Reason, both texts, and the columns ``more`` of each row."""
    rows, end = [], None
    for block in read_pairs(source, Reading(**options)):
        assert end in {None, block.first_row}
        end = block.first_row + len(block)
        columns = (getattr(block.pairs, name) for name in ("refused", "first", "second", *more))
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return rows


COLUMNS = ("score", "relation", "first_tree", "second_tree")
FILES = [json.loads(line) for line in Path(__file__).with_name("files.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", FILES, ids=lambda case: case["case"])
def test_files_of_pairs(tmp_path, case):
    """Every case has the first columns of each row, or what the message must contain."""
    path, text, options = tmp_path / case["file"], case["text"], case.get("options", {})
    if isinstance(text, str):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    else:
        pq.write_table(pa.Table.from_arrays([pa.array(values) for _, values in text], [name for name, _ in text]), path)
    if "says" in case:
        with pytest.raises(ValueError, match=re.escape(case["says"][0])) as caught:
            rows_of(path, **options)
        assert all(part in str(caught.value) for part in case["says"])
    else:
        found = rows_of(path, COLUMNS, **options)
        assert [list(row[: len(case["rows"][0])]) for row in found] == case["rows"]


def test_the_dialect_of_csv_is_suggested_and_refused_for_other_files(tmp_path):
    for row in ("a dog;the dog", 'a dog, "small";the dog'):  # with commas, its quotes are wrong
        (tmp_path / "semicolon.csv").write_text(f"source;target\na cat;the cat\n{row}\n")
        with pytest.raises(ValueError, match="give `csv_delimiter` ';'"):
            rows_of(tmp_path / "semicolon.csv")
    (tmp_path / "excel.csv").write_text("sep=;\nsource;target\na cat;the cat\n\nx\n")
    assert [row[0] for row in rows_of(tmp_path / "excel.csv")] == [None, "empty line", "too few fields"]
    (tmp_path / "pairs.tsv").write_bytes("a caf\u00e9\tthe caf\u00e9\n".encode("latin-1"))
    assert rows_of(tmp_path / "pairs.tsv", limits=ReadLimits(encoding="latin-1"))[0][1] == "a caf\u00e9"
    with pytest.raises(ValueError, match="is tsv, for which `csv_escape`"):
        rows_of(tmp_path / "pairs.tsv", limits=ReadLimits(csv_escape="/", encoding="latin-1"))
    with pytest.raises(ValueError, match="give their `encoding`"):
        rows_of(tmp_path / "pairs.tsv")
    pq.write_table(pa.table({"source": ["a"], "target": ["b"]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match="is parquet, for which `encoding`"):
        rows_of(tmp_path / "p.parquet", limits=ReadLimits(encoding="latin-1"))


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


TEXT = b"".join(b"one %d\tuno %d\n" % (number, number) for number in range(5000))


@pytest.mark.parametrize("zip_", [PACKED[""], PACKED[".gz"], PACKED[".zip"]])
def test_compression_by_the_first_bytes_and_addresses(tmp_path, server, zip_):
    path, uri = tmp_path / "no-suffix", server.uri("no-suffix")
    server.objects["no-suffix"] = zip_(TEXT)
    path.write_bytes(zip_(TEXT))
    rows = rows_of(path)
    assert len(rows) == 5000
    assert rows[-1] == (None, "one 4999", "uno 4999")
    assert rows_of(path.as_uri()) == rows_of(uri) == rows
    assert (name_of(uri), size_of(uri), sha256_of(uri)) == ("no-suffix", path.stat().st_size, sha256_of(path))
    if zip_ is not bytes:
        path.write_bytes(zip_(TEXT)[:-9])
        with pytest.raises(ValueError, match="no-suffix is not a complete"):
            rows_of(path)


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


TRAIN = Path(__file__).parents[3] / "shared" / "data" / "train"
FIRST_ROWS = [json.loads(line) for line in Path(__file__).with_name("first_rows.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("is_header", "first", "rows"), FIRST_ROWS, ids=range(len(FIRST_ROWS)))
def test_first_rows_that_are_headers_and_those_that_are_pairs(is_header, first, rows):
    assert looks_like_header(first, rows) == is_header


@pytest.mark.slow
@pytest.mark.skipif(not TRAIN.is_dir(), reason="no real pair data here")
def test_rows_of_pair_files_are_pairs():
    draw = random.Random(1)
    refused = tried = 0
    for path in sorted(TRAIN.glob("*/*.gz")):
        separator = "\t" if ".tsv" in path.name else " "
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            rows = [line.split(separator)[:2] for line, _ in zip(file, range(5_000), strict=False)]
        rows = [row for row in rows if len(row) == 2]
        if len(rows) < 100 or ("wikisplit" in path.name and separator == " "):
            continue
        assert not looks_like_header(rows[0], rows[1:101]), path
        for _ in range(50):
            tried += 1
            refused += looks_like_header(draw.choice(rows), draw.sample(rows, 100))
    assert tried > 1000
    assert refused <= tried // 1000


CASES = [json.loads(line) for line in Path(__file__).with_name("labels.jsonl").read_text().splitlines()]


def report_of(path, **options):
    settings = ShardSettings(**{name: tuple(v) if isinstance(v, list) else v for name, v in options.items()})
    (head,) = read_heads([path], reading_of(settings))
    out = path.with_name("parsed.parquet")
    return parse_source(path, "p", settings, out, is_labeled=head.is_labeled, block_bytes=200)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_rows_of_other_labels_are_rejected_and_counted(tmp_path, case):
    (tmp_path / case["file"]).write_text(case["text"], encoding="utf-8")
    report = report_of(tmp_path / case["file"], **case.get("options", {}))
    assert (report.labels, report.refused) == (case["kept"], case["rejected"])
    assert report.parsed + sum(report.refused.values()) == report.read
    relations = pq.read_table(tmp_path / "parsed.parquet")["relation"].to_pylist()
    assert not report.labels or {relation for relation in relations if relation} == {*report.labels}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("premise\thypothesis\tlabel\na\tb\t0\nc\td\t2\ne\tf\t1\n", "'label' has the labels 0, 1, 2;"),
        ("id\tsentence1\tsentence2\tlabel\n1\ta\tb\t1\n2\tc\td\t3.8\n", "'label' has the labels 1, 3.8;"),
        ("[X] ||| a ||| b ||| PPDB2.0Score=1 ||| 0-0 ||| Equivalent\n", "entailment has the labels Equivalent;"),
    ],
)
def test_an_unknown_label_is_an_error(tmp_path, text, message):
    (tmp_path / "p.tsv").write_text(text)
    with pytest.raises(ValueError, match=f"{message} .*`keep_labels`"):
        report_of(tmp_path / "p.tsv")
