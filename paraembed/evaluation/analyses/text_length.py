"""Score by the length of the longer text (Wieting 2016 table 7)."""

import numpy as np
import numpy.typing as npt

from paraembed.evaluation.analyses.content import Content, Heading, Inputs, Table, cell
from paraembed.evaluation.analyses.drawing import (
    PUBLISHED,
    colour,
    legend_above,
    marker,
    new_figure,
    plain_text,
    tidy,
    to_png,
)
from paraembed.evaluation.analyses.pools import text_pools
from paraembed.evaluation.correlation import Vector, pearson
from paraembed.papers.published import PAPERS_20
from paraembed.papers.results import BY_LENGTH

HEADING = Heading("score-by-length", "Score by length", "Wieting 2016, table 7")
BINS = ("≤4", "5", "6", "7", "8", "9", "≥10")
LEAST_PAIRS = 10
"""Two pairs correlate by ±1."""
THE_PAPERS = "sts 2012 to 2015"
"""The pool that stands beside the paper's values: the sets among its 20 that are there, and no other."""


def bin_of(lengths_2N: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Which of ``BINS`` a pair is in: int64 [N].

    Args:
        lengths_2N: tokens of both texts.
    """
    binned: npt.NDArray[np.int64] = np.clip(lengths_2N.max(axis=0), 4, 10) - 4
    return binned


def score_by_bin(bins: npt.NDArray[np.int64], gold: Vector, predicted: Vector) -> Vector:
    """Pearson over the pairs of each bin, [7]; NaN for fewer than ``LEAST_PAIRS``, or where it is not defined.

    Args:
        bins: which bin, [N].
        gold: people's scores [N].
        predicted: cosines [N].
    """
    return np.array([_pearson(predicted[bins == at], gold[bins == at]) for at in range(len(BINS))])


def make(inputs: Inputs) -> Content:
    """A line a candidate; a panel a pool."""
    tables, panels, missing = [], [], ""
    for pool in text_pools(inputs):
        of_paper = np.isin(pool.sets, PAPERS_20)
        name, chosen = (THE_PAPERS, of_paper) if of_paper.any() else (pool.name, ~of_paper)
        if name == THE_PAPERS:
            missing = ", ".join(one.removeprefix("sts/") for one in PAPERS_20 if one not in {*pool.sets})
        bins, gold = bin_of(pool.lengths)[chosen], pool.gold[chosen]
        counts = np.bincount(bins, minlength=len(BINS))
        scores = [100 * score_by_bin(bins, gold, predicted[chosen]) for predicted in pool.predicted]
        tables.append(_table(pool.name, name, counts, scores, inputs.labels))
        panels.append((name, counts, scores))
    text = (
        "Pearson's r × 100 over the pairs whose longer text has so many tokens; the number of pairs stands below each "
        f"length, and one with fewer than {LEAST_PAIRS} has no score."
    )
    if any(name == THE_PAPERS for name, *_ in panels):
        text += " In grey what the paper printed for its own encoders, over the 12,108 pairs of its 20 sets of " + (
            f"STS 2012 to 2015; ours are without {missing}." if missing else "STS 2012 to 2015, as ours."
        )
    return Content(text, tuple(tables), draw(panels, inputs.labels))


@plain_text
def draw(panels: list[tuple[str, npt.NDArray[np.int64], list[Vector]]], labels: tuple[str, ...]) -> bytes:
    """A PNG: name, pairs a bin [7] and scores [7] a candidate, of each panel."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(6 * columns, 3.6 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, counts, scores) in zip(grid.flat, panels, strict=False):
        if name == THE_PAPERS:
            for number, (label, printed) in enumerate(BY_LENGTH.items()):
                style = ("--", ":", "-.", (0, (1, 3)))[number]
                axes.plot(range(7), printed, color=PUBLISHED, linestyle=style, linewidth=1.4, label=f"paper: {label}")
        for number, (label, values) in enumerate(zip(labels, scores, strict=True)):
            axes.plot(range(7), values, color=colour(number), marker=marker(number), linewidth=2, label=label)
        axes.set_xticks(range(7), [f"{bin_name}\n{count:,}" for bin_name, count in zip(BINS, counts, strict=True)])
        axes.set_xlim(-0.3, len(BINS) - 0.7)
        axes.set_xlabel("tokens of the longer text, pairs", fontsize=9)
        tidy(axes, name)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    named = next((at for at, (name, *_) in enumerate(panels) if name == THE_PAPERS), 0)
    legend_above(figure, grid.flat[named], 3)
    return to_png(figure)


def _pearson(predicted: Vector, gold: Vector) -> float:
    if len(gold) < LEAST_PAIRS:
        return np.nan
    try:
        return pearson(predicted, gold)
    except ValueError:
        return np.nan


def _table(
    pool: str, title: str, counts: npt.NDArray[np.int64], scores: list[Vector], labels: tuple[str, ...]
) -> Table:
    printed = BY_LENGTH if title == THE_PAPERS else {}
    rows = tuple(
        (name, int(counts[at]), *(cell(values[at]) for values in scores), *(row[at] for row in printed.values()))
        for at, name in enumerate(BINS)
    )
    head = ("tokens", "pairs", *labels, *(f"paper: {label}" for label in printed))
    return Table(f"{HEADING.name}-{pool.replace('/', '-')}", title, head, rows)
