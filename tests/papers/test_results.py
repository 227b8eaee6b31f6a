"""The published values: as on the sheet of facts, and in agreement with themselves."""

import re
from pathlib import Path

import numpy as np
import pytest

from paraembed.encoders import ENCODERS
from paraembed.evaluation.suites import SUITES
from paraembed.papers.results import BY_LENGTH, MARGINS, MEANS, PAPERS, PAPERS_22, RESULTS, Row, find_row, published

FACTS = Path(__file__).parents[3] / "shared" / "papers" / "FACTS.md"


def value(label: str, score: str) -> float:
    (row,) = [row for row in RESULTS if row.label == label and score in row.values]
    return row.values[score]


SPOTS = [  # text of the sheet, and the value that stands at its star
    (r"Year means \(2012/13/14/15, SICK, Twitter\): PP (*)/", "Wieting 2016 table 2: PP", "sts/2012/mean"),
    (r"proj 60\.0/56\.8/71\.3/74\.8/(*)/52\.8", "Wieting 2016 table 2: proj.", "sick/test"),
    (r"dan 56\.0/54\.2/69\.5/72\.7/70\.7/(*) ", "Wieting 2016 table 2: DAN", "pit2015/test"),
    (r"gate 46\.4/41\.5/(*)/56\.0", "Wieting 2016 table 2: LSTM (o.g.)", "sts/2014/mean"),
    (r"PP-XXL 61\.5/58\.9/73\.1/(*)/72\.7", "Wieting 2016 table 4: PP-XXL", "sts/2015/mean"),
    (r"GloVe 52\.5/(*)/54\.2", "Wieting 2016 table 2: GloVe", "sts/2013/mean"),
    (r"mean Pearson: P16 XL: PP 66\.83, PSL (*) ", "Wieting 2016 §6: PSL", PAPERS_22),
    (r"one learned scalar per word (*);", "Wieting 2016 §6: PSL, one learned scalar a word", PAPERS_22),
    (r"PP 60\.3/60\.0/(*) ", "Wieting 2016 table 3: PP", "phrases/annotated-ppdb"),
    (r"gate 61\.5/(*)/52\.9", "Wieting 2016 table 3: LSTM (o.g.)", "phrases/pavlick"),
    (r"LSTM-AVG/AVG/GRAN year means: 64\.8/61\.6/(*),", "Wieting 2017 table 4: GRAN", "sts/2012/mean"),
    (r"BiGRAN (*)/68\.4", "Wieting 2017 table 3: BiGRAN, oracle", PAPERS_22),
    (r"word dropout 66\.2/(*), scrambling", "Wieting 2017 table 2: LSTM, word dropout", PAPERS_22),
    (r"WS353 \.769 / SL999 \.(*) ", "Wieting 2015 table 10: PARAGRAM 300, SL999", "words/simlex999"),
    (r"RNN \.51 \.(*) \.50 /", "Wieting 2015 table 5: PARAGRAM 25 RNN", "bigrams/NN"),
    (r"strict overlap \.(*), ", "Wieting 2015 table 6: word overlap (strict)", "phrases/annotated-ppdb"),
    (r"300-d \+ \.40/\.(*)\.", "Wieting 2015 table 12: PARAGRAM 300, SL999 +", "phrases/annotated-ppdb"),
    (r"GRU\(PPDB\) 71\.29/(*)/26\.37", "Zhou 2017 table 1: GRU(PPDB)", "turney/5"),
    (r"100-choose-1: AVG (*) %", "Zhou 2017 §3.1: AVG", "choose/100"),
]


@pytest.mark.skipif(not FACTS.is_file(), reason=f"the sheet of facts is not there: {FACTS}")
@pytest.mark.parametrize(("text", "label", "score"), SPOTS)
def test_as_on_the_sheet(text: str, label: str, score: str) -> None:
    found = re.search(text.replace("(*)", r"([\d.]+?)").replace(" ", r"\s+"), FACTS.read_text())
    assert found, text
    # Correlations of 2015 are printed as .685 there, those of the others ×100.
    stated = 100 * float(f"0.{found[1]}") if text.count(r"\.(*)") else float(found[1])
    assert value(label, score) == pytest.approx(stated)


@pytest.mark.skipif(not FACTS.is_file(), reason=f"the sheet of facts is not there: {FACTS}")
def test_analyses_as_on_the_sheet() -> None:
    facts = FACTS.read_text()
    by_length = re.search(r"≤4,5,6,7,8,9,≥10: PP ([\d. ]+?)\. ", facts)
    assert by_length
    assert BY_LENGTH["paragram-phrase"] == tuple(float(one) for one in by_length[1].split())
    assert {len(printed) for printed in BY_LENGTH.values()} == {7}
    margins = re.search(r"on XL: ([\d.]+) PP, ([\d.]+) proj, ([\d.]+)/([\d.]+) LSTM", facts)
    assert margins
    assert tuple(MARGINS.values()) == tuple(float(one) for one in margins.groups())


BY_SET = [row for row in RESULTS if "sts/2012/MSRpar" in row.values]


@pytest.mark.parametrize("row", BY_SET, ids=lambda row: row.label)
def test_printed_year_means_are_the_means_of_the_printed_sets(row: Row) -> None:
    """A slip in one of the 22 values would show; the papers cut or round to one decimal."""
    for year in ("2012", "2013", "2014", "2015"):
        mean = np.mean([row.values[name] for name in MEANS[f"sts/{year}/mean"]])
        assert row.values[f"sts/{year}/mean"] == pytest.approx(mean, abs=0.1), year
    assert len(row.values) == 26


def test_rows_name_what_there_is() -> None:
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


def test_a_row_by_its_label() -> None:
    assert find_row("Wieting 2016 table 2: 75th percentile of the task").values["sts/2013/FNWN"] == 38.1
    for label in ("Wieting 2016 table 2: PPP", "Wieting 2015 table 10"):
        with pytest.raises(KeyError, match=label):
            find_row(label)


def test_a_value_of_a_mean_by_hand() -> None:
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
