"""Plots as PNG files: lines, bars and points of analyses, training curves, sweep results.

The same input gives the same bytes. matplotlib's objects are used without pyplot, because pyplot keeps its figures in
global state. matplotlib is imported where a plot is drawn, because every training worker imports this module, and
matplotlib takes 0.7 s.
"""

import io
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from paraembed.io.atomic import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Colors of Okabe and Ito, which color-blind readers can distinguish."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STYLES = ("--", ":", "-.", (0, (1, 3)))
_BLUE, _ORANGE, _SKY, _BLACK = COLORS[0], COLORS[1], COLORS[5], COLORS[6]
_GRAY = "#8a8a8a"  # what a paper printed
_DPI = 120
_TITLE, _LABEL = 60, 40  # characters; a longer one would take all of the picture
_LABEL_HEIGHT = 0.045  # of the axis
_BINS = 100  # of a training's thick line
_SCORE_INCHES, _MOST_INCHES = 0.24, 14.0
_TIE = "no significant difference from the best trial"
_LEGEND: dict[str, Any] = {"loc": "outside lower left", "ncols": 4, "frameon": False, "fontsize": 9}

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Values of one encoder, or values that a paper published."""

    label: str  # name in the legend; "" omits it
    values: npt.ArrayLike  # [n]; NaN is a gap
    places: npt.ArrayLike | None = None  # [n] positions on the other axis; None: 0 … n - 1
    is_published: bool = False  # drawn in gray
    mark: float | None = None  # position of a dashed line in the color of the series
    shades: Vector | None = None  # [n] values that color the points


@dataclass(frozen=True)
class Panel:
    """One plot of a figure."""

    title: str  # text above the plot
    series: Sequence[Series]  # encoders get the colors 0, 1, … in order
    ticks: Sequence[str] = ()  # labels of the positions 0 … k - 1; empty: numbers
    level: float | None = None  # value of a black horizontal line
    first_color: int = 0  # number of the first color


@contextmanager
def _plain_text() -> Iterator[None]:
    """Draw a $ as it is: a word, a label or a file's name may hold one."""
    from matplotlib import rc_context  # noqa: PLC0415 - see the first lines

    with rc_context({"text.parse_math": False}):
        yield


def shortened(text: str, most: int) -> str:
    """Return a text, truncated to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@_plain_text()
def lines(
    panels: Sequence[Panel],
    labels: tuple[str, str],
    *,
    steps: bool = False,
    amounts: Sequence[int] = (),
    levels: Mapping[str, float] | None = None,
) -> bytes:
    """Draw a line for each series, two plots per row; published values are gray, without markers.

    ``labels`` are those of the x axis and the y axis. ``steps`` draws steps instead of straight lines, as for the
    counts of a histogram. With ``amounts``, the labeled positions, the x axis is logarithmic. ``levels`` are gray lines
    over the whole width, with their names at the end.
    """
    size = (6.0, 3.6) if len(panels) > 1 else (7.5, 4.6)
    figure, grid = _grid(panels, 2, *size)
    for axes, panel in zip(grid, panels, strict=False):
        published = [series for series in panel.series if series.is_published]
        for number, series in enumerate(published):
            axes.plot(*_points(series), color=_GRAY, linestyle=_STYLES[number % 4], linewidth=1.4, label=series.label)
            if series.mark is not None:
                axes.axvline(series.mark, color=_GRAY, linestyle=":")
        for number, series in enumerate(
            (series for series in panel.series if not series.is_published), start=panel.first_color
        ):
            look: dict[str, Any] = {"drawstyle": "steps-post"} if steps else {"marker": _marker(number)}
            axes.plot(*_points(series), color=_color(number), linewidth=2, label=series.label, **look)
            if series.mark is not None:
                axes.axvline(series.mark, color=_color(number), linewidth=1, linestyle="--")
        if panel.ticks:
            axes.set_xticks(range(len(panel.ticks)), panel.ticks)
            axes.set_xlim(-0.3, len(panel.ticks) - 0.7)
        _named_levels(axes, levels or {})
        if amounts:
            axes.set_xscale("log")
            axes.set_xticks(amounts, [f"{amount:,}" for amount in amounts], fontsize=9)
            axes.set_xticks([], minor=True)
        axes.set_xlabel(labels[0], fontsize=9)
        axes.set_ylabel(labels[1], fontsize=9)
    _legend_above(figure, grid, 3)
    return _png(figure)


@_plain_text()
def bars(panels: Sequence[Panel], label: str, *, horizontal: bool = False) -> bytes:
    """Draw a bar for each series at each tick of a panel; horizontal ones, for long names, have three panels a row."""
    most = max(4, *(len(panel.ticks) for panel in panels))
    if horizontal:
        figure, grid = _grid(panels, 3, 4.6, 1.2 + 0.17 * most)
    else:
        figure, grid = _grid(panels, 2, 5.5, 2.9)
    for axes, panel in zip(grid, panels, strict=False):
        width = 0.8 / len(panel.series)
        for number, series in enumerate(panel.series):
            places = np.arange(len(panel.ticks)) + (number - (len(panel.series) - 1) / 2) * width
            draw = axes.barh if horizontal else axes.bar
            draw(
                places,
                series.values,
                0.92 * width,
                color=_color(panel.first_color + number),
                label=series.label or None,
            )
        if horizontal:
            axes.set_yticks(range(len(panel.ticks)), [shortened(name, 24) for name in panel.ticks], fontsize=8)
            axes.set_ylim(most - 0.5, -0.5)  # one distance between names in all panels
            axes.set_xlabel(label, fontsize=9)
            axes.grid(visible=False, axis="y")
        else:
            axes.set_xticks(range(len(panel.ticks)), panel.ticks, fontsize=9)
            axes.set_xlim(-0.5, len(panel.ticks) - 0.5)
            axes.set_ylabel(label, fontsize=9)
            axes.grid(visible=False, axis="x")
        if panel.level is not None:
            (axes.axvline if horizontal else axes.axhline)(panel.level, color=_BLACK, linewidth=0.8)
    _legend_above(figure, grid, 4)
    return _png(figure)


@_plain_text()
def scatter(panels: Sequence[Panel], labels: tuple[str, str], *, shade: str = "") -> bytes:
    """Draw a point for each value at its position, in three plots per row; four are drawn two by two.

    If ``shade``, the meaning of ``shades``, is given, both axes have the same scale and the diagonal is drawn.
    """
    figure, grid = _grid(panels, 2 if len(panels) == 4 else 3, 5.0, 4.2)
    for axes, panel in zip(grid, panels, strict=False):
        for number, series in enumerate(panel.series, start=panel.first_color):
            places, values = _points(series)
            if series.shades is None:
                look: dict[str, Any] = {"color": _color(number), "marker": _marker(number), "s": 30, "alpha": 0.8}
                axes.scatter(places, values, label=series.label, **look)
                continue
            size = max(2, min(20, 20_000 / len(values)))
            points = axes.scatter(places, values, c=series.shades, cmap="cividis", s=size, alpha=0.6, linewidths=0)
            low, high = float(series.shades.min()), float(series.shades.max())
            axes.plot([low, high], [low, high], color=_BLACK, linewidth=0.8)
            axes.set_aspect("equal")
            scale = figure.colorbar(points, ax=axes, shrink=0.8)
            if scale.solids is not None:
                scale.solids.set_alpha(1)  # the points are faint, the scale is not
            scale.set_label(shade, fontsize=9)
        if panel.level is not None:
            axes.axhline(panel.level, color=_BLACK, linewidth=0.8)
        if any(series.label for series in panel.series):
            axes.legend(frameon=False, fontsize=8)
        axes.set_xlabel(shortened(labels[0], _LABEL), fontsize=9)
        axes.set_ylabel(shortened(labels[1], _LABEL), fontsize=9)
    return _png(figure)


@dataclass(frozen=True)
class ScoreChange:
    """A score, at most 1, before and after training; means are printed bold."""

    label: str
    before: float
    after: float
    is_mean: bool = False


@dataclass(frozen=True)
class ScoreCurve:
    """Scores of the evaluations during a training."""

    name: str
    # Step, number of pairs seen, and score (at most 1; None if it is undefined).
    points: Sequence[tuple[int, int, float | None]]
    best: int  # step of the best checkpoint, which is marked


@_plain_text()
def draw_training(
    path: Path,
    title: str,
    curve: Sequence[tuple[int, int, float, float]],
    num_pairs: int,
    scores: Sequence[ScoreChange] = (),
    score_curve: ScoreCurve | None = None,
    *,
    unit: str = "pair",
    share: str = "share of active terms",
) -> None:
    """Plot loss, fraction of active terms and score by epoch, and the scores before and after training.

    ``curve`` has step, number of pairs seen, mean loss and fraction of active terms (0 to 1), or of what ``share``
    names, of every report; not empty. ``num_pairs`` is the number of pairs, or of what ``unit`` names, per epoch.
    ``scores`` are drawn next to the curves, ``score_curve`` as a third curve.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter  # noqa: PLC0415 - see the first lines

    num_curves = 2 if score_curve is None else 3
    height = max(2.5 * num_curves, min(_MOST_INCHES, 1.6 + _SCORE_INCHES * len(scores)))
    figure = _figure(12 if scores else 7.5, height, title)
    grid = figure.add_gridspec(num_curves, 2 if scores else 1, width_ratios=(3, 2) if scores else None)
    steps, pairs, loss, active = np.array(curve, np.float64).T
    epochs, sizes = pairs / num_pairs, np.diff(pairs, prepend=0)
    top = figure.add_subplot(grid[0, 0])
    _draw_curve(top, epochs, loss, sizes, f"mean loss per {unit} (last {loss[-1]:.4f})")
    top.tick_params(labelbottom=False)
    bottom = figure.add_subplot(grid[1, 0], sharex=top)
    _draw_curve(bottom, epochs, active, sizes, f"{share} (last {active[-1]:.0%})")
    bottom.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if score_curve is not None:
        bottom.tick_params(labelbottom=False)
        bottom = figure.add_subplot(grid[2, 0], sharex=top)
        _draw_score_curve(bottom, score_curve, num_pairs)
    bottom.set_xlabel(f"epoch ({num_pairs:,} {unit}s each; {int(steps[-1]):,} steps in all)")
    if epochs[-1] > 1:
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    if scores:
        _draw_changes(figure.add_subplot(grid[:, 1]), scores)
    _write(path, figure)


@dataclass(frozen=True)
class Trial:
    """A trial of a sweep that has a score."""

    number: int
    levels: Mapping[str, int]  # parameter → index of its value
    score: float  # the score that the sweep maximizes


@_plain_text()
def draw_effects(
    path: Path,
    parameters: Mapping[str, Sequence[str]],
    trials: Sequence[Trial],
    best: int | None,
    metric: str,
    ties: Collection[int] = (),
) -> list[Path]:
    """Plot the effect of each parameter; return the file, or none without a trial that has a score, or a parameter.

    The parameters are those with several values, in order, as text. ``ties``: numbers of the trials that do not
    differ significantly from the best one, drawn in orange.
    """
    if not (trials and parameters):
        return []
    _write(path, _effects_figure(parameters, trials, best, metric, ties))
    return [path]


def _figure(width: float, height: float, title: str = "") -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A word in a script that the font lacks is drawn as a box; the table next to the picture has it right.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _write(path: Path, figure: "Figure") -> None:
    write_file(path, lambda file: file.write(_png(figure)))


def _grid(panels: Sequence[Panel], columns: int, width: float, height: float) -> tuple["Figure", list["Axes"]]:
    """Return a figure with one titled plot per panel; ``width`` and ``height`` are the inches of a plot."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = _figure(width * columns, height * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes, panel in zip(grid, panels, strict=False):
        _tidy(axes, shortened(panel.title, _TITLE))
        axes.set_axisbelow(True)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    return figure, grid


def _tidy(axes: "Axes", title: str = "", grid: Literal["both", "x", "y"] = "both") -> None:
    """Set the title at the left, add a faint grid and remove the frame."""
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(visible=True, axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _legend_above(figure: "Figure", grid: Sequence["Axes"], columns: int) -> None:
    """Add one legend for all plots above them."""
    both = [pair for axes in grid for pair in zip(*reversed(axes.get_legend_handles_labels()), strict=True)]
    if both:
        labels, handles = zip(*dict(both).items(), strict=True)
        names = [shortened(label, _LABEL) for label in labels]
        figure.legend(handles, names, loc="outside upper left", ncols=columns, frameon=False, fontsize=9)


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _marker(number: int) -> str:
    """Return color and marker by number; together they distinguish 49 encoders."""
    return _MARKERS[(number + number // len(COLORS)) % len(_MARKERS)]


def _points(series: Series) -> tuple[Vector, Vector]:
    values = np.asarray(series.values, np.float64)
    return np.arange(len(values), dtype=np.float64) if series.places is None else np.asarray(series.places), values


def _named_levels(axes: "Axes", levels: Mapping[str, float]) -> None:
    for level in levels.values():
        axes.axhline(level, color=_GRAY, linestyle="--", linewidth=1.2)
    low, high = axes.get_ylim()
    if levels:
        axes.set_ylim(low, high)
    place, gap = -np.inf, _LABEL_HEIGHT * (high - low)
    for name, level in sorted(levels.items(), key=lambda item: item[1]):
        place = max(level, place + gap)  # names of close levels keep their distance
        axes.annotate(
            f"{shortened(name, 30)} ({level:.1f})",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            annotation_clip=False,
        )


def _draw_curve(axes: "Axes", epochs: Vector, values: Vector, sizes: Vector, label: str) -> None:
    """Draw every report as a faint line, and means over 1 % of the run as a thick line."""
    bins = np.minimum((_BINS * epochs / epochs[-1]).astype(int), _BINS - 1)
    weights = np.bincount(bins, sizes)
    kept = weights > 0
    middle = np.bincount(bins, sizes * epochs)[kept] / weights[kept]
    mean = np.bincount(bins, sizes * values)[kept] / weights[kept]
    axes.plot(epochs, values, color=_SKY, linewidth=0.8, alpha=0.6)
    axes.plot(middle, mean, color=_BLUE, linewidth=2, marker="o" if len(middle) < 10 else "")
    axes.set_xlim(0, epochs[-1])
    axes.set_ylim(bottom=0)
    _tidy(axes, label)


def _draw_score_curve(axes: "Axes", curve: ScoreCurve, num_pairs: int) -> None:
    """Draw each evaluation as a point, ring the best one, and connect consecutive points that have scores."""
    epochs = np.array([pairs / num_pairs for _, pairs, _ in curve.points])
    values = np.array([np.nan if score is None else 100 * score for *_, score in curve.points])
    axes.plot(epochs, values, color=_BLUE, linewidth=1.5, marker="o", markersize=4, clip_on=False)
    best = [step for step, *_ in curve.points].index(curve.best)
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": _ORANGE, "linewidths": 2}
    axes.scatter(epochs[[best]], values[[best]], s=110, zorder=3, clip_on=False, **ring)
    _tidy(axes, f"{curve.name} × 100 (kept: {values[best]:.2f} after step {curve.best:,})")


def _draw_changes(axes: "Axes", scores: Sequence[ScoreChange]) -> None:
    before_color = "#9a9a9a"
    for row, score in enumerate(scores):
        weight = "bold" if score.is_mean else "normal"
        before, after = 100 * score.before, 100 * score.after
        axes.plot([before, after], [row, row], color=before_color, linewidth=1.2, zorder=1)
        axes.scatter([before], [row], color=before_color, s=28, zorder=2, label="before" if not row else None)
        axes.scatter([after], [row], color=_BLUE, s=34, zorder=3, label="after" if not row else None)
        axes.annotate(
            f"{after:.1f}", (after, row), (0, 5), textcoords="offset points", ha="center", fontsize=8, fontweight=weight
        )
    axes.set_yticks(range(len(scores)), [score.label for score in scores], fontsize=9)
    for tick, score in zip(axes.get_yticklabels(), scores, strict=True):
        tick.set_fontweight("bold" if score.is_mean else "normal")
    axes.set_ylim(len(scores) - 0.3, -0.8)
    axes.margins(x=0.08)
    _tidy(axes, "score × 100", "x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)


def _effects_figure(
    parameters: Mapping[str, Sequence[str]],
    trials: Sequence[Trial],
    best: int | None,
    metric: str,
    ties: Collection[int],
) -> "Figure":
    """Draw the scores of all trials over each parameter's values, with the mean per value."""
    columns = min(4, len(parameters))
    rows = -(-len(parameters) // columns)
    figure = _figure(max(7.5, 3.4 * columns + 0.6), 2.9 * rows + 0.9, f"{metric} by parameter")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    scores = np.array([trial.score for trial in trials])
    kinds = np.array([2 if trial.number == best else trial.number in ties for trial in trials])
    looks = ("trial", 14, _SKY, "o"), (_TIE, 18, _ORANGE, "o"), ("best trial", 60, _ORANGE, "*")
    for axes, (name, values) in zip(panels, parameters.items(), strict=False):
        places = np.array([trial.levels[name] for trial in trials])
        spread = places + np.random.default_rng(0).uniform(-0.12, 0.12, len(places))  # so that no dot hides another
        for kind, (label, size, color, marker) in enumerate(looks):
            of = kinds == kind
            if of.any():
                axes.scatter(spread[of], scores[of], s=size, color=color, marker=marker, zorder=1 + kind, label=label)
        means = [np.mean(scores[places == level]) for level in range(len(values))]
        axes.plot(range(len(values)), means, color=_BLUE, marker="o", linewidth=2, label="mean")
        axes.set_xticks(range(len(values)), values, fontsize=8)
        _tidy(axes, name)
    for axes in panels[len(parameters) :]:
        axes.set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), **_LEGEND)
    return figure
