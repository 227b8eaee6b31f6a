"""The published protocol: sweep, retrain the winner on the full set, evaluate, register. Every stage goes on."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.cluster.finetune import finetune
from paraembed.cluster.placement import check_gpus, check_resources
from paraembed.cluster.session import ray_session
from paraembed.cluster.train import Training, train_encoder
from paraembed.cluster.tune import Sweep, Swept, begin, run_sweep, settled
from paraembed.cluster.tune_gold import Gold
from paraembed.cluster.tune_inputs import Pairs
from paraembed.console import doing, say
from paraembed.evaluation.candidates import trained, untrained
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import SUITES
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.fingerprint import read_json
from paraembed.io.places import without_credentials
from paraembed.pairs.shards import read_pair_manifest
from paraembed.recipe import Recipe, SupervisedRecipe
from paraembed.supervised.model import read_config
from paraembed.supervised.scores import HEAD
from paraembed.tracking.registry import ALIAS, register
from paraembed.tracking.runs import Run, tracked_run


@dataclass(frozen=True)
class Protocol:
    """What comes after the sweep.

    Attributes:
        pairs: folder of the full set of pair shards; None: the winner learns from gold labels.
        epochs: over it, or over them.
        suites: what an encoder that was trained on pairs is evaluated on; others on their task's test part.
        name: under which it is registered.
    """

    pairs: Path | None
    epochs: int
    suites: Sequence[Suite]
    name: str


@dataclass(frozen=True)
class Tuned:
    """What a sweep found, and, with a protocol, the winner's encoder and the table of its scores: head and rows."""

    swept: Swept
    encoder: Path | None = None
    scores: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None


def tune_encoder(sweep: Sweep, protocol: Protocol | None = None, *, overwrite: bool = False) -> Tuned:
    """Sweep and, with a protocol, train, evaluate and register; the same call goes on where a killed one was.

    Args:
        sweep: what to search.
        protocol: what comes after.
        overwrite: drop another sweep in the folder.

    Raises:
        OSError, ValueError: an input or output will not do, or too many trials failed.
    """
    doing("checking the inputs")
    sweep.data.check()
    if protocol is not None and protocol.pairs is not None:
        read_pair_manifest(protocol.pairs)
    check_gpus(sweep.placement)
    joins = "RAY_ADDRESS" in os.environ  # then the cluster says how many trials there are at a time
    doing("starting Ray and MLflow")
    with work_folder(sweep.out):
        if not joins:
            sweep = settled(sweep, overwrite)
            begin(sweep, overwrite)
        with ray_session(1 if joins else (sweep.concurrent or 1) * sweep.placement.workers):
            if sweep.placement.gpus or sweep.placement.workers > 1:
                check_resources(sweep.placement)
            if joins:
                sweep = settled(sweep, overwrite)
                begin(sweep, overwrite)
            name = f"tune {sweep.points.name}"
            with tracked_run(name, sweep.out, sweep.out / "run.json") as run:
                run.tags({"space": sweep.points.name, "source": sweep.points.space.source})
                run.params({"metric": sweep.metric, "search": vars(sweep.settings), **sweep.data.told()})
                swept = run_sweep(sweep, run)
                if protocol is None:
                    return Tuned(swept)
                tuned = _retrain(sweep, swept, protocol, run)
                _register(sweep, tuned, protocol, run)
                return tuned


def _retrain(sweep: Sweep, swept: Swept, protocol: Protocol, run: Run) -> Tuned:
    """Train the winner, and score it."""
    on = f"{swept.best.number}, for {protocol.epochs} epochs on {protocol.pairs or 'the gold labels'}"
    say(f"training the winner, trial {on}")
    if isinstance(sweep.data, Gold):
        return _finetune(sweep, swept, sweep.data, protocol, run)
    return _train(sweep, swept, sweep.data, protocol, run)


def _finetune(sweep: Sweep, swept: Swept, gold: Gold, protocol: Protocol, run: Run) -> Tuned:
    """Train the winner as jobs/finetune.py does, which scores it on the task's test part, once."""
    recipe = replace(SupervisedRecipe.from_dict(swept.best.recipe), epochs=protocol.epochs)
    out = sweep.out / "model"
    name = f"{sweep.points.name} winner"
    done = finetune(
        replace(gold.training, name=name, recipe=recipe, out=out, placement=sweep.placement),
        overwrite=True,  # the folder is the sweep's own
    )
    config = read_config(out)
    scores = config["provenance"]["scores"]
    run.metrics({f"{part}/{name}": value for part, one in scores.items() for name, value in one["values"].items()})
    return Tuned(swept, out / "encoder", (HEAD, done.rows))


def _train(sweep: Sweep, swept: Swept, pairs: Pairs, protocol: Protocol, run: Run) -> Tuned:
    """Train the winner on the full set, and evaluate it beside the untrained average."""
    assert protocol.pairs is not None
    recipe = replace(Recipe.from_dict(swept.best.recipe), epochs=protocol.epochs)
    out = sweep.out / "encoder"
    name = f"{sweep.points.name} winner"
    least = pairs.min_coverage
    training = Training(name, recipe, protocol.pairs, pairs.words, out, sweep.placement, min_coverage=least)
    train_encoder(training, overwrite=True)  # the folder is the sweep's own
    before = untrained(pairs.words, recipe.max_words, recipe.tokeniser)
    report = compare([trained(out), before], protocol.suites, progress=doing)
    for path in report.write(sweep.out / "scores"):
        run.artifacts(path, "scores")
    run.metrics(report.metrics())
    return Tuned(swept, out, report.table())


def _register(sweep: Sweep, tuned: Tuned, protocol: Protocol, run: Run) -> None:
    """Register the winner, unless it is known to be in this store; a store that does not answer is not asked."""
    out, memo = tuned.encoder, sweep.out / "registered.json"
    assert out is not None
    fingerprint = checkpoint.read_config(out)["fingerprint"]
    done = _read_memo(memo)
    where = done.get("uri") if run.address is None else without_credentials(run.address.uri)
    this = {"name": protocol.name, "fingerprint": fingerprint, "uri": where}
    if this.items() <= done.items():
        return
    tags = {"space": sweep.points.name, "trial": str(tuned.swept.best.number), "fingerprint": fingerprint}
    tags |= {name: str(value) for name, value in sweep.data.told().items() if value is not None}
    version = register(run, out, protocol.name, tags)
    if version is None:
        say("not registered: MLflow does not answer; the same command tries again")
        return
    write_json(memo, {**this, "version": version})
    say(f"registered as {protocol.name}, version {version}: models:/{protocol.name}@{ALIAS}")


def _read_memo(memo: Path) -> dict[str, Any]:
    """Return which encoder was registered where; empty: none, or the file is damaged."""
    try:
        value: dict[str, Any] = read_json(memo, dict[str, Any]) if memo.exists() else {}
    except ValueError as error:
        say(f"{error}; the encoder is registered again")
        return {}
    return value


def suites_there(data: Path) -> list[Suite]:
    """Every suite whose files are in a folder; which are not there is said."""
    found, missing = [], []
    for name, read in SUITES.items():
        try:
            found.append(read(data))
        except (FileNotFoundError, ValueError) as error:
            missing.append(name if isinstance(error, FileNotFoundError) else f"{name} ({error})")
    if missing:
        say(f"the winner will be scored on what is in {data}, so not on {', '.join(missing)}")
    return found
