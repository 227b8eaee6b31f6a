"""The table of a sweep as it grows: a row a trial, in a log file, too; on a terminal a line below it says the rest."""

import time
from collections.abc import Sequence
from typing import Any

from paraembed.console import ProgressLine, doing, duration, say
from paraembed.tuning.ledger import Ledger, Record
from paraembed.tuning.points import Points
from paraembed.tuning.table import value_text

_PLAIN_SECONDS = 30.0
_SCORE = 7  # characters


class GrowingTable:
    """Rows of trials as they end.

    Args:
        points: what is searched.
        ledger: what has ended.
        total: trials of the sweep.
        concurrent: trials at a time.
    """

    def __init__(self, points: Points, ledger: Ledger, total: int, concurrent: int) -> None:
        self._points, self._ledger, self._total, self._concurrent = points, ledger, total, concurrent
        self._before = len(ledger.records)
        self._started = time.monotonic()
        self._line = ProgressLine(_PLAIN_SECONDS)
        self._columns = points.columns()
        self._widths = {name: max(len(name), *map(len, self._texts(name))) for name in self._columns}

    def begin(self) -> None:
        """Write the head."""
        cells = [name.rjust(self._widths[name]) for name in self._columns]
        doing("")
        say("  ".join(["trial", "score".rjust(_SCORE), *cells, "epochs", "   time", "status"]))

    def epoch(self, trial: int, epoch: int, score: float | None) -> None:
        """Say how far a trial is."""
        self._show(f"  trial {trial}: epoch {epoch}, {'no score' if score is None else f'{score:.4f}'}")

    def add(self, record: Record) -> None:
        """Write the row of a trial that has ended."""
        self._line.close()
        say(self.row(record))
        self._show("")

    def row(self, record: Record) -> str:
        """For example ``   12   0.7012     0.6         1e-05   2/2    3.1 s  finished``."""
        shown = self._points.shown(record.recipe, record.share)
        cells = [value_text(shown[name]).rjust(self._widths[name]) for name in self._columns]
        score = (f"{record.score:.4f}" if record.counted else "").rjust(_SCORE)
        epochs = f"{len(record.curve)}/{record.recipe['epochs']}".rjust(6)
        status = record.status if not record.reason else f"{record.status}: {record.reason.splitlines()[0]}"
        return "  ".join([f"{record.number:5}", score, *cells, epochs, f"{record.seconds:5.1f} s", status])

    def close(self) -> None:
        """End the line."""
        self._line.close()

    def _show(self, more: str) -> None:
        done = len(self._ledger.records)
        best = self._ledger.best()
        line = f"{done} of {self._total} trials"
        if best is not None:
            line += f"  best {best.score:.4f} (trial {best.number})"
        if done > self._before:
            left = (time.monotonic() - self._started) / (done - self._before) * (self._total - done)
            line += f"  {duration(left)} left"
        self._line.show(line + more)

    def _texts(self, name: str) -> list[str]:
        values: list[Any] = []
        for axis, choices in self._points.space.axes.items():
            values += [
                one.get(name) if isinstance(one, dict) else one
                for one in choices
                if isinstance(one, dict) or axis == name
            ]
        return [value_text(value) for value in values] or [""]


def best_first(points: Points, ledger: Ledger, most: int = 30) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the trials that finished, the best first; the others are in the results."""
    finished = sorted((one for one in ledger.in_order() if one.status == "finished"), key=lambda one: -one.score)
    rows = []
    for record in finished[:most]:
        shown = points.shown(record.recipe, record.share)
        cells = [value_text(shown[name]) for name in points.columns()]
        rows.append([str(record.number), f"{record.score:.4f}", *cells, f"{record.seconds:.1f}"])
    return ["trial", "score", *points.columns(), "seconds"], rows


def whole_grid(points: Points, numbers: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of points of the space."""
    space, names = points.space, points.columns()
    rows = []
    for number in numbers:
        point = points.at(space.choices(number))
        shown = points.shown(point.recipe.to_dict(), point.share)
        rows.append([str(number), *(value_text(shown[name]) for name in names)])
    return ["point", *names], rows
