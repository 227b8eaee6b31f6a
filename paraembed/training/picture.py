"""A picture of a training: loss, share of active terms and score by epoch, and scores before and after."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from paraembed.files import write_file

_BEFORE, _AFTER, _FAINT, _BEST = "#9a9a9a", "#0072b2", "#56b4e9", "#d55e00"  # told apart by colour-blind readers, too
_BINS = 100  # of the thick line
_SCORE_INCHES, _MOST_INCHES = 0.24, 14.0


@dataclass(frozen=True)
class ScoreChange:
    """A score, at most 1, before and after training; means are set bold."""

    label: str
    before: float
    after: float
    is_mean: bool = False


@dataclass(frozen=True)
class ScoreCurve:
    """Scores on the way.

    Attributes:
        name: of the score.
        points: step, pairs done and score, at most 1; None where it is not defined.
        best: step of the one to mark.
    """

    name: str
    points: Sequence[tuple[int, int, float | None]]
    best: int


@rc_context({"text.parse_math": False})  # a file's name may hold a $
def draw_training(
    path: Path,
    title: str,
    curve: Sequence[tuple[int, int, float, float]],
    num_pairs: int,
    scores: Sequence[ScoreChange] = (),
    on_the_way: ScoreCurve | None = None,
    *,
    unit: str = "pair",
    share: str = "share of active terms",
) -> None:
    """Write a PNG; the same input gives the same bytes.

    Args:
        path: file to write.
        title: line above.
        curve: step, pairs done, mean loss and share of active terms (0 to 1) of every report; not empty.
        num_pairs: of an epoch.
        scores: shown beside the curves, where there are any.
        on_the_way: a third curve.
        unit: what is trained on.
        share: what the fourth number of ``curve`` is.
    """
    num_curves = 2 if on_the_way is None else 3
    height = max(2.5 * num_curves, min(_MOST_INCHES, 1.6 + _SCORE_INCHES * len(scores)))
    figure = Figure(figsize=(12 if scores else 7.5, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    grid = figure.add_gridspec(num_curves, 2 if scores else 1, width_ratios=(3, 2) if scores else None)
    steps, pairs, loss, active = np.array(curve, np.float64).T
    epochs, sizes = pairs / num_pairs, np.diff(pairs, prepend=0)
    top = figure.add_subplot(grid[0, 0])
    _curve(top, epochs, loss, sizes, f"mean loss per {unit} (last {loss[-1]:.4f})")
    top.tick_params(labelbottom=False)
    bottom = figure.add_subplot(grid[1, 0], sharex=top)
    _curve(bottom, epochs, active, sizes, f"{share} (last {active[-1]:.0%})")
    bottom.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if on_the_way is not None:
        bottom.tick_params(labelbottom=False)
        bottom = figure.add_subplot(grid[2, 0], sharex=top)
        _score_curve(bottom, on_the_way, num_pairs)
    bottom.set_xlabel(f"epoch ({num_pairs:,} {unit}s each; {int(steps[-1]):,} steps in all)")
    if epochs[-1] > 1:
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    if scores:
        _scores(figure.add_subplot(grid[:, 1]), scores)
    write_file(path, lambda file: figure.savefig(file, format="png", dpi=120))


def _curve(
    axes: Axes,
    epochs: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
    label: str,
) -> None:
    """Every report as a faint line, and their mean over 1 % of the run each as a thick one."""
    bins = np.minimum((_BINS * epochs / epochs[-1]).astype(int), _BINS - 1)
    weights = np.bincount(bins, sizes)
    kept = weights > 0
    middle = np.bincount(bins, sizes * epochs)[kept] / weights[kept]
    mean = np.bincount(bins, sizes * values)[kept] / weights[kept]
    axes.plot(epochs, values, color=_FAINT, linewidth=0.8, alpha=0.6)
    axes.plot(middle, mean, color=_AFTER, linewidth=2, marker="o" if len(middle) < 10 else "")
    axes.set_title(label, loc="left", fontsize=10)
    axes.set_xlim(0, epochs[-1])
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _score_curve(axes: Axes, curve: ScoreCurve, num_pairs: int) -> None:
    """Each evaluation as a point, the best ringed; a line between neighbours that both have a score."""
    epochs = np.array([pairs / num_pairs for _, pairs, _ in curve.points])
    values = np.array([np.nan if score is None else 100 * score for *_, score in curve.points])
    axes.plot(epochs, values, color=_AFTER, linewidth=1.5, marker="o", markersize=4, clip_on=False)
    best = [step for step, *_ in curve.points].index(curve.best)
    ring: dict[str, Any] = {
        "s": 110,
        "facecolors": "none",
        "edgecolors": _BEST,
        "linewidths": 2,
        "zorder": 3,
        "clip_on": False,
    }
    axes.scatter(epochs[[best]], values[[best]], **ring)
    axes.set_title(f"{curve.name} × 100 (kept: {values[best]:.2f} after step {curve.best:,})", loc="left", fontsize=10)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _scores(axes: Axes, scores: Sequence[ScoreChange]) -> None:
    for row, score in enumerate(scores):
        weight = "bold" if score.is_mean else "normal"
        before, after = 100 * score.before, 100 * score.after
        axes.plot([before, after], [row, row], color=_BEFORE, linewidth=1.2, zorder=1)
        axes.scatter([before], [row], color=_BEFORE, s=28, zorder=2, label="before" if not row else None)
        axes.scatter([after], [row], color=_AFTER, s=34, zorder=3, label="after" if not row else None)
        axes.annotate(
            f"{after:.1f}", (after, row), (0, 5), textcoords="offset points", ha="center", fontsize=8, fontweight=weight
        )
    axes.set_yticks(range(len(scores)), [score.label for score in scores], fontsize=9)
    for tick, score in zip(axes.get_yticklabels(), scores, strict=True):
        tick.set_fontweight("bold" if score.is_mean else "normal")
    axes.set_ylim(len(scores) - 0.3, -0.8)
    axes.set_title("score × 100", loc="left", fontsize=10)
    axes.margins(x=0.08)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
