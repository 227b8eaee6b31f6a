"""All analyses of a small evaluation, written to a folder."""

import csv

import pytest

from paraembed.evaluation.analyses import ANALYSES, analyse
from paraembed.settings import AnalysisOptions


def test_what_can_be_made_is_written_and_the_rest_says_why(inputs, tmp_path):
    (tmp_path / "runs.csv").write_text("pairs,score,k,accuracy\n10,40,9,50\n100,50,9,60\n")
    (tmp_path / "tagged.tsv").write_text(10 * "the\tDT\ncat\tNN\n\n")
    options, out = AnalysisOptions(tagged=tmp_path / "tagged.tsv", runs=(tmp_path / "runs.csv",)), tmp_path / "out"
    out.mkdir()
    made = analyse(inputs.report, inputs.candidates, inputs.suites, options, out)
    assert [(one.name, one.title, one.source) for one in made] == [about[:3] for about in ANALYSES]
    reasons = {one.name: one.reason for one in made if one.content is None}
    assert {*reasons} == {"margin"}
    assert "`margin_pairs`" in reasons["margin"]
    written = {path for one in made for path in one.files}
    assert written == {*out.iterdir()}
    for one in made:
        if one.content is None:
            continue
        pictures = [path for path in one.files if path.suffix == ".png"]
        assert len(pictures) == (one.name != "nearest-neighbours")
        assert [path.read_bytes() for path in pictures] == [one.content.picture] * len(pictures)
        for path, table in zip(one.files, one.content.tables, strict=False):
            with path.open(newline="") as file:
                head, *rows = csv.reader(file)
            assert tuple(head) == table.head
            assert rows == [["" if cell is None else str(cell) for cell in row] for row in table.rows]


def test_a_wrong_file_of_a_user_is_an_error_not_a_reason(inputs, tmp_path):
    (tmp_path / "tagged.tsv").write_text("cat\n")
    options = AnalysisOptions(tagged=tmp_path / "tagged.tsv")
    with pytest.raises(ValueError, match="line 1: 1 columns"):
        analyse(inputs.report, inputs.candidates, inputs.suites, options, tmp_path)
