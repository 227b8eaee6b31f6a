from dataclasses import replace

import numpy as np
import pyarrow as pa
from scipy import stats

from paraembed.data.similarity import ScoredPairs
from paraembed.evaluation.analyses.content import Inputs
from paraembed.evaluation.analyses.text_length import THE_PAPERS, bin_of, make, score_by_bin
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, Suite
from paraembed.papers.results import BY_LENGTH


def test_the_longer_text_decides_the_bin() -> None:
    lengths = np.array([[1, 4, 5, 9, 3, 30], [2, 4, 2, 8, 10, 1]])
    assert bin_of(lengths).tolist() == [0, 0, 1, 5, 6, 6]


def test_a_bin_has_the_correlation_of_its_pairs_and_few_pairs_have_none() -> None:
    generator = np.random.default_rng(0)
    gold, predicted = generator.standard_normal((2, 40))
    bins = np.repeat([0, 3, 6], [10, 21, 9])
    scores = score_by_bin(bins, gold, predicted)
    assert np.isclose(scores[0], stats.pearsonr(gold[:10], predicted[:10]).statistic)
    assert np.isclose(scores[3], stats.pearsonr(gold[10:31], predicted[10:31]).statistic)
    assert np.isnan(scores[[1, 2, 4, 5, 6]]).all()  # empty, or nine pairs


def test_a_constant_bin_has_no_score() -> None:
    assert np.isnan(score_by_bin(np.zeros(20, np.int64), np.ones(20), np.arange(20.0))).all()


def test_the_table_holds_every_pair_and_what_the_paper_printed(inputs: Inputs) -> None:
    (table,) = make(inputs).tables
    assert table.title == THE_PAPERS
    assert sum(int(row[1] or 0) for row in table.rows) == 120
    assert table.rows[0][4] == BY_LENGTH["paragram-phrase"][0] == 72.7
    members = [(group.name, pairs) for group in inputs.suites[0].groups for pairs in group.sets]
    sides = [
        [len(text.split()) for _, pairs in members for text in side(pairs).to_pylist()] for side in (_first, _second)
    ]
    is_long = np.max(sides, axis=0) >= 10
    gold = np.concatenate([pairs.scores for _, pairs in members])
    cosines = np.concatenate([inputs.report.predictions["gran", f"sts/{year}/{pairs.name}"] for year, pairs in members])
    assert table.rows[6][1] == is_long.sum()
    assert np.isclose(table.rows[6][3], 100 * stats.pearsonr(gold[is_long], cosines[is_long]).statistic)


def test_other_sets_are_not_beside_what_the_paper_printed(inputs: Inputs) -> None:
    """STS 2016, and sets of one's own in a year's folder, are not among the paper's 20."""
    first = inputs.suites[0].groups[0].sets[0]
    other = Group("2016", (replace(first, name="headlines"),))
    for groups in ((*inputs.suites[0].groups, other), (other,)):
        suites = (Suite("sts", groups, "year"),)
        made = make(replace(inputs, suites=suites, report=compare(inputs.candidates, suites, resamples=0)))
        (table,) = made.tables
        pairs = sum(int(row[1] or 0) for row in table.rows)
        if len(groups) > 1:
            (alone,) = make(inputs).tables
            assert (pairs, table.rows) == (120, alone.rows)
            assert "over the 12,108 pairs of its 20 sets of STS 2012 to 2015; ours are without 2012/OnWN, " in made.text
        else:
            assert (table.title, pairs, len(table.head)) == ("sts", 40, 4)
            assert "paper" not in made.text


def _first(pairs: ScoredPairs) -> pa.StringArray:
    return pairs.first


def _second(pairs: ScoredPairs) -> pa.StringArray:
    return pairs.second
