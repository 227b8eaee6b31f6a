"""Analyses of scored pairs: score by length, errors by gold score and ratios, disagreement."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paraembed.evaluation.analyses.content import (
    AnalysisInputs,
    CannotMakeError,
    Cell,
    Content,
    Ints,
    cell,
    defined_or_nan,
    text_pools,
)
from paraembed.evaluation.baselines import token_lists
from paraembed.evaluation.measures import Vector, pearson
from paraembed.io.escape import listed
from paraembed.papers.results import BY_LENGTH, PAPERS_20
from paraembed.plots import Panel, Series, bars, lines, scatter
from paraembed.text.tokenize import Tokens

BINS = ("≤4", "5", "6", "7", "8", "9", "≥10")
LEAST_PAIRS = 10
"""Minimum number of pairs for a score; two pairs always correlate by ±1."""
THE_PAPERS = "sts 2012 to 2015"
"""Pool that is compared with the paper's values; it contains those of the paper's 20 sets that are available."""
LENGTH_RATIOS = ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0))
OVERLAP_RATIOS = ((0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0))
NUM_PAIRS = 8
"""Number of disagreements shown per pool, in each direction."""
_MOST_RANGES = 6
_ERROR = (
    "Absolute difference of the gold score and the cosine, mapped onto the gold scale: a cosine of 0 or less is its "
    "lowest score, 1 its highest."
)
_CHANGE = (
    "Change: of the first encoder's error against another's, in % of the other's; below zero the first one is better."
)

Mask = npt.NDArray[np.bool_]


def score_by_length(inputs: AnalysisInputs) -> Content:
    """Compute Pearson's r of the pairs by length."""
    tables, panels, missing = [], [], ""
    for pool in text_pools(inputs):
        of_paper = np.isin(pool.sets, PAPERS_20)
        name, chosen, printed = pool.name, ~of_paper, {}
        if of_paper.any():
            name, chosen, printed = THE_PAPERS, of_paper, BY_LENGTH
            missing = ", ".join(name.removeprefix("sts/") for name in PAPERS_20 if name not in {*pool.sets})
        bins, gold = bin_of(pool.lengths)[chosen], pool.gold[chosen]
        counts = np.bincount(bins, minlength=len(BINS)).tolist()
        scores = [100 * score_by_bin(bins, gold, predicted[chosen]) for predicted in pool.predicted]
        papers = {f"paper: {label}": values for label, values in printed.items()}
        rows = zip(BINS, counts, *(map(cell, values) for values in scores), *papers.values(), strict=True)
        tables.append(pool.table(("tokens", "pairs", *inputs.labels, *papers), rows, 1, name))
        series = [Series(label, values, is_published=True) for label, values in papers.items()]
        series += map(Series, inputs.labels, scores)
        panels.append(Panel(name, series, [f"{length}\n{count:,}" for length, count in zip(BINS, counts, strict=True)]))
    text = (
        "Pearson's r × 100 over the pairs whose longer text has so many tokens; the number of pairs is below each "
        f"length, and one with fewer than {LEAST_PAIRS} has no score."
    )
    if any(panel.title == THE_PAPERS for panel in panels):
        text += " In gray what the paper printed for its own encoders, over the 12,108 pairs of its 20 sets of " + (
            f"STS 2012 to 2015; this run is without {missing}." if missing else "STS 2012 to 2015, as this run."
        )
    return Content(text, tuple(tables), lines(panels, ("tokens of the longer text, pairs", "")))


def error_by_gold(inputs: AnalysisInputs) -> Content:
    """Compute the mean absolute error in each range of the gold score."""
    tables, panels = [], []
    for pool in text_pools(inputs):
        low, high = pool.scale
        ranges = gold_ranges(low, high)
        masks = [in_range(pool.gold, start, end, high) for start, end in ranges]
        names = [f"[{start:g}, {end:g}{']' if end == high else ')'}" for start, end in ranges]
        means = [means_by(masks, errors) for errors in pool.errors]
        rows = [(name, *numbers) for name, numbers in zip(names, _with_changes(masks, means), strict=True)]
        tables.append(pool.table(("gold score", "pairs", *_error_heads(inputs)), rows))
        panels.append(Panel(pool.name, [*map(Series, inputs.labels, means)], names))
    text = f"{_ERROR} Mean over the pairs of each range of the gold score. {_CHANGE}"
    return Content(text, tuple(tables), bars(panels, "mean absolute error"))


def error_by_ratio(inputs: AnalysisInputs) -> Content:
    """Compute the mean absolute error by length ratio and by overlap ratio."""
    tables, panels = [], []
    for pool in text_pools(inputs):
        low, high = pool.scale
        quarter = (high - low) / 4
        kinds = {"positive": pool.gold > high - quarter, "negative": pool.gold < low + quarter}
        kinds["both"] = kinds["positive"] | kinds["negative"]
        rows: list[tuple[Cell, ...]] = []
        for what, ratios, values in (
            ("length", LENGTH_RATIOS, length_ratio(pool.lengths)),
            ("overlap", OVERLAP_RATIOS, overlap_ratio(*pool.tokens)),
        ):
            names = [f"{'[' if not start else '('}{start:.2g}, {end:.2g}]" for start, end in ratios]
            inside = [((values > start) | (start == 0)) & (values <= end) for start, end in ratios]
            for kind, of_kind in kinds.items():
                masks = [of_kind & mask for mask in inside]
                means = [means_by(masks, errors) for errors in pool.errors]
                numbers = _with_changes(masks, means)
                rows += [(what, name, kind, *cells) for name, cells in zip(names, numbers, strict=True)]
            panels.append(Panel(f"{pool.name}, {what} ratio", [*map(Series, inputs.labels, means)], names))
        tables.append(pool.table(("ratio", "range", "pairs are", "pairs", *_error_heads(inputs)), rows))
    text = (
        f"{_ERROR} Positive pairs have a gold score in the highest quarter of the scale, negative ones in the lowest; "
        "those between are left out, and the picture shows both together. Length ratio: tokens of the shorter text by "
        "tokens of the longer one. Overlap ratio: tokens that both have by tokens of the shorter one (the paper counts "
        f"tokens that lexical PPDB pairs as shared, too). {_CHANGE}"
    )
    return Content(text, tuple(tables), bars(panels, "mean absolute error"))


def disagreement(inputs: AnalysisInputs) -> Content:
    """Find the pairs on which two encoders disagree most."""
    other = _compared(inputs)
    shows_texts = inputs.options.show_texts
    labels = inputs.labels[0], inputs.labels[other]
    head = ("set", *(("first text", "second text") if shows_texts else ("row",)), *labels, "gold", "nearer to gold")
    tables, panels = [], []
    for pool in text_pools(inputs):
        first, second = pool.on_scale[0], pool.on_scale[other]
        rows: list[tuple[Cell, ...]] = []
        for row in np.concatenate(most_apart(first, second, NUM_PAIRS)).tolist():
            which = (pool.first[row].as_py(), pool.second[row].as_py()) if shows_texts else (int(pool.rows[row]),)
            scores, gold = (float(first[row]), float(second[row])), float(pool.gold[row])
            errors = [abs(score - gold) for score in scores]
            nearer = "both" if errors[0] == errors[1] else labels[int(errors[1] < errors[0])]
            rows.append((pool.sets[row], *which, *scores, gold, nearer))
        tables.append(pool.table(head, rows))
        panels.append(Panel(pool.name, [Series("", first, second, shades=pool.gold)]))
    text = (
        f"Cosines of {labels[0]} and {labels[1]}, mapped onto the gold scale (0 or less is its lowest score, 1 its "
        f"highest): the {NUM_PAIRS} pairs that the first scores highest above the second, then the {NUM_PAIRS} that it "
        "scores lowest below it. In the picture every pair is a point."
    )
    if not shows_texts:
        text += " A row is the number of a pair in its set, from 1; `show_texts` writes the texts themselves."
    return Content(text, tuple(tables), scatter(panels, (labels[1], labels[0]), shade="gold"), tables_matter=True)


def check_against(against: str, labels: Sequence[str]) -> None:
    """Raise ValueError if ``against`` is not the label of a candidate other than the first."""
    if against not in labels[1:]:
        raise ValueError(
            f"`against` is {against!r}; it must be the label of another encoder than the first: "
            + (listed(labels[1:]) or "only one encoder was given, add another")
        )


def bin_of(lengths_2N: Ints) -> Ints:
    """Return the bin of ``BINS`` of each pair, [N], by the length of the longer text."""
    binned: Ints = np.clip(lengths_2N.max(axis=0), 4, 10) - 4
    return binned


def score_by_bin(bins: Ints, gold: Vector, predicted: Vector) -> Vector:
    """Return Pearson's r of each bin, [7]; NaN for fewer than ``LEAST_PAIRS`` pairs or an undefined score."""
    inside = [bins == index for index in range(len(BINS))]
    return np.array([defined_or_nan(pearson, predicted[mask], gold[mask], LEAST_PAIRS) for mask in inside])


def gold_ranges(low: float, high: float) -> list[tuple[float, float]]:
    """Split a scale into ranges of one point, into five equal ranges if it has over six points, or one range."""
    points = int(high - low)
    parts = points if 1 < points <= _MOST_RANGES else 5
    edges = np.round(np.linspace(low, high, 1 + parts), 10)  # 0.6, not 0.6000000000000001
    return [(float(start), float(end)) for start, end in pairwise(edges)]


def in_range(values: Vector, start: float, end: float, highest: float) -> Mask:
    """Return which values [n] are in [start, end), or in [start, end] if ``end`` is the ``highest`` value."""
    inside: Mask = (values >= start) & ((values < end) | (values == end) & (end == highest))
    return inside


def length_ratio(lengths_2N: Ints) -> Vector:
    """Return the number of tokens of the shorter text divided by that of the longer one, [N]; 1 if both are empty."""
    longer = lengths_2N.max(axis=0)
    return np.where(longer == 0, 1.0, lengths_2N.min(axis=0) / np.maximum(longer, 1))


def overlap_ratio(first: Tokens, second: Tokens) -> Vector:
    """Return the number of shared tokens divided by the number of tokens of the shorter text, [n]; 0 for an empty text.

    A token that occurs twice in both texts counts twice. Tokens must be equal, whereas the paper also counts two tokens
    as shared if lexical PPDB pairs them.
    """
    pairs = zip(token_lists(first), token_lists(second), strict=True)
    return np.array(
        [(Counter(left) & Counter(right)).total() / max(1, min(len(left), len(right))) for left, right in pairs]
    )


def means_by(masks: list[Mask], errors: Vector) -> Vector:
    """Return the mean error of each subset of the n pairs; NaN for an empty subset."""
    return np.array([errors[mask].mean() if mask.any() else np.nan for mask in masks])


def most_apart(first: Vector, other: Vector, count: int) -> tuple[Ints, Ints]:
    """Return the pairs where ``first`` [n] exceeds ``other`` [n] most, then those where it falls below most.

    The first list contains only pairs where ``first`` is higher, the second only pairs where it is lower; equal gaps
    keep the order of the pairs.
    """
    gap = first - other
    above, below = np.argsort(-gap, kind="stable")[:count], np.argsort(gap, kind="stable")[:count]
    return above[gap[above] > 0], below[gap[below] < 0]


def _error_heads(inputs: AnalysisInputs) -> tuple[str, ...]:
    return (*inputs.labels, *(f"change against {label}, %" for label in inputs.labels[1:]))


def _with_changes(masks: list[Mask], means: list[Vector]) -> list[tuple[Cell, ...]]:
    """Return for each subset the number of pairs, the mean errors, and the first one's change against each other."""
    rows = []
    for index, mask in enumerate(masks):
        first, *others = (float(mean[index]) for mean in means)
        changes = [100 * (first - other) / other if other else np.nan for other in others]
        rows.append((int(mask.sum()), *map(cell, (first, *others, *changes))))
    return rows


def _compared(inputs: AnalysisInputs) -> int:
    """Return the column to compare the first one with; raise CannotMakeError if there is none."""
    against, labels = inputs.options.against, inputs.labels
    if against is not None:
        check_against(against, labels)
        return labels.index(against)
    if len(labels) < 2:
        raise CannotMakeError("only one encoder was scored; add a second one, or `words`")
    return 1
