"""Score of each set against its share of unknown words (Wieting 2016 §5.1)."""

from dataclasses import dataclass

import numpy as np

from paraembed.evaluation.analyses.content import CannotMakeError, Content, Heading, Inputs, Table, cell
from paraembed.evaluation.analyses.drawing import colour, marker, new_figure, plain_text, tidy, to_png
from paraembed.evaluation.analyses.pools import text_pools
from paraembed.evaluation.correlation import Vector, spearman
from paraembed.papers.results import find_row

HEADING = Heading("unknown-words", "Score and unknown words", "Wieting 2016, §5.1")
UPPER_QUARTILE = find_row("Wieting 2016 table 2: 75th percentile of the task").values
"""Name of a set → 75th percentile of the systems that took part in the task, Pearson × 100."""
_LEAST_SETS = 3


@dataclass(frozen=True)
class Points:
    """The k sets of one candidate.

    Attributes:
        label: of the candidate.
        names: of the sets.
        unknown: share of unknown tokens, in %, [k].
        score: Pearson × 100, [k].
    """

    label: str
    names: tuple[str, ...]
    unknown: Vector
    score: Vector

    @property
    def deviation(self) -> Vector:
        """Score less the 75th percentile of the task's systems, [k]; NaN where none was printed."""
        quartiles: Vector = np.array([UPPER_QUARTILE.get(name, np.nan) for name in self.names])
        return np.subtract(self.score, quartiles)


def rank_correlation(unknown: Vector, values: Vector) -> float:
    """Spearman's ρ over the sets that have a value; NaN for fewer than three, or where one side is constant."""
    there = ~np.isnan(values)
    if there.sum() < _LEAST_SETS:
        return np.nan
    try:
        return spearman(unknown[there], values[there])
    except ValueError:
        return np.nan


def make(inputs: Inputs) -> Content:
    """A point a set, for each candidate that counts unknown words."""
    names = list(dict.fromkeys(name for pool in text_pools(inputs) for name in pool.sets))
    points = []
    for column in inputs.report.columns:
        scores = {score.name: score for score in column.scores}
        there = [name for name in names if scores[name].num_tokens and not np.isnan(scores[name].pearson)]
        unknown = np.array([100 * scores[name].unknown_share for name in there])
        points.append(Points(column.label, tuple(there), unknown, np.array([100 * scores[n].pearson for n in there])))
    points = [one for one in points if len(one.names) >= _LEAST_SETS]
    if not points:
        raise CannotMakeError(
            f"it needs {_LEAST_SETS} sets of sentences or more, and an encoder that counts unknown words"
        )
    rows = tuple(
        (one.label, name, float(one.unknown[at]), float(one.score[at]), cell(float(one.deviation[at])))
        for one in points
        for at, name in enumerate(one.names)
    )
    head = ("encoder", "set", "unknown, %", "Pearson", "against the 75th percentile")
    correlations = []
    for one in points:
        (sets, rho), (with_quartile, deviation_rho) = (_correlation(one, part) for part in (one.score, one.deviation))
        correlations.append((one.label, sets, cell(rho), with_quartile, cell(deviation_rho)))
    text = (
        "Each point is a set. Right: Pearson's r × 100 less the 75th percentile of the systems that took part in the "
        "task, as in the paper, whose ρ × 100 is -45.1 (it counts words that stand in its training pairs fewer than a "
        "hundred times; here a word counts that has no vector)."
    )
    tables = (
        Table(
            f"{HEADING.name}-correlation",
            "rank correlation",
            ("encoder", "sets", "ρ with the score", "sets with a 75th percentile", "ρ with the deviation"),
            tuple(correlations),
        ),
        Table(HEADING.name, "sets", head, rows),
    )
    return Content(text, tables, draw(points))


@plain_text
def draw(points: list[Points]) -> bytes:
    """A PNG: scores left, deviations right."""
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    for number, one in enumerate(points):
        for axes, values in ((left, one.score), (right, one.deviation)):
            sets, rho = _correlation(one, values)
            said = "" if np.isnan(rho) else f" (ρ {rho:.1f} over {sets} sets)"
            look = {"color": colour(number), "marker": marker(number), "s": 30, "alpha": 0.8}
            axes.scatter(one.unknown, values, label=f"{one.label}{said}", **look)
    for axes, title in ((left, "Pearson's r × 100"), (right, "less the 75th percentile of the task's systems")):
        axes.set_xlabel("tokens without a vector, %", fontsize=9)
        axes.legend(frameon=False, fontsize=8)
        tidy(axes, title)
    right.axhline(0, color="#000000", linewidth=0.8)
    return to_png(figure)


def _correlation(one: Points, values: Vector) -> tuple[int, float]:
    """How many sets have a value [k], and Spearman's ρ × 100 of those with the unknown words."""
    return int((~np.isnan(values)).sum()), 100 * rank_correlation(one.unknown, values)
