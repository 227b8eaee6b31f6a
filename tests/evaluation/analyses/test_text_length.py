import numpy as np
import pyarrow as pa
from scipy import stats

from paraembed.data.similarity import ScoredPairs
from paraembed.evaluation.analyses.content import Inputs
from paraembed.evaluation.analyses.text_length import WIETING_2016, bin_of, make, score_by_bin


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
    assert sum(int(row[1] or 0) for row in table.rows) == 120
    assert table.rows[0][4] == WIETING_2016["paragram-phrase"][0] == 72.7
    members = [(group.name, pairs) for group in inputs.suites[0].groups for pairs in group.sets]
    sides = [
        [len(text.split()) for _, pairs in members for text in side(pairs).to_pylist()] for side in (_first, _second)
    ]
    is_long = np.max(sides, axis=0) >= 10
    gold = np.concatenate([pairs.scores for _, pairs in members])
    cosines = np.concatenate([inputs.report.predictions["gran", f"sts/{year}/{pairs.name}"] for year, pairs in members])
    assert table.rows[6][1] == is_long.sum()
    assert np.isclose(table.rows[6][3], 100 * stats.pearsonr(gold[is_long], cosines[is_long]).statistic)


def _first(pairs: ScoredPairs) -> pa.StringArray:
    return pairs.first


def _second(pairs: ScoredPairs) -> pa.StringArray:
    return pairs.second
