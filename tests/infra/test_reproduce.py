"""The script that computes the numbers of docs/reproduce.md again: what it looks up is on the page."""

import re

import pytest

from infra.reproduce import (
    FINETUNINGS,
    PAGE,
    PAIRS,
    ROWS,
    SHARDS,
    TRAININGS,
    Models,
    Row,
    compare,
    expected_of,
    measured,
    numbers,
    printed,
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ", ".join(row.cells))
def test_a_row_is_on_the_page_once(row):
    cells = expected_of(PAGE.read_text(), row)
    assert cells
    names = (row.arguments,) if isinstance(row, Row) else row.models
    expected = 2 if any("{seed}" in name or name in FINETUNINGS for name in names) else 1
    assert [len(cell) for cell in cells] == [expected] * len(cells)


def test_pairs_are_on_the_page_and_trainings_have_theirs():
    for name in PAIRS:
        (count,) = numbers(printed(PAGE.read_text(), "name below", [f"`{name}`"])[1])
        assert count > 1000
    assert {arguments.split()[1].partition("/")[0] for arguments in TRAININGS.values()} <= SHARDS.keys()
    assert {
        re.sub(r"-\d$", "", name)
        for row in ROWS
        if isinstance(row, Models)
        for name in row.models
        if name and not row.score
    } == FINETUNINGS.keys()


def test_a_row_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="0 rows of tables"):
        printed(PAGE.read_text(), "word vectors", ["`words`"])


def test_numbers_differ_by_more_than_the_tolerance(capsys):
    assert measured([1.0, 2.0, 3.0]) == [2.0, 1.0]
    assert compare("a", [[47.0, 1.0]], [[47.1, 1.1]], 0.15)
    assert not compare("b", [[47.0, 1.0]], [[47.2, 1.0]], 0.15)
    assert not compare("c", [[47.0, 1.0]], [[47.0]], 0.15)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["equal", "DIFFERS", "DIFFERS"]
