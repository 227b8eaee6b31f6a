"""Training worker: read, train, report. Ray Train runs several; the only worker of a job is the job's process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from paraembed.compiled import arithmetic
from paraembed.console import doing, duration, quiet, say, shown_status
from paraembed.io.places import shown
from paraembed.io.staging import Mirror
from paraembed.process import one_thread
from paraembed.supervised.labels import TrainingData
from paraembed.tracking.records import Records, Run, system_metrics
from paraembed.training.exchange import first_problem, gather_texts
from paraembed.training.initial import Memory, available_memory, check_memory
from paraembed.training.loop import ProgressReport, SaveRequest
from paraembed.training.state import Checkpoints, Counters

_Result = TypeVar("_Result")
_COLLAPSED = 0.995  # share of active terms; rnn with MAX stays at 1, with MIX it goes from 0.8 to 0.65


@dataclass(frozen=True)
class WorkerTask:
    """Task of a worker.

    The folder ``work`` of the training is visible to all workers; it has the untrained model in ``untrained`` and the
    pairs in ``pairs``, and the trained model is written to ``trained``. With a copy on an object store, each worker has
    a folder of its own; the pairs are in that of the first worker of each machine.

    Each worker compares its machine's part of the ``memory`` of all workers with what is available there, before any of
    them takes it; None: the job has checked it.
    """

    work: Mirror
    data: TrainingData
    device: str  # cpu, or cuda
    checkpoints: Checkpoints
    run: Records  # where the records of the MLflow run go
    trace: Path | None  # file for a profile of a few steps
    memory: Memory | None = None
    records_graphs: bool = True  # whether the driver's environment lets steps be recorded
    is_quiet: bool = False  # whether the driver shows no progress


class OnlyWorker:
    """What a worker knows of the others: here, that there are none."""

    rank = 0
    world = 1
    local_rank = 0  # number of this worker on its machine, whose workers have consecutive ranks
    local_world = 1  # number of workers on this machine
    poll: Callable[[], SaveRequest] | None = None
    """Whether to save now; None: only at the times of the checkpoints."""

    def device(self, name: str) -> torch.device:
        """Return the device to compute on, cpu or cuda."""
        return torch.device(name)

    def report(self, report: ProgressReport) -> None:
        """Report to what watches the workers."""

    def close(self) -> None:
        """End the reports."""


def work_on(task: WorkerTask, worker: OnlyWorker) -> dict[str, Any]:
    """Train on one worker; return the final ``counters``, an ``error``, or ``stopped``.

    Rank 0 saves the model to ``work/trained`` and returns the result that is used. Errors that the user can correct are
    returned, not raised: Ray Train would count a raised error as a failed worker and retry.
    """
    try:
        output = quiet() if task.is_quiet else shown_status() if worker.rank == 0 else nullcontext()
        with _own_folder(task) as own, output:
            return {"counters": _train(own, worker)}
    except ConnectionError:
        raise
    except torch.OutOfMemoryError as error:
        return {"error": f"the GPU's memory is too small: {error}; use a smaller `batch_size` or `max_words`"}
    except (ValueError, OSError) as error:
        return {"error": str(error)}
    except KeyboardInterrupt:
        return {"stopped": True}


@contextmanager
def _own_folder(task: WorkerTask) -> Iterator[WorkerTask]:
    """Yield the task with a folder of this worker, if the work is on an object store; it is removed at the end."""
    if task.work.uri is None:
        yield task
        return
    with TemporaryDirectory(prefix="paraembed-") as folder:
        work = Mirror(Path(folder), task.work.uri)
        saves = replace(task.checkpoints, folder=work.folder / "checkpoints", saved=lambda: work.update("checkpoints"))
        yield replace(task, work=work, checkpoints=saves, trace=None)


@one_thread()  # one worker is the job's own process, which scores afterwards
def _train(task: WorkerTask, worker: OnlyWorker) -> Counters:
    data, rank, world, device = task.data, worker.rank, worker.world, worker.device(task.device)
    folder, first_here = task.work.folder, rank - worker.local_rank
    pairs = folder / "pairs"
    if task.work.uri is not None:  # each worker has its own folder
        pairs = Path(gather_texts(str(pairs), world, device)[first_here])

    def check() -> None:
        if task.memory is not None:
            check_memory(task.memory.of_workers(worker.local_world, world), available_memory())

    def load() -> Any:
        task.work.pull(["untrained", "checkpoints", *(["pairs"] if rank == first_here else [])])
        return data.load(folder / "untrained").requires_grad_().to(device)

    _agreed(check, world, device)
    model = _agreed(load, world, device)
    examples: Any
    examples, num, notes = _agreed(lambda: data.read(model, pairs, world), world, device)
    if rank == 0:
        say(*notes)
    doing("training: the first steps")
    run = Run(task.run if rank == 0 else None)
    evaluation = data.evaluation(num)
    try:
        with system_metrics(run):
            counters = data.train(
                model,
                examples,
                checkpoints=task.checkpoints,
                rank=rank,
                world=world,
                on_report=partial(_report, run, worker, data),
                evaluation=replace(evaluation, log_metrics=run.metrics, show=say) if evaluation else None,
                trace=task.trace if rank == 0 else None,
                poll=worker.poll,
            )
    finally:
        doing("")
        worker.close()
    if rank == 0:
        _save(model, task)
    return counters


def _agreed(step: Callable[[], _Result], world: int, device: torch.device) -> _Result:
    """Return the result of a step before the training; raise ValueError on all workers if it fails on one of them."""
    results, problem = list[_Result](), ""
    try:
        results = [step()]
    except (ValueError, OSError, torch.OutOfMemoryError) as error:
        problem = str(error)
    agree(problem, world, device)
    return results[0]


def agree(problem: str, world: int, device: torch.device) -> None:
    """Raise ValueError on all workers if one of them cannot start or computes differently; the others would wait for it
    forever.
    """
    problem = first_problem(problem, world, device)
    if problem:
        raise ValueError(problem)
    machines = gather_texts(arithmetic(device), world, device) if world > 1 else []
    if len(set(machines)) > 1:
        raise ValueError(
            f"workers compute with {' and '.join(sorted(set(machines)))}, so their weights would drift apart; use "
            "machines of one kind, with the same packages"
        )


def _save(model: Any, task: WorkerTask) -> None:
    try:
        task.data.save(model, task.work.folder / "trained", card="")
        task.work.push("trained")
    except OSError as error:
        place = task.work.folder if task.work.uri is None else shown(task.work.uri)
        raise OSError(
            f"the {task.data.model} could not be written ({error}); free some space on the disk and run the same "
            f"command again: it resumes from the last checkpoint in {place}"
        ) from None


def _report(run: Run, worker: OnlyWorker, data: TrainingData, report: ProgressReport) -> None:
    """Handle a report: rank 0 shows and logs it."""
    worker.report(report)
    if worker.rank == 0:
        values = {
            "epoch": report.epoch,
            "loss": report.loss,
            f"{data.share}_share": report.active,
            f"{data.unit}_per_second": report.pairs_per_second,
            "seconds_left": report.seconds_left,
        }
        run.metrics(values, report.step)
        text = (
            f"epoch {report.epoch}/{report.epochs}  step {report.step:,}/{report.steps:,}  "
            f"{report.pairs_per_second:,.0f} {data.unit}/s  loss {report.loss:.4f}  "
            f"{data.share} {report.active:.0%}  {duration(report.seconds_left)} left"
        )
        doing(text)  # at the end of an epoch, too: else the line of an earlier step would follow it
        if not report.end_of_epoch:
            return
        say(text)
        if data.warns_of_collapse and report.active > _COLLAPSED:
            say(
                "nearly every text triggers an update, so the encoder may give all texts the same vector; "
                "try `negatives` mix, or a lower `learning_rate`"
            )
