"""Published results of the papers on the sets that this project scores, by table and row, ×100, and of their analyses.

Of the 22-set means of Wieting 2017, "oracle" rows were selected on these sets, the others on STS 2016.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

PAPERS_STS = {
    "2012": ("MSRpar", "MSRvid", "OnWN", "SMTeuroparl", "SMTnews"),
    "2013": ("FNWN", "OnWN", "SMT", "headlines"),
    "2014": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "2015": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "2016": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
"""Sets in the papers' means (Wieting 2016, 2017), with their official file names."""

PAPERS_22 = "papers-22/mean"
"""Mean that Wieting 2016 and 2017 print for an encoder: over the 20 sets of STS 2012 to 2015, SICK and Twitter."""

_YEARS = ("2012", "2013", "2014", "2015")
_SETS = {f"sts/{year}/mean": tuple(f"sts/{year}/{name}" for name in sets) for year, sets in PAPERS_STS.items()}
PAPERS_20 = tuple(name for year in _YEARS for name in _SETS[f"sts/{year}/mean"])
"""Names of the 20 sets of STS 2012 to 2015."""

MEANS = _SETS | {PAPERS_22: (*PAPERS_20, "sick/test", "pit2015/test")}
"""Name of a mean → names of the sets that the papers average."""

Role = Literal["encoder", "baseline", "bound"]


@dataclass(frozen=True)
class Row:
    """One row, or column, of a published table.

    Attributes:
        paper: module of ``paraembed.papers`` with its recipes.
        table: source in the paper, such as ``table 2``.
        name: name in the paper.
        values: score name of this project → value as printed, ×100.
        measure: measure of the values: pearson, spearman or accuracy.
        kind: name of the registered encoder; "" for another.
        role: an encoder that the paper trains, a baseline, or a bound: human agreement, task winners, models trained on
            the same task.
        caveats: score name of this project → why the values are not comparable: other pairs, or selection on the same
            set.
    """

    paper: str
    table: str
    name: str
    values: Mapping[str, float]
    measure: str = "pearson"
    kind: str = ""
    role: Role = "encoder"
    caveats: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Column name: ``Wieting 2016 table 2: PP``."""
        return f"{PAPERS[self.paper]} {self.table}: {self.name}"


PAPERS = {
    "tacl2015": "Wieting 2015",
    "iclr2016": "Wieting 2016",
    "acl2017": "Wieting 2017",
    "pgru2017": "Zhou 2017",
}
"""Paper → its name in tables."""


@dataclass(frozen=True)
class Published:
    """Published value to compare a score with, ×100, and whether it was recomputed over fewer sets."""

    value: float
    is_recomputed: bool = False


def published(row: Row, name: str, members: Mapping[str, Sequence[str]]) -> Published | None:
    """Return the row's value for a score; None if it has none over the same sets. ``members`` names the scores of each
    mean.

    A printed mean is used only if the score is a mean over exactly the same sets; otherwise the mean is recomputed from
    the row's values for the sets of the score.
    """
    if name not in members:
        return Published(row.values[name]) if name in row.values else None
    if name in row.values and set(members[name]) == set(MEANS.get(name, ())):
        return Published(row.values[name])
    parts = [published(row, member, members) for member in members[name]]
    parts_here = [part for part in parts if part is not None]
    if len(parts_here) < len(parts) or not parts:
        return None
    return Published(sum(part.value for part in parts_here) / len(parts_here), is_recomputed=True)


_STS = (
    *("sts/2012/MSRpar", "sts/2012/MSRvid", "sts/2012/SMTeuroparl", "sts/2012/OnWN", "sts/2012/SMTnews"),
    "sts/2012/mean",
    *("sts/2013/headlines", "sts/2013/OnWN", "sts/2013/FNWN", "sts/2013/SMT", "sts/2013/mean"),
    *("sts/2014/deft-forum", "sts/2014/deft-news", "sts/2014/headlines", "sts/2014/images", "sts/2014/OnWN"),
    *("sts/2014/tweet-news", "sts/2014/mean"),
    *("sts/2015/answers-forums", "sts/2015/answers-students", "sts/2015/belief", "sts/2015/headlines"),
    *("sts/2015/images", "sts/2015/mean", "sick/test", "pit2015/test"),
)


def _sts(*values: float) -> dict[str, float]:
    return dict(zip(_STS, values, strict=True))


def _phrases(name: str, pavlick: float, annotated: float | None = None, kind: str = "", role: Role = "encoder") -> Row:
    values = {"phrases/pavlick": pavlick} | ({} if annotated is None else {"phrases/annotated-ppdb": annotated})
    return Row("iclr2016", "table 3", name, values, "spearman", kind, role, _ANNOTATED)


def _selected_phrases(name: str, pavlick: float, annotated: float, oracle: float, kind: str) -> tuple[Row, Row]:
    return _phrases(name, pavlick, annotated, kind), _phrases(f"{name}, oracle", oracle, kind=kind)


def _regularized(table: str, name: str, mean: float, oracle: float, kind: str) -> tuple[Row, Row]:
    return (
        Row("acl2017", table, name, {PAPERS_22: mean}, kind=kind),
        Row("acl2017", table, f"{name}, oracle", {PAPERS_22: oracle}, kind=kind),
    )


def _words(
    name: str,
    simlex: float,
    ws353: Sequence[float],
    kind: str = "",
    role: Role = "encoder",
    tuned_on: Sequence[str] = (),
) -> Row:
    values = dict(zip(("words/simlex999", *_WS353), (simlex, *ws353), strict=True))
    return Row("tacl2015", "table 10", name, values, "spearman", kind, role, dict.fromkeys(tuned_on, _TUNED))


def _annotated(table: str, name: str, value: float, kind: str = "", role: Role = "encoder") -> Row:
    return Row("tacl2015", table, name, {"phrases/annotated-ppdb": value}, "spearman", kind, role, _ANNOTATED)


def _bigrams(
    table: str,
    name: str,
    values: Sequence[float],
    kind: str = "",
    role: Role = "encoder",
    ml_paraphrase: Sequence[float] = (),
) -> Row:
    of_ml = {f"bigrams/{pair}": value for pair, value in zip(_PAIRS, values, strict=True)}
    caveat = "the papers' values are over the test part of these pairs, which is not marked"
    rated = dict(zip(_RATED_AGAIN, ml_paraphrase, strict=bool(ml_paraphrase)))
    return Row("tacl2015", table, name, of_ml | rated, "spearman", kind, role, dict.fromkeys(of_ml, caveat))


def _noun_phrases(name: str, semeval: float, five: float, ten: float, kind: str = "", role: Role = "encoder") -> Row:
    values = {"semeval2013": semeval, "turney/5": five, "turney/10": ten}
    questions = "the paper's values are over 1,500 of these 2,180 questions, which are not marked"
    ties = f"{questions}; its SUM, blind to order, has half of its 5-choice value, so it shares ties"
    fewer = "the paper's values are over 7,814 pairs, of which 7,490 are passed on"
    caveats = {"semeval2013": fewer, "turney/5": questions, "turney/10": ties}
    return Row("pgru2017", "table 1", name, values, "accuracy", kind, role, caveats)


_PAIRS = ("JN", "NN", "VN")
_RATED_AGAIN = tuple(f"bigrams/ml-paraphrase-{pair}" for pair in _PAIRS)
_WS353 = ("words/ws353", "words/ws353-sim", "words/ws353-rel")
_TUNED = "the paper chose these vectors by their score on this very set"
_ANNOTATED = {"phrases/annotated-ppdb": "the papers' values are over 1,000 of these 3,000 pairs, which are not marked"}

# fmt: off
RESULTS = (
    Row("tacl2015", "table 3", "skip-gram 25", {"words/simlex999": 21.0}, "spearman", role="baseline"),
    Row("tacl2015", "table 3", "skip-gram 1000", {"words/simlex999": 38.0}, "spearman", role="baseline"),
    Row("tacl2015", "table 3", "PARAGRAM_WS 25", {"words/simlex999": 56.0}, "spearman", "word"),
    Row("tacl2015", "table 3", "PARAGRAM_WS 25 + constraints", {"words/simlex999": 58.0}, "spearman", "word"),
    Row("tacl2015", "table 3", "Hill 2014b", {"words/simlex999": 44.6}, "spearman", role="baseline"),
    Row("tacl2015", "table 3", "Hill 2014a", {"words/simlex999": 52.0}, "spearman", role="baseline"),
    Row("tacl2015", "table 3", "inter-annotator agreement", {"words/simlex999": 67.0}, "spearman", role="bound"),
    _words("GloVe 300", 37.6, (57.9, 63.0, 57.1), role="baseline"),
    _words("PARAGRAM 300, WS353", 66.7, (76.9, 81.4, 73.0), kind="word", tuned_on=_WS353),
    _words("PARAGRAM 300, SL999", 68.5, (72.0, 77.9, 65.2), kind="word", tuned_on=("words/simlex999",)),
    Row("tacl2015", "table 10", "inter-annotator agreement", {"words/simlex999": 67.0, "words/ws353": 75.6},
        "spearman", role="bound"),
    _bigrams("table 5", "skip-gram 25 +", (36.0, 44.0, 36.0), "", "baseline", (32.0, 35.0, 42.0)),
    _bigrams("table 5", "PARAGRAM 25 +", (44.0, 34.0, 48.0), "sum", ml_paraphrase=(50.0, 29.0, 58.0)),
    _bigrams("table 5", "PARAGRAM 25 RNN", (51.0, 40.0, 50.0), "recursive", ml_paraphrase=(57.0, 44.0, 55.0)),
    _bigrams("table 5", "Hashimoto 2014", (49.0, 45.0, 46.0), "", "baseline", (38.0, 39.0, 45.0)),
    _bigrams("table 5", "Mitchell and Lapata 2010", (46.0, 49.0, 38.0), role="baseline"),
    Row("tacl2015", "table 5", "Human", dict(zip(_RATED_AGAIN, (87.0, 64.0, 73.0), strict=True)), "spearman",
        role="bound"),
    _bigrams("table 2", "Human", (52.0, 49.0, 55.0), role="bound"),
    _bigrams("table 11", "GloVe 300 +", (40.0, 46.0, 37.0), "", "baseline", (39.0, 36.0, 45.0)),
    _bigrams("table 11", "PARAGRAM 300, WS353 +", (52.0, 41.0, 49.0), "sum", ml_paraphrase=(55.0, 42.0, 55.0)),
    _bigrams("table 11", "PARAGRAM 300, SL999 +", (51.0, 36.0, 51.0), "sum", ml_paraphrase=(57.0, 39.0, 59.0)),
    _annotated("table 6", "skip-gram 25 +", 20.0, role="baseline"),
    _annotated("table 6", "PARAGRAM 25 +", 32.0, kind="sum"),
    _annotated("table 6", "PARAGRAM 25 RNN", 40.0, kind="recursive"),
    _annotated("table 6", "PPDB confidence", 25.0, role="baseline"),
    _annotated("table 6", "word overlap (strict)", 26.0, role="baseline"),
    _annotated("table 6", "word overlap (lemmatized)", 20.0, role="baseline"),
    _annotated("table 6", "PPDB + SVR", 33.0, role="baseline"),
    _annotated("table 12", "PARAGRAM 300, WS353 +", 40.0, kind="sum"),
    _annotated("table 12", "PARAGRAM 300, SL999 +", 41.0, kind="sum"),
    Row("iclr2016", "table 2", "median of the task", _sts(
        51.5, 75.5, 44.4, 60.8, 40.1, 54.5,
        64.0, 52.8, 32.7, 31.8, 45.3,
        36.6, 66.2, 67.1, 75.6, 78.0, 64.7, 64.7,
        61.3, 67.6, 67.7, 74.2, 80.4, 70.2, 71.4, 49.9,
    ), role="bound"),
    Row("iclr2016", "table 2", "75th percentile of the task", _sts(
        57.6, 80.3, 48.1, 65.9, 45.4, 59.5,
        68.3, 64.8, 38.1, 34.6, 51.4,
        46.8, 74.0, 75.4, 79.0, 81.1, 72.2, 71.4,
        68.2, 73.6, 72.2, 80.8, 84.3, 75.8, 79.9, 52.5,
    ), role="bound"),
    Row("iclr2016", "table 2", "best of the task", _sts(
        73.4, 88.0, 56.7, 72.7, 60.9, 70.3,
        78.4, 84.3, 58.2, 40.4, 65.3,
        53.1, 78.5, 78.4, 83.4, 87.5, 79.2, 76.7,
        73.9, 78.8, 77.2, 84.2, 87.1, 80.2, 82.8, 61.9,
    ), role="bound"),
    Row("iclr2016", "table 2", "PP", _sts(
        42.6, 74.5, 47.3, 70.6, 58.4, 58.7,
        72.4, 67.7, 43.9, 39.2, 55.8,
        48.7, 73.1, 69.7, 78.5, 78.8, 76.4, 70.9,
        68.3, 78.2, 76.2, 74.8, 81.4, 75.8, 71.6, 52.9,
    ), kind="avg"),
    Row("iclr2016", "table 2", "proj.", _sts(
        43.7, 74.0, 49.4, 70.1, 62.8, 60.0,
        72.6, 68.0, 46.8, 39.8, 56.8,
        51.1, 72.2, 70.8, 78.1, 79.5, 75.8, 71.3,
        65.1, 77.8, 75.4, 75.2, 80.3, 74.8, 71.6, 52.8,
    ), kind="proj"),
    Row("iclr2016", "table 2", "DAN", _sts(
        40.3, 70.0, 43.8, 65.9, 60.0, 56.0,
        71.2, 64.1, 43.1, 38.3, 54.2,
        49.0, 71.7, 69.2, 76.9, 75.7, 74.2, 69.5,
        62.6, 78.1, 72.0, 73.5, 77.5, 72.7, 70.7, 53.7,
    ), kind="dan"),
    Row("iclr2016", "table 2", "RNN", _sts(
        18.6, 66.5, 40.9, 63.1, 51.3, 48.1,
        59.5, 54.6, 30.9, 33.8, 44.7,
        41.5, 53.7, 57.5, 67.6, 67.7, 58.0, 57.7,
        32.8, 64.7, 51.9, 65.3, 71.4, 57.2, 61.2, 45.1,
    ), kind="rnn"),
    Row("iclr2016", "table 2", "iRNN", _sts(
        43.4, 73.4, 47.1, 70.1, 58.1, 58.4,
        72.8, 69.4, 45.3, 39.4, 56.7,
        49.0, 72.4, 70.2, 78.2, 78.8, 76.9, 70.9,
        67.4, 78.2, 75.9, 75.1, 81.1, 75.6, 71.2, 52.9,
    ), kind="irnn"),
    Row("iclr2016", "table 2", "LSTM (no o.g.)", _sts(
        16.1, 71.3, 41.8, 65.2, 60.8, 51.0,
        57.4, 68.5, 24.7, 30.1, 45.2,
        44.2, 52.8, 57.5, 68.5, 76.9, 58.7, 59.8,
        51.9, 71.5, 61.7, 64.0, 70.4, 63.9, 63.9, 47.6,
    ), kind="lstm"),
    Row("iclr2016", "table 2", "LSTM (o.g.)", _sts(
        9.3, 71.3, 44.3, 56.4, 51.0, 46.4,
        48.5, 50.4, 38.4, 28.8, 41.5,
        46.1, 39.1, 50.9, 62.9, 61.7, 48.2, 51.5,
        50.7, 55.7, 52.6, 56.6, 64.2, 56.0, 59.0, 36.1,
    ), kind="lstm"),
    Row("iclr2016", "table 2", "skip-thought", _sts(
        16.8, 41.7, 35.2, 29.7, 30.8, 30.8,
        34.6, 10.0, 30.4, 24.3, 24.8,
        12.9, 23.5, 37.8, 51.2, 23.3, 39.9, 31.4,
        36.1, 33.0, 24.6, 43.6, 17.7, 31.0, 49.8, 24.7,
    ), role="baseline"),
    Row("iclr2016", "table 2", "GloVe", _sts(
        47.7, 63.9, 46.0, 55.1, 49.6, 52.5,
        63.8, 49.0, 34.2, 22.3, 42.3,
        27.1, 68.0, 59.5, 61.0, 58.4, 51.2, 54.2,
        30.5, 63.0, 40.5, 61.8, 67.5, 52.7, 65.9, 30.3,
    ), role="baseline"),
    Row("iclr2016", "table 2", "PSL", _sts(
        41.6, 60.0, 42.4, 63.0, 57.0, 52.8,
        68.8, 48.0, 37.9, 31.0, 46.4,
        37.2, 67.0, 65.3, 62.0, 61.1, 64.7, 59.5,
        38.8, 69.2, 53.2, 69.0, 69.9, 60.0, 66.4, 36.3,
    ), role="baseline"),
    Row("iclr2016", "table 4", "PP-XXL", _sts(
        44.8, 79.6, 49.5, 70.4, 63.3, 61.5,
        73.9, 73.8, 47.7, 40.4, 58.9,
        53.4, 74.4, 71.5, 80.4, 81.5, 77.4, 73.1,
        69.1, 78.0, 78.2, 76.4, 83.4, 77.0, 72.7, 52.4,
    ), kind="avg"),
    *_selected_phrases("PP", 60.0, 53.5, 60.3, "avg"),
    *_selected_phrases("projection", 58.4, 52.8, 61.0, "proj"),
    *_selected_phrases("DAN", 60.1, 52.3, 60.9, "dan"),
    *_selected_phrases("RNN", 60.3, 51.8, 60.5, "rnn"),
    *_selected_phrases("iRNN", 60.0, 53.9, 60.3, "irnn"),
    *_selected_phrases("LSTM (no o.g.)", 61.3, 53.4, 61.6, "lstm"),
    *_selected_phrases("LSTM (o.g.)", 60.9, 52.9, 61.5, "lstm"),
    _phrases("skip-thought", 39.3, 31.9, role="baseline"),
    _phrases("GloVe", 44.8, 25.3, role="baseline"),
    _phrases("PSL", 55.3, 40.4, role="baseline"),
    Row("acl2017", "table 4", "LSTM-AVG", _sts(
        49.0, 84.3, 51.2, 71.5, 68.0, 64.8,
        77.3, 81.2, 53.2, 40.7, 63.1,
        56.6, 78.0, 74.5, 84.7, 84.9, 76.3, 75.8,
        71.8, 71.1, 75.3, 79.5, 85.8, 76.7, 71.3, 52.1,
    ), kind="lstm_avg"),
    Row("acl2017", "table 4", "AVG", _sts(
        45.9, 85.1, 47.5, 71.2, 58.2, 61.6,
        76.9, 72.8, 50.2, 38.0, 59.4,
        55.6, 78.5, 75.1, 85.6, 81.4, 78.7, 75.8,
        70.6, 75.8, 76.8, 80.3, 86.0, 77.9, 72.4, 52.1,
    ), kind="avg"),
    Row("acl2017", "table 4", "GRAN", _sts(
        47.7, 85.2, 49.3, 71.5, 58.7, 62.5,
        76.1, 81.4, 55.6, 40.3, 63.4,
        55.7, 77.1, 72.8, 85.8, 85.1, 78.7, 75.9,
        73.1, 72.9, 78.0, 78.6, 85.8, 77.7, 72.9, 50.2,
    ), kind="gran"),
    Row("iclr2016", "§6", "PP", {PAPERS_22: 66.83}, kind="avg"),
    Row("iclr2016", "§6", "PSL", {PAPERS_22: 54.94}, role="baseline"),
    Row("iclr2016", "§6", "PSL, words weighted by |PP|₁", {PAPERS_22: 62.64}, role="baseline"),
    Row("iclr2016", "§6", "PSL, one learned scalar a word", {PAPERS_22: 62.06}, kind="scaled_avg"),
    Row("iclr2016", "§6", "PSL, inverse-frequency weights", {PAPERS_22: 45.52}, role="baseline"),
    Row("acl2017", "table 1", "AVG, PPDB", {PAPERS_22: 67.7}, kind="avg"),
    Row("acl2017", "table 1", "AVG, SimpWiki", {PAPERS_22: 68.4}, kind="avg"),
    Row("acl2017", "table 1", "LSTM, PPDB", {PAPERS_22: 54.2}, kind="lstm"),
    Row("acl2017", "table 1", "LSTM, SimpWiki", {PAPERS_22: 59.3}, kind="lstm"),
    Row("acl2017", "table 1", "LSTM-AVG, PPDB", {PAPERS_22: 64.2}, kind="lstm_avg"),
    Row("acl2017", "table 1", "LSTM-AVG, SimpWiki", {PAPERS_22: 67.5}, kind="lstm_avg"),
    *_regularized("table 2", "AVG, none", 68.4, 68.5, "avg"),
    *_regularized("table 2", "AVG, dropout", 68.3, 68.4, "avg"),
    *_regularized("table 2", "AVG, word dropout", 68.3, 68.3, "avg"),
    *_regularized("table 2", "LSTM, none", 59.3, 60.6, "lstm"),
    *_regularized("table 2", "LSTM, L2", 56.5, 60.3, "lstm"),
    *_regularized("table 2", "LSTM, dropout", 55.3, 58.1, "lstm"),
    *_regularized("table 2", "LSTM, word dropout", 65.3, 66.2, "lstm"),
    *_regularized("table 2", "LSTM, scrambling", 65.1, 66.3, "lstm"),
    *_regularized("table 2", "LSTM, dropout, scrambling", 68.4, 68.4, "lstm"),
    *_regularized("table 2", "LSTM-AVG, none", 67.5, 67.7, "lstm_avg"),
    *_regularized("table 2", "LSTM-AVG, dropout, scrambling", 68.6, 69.2, "lstm_avg"),
    *_regularized("table 2", "BiLSTM-AVG, dropout, scrambling", 68.7, 69.4, "bilstm_avg"),
    *_regularized("table 3", "GRAN (no reg.)", 68.0, 68.0, "gran"),
    *_regularized("table 3", "GRAN", 68.9, 69.5, "gran"),
    *_regularized("table 3", "GRAN-2", 68.1, 68.8, "gran2"),
    *_regularized("table 3", "GRAN-3", 67.2, 69.0, "gran3"),
    *_regularized("table 3", "GRAN-4", 68.1, 68.6, "gran4"),
    *_regularized("table 3", "GRAN-5", 64.8, 66.1, "gran5"),
    *_regularized("table 3", "BiGRAN", 68.4, 69.7, "bigran"),
    _noun_phrases("SUM", 65.46, 39.58, 19.79, kind="sum", role="baseline"),
    _noun_phrases("RAE", 51.75, 22.99, 14.81, role="baseline"),
    _noun_phrases("FCT(LM)", 67.22, 42.59, 27.55, role="baseline"),
    _noun_phrases("GRU(PPDB)", 71.29, 41.44, 26.37, kind="gru"),
    _noun_phrases("Tree-RNN, trained on the task", 71.5, 40.95, 27.2, kind="recursive"),
    _noun_phrases("FCT, trained on the task", 68.84, 41.9, 33.8, role="bound"),
    _noun_phrases("GRU, trained on the task", 73.44, 48.88, 39.23, kind="gru"),
    Row("pgru2017", "§3.1", "AVG", {"choose/100": 88.0}, "accuracy", "avg", "baseline",
        caveats={"choose/100": "the paper's value is over its own held-out pairs of PPDB S"}),
)
# fmt: on
"""All published rows. The vectors PARAGRAM_WS of table 3 were selected by 2·WS-S - WS-R, not on SimLex-999."""

BY_LENGTH = {
    "paragram-phrase": (72.7, 74.0, 70.5, 73.7, 75.5, 73.0, 72.6),
    "LSTM, no output gate": (63.4, 54.5, 52.6, 56.9, 60.2, 58.0, 55.6),
    "LSTM, output gate": (58.8, 48.4, 48.2, 50.6, 52.4, 48.8, 53.8),
    "paragram-sl999": (66.3, 65.0, 50.1, 56.4, 60.1, 58.8, 58.4),
}
"""Wieting 2016 table 7: Pearson × 100 by tokens of the longer text: ≤ 4, 5, …, 9, ≥ 10. Measured over the 12,108 pairs
of the 20 STS sets of 2012 to 2015; the encoders are not those of table 2.
"""

MARGINS = {"paragram-phrase": 0.7535, "proj": 0.7572, "LSTM, output gate": 0.7565, "LSTM, no output gate": 0.7463}
"""Wieting 2016 §5: means of 2·cos(g1, g2) - cos(n1, g1) - cos(n2, g2) over PPDB XL, the training data of these
encoders.
"""


def find_row(label: str) -> Row:
    """Return the row with a label, such as ``Wieting 2016 table 2: PP``; raise KeyError unless exactly one has it."""
    rows = [row for row in RESULTS if row.label == label]
    if len(rows) != 1:
        raise KeyError(label)
    return rows[0]
