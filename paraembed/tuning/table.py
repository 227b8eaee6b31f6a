"""The results of a sweep: one row a trial."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from paraembed.escape import csv_cell
from paraembed.files import write_file, write_json
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
