"""Score by amount of training data: ordered and random (Wieting 2016 figure 1), by k (Zhou 2017 figure 2)."""

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes

from paraembed.evaluation.analyses.content import CannotMakeError, Content, Heading, Inputs, Table
from paraembed.evaluation.analyses.drawing import (
    PUBLISHED,
    colour,
    legend_above,
    marker,
    new_figure,
    plain_text,
    shortened,
    tidy,
    to_png,
)
from paraembed.evaluation.analyses.runs import Run, choice_names, find_runs, main_score, score_names
from paraembed.papers.results import find_row

SCORE = Heading("score-by-data", "Score by amount of training data", "Wieting 2016, figure 1")
CHOICE = Heading("choice-by-data", "Choosing the paraphrase, by data share and k", "Zhou 2017, figure 2")
ZHOU_2017_AVG = find_row("Zhou 2017 §3.1: AVG").values["choose/100"]
"""Accuracy in % of averaged word vectors, of 100 phrases."""
_MOST_TICKS = 8
_GAP = 0.045  # of the axis: a label's height


class Point(NamedTuple):
    """One run in a curve."""

    pairs: int
    value: float


Curves = dict[str, list[Point]]


def curves(runs: list[Run], name: Callable[[Run], str], value: Callable[[Run], float | None]) -> Curves:
    """Points by curve, in the order of the amounts; runs without a value are left out."""
    found: Curves = {}
    for run in sorted(runs, key=lambda run: (run.encoder, run.order, run.k or 0, run.pairs)):
        measured = value(run)
        if measured is not None:
            found.setdefault(name(run), []).append(Point(run.pairs, measured))
    return found


def score_curves(runs: list[Run]) -> Curves:
    """By encoder and order; a run on all pairs belongs to both orders of its encoder."""
    orders = {
        encoder: {run.order for run in runs if run.encoder == encoder} for encoder in {one.encoder for one in runs}
    }
    spread = [
        Run(run.pairs, run.encoder, order, run.score)
        for run in runs
        for order in ([run.order] if run.order != "none" else sorted(orders[run.encoder] - {"none"}) or ["none"])
    ]
    return curves(
        spread, lambda run: _joined(run.encoder, "" if run.order == "none" else run.order), lambda run: run.score
    )


def choice_curves(runs: list[Run]) -> Curves:
    """By encoder and number of contrast phrases."""
    return curves(runs, lambda run: _joined(run.encoder, f"k = {run.k}" if run.k else ""), lambda run: run.accuracy)


def by_order(inputs: Inputs) -> Content:
    """Mean score against the number of pairs, on a log scale."""
    runs = find_runs(inputs)
    found = score_curves(runs)
    if not found:
        raise CannotMakeError("the runs of --runs have no scores; add the column score, or --suite sts")
    names = score_names(inputs)
    tables = [path.name for path in inputs.options.runs if not path.is_dir()]
    folders = len(inputs.options.runs) > len(tables)
    title = "; ".join([f"{names[0]} × 100"] * folders + [f"score of {name}" for name in tables])
    # What a table's score is nobody knows; a score of this report beside it would mean nothing.
    levels = {} if tables else _levels(inputs, names)
    text = (
        f"A run a point: {title} by the number of pairs it was trained on, the first ones of the source (ordered: PPDB "
        "is ordered by confidence) or drawn (random)."
    )
    text += " Dashed: the trained encoders of this report." if levels else ""
    return Content(text, (_table(SCORE, found, "score", _most(runs)),), draw(found, levels, title))


def by_contrast(inputs: Inputs) -> Content:
    """Accuracy against the number of pairs, a curve for each number of contrast phrases."""
    runs = find_runs(inputs)
    found = choice_curves(runs)
    if not found:
        raise CannotMakeError("the runs of --runs have no accuracy; add the column accuracy, or --held-out FOLDER")
    names = choice_names(inputs)
    levels = _levels(inputs, names, with_baselines=True)  # the paper's AVG is an untrained one
    text = (
        "Accuracy in % of choosing a phrase's paraphrase among other phrases, by the number of training pairs and the "
        f"contrast phrases k of its objective. The paper's average of word vectors reaches {ZHOU_2017_AVG:g} %."
    )
    levels["paper: AVG"] = ZHOU_2017_AVG
    return Content(text, (_table(CHOICE, found, "accuracy, %", _most(runs)),), draw(found, levels, "accuracy, %"))


def amounts_shown(found: Curves) -> list[int]:
    """Numbers of pairs to write at the axis: the largest, and at most seven of the others, evenly taken."""
    amounts = sorted({point.pairs for points in found.values() for point in points}, reverse=True)
    return amounts[:: -(-len(amounts) // _MOST_TICKS)]


def spread(places: list[float], gap: float) -> list[float]:
    """Ascending places, moved up where they would be less than ``gap`` above the one before."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    return moved


@plain_text
def draw(found: Curves, levels: dict[str, float], title: str) -> bytes:
    """A PNG: curves over the number of pairs, and levels that do not depend on it, named at their end."""
    figure = new_figure(7.5, 4.6)
    axes: Axes = figure.subplots()
    for number, (name, points) in enumerate(found.items()):
        amounts, values = zip(*points, strict=True)
        axes.plot(amounts, values, color=colour(number), marker=marker(number), linewidth=2, label=name)
    for level in levels.values():
        axes.axhline(level, color=PUBLISHED, linestyle="--", linewidth=1.2)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    named = sorted(levels.items(), key=lambda one: one[1])
    for (name, level), place in zip(named, spread([one for _, one in named], _GAP * (high - low)), strict=True):
        label = f"{shortened(name, 30)} ({level:.1f})"
        axes.annotate(
            label, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8, annotation_clip=False
        )
    axes.set_xscale("log")
    shown = amounts_shown(found)
    axes.set_xticks(shown, [f"{amount:,}" for amount in shown], fontsize=9)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("pairs", fontsize=9)
    tidy(axes, title)
    legend_above(figure, axes, 3)
    return to_png(figure)


def _levels(inputs: Inputs, names: list[str], *, with_baselines: bool = False) -> dict[str, float]:
    shown = {one.label for one in inputs.candidates if with_baselines or not one.is_baseline}
    columns = [column for column in inputs.report.columns if column.label in shown]
    scores = {column.label: main_score(column, names) for column in columns}
    return {label: score for label, score in scores.items() if score is not None}


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts)) or "runs"


def _most(runs: list[Run]) -> int:
    return max(run.pairs for run in runs)


def _table(heading: Heading, found: Curves, value: str, most: int) -> Table:
    rows = tuple(
        (name, point.pairs, 100 * point.pairs / most, point.value) for name, points in found.items() for point in points
    )
    return Table(heading.name, "", ("runs", "pairs", "share of the largest, %", value), rows, 2)
