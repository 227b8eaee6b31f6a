"""Analyses of scored pairs, by length, gold score and ratio; and of whole sets."""

import gzip
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paraembed.evaluation.analyses.content import CannotMakeError, gold_scale, on_gold_scale, pools, text_pools
from paraembed.evaluation.analyses.pairs import (
    NUM_PAIRS,
    THE_PAPERS,
    disagreement,
    error_by_gold,
    error_by_ratio,
    gold_ranges,
    in_range,
    length_ratio,
    means_by,
    overlap_ratio,
    score_by_length,
)
from paraembed.evaluation.analyses.sets import across_sets, rank_correlation, raters, unknown_words
from paraembed.evaluation.analyses.words import neighbors
from paraembed.evaluation.baselines import overlap_candidates
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.evaluation.suites import read_suites
from paraembed.papers.results import BY_LENGTH
from paraembed.settings import AnalysisOptions
from paraembed.text.tokenize import tokenize


def test_the_table_holds_every_pair_and_what_the_paper_printed(inputs):
    (table,) = score_by_length(inputs).tables
    assert table.title == THE_PAPERS
    assert table.rows[0][4] == BY_LENGTH["paragram-phrase"][0] == 72.7
    members = [(group.name, pairs) for group in inputs.suites[0].groups for pairs in group.sets]
    sides = [[len(text.split()) for _, pairs in members for text in pairs.texts[side].to_pylist()] for side in (0, 1)]
    longest = np.clip(np.max(sides, axis=0), 4, 10)
    gold = np.concatenate([pairs.scores for _, pairs in members])
    cosines = np.concatenate([inputs.report.predictions["gran", f"sts/{year}/{pairs.name}"] for year, pairs in members])
    for tokens, row in enumerate(table.rows, 4):
        inside = longest == tokens
        r = 100 * stats.pearsonr(gold[inside], cosines[inside]).statistic if inside.sum() >= 10 else None
        assert row[1:4:2] == (inside.sum(), pytest.approx(r))
    assert {row[3] is None for row in table.rows} == {True, False}


def test_other_sets_are_not_beside_what_the_paper_printed(inputs):
    """STS 2016, and sets of one's own in a year's folder, are not among the paper's 20."""
    first = inputs.suites[0].groups[0].sets[0]
    other = Group("2016", (replace(first, name="headlines"),))
    (alone,) = score_by_length(inputs).tables
    for groups in ((*inputs.suites[0].groups, other), (other,)):
        suites = (Suite("sts", groups, "year"),)
        made = score_by_length(replace(inputs, suites=suites, report=compare(inputs.candidates, suites, resamples=0)))
        (table,) = made.tables
        if len(groups) > 1:
            assert table.rows == alone.rows
            assert "12,108 pairs of its 20 sets of STS 2012 to 2015; this run is without 2012/OnWN, " in made.text
        else:
            assert (table.title, sum(int(row[1] or 0) for row in table.rows), len(table.head)) == ("sts", 40, 4)
            assert "paper" not in made.text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 5, [(1, 2), (2, 3), (3, 4), (4, 5)]),  # Wieting 2015 table 7
        (0, 10, [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]),
        (0, 1, [(0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1)]),
    ],
)
def test_ranges_of_a_scale(low, high, expected):
    assert gold_ranges(low, high) == expected
    cosines = np.array([-1.0, 0.0, 0.5, 1.0])
    assert on_gold_scale(cosines, low, high).tolist() == [low, low, (low + high) / 2, high]


@given(st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 3.25, 5.0]), min_size=2).map(np.array))
def test_every_score_is_in_exactly_one_range(gold):
    low, high = gold_scale(gold)
    high = max(high, low + 1)
    inside = np.stack([in_range(gold, *bounds, high) for bounds in gold_ranges(low, high)])
    assert (inside.sum(axis=0) == 1).all()


def test_ratios_of_a_hand_example():
    pairs = [
        ("the cat sat", "the cat sat on the mat"),  # 3 of 6 tokens, all of them shared
        ("can not be separated from", "is inseparable from"),  # 3 of 5, one shared
        ("the the cat", "the dog"),  # 2 of 3, "the" shared once
        ("", "home"),
        ("", ""),
    ]
    sides = [tokenize(pa.array([pair[at] for pair in pairs]), "space") for at in range(2)]
    lengths = np.stack([np.diff(side.offsets) for side in sides])
    assert length_ratio(lengths).tolist() == [0.5, 0.6, 2 / 3, 0, 1]
    assert overlap_ratio(*sides).tolist() == [1, 1 / 3, 0.5, 0, 0]
    means = means_by([np.array([True, True, False]), np.zeros(3, bool)], np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(means, [1.5, np.nan])


def test_the_tables_of_a_small_evaluation(inputs):
    (table,) = error_by_gold(inputs).tables
    gold = np.concatenate([pairs.scores for group in inputs.suites[0].groups for pairs in group.sets])
    names = [f"sts/{group.name}/{pairs.name}" for group in inputs.suites[0].groups for pairs in group.sets]
    means = []
    for label in ("avg", "gran"):
        cosines = np.concatenate([inputs.report.predictions[label, name] for name in names])
        errors = [abs(score - 5 * min(max(cosine, 0), 1)) for score, cosine in zip(gold, cosines, strict=True)]
        means.append(np.mean([error for error, score in zip(errors, gold, strict=True) if score >= 4]))
    assert table.rows[4][0] == "[4, 5]"
    assert np.allclose(np.array(table.rows[4][2:], float), [*means, 100 * (means[0] / means[1] - 1)])
    assert sum(int(row[1] or 0) for row in table.rows) == len(gold)

    (table,) = error_by_ratio(inputs).tables
    counts = {(row[0], row[2]): 0 for row in table.rows}
    for row in table.rows:
        counts[row[0], row[2]] += int(row[3] or 0)
    positive, negative = int((gold > 3.75).sum()), int((gold < 1.25).sum())
    for what in ("length", "overlap"):
        expected = {"positive": positive, "negative": negative, "both": positive + negative}
        assert {kind: counts[what, kind] for kind in expected} == expected


def test_the_table_names_sets_texts_and_who_is_nearer(inputs):
    """Row numbers stand for texts that were not asked for."""
    (table,) = disagreement(replace(inputs, options=AnalysisOptions(show_texts=True))).tables
    assert len(table.rows) == 2 * NUM_PAIRS
    gaps = [row[3] - row[4] for row in table.rows]
    assert gaps == sorted(gaps[:NUM_PAIRS], reverse=True) + sorted(gaps[NUM_PAIRS:])
    (numbered,) = disagreement(inputs).tables
    assert numbered.head == ("set", "row", "avg", "gran", "gold", "nearer to gold")
    assert [row[2:] for row in numbered.rows] == [row[3:] for row in table.rows]
    sets = {f"sts/{group.name}/{pairs.name}": pairs for group in inputs.suites[0].groups for pairs in group.sets}
    for (name, first, second, one, other, gold, nearer), (_, row, *_) in zip(table.rows, numbered.rows, strict=True):
        pairs = sets[name]
        assert (pairs.first[row - 1].as_py(), pairs.second[row - 1].as_py()) == (first, second)
        assert gold == pairs.scores[row - 1]
        assert nearer == ("avg" if abs(one - gold) < abs(other - gold) else "gran")
        assert np.isclose(one, 5 * min(max(inputs.report.predictions["avg", name][row - 1], 0), 1))
    with pytest.raises(CannotMakeError, match="only one encoder"):
        disagreement(replace(inputs, report=replace(inputs.report, columns=inputs.report.columns[:1])))


def _with_other_suites(inputs):
    """STS with a benchmark that stands alone, a set of words, a user's sentences."""
    sts, year = inputs.suites[0], inputs.suites[0].groups[0]
    benchmark = replace(year.sets[0], name="dev")
    words = ScoredPairs(
        "ws353", np.arange(4.0), pa.array(["cat", "dog", "mat", "home"]), pa.array(["cat", "a", "the", "."])
    )
    own = replace(year.sets[1], name="own")
    suites = (
        replace(sts, groups=(*sts.groups, Group("benchmark", (benchmark,), has_mean=False))),
        Suite("words", (Group("", (words,)),)),
        Suite("pairs", (Group("", (own,)),)),
    )
    candidates = (*inputs.candidates, *overlap_candidates())
    return replace(inputs, report=compare(candidates, suites, resamples=0), candidates=candidates, suites=suites)


def test_years_are_one_pool_and_other_sets_one_each(inputs):
    mixed = _with_other_suites(inputs)
    found = {pool.name: pool for pool in pools(mixed)}
    assert {name: len(pool.gold) for name, pool in found.items()} == {"sts": 120, "words/ws353": 4, "pairs/own": 40}
    assert found["sts"].sets[39:41] == ("sts/2012/MSRpar", "sts/2012/MSRvid")
    assert found["sts"].lengths.shape == (2, 120)
    assert found["sts"].lengths[0, 0] == len(found["sts"].first[0].as_py().split())
    assert [pool.name for pool in text_pools(mixed)] == ["sts", "pairs/own"]
    for pool in found.values():
        assert [len(predicted) for predicted in pool.predicted] == [len(pool.gold)] * 4


def test_a_candidate_without_vectors_takes_part_where_it_can(inputs):
    mixed = _with_other_suites(inputs)

    def predicted(label, score):
        return None if (label, score.name) == ("overlap", "pairs/own") else score.predicted  # as where it scores no set

    columns = tuple(
        replace(
            column, scores=tuple(replace(score, predicted=predicted(column.label, score)) for score in column.scores)
        )
        for column in mixed.report.columns
    )
    changed = replace(mixed, report=replace(mixed.report, columns=columns))
    tables = {table.suffix: table for table in error_by_gold(changed).tables}
    at = tables["-pairs-own"].head.index("overlap")
    assert {row[at] for row in tables["-pairs-own"].rows} == {None}
    assert None not in {row[at] for row in tables["-sts"].rows}
    assert neighbors(changed).tables[0].head == ("word", "avg", "gran")


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
