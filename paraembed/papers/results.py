"""Published results of the papers on the sets that this project scores, by table and row, ×100, and of their analyses.

Of the 22-set means of Wieting 2017, "oracle" rows were selected on these sets, the others on STS 2016.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(frozen=True)
class Row:
    """One row, or column, of a published table."""

    paper: str  # module of ``paraembed.papers`` with its recipes
    table: str  # source in the paper, such as ``table 2``
    name: str  # name in the paper
    values: Mapping[str, float]  # score name of this project → value as printed, ×100
    # Measure of the values: pearson, spearman or accuracy; "" for that of a task with labeled examples.
    measure: str = "pearson"
    kind: str = ""  # name of the registered encoder; "" for another
    # An encoder that the paper trains, a baseline, or a bound: human agreement, task winners, models trained on the
    # same task.
    role: str = "encoder"
    mode: str = ""  # mode of a model that learned from labeled examples: scratch, universal or features; "" for others
    # Score name of this project → why the values are not comparable: other pairs, or selection on the same set.
    caveats: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Column name: ``Wieting 2016 table 2: PP``."""
        return f"{PAPERS[self.paper]} {self.table}: {self.name}"


PAPERS = {"tacl2015": "Wieting 2015", "iclr2016": "Wieting 2016", "acl2017": "Wieting 2017", "pgru2017": "Zhou 2017"}
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


def _read_tables(path: Path) -> Iterator[Row]:
    """Yield the rows of ``results.tsv``, whose sections are separated by empty lines.

    The first section is the caveats, each with its letter. Each other section is a table: a line with the paper and the
    source, the measure, the mode and the names of the scores, then lines of a name, an encoder, a role and the values,
    each followed by the letter of its caveat.
    """
    notes, *tables = path.read_text(encoding="utf-8").split("\n\n")
    caveats = dict(line.split("\t") for line in notes.splitlines())
    letters = "".join(caveats)
    for table in tables:
        (source, measure, mode, *names), *lines = (line.split("\t") for line in table.splitlines())
        paper, _, source = source.partition(" ")
        for name, kind, role, *cells in lines:
            by_name = {score: cell for score, cell in zip(names, cells, strict=False) if cell}
            values = {score: float(cell.rstrip(letters)) for score, cell in by_name.items()}
            why = {score: caveats[cell[-1]] for score, cell in by_name.items() if cell[-1] in caveats}
            yield Row(paper, source, name, values, measure, kind, role, mode, why)


RESULTS = tuple(_read_tables(Path(__file__).with_name("results.tsv")))
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
