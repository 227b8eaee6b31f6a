"""Names and texts from outside: what a spreadsheet, Markdown and a terminal get of them."""

import csv
import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.io.escape import csv_cell, file_stem, listed, markdown, markdown_row, printable


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-x", "@sum", "\t1", "\r=1", " =1", "\n=1", "\uff1d1", "-1+cmd|' /C calc'!A0"]
)
def test_a_spreadsheet_takes_no_cell_for_a_formula(text):
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("cell", ["-0.5", "+1e-5", "-.5", "-3", "a=b", "", "'=1", -0.5, 7, None, True, "\u22125"])
def test_numbers_and_other_cells_stay_as_they_are(cell):
    assert csv_cell(cell) is cell


@given(st.text())
def test_no_cell_begins_as_a_formula_and_every_text_comes_back(text):
    written = io.StringIO(newline="")
    csv.writer(written).writerow([csv_cell(text), "end"])
    (read, _), *others = csv.reader(io.StringIO(written.getvalue(), newline=""))
    assert not others
    assert read.removeprefix("'") == text.removeprefix("'")
    stripped = read.lstrip()
    assert stripped[:1] not in {*"=+-@"} or float(stripped) is not None


@given(st.text())
def test_markdown_has_no_tag_link_code_or_second_line(text):
    shown = markdown(text)
    assert not {"<", ">", "\n", "\r", "\u2028"} & {*shown}
    assert shown.count("\\[") == text.count("[")
    assert shown.count("\\`") == text.count("`")
    assert len(markdown_row([text, "x"]).replace("\\|", "").split("|")) == 4


def test_plain_names_stay_as_they_are():
    for name in ("annotated-ppdb", "sts/2012/MSRpar", "my_encoder (2)", "mean × 100, |v|₁ of é", "100 % *"):
        assert printable(name) == markdown(name) == file_stem(name) == name


def test_names_that_are_no_unicode_and_long_ones():
    assert printable(os.fsdecode(b"a\xff\n\x1b[2Jb")) == "a\ufffd\ufffd\ufffd[2Jb"
    long, other = file_stem("é" * 300), file_stem("é" * 300 + "x")
    assert long != other
    assert len(long.encode()) <= 200


def test_a_list_of_many_names_is_cut():
    assert listed("abc") == "a, b, c"
    assert listed(range(45_570)).endswith("7, 8, 9 and 45,560 more")
    assert len(listed(["x" * 10**6] * 20)) < 1200
