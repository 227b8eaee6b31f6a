"""Command ``tune``: search a space of recipes, and run a paper's protocol."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import join, quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, get_args

import tyro

from paraembed.aliases import current_names
from paraembed.commands.flags import flag_of
from paraembed.commands.job import run
from paraembed.commands.paths import (
    existing,
    existing_data,
    existing_encoder,
    existing_pairs,
    staged_input,
    staged_output,
    staged_places,
    staged_start,
)
from paraembed.console import doing, duration, print_table, say
from paraembed.papers import OWN_RECIPES
from paraembed.recipe import Recipe
from paraembed.settings import (
    MAX_BAD_WORDS,
    MIN_COVERAGE,
    SHIPPED,
    DataSet,
    Placement,
    SearchSettings,
    TaskName,
    check_register,
)
from paraembed.tuning.points import Points
from tune_spaces import SPACES, find_space
from tune_spaces.space import Selection, Space

if TYPE_CHECKING:
    from paraembed.cluster.tune import Sweep, Tuned
    from paraembed.io.staging import Staging
    from paraembed.supervised.labels import Labels
    from paraembed.training.data import Pairs


GROUPS = {
    "search": "search trials seed asha reduction metric epochs sample fixed",
    "data": "min_coverage max_bad_words pairs_memory_gb",
    "labeled examples": "task data_set pretrained",
    "protocol": "final_pairs final_epochs register",
    "checkpoints": "checkpoint_minutes checkpoint_steps keep_checkpoints",
    "resources": "gpus max_failures retry_failed profile gpus_per_trial memory_per_trial_gb",
}
_START_SECONDS = 20.0  # of a sweep, besides its trials: imports, Ray, the trials' processes, plots (2 cores: 17 to 25)


@dataclass(frozen=True)
class TrialPlacement(Placement):
    """Where and how trials run, each on one worker."""

    workers: int | str = field(default=1, init=False)
    gpus: bool = False
    """Train each trial on a GPU."""


@dataclass(frozen=True)
class Tune:
    """Train and score every trial of a search space. The same command resumes a stopped or killed search.

    Writes results.parquet and .csv, figures, a file for each trial, and best-recipe.json, which jobs/train.py (or
    jobs/finetune.py) reads with --recipe. --list prints the spaces.
    """

    space: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SPACE")]
    """Search space, for example acl2017/avg (--list prints the names), or the .toml or .json file of your own space."""
    pairs: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of pair shards, written by jobs/shard.py, from which the training pairs are drawn, or its URI."""
    words: Annotated[str | None, tyro.conf.arg(metavar="FILE|ENCODER")] = None
    """Word vectors, as jobs/train.py --words takes them; for labeled examples a file; default of a space with base
    small: small.
    """
    data: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the evaluation sets that select the best trial, and of labeled examples, or its URI."""
    out: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder to write, or its URI (s3://, gs://)."""
    task: TaskName | None = None
    """Task of a space that trains on labeled examples, see jobs/finetune.py."""
    data_set: DataSet | None = None
    """Data set of the task similarity: sick or sts; default: sick."""
    pretrained: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Pretrained encoder, a folder written by jobs/train.py, or its URI, for spaces named universal and features."""
    settings: Annotated[SearchSettings, tyro.conf.arg(name="")] = field(default_factory=SearchSettings)
    metric: str | None = None
    """Score to maximize, for example papers-22/mean; default: that of the space."""
    min_coverage: float = MIN_COVERAGE
    """Minimum fraction of the training tokens that must have a word vector, 0 to 1; 0: no check."""
    max_bad_words: float = MAX_BAD_WORDS
    """Maximum fraction of rows of --words that are skipped because they are no word vectors, 0 to 1; 0: none."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="[FIELD=VALUE ...]")] = ()
    """Recipe fields to set in all trials, for example max_words=50000."""
    epochs: int | None = None
    """Epochs per trial; default: those of the paper."""
    sample: int | None = None
    """Number of pairs to draw for the trials; 0: all; default: as many as in the paper."""
    placement: Annotated[TrialPlacement, tyro.conf.arg(name="")] = field(default_factory=TrialPlacement)
    concurrent: int | None = None
    """Maximum number of trials at a time; default: as many as the CPUs, or with --gpus the GPUs, allow."""
    gpus_per_trial: float = 1.0
    """Fraction of a GPU for each trial, for example 0.1 for ten small trials on a GPU."""
    memory_per_trial_gb: float | None = None
    """Memory for each trial on a cluster, in GB; default: as estimated."""
    max_failures: int = 10
    """Maximum number of failed trials; one more fails the search."""
    retry_failed: bool = False
    """Run failed trials of an earlier run again."""
    protocol: bool = False
    """After the search, train the best recipe in full as in the paper, evaluate it and register the encoder."""
    final_pairs: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Pair shards for the full training, or their URI; default: all of --pairs."""
    final_epochs: int | None = None
    """Epochs of the full training; default: those of the paper."""
    register: str | None = None
    """Name in the MLflow model registry; default: paraembed-SPACE, with task and data set for labeled examples."""
    dry_run: bool = False
    """Print the trials, and exit."""
    overwrite: bool = False
    """Replace an unfinished search with other settings at --out."""
    list: bool = False
    """Print the search spaces with their sources, and exit."""

    def __post_init__(self) -> None:
        """Raise ValueError if a number is not allowed."""
        most = 2**31 - 1
        ranges: dict[str, tuple[float, float]] = {"epochs": (1, most), "final_epochs": (1, most), "sample": (0, most)}
        ranges |= {"concurrent": (1, 10_000), "max_failures": (0, most), "min_coverage": (0, 1)}
        ranges |= {"gpus_per_trial": (0.01, 1), "memory_per_trial_gb": (0.1, 100_000)}
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{flag_of(name)} is {value}; allowed: {low} to {high}")
        if self.gpus_per_trial != 1 and not self.placement.gpus:
            raise ValueError(
                f"--gpus-per-trial is {self.gpus_per_trial}, which is for trials on GPUs; add --gpus, or leave it out"
            )


def main(flags: Tune) -> dict[str, Any]:
    """Search, and print the table and the next command; ``smoke`` without --pairs uses generated data."""
    if flags.space != "smoke" or flags.pairs is not None or flags.dry_run:
        with staged_places() as stage:
            return _tune(flags, stage)
    if flags.words is not None or flags.data is not None:
        raise ValueError("smoke without --pairs uses generated data; add --pairs, or leave out --words and --data")
    from paraembed.cluster.tune import write_smoke_inputs

    with TemporaryDirectory() as folder, staged_places() as stage:
        pairs, words, data = write_smoke_inputs(Path(folder))
        out = flags.out or str(Path(folder) / "sweep")
        given = replace(flags, pairs=str(pairs), words=str(words), data=str(data), out=out)
        counts = _tune(given, stage, is_generated=True)
    if flags.out is None:
        say("the generated data and the results were removed; to keep the results, give --out")
    else:
        say(f"wrote {flags.out}; the generated data were removed")
    return counts


def _tune(flags: Tune, stage: "Staging", *, is_generated: bool = False) -> dict[str, Any]:
    space = _space(flags.space)
    space = space if flags.epochs is None else replace(space, tuning_epochs=flags.epochs)
    name = Path(flags.space).stem if _is_file(flags.space) else flags.space
    points = Points(name, space, current_names(dict(map(_setting, flags.fixed))))
    points.check()
    _check_flags(flags, space)
    flags.settings.num_trials(points.space.size)  # raises before anything is read
    paths = _local_paths(flags, stage, space)
    from paraembed.cluster.tune import Sweep
    from paraembed.cluster.tune_protocol import protocol_of, tune_encoder
    from paraembed.tuning.choosing import gold_selection, selection_by, without_idle_axes

    if flags.task is not None:
        points = without_idle_axes(points, flags.task)
        flags.settings.num_trials(points.space.size)
    sample = space.tuning_pairs if flags.sample is None else flags.sample or None
    if space.job == "finetune":
        selection = gold_selection(space.selection, flags.task)
    else:
        selection = space.selection if flags.metric is None else selection_by(flags.metric)
    if flags.dry_run:
        _print_grid(points, flags.settings, selection, sample)
        if not paths:
            return {"estimate": {"trials": flags.settings.num_trials(points.space.size)}}
    data: Pairs | Labels
    if space.job == "finetune":
        data, points = _labels(flags, paths, points)
    else:
        data = _pairs(flags, paths, points, selection)
    final_pairs = paths.get("final_pairs")
    sweep = Sweep(
        points=points,
        selection=selection,
        data=data,
        out=paths.get("out", Path()),
        sample=sample,
        settings=flags.settings,
        placement=flags.placement,
        concurrent=flags.concurrent,
        max_failures=flags.max_failures,
        retry_failed=flags.retry_failed,
        gpus_per_trial=flags.gpus_per_trial,
        memory_per_trial_gb=flags.memory_per_trial_gb,
        uri=stage.uri(paths["out"]) if "out" in paths else None,
        named=stage.in_uris,
    )
    if flags.dry_run:
        return {"estimate": _print_time(sweep)}
    if flags.settings.asha and space.tuning_epochs < 2:
        say("--asha has no effect, because a trial has only one epoch")
    protocol = None
    if flags.protocol:
        protocol = protocol_of(sweep, paths["data"], final_pairs, flags.final_epochs, flags.register)
    tuned = tune_encoder(sweep, protocol, overwrite=flags.overwrite)
    is_better = _report(sweep, tuned)
    if not is_generated:  # else the data of the next command are removed
        say(*map(stage.in_uris, _next(sweep, tuned, is_better)))
    counts = {"trials": len(tuned.ledger.records), **tuned.ledger.counts(), "ties": len(tuned.ledger.ties())}
    return {**counts, "best_trial": tuned.best.number, "best_score": tuned.best.score}


def _check_flags(flags: Tune, space: Space) -> None:
    """Raise ValueError for a flag that does not apply to the space: labeled examples or pairs."""
    check_register(flags.register)
    is_gold = space.job == "finetune"
    names = ("pairs", "final_pairs", "metric") if is_gold else ("task", "data_set", "pretrained")
    idle = [name for name in names if getattr(flags, name) is not None]
    idle += ["sample"] if is_gold and flags.sample else []
    of_pairs = ("profile", "pairs_memory_gb") if is_gold else ()
    idle += [name for name in of_pairs if getattr(flags.placement, name) != getattr(Placement(), name)]
    if idle:
        on = "labeled examples, all of a task's training set, and selects by its dev set" if is_gold else "pairs"
        raise ValueError(
            f"{flag_of(idle[0])} does not apply, because the space {flags.space} trains on {on}; leave it out"
        )
    later = [name for name in ("final_pairs", "final_epochs", "register") if getattr(flags, name) is not None]
    if later and not flags.protocol:
        raise ValueError(f"{flag_of(later[0])} is for the training after the search; add --protocol, or leave it out")
    if is_gold and flags.task is None and not flags.dry_run:
        raise ValueError(
            f"the space {flags.space} trains on labeled examples; add --task, one of {', '.join(get_args(TaskName))} "
            f"(the paper, {space.source}: {space.tuning_data})"
        )


def _space(name: str) -> Space:
    """Return a space by its name, or from the user's file."""
    if not _is_file(name):
        return find_space(name)
    from paraembed.tuning.choosing import read_space

    return read_space(existing(Path(name), "SPACE"))


def _is_file(space: str) -> bool:
    return space.endswith((".toml", ".json"))


def _local_paths(flags: Tune, stage: "Staging", space: Space) -> dict[str, Path]:
    """Return the absolute paths of the files that flags name, or of their copies; none for a dry run without."""
    inputs = flags.pairs, flags.words, flags.pretrained, flags.final_pairs
    if flags.dry_run and not any((*inputs, flags.data)):
        return {}
    if flags.words is None and space.base in OWN_RECIPES:
        flags = replace(flags, words=SHIPPED)
    needed = ("data",) if space.job == "finetune" else ("pairs", "words")
    for name in needed if flags.dry_run else (*needed, "out"):
        if getattr(flags, name) is None:
            raise ValueError(f"{flag_of(name)} is missing; add it, or use --dry-run alone to print the grid")
    paths = {} if flags.out is None else {"out": staged_output(stage, flags.out, "--out", *inputs)}
    checks: dict[str, Any] = {"words": existing, "data": existing_data, "pretrained": existing_encoder}
    for name in ("pairs", "words", "data", "pretrained", "final_pairs"):
        place = getattr(flags, name)
        stages = staged_start if name in {"words", "pretrained"} else staged_input
        if place is not None:
            paths[name] = stages(stage, place, flag_of(name), checks.get(name, existing_pairs))
    return paths


def _pairs(flags: Tune, paths: Mapping[str, Path], points: Points, selection: Selection) -> "Pairs":
    from paraembed.training.data import Pairs
    from paraembed.tuning.choosing import read_selection

    doing("reading the sets")
    suites = read_selection(selection, paths.get("data"))
    for suite in suites:
        say(*suite.notes)
    assert isinstance(points.base, Recipe)
    options: dict[str, Any] = {"min_coverage": flags.min_coverage, "max_bad_words": flags.max_bad_words}
    return Pairs(points.base, paths["pairs"], paths["words"], suites, **options)


def _labels(flags: Tune, paths: Mapping[str, Path], points: Points) -> "tuple[Labels, Points]":
    from paraembed.tuning.choosing import read_labels_for

    assert flags.task is not None
    labels, points = read_labels_for(
        points,
        flags.task,
        flags.data_set,
        paths["data"],
        words=paths.get("words"),
        pretrained=paths.get("pretrained"),
        min_coverage=flags.min_coverage,
        max_bad_words=flags.max_bad_words,
    )
    for note in labels.task.notes:
        say(f"note: {note}")
    return labels, points


def _report(sweep: "Sweep", tuned: "Tuned") -> bool:
    """Print the trials and what they show; return False if the best one is not better than the untrained encoder."""
    from paraembed.tuning.table import best_first

    best, points = tuned.best, sweep.points
    print_table(*best_first(points, tuned.ledger))
    shown = ", ".join(f"{name} {value}" for name, value in points.shown(best.recipe, best.share).items())
    say(f"best: trial {best.number}, {sweep.metric} {100 * best.score:.2f}: {shown}")
    if tuned.scores is not None:
        print_table(*tuned.scores)
    return not best.replicates or _compare(sweep, tuned)


def _compare(sweep: "Sweep", tuned: "Tuned") -> bool:
    """Compare the best trial with the others and the untrained encoder; return False if it is not better than that."""
    from paraembed.cluster.tune import UNTRAINED
    from paraembed.evaluation.paired import compare_replicates
    from paraembed.io.escape import listed
    from paraembed.io.fingerprint import read_json
    from paraembed.tuning.table import counted

    best, ties = tuned.best, tuned.ledger.ties()
    others = sum(record.status == "finished" for record in tuned.ledger.in_order()) - 1
    trials = counted(others, "other trial")
    if ties:
        numbers = listed([record.number for record in ties])
        say(f"a tie with {len(ties)} of {trials}, by the paired bootstrap (p ≥ 0.05): {numbers}")
    elif others:
        say(f"it differs significantly from {'all ' * (others > 1)}{trials} (p < 0.05, paired bootstrap)")
    if not (sweep.out / UNTRAINED).exists():
        return True
    before = read_json(sweep.out / UNTRAINED)
    test = compare_replicates(best.score, best.replicates, before["score"], before["replicates"])
    # Replicates have six decimals, so that these have four.
    gain, low, high = (f"{round(100 * value, 4):+.3g}" for value in (test.difference, test.low, test.high))
    say(f"the untrained encoder has {100 * before['score']:.2f}; difference {gain}, 95 % interval {low} to {high}")
    if test.low <= 0:
        say("no trial is significantly better than the untrained encoder; try lower learning rates, or more epochs")
    return not test.low <= 0  # True for NaN, too


def _next(sweep: "Sweep", tuned: "Tuned", is_better: bool) -> list[str]:
    """Return what was written, and the next command unless the best recipe is not worth its training."""
    from paraembed.tuning.table import RECIPE

    out, share = sweep.out, tuned.best.share
    wrote = [] if tuned.was_finished else [f"wrote {tuned.encoder or out}"]
    if tuned.encoder is not None:
        return ["; ".join([*wrote, f"next: python jobs/embed.py --encoder {quote(str(tuned.encoder))} …"])]
    if not is_better:
        return wrote
    lines = ["; ".join([*wrote, f"next: python jobs/{_retraining(sweep)} --recipe {quote(str(out / RECIPE))}"])]
    if share < 1:
        lines.append(f"the best trial used {share:.0%} of the pairs, which its recipe does not record")
    return lines


def _retraining(sweep: "Sweep") -> str:
    """Return the start of the command that trains the best recipe."""
    from paraembed.settings import SHIPPED_FOLDER
    from paraembed.training.data import Pairs

    data = sweep.data
    placed = ["--gpus"] if sweep.placement.gpus else []
    placed += ["--min-coverage", f"{data.min_coverage:g}"] if data.min_coverage != MIN_COVERAGE else []
    placed += ["--max-bad-words", f"{data.max_bad_words:g}"] if data.max_bad_words != MAX_BAD_WORDS else []
    if isinstance(data, Pairs):
        words = SHIPPED if data.words == SHIPPED_FOLDER else str(data.words)
        return join(["train.py", "--pairs", str(data.folder), "--words", words, "--out", "ENCODER", *placed])
    start = "--pretrained" if data.recipe.starts_from_encoder else "--words"
    task = ["--task", data.task.name, "--data-set", data.task.data_set, "--data", str(data.folder)]
    return join(["finetune.py", *task, start, str(data.start), "--out", "MODEL", *placed])


def _print_grid(points: Points, settings: SearchSettings, selection: Selection, sample: int | None) -> None:
    from paraembed.tuning.search import planned
    from paraembed.tuning.table import counted, whole_grid

    space = points.space
    total = settings.num_trials(space.size)
    print_table(*whole_grid(points, planned(space, settings)))
    metric = ", ".join(f"{weight:g} × {name}" if weight != 1 else name for weight, name in selection.metric)
    say(
        f"{points.name}: {space.source}; {counted(total, 'trial')} of {counted(space.size, 'point')}, "
        f"{counted(space.tuning_epochs, 'epoch')} on {space.tuning_data} "
        f"({'all' if sample is None else counted(sample, 'pair')}); chosen by {metric} ({selection.split}); "
        f"then {counted(space.final_epochs, 'epoch')} on {space.final_data}"
    )


def _print_time(sweep: "Sweep") -> dict[str, float]:
    """Print and return size and time of the trials on the user's data, measured on some steps of a few of them."""
    from paraembed.cluster.tune import concurrency, trial_inputs
    from paraembed.tuning.table import counted
    from paraembed.tuning.trial import trial_seconds

    doing("measuring some steps of the first, the middle and the last trial")
    number, data, points = concurrency(sweep), sweep.data, sweep.points
    inputs = trial_inputs(data, points, number)
    total = len(next(iter(inputs.values())))
    rows = min(sweep.sample or total, total)
    measured = [points.at(points.space.choices(trial)) for trial in {0, points.space.size // 2, points.space.size - 1}]
    each = trial_seconds(measured, inputs, data.scorer(sweep.selection.metric), rows / total)
    trials = sweep.num_trials
    seconds = _START_SECONDS + each * -(-trials // number)
    say(
        f"the trials train on {rows:,} of {total:,} {data.unit}; about {duration(each)} a trial on one core and "
        f"{duration(_START_SECONDS)} for the start, so {duration(seconds)} for {counted(trials, 'trial')}, "
        f"{number} at a time; next: the same command without --dry-run"
    )
    return {"trials": trials, "rows": rows, "seconds_per_trial": each, "concurrent": number, "seconds": seconds}


def _setting(text: str) -> tuple[str, Any]:
    """Parse ``name=value``, where the value is JSON or text."""
    name, mark, value = text.partition("=")
    if not mark:
        raise ValueError(f"--set {text!r} is not of the form FIELD=VALUE, for example max_words=50000")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def listing() -> list[str]:
    """Return the lines of --list: name, number of points, source."""
    width = max(map(len, SPACES))
    return [f"{name:<{width}}  {space.size:>5,} points  {space.source}" for name, space in SPACES.items()]


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Tune, GROUPS, listing=listing)
