"""Train a model on Ray Data and Ray Train, from training data and word vectors or a pretrained encoder."""

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray.train import DataConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from paraembed.checkpoint import OWN_FILES
from paraembed.cluster.relay import Relay, relayed
from paraembed.cluster.session import (
    COLLECTIVE_SECONDS,
    check_placement,
    ray_session,
    wait_for_workers,
)
from paraembed.cluster.train_worker import WorkerTask, work_on
from paraembed.cluster.watch import interrupting, servers_end
from paraembed.console import doing, duration, is_quiet, say
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.fingerprint import differences, read_json
from paraembed.io.places import resolve, shown
from paraembed.io.resume import Work, cannot_overwrite, check_own_files, foreign_work
from paraembed.io.staging import Mirror, sibling
from paraembed.process import on_cluster, ray_data, records_graphs
from paraembed.settings import Placement, Workers, check_register
from paraembed.signals import STOP_SIGNALS, RunFailedError
from paraembed.supervised.labels import TrainingData
from paraembed.tracking.records import RecordFile, Run
from paraembed.tracking.runs import send_left, tracked_run
from paraembed.training.data import Table
from paraembed.training.initial import Coverage, available_memory, check_coverage, check_memory
from paraembed.training.loop import TRACED_STEPS
from paraembed.training.state import Checkpoints, Counters

_COVERAGE, _CONFIG = "coverage.json", "config.json"
_FILES = re.compile(
    r"(identity|run|coverage)\.json|(untrained|trained|model|checkpoints|ray|pairs)/.*"
    r"|\.(identity\.json|run\.json|coverage\.json|untrained|trained|model)\.([0-9a-f]{8}\.)?(tmp|old)(/.*)?",
    re.DOTALL,
)
"""Pattern of the paths in a work folder."""

_RESTARTS = 3  # of the workers, after one of them failed
_RESIZE_CHECKPOINTS = 4  # times between checkpoints: so a resize, without a checkpoint first, repeats at most a quarter
_RESIZE_SECONDS = 10.0  # at least between two resizes
_STOP_SECONDS = 30.0  # for the workers to save; the pods of infra/kuberay get 60 s
_GROUP_SECONDS = 2.0  # in which a signal to all processes of a job has ended Ray's servers


@dataclass(frozen=True)
class Training:
    """A training job: data, output and placement.

    Until ``out`` is complete, the work is in ``<out>.training``: the untrained model and the latest checkpoints. If the
    output is on an object store, at ``uri``, then ``out`` is the copy on this machine, and the work is also at
    ``<uri>.training``, so that workers and resumed runs need no shared folder.
    """

    name: str  # of the recipe, for the record
    data: TrainingData  # with the recipe
    out: Path
    placement: Workers = field(default_factory=Workers)
    uri: str | None = None
    shards: str | None = None  # URI of the pair shards, from which workers read them; None: the folder of the data
    named: Callable[[str], str] = str  # path of an input → its name for MLflow, such as the URI of a copy
    register: str | None = None  # name in MLflow's model registry; None: the model is logged, but not registered

    def __post_init__(self) -> None:
        """Raise ValueError if the name to register is not allowed."""
        check_register(self.register)

    @property
    def work(self) -> Path:
        """Folder of the unfinished training."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def home(self) -> Mirror:
        """The output, with its copy on the object store if it has one."""
        return Mirror(self.out, self.uri)

    @property
    def shared(self) -> Mirror:
        """The unfinished training, with its copy on the object store if it has one."""
        return Mirror(self.work, self.uri and sibling(self.uri, ".training"))

    @property
    def trace(self) -> Path | None:
        """File for the profile of some steps, if requested."""
        asked = isinstance(self.placement, Placement) and self.placement.profile
        return self.out.with_name(f"{self.out.name}.trace.json.gz") if asked else None


@dataclass(frozen=True)
class TrainingResult:
    """Result of ``train_model``: the table of scores, if there are any, and whether nothing was left to do."""

    table: Table | None
    was_finished: bool


def train_model(training: Training, *, overwrite: bool = False) -> TrainingResult:
    """Train a model and write its folder; the same call resumes a killed training.

    ``overwrite`` replaces another model at ``out``, and discards another unfinished training there.

    Raises:
        OSError, ValueError: an input or output cannot be used; then nothing was changed. Or the loss is not finite.
    """
    data, out, placement = training.data, training.out, training.placement
    check_output(training.uri, placement, data.job, overwrite=overwrite)
    _fetch_work(training)
    work = Work(out, training.work, "identity.json", data.identity(), _FILES, f"jobs/{data.job}.py", overwrite)

    def finished() -> TrainingResult | None:
        if not work.is_finished(data.identity_at):
            return None
        send_left(training.home.records)
        say(f"{shown(training.uri or out)} is already finished; nothing to do")
        if training.register is not None:
            say("warning: `register` has no effect after a training; register the model of its MLflow run")
        return TrainingResult(data.table_at(out), was_finished=True)

    before = finished()
    if before:
        if work.is_recorded():
            training.shared.remove()
        work.remove_leftover()
        return before
    check_own_files(out, OWN_FILES, work.job, may_be_link=True)
    data.check(placement.most)
    memory = data.memory(placement.most, gpus=placement.gpus)
    if on_cluster():  # each worker checks its machine; here only the word vectors are read
        memory = replace(memory, copies=0, pairs=0, best=0, workers=1)
    check_memory(memory, available_memory())
    with work_folder(work.folder):
        before = finished()  # by another run, since
        if before:
            return before
        if _prepare(data, work):
            training.shared.remove()  # what another training left, if the removal of its work was interrupted
            training.shared.push()
        table = _train(training, work)
        work.remove()
        training.shared.remove()
    return TrainingResult(table, was_finished=False)


def check_output(uri: str | None, placement: Workers, job: str, *, overwrite: bool) -> None:
    """Check what can be checked without the inputs, which may take long to download; ``uri`` is None for a folder.

    Raises:
        ValueError: a GPU is missing, or the number of workers is to change on a single machine; the output is to be
            overwritten or a profile to be written, which is only possible for a folder; or the work at the URI holds
            other files.
    """
    check_placement(placement)
    if uri is None:
        return
    if isinstance(placement, Placement) and placement.profile:
        raise ValueError("`profile` writes a file next to `out`, so it needs a folder; leave it out, or change `out`")
    if overwrite:
        raise cannot_overwrite(shown(uri))
    doing(f"looking for earlier work at {shown(uri)}")
    Mirror(Path(), sibling(uri, ".training")).check(_FILES, f"jobs/{job}.py")


def _fetch_work(training: Training) -> None:
    """Download what an earlier run left on the object store; raise ValueError if the output holds other files."""
    if training.uri is None:
        return
    training.home.pull([_CONFIG])
    training.shared.pull(["identity.json", "run.json", _COVERAGE, "untrained"])
    names = training.home.names()
    if names and not (training.out / _CONFIG).exists() and not (training.work / "identity.json").exists():
        raise foreign_work(shown(training.uri), names[0], f"jobs/{training.data.job}.py")


def remove_other(training: Training) -> None:
    """Remove another model, and another unfinished training, from the object store; for an output of the job itself."""
    identity = training.data.identity()
    for copy, record, read in (
        (training.home, _CONFIG, training.data.identity_at),
        (training.shared, "identity.json", lambda folder: read_json(folder / "identity.json")),
    ):
        copy.pull([record])
        if (copy.folder / record).exists() and differences(read(copy.folder), identity):
            copy.remove()
            shutil.rmtree(copy.folder)


def _prepare(data: TrainingData, work: Work) -> bool:
    """Write the untrained model to the work folder, and return True; False if it already holds the same training."""
    saved, about = work.folder / _COVERAGE, (data.min_coverage, data.vectors, data.texts)
    if work.is_begun():
        say(f"resuming the work in {work.folder}")
        try:
            coverage: Coverage = read_json(saved, Coverage)
        except (OSError, ValueError):  # of an older version, or damaged
            _, coverage = data.untrained()
        check_coverage(coverage, *about)
        return False
    doing(f"counting the tokens of {data.texts}, reading {data.vectors}")
    model: Any
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
    return True


def _train(training: Training, work: Work) -> Table | None:
    data, out, placement, trace = training.data, training.out, training.placement, training.trace
    doing("starting Ray and MLflow")
    name = f"{data.job} {out.name}"
    with tracked_run(name, training.home.records, work.folder / "run.json") as run, ray_session(placement.most):
        # What a resumed run may change is a tag: MLflow rejects another value of a parameter.
        run.tags({"recipe": training.name, "workers": str(placement.workers), "gpus": str(placement.gpus)})
        for start, record in data.start_of(work.fingerprint).items():
            run.tags({f"{start}.{key}": str(value) for key, value in record.items()})
        run.params(work.fingerprint["recipe"])
        run.params(data.params(work.fingerprint))
        for input_name, digest, path, rows in data.datasets(work.fingerprint):
            run.dataset(input_name, digest, [training.named(str(path))], "training", rows)
        if (work.folder / "run.json").exists():
            training.shared.push("run.json")
        with ray_data(ray.data.DataContext.get_current(), preserve_order=True):
            result = _fit(training, run)
        if "stopped" in result:
            raise KeyboardInterrupt
        if "error" in result:
            raise RunFailedError(result["error"])
        counters: Counters = result["counters"]
        if counters.skipped_pairs:
            say(f"{counters.skipped_pairs} pairs were alone in a batch, had no negative, and were skipped")
        doing(f"scoring and writing the {data.model}")
        rate = counters.pairs / max(counters.seconds, 1e-9)
        run.metrics({f"{data.unit}_per_second/mean": rate, "training_seconds": counters.seconds})
        training.shared.pull(["trained"])
        table = data.finish(training.name, work, counters, run.metrics)
        training.home.push()
        fingerprint = read_json(out / "config.json", dict[str, Any])["fingerprint"]
        run.model(out, data.model, {"fingerprint": fingerprint}, training.register)
        if trace is not None and trace.exists():
            run.artifacts(trace)
            say(f"wrote {trace}, a trace of {TRACED_STEPS} steps; open it at https://ui.perfetto.dev")
        run.tags({"fingerprint": fingerprint})
    say(f"trained on {counters.pairs:,} {data.unit} in {duration(counters.seconds)}: {rate:,.0f} {data.unit}/s")
    return table


def _fit(training: Training, run: Run) -> dict[str, Any]:
    """Train on Ray Train, or in this process for one worker; return the result of rank 0."""
    placement, work, data = training.placement, training.work, training.data
    # This process, as the only worker, starts in 0.1 s instead of 9.5 s; that of a cluster's driver may be on a machine
    # without a CPU for tasks, with little memory and no GPU.
    in_process = placement.most == 1 and not on_cluster()
    memory = data.memory(placement.most, gpus=placement.gpus) if on_cluster() else None
    resources = {"GPU" if placement.gpus else "CPU": 1.0}
    if memory is not None:
        resources["memory"] = float(memory.of_workers(1, placement.most).needed)
    if not in_process:
        wait_for_workers(placement.least, resources)
    device = "cpu" if not placement.gpus else "cuda" if in_process else "worker"
    saves = Checkpoints(
        work / "checkpoints", 60 * placement.checkpoint_minutes, placement.checkpoint_steps, placement.keep_checkpoints
    )
    workers = (placement.least, placement.most) if placement.is_elastic else placement.most
    assert isinstance(run.records, RecordFile)
    relay = None if in_process else relayed(run.records)
    storage, filesystem = training.shared.place("ray")
    logged, trace, records = relay or run.records, training.trace, records_graphs()
    task = WorkerTask(training.shared, data.for_workers(), device, saves, logged, trace, memory, records, is_quiet())
    trainer = TorchTrainer(
        work_on,  # type: ignore[arg-type]
        train_loop_config={"task": task},
        scaling_config=ScalingConfig(  # type: ignore[call-arg]  # mypy sees the configs of Ray Train v1
            num_workers=0 if in_process else workers,  # type: ignore[arg-type]
            elastic_resize_monitor_interval_s=max(_RESIZE_SECONDS, _RESIZE_CHECKPOINTS * saves.seconds),
            use_gpu=placement.gpus,
            resources_per_worker=None if in_process else resources,
        ),
        torch_config=TorchConfig(backend="nccl" if placement.gpus else "gloo", timeout_s=COLLECTIVE_SECONDS),
        run_config=RunConfig(  # type: ignore[call-arg]
            name=f"{data.job}-{os.getpid()}",
            storage_path=storage,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=_RESTARTS),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
        **_dataset(data, training.shards, num_cpus=0 if placement.is_elastic else None),
    )
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with _stops_sent(relay) if relay else nullcontext():
            return dict(trainer.fit().return_value)  # type: ignore[attr-defined]
    except SystemExit:  # what Ray Train makes of Ctrl-C, with status 0
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray Train leaves its own handler behind
            signal.signal(signal.SIGINT, on_interrupt)


@contextmanager
def _stops_sent(relay: Relay) -> Iterator[None]:
    """Send the first SIGTERM or SIGHUP to the workers, which save and stop. A second signal, or no answer within
    ``_STOP_SECONDS``, ends the block with the effect of the earlier handler.

    A signal to the whole process group ends Ray's servers, too, so the workers cannot save: the block ends at once.
    Ray Train has its own handler for Ctrl-C, which ends the workers at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOP_SIGNALS if number != signal.SIGINT}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    stops = list[int]()
    timer = threading.Timer(_STOP_SECONDS, lambda: signal.pthread_kill(threading.main_thread().ident or 0, stops[0]))
    timer.daemon = True

    def send(number: int, frame: Any) -> None:
        if stops or interrupting.is_set():
            before[number](number, frame)
            return
        stops.append(number)
        timer.start()
        threading.Thread(target=relay.stop, daemon=True).start()  # the main thread may hold locks of Ray
        if servers_end(_GROUP_SECONDS):  # they got the signal, too; back in Ray, this process would be aborted
            before[number](number, frame)

    for number in before:
        signal.signal(number, send)
    try:
        yield
    except Exception:
        if stops:  # the signal reached processes of Ray, too
            raise KeyboardInterrupt from None
        raise
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _dataset(data: TrainingData, shards: str | None, num_cpus: float | None) -> dict[str, Any]:
    """Return the arguments that let the trainer's workers read the data, or the pair shards at a URI, with Ray Data.

    Every worker reads all pairs (XXL: 0.3 GB of ids) and computes its part of every step. So no row is lost to an equal
    split, and the order of an epoch does not depend on the number of workers. A task that reads takes ``num_cpus``: 0
    where the workers may take every CPU, None for Ray's default.
    """
    files, columns = data.files()
    if not files:
        return {}
    filesystem = None
    if shards is not None:
        filesystem, folder = resolve(shards)
        files = [f"{folder.rstrip('/')}/{Path(file).name}" for file in files]
    options = ray.data.ExecutionOptions(preserve_order=True)
    return {
        "datasets": {"train": ray.data.read_parquet(files, filesystem=filesystem, columns=columns, num_cpus=num_cpus)},
        "dataset_config": DataConfig(datasets_to_split=[], execution_options=options),
    }
