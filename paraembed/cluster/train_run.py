"""What every training on Ray Train has: a work folder that a killed one left, checks of the cluster, the workers."""

import contextlib
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from paraembed.cluster.placement import Workers, check_resources, runs_in_process
from paraembed.cluster.train_worker import Result
from paraembed.console import say
from paraembed.io.atomic import empty_folder, foreign_file, work_folder
from paraembed.io.fingerprint import differences, read_json
from paraembed.recipe import BaseRecipe
from paraembed.training.inputs import Coverage, check_coverage
from paraembed.training.state import Checkpoints

COVERAGE = "coverage.json"
_WORK = re.compile(
    r"(identity|run|coverage)\.json|(untrained|trained|model|checkpoints|ray|pairs)/.*"
    r"|\.(identity\.json|run\.json|coverage\.json|untrained|trained|model)\.([0-9a-f]{8}\.)?(tmp|old)(/.*)?",
    re.DOTALL,
)
"""Paths of the files in a work folder."""

_RESTARTS = 3  # of the workers, after one of them died
_PATIENCE_SECONDS = 6 * 3600  # of workers for rank 0 while it scores or saves; a dead one is noticed at once, by Ray


def is_finished(
    out: Path,
    read_config: Callable[[Path], dict[str, Any]],
    kind: type[BaseRecipe],
    identity: dict[str, Any],
    overwrite: bool,
    what: str,
) -> bool:
    """Whether an output is what a training would give.

    Args:
        out: the output.
        read_config: of such a folder.
        kind: of its recipe.
        identity: what decides the training.
        overwrite: whether another one may be replaced.
        what: that stands there: encoder, model.

    Raises:
        ValueError: ``out`` holds something else, or another one, which is not to be overwritten.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    provenance = read_config(out).get("provenance")
    found = provenance.get("training", {}) if isinstance(provenance, dict) else {}
    with contextlib.suppress(KeyError, TypeError, ValueError):  # fields that are newer than it have their defaults
        found = {**found, "recipe": kind.from_dict(found["recipe"]).to_dict()}
    changed = differences(found, identity)
    if changed and not overwrite:
        raise ValueError(f"{out} holds another {what}: {changed}; choose another --out, or replace it with --overwrite")
    return not changed


def begins(work: Path, identity: dict[str, Any], overwrite: bool, job: str) -> bool:
    """Whether a training begins in its work folder, which is empty then; not where it goes on with what is there.

    Args:
        work: the folder; the caller writes ``identity`` to ``identity.json`` in it when it is ready to train.
        identity: what decides the training.
        overwrite: whether another training may be dropped.
        job: file of the job, for messages.

    Raises:
        ValueError: the folder holds another training, which is not to be dropped, or something else.
    """
    saved = work / "identity.json"
    if saved.is_file():
        changed = _changed(saved, identity)
        if not changed:
            say(f"going on with the training in {work}")
            return False
        if not overwrite:
            raise ValueError(
                f"{work} holds a training that was begun with another {changed}; go back to that, choose another "
                "--out, or start afresh with --overwrite"
            )
    foreign = foreign_file(work, _WORK)
    if foreign is not None:
        raise ValueError(f"{work} holds something that {job} did not write; move it away: {foreign.relative_to(work)}")
    return True


def _changed(saved: Path, identity: dict[str, Any]) -> str:
    """Return how a saved identity differs from another one; a damaged file differs in everything."""
    try:
        return differences(read_json(saved), identity)
    except ValueError as error:
        return f"identity ({error})"


def check_words(work: Path, least: float, vectors: str, texts: str, count: Callable[[], Coverage]) -> None:
    """Check the word coverage of a training that is resumed, as before its first step.

    Args:
        work: its folder.
        least: fraction of the tokens that must have a vector of their own.
        vectors: name of the word-vector file or encoder.
        texts: what the tokens are of, for the message.
        count: counts it again, where it was not saved or cannot be read.

    Raises:
        ValueError: the words cover less than ``least``.
    """
    try:
        coverage: Coverage = read_json(work / COVERAGE, Coverage)
    except (OSError, ValueError):
        coverage = count()
    check_coverage(coverage, least, vectors, texts)


def drop_finished(work: Path, identity: dict[str, Any]) -> None:
    """Remove the work folder of a training that was killed when its output was there already."""
    saved = work / "identity.json"
    if saved.is_file() and not _changed(saved, identity):
        with contextlib.suppress(OSError, ValueError), work_folder(work):  # who holds it removes it
            remove_work(work)


def remove_work(work: Path) -> None:
    """Remove the work folder of a finished training, unless it holds a file that no training wrote."""
    foreign = foreign_file(work, _WORK)
    if foreign is None:
        shutil.rmtree(work)
    else:
        say(f"{work} was not removed: {foreign.name} in it is not part of the training")


def clear(work: Path) -> None:
    """Empty a work folder; what it is a training of is forgotten first."""
    (work / "identity.json").unlink(missing_ok=True)
    empty_folder(work)


def checkpoints_of(placement: Workers, work: Path) -> Checkpoints:
    """Where and how often a training saves."""
    return Checkpoints(
        work / "checkpoints",
        60 * placement.checkpoint_minutes,
        placement.checkpoint_steps,
        placement.keep_checkpoints,
    )


def fit(
    worker: Callable[[dict[str, Any]], dict[str, Any]],
    task: object,
    placement: Workers,
    work: Path,
    name: str,
    **more: Any,
) -> Result:
    """Train on Ray Train; returns what rank 0 returned.

    Args:
        worker: called on every worker with ``{"task": task}``.
        task: what it is told.
        placement: workers, GPUs.
        work: folder of the training.
        name: of the run, for Ray.
        **more: datasets and their configuration, for Ray's trainer.
    """
    in_process = runs_in_process(placement)
    if not in_process:
        check_resources(placement)
    trainer = TorchTrainer(
        worker,  # type: ignore[arg-type]
        train_loop_config={"task": task},
        scaling_config=ScalingConfig(num_workers=0 if in_process else placement.workers, use_gpu=placement.gpus),
        torch_config=TorchConfig(backend="nccl" if placement.gpus else "gloo", timeout_s=_PATIENCE_SECONDS),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees the RunConfig of Ray Train v1
            name=f"{name}-{os.getpid()}",
            storage_path=str(work / "ray"),
            failure_config=FailureConfig(max_failures=_RESTARTS),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
        **more,
    )
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        return Result(**trainer.fit().return_value)  # type: ignore[attr-defined]
    except SystemExit:  # what Ray Train makes of Ctrl-C, with status 0
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray Train leaves its own handler behind
            signal.signal(signal.SIGINT, on_interrupt)
