"""A sweep: which recipe of a space is the best, on Ray Tune, resumable, in MLflow."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import ray
import torch

from paraembed.cluster.job import say
from paraembed.cluster.progress import duration
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.tracking import Run
from paraembed.cluster.train import Placement, about_tokens
from paraembed.cluster.tune_show import GrowingTable
from paraembed.cluster.tune_tracking import TrialRuns
from paraembed.cluster.tune_trials import LedgerSearch, Resources, run_trials
from paraembed.data.shards import ShardSettings
from paraembed.evaluation.selection import suites_digest
from paraembed.evaluation.sets import Suite
from paraembed.files import differences, empty_folder, read_json, sha256_of, write_json
from paraembed.papers import find_recipe
from paraembed.training.inputs import read_pair_manifest
from paraembed.training.memory import available_memory, estimate
from paraembed.tuning.ledger import Ledger, Record
from paraembed.tuning.pictures import draw_sweep
from paraembed.tuning.points import Point, Points
from paraembed.tuning.probe import spread, trial_seconds
from paraembed.tuning.search import SearchSettings, suggest
from paraembed.tuning.table import write_results
from paraembed.tuning.trial import DECIDES_INPUTS, Inputs, Scorer, inputs_key, new_encoder, read_inputs
from tune_spaces.space import Selection

SAMPLE = "tuning-pairs"
_KEPT_COLUMNS = ("first", "second", "score", "first_tree", "second_tree")
_DECIDES_MEMORY = ("encoder", "optimiser", "train_words", "word_penalty", "update", "batch_size")
_GIB = 2**30


@dataclass(frozen=True)
class Sweep:
    """What to search, on what, where to.

    Attributes:
        points: the space, and what was fixed.
        selection: what the best is chosen by.
        pairs: folder of pair shards.
        words: word-vector text file.
        out: folder to write.
        settings: grid, random or TPE, early stopping.
        sample: pairs of the tuning set, drawn; None: all.
        placement: workers and GPUs of a trial.
        concurrent: trials at a time; None: as many as the CPUs or GPUs can hold.
        max_failures: more failed trials end the sweep.
        retry_failed: run the trials that failed before again.
    """

    points: Points
    selection: Selection
    pairs: Path
    words: Path
    out: Path
    settings: SearchSettings = field(default_factory=SearchSettings)
    sample: int | None = None
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
    """What a sweep found: all trials, the best of them, and the folder of the pairs that they were trained on."""

    ledger: Ledger
    best: Record
    pairs: Path


def settled(sweep: Sweep, overwrite: bool) -> Sweep:
    """The sweep with its trials at a time: those asked for, those that it was begun with, or as many as fit."""
    saved = sweep.out / "sweep.json"
    before = read_json(saved).get("concurrent") if saved.is_file() and not overwrite else None
    return replace(sweep, concurrent=sweep.concurrent or before or concurrency(sweep))


def begin(sweep: Sweep, suites: Sequence[Suite], overwrite: bool) -> None:
    """Put down in the sweep's folder what decides its table, or find the same there.

    Raises:
        ValueError: the folder holds another sweep, which is not to be overwritten, or something else.
    """
    identity, saved = _identity(sweep, suites), sweep.out / "sweep.json"
    if saved.is_file():
        before = read_json(saved)
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
    elif any(sweep.out.iterdir()):
        raise ValueError(f"{sweep.out} holds something that jobs/tune.py did not write; choose another --out")
    empty_folder(sweep.out)
    write_json(saved, identity)


def _identity(sweep: Sweep, suites: Sequence[Suite]) -> dict[str, Any]:
    points = sweep.points
    searched = {
        "base": find_recipe(points.space.base).to_dict(),
        "fixed": {**points.space.fixed, **points.fixed},
        "axes": {name: list(values) for name, values in points.space.axes.items()},
    }
    return {
        "space": points.name,
        "pairs": sha256_of(sweep.pairs / "manifest.json"),
        "words": sha256_of(sweep.words),
        "metric": [[weight, name] for weight, name in sweep.selection.metric],
        "data": suites_digest(suites),
        "sample": sweep.sample,
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


def run_sweep(sweep: Sweep, run: Run, suites: tuple[Suite, ...]) -> Swept:
    """Run the trials that have not ended yet, write the results and log them; needs a Ray session.

    Raises:
        OSError, ValueError: the inputs will not do, or too many trials failed.
    """
    ledger = Ledger(sweep.trials)
    if sweep.retry_failed:
        ledger.drop_failed()
    pairs = _tuning_pairs(sweep)
    runs = TrialRuns(run, ledger)
    for record in ledger.in_order():  # a driver that was killed may not have got to log its last ones
        runs.add(record, sweep.points.shown(record.recipe, record.share))
    is_left = any(number not in ledger.records for number in range(sweep.num_trials))
    if is_left and len(ledger.failed()) <= sweep.max_failures:
        _run_trials(sweep, ledger, pairs, Scorer(suites, sweep.selection.metric), runs)
    paths = write_results(sweep.points, ledger, sweep.out)
    best, failed = ledger.best(), ledger.failed()
    paths += draw_sweep(sweep.out, sweep.points, ledger.in_order(), best, sweep.metric)
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
    return Swept(ledger, best, pairs)


def _run_trials(sweep: Sweep, ledger: Ledger, pairs: Path, scorer: Scorer, runs: TrialRuns) -> None:
    points, placement = sweep.points, sweep.placement
    concurrent = concurrency(sweep)
    inputs = _read_all_inputs(sweep, pairs, concurrent)
    table = GrowingTable(points, ledger, sweep.num_trials, concurrent)

    def on_record(record: Record) -> None:
        runs.add(record, points.shown(record.recipe, record.share))
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


def _read_all_inputs(sweep: Sweep, pairs: Path, concurrent: int) -> dict[str, Inputs]:
    """What the trials share, by ``inputs_key``.

    Raises:
        ValueError: too few pairs, or too little memory, for one of the recipes.
    """
    shards = read_pair_manifest(pairs)
    points = sweep.points.differing_in({*DECIDES_INPUTS, *_DECIDES_MEMORY})
    kept, workers = shards["counts"]["kept"], sweep.placement.workers
    most = max(point.recipe.batch_size for point in points)
    if most * workers > kept:
        each, fewer = (f" for each of {workers} workers", " or fewer --workers") if workers > 1 else ("", "")
        raise ValueError(
            f"the space has batches of {most:,} pairs{each}, and there are {kept:,}; give more pairs, a larger --sample"
            f"{fewer}"
        )
    here = 1 if "RAY_ADDRESS" in os.environ else concurrent * workers
    tokens, available = about_tokens(pairs, shards), available_memory()
    takes = {
        (one.optimiser, one.train_words, one.word_penalty > 0, one.update, one.max_words): one
        for one in (point.recipe for point in points)
    }
    needed = max(estimate(sweep.words, recipe, tokens, kept, here).needed for recipe in takes.values())
    if needed > available:
        raise ValueError(
            f"{concurrent} trials at a time need about {needed / _GIB:,.1f} GiB of memory, and {available / _GIB:,.1f} "
            "GiB are available; keep fewer words with --set max_words=N, or use a smaller --concurrent"
        )
    recipes = {inputs_key(point.recipe): point.recipe for point in points}
    return {key: read_inputs(sweep.words, pairs, shards, recipe) for key, recipe in recipes.items()}


def _to_probe(sweep: Sweep, todo: Sequence[int]) -> list[Point]:
    """Some of the trials that are left; of TPE's, which nobody knows yet, as many points of the space."""
    points, space = sweep.points, sweep.points.space
    if sweep.settings.search == "tpe":
        return [points.at(space.choices(number)) for number in spread(range(space.size))[: len(todo)]]
    return [points.at(suggest(space, sweep.settings, number, (), ())) for number in spread(todo)]


def _say_budget(
    sweep: Sweep, inputs: Mapping[str, Inputs], scorer: Scorer, todo: Sequence[int], concurrent: int
) -> None:
    """Say what the sweep will take, and what it has to beat."""
    probed = _to_probe(sweep, todo)
    recipe = probed[0].recipe
    some = inputs[inputs_key(recipe)]
    before, _ = scorer(new_encoder(some, recipe))
    say(f"{sweep.metric} is {before:.4f} before training")
    trials = f"{len(todo):,} trials of {recipe.epochs} epochs, {len(some.pairs) // 2:,} pairs each"
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


def _tuning_pairs(sweep: Sweep) -> Path:
    """Folder of the trials' pairs: the ones that ``jobs/shard.py --sample`` would draw, or all."""
    shards = read_pair_manifest(sweep.pairs)
    kept = shards["counts"]["kept"]
    if sweep.sample is None or sweep.sample >= kept:
        return sweep.pairs
    out = sweep.out / SAMPLE
    files = [sweep.pairs / shard["name"] for shard in shards["shards"]]
    names = pq.read_schema(files[0]).names
    columns: tuple[Any, ...] = tuple(name if name in _KEPT_COLUMNS else "ignore" for name in names)
    settings = ShardSettings(columns=columns, tokeniser="space", sample=sweep.sample, sample_seed=sweep.settings.seed)
    shard_pairs(files, out, settings, workers=concurrency(sweep))
    say(f"the trials train on {sweep.sample:,} of {kept:,} pairs, drawn with seed {sweep.settings.seed}")
    return out
