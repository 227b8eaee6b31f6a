import csv
import gzip
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.pairs.formats import Reading, read_pairs

CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


def rows_of(path, **options):
    rows = []
    at = None
    for block in read_pairs(path, Reading(**options)):
        assert at is None or block.first_row == at
        at = block.first_row + len(block.raw)
        pairs = block.pairs
        rows += zip(
            pairs.refused.to_pylist(),
            pairs.first.to_pylist(),
            pairs.second.to_pylist(),
            pairs.score.to_pylist(),
            pairs.relation.to_pylist(),
            strict=True,
        )
    return rows


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_two_columns_without_a_header(tmp_path):
    path = write(tmp_path / "p.tsv", "a b\tc\r\n\nx\nd\te\tf\ng\th\n")
    assert rows_of(path) == [
        (None, "a b", "c", None, None),
        ("empty line", "", "", None, None),
        ("too few fields", "x", "", None, None),
        ("too many fields", "d", "e", None, None),
        (None, "g", "h", None, None),
    ]


def test_a_header_names_the_columns(tmp_path):
    path = write(tmp_path / "p.tsv", "\ufeffscore\tsentence1\tsentence2\n4.5\ta\tb\nhigh\tc\td\n\te\tf\n")
    assert rows_of(path) == [
        (None, "a", "b", 4.5, None),
        ("score is no number", "c", "d", None, None),
        (None, "e", "f", None, None),
    ]


def test_columns_by_flag(tmp_path):
    path = write(tmp_path / "p.tsv", "a\tb\t1\tz\n")
    assert rows_of(path, columns=("second", "first", "relation", "ignore")) == [(None, "b", "a", None, "1")]
    with pytest.raises(ValueError, match="4 columns and no header; name them with `columns`"):
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
    with pytest.raises(ValueError, match="set the roles first and second with `columns`"):
        rows_of(path)
    with pytest.raises(ValueError, match="must contain first and second once each, and no tree twice"):
        rows_of(path, columns=("first", "second", "first_tree", "first_tree"))
    assert len(rows_of(path, columns=("first", "second", "first_tree", "ignore"))) == 1


def test_a_header_that_does_not_say_the_pair_is_refused(tmp_path):
    with pytest.raises(ValueError, match="set the roles first and second with `columns`"):
        rows_of(write(tmp_path / "p.csv", "source,target,text1\na,b,c\n"))


def test_unknown_format_says_what_came(tmp_path):
    with pytest.raises(ValueError, match=r"begins with 'just text', which is neither a PPDB line nor columns"):
        rows_of(write(tmp_path / "p.txt", "just text\n"))


def test_invalid_utf8_is_refused_row_by_row(tmp_path):
    for name, comma in (("p.tsv", b"\t"), ("p.csv", b",")):
        path = write(tmp_path / name, b"a%sb\n\xff\xfe%sd\ne%sf\n" % (comma, comma, comma))
        assert [row[0] for row in rows_of(path)] == [None, "invalid UTF-8", None]


@settings(deadline=None)
@given(st.lists(st.tuples(CELL, CELL), min_size=1))
def test_csv_reads_back_what_was_quoted(tmp_path_factory, rows):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("source", "target"), *rows])
    path = tmp_path_factory.mktemp("csv") / "p.csv.gz"
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    broken = ["line break in a field" if re.search("[\\r\\n]", "".join(row)) else None for row in rows]
    assert [(refused, (first, second)) for refused, first, second, _, _ in rows_of(path)] == list(
        zip(broken, rows, strict=True)
    )


def test_lines_between_stray_quotes_of_csv_are_no_pair(tmp_path):
    found = rows_of(write(tmp_path / "p.csv", 'a,b\nc,"d\ne,f\ng",h\ni,j\n'))
    assert [row[0] for row in found] == [None, "line break in a field", None]
