"""The published protocol: sweep, retrain the winner on the full set, evaluate, register. Every stage goes on."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paraembed import checkpoint
from paraembed.cluster.job import say
from paraembed.cluster.placement import check_gpus, check_resources
from paraembed.cluster.session import ray_session
from paraembed.cluster.tracking import Run, tracked_run
from paraembed.cluster.train import Training, train_encoder
from paraembed.cluster.tune import Sweep, Swept, begin, run_sweep, settled
from paraembed.cluster.tune_tracking import ALIAS, nest, register
from paraembed.evaluation.candidates import trained, untrained
from paraembed.evaluation.report import Report, compare
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import SUITES
from paraembed.files import read_json, without_credentials, work_folder, write_json
from paraembed.recipe import Recipe
from paraembed.training.inputs import read_pair_manifest


@dataclass(frozen=True)
class Protocol:
    """What comes after the sweep.

    Attributes:
        pairs: folder of the full set of pair shards.
        epochs: over it.
        suites: what the encoder is evaluated on.
        name: under which it is registered.
    """

    pairs: Path
    epochs: int
    suites: Sequence[Suite]
    name: str


@dataclass(frozen=True)
class Tuned:
    """What a sweep found, and, with a protocol, the scores of the winner."""

    swept: Swept
    scores: Report | None = None


def tune_encoder(
    sweep: Sweep, suites: tuple[Suite, ...], protocol: Protocol | None = None, *, overwrite: bool = False
) -> Tuned:
    """Sweep and, with a protocol, train, evaluate and register; the same call goes on where a killed one was.

    Args:
        sweep: what to search.
        suites: what the trials are scored on.
        protocol: what comes after.
        overwrite: drop another sweep in the folder.

    Raises:
        OSError, ValueError: an input or output will not do, or too many trials failed.
    """
    read_pair_manifest(sweep.pairs)
    if protocol is not None:
        read_pair_manifest(protocol.pairs)
    check_gpus(sweep.placement)
    joins = "RAY_ADDRESS" in os.environ  # then the cluster says how many trials there are at a time
    with work_folder(sweep.out):
        if not joins:
            sweep = settled(sweep, overwrite)
            begin(sweep, suites, overwrite)
        with ray_session(1 if joins else (sweep.concurrent or 1) * sweep.placement.workers):
            if sweep.placement.gpus or sweep.placement.workers > 1:
                check_resources(sweep.placement)
            if joins:
                sweep = settled(sweep, overwrite)
                begin(sweep, suites, overwrite)
            name = f"tune {sweep.points.name}"
            with tracked_run(name, sweep.out, sweep.out / "run.json") as run:
                run.tags({"space": sweep.points.name, "source": sweep.points.space.source})
                run.params({"metric": sweep.metric, "search": vars(sweep.settings), "sample": sweep.sample})
                swept = run_sweep(sweep, run, suites)
                if protocol is None:
                    return Tuned(swept)
                scores = _retrain(sweep, swept, protocol, run)
                _register(sweep, swept, protocol, run)
                return Tuned(swept, scores)


def _retrain(sweep: Sweep, swept: Swept, protocol: Protocol, run: Run) -> Report:
    """Train the winner on the full set, and evaluate it beside the untrained average."""
    recipe = replace(Recipe.from_dict(swept.best.recipe), epochs=protocol.epochs)
    out = sweep.out / "encoder"
    training = Training(f"{sweep.points.name} winner", recipe, protocol.pairs, sweep.words, out, sweep.placement)
    say(f"training the winner, trial {swept.best.number}, for {recipe.epochs} epochs on {protocol.pairs}")
    train_encoder(training, overwrite=True)  # the folder is the sweep's own
    nest(run, checkpoint.read_config(out)["fingerprint"])
    before = untrained(sweep.words, recipe.max_words, recipe.tokeniser)
    report = compare([trained(out), before], protocol.suites)
    for path in report.write(sweep.out / "scores"):
        run.artifacts(path, "scores")
    run.metrics(report.metrics())
    return report


def _register(sweep: Sweep, swept: Swept, protocol: Protocol, run: Run) -> None:
    """Register the winner, unless it is known to be in this store; a store that does not answer is not asked."""
    out, memo = sweep.out / "encoder", sweep.out / "registered.json"
    fingerprint = checkpoint.read_config(out)["fingerprint"]
    done = read_json(memo) if memo.exists() else {}
    where = done.get("uri") if run.address is None else without_credentials(run.address.uri)
    this = {"name": protocol.name, "fingerprint": fingerprint, "uri": where}
    if this.items() <= done.items():
        return
    tags = {"space": sweep.points.name, "trial": str(swept.best.number), "fingerprint": fingerprint}
    version = register(run, out, protocol.name, tags)
    if version is None:
        say("not registered: MLflow does not answer; the same command tries again")
        return
    write_json(memo, {**this, "version": version})
    say(f"registered as {protocol.name}, version {version}: models:/{protocol.name}@{ALIAS}")


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
