"""Absolute error: by range of the gold score (Wieting 2015 table 7), by length and overlap ratio (its table 9)."""

from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paraembed.evaluation.analyses.content import Cell, Content, Heading, Inputs, Table, cell
from paraembed.evaluation.analyses.drawing import bars, legend_above, new_figure, plain_text, tidy, to_png
from paraembed.evaluation.analyses.pools import Pool, text_pools
from paraembed.evaluation.correlation import Vector
from paraembed.text import Tokens

BY_GOLD = Heading("error-by-gold-score", "Error by gold score", "Wieting 2015, table 7")
BY_RATIO = Heading("error-by-length-and-overlap", "Error by length and overlap ratio", "Wieting 2015, table 9")
LENGTH_RATIOS = ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0))
OVERLAP_RATIOS = ((0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0))
_MOST_RANGES = 6

Mask = npt.NDArray[np.bool_]


def gold_scale(gold: Vector) -> tuple[float, float]:
    """Lowest and highest score of a scale, from the scores [n] that were given on it: whole numbers."""
    return float(np.floor(gold.min())), float(np.ceil(gold.max()))


def on_gold_scale(cosines: Vector, low: float, high: float) -> Vector:
    """Cosines [n] mapped onto the scale of the gold scores: 0 and below become ``low``, 1 becomes ``high``."""
    return low + (high - low) * np.clip(cosines, 0, 1)


def gold_ranges(low: float, high: float) -> list[tuple[float, float]]:
    """Ranges of a scale: one a point of it, or five equal ones where there are over six points, or one."""
    points = int(high - low)
    parts = points if 1 < points <= _MOST_RANGES else 5
    edges = np.round(np.linspace(low, high, 1 + parts), 10)  # 0.6, not 0.6000000000000001
    return [(float(start), float(end)) for start, end in pairwise(edges)]


def in_range(values: Vector, start: float, end: float, highest: float) -> Mask:
    """Which values [n] are in [start, end), or in [start, end] where it ends at the ``highest`` value of the scale."""
    inside: Mask = (values >= start) & ((values < end) | (values == end) & (end == highest))
    return inside


def length_ratio(lengths_2N: npt.NDArray[np.int64]) -> Vector:
    """Tokens of the shorter text by tokens of the longer one, [N]; 1 for two texts without any."""
    longer = lengths_2N.max(axis=0)
    return np.where(longer == 0, 1.0, lengths_2N.min(axis=0) / np.maximum(longer, 1))


def overlap_ratio(first: Tokens, second: Tokens) -> Vector:
    """Tokens that both texts have by tokens of the shorter text, [n]; 0 where it has none.

    A token that stands twice in both counts twice. The paper also counts two tokens as one that lexical PPDB pairs;
    here they must be equal.
    """
    one, other = first.flat.to_pylist(), second.flat.to_pylist()
    shared = [
        sum((Counter(one[start:end]) & Counter(other[begin:stop])).values())
        for (start, end), (begin, stop) in zip(pairwise(first.offsets), pairwise(second.offsets), strict=True)
    ]
    shorter = np.minimum(np.diff(first.offsets), np.diff(second.offsets))
    return np.array(shared, np.float64) / np.maximum(shorter, 1)


def means_by(masks: list[Mask], errors: Vector) -> Vector:
    """Mean error [n] of each subset of the pairs; NaN for an empty one."""
    return np.array([errors[mask].mean() if mask.any() else np.nan for mask in masks])


def by_gold(inputs: Inputs) -> Content:
    """Mean absolute error in each range of the gold score."""
    tables, panels = [], []
    for pool in text_pools(inputs):
        low, high = gold_scale(pool.gold)
        ranges = gold_ranges(low, high)
        masks = [in_range(pool.gold, start, end, high) for start, end in ranges]
        names = [f"[{start:g}, {end:g}{']' if end == high else ')'}" for start, end in ranges]
        means = [means_by(masks, errors) for errors in _errors(pool)]
        rows = [
            (name, int(mask.sum()), *_numbers(means, at))
            for at, (name, mask) in enumerate(zip(names, masks, strict=True))
        ]
        tables.append(_table(BY_GOLD, pool, ("gold score", "pairs"), rows, inputs.labels))
        panels.append((pool.name, names, means))
    text = f"{_ERROR} Mean over the pairs of each range of the gold score. {_CHANGE}"
    return Content(text, tuple(tables), draw_by_gold(panels, inputs.labels))


def by_ratio(inputs: Inputs) -> Content:
    """Mean absolute error by ratio of the lengths and by overlap."""
    tables, panels = [], []
    for pool in text_pools(inputs):
        low, high = gold_scale(pool.gold)
        quarter = (high - low) / 4
        kinds = {"positive": pool.gold > high - quarter, "negative": pool.gold < low + quarter}
        kinds["both"] = kinds["positive"] | kinds["negative"]
        errors = _errors(pool)
        rows: list[tuple[Cell, ...]] = []
        for what, ratios, values in (
            ("length", LENGTH_RATIOS, length_ratio(pool.lengths)),
            ("overlap", OVERLAP_RATIOS, overlap_ratio(*pool.tokens)),
        ):
            names = [f"{'[' if not start else '('}{start:.2g}, {end:.2g}]" for start, end in ratios]
            inside = [((values > start) | (start == 0)) & (values <= end) for start, end in ratios]
            for kind, of_kind in kinds.items():
                masks = [of_kind & mask for mask in inside]
                means = [means_by(masks, one) for one in errors]
                rows += [
                    (what, name, kind, int(mask.sum()), *_numbers(means, at))
                    for at, (name, mask) in enumerate(zip(names, masks, strict=True))
                ]
            panels.append((f"{pool.name}, {what} ratio", names, means))
        tables.append(_table(BY_RATIO, pool, ("ratio", "range", "pairs are", "pairs"), rows, inputs.labels))
    text = (
        f"{_ERROR} Positive pairs have a gold score in the highest quarter of the scale, negative ones in the lowest; "
        "those between are left out, and the picture shows both together. Length ratio: tokens of the shorter text by "
        "tokens of the longer one. Overlap ratio: tokens that both have by tokens of the shorter one (the paper counts "
        f"tokens that lexical PPDB pairs as shared, too). {_CHANGE}"
    )
    return Content(text, tuple(tables), draw_by_gold(panels, inputs.labels))


@plain_text
def draw_by_gold(panels: list[tuple[str, list[str], list[Vector]]], labels: tuple[str, ...]) -> bytes:
    """A PNG: name, names of k ranges and mean errors [k] a candidate, of each panel."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(5.5 * columns, 2.6 * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, ranges, means) in zip(grid.flat, panels, strict=False):
        bars(axes, means, labels, ranges)
        tidy(axes, name, "y")
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    legend_above(figure, grid[0, 0])
    figure.supylabel("mean absolute error", fontsize=9)
    return to_png(figure)


_ERROR = (
    "Absolute difference of the gold score and the cosine, mapped onto the gold scale: a cosine of 0 or less is its "
    "lowest score, 1 its highest."
)
_CHANGE = (
    "Change: of the first encoder's error against another's, in % of the other's; below zero the first one is better."
)


def _errors(pool: Pool) -> list[Vector]:
    scale = gold_scale(pool.gold)
    return [np.abs(pool.gold - on_gold_scale(predicted, *scale)) for predicted in pool.predicted]


def _numbers(means: list[Vector], at: int) -> tuple[Cell, ...]:
    """Mean errors of the candidates in a range, and the changes from the others to the first."""
    first = means[0][at]
    changes = [100 * (first - other[at]) / other[at] if other[at] else np.nan for other in means[1:]]
    return tuple(cell(float(value)) for value in (*(mean[at] for mean in means), *changes))


def _table(
    heading: Heading, pool: Pool, head: tuple[str, ...], rows: list[tuple[Cell, ...]], labels: tuple[str, ...]
) -> Table:
    changes = tuple(f"change against {label}, %" for label in labels[1:])
    return Table(f"{heading.name}-{pool.name.replace('/', '-')}", pool.name, (*head, *labels, *changes), tuple(rows), 2)
