"""What the readers of pair files promise: every line or row of any bytes is a pair or refused by reason, and spans hold
the whole. Seeded cases: few here, and thousands in ``make fuzz``.
"""

import bz2
import csv
import gzip
import io
import json
import random
from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.io.inflate import cut_at_lines
from paraembed.io.limits import ReadLimits
from paraembed.io.lines import Lines
from paraembed.pairs.filters import read_vocabulary
from paraembed.pairs.formats import Reading, read_pairs
from paraembed.pairs.parse import keep_pairs
from paraembed.pairs.ppdb import parse_ppdb
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.training_sets import row_rules
from tests.fuzz import CASES, mutated, run
from tests.pairs.damaged import damaged_lines

MARKS = ["—", "'", "(", "😀", "\u2028", "\x85"]
WORDS = ["cat", "feline", "the", "don't", "naïve", "a" * 70, "[NP,1]", "0.5", "NA", "x y", *MARKS]
NUMBERS = ["1", "-0.25", "1e3", "1e999", "nan", "", "x", "0x1", "٣", "1,5"]
TOKENS = (
    *(b" ||| ", b"|||", b"\t", b"\n", b"\r\n", b"\r", b",", b'"', b'""', b"\xff", b"\xef\xbb\xbf", b"\xc3", b" ", b"="),
    *(b"{", b"}", b"[", b":", b"\\u0000", b"id", b"first", b"second"),
)
RULES = row_rules(ShardSettings())


FEW_AND_MANY = [100, pytest.param(CASES, marks=[pytest.mark.fuzz, pytest.mark.timeout(1200)])]


@pytest.fixture(params=FEW_AND_MANY)
def cases(request):
    """How many cases; the scanner is compiled before any time limit."""
    parse_ppdb(Lines.of(ppdb(random.Random(1))), ("AGigaSim",))
    return request.param


def text(draw):
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))


def rows_of(source, reading, span=None):
    """Rows as raw bytes, reason, both texts and the score; what every block promises is asserted."""
    rows, end = [], None
    for block in read_pairs(source, reading, span):
        assert end in {None, block.first_row}
        end = block.first_row + len(block)
        pairs = block.pairs
        columns = (pairs.refused, pairs.first, pairs.second, pairs.score)
        for column in (*columns, pairs.relation, pairs.first_tree, pairs.second_tree, *pairs.extra.values()):
            assert len(column) == len(block)
            column.validate(full=True)
        rows += zip(map(block.raw, range(len(block))), *(c.to_pylist() for c in columns), strict=True)
        _keep(block)
    return rows


def _keep(block):
    """Every row of a block is kept or refused by what comes after the readers, too."""
    table, refused = keep_pairs(block, "x", "space", (), RULES)
    assert table.num_rows + len(refused.drop_null()) == len(block)


def num_lines(data):
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.count(b"\n") + (not data.endswith(b"\n"))


def ppdb(draw):
    made = _ppdb(draw.choice(("1.0", "2.0")), draw.randrange(9))
    return b"".join(draw.choices(made, k=draw.randint(1, 4)))


@cache
def _ppdb(version, seed):
    text = damaged_lines(version, 20, seed, 0.1)
    return [line.encode("utf-8", "surrogateescape") + b"\n" for line in text.split("\n") if line]


def tsv(draw):
    header = draw.choice(("", "", "first\tsecond\n", "score\tsentence1\tsentence2\n", "id\tbody\n", "text_a\ttext_b\n"))
    score = header.startswith("score")
    rows = [
        "\t".join([draw.choice(NUMBERS)] * score + [text(draw), text(draw)]) + draw.choice(("\n", "\n", "\r\n"))
        for _ in range(draw.randint(1, 6))
    ]
    return (draw.choice(("", "\ufeff")) + header + "".join(rows)).encode()


def comma(draw):
    file = io.StringIO()
    writer = csv.writer(
        file, quoting=draw.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL)), lineterminator=draw.choice(("\n", "\r\n"))
    )
    writer.writerows([draw.choice((["source", "target"], ["tgt", "src"], [text(draw), text(draw)]))])
    cells = [*WORDS, 'say "so"', "a,b", "two\nlines", ""]
    writer.writerows([[draw.choice(cells), text(draw)] for _ in range(draw.randint(1, 6))])
    return file.getvalue().encode()


def jsonl(draw):
    values = [text(draw), 1, 0.5, None, True, [], {"a": {}}, "\ud800", "", 10**400]
    rows = []
    for _ in range(draw.randint(1, 6)):
        row = {
            "first": draw.choice(values),
            "second": text(draw),
            draw.choice(("score", "label", "x", "first")): draw.choice(values),
        }
        rows.append(json.dumps(row) if draw.random() < 0.9 else "[" * draw.choice((1, 3000)))
    return "\n".join(rows).encode()


def word_list(draw):
    return "".join(
        f"{text(draw)}{draw.choice((' ', '  ', chr(9), chr(0x3000)))}{text(draw)}\n" for _ in range(draw.randint(1, 5))
    ).encode()


FORMS = {"ppdb": ppdb, "tsv": tsv, "csv": comma, "jsonl": jsonl, "words": word_list}


def packed(draw, data):
    return draw.choice((bytes, bytes, bytes, gzip.compress, bz2.compress))(data)


def _check_counts(data, rows, reading, form):
    """A row is a line, the header excepted."""
    if form in {"ppdb", "jsonl"} and reading.form == form:
        assert len(rows) == num_lines(data)
    if form == "tsv" and reading.form == form:
        assert num_lines(data) - len(rows) in ({0} if reading.no_header else {0, 1})


def _check_values(data, rows, form, *, swapped):
    if form == "csv":
        cells = [*csv.reader(io.StringIO(data.decode(), newline=""))]
        swapped = swapped or (len(cells) > len(rows) and cells[0] == ["tgt", "src"])
        for row, (_, reason, *pair, _) in zip(cells[len(cells) - len(rows) :], rows, strict=True):
            assert reason or [*pair] == (row[::-1] if swapped else row)
    if form == "jsonl":
        for raw, reason, first, _, _ in rows:
            value = "" if reason else json.loads(raw)["first"]
            assert reason or first == (value if isinstance(value, str) else repr(value))


DIALECTS = {}, {"csv_escape": "\\"}, {"csv_delimiter": ";"}, {"csv_skip_blanks": True}, {"encoding": "utf-16"}


@pytest.mark.parametrize("form", FORMS)
def test_text_formats(tmp_path, form, cases):
    path = tmp_path / "pairs"

    def case(draw):
        whole = FORMS[form](draw)
        is_changed = draw.random() < 0.8
        data = mutated(whole, draw, TOKENS) if is_changed else whole
        path.write_bytes(packed(draw, data))
        features = ("PPDB2.0Score", "AGigaSim") if form == "ppdb" else ()
        columns = draw.choice(((), (), ("second", "first"))) if form in {"tsv", "csv"} else ()
        own = form if form in {"words", "jsonl"} else draw.choice(("auto", form))
        dialect = draw.choice(DIALECTS) if form == "csv" and is_changed else {}
        reading = Reading(
            draw.choice((*FORMS, *[own] * 45)),  # another one at times
            columns,
            features,
            alignment=draw.random() < 0.5,
            no_header=draw.random() < 0.5,
            limits=ReadLimits(max_line_bytes=draw.choice((60, 1 << 20)), **dialect),
            block_bytes=draw.choice((33, 200, 8 << 20, 8 << 20)),
        )
        try:
            rows = rows_of(path, reading)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            raise
        _check_counts(data, rows, reading, form)
        if form in {"ppdb", "tsv"} and reading.form == form and path.read_bytes() == data:
            spans = cut_at_lines(path, draw.randint(60, 4000))
            of_spans = [row for span in spans for row in rows_of(path, reading, span)]
            for one, other in zip(of_spans, rows, strict=True):
                assert one[1] == other[1]
                assert one[1] or one == other
        if not is_changed and reading.form == own and reading.limits.max_line_bytes > 60:
            _check_values(data, rows, form, swapped=bool(columns))
        return "pairs" if any(row[1] is None for row in rows) else "no pairs"

    ends = run(case, cases)
    assert min(ends["pairs"], ends["refused"]) > 0, ends


def test_aligned(tmp_path, cases):
    places = tmp_path / "one", tmp_path / "other"

    def case(draw):
        size = draw.randint(1, 5)
        for place in places:
            data = "".join(f"{text(draw)}\t{text(draw)}\n" for _ in range(size)).encode()
            data = mutated(data, draw, TOKENS) if draw.random() < 0.3 else data
            place.write_bytes(packed(draw, data))
        rows = rows_of(places, Reading("aligned", block_bytes=draw.choice((33, 200, 8 << 20, 8 << 20))))
        return "read" if len(rows) == size else "changed"

    ends = run(case, cases)
    assert min(ends["read"], ends["refused"]) > 0, ends


def test_vocabularies(tmp_path, cases):
    path = tmp_path / "words"

    def case(draw):
        words = [draw.choice([word for word in WORDS if " " not in word]) for _ in range(draw.randint(1, 30))]
        header = draw.choice((b"", b"", b"30 2\n"))
        whole = "".join(f"{word} {draw.random():.3f} 1\n" for word in words).encode()
        changed = draw.random() < 0.5
        path.write_bytes(packed(draw, mutated(header + whole, draw, TOKENS) if changed else header + whole))
        most = draw.choice((None, 1, 5))
        found = read_vocabulary(path, most, block_bytes=draw.choice((33, 200, 8 << 20, 8 << 20))).to_pylist()
        assert len({*found}) == len(found)
        assert most is None or len(found) <= most
        if not changed:
            assert found == [*dict.fromkeys(word.lower() for word in words)][:most]
        return "changed" if changed else "read"

    ends = run(case, cases)
    assert ends["read"] > 0, Counter(ends)


def test_parquet(tmp_path, cases):
    path = tmp_path / "pairs"

    def column(draw, size):
        values = [draw.choice((text(draw).encode(), None, b"\xff", b"")) for _ in range(size)]
        array = pa.array(values, draw.choice((pa.binary(), pa.large_binary())))
        if draw.random() < 0.6:  # strings that need not be UTF-8
            array = pa.Array.from_buffers(pa.string(), size, array.cast(pa.binary()).buffers())
        return pa.array([*range(size)]) if draw.random() < 0.1 else array

    def case(draw):
        size = draw.randint(0, 6)
        names = draw.choice((["source", "target"], ["first", "second", "score"], ["x", "y"]))
        arrays = [column(draw, size) for _ in names[:2]] + [pa.array(np.arange(size) / 2)] * (len(names) - 2)
        options = {"row_group_size": draw.randint(1, 9), "use_dictionary": draw.random() < 0.5}
        pq.write_table(pa.Table.from_arrays(arrays, names=names), path, **options)
        if changed := draw.random() < 0.5:
            path.write_bytes(mutated(path.read_bytes(), draw, (b"PAR1", b"PARE", b"\0", b"\xff")))
        rows = rows_of(path, Reading(draw.choice(("auto", "parquet")), ("first", "second") if names[0] == "x" else ()))
        if not changed:
            assert len(rows) == size
            for number, (_, reason, first, second, _) in enumerate(rows):
                for array, found in zip(arrays, (first, second), strict=False):
                    if reason is None and not pa.types.is_integer(array.type):
                        assert array.cast(pa.binary(), safe=False)[number].as_py() == found.encode()
        return "changed" if changed else "read"

    ends = run(case, cases)
    assert min(ends["read"], ends["refused"]) > 0, ends
