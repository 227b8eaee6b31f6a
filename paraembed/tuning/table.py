"""Results of a sweep: one row per trial, on the terminal and in files, and plots; scores are × 100 except in files."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from paraembed.aliases import on_disk
from paraembed.io.atomic import write_file, write_json
from paraembed.io.escape import csv_cell
from paraembed.plots import Trial, draw_effects
from paraembed.tuning.ledger import Ledger, TrialRecord, p_value
from paraembed.tuning.points import Points

PARQUET, CSV, BEST, RECIPE = "results.parquet", "results.csv", "best.json", "best-recipe.json"
EFFECTS = "effects.png"


def results(points: Points, ledger: Ledger) -> dict[str, list[Any]]:
    """Return columns, one value for each trial: trial, status, score, p, epochs, searched fields, loss, reason and
    seconds; only seconds vary between runs.

    Score and loss are those of the epoch that gives the trial's score; p is the p-value of its difference from the best
    score, see ``p_value``.
    """
    records, best = ledger.in_order(), ledger.best()
    counted = [record.counted for record in records]
    shown = [points.shown(record.recipe, record.share) for record in records]
    return {
        "trial": [record.number for record in records],
        "status": [record.status for record in records],
        "score": [epoch and epoch.score for epoch in counted],
        "p": [best and p_value(best, record) for record in records],
        "epochs": [len(record.curve) for record in records],
        **on_disk({name: [values[name] for values in shown] for name in points.columns()}),
        "loss": [epoch and epoch.loss for epoch in counted],
        "reason": [record.reason for record in records],
        "seconds": [record.seconds for record in records],
    }


def write_results(points: Points, ledger: Ledger, folder: Path) -> list[Path]:
    """Write the table as CSV and Parquet and, if a trial finished, the best trial and its recipe; return the paths.

    jobs/train.py or jobs/finetune.py reads the recipe. The Parquet file, which marks a finished sweep, is last.
    """
    columns = results(points, ledger)
    table = pa.table(columns | {"p": pa.array(columns["p"], pa.float64())})
    shown = pa.table({name: [csv_cell(cell) for cell in column] for name, column in table.to_pydict().items()})
    shown = shown.cast(table.schema)
    write_file(folder / CSV, lambda file: pyarrow.csv.write_csv(shown, file))
    paths = [folder / CSV]
    best = ledger.best()
    if best is not None:
        assert best.counted is not None
        header = {"trial": best.number, "score": best.score, "share": best.share, "space": points.name}
        header |= {"ties": [record.number for record in ledger.ties()]} if best.replicates else {}
        write_json(folder / BEST, {**header, "metrics": best.counted.metrics, "recipe": best.recipe})
        write_json(folder / RECIPE, best.recipe)
        paths += [folder / BEST, folder / RECIPE]
    write_file(folder / PARQUET, lambda file: pq.write_table(table, file))
    return [*paths, folder / PARQUET]


def draw_results(points: Points, ledger: Ledger, folder: Path, metric: str) -> list[Path]:
    """Plot the trials that have a score, which is called ``metric``; return the paths."""
    parameters, trials = _plotted(points, ledger)
    best, ties = ledger.best(), {record.number for record in ledger.ties()}
    number = None if best is None else best.number
    return draw_effects(folder / EFFECTS, parameters, trials, number, f"{metric} × 100", ties)


def _plotted(points: Points, ledger: Ledger) -> tuple[dict[str, list[str]], list[Trial]]:
    """Return the parameters with several values, as text, and the trials that have a score, with scores × 100."""
    scored = [record for record in ledger.in_order() if record.counted]
    shown = [points.shown(record.recipe, record.share) for record in scored]
    levels = {name: _levels([row[name] for row in shown]) for name in points.columns()}
    searched = {name: values for name, values in levels.items() if len(values) > 1}
    trials = [
        Trial(record.number, {name: values.index(row[name]) for name, values in searched.items()}, 100 * record.score)
        for record, row in zip(scored, shown, strict=True)
    ]
    return {name: [value_text(value) for value in values] for name, values in searched.items()}, trials


def value_text(value: Any) -> str:
    """Return the value of a recipe field as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 trial``, ``2,000 trials``."""
    return f"{number:,} {noun}{'s'[: number != 1]}"


def _levels(values: Sequence[Any]) -> list[Any]:
    """Return the distinct values: None, then numbers in ascending order; names in the order of the trials."""
    distinct = list({str(value): value for value in values}.values())
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in distinct):
        return sorted(distinct, key=lambda value: -math.inf if value is None else value)
    return distinct


def trial_line(points: Points, record: TrialRecord) -> str:
    """Return a line: ``trial 12: 70.12, margin 0.6, word_l2 1e-05; 2 of 2 epochs in 3.1 s: finished``."""
    values = points.shown(record.recipe, record.share).items()
    shown = "".join(f", {name} {value_text(value)}" for name, value in values)
    score = f"{100 * record.score:.2f}" if record.counted else "no score"
    status = record.status if not record.reason else f"{record.status}: {record.reason.splitlines()[0]}"
    epochs = f"{len(record.curve)} of {counted(record.recipe['epochs'], 'epoch')}"
    return f"trial {record.number}: {score}{shown}; {epochs} in {record.seconds:.1f} s: {status}"


def progress(ledger: Ledger, total: int) -> str:
    """Return the number of trials that have ended, and the best one."""
    best = ledger.best()
    line = f"{len(ledger.records)} of {total} trials"
    return line if best is None else f"{line}, best {100 * best.score:.2f} (trial {best.number})"


def best_first(points: Points, ledger: Ledger, most: int = 30) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the finished trials, best first; the result files have the others."""
    finished = sorted(
        (record for record in ledger.in_order() if record.status == "finished"), key=lambda record: -record.score
    )
    rows = []
    for record in finished[:most]:
        cells = map(value_text, points.shown(record.recipe, record.share).values())
        p = None if record is finished[0] else p_value(finished[0], record)
        shown = "" if p is None else f"{p:.3f}"
        rows.append([str(record.number), f"{100 * record.score:.2f}", shown, *cells, f"{record.seconds:.1f}"])
    return ["trial", "score", "p", *points.columns(), "seconds"], rows


def whole_grid(points: Points, numbers: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of points of the space."""
    rows = []
    for number in numbers:
        point = points.at(points.space.choices(number))
        shown = points.shown(point.recipe.to_dict(), point.share)
        rows.append([str(number), *map(value_text, shown.values())])
    return ["point", *points.columns()], rows
