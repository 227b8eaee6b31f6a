"""Results of a sweep: one row a trial, and pictures."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from paraembed.io.atomic import write_file, write_json
from paraembed.io.escape import csv_cell
from paraembed.plots import Trial, draw_sweep
from paraembed.tuning.ledger import Ledger, Record
from paraembed.tuning.points import Points

PARQUET, CSV, BEST, RECIPE = "results.parquet", "results.csv", "best.json", "best-recipe.json"


def results(points: Points, ledger: Ledger) -> pa.Table:
    """Trial, status, score, epochs, the searched fields, loss, reason, seconds; the last one alone varies with time.

    Score and loss are those of the epoch that counts.
    """
    rows = [_row(points, record) for record in ledger.in_order()]
    names = ["trial", "status", "score", "epochs", *points.columns(), "loss", "reason", "seconds"]
    return pa.table({name: pa.array(_alike([row[name] for row in rows])) for name in names})


def write_results(points: Points, ledger: Ledger, folder: Path) -> list[Path]:
    """Write the table as Parquet and CSV and, where a trial finished, the best one and its recipe; returns the paths.

    The recipe is what ``jobs/train.py --recipe FILE`` takes, or of gold labels ``jobs/finetune.py``.
    """
    table = results(points, ledger)
    shown = pa.table({name: [csv_cell(cell) for cell in column] for name, column in table.to_pydict().items()})
    shown = shown.cast(table.schema)
    write_file(folder / PARQUET, lambda file: pq.write_table(table, file))
    write_file(folder / CSV, lambda file: pyarrow.csv.write_csv(shown, file))
    paths = [folder / PARQUET, folder / CSV]
    best = ledger.best()
    if best is not None:
        assert best.counted is not None
        told = {"trial": best.number, "score": best.score, "share": best.share, "space": points.name}
        write_json(folder / BEST, {**told, "metrics": best.counted.metrics, "recipe": best.recipe})
        write_json(folder / RECIPE, best.recipe)
        paths += [folder / BEST, folder / RECIPE]
    return paths


def draw_results(points: Points, ledger: Ledger, folder: Path, metric: str) -> list[Path]:
    """Write the pictures of the trials that have a score; returns the paths.

    Args:
        points: what was searched.
        ledger: the trials.
        folder: to write to.
        metric: name of the score.
    """
    parameters, trials = _plotted(points, ledger)
    best = ledger.best()
    return draw_sweep(folder, parameters, trials, None if best is None else best.number, metric)


def _plotted(points: Points, ledger: Ledger) -> tuple[dict[str, list[str]], list[Trial]]:
    """Parameters of several values, as texts, and the trials that have a score."""
    scored = [record for record in ledger.in_order() if record.counted]
    shown = [points.shown(record.recipe, record.share) for record in scored]
    levels = {name: _levels([row[name] for row in shown]) for name in points.columns()}
    searched = {name: values for name, values in levels.items() if len(values) > 1}
    trials = [
        Trial(
            record.number,
            {name: values.index(row[name]) for name, values in searched.items()},
            record.score,
            [(epoch.epoch, epoch.score) for epoch in record.curve if epoch.score is not None],
        )
        for record, row in zip(scored, shown, strict=True)
    ]
    return {name: [value_text(value) for value in values] for name, values in searched.items()}, trials


def value_text(value: Any) -> str:
    """A value of a recipe's field for a reader."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _levels(values: Sequence[Any]) -> list[Any]:
    """Distinct values: numbers in ascending order after None, names in the order of the trials."""
    distinct = list({str(value): value for value in values}.values())
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in distinct):
        return sorted(distinct, key=lambda value: -math.inf if value is None else value)
    return distinct


def _row(points: Points, record: Record) -> dict[str, Any]:
    counted = record.counted
    return {
        "trial": record.number,
        "status": record.status,
        "score": counted.score if counted else None,
        "epochs": len(record.curve),
        **points.shown(record.recipe, record.share),
        "loss": counted.loss if counted else None,
        "reason": record.reason,
        "seconds": record.seconds,
    }


def _alike(values: list[Any]) -> list[Any]:
    """Numbers as float where one of them is."""
    if any(isinstance(one, float) for one in values):
        return [float(one) if isinstance(one, int) else one for one in values]
    return values
