"""Published protocol after a sweep: retrain the best recipe on the full set, evaluate, register. Every stage can be
resumed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.cluster.session import check_gpus, check_resources, ray_session, workers_here
from paraembed.cluster.train import Training, train_model
from paraembed.cluster.tune import Sweep, Swept, begin, run_sweep, settled
from paraembed.console import doing, say
from paraembed.evaluation.candidates import trained, untrained
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import SUITES
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.fingerprint import read_json
from paraembed.io.places import require_file, without_credentials
from paraembed.pairs.shards import read_pair_manifest
from paraembed.supervised.labels import Labels
from paraembed.supervised.model import read_config
from paraembed.tracking.registry import ALIAS, register
from paraembed.tracking.runs import Run, tracked_run
from paraembed.training.data import Pairs, Table


@dataclass(frozen=True)
class Protocol:
    """Stages after a sweep.

    Attributes:
        pairs: folder of the full set of pair shards; None: the best recipe is trained on labeled examples.
        epochs: epochs of the full training.
        suites: suites to evaluate an encoder trained on pairs; models of labeled examples use their task's test set.
        name: name in the model registry.
    """

    pairs: Path | None
    epochs: int
    suites: Sequence[Suite]
    name: str


@dataclass(frozen=True)
class Tuned:
    """Result of a sweep and, with a protocol, the best recipe's encoder and its table of scores (header and rows)."""

    swept: Swept
    encoder: Path | None = None
    scores: Table | None = None


def protocol_of(sweep: Sweep, data: Path, pairs: Path | None, epochs: int | None, name: str | None) -> Protocol:
    """Return the stages after a sweep, by default as in the paper.

    Args:
        sweep: the sweep.
        data: folder of the evaluation suites.
        pairs: full set of pair shards; None: those of the sweep.
        epochs: epochs of the full training; None: those of the space.
        name: name in the registry; None: from the space, and from task and data set of labeled examples.
    """
    epochs = sweep.points.space.final_epochs if epochs is None else epochs
    default = f"paraembed-{sweep.points.name.replace('/', '-')}"
    if isinstance(sweep.data, Labels):
        task = sweep.data.task
        return Protocol(None, epochs, (), name or f"{default}-{task.name}-{task.data_set}")
    own = [suite for suite in sweep.data.suites if suite.name not in SUITES]  # files of pairs, or held-out pairs
    return Protocol(pairs or sweep.data.folder, epochs, [*own, *suites_in(data)], name or default)


def tune_encoder(sweep: Sweep, protocol: Protocol | None = None, *, overwrite: bool = False) -> Tuned:
    """Run a sweep and, with a protocol, train, evaluate and register; the same call resumes a killed run.

    Args:
        sweep: the sweep.
        protocol: stages after the sweep.
        overwrite: discard another sweep in the folder.

    Raises:
        OSError, ValueError: an input or output cannot be used, or too many trials failed.
    """
    doing("checking the inputs")
    if isinstance(sweep.data, Pairs):
        require_file(sweep.data.words)
        read_pair_manifest(sweep.data.folder)
    else:
        sweep.data.check(sweep.placement.workers, workers_here(sweep.placement.workers), gpus=sweep.placement.gpus)
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
                run.params({"metric": sweep.metric, "search": vars(sweep.settings), **_told(sweep)})
                swept = run_sweep(sweep, run)
                if protocol is None:
                    return Tuned(swept)
                tuned = _retrain(sweep, swept, protocol, run)
                _register(sweep, tuned, protocol, run)
                return tuned


def _told(sweep: Sweep) -> dict[str, Any]:
    """Return what is logged to MLflow about the data."""
    if isinstance(sweep.data, Pairs):
        return {"sample": sweep.sample}
    return {"task": sweep.data.task.name, "data_set": sweep.data.task.data_set}


def _retrain(sweep: Sweep, swept: Swept, protocol: Protocol, run: Run) -> Tuned:
    """Train the best recipe and score it: once on the task's test set, or on suites next to the untrained average."""
    data = sweep.data
    on = f"{swept.best.number}, for {protocol.epochs} epochs on {protocol.pairs or 'the labeled examples'}"
    say(f"training the best recipe, of trial {on}")
    recipe = replace(sweep.points.kind.from_dict(swept.best.recipe), epochs=protocol.epochs)
    if isinstance(data, Pairs):
        assert protocol.pairs is not None
        limit = sweep.placement.pairs_bytes
        data = replace(data, folder=protocol.pairs, suites=(), max_bytes=limit)
    out = sweep.out / data.model
    training = Training(f"{sweep.points.name} winner", data.with_recipe(recipe), out, sweep.placement)
    done = train_model(training, overwrite=True)  # the folder is the sweep's own
    if isinstance(data, Labels):
        scores = read_config(out)["provenance"]["scores"]
        run.metrics(
            {f"{part}/{name}": value for part, score in scores.items() for name, value in score["values"].items()}
        )
        return Tuned(swept, out / "encoder", done.table)
    before = untrained(data.words, recipe.max_words, recipe.tokenizer)
    report = compare([trained(out), before], protocol.suites, progress=doing)
    for path in report.write(sweep.out / "scores"):
        run.artifacts(path, "scores")
    run.metrics(report.metrics())
    return Tuned(swept, out, report.table())


def _register(sweep: Sweep, tuned: Tuned, protocol: Protocol, run: Run) -> None:
    """Register the encoder, unless it is known to be in this store; if the store does not answer, it is not
    registered.
    """
    out, memo = tuned.encoder, sweep.out / "registered.json"
    assert out is not None
    fingerprint = checkpoint.read_config(out)["fingerprint"]
    done = _read_memo(memo)
    where = done.get("uri") if run.address is None else without_credentials(run.address.uri)
    this = {"name": protocol.name, "fingerprint": fingerprint, "uri": where}
    if this.items() <= done.items():
        return
    tags = {"space": sweep.points.name, "trial": str(tuned.swept.best.number), "fingerprint": fingerprint}
    tags |= {name: str(value) for name, value in _told(sweep).items() if value is not None}
    version = register(run, out, protocol.name, tags)
    if version is None:
        say("not registered, because MLflow does not answer; run the same command again to retry")
        return
    write_json(memo, {**this, "version": version})
    say(f"registered as {protocol.name}, version {version}: models:/{protocol.name}@{ALIAS}")


def _read_memo(memo: Path) -> dict[str, Any]:
    """Return which encoder was registered where; empty if none was, or if the file is damaged."""
    try:
        value: dict[str, Any] = read_json(memo, dict[str, Any]) if memo.exists() else {}
    except ValueError as error:
        say(f"{error}; the encoder is registered again")
        return {}
    return value


def suites_in(data: Path) -> list[Suite]:
    """Return every suite whose files are in a folder; print the names of the others."""
    suites, missing = [], []
    for name, read in SUITES.items():
        try:
            suites.append(read(data))
        except (FileNotFoundError, ValueError) as error:
            missing.append(name if isinstance(error, FileNotFoundError) else f"{name} ({error})")
    if missing:
        say(f"{data} has no files of {', '.join(missing)}: the best encoder is not scored on them")
    return suites
