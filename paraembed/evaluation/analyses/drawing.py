"""How the pictures of analyses look: colours, axes, a figure as PNG bytes."""

import io
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which colour-blind readers tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PUBLISHED = "#8a8a8a"
"""What a paper printed."""
DPI = 120
_TITLE = 60  # characters

plain_text = rc_context({"text.parse_math": False})
"""Decorator of whatever draws: a word, a label or a file's name may hold a $."""


def colour(number: int) -> str:
    """Colour of the candidate with this number; they repeat after the seventh."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Its marker; colour and marker differ for 49 candidates."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, without pyplot's global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_png(figure: Figure) -> bytes:
    """A figure as a PNG; the same figure gives the same bytes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A word in a script that the font lacks is drawn as a box; the table beside the picture has it right.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def tidy(axes: Axes, title: str = "", grid: Literal["both", "x", "y"] = "both") -> None:
    """A title at the left, a faint grid, no box."""
    axes.set_title(shortened(title, _TITLE), loc="left", fontsize=10)  # a long one would take all of the picture
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def legend_above(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """One legend for the whole figure, above it."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        [shortened(label, 40) for label in labels],
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )


def bars(axes: Axes, heights: Sequence[npt.NDArray[np.float64]], labels: Sequence[str], ticks: Sequence[str]) -> None:
    """Bars side by side: one array [k] a candidate, NaN where there is no number; one tick a bin."""
    width = 0.8 / len(heights)
    for number, (values, label) in enumerate(zip(heights, labels, strict=True)):
        places = np.arange(len(values)) + (number - (len(heights) - 1) / 2) * width
        axes.bar(places, values, 0.92 * width, color=colour(number), label=label)
    axes.set_xticks(range(len(ticks)), ticks, fontsize=9)
    axes.set_xlim(-0.5, len(ticks) - 0.5)


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
