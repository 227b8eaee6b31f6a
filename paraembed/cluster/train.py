"""Train a model on Ray Data and Ray Train, from training data and word vectors or a pretrained encoder."""

import os
import re
import signal
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray.train import DataConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from paraembed.cluster.session import check_gpus, check_resources, ray_session, runs_in_process, workers_here
from paraembed.cluster.train_worker import Task, work_on
from paraembed.console import doing, duration, say
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.fingerprint import read_json
from paraembed.io.resume import Work
from paraembed.settings import Placement, Workers
from paraembed.stops import RunFailedError
from paraembed.tracking.runs import send_left, tracked_run
from paraembed.training.data import Table, TrainingData
from paraembed.training.inputs import Coverage, check_coverage
from paraembed.training.loop import TRACED_STEPS
from paraembed.training.state import Checkpoints, Counters

_COVERAGE = "coverage.json"
_FILES = re.compile(
    r"(identity|run|coverage)\.json|(untrained|trained|model|checkpoints|ray|pairs)/.*"
    r"|\.(identity\.json|run\.json|coverage\.json|untrained|trained|model)\.([0-9a-f]{8}\.)?(tmp|old)(/.*)?",
    re.DOTALL,
)
"""Pattern of the paths in a work folder."""

_RESTARTS = 3  # of the workers, after one of them failed
_PATIENCE_SECONDS = 6 * 3600  # of workers for rank 0 while it scores or saves; a dead one is noticed at once, by Ray


@dataclass(frozen=True)
class Training:
    """A training job: data, output and placement.

    Attributes:
        name: name of the recipe, for the record.
        data: training data, with the recipe.
        out: folder to write. Until it is complete, the work is in ``<out>.training``: the untrained model and the
            latest checkpoints.
        placement: workers, GPUs, checkpoints.
    """

    name: str
    data: TrainingData
    out: Path
    placement: Workers = field(default_factory=Workers)

    @property
    def work(self) -> Path:
        """Folder of the unfinished training."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def trace(self) -> Path | None:
        """File for the profile of some steps, if requested."""
        asked = isinstance(self.placement, Placement) and self.placement.profile
        return self.out.with_name(f"{self.out.name}.trace.json.gz") if asked else None


@dataclass(frozen=True)
class Outcome:
    """Result of ``train_model``.

    Attributes:
        table: header and rows of the scores, if there are any.
        was_finished: whether nothing was left to do.
    """

    table: Table | None
    was_finished: bool


def train_model(training: Training, *, overwrite: bool = False) -> Outcome:
    """Train a model and write its folder; the same call resumes a killed training.

    Args:
        training: data, output and placement.
        overwrite: replace another model at ``out``, and discard another unfinished training there.

    Raises:
        OSError, ValueError: an input or output cannot be used; then nothing was changed. Or the loss is not finite.
    """
    data, out, placement = training.data, training.out, training.placement
    check_gpus(placement)
    work = Work(out, training.work, "identity.json", data.identity(), _FILES, f"jobs/{data.job}.py", overwrite)

    def finished() -> Outcome | None:
        if not work.is_finished(data.identity_at):
            return None
        send_left(out)
        say(f"{out} is already finished; nothing to do")
        return Outcome(data.table_at(out), was_finished=True)

    before = finished()
    if before:
        work.remove_leftover()
        return before
    data.check(placement.workers, workers_here(placement.workers), gpus=placement.gpus)
    with work_folder(work.folder):
        before = finished()  # by another run, since
        if before:
            return before
        _prepare(data, work)
        table = _train(training, work)
        work.remove()
    return Outcome(table, was_finished=False)


def _prepare(data: TrainingData, work: Work) -> None:
    """Write the untrained model to the work folder, unless the folder already holds the same training.

    Raises:
        ValueError: the folder holds another training that must not be discarded, or other files; or the words cover too
            few of the tokens.
    """
    saved, about = work.folder / _COVERAGE, (data.min_coverage, data.vectors, data.texts)
    if work.is_begun():
        say(f"resuming the work in {work.folder}")
        try:
            coverage: Coverage = read_json(saved, Coverage)
        except (OSError, ValueError):  # of an older version, or damaged
            _, coverage = data.untrained()
        check_coverage(coverage, *about)
        return
    doing(f"counting the tokens of {data.texts}, reading {data.vectors}")
    model, coverage = data.untrained()
    say(
        f"{coverage.num_words:,} words of width {coverage.width}; the vectors of {data.vectors} cover "
        f"{coverage.covered:.1%} of the words of {data.texts}; {coverage.num_random:,} words have a random vector"
    )
    check_coverage(coverage, *about)
    work.clear()
    data.save(model, work.folder / "untrained", card="Untrained.\n")
    write_json(saved, asdict(coverage))
    work.begin()


def _train(training: Training, work: Work) -> Table | None:
    data, out, placement, trace = training.data, training.out, training.placement, training.trace
    doing("starting Ray and MLflow")
    name = f"{data.job} {training.name}{data.about}"
    with tracked_run(name, out, work.folder / "run.json") as run, ray_session(placement.workers):
        # What a resumed run may change is a tag: MLflow rejects another value of a parameter.
        run.tags({"recipe": training.name, "workers": str(placement.workers), "gpus": str(placement.gpus)})
        run.params(work.fingerprint["recipe"])
        run.params(data.params(work.fingerprint))
        result = _fit(training, run.spool)
        if "error" in result:
            raise RunFailedError(result["error"])
        counters: Counters = result["counters"]
        if counters.skipped_pairs:
            say(f"{counters.skipped_pairs} pairs were alone in a batch, had no negative, and were skipped")
        doing(f"scoring and writing the {data.model}")
        rate = counters.pairs / max(counters.seconds, 1e-9)
        run.metrics({f"{data.unit}_per_second/mean": rate, "training_seconds": counters.seconds})
        table = data.finish(training.name, work, counters, run.metrics)
        run.artifacts(out, data.model)
        if trace is not None and trace.exists():
            run.artifacts(trace)
            say(f"wrote {trace}, a trace of {TRACED_STEPS} steps; open it at https://ui.perfetto.dev")
        run.tags({"fingerprint": read_json(out / "config.json", dict[str, Any])["fingerprint"]})
    say(f"trained on {counters.pairs:,} {data.unit} in {duration(counters.seconds)}: {rate:,.0f} {data.unit}/s")
    return table


def _fit(training: Training, spool: Path | None) -> dict[str, Any]:
    """Train on Ray Train, or in this process for one worker; return the result of rank 0."""
    placement, work, data = training.placement, training.work, training.data
    in_process = runs_in_process(placement)
    if not in_process:
        check_resources(placement)
    device = "cpu" if not placement.gpus else "cuda" if in_process else "worker"
    saves = Checkpoints(
        work / "checkpoints",
        60 * placement.checkpoint_minutes,
        placement.checkpoint_steps,
        placement.keep_checkpoints,
    )
    trainer = TorchTrainer(
        work_on,  # type: ignore[arg-type]
        train_loop_config={"task": Task(work, data.for_workers(), device, saves, spool, training.trace)},
        scaling_config=ScalingConfig(num_workers=0 if in_process else placement.workers, use_gpu=placement.gpus),
        torch_config=TorchConfig(backend="nccl" if placement.gpus else "gloo", timeout_s=_PATIENCE_SECONDS),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees the RunConfig of Ray Train v1
            name=f"{data.job}-{os.getpid()}",
            storage_path=str(work / "ray"),
            failure_config=FailureConfig(max_failures=_RESTARTS),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
        **_dataset(data),
    )
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        return dict(trainer.fit().return_value)  # type: ignore[attr-defined]
    except SystemExit:  # what Ray Train makes of Ctrl-C, with status 0
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray Train leaves its own handler behind
            signal.signal(signal.SIGINT, on_interrupt)


def _dataset(data: TrainingData) -> dict[str, Any]:
    """Return the arguments that let the trainer's workers read the data with Ray Data.

    Every worker reads all pairs (XXL: 0.3 GB of ids) and computes its part of every step. So no row is lost to an equal
    split, and the order of an epoch does not depend on the number of workers.
    """
    files, columns = data.files()
    if not files:
        return {}
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # else the blocks come in another order each time
    options = ray.data.ExecutionOptions(preserve_order=True)
    return {
        "datasets": {"train": ray.data.read_parquet(files, columns=columns)},
        "dataset_config": DataConfig(datasets_to_split=[], execution_options=options),
    }
