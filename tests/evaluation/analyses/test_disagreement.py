from dataclasses import replace

import numpy as np
import pytest

from paraembed.evaluation.analyses.content import AnalysisOptions, CannotMakeError, Inputs
from paraembed.evaluation.analyses.disagreement import NUM_PAIRS, make, most_apart


def test_the_widest_gaps_come_first_and_equal_scores_are_no_disagreement() -> None:
    one, other = np.array([1.0, 3.0, 2.0, 0.0, 4.0, 2.0]), np.array([1.0, 1.0, 0.0, 5.0, 4.5, 0.0])
    above, below = most_apart(one, other, 4)
    assert above.tolist() == [1, 2, 5]
    assert below.tolist() == [3, 4]


def test_the_table_names_sets_texts_and_who_is_nearer(inputs: Inputs) -> None:
    (table,) = make(replace(inputs, options=AnalysisOptions(show_texts=True))).tables
    assert len(table.rows) == 2 * NUM_PAIRS
    gaps = [row[3] - row[4] for row in table.rows]
    assert gaps == sorted(gaps[:NUM_PAIRS], reverse=True) + sorted(gaps[NUM_PAIRS:])
    for name, first, second, one, other, gold, nearer in table.rows:
        year, own = name.split("/")[1:]
        pairs = next(
            one for group in inputs.suites[0].groups if group.name == year for one in group.sets if one.name == own
        )
        at = pairs.first.to_pylist().index(first)
        assert (second, gold) == (pairs.second[at].as_py(), pairs.scores[at])
        assert nearer == ("avg" if abs(one - gold) < abs(other - gold) else "gran")
        assert np.isclose(one, 5 * min(max(inputs.report.predictions["avg", name][at], 0), 1))


def test_row_numbers_stand_for_texts_that_were_not_asked_for(inputs: Inputs) -> None:
    (shown,) = make(replace(inputs, options=AnalysisOptions(show_texts=True))).tables
    (table,) = make(inputs).tables
    assert table.head == ("set", "row", "avg", "gran", "gold", "nearer to gold")
    assert [row[2:] for row in table.rows] == [row[3:] for row in shown.rows]
    sets = {f"sts/{group.name}/{pairs.name}": pairs for group in inputs.suites[0].groups for pairs in group.sets}
    for (name, number, *_), (_, first, second, *_) in zip(table.rows, shown.rows, strict=True):
        pairs = sets[name]
        assert (pairs.first[number - 1].as_py(), pairs.second[number - 1].as_py()) == (first, second)


def test_one_encoder_has_nobody_to_disagree_with(inputs: Inputs) -> None:
    alone = replace(inputs, report=replace(inputs.report, columns=inputs.report.columns[:1]))
    with pytest.raises(CannotMakeError, match="only one encoder"):
        make(alone)


def test_a_label_that_is_not_there_is_refused(inputs: Inputs) -> None:
    with pytest.raises(ValueError, match="'lstm'; it must be the label of another encoder than the first: gran"):
        make(replace(inputs, options=AnalysisOptions(against="lstm")))
