"""A sweep: which recipe of a space is the best, on Ray Tune, resumable, in MLflow."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import ray
import torch

from paraembed.cluster.placement import Placement
from paraembed.cluster.tune_gold import Gold
from paraembed.cluster.tune_inputs import Pairs
from paraembed.cluster.tune_show import GrowingTable
from paraembed.cluster.tune_tracking import log_trial
from paraembed.cluster.tune_trials import LedgerSearch, Resources, run_trials
from paraembed.console import doing, duration, say
from paraembed.io.atomic import empty_folder, foreign_file, write_json
from paraembed.io.fingerprint import differences, read_json
from paraembed.options import Range
from paraembed.supervised.tasks import write_split
from paraembed.tracking.runs import Run
from paraembed.tuning.ledger import Ledger, Record
from paraembed.tuning.points import Point, Points
from paraembed.tuning.probe import spread, trial_seconds
from paraembed.tuning.search import SearchSettings, suggest
from paraembed.tuning.table import draw_results, write_results
from paraembed.tuning.trial import AnyScorer, Inputs, inputs_key
from tune_spaces.space import Selection

_OURS = re.compile(
    r"(sweep|run|registered|split|best|best-recipe)\.json|results\.(parquet|csv)|[\w-]+\.png"
    r"|(trials|ray|tuning-pairs|scores|encoder|model|(encoder|model)\.training)/.*"
    r"|(encoder|model)\.trace\.json\.gz|(encoder|model|tuning-pairs)\.mlflow(-refused)?\.jsonl(\.[\d-]+)?"
    r"|\.(encoder|model|tuning-pairs)\.[\w.]*(/.*)?|\.[\w.-]+\.[0-9a-f]{8}\.tmp",
    re.DOTALL,
)
"""Paths of the files in a sweep's folder."""


class _Saved(TypedDict):
    """What ``sweep.json`` decides of a resumed sweep."""

    concurrent: NotRequired[Annotated[int, Range(1, 2**31 - 1)] | None]


@dataclass(frozen=True)
class Sweep:
    """What to search, on what, where to.

    Attributes:
        points: the space, and what was fixed.
        selection: what the best is chosen by.
        data: what the trials train on.
        out: folder to write.
        settings: grid, random or TPE, early stopping.
        placement: workers and GPUs of a trial.
        concurrent: trials at a time; None: as many as the CPUs or GPUs can hold.
        max_failures: more failed trials end the sweep.
        retry_failed: run the trials that failed before again.
    """

    points: Points
    selection: Selection
    data: Pairs | Gold
    out: Path
    settings: SearchSettings = field(default_factory=SearchSettings)
    placement: Placement = field(default_factory=Placement)
    concurrent: int | None = None
    max_failures: int = 10
    retry_failed: bool = False

    @property
    def num_trials(self) -> int:
        """How many trials it has."""
        return self.settings.num_trials(self.points.space.size)

    @property
    def trials(self) -> Path:
        """Folder of the records."""
        return self.out / "trials"

    @property
    def metric(self) -> str:
        """The metric in words: ``sts/2016/mean``, ``2 words/… -1 words/…``."""
        terms = self.selection.metric
        if len(terms) == 1:
            return terms[0][1]
        return " ".join(f"{weight:+g} {name}" for weight, name in terms).removeprefix("+")


@dataclass(frozen=True)
class Swept:
    """What a sweep found: all trials, and the best of them."""

    ledger: Ledger
    best: Record


def settled(sweep: Sweep, overwrite: bool) -> Sweep:
    """The sweep with its trials at a time: those asked for, those that it was begun with, or as many as fit."""
    saved = sweep.out / "sweep.json"
    before = _read_saved(saved, overwrite).get("concurrent") if saved.is_file() and not overwrite else None
    return replace(sweep, concurrent=sweep.concurrent or before or concurrency(sweep))


def begin(sweep: Sweep, overwrite: bool) -> None:
    """Put down in the sweep's folder what decides its table, or find the same there.

    Raises:
        ValueError: the folder holds another sweep, which is not to be overwritten, or something else.
    """
    identity, saved = _identity(sweep), sweep.out / "sweep.json"
    if saved.is_file():
        before = _read_saved(saved, overwrite)
        # A difference in one is often the cause of those that follow.
        told = (differences({name: before.get(name)}, {name: value}) for name, value in identity.items())
        changed = next(filter(None, told), "")
        if not changed:
            if any(sweep.trials.glob("*.json")):
                say(f"going on with the sweep in {sweep.out}")
            return
        if not overwrite:
            raise ValueError(
                f"{sweep.out} holds a sweep that was begun with another {changed}; go back to that, choose another "
                "--out, or start afresh with --overwrite"
            )
    foreign = foreign_file(sweep.out, _OURS if saved.is_file() else re.compile(r"\.sweep\.json\..*"))
    if foreign is not None:
        raise ValueError(
            f"{sweep.out} holds something that jobs/tune.py did not write; choose another --out, or move it away: "
            f"{foreign.relative_to(sweep.out)}"
        )
    empty_folder(sweep.out)
    write_json(saved, identity)


def _read_saved(saved: Path, overwrite: bool) -> dict[str, Any]:
    try:
        value: dict[str, Any] = read_json(saved, _Saved)
    except ValueError as error:
        if not overwrite:
            raise ValueError(f"{error}; start over with --overwrite") from None
        return {}
    return value


def _identity(sweep: Sweep) -> dict[str, Any]:
    points, on = sweep.points, sweep.data.identity()
    data = on.pop("data")
    searched = {
        "base": points.base.to_dict(),
        "fixed": {**points.space.fixed, **points.fixed},
        "axes": {name: list(values) for name, values in points.space.axes.items()},
    }
    return {
        "space": points.name,
        **on,
        "metric": [[weight, name] for weight, name in sweep.selection.metric],
        "data": data,  # another metric is of other data
        "epochs": points.space.tuning_epochs,
        "search": asdict(sweep.settings),
        "concurrent": concurrency(sweep) if sweep.settings.looks_back else None,  # else it decides nothing
        "workers": sweep.placement.workers,
        "gpus": sweep.placement.gpus,
        "searched": searched,
    }


def concurrency(sweep: Sweep) -> int:
    """Trials at a time: what was asked for, else what the CPUs or GPUs hold."""
    gpus, workers = sweep.placement.gpus, sweep.placement.workers
    if sweep.concurrent is not None:
        return sweep.concurrent
    if "RAY_ADDRESS" in os.environ:
        there = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 0))  # type: ignore[no-untyped-call]
    else:
        there = torch.cuda.device_count() if gpus else len(os.sched_getaffinity(0))
    return max(1, min(sweep.num_trials, there // workers))


def run_sweep(sweep: Sweep, run: Run) -> Swept:
    """Run the trials that have not ended yet, write the results and log them; needs a Ray session.

    Raises:
        OSError, ValueError: the inputs will not do, or too many trials failed.
    """
    ledger = Ledger(sweep.trials)
    for record in ledger.in_order():
        sweep.points.check_record(record, sweep.num_trials)
    if sweep.retry_failed:
        ledger.drop_failed()
    data = sweep.data.drawn(sweep.out, sweep.settings.seed, concurrency(sweep))
    for record in ledger.in_order():  # a driver that was killed may not have got to log its last ones
        log_trial(run, record, sweep.points.shown(record.recipe, record.share))
    is_left = any(number not in ledger.records for number in range(sweep.num_trials))
    if is_left and len(ledger.failed()) <= sweep.max_failures:
        _run_trials(replace(sweep, data=data), ledger, run)
    doing("writing and drawing the results")
    paths = write_results(sweep.points, ledger, sweep.out)
    best, failed = ledger.best(), ledger.failed()
    if isinstance(sweep.data, Gold):
        paths += write_split(sweep.data.task, sweep.out)
    paths += draw_results(sweep.points, ledger, sweep.out, sweep.metric)
    for path in paths:
        run.artifacts(path)
    run.metrics({"trials": len(ledger.records), "failed": len(failed)})
    first = f"; trial {failed[0].number}: {failed[0].reason}" if failed else ""
    if len(failed) > sweep.max_failures:
        raise ValueError(
            f"{len(failed)} trials failed, --max-failures is {sweep.max_failures}{first}; mend the cause and run the "
            "same command with --retry-failed, or allow more"
        )
    if best is None:
        raise ValueError(f"no trial finished{first}; mend the cause and run the same command with --retry-failed")
    run.metrics({"best_score": best.score, "best_trial": best.number})
    return Swept(ledger, best)


def _run_trials(sweep: Sweep, ledger: Ledger, run: Run) -> None:
    points, placement = sweep.points, sweep.placement
    concurrent = concurrency(sweep)
    doing("reading what the trials train on, and the words")
    inputs = sweep.data.inputs(points, placement.workers, concurrent)
    scorer = sweep.data.scorer(sweep.selection.metric)
    table = GrowingTable(points, ledger, sweep.num_trials, concurrent)

    def on_record(record: Record) -> None:
        log_trial(run, record, points.shown(record.recipe, record.share))
        table.add(record)

    searcher = LedgerSearch(
        points, sweep.settings, ledger, concurrent, sweep.max_failures, on_record=on_record, on_epoch=table.epoch
    )
    _say_budget(sweep, inputs, scorer, searcher.todo, concurrent)
    table.begin()
    resources = Resources(concurrent, placement.workers, placement.gpus)
    try:
        run_trials(searcher, inputs, scorer, resources, sweep.out / "ray")
    finally:
        table.close()


def _to_probe(sweep: Sweep, todo: Sequence[int]) -> list[Point]:
    """Some of the trials that are left; of TPE's, which nobody knows yet, as many points of the space."""
    points, space = sweep.points, sweep.points.space
    if sweep.settings.search == "tpe":
        return [points.at(space.choices(number)) for number in spread(range(space.size))[: len(todo)]]
    return [points.at(suggest(space, sweep.settings, number, (), ())) for number in spread(todo)]


def _say_budget(
    sweep: Sweep, inputs: Mapping[str, Inputs], scorer: AnyScorer, todo: Sequence[int], concurrent: int
) -> None:
    """Say what the sweep will take, and what it has to beat."""
    doing("measuring how long a trial takes")
    probed = _to_probe(sweep, todo)
    recipe = probed[0].recipe
    some = inputs[inputs_key(recipe)]
    try:
        before, _ = scorer(some.model(recipe))
        say(f"{sweep.metric} is {before:.4f} before training")
    except ValueError as error:
        if not scorer.keeps_best:  # else an epoch may be without a score, too
            raise
        say(f"no {sweep.metric} before training: {error}")
    noun = "pairs" if isinstance(sweep.data, Pairs) else "examples"
    trials = f"{len(todo):,} trials of {recipe.epochs} epochs, {len(some):,} {noun} each"
    device = "cuda" if sweep.placement.gpus else "cpu"
    elsewhere = (device == "cuda" and not torch.cuda.is_available()) or sweep.placement.workers > 1
    seconds = None if elsewhere else trial_seconds(probed, inputs, scorer, device)
    if seconds is None:
        why = "they do not run on this process's processor" if elsewhere else "those that were begun failed"
        say(f"{trials}; how long they take was not measured: {why}")
        return
    say(
        f"{trials} × about {duration(seconds)} (measured), {concurrent} at a time: about "
        f"{duration(len(todo) * seconds / min(concurrent, len(todo)))}"
    )
