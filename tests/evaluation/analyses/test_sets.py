import gzip
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from paraembed.evaluation.analyses.content import CannotMakeError
from paraembed.evaluation.analyses.sets import across_sets, rank_correlation, raters, unknown_words
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, Suite
from paraembed.evaluation.suites import read_suites
from paraembed.settings import AnalysisOptions


def test_encoders_are_correlated_over_the_sets_and_counted_among_the_systems(inputs):
    columns = inputs.report.columns
    scores = [{score.name: 100 * score.pearson for score in column.scores} for column in columns]
    names = ["sts/2012/MSRpar", "sts/2012/MSRvid", "sts/2013/OnWN"]
    agreement, ranks = across_sets(inputs).tables
    (row,) = agreement.rows
    values = [[of_sets[name] for name in names] for of_sets in scores]
    assert row[:3] == ("avg", "gran", 3)
    assert row[3:] == pytest.approx((100 * stats.pearsonr(*values).statistic, 100 * stats.spearmanr(*values).statistic))
    bars = ((51.5, 57.6, 70.4, 73.4), (75.5, 80.3, 85.0, 88.0), (52.8, 64.8, 81.3, 84.3))  # Wieting 2016 table 2
    expected = [
        (label, 3, *(sum(score >= bar[at] for score, bar in zip(of_encoder, bars, strict=True)) for at in range(4)))
        for label, of_encoder in zip(("avg", "gran"), values, strict=True)
    ]
    assert [*ranks.rows] == expected


def test_a_set_of_ones_own_has_no_systems(inputs):
    own = Suite("pairs", (Group("", (replace(inputs.suites[0].groups[0].sets[0], name="own"),)),))
    with pytest.raises(CannotMakeError, match="sets of the papers"):
        across_sets(replace(inputs, suites=(own,), report=compare(inputs.candidates, [own], resamples=0)))


def test_rare_words_are_those_of_the_given_pairs(inputs, tmp_path):
    """Fewer than 100 times, counted in all texts of a set."""
    words = inputs.candidates[0].encoder.vocabulary.to_pylist()[1:]
    counts = {word: 100 if number % 2 else 99 for number, word in enumerate(words)}
    pq.write_table(pa.table({"word": [*counts], "count": [*counts.values()]}), tmp_path / "vocabulary.parquet")
    _, table = unknown_words(replace(inputs, options=AnalysisOptions(margin_pairs=tmp_path))).tables
    assert table.head[2] == "rare, %"
    for group in inputs.suites[0].groups:
        for pairs in group.sets:
            tokens = [token for side in pairs.texts for text in side.to_pylist() for token in text.split()]
            expected = 100 * np.mean([counts.get(token, 0) < 100 for token in tokens])
            assert [row[2] for row in table.rows if row[1] == f"sts/{group.name}/{pairs.name}"] == [
                pytest.approx(expected)
            ] * 2


def test_raters_agree_as_far_as_by_hand(inputs, tmp_path):
    """Three pairs rated by both of two people, and one by a third."""
    head, rows = "participant type version a b c d rating", []
    of_pair = {"a b c d": (1, 2), "e f g h": (4, 6), "i j k l": (5, 7), "m n o p": (7,)}
    for pair, ratings in of_pair.items():
        people = ("ann", "bob") if len(ratings) == 2 else ("eve",)
        rows += [f"{rater} adjectivenouns 0 {pair} {rating}" for rater, rating in zip(people, ratings, strict=True)]
    (tmp_path / "phrase").mkdir()
    (tmp_path / "phrase" / "mitchell_lapata_2010.txt").write_text("\n".join([head, *reversed(rows)]) + "\n")
    pavlick = "".join(f"3\t[NP]\tx{row}\ty\t{ratings}\n" for row, ratings in enumerate(("1.0,3.0", "5,5,5", "none")))
    (tmp_path / "phrase" / "pavlick2015_ppdb_human.tsv.gz").write_bytes(gzip.compress(pavlick.encode()))
    deviation, agreement = raters(replace(inputs, suites=read_suites(["bigrams", "phrases"], tmp_path))).tables
    assert deviation.rows == (
        ("bigrams/JN", "1 to 2", 0.5, 25.0),
        ("bigrams/JN", "5 to 6", 1.0, 25.0),
        ("bigrams/JN", "6 to 7", 0.5, 50.0),
        ("bigrams/JN", "all", 0.625, 100.0),
        ("phrases/pavlick", "2 to 3", 1.0, 50.0),
        ("phrases/pavlick", "4 to 5", 0.0, 50.0),
        ("phrases/pavlick", "all", 0.5, 100.0),
    )
    assert agreement.rows == (("bigrams/JN", 1, pytest.approx(100.0)), ("phrases/pavlick", 0, None))
    with pytest.raises(CannotMakeError, match="ratings of each person"):
        raters(inputs)


def test_the_rank_correlation_of_a_hand_example():
    unknown = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    # ranks 1 2 3 5 4 reversed: 1 - 6·Σd²/(n(n²-1)) with d = 4 2 0 -3 -3
    assert np.isclose(rank_correlation(unknown, np.array([50.0, 40.0, 30.0, 10.0, 20.0])), 1 - 6 * 38 / 120)
    assert rank_correlation(unknown, np.array([np.nan, 1.0, 2.0, 3.0, np.nan])) == 1
    assert np.isnan(rank_correlation(unknown, np.array([1.0, 2.0, np.nan, np.nan, np.nan])))
    assert np.isnan(rank_correlation(np.ones(5), unknown))


def test_shares_are_counted_in_the_texts_and_both_counts_of_sets_are_told(inputs):
    """A set of one's own has a score, and no 75th percentile."""
    own = Suite("pairs", (Group("", (replace(inputs.suites[0].groups[0].sets[0], name="own"),)),))
    suites = (*inputs.suites, own)
    report = compare(inputs.candidates, suites, resamples=0)
    correlations, table = unknown_words(replace(inputs, suites=suites, report=report)).tables
    rows = {row[:2]: row for row in table.rows}
    texts = [text for side in inputs.suites[0].groups[1].sets[0].texts for text in side.to_pylist()]
    tokens = " ".join(texts).split()
    assert np.isclose(rows["avg", "sts/2013/OnWN"][2], 100 * tokens.count("zebra") / len(tokens))
    row = rows["gran", "sts/2012/MSRpar"]
    assert np.isclose(row[4], row[3] - 57.6)  # the 75th percentile of the systems of the task
    assert correlations.head == (
        *("encoder", "sets", "ρ with the score", "sets with a 75th percentile", "ρ with the deviation"),
    )
    assert [(row[0], row[1], row[3]) for row in correlations.rows] == [("avg", 4, 3), ("gran", 4, 3)]
    there = [row for row in table.rows if row[0] == "avg" and row[4] is not None]
    expected = stats.spearmanr([row[2] for row in there], [row[4] for row in there]).statistic
    assert correlations.rows[0][4] == pytest.approx(100 * expected)
