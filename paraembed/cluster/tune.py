"""Sweep: find the best recipe of a space on Ray Tune, resumable, logged to MLflow."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from paraembed.aliases import on_disk
from paraembed.cluster.shard import shard_pairs
from paraembed.console import doing, duration, say
from paraembed.evaluation.selection import suites_digest
from paraembed.io.atomic import write_json
from paraembed.io.resume import Work, described
from paraembed.io.staging import Mirror, child
from paraembed.late import Late
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings
from paraembed.process import on_cluster
from paraembed.settings import Placement, SearchSettings
from paraembed.signals import RunFailedError
from paraembed.supervised.labels import Labels
from paraembed.supervised.tasks import write_split
from paraembed.tracking.records import Run
from paraembed.training.best import Scorer
from paraembed.training.data import Pairs, Table
from paraembed.training.initial import available_memory, estimate
from paraembed.tuning.ledger import Ledger, TrialRecord
from paraembed.tuning.points import Points
from paraembed.tuning.table import PARQUET, counted, draw_results, progress, results, trial_line, write_results
from tune_spaces.space import Selection

if TYPE_CHECKING:
    import torch

    from paraembed.cluster import session, tune_trials
    from paraembed.tuning import trial
else:
    torch, trial = Late("torch"), Late("paraembed.tuning.trial")
    session, tune_trials = Late("paraembed.cluster.session"), Late("paraembed.cluster.tune_trials")

SAMPLE = "tuning-pairs"
UNTRAINED = "untrained.json"
FILES = re.compile(
    r"(sweep|run|registered|split|best|best-recipe|untrained|protocol)\.json|results\.(parquet|csv)|[\w-]+\.png"
    r"|(trials|ray|tuning-pairs|scores|encoder|model|(encoder|model)\.training)/.*"
    r"|(encoder|model)\.trace\.json\.gz|(encoder|model|tuning-pairs)\.mlflow(-refused)?\.jsonl(\.[\d-]+)?"
    r"|\.(encoder|model|tuning-pairs)\.[\w.]*(/.*)?|\.[\w.-]+\.[0-9a-f]{8}\.tmp",
    re.DOTALL,
)
"""Pattern of the paths in a sweep's folder."""

_KEPT_COLUMNS = ("first", "second", "score", "first_tree", "second_tree")
_DECIDES_MEMORY = ("encoder", "optimizer", "train_words", "word_l2", "update", "batch_size")
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_GIB = 2**30


@dataclass(frozen=True)
class Sweep:
    """Space, data and settings of a sweep."""

    points: Points  # the space, with fixed fields
    selection: Selection  # metric that selects the best trial
    data: Pairs | Labels  # of the trials; for pairs, with the suites of the metric
    out: Path
    sample: int | None = None  # number of random pairs to train on; None: all
    settings: SearchSettings = field(default_factory=SearchSettings)
    placement: Placement = field(default_factory=Placement)  # of a trial, which has one worker
    concurrent: int | None = None  # number of trials at a time; None: as many as the CPUs or GPUs allow
    max_failures: int = 10  # more failed trials end the sweep
    retry_failed: bool = False  # run trials again that failed before
    gpus_per_trial: float = 1.0  # fraction of a GPU
    memory_per_trial_gb: float | None = None  # on a cluster; None: as estimated
    uri: str | None = None  # URI of the output on an object store; ``out`` is then the copy on this machine
    named: Callable[[str], str] = str  # path of an input → its name for MLflow, such as the URI of a copy

    @property
    def home(self) -> Mirror:
        """The output, with its copy on the object store if it has one."""
        return Mirror(self.out, self.uri)

    def resources(self) -> dict[str, float]:
        """Return the resources of a trial: CPU or GPU, and on a cluster memory in bytes."""
        needs = {"GPU": self.gpus_per_trial} if self.placement.gpus else {"CPU": 1.0}
        if not on_cluster():
            return needs
        given = self.memory_per_trial_gb
        return {**needs, "memory": float(int(1e9 * given) if given else _memory_of(self.points, self.data, 1))}

    @property
    def num_trials(self) -> int:
        """Number of trials."""
        return self.settings.num_trials(self.points.space.size)

    @property
    def trials(self) -> Path:
        """Folder of the trials' records."""
        return self.out / "trials"

    @property
    def metric(self) -> str:
        """Description of the metric: ``sts/2016/mean``, ``2 words/… -1 words/…``."""
        terms = self.selection.metric
        if len(terms) == 1:
            return terms[0][1]
        return " ".join(f"{weight:+g} {name}" for weight, name in terms).removeprefix("+")


@dataclass(frozen=True)
class Tuned:
    """Result of a sweep: all trials, the best of them, and, with a protocol, the best recipe's encoder and scores."""

    ledger: Ledger
    best: TrialRecord
    encoder: Path | None = None
    scores: Table | None = None
    was_finished: bool = False  # nothing was left to do


def write_smoke_inputs(folder: Path) -> tuple[Path, Path, Path]:
    """Write generated data for the space smoke to a folder; return the paths of pair shards, word vectors and
    evaluation data.
    """
    sample, pairs = folder / "sample", folder / "pairs"
    files = write_sample(sample, lines=6000, dimension=30, test_pairs=300, sentences=10, ppdb_version="2.0")
    assert files.ppdb_2 is not None
    shard_pairs([files.ppdb_2], pairs, ShardSettings())
    return pairs, files.vectors, sample


def begun(sweep: Sweep, overwrite: bool) -> Sweep:
    """Record in a sweep's folder what decides its table; return the sweep with the number of concurrent trials: the
    requested one, that of the earlier run, or as many as fit. ValueError if the folder holds something else.
    """
    before = None if overwrite else _concurrent_before(sweep)
    sweep = replace(sweep, concurrent=before or concurrency(sweep))
    work = _work(sweep, overwrite)
    if not work.is_begun():
        work.clear()
        work.begin()
    elif any(sweep.trials.glob("*.json")):
        say(f"resuming the work in {sweep.out}")
    sweep.home.push("sweep.json")
    return sweep


def finished_before(sweep: Sweep) -> Tuned | None:
    """Return the result of a finished sweep of the same settings, without Ray; None if something is left to do."""
    if not _work(replace(sweep, concurrent=_concurrent_before(sweep) or 1), overwrite=False).is_recorded():
        return None
    ledger, most_failures = Ledger(sweep.trials), 0 if sweep.retry_failed else sweep.max_failures
    best = ledger.best()
    if best is None or len(ledger.records) < sweep.num_trials or len(ledger.failed()) > most_failures:
        return None
    try:
        # Not as tables: pyarrow imports pandas (0.25 s) to convert lists.
        if pq.ParquetFile(sweep.out / PARQUET).read().to_pydict() != results(sweep.points, ledger):
            return None
    except (OSError, ValueError):  # missing or damaged
        return None
    return Tuned(ledger, best, was_finished=True)


def _concurrent_before(sweep: Sweep) -> int | None:
    """Return the requested number of concurrent trials, or that of an earlier run."""
    before = described(sweep.out / "sweep.json").get("concurrent")
    if before is not None and (not isinstance(before, int) or before < 1):
        raise ValueError(f"{sweep.out}/sweep.json: concurrent is {before!r}; start over with `overwrite`")
    return sweep.concurrent or before


def _work(sweep: Sweep, overwrite: bool) -> Work:
    return Work(sweep.out, sweep.out, "sweep.json", _identity(sweep), FILES, "jobs/tune.py", overwrite, is_nested=True)


def _identity(sweep: Sweep) -> dict[str, Any]:
    points, inputs = sweep.points, sweep.data.inputs()
    if isinstance(sweep.data, Pairs):
        inputs |= {"data": suites_digest(sweep.data.suites), "sample": sweep.sample}
    data = inputs.pop("data")
    searched: dict[str, Any] = {
        "base": points.base.to_dict(),
        "fixed": on_disk({**points.space.fixed, **points.fixed}),
        "axes": on_disk(
            {
                name: [on_disk(value) if isinstance(value, Mapping) else value for value in values]
                for name, values in points.space.axes.items()
            }
        ),
    }
    optimizers = {point.recipe.optimizer for point in points.differing_in({"optimizer"})}
    if "adagrad" in optimizers and points.base.optimizer != "adagrad":  # a sweep of 0.1 had another form
        searched["adagrad_form"] = points.base.adagrad_form
    return {
        "space": points.name,
        **inputs,
        "metric": [[weight, name] for weight, name in sweep.selection.metric],
        "data": data,  # another metric is of other data
        "epochs": points.space.tuning_epochs,
        "search": asdict(sweep.settings),
        "concurrent": concurrency(sweep) if sweep.settings.looks_back else None,  # else it decides nothing
        "workers": 1,
        "gpus": sweep.placement.gpus,
        "searched": searched,
    }


def concurrency(sweep: Sweep) -> int:
    """Return the number of concurrent trials: the requested number, or as many as the CPUs or GPUs allow."""
    if sweep.concurrent is not None:
        return sweep.concurrent
    gpus = sweep.placement.gpus
    if on_cluster():
        return fitting(sweep, session.capacity("GPU" if gpus else "CPU"))
    return fitting(sweep, torch.cuda.device_count() if gpus else len(os.sched_getaffinity(0)))


def fitting(sweep: Sweep, available: float) -> int:
    """Return the number of trials, at least one, that a number of CPUs, or of GPUs for trials on GPUs, allows."""
    share = sweep.gpus_per_trial if sweep.placement.gpus else 1
    return max(1, min(sweep.num_trials, int(available / share + 1e-9)))


def run_sweep(sweep: Sweep, run: Run) -> Tuned:
    """Run the trials that have not ended yet, write the results and log them; requires a Ray session.

    Raise OSError or ValueError if the inputs cannot be used, or too many trials failed.
    """
    ledger = Ledger(sweep.trials, sweep.uri and child(sweep.uri, "trials"))
    if sweep.retry_failed:
        ledger.drop_failed()
    sweep = replace(sweep, data=_drawn(sweep))
    for record in ledger.in_order():  # a driver that was killed may not have got to log its last ones
        sweep.points.check_record(record, sweep.num_trials)
        log_trial(run, record, sweep.points.shown(record.recipe, record.share))
    is_left = any(number not in ledger.records for number in range(sweep.num_trials))
    if is_left and len(ledger.failed()) <= sweep.max_failures:
        _run_trials(sweep, ledger, run)
    doing("writing and plotting the results")
    best, failed = ledger.best(), ledger.failed()
    paths = draw_results(sweep.points, ledger, sweep.out, sweep.metric)
    if isinstance(sweep.data, Labels):
        paths += write_split(sweep.data.task, sweep.out)
    paths += write_results(sweep.points, ledger, sweep.out)
    for path in paths:
        run.artifacts(path)
    run.metrics({"trials": len(ledger.records), "failed": len(failed)})
    if best is None or len(failed) > sweep.max_failures:
        first = f"; trial {failed[0].number}: {failed[0].reason}" if failed else ""
        raise RunFailedError(
            f"{len(failed)} of {counted(len(ledger.records), 'trial')} failed, `max_failures` is {sweep.max_failures}"
            f"{first}{'' if best else '; none has a score'}; correct the cause and run the same command with "
            "`retry_failed`, or allow more failures"
        )
    run.metrics({"best_score": best.score, "best_trial": best.number})
    return Tuned(ledger, best)


def _drawn(sweep: Sweep) -> Pairs | Labels:
    """Return the trials' pairs: all, or the sample that jobs/shard.py draws, in the sweep's folder."""
    data = sweep.data
    if isinstance(data, Labels) or sweep.sample is None or sweep.sample >= data.num_pairs:
        return data
    names = pq.read_schema(data.paths[0]).names
    columns: tuple[Any, ...] = tuple(name if name in _KEPT_COLUMNS else "ignore" for name in names)
    seed = sweep.settings.seed
    settings = ShardSettings(columns=columns, tokenizer="space", sample=sweep.sample, sample_seed=seed)
    uri = sweep.uri and child(sweep.uri, SAMPLE)
    shard_pairs(data.paths, sweep.out / SAMPLE, settings, workers=concurrency(sweep), uri=uri)
    say(f"the trials train on {sweep.sample:,} of {data.num_pairs:,} pairs, drawn with seed {seed}")
    return replace(data, folder=sweep.out / SAMPLE)


def trial_inputs(data: Pairs | Labels, points: Points, concurrent: int) -> "dict[str, trial.TrialInputs]":
    """Return the inputs that trials share, by ``inputs_key``.

    Raise OSError or ValueError if a recipe needs more pairs or more memory, or the words cover too few of the tokens.
    """
    recipes = [point.recipe for point in points.differing_in({*trial.DECIDES_INPUTS, *_DECIDES_MEMORY})]
    _, num, _ = data.size()
    most = max(recipe.batch_size for recipe in recipes)
    if most > num:
        raise ValueError(
            f"the space has batches of {most:,} {data.unit}, but there are only {num:,}; give more {data.unit}, or a "
            "larger `sample`"
        )
    _check_memory(points, data, concurrent)
    inputs: dict[str, trial.TrialInputs] = {}
    for recipe in recipes:
        if trial.inputs_key(recipe) not in inputs:
            inputs[trial.inputs_key(recipe)] = trial.read_inputs(data, recipe)
    return inputs


def _check_memory(points: Points, data: Pairs | Labels, concurrent: int) -> None:
    """Raise ValueError if the trials need more memory than there is here, or the inputs on a cluster's head."""
    trials = 1 if on_cluster() else concurrent
    needed, available = _memory_of(points, data, trials), available_memory()
    if needed > available:
        remedy = "start the job on a larger machine" if on_cluster() else "use a smaller `concurrent`"
        raise ValueError(
            f"{counted(trials, 'trial')} at a time need about {needed / _GIB:,.1f} GiB of memory on this machine, but "
            f"only {available / _GIB:,.1f} GiB are available; keep fewer words with `fixed` max_words=N, or {remedy}"
        )


def _memory_of(points: Points, data: Pairs | Labels, trials: int) -> int:
    """Return the most bytes that a number of trials on one machine need."""
    tokens, num, words = data.size()
    takes = {
        (recipe.optimizer, recipe.train_words, recipe.word_l2 > 0, recipe.update, recipe.max_words): recipe
        for recipe in (point.recipe for point in points.differing_in({*trial.DECIDES_INPUTS, *_DECIDES_MEMORY}))
    }
    return max(estimate(words, recipe, tokens, num, trials).needed for recipe in takes.values())


def _run_trials(sweep: Sweep, ledger: Ledger, run: Run) -> None:
    points, concurrent = sweep.points, concurrency(sweep)
    doing("reading the trials' data and the words")
    inputs = trial_inputs(sweep.data, points, concurrent)
    scorer = sweep.data.scorer(sweep.selection.metric)

    started, before = time.monotonic(), len(ledger.records)

    def on_record(record: TrialRecord) -> None:
        log_trial(run, record, points.shown(record.recipe, record.share))
        say(trial_line(points, record))
        done = len(ledger.records)
        seconds = (time.monotonic() - started) / max(1, done - before) * (sweep.num_trials - done)
        doing(f"{progress(ledger, sweep.num_trials)}, {duration(seconds)} left")

    def on_epoch(number: int, epoch: int, score: float | None) -> None:
        shown = "no score" if score is None else f"{100 * score:.2f}"
        doing(f"{progress(ledger, sweep.num_trials)}; trial {number}: epoch {epoch}, {shown}")

    searcher = tune_trials.LedgerSearch(
        points, sweep.settings, ledger, concurrent, sweep.max_failures, on_record, on_epoch
    )
    _say_score_before(sweep, inputs, scorer)
    trials, epochs = counted(len(searcher.todo), "trial"), counted(points.space.tuning_epochs, "epoch")
    say(f"{trials} of {epochs} on {sweep.data.size()[1]:,} {sweep.data.unit}, {concurrent} at a time")
    tune_trials.run_trials(searcher, inputs, scorer, sweep.resources(), sweep.home)


def _say_score_before(sweep: Sweep, inputs: "Mapping[str, trial.TrialInputs]", scorer: Scorer) -> None:
    """Print and write the score of the untrained encoder of the first trial."""
    recipe = sweep.points.at(dict.fromkeys(sweep.points.space.axes, 0)).recipe
    try:
        model = inputs[trial.inputs_key(recipe)].model(recipe)
        before, _ = scorer(model)
        say(f"{sweep.metric} is {100 * before:.2f} before training")
        write_json(sweep.out / UNTRAINED, {"score": before, "replicates": trial.replicates_of(scorer, model)})
    except ValueError as error:
        if not scorer.keeps_best:  # else an epoch may be without a score, too
            raise
        say(f"no {sweep.metric} before training: {error}")


def log_trial(sweep: Run, record: TrialRecord, shown: dict[str, Any]) -> None:
    """Log a trial that has ended to the run of a sweep; ``shown`` has the values of the searched fields."""
    ended = int(1000 * record.ended)
    started = ended - int(1000 * record.seconds)
    name, options = record.recipe["encoder"]["name"], record.recipe["encoder"].items()
    recipe = {**record.recipe, **{f"encoder.{key}": value for key, value in options if key != "name"}}
    recipe |= {"encoder": name, **shown}
    metrics = [
        [key, value, started + int(1000 * epoch.seconds), epoch.epoch]
        for epoch in record.curve
        for key, value in {"score": epoch.score, "loss": epoch.loss, **epoch.metrics}.items()
        if value is not None
    ]
    if record.keeps_best and record.counted:
        metrics.append(["best_score", record.score, ended, record.counted.epoch])
    metrics.append(["seconds", record.seconds, ended, len(record.curve)])
    reason = {"reason": record.reason[:5000]} if record.reason else {}
    sweep.trial(
        {
            "number": str(record.number),
            "name": f"trial {record.number}",
            "start": started,
            "end": ended,
            "status": _STATUS[record.status],
            "tags": [list(tag) for tag in ({"status": record.status} | reason).items()],
            "params": [[key, str(value)] for key, value in recipe.items()],
            "metrics": metrics,
        }
    )
