"""Pairs on which two encoders disagree most (Wieting 2017 table 7)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paraembed.escape import listed
from paraembed.evaluation.analyses.content import CannotMakeError, Cell, Content, Heading, Inputs, Table
from paraembed.evaluation.analyses.drawing import new_figure, plain_text, shortened, tidy, to_png
from paraembed.evaluation.analyses.errors import gold_scale, on_gold_scale
from paraembed.evaluation.analyses.pools import Pool, text_pools
from paraembed.evaluation.correlation import Vector

HEADING = Heading("disagreement", "Where two encoders disagree", "Wieting 2017, table 7")
NUM_PAIRS = 8
"""Shown of each pool, for each direction."""


def most_apart(one: Vector, other: Vector, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where one [n] is highest above the other [n], the widest gap first, and where it is lowest below it.

    A pair is in the first list only where ``one`` is above, in the second only where it is below; of equal gaps the
    first pair comes first.
    """
    gap = one - other
    above, below = np.argsort(-gap, kind="stable")[:count], np.argsort(gap, kind="stable")[:count]
    return above[gap[above] > 0], below[gap[below] < 0]


def make(inputs: Inputs) -> Content:
    """Tables of pairs, and a picture of all of them."""
    one, other = _which(inputs)
    shows_texts = inputs.options.show_texts
    labels = inputs.labels[one], inputs.labels[other]
    tables, panels = [], []
    for pool in text_pools(inputs):
        scale = gold_scale(pool.gold)
        first, second = (on_gold_scale(pool.predicted[at], *scale) for at in (one, other))
        above, below = most_apart(first, second, NUM_PAIRS)
        rows = [
            (pool.sets[at], *_which_pair(pool, at, shows_texts), *_values(pool, at, first[at], second[at], labels))
            for at in np.concatenate([above, below]).tolist()
        ]
        named = ("first text", "second text") if shows_texts else ("row",)
        head = ("set", *named, *labels, "gold", "nearer to gold")
        tables.append(Table(f"{HEADING.name}-{pool.name.replace('/', '-')}", pool.name, head, tuple(rows), 2))
        panels.append((pool.name, pool.gold, first, second))
    text = (
        f"Cosines of {labels[0]} and {labels[1]}, mapped onto the gold scale (0 or less is its lowest score, 1 its "
        f"highest): the {NUM_PAIRS} pairs that the first scores highest above the second, then the {NUM_PAIRS} that it "
        "scores lowest below it. In the picture every pair is a point."
    )
    if not shows_texts:
        text += " A row is the number of a pair in its set, from 1; --show-texts writes the texts themselves."
    return Content(text, tuple(tables), draw(panels, labels), tables_matter=True)


@plain_text
def draw(panels: list[tuple[str, Vector, Vector, Vector]], labels: tuple[str, str]) -> bytes:
    """A PNG: name, gold scores [n] and those of both encoders [n], of each panel."""
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(4 * columns + 0.4, 3.6 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, gold, one, other) in zip(grid.flat, panels, strict=False):
        size = max(2, min(20, 20_000 / len(gold)))
        points = axes.scatter(other, one, c=gold, cmap="cividis", s=size, alpha=0.6, linewidths=0)
        low, high = gold_scale(gold)
        axes.plot([low, high], [low, high], color="#000000", linewidth=0.8)
        axes.set_xlabel(shortened(labels[1], 40), fontsize=9)
        axes.set_ylabel(shortened(labels[0], 40), fontsize=9)
        axes.set_aspect("equal")
        bar = figure.colorbar(points, ax=axes, shrink=0.8)
        if bar.solids is not None:
            bar.solids.set_alpha(1)  # the points are faint, the scale is not
        bar.set_label("gold", fontsize=9)
        tidy(axes, name)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    return to_png(figure)


def check_against(against: str, labels: Sequence[str]) -> None:
    """Raise ValueError where ``against`` is not the label of another candidate than the first."""
    if against not in labels[1:]:
        raise ValueError(
            f"--against is {against!r}; it must be the label of another encoder than the first: "
            + (listed(labels[1:]) or "there is none, add one")
        )


def _which(inputs: Inputs) -> tuple[int, int]:
    """Columns of the two encoders.

    Raises:
        CannotMakeError: there is one only.
        ValueError: the one that was asked for is not there, or is the first.
    """
    against, labels = inputs.options.against, inputs.labels
    if against is not None:
        check_against(against, labels)
        return 0, labels.index(against)
    if len(labels) < 2:
        raise CannotMakeError("only one encoder was scored; add a second one, or --words")
    return 0, 1


def _which_pair(pool: Pool, at: int, shows_texts: bool) -> tuple[Cell, ...]:
    return (pool.first[at].as_py(), pool.second[at].as_py()) if shows_texts else (int(pool.rows[at]),)


def _values(pool: Pool, at: int, first: float, second: float, labels: tuple[str, str]) -> tuple[Cell, ...]:
    """Return both scores on the gold scale, the gold score, and whose score is nearer to it."""
    gold = float(pool.gold[at])
    errors = abs(first - gold), abs(second - gold)
    nearer = "both" if errors[0] == errors[1] else labels[int(errors[1] < errors[0])]
    return float(first), float(second), gold, nearer
