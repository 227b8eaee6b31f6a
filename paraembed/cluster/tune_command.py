"""The flags of jobs/tune.py, and what they make."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import tyro

from paraembed.cluster.job import print_table, say
from paraembed.cluster.placement import Placement
from paraembed.cluster.session import absolute, ray_session
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.tune import Sweep
from paraembed.cluster.tune_protocol import Protocol, Tuned, suites_there, tune_encoder
from paraembed.cluster.tune_show import best_first, whole_grid
from paraembed.data.sample import write_sample
from paraembed.data.shards import ShardSettings
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import SUITES
from paraembed.files import require_file
from paraembed.tuning.choosing import read_selection, selection_by
from paraembed.tuning.points import Points
from paraembed.tuning.search import SearchSettings, suggest
from paraembed.tuning.table import RECIPE
from tune_spaces import find_space
from tune_spaces.space import Selection


@dataclass(frozen=True)
class Tune:
    """Train and score the recipes of a space, side by side; the same command again runs those that are left.

    In --out: results.parquet and .csv, best-recipe.json for jobs/train.py --recipe, pictures, and a file a trial.
    """

    space: Annotated[str, tyro.conf.Positional]
    """What to search, acl2017/avg for instance; a wrong name gives the list."""
    pairs: Path | None = None
    """Folder of pair shards, from jobs/shard.py; the trials' pairs are drawn from it."""
    words: Path | None = None
    """Word vectors: text rows 'word v1 ... vd', plain or .gz."""
    data: Path | None = None
    """Folder of the evaluation data, by which the best trial is chosen."""
    out: Path | None = None
    """Folder to write."""
    settings: Annotated[SearchSettings, tyro.conf.arg(name="")] = field(default_factory=SearchSettings)
    metric: str | None = None
    """Maximise another score than the space's, papers-22/mean for instance."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="[FIELD=VALUE ...]")] = ()
    """Fields of the recipe with another value than the space's, the same in all trials: max_words=50000."""
    epochs: int | None = None
    """Epochs of a trial; left out, the paper's."""
    sample: int | None = None
    """Pairs of the tuning set, drawn; left out, as many as the paper's; 0: all."""
    placement: Annotated[Placement, tyro.conf.arg(name="")] = field(default_factory=Placement)
    concurrent: int | None = None
    """Trials at a time; left out, as many as there are CPUs (with --gpus: GPUs) for."""
    max_failures: int = 10
    """More failed trials end the sweep."""
    retry_failed: bool = False
    """Run the trials that failed before again."""
    protocol: bool = False
    """Then train the winner on all pairs for the paper's epochs, score it on all of --data, and register it."""
    final_pairs: Path | None = None
    """The pair shards that the winner is trained on; left out, all of --pairs."""
    final_epochs: int | None = None
    """Epochs over them; left out, the paper's."""
    register: str | None = None
    """The winner's name in the MLflow registry; left out, paraembed-SPACE."""
    dry_run: bool = False
    """Print the grid and stop."""
    overwrite: bool = False
    """Drop another sweep that was begun in --out."""

    def __post_init__(self) -> None:
        """Raise ValueError for a number that is not allowed."""
        most = 2**31 - 1
        ranges = {"epochs": (1, most), "final_epochs": (1, most), "sample": (0, most)}
        ranges |= {"concurrent": (1, 10_000), "max_failures": (0, most)}
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"--{name.replace('_', '-')} is {value}; allowed: {low} to {high}")


def tune(flags: Tune) -> None:
    """Sweep, print the table, say what comes next; ``smoke`` without --pairs runs on a sample of its own.

    Raises:
        OSError, ValueError: a flag, an input or an output will not do, or too many trials failed.
    """
    if flags.space == "smoke" and flags.pairs is None and not flags.dry_run:
        if flags.words is not None or flags.data is not None:
            raise ValueError(
                "smoke without --pairs makes a sample of its own; give --pairs, too, or neither --words nor --data"
            )
        with TemporaryDirectory() as folder, ray_session(2):
            _tune(_on_sample(flags, Path(folder)), is_kept=flags.out is not None)
        if flags.out is None:
            say("the sample and what was found on it are gone; --out keeps the sweep")
    else:
        _tune(flags)


def _on_sample(flags: Tune, folder: Path) -> Tune:
    sample, pairs = folder / "sample", folder / "pairs"
    write_sample(sample, lines=6000, dimension=30, test_pairs=300, sentences=10, ppdb_version="2.0")
    shard_pairs([sample / "ppdb-2.0-format.gz"], pairs, ShardSettings())
    words, out = sample / "vectors.txt.gz", flags.out or folder / "sweep"
    return replace(flags, pairs=pairs, words=words, data=sample, out=out)


def _tune(flags: Tune, *, is_kept: bool = True) -> None:
    space = find_space(flags.space)
    space = space if flags.epochs is None else replace(space, tuning_epochs=flags.epochs)
    points = Points(flags.space, space, dict(map(_setting, flags.fixed)))
    if space.job == "train" or not flags.dry_run:
        points.check()
    selection = space.selection if flags.metric is None else selection_by(flags.metric)
    sample = space.tuning_pairs if flags.sample is None else flags.sample or None
    if flags.dry_run:
        _print_grid(points, flags.settings, selection, sample)
        return
    data = None if flags.data is None else absolute(flags.data, "--data")
    suites = read_selection(selection, data)
    for suite in suites:
        say(*suite.notes)
    sweep = Sweep(
        points=points,
        selection=selection,
        pairs=_given(flags.pairs, "--pairs"),
        words=_given(flags.words, "--words"),
        out=_given(flags.out, "--out"),
        settings=flags.settings,
        sample=sample,
        placement=flags.placement,
        concurrent=flags.concurrent,
        max_failures=flags.max_failures,
        retry_failed=flags.retry_failed,
    )
    require_file(sweep.words)
    if flags.settings.asha and space.tuning_epochs < 2:
        say("--asha has no effect: a trial has one epoch, and is judged at its end")
    protocol = _protocol(flags, sweep, suites) if flags.protocol else None
    tuned = tune_encoder(sweep, suites, protocol, overwrite=flags.overwrite)
    _report(sweep, tuned)
    if is_kept:
        _say_next(sweep, tuned)


def _report(sweep: Sweep, tuned: Tuned) -> None:
    best, points = tuned.swept.best, sweep.points
    print_table(*best_first(points, tuned.swept.ledger))
    shown = ", ".join(f"{name} {value}" for name, value in points.shown(best.recipe, best.share).items())
    say(f"best: trial {best.number}, {sweep.metric} {best.score:.4f}: {shown}")
    if tuned.scores is not None:
        print_table(*tuned.scores.table())


def _say_next(sweep: Sweep, tuned: Tuned) -> None:
    out, share = sweep.out, tuned.swept.best.share
    if tuned.scores is not None:
        say(f"wrote {out / 'encoder'}; next: python jobs/embed.py --encoder {out / 'encoder'} …")
        return
    say(f"wrote {out}; next: python jobs/train.py --recipe {out / RECIPE} --pairs PAIRS --words WORDS --out ENCODER")
    if share < 1:
        say(f"a recipe does not hold that the best trial was given {share:.0%} of the pairs")


def _print_grid(points: Points, settings: SearchSettings, selection: Selection, sample: int | None) -> None:
    space = points.space
    total = settings.num_trials(space.size)
    numbers: Sequence[int] = range(space.size)
    if settings.search == "random":
        drawn = [suggest(space, settings, number, (), ()) for number in range(total)]
        at = {tuple(space.choices(number).values()): number for number in numbers}
        numbers = [at[tuple(one.values())] for one in drawn]
    print_table(*whole_grid(points, numbers))
    metric = ", ".join(f"{weight:g} × {name}" if weight != 1 else name for weight, name in selection.metric)
    say(
        f"{points.name}: {space.source}; {total:,} trials of {space.size:,} points, {space.tuning_epochs} epochs on "
        f"{space.tuning_data} ({'all' if sample is None else f'{sample:,}'} pairs); chosen by "
        f"{metric} ({selection.split}); then {space.final_epochs} epochs on {space.final_data}"
    )


def _protocol(flags: Tune, sweep: Sweep, suites: Sequence[Suite]) -> Protocol:
    assert flags.data is not None
    pairs = sweep.pairs if flags.final_pairs is None else absolute(flags.final_pairs, "--final-pairs")
    epochs = sweep.points.space.final_epochs if flags.final_epochs is None else flags.final_epochs
    there = suites_there(absolute(flags.data, "--data"))
    own = [suite for suite in suites if suite.name not in SUITES]  # files of pairs, or of phrases to choose from
    return Protocol(pairs, epochs, [*own, *there], flags.register or f"paraembed-{flags.space.replace('/', '-')}")


def _given(path: Path | None, flag: str) -> Path:
    if path is None:
        raise ValueError(f"{flag} is missing; give it, or --dry-run to print the grid")
    return absolute(path, flag)


def _setting(text: str) -> tuple[str, Any]:
    """``name=value``, the value as JSON, or a text."""
    name, mark, value = text.partition("=")
    if not mark:
        raise ValueError(f"--set {text!r}: expected FIELD=VALUE, for example max_words=50000")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
