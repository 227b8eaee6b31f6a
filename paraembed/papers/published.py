"""A row of a published table, under the names that our scores have, and its value for a mean over fewer sets."""

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
"""The sets behind the papers' means (Wieting 2016, 2017), under their official file names."""

PAPERS_22 = "papers-22/mean"
"""The mean that Wieting 2016 and 2017 print for an encoder: over the 20 sets of STS 2012 to 2015, SICK and Twitter."""

_YEARS = ("2012", "2013", "2014", "2015")
_SETS = {f"sts/{year}/mean": tuple(f"sts/{year}/{one}" for one in sets) for year, sets in PAPERS_STS.items()}
PAPERS_20 = tuple(one for year in _YEARS for one in _SETS[f"sts/{year}/mean"])
"""Names of the 20 sets of STS 2012 to 2015."""

MEANS = _SETS | {PAPERS_22: (*PAPERS_20, "sick/test", "pit2015/test")}
"""Name of a mean → names of the sets that the papers take it over."""

Role = Literal["encoder", "baseline", "bound"]


@dataclass(frozen=True)
class Row:
    """One row, or column, of a published table.

    Attributes:
        paper: module of ``paraembed.papers`` with its recipes.
        table: where it stands: ``table 2``.
        name: what the paper calls it.
        values: name of our score → value as printed, ×100.
        measure: what they are.
        kind: name of the registered encoder; "" for another.
        role: an encoder that the paper trains, something it has to beat, or a bound: agreement of people,
            task winners, models trained on the very task.
        caveats: name of our score → why the two do not compare: other pairs, or chosen on that very set.
    """

    paper: str
    table: str
    name: str
    values: Mapping[str, float]
    measure: Literal["pearson", "spearman", "accuracy"] = "pearson"
    kind: str = ""
    role: Role = "encoder"
    caveats: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Head of its column: ``Wieting 2016 table 2: PP``."""
        return f"{PAPERS[self.paper]} {self.table}: {self.name}"


PAPERS = {
    "tacl2015": "Wieting 2015",
    "iclr2016": "Wieting 2016",
    "acl2017": "Wieting 2017",
    "pgru2017": "Zhou 2017",
}
"""Paper → how it is named in tables."""


@dataclass(frozen=True)
class Published:
    """A published value that may stand beside a score of ours: ×100, and whether it was recomputed over fewer sets."""

    value: float
    is_recomputed: bool = False


def published(row: Row, name: str, members: Mapping[str, Sequence[str]]) -> Published | None:
    """The row's value for a score, None where it has none over the same sets.

    A mean stands for itself only where ours is over the very sets of the paper's; else it is recomputed from the row's
    own values of the sets that ours is over.

    Args:
        row: of a published table.
        name: of our score.
        members: name of each of our means → names of the scores it is the mean of.
    """
    if name not in members:
        return Published(row.values[name]) if name in row.values else None
    if name in row.values and set(members[name]) == set(MEANS.get(name, ())):
        return Published(row.values[name])
    parts = [published(row, member, members) for member in members[name]]
    there = [part for part in parts if part is not None]
    if len(there) < len(parts) or not parts:
        return None
    return Published(sum(part.value for part in there) / len(there), is_recomputed=True)
