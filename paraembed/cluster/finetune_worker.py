"""What a worker does with gold labels: train, look at the development part; Ray Train runs it, or the job itself."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch

from paraembed.cluster.train_worker import Reporter, agree, result_of
from paraembed.console import doing, say
from paraembed.recipe import SupervisedRecipe
from paraembed.supervised import model as models
from paraembed.supervised.model import Supervised
from paraembed.supervised.scores import score
from paraembed.supervised.step import ExampleIds, SupervisedStep, example_ids
from paraembed.supervised.tasks import Task
from paraembed.tracking.runs import Run, system_metrics
from paraembed.training.best import Evaluated, Evaluation
from paraembed.training.loop import run_steps
from paraembed.training.state import Checkpoints, Counters

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinetuneTask:
    """What a worker is told.

    Attributes:
        work: folder of the training, seen by all workers, with ``untrained`` in it; ``trained`` goes there.
        recipe: how to train.
        task: what it learns; the test part is not looked at.
        device: cpu, cuda, or worker: the GPU that Ray Train gives it.
        checkpoints: where and how often to save.
        run: file for the records of the MLflow run; None: nothing is logged.
    """

    work: Path
    recipe: SupervisedRecipe
    task: Task
    device: str
    checkpoints: Checkpoints
    run: Path | None


def finetune_on(config: dict[str, FinetuneTask]) -> dict[str, Any]:
    """Train on one worker; rank 0 saves the model to ``work/trained``, and its result counts.

    What its user can mend is returned: raised here, it would count as a worker's death, and be tried again.
    """
    return result_of(lambda: _train(config["task"]))


def _train(task: FinetuneTask) -> Counters:
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    recipe = task.recipe
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two spin at OpenMP's barriers on a busy machine: 4 ms a step become 300 ms
    device = ray.train.torch.get_device() if task.device == "worker" else task.device
    model, data, problem = None, None, ""
    try:
        model = models.load(task.work / "untrained").requires_grad_().to(device)
        doing("reading the examples")
        data = example_ids(model, task.task.train)
    except (ValueError, OSError, torch.OutOfMemoryError) as error:
        problem = str(error)
    agree(problem, world, torch.device(device))
    assert model is not None
    assert data is not None
    if rank == 0 and data.num_dropped:
        say(f"{data.num_dropped:,} of {len(task.task.train):,} examples have a text without a token, and are left out")
    doing("training: the first steps")
    run = Run(task.run if rank == 0 else None)
    show = Reporter(run, rank, "examples", "right")
    try:
        with system_metrics(run):
            counters = _steps(model, data, task, run, show, rank, world)
    finally:
        show.close()
        torch.set_num_threads(threads)  # one worker is the job's own process, which scores afterwards
    if rank == 0:
        models.save(model, task.work / "trained", recipe=recipe.to_dict(), provenance={}, model_card="")
    return counters


def _steps(
    model: Supervised,
    data: ExampleIds,
    task: FinetuneTask,
    run: Run,
    show: Reporter,
    rank: int,
    world: int,
) -> Counters:
    def scored(step: int) -> float:
        try:
            values = score(model, task.task, "dev").values
        except ValueError as error:
            log.warning("the look at the development part after step %d has no score: %s", step, error)
            return math.nan
        run.metrics({f"dev/{name}": value for name, value in values.items()}, step)
        return values[task.task.measure]

    def on_score(found: Evaluated) -> None:
        value = "no score" if found.score is None else f"{task.task.measure} {100 * found.score:.2f}"
        best = "" if found.best is None else f", the best is {100 * found.best[2]:.2f} after step {found.best[0]:,}"
        show.say(f"development part after step {found.step:,}, epoch {found.epoch:.2f}: {value}{best}")
        if found.stops:
            show.say(f"stopping early: the last {task.recipe.patience} looks were no better (--patience)")

    evaluation = Evaluation(
        scored, task.recipe.evaluations_apart(len(data)), task.recipe.patience, {"task": model.kind.task}, on_score
    )
    return run_steps(
        model,
        SupervisedStep(model, task.recipe, rank, world),
        data,
        len(data),
        checkpoints=task.checkpoints,
        on_report=show,
        evaluation=evaluation,
    )
