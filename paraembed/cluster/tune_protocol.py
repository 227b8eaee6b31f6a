"""Published protocol after a sweep: retrain the best recipe on the full set, evaluate, register. Every stage can be
resumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraembed import checkpoint
from paraembed.cluster.train import Training, check_placement, remove_other, train_model
from paraembed.cluster.tune import FILES, Sweep, Tuned, begun, finished_before, run_sweep
from paraembed.console import doing, say
from paraembed.evaluation.candidates import trained, untrained
from paraembed.evaluation.report import compare
from paraembed.evaluation.selection import suites_digest
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import SUITES
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.places import shown
from paraembed.io.resume import cannot_overwrite, described
from paraembed.io.staging import child
from paraembed.late import Late
from paraembed.process import on_cluster
from paraembed.signals import RunFailedError
from paraembed.supervised.folder import read_config
from paraembed.supervised.labels import Labels
from paraembed.text.vocabulary import read_words
from paraembed.tracking.records import Run
from paraembed.tracking.runs import send_left, tracked_run
from paraembed.training.data import Pairs
from paraembed.tuning.table import PARQUET, counted

if TYPE_CHECKING:
    from paraembed.cluster import session
    from paraembed.tracking import registry
else:
    session, registry = Late("paraembed.cluster.session"), Late("paraembed.tracking.registry")

PROTOCOL = "protocol.json"
_OF_TRAININGS = ("encoder", "model", "encoder.training", "model.training", "tuning-pairs", "ray")
"""Folders of an output that its trainings write; they upload what belongs on the object store."""


@dataclass(frozen=True)
class Protocol:
    """Stages after a sweep."""

    pairs: Path | None  # full set of pair shards; None: the best recipe is trained on labeled examples
    epochs: int  # of the full training
    suites: Sequence[Suite]  # for an encoder trained on pairs; models of labeled examples use their task's test set
    name: str  # in the model registry


def protocol_of(sweep: Sweep, data: Path, pairs: Path | None, epochs: int | None, name: str | None) -> Protocol:
    """Return the stages after a sweep: epochs, pairs and the name in the registry are by default those of the paper."""
    epochs = sweep.points.space.final_epochs if epochs is None else epochs
    default = f"paraembed-{sweep.points.name.replace('/', '-')}"
    if isinstance(sweep.data, Labels):
        task = sweep.data.task
        return Protocol(None, epochs, (), name or f"{default}-{task.name}-{task.data_set}")
    own = [suite for suite in sweep.data.suites if suite.name not in SUITES]  # files of pairs, or held-out pairs
    return Protocol(pairs or sweep.data.folder, epochs, [*own, *suites_in(data)], name or default)


def tune_encoder(sweep: Sweep, protocol: Protocol | None = None, *, overwrite: bool = False) -> Tuned:
    """Run a sweep and, with a protocol, train, evaluate and register; the same call resumes a killed run.

    ``overwrite`` discards another sweep in the folder. Raise OSError or ValueError if an input or output cannot be
    used, or too many trials failed.
    """
    if sweep.uri is not None:
        if overwrite:
            raise cannot_overwrite(shown(sweep.uri))
        if protocol is not None and sweep.placement.profile:
            raise ValueError("`profile` writes a file to `out`, so it needs a folder; leave it out, or change `out`")
    doing("checking the inputs")
    sweep.data.check_sweep(1, None if protocol is None else protocol.pairs)
    check_placement(sweep.placement)
    if sweep.uri is not None:
        doing(f"looking for earlier work at {shown(sweep.uri)}")
        names = sweep.home.check(FILES, "jobs/tune.py")
        sweep.home.pull([name for name in names if name.partition("/")[0] not in _OF_TRAININGS])
    before = finished_before(sweep)
    if before is not None and protocol is not None:
        before = _retrained_before(sweep, before, protocol)
    if before is None:
        return _tune(sweep, protocol, overwrite=overwrite)
    send_left(sweep.home.records)
    say(f"{shown(sweep.uri or sweep.out)} is already finished; nothing to do")
    return before


def _retrained_before(sweep: Sweep, tuned: Tuned, protocol: Protocol) -> Tuned | None:
    """Return the result of a finished sweep with that of its finished protocol; None if something is left to do."""
    training = _training(sweep, tuned, protocol)
    training.home.pull(["config.json"])
    data, out = training.data, training.out
    if described(sweep.out / PROTOCOL) != _identity(training, protocol):
        return None
    results = "encoder/model.safetensors" if isinstance(data, Labels) else "model.safetensors"
    needed = {f"{data.model}/{results}"} | (set() if isinstance(data, Labels) else {"scores/scores.json"})
    files = sweep.home.names() if sweep.uri else [name for name in needed if (sweep.out / name).is_file()]
    if not needed.issubset(files):
        return None
    return replace(tuned, encoder=out / "encoder" if isinstance(data, Labels) else out, scores=data.table_at(out))


def _identity(training: Training, protocol: Protocol) -> dict[str, Any]:
    """Return what a finished protocol records: what decided its encoder, its scores and its entry in the registry."""
    written = described(training.out / "config.json").get("fingerprint")
    suites = suites_digest(protocol.suites)
    return {"training": training.data.identity(), "written": written, "suites": suites, "name": protocol.name}


def _tune(sweep: Sweep, protocol: Protocol | None, *, overwrite: bool) -> Tuned:
    joins = on_cluster()  # then the cluster says how many trials there are at a time
    doing("starting Ray and MLflow")
    with work_folder(sweep.out):
        if not joins:
            sweep = begun(sweep, overwrite)
        with session.ray_session(1 if joins else (sweep.concurrent or 1)):
            session.wait_for_workers(1, sweep.resources())
            if joins:
                sweep = begun(sweep, overwrite)
            with tracked_run(f"tune {sweep.out.name}", sweep.home.records, sweep.out / "run.json") as run:
                sweep.home.push("run.json")
                run.tags({"space": sweep.points.name, "source": sweep.points.space.source})
                for input_name, digest, path, rows in sweep.data.datasets(sweep.data.identity()):
                    run.dataset(input_name, digest, [sweep.named(str(path))], "tuning", rows)
                run.params({"metric": sweep.metric, "search": vars(sweep.settings), **_about_data(sweep)})
                try:
                    tuned = run_sweep(sweep, run)
                    if protocol is not None:
                        tuned = _retrain(sweep, tuned, protocol, run)
                        _register(sweep, tuned, protocol, run)
                        write_json(sweep.out / PROTOCOL, _identity(_training(sweep, tuned, protocol), protocol))
                except RunFailedError:
                    _push_results(sweep)
                    raise
                _push_results(sweep)
                return tuned


def _push_results(sweep: Sweep) -> None:
    """Upload tables, figures and scores; records of trials and the encoder are on the object store already."""
    for path in sorted(sweep.out.iterdir(), key=lambda path: (path.name == PARQUET, path.name)):
        if path.name not in {"trials", *_OF_TRAININGS} and not path.name.startswith("."):
            sweep.home.push(path.name)


def _about_data(sweep: Sweep) -> dict[str, Any]:
    """Return what is logged to MLflow about the data."""
    if isinstance(sweep.data, Pairs):
        return {"sample": sweep.sample}
    return {"task": sweep.data.task.name, "data_set": sweep.data.task.data_set}


def _training(sweep: Sweep, tuned: Tuned, protocol: Protocol) -> Training:
    """Return the full training of the best recipe."""
    data, name = sweep.data, f"{sweep.points.name} winner"
    recipe = replace(sweep.points.kind.from_dict(tuned.best.recipe), epochs=protocol.epochs)
    if isinstance(data, Pairs):
        assert protocol.pairs is not None
        data = replace(data, folder=protocol.pairs, suites=(), max_bytes=sweep.placement.pairs_bytes)
    out, uri = sweep.out / data.model, child(sweep.uri, data.model) if sweep.uri else None
    return Training(name, data.with_recipe(recipe), out, sweep.placement, uri, sweep.named)


def _retrain(sweep: Sweep, tuned: Tuned, protocol: Protocol, run: Run) -> Tuned:
    """Train the best recipe and score it: once on the task's test set, or on suites next to the untrained average."""
    on = f"{tuned.best.number}, for {counted(protocol.epochs, 'epoch')} on {protocol.pairs or 'the labeled examples'}"
    say(f"training the best recipe, of trial {on}")
    training = _training(sweep, tuned, protocol)
    data, out, recipe = training.data, training.out, training.data.recipe
    if training.uri is not None:  # the output is the sweep's own
        remove_other(training)
    done = train_model(training, overwrite=training.uri is None)
    if isinstance(data, Labels):
        scores = read_config(out)["provenance"]["scores"]
        run.metrics(
            {f"{part}/{name}": value for part, score in scores.items() for name, value in score["values"].items()}
        )
        return replace(tuned, encoder=out / "encoder", scores=done.table)
    if data.words.is_dir():
        before = replace(trained(data.words, "before training"), is_baseline=True)
    else:
        words = read_words(data.words, recipe.max_words, data.max_bad_words)
        before = untrained(words, data.words, recipe.tokenizer)
    report = compare([trained(out), before], protocol.suites, progress=doing)
    for path in report.write(sweep.out / "scores"):
        run.artifacts(path, "scores")
    run.metrics(report.metrics())
    return replace(tuned, encoder=out, scores=report.table())


def _register(sweep: Sweep, tuned: Tuned, protocol: Protocol, run: Run) -> None:
    """Log and register the encoder."""
    assert tuned.encoder is not None
    fingerprint = checkpoint.read_config(tuned.encoder)["fingerprint"]
    tags = {"space": sweep.points.name, "trial": str(tuned.best.number), "fingerprint": fingerprint}
    tags |= {name: str(value) for name, value in _about_data(sweep).items() if value is not None}
    run.model(tuned.encoder, registry.ALIAS, tags, protocol.name)


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
