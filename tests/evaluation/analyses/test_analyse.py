"""All analyses of a small evaluation, written to a folder."""

import csv

import pytest

from paraembed import checkpoint
from paraembed.evaluation.analyses import ANALYSES, analyse
from paraembed.evaluation.choose import read_choose
from paraembed.evaluation.report import compare
from paraembed.settings import AnalysisOptions


def test_what_can_be_made_is_written_and_the_rest_says_why(inputs, tmp_path):
    for pairs in (10, 100):
        recipe, data = {"objective": "contrastive", "contrast_phrases": 9}, {"data": {"pairs": pairs}}
        encoder, folder = inputs.candidates[0].encoder, tmp_path / "runs" / str(pairs)
        checkpoint.save(encoder, folder, recipe=recipe, provenance=data, model_card="")
    (tmp_path / "tagged.tsv").write_text(10 * "the\tDT\ncat\tNN\n\n")
    (tmp_path / "held-out.tsv").write_text("the cat\ta cat\non the mat\tthe mat\nsat\tthe cat sat\n")
    suites = (*inputs.suites, read_choose(tmp_path / "held-out.tsv", 3))
    report = compare(inputs.candidates, suites, resamples=0)
    options, out = AnalysisOptions(tagged=tmp_path / "tagged.tsv", runs=(tmp_path / "runs",)), tmp_path / "out"
    out.mkdir()
    made = analyse(report, inputs.candidates, suites, options, out)
    assert [(one.name, one.title, one.source) for one in made] == [about[:3] for about in ANALYSES]
    reasons = {one.name: one.reason for one in made if one.content is None}
    assert {*reasons} == {"margin", "raters"}
    assert "`margin_pairs`" in reasons["margin"]
    written = {path for one in made for path in one.files}
    assert written == {*out.iterdir()}
    for one in made:
        if one.content is None:
            continue
        pictures = [path for path in one.files if path.suffix == ".png"]
        assert len(pictures) == (one.name not in {"nearest-neighbours", "across-sets"})
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
