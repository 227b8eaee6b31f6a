"""The tables: ours beside the published values, and never a mean over other sets."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.baselines import overlap_candidates
from paraembed.evaluation.candidates import Candidate, PairScorer
from paraembed.evaluation.paired import paired_test
from paraembed.evaluation.report import compare
from paraembed.evaluation.scoring import score_suite
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.evaluation.tables import summary_table
from paraembed.papers.results import MEANS, PAPERS_22, PAPERS_STS
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.evaluation.conftest import scored_pairs


def pairs(name):
    first = pa.array(["the cat sat", "a dog", "a cat", "cat ran"])
    return ScoredPairs(name, np.array([5.0, 1, 3, 2]), first, pa.array(["the cat", "on mat", "the dog", "home"]))


def sts(**years):
    groups = tuple(Group(year.removeprefix("y"), tuple(map(pairs, names))) for year, names in years.items())
    return Suite("sts", groups, "year")


def single(name):
    return Suite(name, (Group("", (pairs("test"),)),))


ALL_STS = sts(**{f"y{year}": names for year, names in PAPERS_STS.items()})


def cells(table, column):
    at = table.head.index(column)
    return {row[0]: row[at] for row in table.rows}


def one(encoder, *suites, kind="avg"):
    return compare([Candidate("mine", "a test", encoder, kind)], suites, resamples=20)


def test_a_mean_stands_beside_the_printed_one_over_the_same_sets(encoder):
    fewer_sets, no_papers = sts(y2012=PAPERS_STS["2012"], y2013=("OnWN", "headlines")), sts(y2012=("MSRpar", "mine"))
    (whole,), (fewer,), (other,) = (one(encoder, suite).tables() for suite in (ALL_STS, fewer_sets, no_papers))
    printed = cells(whole, "Wieting 2016 table 2: PP")
    assert (printed["2012 mean of 5 sets"], printed["2012 MSRpar"]) == ("58.7", "42.6")
    # Over 2012 to 2016 nothing was printed.
    without = ("2012 pooled", "2016 headlines", "2016 mean of 5 sets", "mean of 5 years", "mean of 25 sets")
    assert {printed[label] for label in without} == {""}
    assert cells(whole, "Wieting 2017 table 4: GRAN")["2013 OnWN"] == "81.4"
    printed = cells(fewer, "Wieting 2016 table 2: PP")
    assert printed["2012 mean of 5 sets"] == "58.7"
    assert printed["2013 mean of 2 sets"] == "70.1~"  # (67.7 + 72.4) / 2; the paper's 55.8 is over four
    assert printed["mean of 2 years"] == "64.4~"  # (58.7 + 70.05) / 2
    assert printed["mean of 7 sets"] == "61.9~"
    assert any(note.startswith("~ mean of the published values over the same sets") for note in fewer.notes)
    printed = cells(other, "Wieting 2016 table 2: PP")
    assert (printed["2012 MSRpar"], printed["2012 mine"], printed["2012 mean of 2 sets"]) == ("42.6", "", "")


def test_the_mean_of_the_papers_22_sets(encoder):
    report = one(encoder, ALL_STS, single("sick"), single("pit2015"))
    (score,) = [score for score in report.columns[0].scores if score.name == PAPERS_22]
    assert (len(score.members), score.label) == (22, "mean of 22 sets of the papers' 22")
    assert set(score.members) == set(MEANS[PAPERS_22])
    members = [one.pearson for one in report.columns[0].scores if one.name in score.members]
    assert score.pearson == pytest.approx(np.mean(members))
    assert report.metrics()["papers-22/mean"] == score.pearson
    table = report.tables()[-1]
    assert cells(table, "Wieting 2017 table 2: AVG, none")[score.label] == "68.4"
    assert cells(table, "Wieting 2016 §6: PSL, one learned scalar a word")[score.label] == "62.1"

    fewer = one(encoder, sts(y2012=("MSRpar",), y2013=("OnWN",)), single("sick"), single("pit2015"))
    table = fewer.tables()[-1]
    # Printed for all 22 alone: no column; by set: the mean over our four.
    assert not [head for head in table.head if "Wieting 2017 table 2" in head]
    assert list(cells(table, "Wieting 2016 table 2: PP").values()) == ["58.7~"]  # (42.6 + 67.7 + 71.6 + 52.9) / 4
    assert any("this run is without 2012/MSRvid" in note for note in table.notes)
    assert PAPERS_22 not in one(encoder, ALL_STS).metrics()


def test_one_published_column_an_encoder_in_our_order_under_one_number_everywhere(encoder):
    kinds = ("lstm", "gran", "avg", "proj", "dan", "lstm_avg")
    report = compare([Candidate(kind, "", encoder, kind) for kind in kinds], [ALL_STS, single("sick")], resamples=20)
    years, sick = report.tables(brief=True)
    ours = ("sts", "pairs", *kinds, "unknown %")  # no intervals, the unknown words of all once
    names = ("LSTM (no o.g.) [1]", "GRAN [2]", "PP [3]", "proj. [4]", "DAN [5]", "LSTM-AVG [6]")
    assert years.head == (*ours, *names, "PSL [7]", "GloVe [8]")
    assert sick.head[1:] == years.head[1:]
    report = one(encoder, ALL_STS, single("pit2015"))
    (single_kind, other), (whole, _) = report.tables(brief=True), report.tables()
    assert single_kind.head[-4:] == other.head[-4:] == ("PP [1]", "AVG [2]", "PSL [3]", "GloVe [4]")
    assert single_kind.notes[:2] == ("[1] Wieting 2016 table 2: PP", "[2] Wieting 2017 table 4: AVG")
    assert cells(single_kind, "PP [1]")["2012 MSRpar"] == "42.6"
    assert whole.head[:7] == ("sts", "pairs", "mine", "95 %", "Spearman", "unknown %", "Wieting 2017 table 4: AVG")


MARKED = {
    "sts/2013/mean": ["sts", "papers-22"],
    "sts/2016/mean_spearman": ["sts"],  # not among the papers' 22
    "sts/2012/pooled": ["sts", "papers-22"],
    "sick/test/pearson": ["sick", "papers-22"],
    "pairs/mine/pearson": [],
    "": [],
}


def test_an_encoder_that_saw_the_very_sets_is_marked(encoder):
    """By the metric that chose it, or by the labeled examples that it learned from."""
    chosen = [Candidate(f"by {metric}", "", encoder, "avg", chosen_by=metric) for metric in MARKED]
    trained = Candidate("trained", "", encoder, "avg", gold=("sts", "sick"))
    report = compare([*chosen, trained], [ALL_STS, single("sick"), single("pit2015")], resamples=0)
    notes = {table.head[0]: table.notes for table in report.tables()}
    for metric, marked in MARKED.items():
        said = f"by {metric} was chosen by {metric} among"
        assert [name for name in notes if any(said in note for note in notes[name])] == marked
    of_sts = "trained was trained on labeled examples of sts: what it learned from is among what is scored"
    of_sick = "trained was trained on labeled examples of sick: of the training part, which the published values "
    for suite, start in (("sts", of_sts), ("papers-22", of_sts), ("sick", of_sick)):
        assert len([note for note in notes[suite] if note.startswith(start)]) == 1
    assert not any("labeled examples" in note for note in notes["pit2015"])
    assert report.json()["encoders"][-1]["gold"] == ["sts", "sick"]


def test_values_over_other_pairs_are_marked(encoder):
    suite = Suite("phrases", (Group("", (pairs("pavlick"), pairs("annotated-ppdb"))),), measure="spearman")
    (table,) = one(encoder, suite).tables()
    assert list(cells(table, "Wieting 2016 table 3: PP").values()) == ["60.0", "53.5*"]
    assert any(note.startswith("* phrases/annotated-ppdb: the papers' values are over 1,000") for note in table.notes)
    values = {score.name: f"{100 * score.value:.1f}" for score in score_suite(encoder, suite, resamples=0)}
    assert list(cells(table, "mine").values()) == list(values.values())


def test_encoders_and_baselines_side_by_side(encoder, tiny_words):
    other = Encoder(AvgConfig(), Words(pa.array([UNKNOWN, "cat", "a", "on"]), tiny_words.matrix[4:8]), "space")
    candidates = [Candidate("new", "mine", encoder), Candidate("old|er", "theirs", other), *overlap_candidates()]
    words = ScoredPairs("ws353", np.array([1.0, 2]), pa.array(["cat", "dog"]), pa.array(["mat", "home"]))
    report = compare(candidates, [sts(y2012=("MSRpar",)), Suite("words", (Group("", (words,)),), measure="spearman")])
    first, second = report.tables()
    assert first.head[:10] == (
        "sts", "pairs", "new", "95 %", "Spearman", "unknown %", "old|er", "95 %", "Spearman", "unknown %"
    )  # fmt: skip
    assert first.head[10:12] == ("overlap", "lemma overlap")
    assert cells(first, "overlap")["2012 MSRpar"] != ""
    assert "overlap" not in second.head  # two words overlap or they do not
    assert report.notes == ()
    assert "old|er/sts/2012/MSRpar/pearson" not in report.metrics()  # MLflow takes no |
    assert [*report.metrics()][:2] == ["sts/2012/MSRpar/pearson", "sts/2012/MSRpar/spearman"]
    assert {f"old_er/sts/{name}" for name in ("2012/MSRpar/pearson", "mean-of-sets")} <= report.metrics().keys()
    assert "overlap/words/ws353/spearman" not in report.metrics()
    # "old" knows one word of the four: no score over covered pairs, and how many there are.
    assert second.head.count("on covered") == 1
    assert cells(second, "covered") == {"ws353": "0"}
    assert any(note.startswith("on covered: the same measure") for note in second.notes)
    assert "new/words/ws353/spearman_covered" not in report.metrics()
    assert report.metrics()["words/ws353/spearman_covered"] == report.metrics()["words/ws353/spearman"]
    assert "over 2 pairs without an OOV word" in report.csv()
    assert report.json()["encoders"][1]["scores"]["words/ws353"]["num_covered"] == 0
    assert report.predictions["new", "sts/2012/MSRpar"].shape == (4,)
    with pytest.raises(ValueError, match="two candidates are called 'new'"):
        compare([candidates[0], candidates[0]], [ALL_STS])


class Noisy(PairScorer):
    """Scorer of the pairs of a suite: their gold scores and noise."""

    def __init__(self, suite, noise, seed):
        sets = [pairs for group in suite.groups for pairs in group.sets]
        gold = np.concatenate([pairs.scores for pairs in sets])
        texts = [texts for pairs in sets for texts in zip(*map(pa.Array.to_pylist, pairs.texts), strict=True)]
        self.known = dict(zip(texts, gold + noise * np.random.default_rng(seed).normal(size=len(gold)), strict=True))

    def similarity(self, first, second):
        return np.array([self.known[texts] for texts in zip(first.to_pylist(), second.to_pylist(), strict=True)])


def test_encoders_are_compared_in_pairs_and_the_best_of_a_row_is_marked():
    sets = [scored_pairs(name, ["the", "cat", "sat", "a", "dog"], seed, 120) for seed, name in enumerate("ab")]
    suites = [Suite("sts", (Group("2012", tuple(sets)),), "year"), Suite("pairs", (Group("", tuple(sets)),))]
    scorers = {"good": (1, 0), "similar": (1, 1), "bad": (9, 2)}
    candidates = [Candidate(label, "", Noisy(suites[0], *how)) for label, how in scorers.items()]
    report = compare(candidates, suites, resamples=200)
    comparisons = report.json()["comparisons"]
    named = {(result["set"], result["a"], result["b"]): result for result in comparisons}
    names = [score.name for score in report.columns[0].scores]
    assert len(comparisons) == len(named) == 3 * len(names)
    for name, *labels in named:
        one, other = (
            next(score for score in column.scores if score.name == name)
            for column in report.columns
            if column.label in labels
        )
        assert named[name, *labels]["difference"] == one.value - other.value
        assert named[name, *labels]["low"] < one.value - other.value < named[name, *labels]["high"]
    predicted = [report.predictions[label, "pairs/a"] for label in ("good", "similar")]
    assert named["pairs/a", "good", "similar"]["p"] == paired_test(*predicted, sets[0].scores).p
    assert named["sts/mean", "good", "bad"]["p"] == 2 / 201  # of all 200 resamples none below 0
    for table in (*report.tables(), *report.tables(brief=True)):
        for label, sign in (("good", "="), ("similar", "="), ("bad", "")):
            assert {re.sub(r"[\d.-]", "", cell) for cell in cells(table, label).values()} == {sign}
        assert [note[0] for note in table.notes if "paired test" in note] == ["="]
    (alone, _) = compare(candidates[::2], suites).tables()
    assert all(cell.endswith("†") for cell in cells(alone, "good").values())

    summary = summary_table(report.columns)
    assert summary.head == ("suite", "good", "similar", "bad")
    assert [row[0] for row in summary.rows] == ["sts, mean of 1 year, Pearson", "pairs, mean of 2 sets, Pearson"]
    values = {score.name: score.value for score in report.columns[0].scores}
    for row, mean in zip(
        summary.rows, (values["sts/mean"], np.mean([values["pairs/a"], values["pairs/b"]])), strict=True
    ):
        value, interval = row[1].split("\n")
        assert value == f"{100 * mean:.1f}="
        assert float(interval[1:5]) < 100 * mean < float(interval[-5:-1])

    assert compare(candidates[:1], suites).json()["comparisons"] == []
    unsampled = compare(candidates, suites, resamples=0)
    assert unsampled.json()["comparisons"] == []
    assert "†" not in unsampled.markdown()


def test_what_is_written(encoder, tmp_path):
    suites = [replace(sts(y2012=PAPERS_STS["2012"], y2013=("OnWN",)), notes=("a note",)), single("sick")]
    report = compare([Candidate("a|b", "pipes", encoder, "avg")], suites)
    assert [("a note" in table.notes) for table in report.tables(brief=True)] == [True, False]
    assert (report.notes, report.json()["notes"]) == ((), ["a note"])
    data, text, table = report.write(tmp_path / "deep" / "out")
    saved = json.loads(data.read_text())
    score = report.columns[0].scores[0]
    ours = saved["encoders"][0]["scores"]["sts/2012/MSRpar"]
    assert (ours["pearson"], ours["num_pairs"]) == (score.pearson, 4)
    assert (ours["label"], ours["measure"], ours["num_sets"]) == ("2012 MSRpar", "pearson", 1)
    mean = saved["encoders"][0]["scores"]["sts/mean"]
    assert (mean["members"], mean["num_sets"]) == (["sts/2012/mean", "sts/2013/mean"], 6)
    assert saved["encoders"][0]["scores"]["sts/2012/pooled"]["num_sets"] == 5
    assert report.num_sets()["sts/mean"] == 6
    assert ours["intervals"]["pearson"] == list(score.intervals["pearson"])
    assert ours["intervals"]["pearson"][0] <= score.pearson <= ours["intervals"]["pearson"][1]
    (psl,) = [row for row in saved["published"] if (row["table"], row["name"]) == ("table 2", "PSL")]
    assert psl["scores"]["sts/2012/mean"] == 52.8
    assert psl["recomputed"] == ["sts/2013/mean", "sts/mean", "sts/mean-of-sets"]
    lines = text.read_text().splitlines()
    assert "* a|b: pipes" in lines
    assert any(line.startswith("| sts | pairs | a\\|b | 95 % |") for line in lines)
    assert sum(line.startswith("| **") for line in lines) == 4
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    (row,) = [row for row in rows if (row["whose"], row["score"], row["measure"]) == ("a|b", "sick/test", "pearson")]
    assert float(row["value"]) == report.metrics()["sick/test/pearson"]
    (row,) = [row for row in rows if row["whose"].endswith("table 2: PSL") and row["score"] == "sts/2013/mean"]
    assert (row["value"], row["remark"]) == ("0.48", "recomputed over the same sets")
    assert {row["sets"] for row in rows if row["score"] == "sts/mean-of-sets" and row["sets"]} == {"6"}
    assert {row["pairs"] for row in rows if row["score"] == "sts/mean-of-sets" and row["pairs"]} == {"24"}
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"file is a file, .*folder"):
        report.write(tmp_path / "file")
