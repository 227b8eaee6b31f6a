"""The published values: as printed, and in agreement with themselves."""

import numpy as np
import pytest

from paraembed.encoders import ENCODERS
from paraembed.evaluation.suites import SUITES
from paraembed.papers.results import BY_LENGTH, MARGINS, MEANS, PAPERS, PAPERS_22, RESULTS, Row, find_row, published

SPOTS = [  # read off the papers, one value of many tables
    ("Wieting 2016 table 2: PP", "sts/2012/mean", 58.7),
    ("Wieting 2016 table 2: proj.", "sick/test", 71.6),
    ("Wieting 2016 table 2: DAN", "pit2015/test", 53.7),
    ("Wieting 2016 table 2: LSTM (o.g.)", "sts/2014/mean", 51.5),
    ("Wieting 2016 table 4: PP-XXL", "sts/2015/mean", 77),
    ("Wieting 2016 table 2: GloVe", "sts/2013/mean", 42.3),
    ("Wieting 2016 §6: PSL", PAPERS_22, 54.94),
    ("Wieting 2016 §6: PSL, one learned scalar a word", PAPERS_22, 62.06),
    ("Wieting 2016 table 3: PP", "phrases/annotated-ppdb", 53.5),
    ("Wieting 2016 table 3: LSTM (o.g.)", "phrases/pavlick", 60.9),
    ("Wieting 2017 table 4: GRAN", "sts/2012/mean", 62.5),
    ("Wieting 2017 table 3: BiGRAN, oracle", PAPERS_22, 69.7),
    ("Wieting 2017 table 2: LSTM, word dropout", PAPERS_22, 65.3),
    ("Wieting 2015 table 10: PARAGRAM 300, SL999", "words/simlex999", 68.5),
    ("Wieting 2015 table 5: PARAGRAM 25 RNN", "bigrams/NN", 40),
    ("Wieting 2015 table 6: word overlap (strict)", "phrases/annotated-ppdb", 26),
    ("Wieting 2015 table 12: PARAGRAM 300, SL999 +", "phrases/annotated-ppdb", 41),
    ("Zhou 2017 table 1: GRU(PPDB)", "turney/5", 41.44),
    ("Zhou 2017 §3.1: AVG", "choose/100", 88),
]


@pytest.mark.parametrize(("label", "score", "printed"), SPOTS)
def test_as_printed(label, score, printed):
    (row,) = [row for row in RESULTS if row.label == label and score in row.values]
    assert row.values[score] == pytest.approx(printed)


def test_analyses_as_printed():
    assert BY_LENGTH["paragram-phrase"] == (72.7, 74.0, 70.5, 73.7, 75.5, 73.0, 72.6)
    assert {len(printed) for printed in BY_LENGTH.values()} == {7}
    assert tuple(MARGINS.values()) == (0.7535, 0.7572, 0.7565, 0.7463)


BY_SET = [row for row in RESULTS if "sts/2012/MSRpar" in row.values]


@pytest.mark.parametrize("row", BY_SET, ids=lambda row: row.label)
def test_printed_year_means_are_the_means_of_the_printed_sets(row):
    """A slip in one of the 22 values would show; the papers cut or round to one decimal."""
    for year in ("2012", "2013", "2014", "2015"):
        mean = np.mean([row.values[name] for name in MEANS[f"sts/{year}/mean"]])
        assert row.values[f"sts/{year}/mean"] == pytest.approx(mean, abs=0.1), year
    assert len(row.values) == 26


def test_rows_name_what_there_is():
    assert len(BY_SET) == 17
    for row in RESULTS:
        assert row.paper in PAPERS
        assert not row.kind or row.kind in ENCODERS
        assert set(row.caveats) >= set(row.values) & {"semeval2013", "turney/5", "bigrams/JN", "phrases/annotated-ppdb"}
        assert all(0 < one < 100 for one in row.values.values())
    named = {name.split("/")[0] for row in RESULTS if row.role == "baseline" for name in row.values}
    assert named >= {*SUITES}  # every suite has something to beat
    assert len({(row.label, *row.values) for row in RESULTS}) == len(RESULTS)
    tuned = {row.name: {*row.caveats} for row in RESULTS if row.table == "table 10" and row.kind == "word"}
    of_ws353 = {"words/ws353", "words/ws353-sim", "words/ws353-rel"}
    assert tuned == {"PARAGRAM 300, WS353": of_ws353, "PARAGRAM 300, SL999": {"words/simlex999"}}


def test_a_row_by_its_label():
    assert find_row("Wieting 2016 table 2: 75th percentile of the task").values["sts/2013/FNWN"] == 38.1
    for label in ("Wieting 2016 table 2: PPP", "Wieting 2015 table 10"):
        with pytest.raises(KeyError, match=label):
            find_row(label)


def test_a_value_of_a_mean_by_hand():
    row = Row("iclr2016", "table 0", "x", {"sts/2013/OnWN": 60.0, "sts/2013/SMT": 30.0, "sts/2013/mean": 50.0})
    every = {"sts/2013/mean": MEANS["sts/2013/mean"]}
    two = {"sts/2013/mean": ("sts/2013/SMT", "sts/2013/OnWN"), "sts/mean": ("sts/2013/mean",)}
    three = {"sts/2013/mean": ("sts/2013/SMT", "sts/2013/OnWN", "sts/2013/FNWN")}
    whole, fewer, above = (
        published(row, "sts/2013/mean", every),
        *(published(row, name, two) for name in ("sts/2013/mean", "sts/mean")),
    )
    assert whole is not None
    assert (whole.value, whole.is_recomputed) == (50.0, False)
    assert fewer == above
    assert fewer is not None
    assert (fewer.value, fewer.is_recomputed) == (45.0, True)
    assert published(row, "sts/2013/mean", three) is None
    assert published(row, "sick/test", every) is None
