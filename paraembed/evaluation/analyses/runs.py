"""Runs that differ in their training data or in a setting: what each was trained on, and how it scores."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.escape import listed
from paraembed.evaluation.analyses.content import CannotMakeError, Inputs
from paraembed.evaluation.candidates import trained
from paraembed.evaluation.report import Column, compare
from paraembed.files import open_binary
from paraembed.papers.published import PAPERS_22

ORDERS = ("ordered", "random", "none")
"""How the pairs of a run were cut from all pairs: the first ones, drawn, or all of them."""
COLUMNS = ("pairs", "encoder", "order", "score", "k", "accuracy")
_SUITES_OF = {PAPERS_22: ("sts", "sick", "pit2015"), "sts/mean-of-sets": ("sts",)}
"""Means over many sets, the paper's own first, and the suites that hold those."""
_MOST_BYTES = 1 << 24


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        pairs: it was trained on.
        encoder: its architecture, or what the table calls it.
        order: one of ``ORDERS``.
        score: mean correlation × 100; None where it was not scored so.
        k: contrast phrases it was trained with; None where its objective has none.
        accuracy: of choosing the paraphrase among 100 phrases, in %; None where it was not scored so.
    """

    pairs: int
    encoder: str = ""
    order: str = "none"
    score: float | None = None
    k: int | None = None
    accuracy: float | None = None


@lru_cache(maxsize=1)  # both curves ask for the same, and to score the runs takes a while
def find_runs(inputs: Inputs) -> list[Run]:
    """The runs that a user names, by amount of data.

    Raises:
        CannotMakeError: none was named.
        FileNotFoundError, ValueError: a folder or table that cannot be read.
    """
    paths = inputs.options.runs
    if not paths:
        raise CannotMakeError("it needs runs on several amounts of data; give --runs, encoder folders or a table")
    found: list[Run] = []
    for path in paths:
        _check_there(path)
        found += [_scored(folder, inputs) for folder in _folders(path)] if path.is_dir() else read_runs(path)
    return sorted(found, key=lambda run: (run.pairs, run.encoder, run.order, run.k or 0))


def check_runs(paths: Sequence[Path]) -> None:
    """Raise what ``find_runs`` does for a folder or table that cannot be read, without scoring anything."""
    for path in paths:
        _check_there(path)
        for folder in _folders(path) if path.is_dir() else ():
            _num_pairs(folder, checkpoint.read_config(folder))
        if not path.is_dir():
            read_runs(path)


def read_runs(path: Path) -> list[Run]:
    """Runs of a table: ``.tsv``, else comma-separated; a header with ``pairs`` and others of ``COLUMNS``.

    Raises:
        ValueError: no such header, or a cell that is not what its column holds (file and line named).
    """
    with open_binary(path) as file:
        data = file.read(_MOST_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is no text in UTF-8; expected a table with the columns {', '.join(COLUMNS)}"
        ) from None
    name = path.name.removesuffix(".gz")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if name.endswith(".tsv") else ",")
    head = [cell.strip().lower() for cell in next(rows, [])]
    unknown = [cell for cell in head if cell not in COLUMNS]
    if "pairs" not in head or unknown or not {"score", "accuracy"} & {*head} or len({*head}) < len(head):
        raise ValueError(
            f"{path}, line 1: the columns are {listed(head) or 'none'}; expected pairs, score or accuracy or both, "
            f"and maybe others of {', '.join(COLUMNS)}, once each"
        )
    try:
        runs = [_run(path, rows.line_num, head, cells) for cells in rows if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: {error}; mend or drop the line") from None
    if not runs:
        raise ValueError(f"{path} holds no runs below its header")
    return runs


def main_score(column: Column, names: Sequence[str]) -> float | None:
    """The score × 100 of one of these names; None where the column has none."""
    found = {score.name: score.value for score in column.scores if score.name in names}
    value = next((found[name] for name in names if name in found), math.nan)
    return None if math.isnan(value) else 100 * value


def score_names(inputs: Inputs) -> list[str]:
    """The score that runs are compared by: one of ``_SUITES_OF``, else the first mean, else the first score."""
    scores = [score for score in inputs.report.columns[0].scores if not score.name.startswith("choose/")]
    there = {score.name for score in scores}
    preferred = [name for name in _SUITES_OF if name in there]
    means = [score.name for score in scores if score.is_mean]
    return (preferred or means or [score.name for score in scores])[:1]


def choice_names(inputs: Inputs) -> list[str]:
    """The score that says how often the paraphrase is chosen among others."""
    return [score.name for score in inputs.report.columns[0].scores if score.name.startswith("choose/")][:1]


def _check_there(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; expected an encoder folder, a folder of them, or a table")


def _num_pairs(folder: Path, config: dict[str, Any]) -> int:
    """How many pairs an encoder was trained on."""
    found = ((config.get("provenance") or {}).get("data") or {}).get("pairs")
    if not isinstance(found, int):
        raise ValueError(
            f"{folder} does not say how many pairs it was trained on; train it again, or give --runs a table with the "
            f"columns {', '.join(COLUMNS)}"
        )
    return found


def _folders(path: Path) -> list[Path]:
    if (path / "config.json").is_file():
        return [path]
    found = sorted(entry.parent for entry in path.glob("*/config.json"))
    if not found:
        raise ValueError(f"{path} is no encoder folder and holds none; expected what jobs/train.py writes")
    return found


def _scored(folder: Path, inputs: Inputs) -> Run:
    config = checkpoint.read_config(folder)
    num_pairs = _num_pairs(folder, config)
    data = config["provenance"]["data"]
    names = score_names(inputs), choice_names(inputs)
    wanted = {suite for one in names for name in one for suite in _SUITES_OF.get(name, (name.split("/")[0],))}
    report = compare([trained(folder)], [suite for suite in inputs.suites if suite.name in wanted], resamples=0)
    score, accuracy = (main_score(report.columns[0], one) for one in names)
    recipe: dict[str, Any] = config.get("recipe") or {}
    k = recipe.get("contrast_phrases") if recipe.get("objective") == "contrastive" else None
    return Run(num_pairs, config["encoder"]["name"], data.get("halvings", "none"), score, k, accuracy)


def _run(path: Path, line: int, head: list[str], cells: list[str]) -> Run:
    if len(cells) != len(head):
        raise ValueError(f"{path}, line {line}: {len(cells)} cells; the header has {len(head)} columns")
    given = {name: cell.strip() for name, cell in zip(head, cells, strict=True)}
    numbers: dict[str, float | None] = {}
    for name in ("pairs", "score", "k", "accuracy"):
        cell = given.get(name, "")
        try:
            numbers[name] = float(cell) if cell else None
        except ValueError:
            numbers[name] = math.nan
        value = numbers[name]
        whole = name in {"pairs", "k"}
        if value is not None and (not math.isfinite(value) or (whole and (value < 1 or value != int(value)))):
            raise ValueError(f"{path}, line {line}: {name} is {cell[:20]!r}; expected a {'whole ' * whole}number")
    order = given.get("order") or "none"
    if order not in ORDERS:
        raise ValueError(f"{path}, line {line}: order is {order[:20]!r}; allowed: {', '.join(ORDERS)}")
    pairs, k = numbers["pairs"], numbers["k"]
    if pairs is None:
        raise ValueError(f"{path}, line {line}: no number of pairs")
    whole_k = None if k is None else int(k)
    return Run(int(pairs), given.get("encoder", ""), order, numbers["score"], whole_k, numbers["accuracy"])
