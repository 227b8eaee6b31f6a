"""Pictures of a sweep: what each parameter does, how the scores went, all trials at a glance."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paraembed.files import write_file
from paraembed.tuning.ledger import Record
from paraembed.tuning.points import Points

EFFECTS, CURVES, PARALLEL = "effects.png", "curves.png", "parallel.png"
_FAINT, _BEST, _MEAN = "#56b4e9", "#d55e00", "#0072b2"  # told apart by colour-blind readers, too
_PANELS = 4  # in a row
_COLOURS = "viridis"


def draw_sweep(folder: Path, points: Points, records: Sequence[Record], best: Record | None, metric: str) -> list[Path]:
    """Write the pictures as PNG; the same records give the same bytes. Nothing is drawn before a trial has a score.

    Args:
        folder: to write to.
        points: what was searched.
        records: what became of it.
        best: of them.
        metric: name of the score.
    """
    scored = [record for record in records if record.counted]
    if not scored:
        return []
    shown = [points.shown(record.recipe, record.share) for record in scored]
    names = [name for name in points.columns() if len({str(row[name]) for row in shown}) > 1]
    figures = {CURVES: _curves(scored, best, metric)}
    if names:
        figures = {EFFECTS: _effects(names, shown, scored, best, metric)} | figures
        figures[PARALLEL] = _parallel(names, shown, scored, best, metric)
    return [_save(figure, folder / name) for name, figure in figures.items()]


def value_text(value: Any) -> str:
    """A value of a recipe's field for a reader."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


@rc_context({"text.parse_math": False})  # a name may hold a $
def _save(figure: Figure, path: Path) -> Path:
    write_file(path, lambda file: figure.savefig(file, format="png", dpi=120))
    return path


def _new(width: float, height: float, title: str) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _levels(values: Sequence[Any]) -> list[Any]:
    """Distinct values: numbers in their order, what is none before them, names as they come."""
    distinct = list({str(value): value for value in values}.values())
    if all(one is None or (isinstance(one, int | float) and not isinstance(one, bool)) for one in distinct):
        return sorted(distinct, key=lambda one: -math.inf if one is None else one)
    return distinct


def _bare(axes: Axes) -> None:
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _effects(
    names: Sequence[str], shown: Sequence[dict[str, Any]], scored: Sequence[Record], best: Record | None, metric: str
) -> Figure:
    """The scores of all trials over each parameter's values, with the mean of each value's trials."""
    columns = min(_PANELS, len(names))
    rows = -(-len(names) // columns)
    figure = _new(3.4 * columns + 0.6, 2.9 * rows + 0.6, f"{metric} by parameter")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        levels = _levels([row[name] for row in shown])
        places = [levels.index(row[name]) for row in shown]
        scores = [record.score for record in scored]
        beside = np.random.default_rng(0).uniform(-0.12, 0.12, len(places))  # so that dots do not hide each other
        axes.scatter(np.array(places) + beside, scores, s=14, color=_FAINT, alpha=0.7)
        means = [
            np.mean([one for at, one in zip(places, scores, strict=True) if at == level])
            for level in range(len(levels))
        ]
        axes.plot(range(len(levels)), means, color=_MEAN, marker="o", linewidth=2)
        if best is not None:
            place = levels.index(dict(zip(map(id, scored), shown, strict=True))[id(best)][name])
            axes.scatter([place], [best.score], s=60, marker="*", color=_BEST, zorder=3)
        axes.set_xticks(range(len(levels)), [value_text(level) for level in levels], fontsize=8)
        axes.set_title(name, loc="left", fontsize=10)
        _bare(axes)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    return figure


def _curves(scored: Sequence[Record], best: Record | None, metric: str) -> Figure:
    """The score by epoch of every trial."""
    figure = _new(7.5, 4.6, f"{metric} by epoch")
    axes = figure.subplots()
    for record in scored:
        is_best = best is not None and record.number == best.number
        points = [(one.epoch, one.score) for one in record.curve if one.score is not None]
        epochs, scores = zip(*points, strict=True)
        axes.plot(
            epochs,
            scores,
            color=_BEST if is_best else _FAINT,
            linewidth=2.2 if is_best else 0.9,
            alpha=1 if is_best else 0.6,
            marker="o" if is_best or len(epochs) == 1 else "",
            markersize=4,
            zorder=3 if is_best else 2,
            label=f"best: trial {record.number}" if is_best else None,
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    _bare(axes)
    if best is not None:
        axes.legend(frameon=False, fontsize=9)
    return figure


def _parallel(
    names: Sequence[str], shown: Sequence[dict[str, Any]], scored: Sequence[Record], best: Record | None, metric: str
) -> Figure:
    """A line a trial through its values, coloured by its score; the best one is thick."""
    figure = _new(max(7.5, 1.6 * (len(names) + 1)), 4.8, f"{metric}: all trials")
    axes = figure.subplots()
    scores = np.array([record.score for record in scored])
    low, high = float(scores.min()), float(scores.max())
    heights = (scores - low) / (high - low or 1.0)
    levels = {name: _levels([row[name] for row in shown]) for name in names}
    for at in np.argsort(scores):
        row, record = shown[at], scored[at]
        line = [levels[name].index(row[name]) / max(1, len(levels[name]) - 1) for name in names]
        is_best = best is not None and record.number == best.number
        colour = _BEST if is_best else colormaps[_COLOURS](heights[at])
        axes.plot([*line, heights[at]], color=colour, linewidth=2.6 if is_best else 0.8, alpha=1 if is_best else 0.5)
    for place, name in enumerate(names):
        axes.axvline(place, color="#444444", linewidth=0.8)
        for number, level in enumerate(levels[name]):
            height = number / max(1, len(levels[name]) - 1)
            axes.annotate(value_text(level), (place, height), (4, 2), textcoords="offset points", fontsize=8)
    axes.axvline(len(names), color="#444444", linewidth=0.8)
    for height, score in ((0, low), (1, high)):
        axes.annotate(f"{score:.4f}", (len(names), height), (4, 2), textcoords="offset points", fontsize=8)
    axes.set_xticks(range(len(names) + 1), [*names, "score"], fontsize=9)
    axes.set_yticks([])
    axes.set_ylim(-0.06, 1.1)
    axes.set_xlim(-0.1, len(names) + 0.45)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    return figure
