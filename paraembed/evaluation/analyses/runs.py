"""Score by amount of training data: ordered and random (Wieting 2016 figure 1), and by k (Zhou 2017 figure 2)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.evaluation.analyses.content import AnalysisInputs, AnalysisTable, CannotMakeError, Content
from paraembed.evaluation.candidates import trained
from paraembed.evaluation.report import compare
from paraembed.evaluation.tables import Column
from paraembed.papers.results import PAPERS_22, find_row, published
from paraembed.plots import Panel, Series, lines

ZHOU_2017_AVG = find_row("Zhou 2017 §3.1: AVG").values["choose/100"]
"""Accuracy in % of averaged word vectors for 100 phrases."""
WIETING_2016 = {name: find_row(f"Wieting 2016 table 2: {name}") for name in ("PSL", "GloVe")}
"""Averages of word vectors in figure 1."""
_SUITES_OF = {PAPERS_22: ("sts", "sick", "pit2015"), "sts/mean-of-sets": ("sts",)}
"""Means over many sets, with the papers' own first, and the suites that contain these sets."""
_MOST_TICKS = 8

Curves = dict[str, list[tuple[int, float]]]
"""Name of a curve → numbers of pairs, ascending, and values."""


@dataclass(frozen=True)
class TrainingRun:
    """One training run."""

    pairs: int
    encoder: str = ""  # architecture
    # How the pairs were selected from all: the first ones (ordered), a random sample (random), or all of them (none).
    order: str = "none"
    score: float | None = None  # mean correlation × 100; None if it was not measured
    k: int | None = None  # number of contrast phrases; None if the objective has none
    # Accuracy in % of choosing the paraphrase among 100 phrases; None if it was not measured.
    accuracy: float | None = None


def score_by_data(inputs: AnalysisInputs) -> Content:
    """Plot the mean score against the number of pairs, on a log scale."""
    runs = find_runs(inputs)
    curves = score_curves(runs)
    if not curves:
        raise CannotMakeError("the runs of `runs` have no scores; add `suite` sts")
    name = score_name(inputs)
    title, levels = f"{name} × 100", _levels(inputs, name)
    text = (
        f"A run a point: {title} by the number of pairs it was trained on, the first ones of the source (ordered: PPDB "
        "is ordered by confidence) or drawn (random)."
    )
    text += " Dashed: the trained encoders of this report" if levels else ""
    members = {score.name: score.members for score in inputs.report.columns[0].scores if score.is_mean}
    printed = {baseline: published(row, name, members) for baseline, row in WIETING_2016.items()}
    papers = {f"paper: {baseline}": value.value for baseline, value in printed.items() if value is not None}
    text += f"{',' if levels else ' Dashed:'} averages of word vectors, from the paper's table 2" if papers else ""
    text += "." if levels | papers else ""
    levels |= papers
    return _content(text, curves, runs, "score", levels, title)


def choice_by_data(inputs: AnalysisInputs) -> Content:
    """Plot the accuracy against the number of pairs, with one curve for each number of contrast phrases."""
    runs = find_runs(inputs)
    curves = choice_curves(runs)
    if not curves:
        raise CannotMakeError("the runs of `runs` have no accuracy; add `held_out` FOLDER")
    levels = _levels(inputs, choice_name(inputs), with_baselines=True)  # the paper's AVG is an untrained one
    text = (
        "Accuracy in % of choosing a phrase's paraphrase among other phrases, by the number of training pairs and the "
        f"contrast phrases k of its objective. The paper's average of word vectors reaches {ZHOU_2017_AVG:g} %."
    )
    levels["paper: AVG"] = ZHOU_2017_AVG
    return _content(text, curves, runs, "accuracy, %", levels, "accuracy, %")


def score_curves(runs: list[TrainingRun]) -> Curves:
    """Return the scores by encoder and order; a run on all pairs belongs to both orders of its encoder."""
    orders = {
        encoder: {run.order for run in runs if run.encoder == encoder} for encoder in {run.encoder for run in runs}
    }
    spread = [
        replace(run, order=order, k=None)
        for run in runs
        for order in ([run.order] if run.order != "none" else sorted(orders[run.encoder] - {"none"}) or ["none"])
    ]
    return _curves(spread, lambda run: "" if run.order == "none" else run.order, lambda run: run.score)


def choice_curves(runs: list[TrainingRun]) -> Curves:
    """Return the accuracies by encoder and number of contrast phrases."""
    return _curves(runs, lambda run: f"k = {run.k}" if run.k else "", lambda run: run.accuracy)


def amounts_shown(curves: Curves) -> list[int]:
    """Return the numbers of pairs to label on the axis: the largest, and at most seven others, evenly spaced."""
    amounts = sorted({pairs for points in curves.values() for pairs, _ in points}, reverse=True)
    return amounts[:: -(-len(amounts) // _MOST_TICKS)]


@lru_cache(maxsize=1)  # both curves ask for the same, and to score the runs takes a while
def find_runs(inputs: AnalysisInputs) -> list[TrainingRun]:
    """Return the runs that the user lists, by amount of data; raise CannotMakeError if there are none."""
    paths = inputs.options.runs
    if not paths:
        raise CannotMakeError("no runs on several amounts of data were given; set `runs` to encoder folders")
    results = (_scored(folder, inputs) for path in paths for folder in _folders(path))
    return sorted(results, key=lambda run: (run.pairs, run.encoder, run.order, run.k or 0))


def check_runs(paths: Sequence[Path]) -> None:
    """Raise the errors of ``find_runs`` for unreadable folders, without scoring anything."""
    for path in paths:
        for folder in _folders(path):
            _num_pairs(folder, checkpoint.read_config(folder))


def main_score(column: Column, name: str) -> float | None:
    """Return a score × 100; None if the column does not have it."""
    value = next((score.value for score in column.scores if score.name == name), math.nan)
    return None if math.isnan(value) else 100 * value


def score_name(inputs: AnalysisInputs) -> str:
    """Return the score that runs are compared by: one of ``_SUITES_OF``, else the first mean, else the first score; an
    empty string if there is none.
    """
    scores = [score for score in inputs.report.columns[0].scores if not score.name.startswith("choose/")]
    names, means = [score.name for score in scores], [score.name for score in scores if score.is_mean]
    return next(iter([name for name in _SUITES_OF if name in names] or means or names), "")


def choice_name(inputs: AnalysisInputs) -> str:
    """Return the score for choosing the paraphrase among other phrases; an empty string if there is none."""
    return next((score.name for score in inputs.report.columns[0].scores if score.name.startswith("choose/")), "")


def _curves(
    runs: list[TrainingRun], kind: Callable[[TrainingRun], str], value: Callable[[TrainingRun], float | None]
) -> Curves:
    """Return the values of the runs that have one, by encoder and kind."""
    curves: Curves = {}
    for run in sorted(runs, key=lambda run: (run.encoder, run.order, run.k or 0, run.pairs)):
        measured = value(run)
        if measured is not None:
            name = ", ".join(filter(None, (run.encoder, kind(run)))) or "runs"
            curves.setdefault(name, []).append((run.pairs, measured))
    return curves


def _content(
    text: str, curves: Curves, runs: list[TrainingRun], value: str, levels: dict[str, float], title: str
) -> Content:
    most = max(run.pairs for run in runs)
    rows = tuple(
        (name, pairs, 100 * pairs / most, measured) for name, points in curves.items() for pairs, measured in points
    )
    table = AnalysisTable("", "", ("runs", "pairs", "share of the largest, %", value), rows, 2)
    series = []
    for name, points in curves.items():
        pairs, values = zip(*points, strict=True)
        series.append(Series(name, values, pairs))
    picture = lines([Panel(title, series)], ("pairs", ""), amounts=amounts_shown(curves), levels=levels)
    return Content(text, (table,), picture)


def _levels(inputs: AnalysisInputs, name: str, *, with_baselines: bool = False) -> dict[str, float]:
    shown = {candidate.label for candidate in inputs.candidates if with_baselines or not candidate.is_baseline}
    columns = [column for column in inputs.report.columns if column.label in shown]
    scores = {column.label: main_score(column, name) for column in columns}
    return {label: score for label, score in scores.items() if score is not None}


def _num_pairs(folder: Path, config: dict[str, Any]) -> int:
    """Return the number of pairs that an encoder was trained on."""
    num_pairs = ((config.get("provenance") or {}).get("data") or {}).get("pairs")
    if not isinstance(num_pairs, int):
        raise ValueError(
            f"{folder} does not record the number of its training pairs; train it again, or leave it out of `runs`"
        )
    return num_pairs


def _folders(path: Path) -> list[Path]:
    """Return the encoder folders of a path."""
    expected = "expected an encoder folder, or a folder of encoder folders"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; {expected}")
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is a file; {expected}")
    if (path / "config.json").is_file():
        return [path]
    folders = sorted(entry.parent for entry in path.glob("*/config.json"))
    if not folders:
        raise ValueError(
            f"{path} is not an encoder folder and contains none; expected encoder folders, written by jobs/train.py"
        )
    return folders


def _scored(folder: Path, inputs: AnalysisInputs) -> TrainingRun:
    config = checkpoint.read_config(folder)
    num_pairs = _num_pairs(folder, config)
    data = config["provenance"]["data"]
    names = score_name(inputs), choice_name(inputs)
    wanted = {suite for name in names for suite in _SUITES_OF.get(name, (name.split("/")[0],))}
    report = compare([trained(folder)], [suite for suite in inputs.suites if suite.name in wanted], resamples=0)
    score, accuracy = (main_score(report.columns[0], name) for name in names)
    recipe: dict[str, Any] = config.get("recipe") or {}
    has_contrast = recipe.get("objective") in {"contrastive", "negative_sampling"}
    k = recipe.get("contrast_phrases") if has_contrast else None
    return TrainingRun(num_pairs, config["encoder"]["name"], data.get("halvings", "none"), score, k, accuracy)
