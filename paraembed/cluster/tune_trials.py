"""Trials on Ray Tune: as many as run at a time, each of which trains one point of the space after the other.

Ray Tune starts, places and restarts them. Its own trial a point costs more than a short point takes to train; a point
that a running trial takes from the ledger costs 16 ms (18 trials of 20 ms, one at a time). One copy of the inputs a
machine is in the object store.
"""

import asyncio
import bisect
import json
import logging
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
import ray.train
import ray.train.torch
from ray import tune
from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError  # nowhere else
from ray.train.v2.api.exceptions import WorkerGroupError

from paraembed.process import RAY_TUNE, environment, quiet_ray
from paraembed.recipe import BaseRecipe
from paraembed.settings import SearchSettings, Workers
from paraembed.training.best import Scorer
from paraembed.tuning.ledger import Ledger, Record
from paraembed.tuning.points import Points
from paraembed.tuning.search import cut_offs, suggest
from paraembed.tuning.trial import Ended, Inputs, inputs_key, run_trial

_TRIES = 4  # of a trial whose worker fails: the second at once, the others when Ray knows which machines are left
_PAUSE_SECONDS = 20.0  # Ray sees a machine's death after 9 to 15 s, and until then sends trials there

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Shared:
    """What every trial is given.

    Attributes:
        inputs: references into the object store, by ``inputs_key``.
        kind: of their recipes.
        scorer: what is maximized.
        placement: of a trial.
        folder: for the files of Ray Train.
        desk: hands out points.
    """

    inputs: Mapping[str, Any]
    kind: type[BaseRecipe]
    scorer: Scorer
    placement: Workers
    folder: str
    desk: Any


@environment(RAY_TUNE)
def run_trials(
    searcher: "LedgerSearch", inputs: dict[str, Inputs], scorer: Scorer, placement: Workers, folder: Path
) -> None:
    """Run what the searcher hands out until it has no more.

    Args:
        searcher: which trials; it keeps their records.
        inputs: by ``inputs_key``; moved into the object store, and gone from here.
        scorer: what is maximized.
        placement: workers and GPUs of a trial: one worker trains in Ray Tune's actor, several are a group of Ray Train.
        folder: for the files of Ray Tune and Ray Train; nothing in it is needed afterwards.

    Raises:
        OSError: a record could not be written.
    """
    quiet_ray()  # importing Ray Tune set the levels of its loggers
    shutil.rmtree(folder, ignore_errors=True)
    references = {key: ray.put(inputs.pop(key)) for key in [*inputs]}
    desk = ray.remote(num_cpus=0)(_Desk).remote()
    dispatcher = _Dispatcher(searcher, desk)
    shared = _Shared(references, searcher.points.kind, scorer, placement, str(folder), desk)
    trainable = tune.with_parameters(_trial, shared=shared)
    takes: dict[str, float] = {"cpu": 1.0, "gpu": float(placement.gpus)}
    if placement.workers > 1:  # they may take every CPU there is; this, their driver, takes a byte: it must take some
        takes = {"cpu": 0.0, "memory": 1.0}
    tuner = tune.Tuner(
        tune.with_resources(trainable, takes),
        tune_config=tune.TuneConfig(
            num_samples=min(searcher.concurrent, len(searcher.todo)),
            reuse_actors=True,  # for trials that do not fit next to the others; a new one imports torch: 3 s
            trial_name_creator=lambda trial: f"trial-{trial.trial_id}",
            trial_dirname_creator=lambda trial: f"trial-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(folder),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=-1),  # the searcher counts
            callbacks=[dispatcher],
            stop=dispatcher,
        ),
    )
    try:
        tuner.fit()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if searcher.problem is not None:
        raise searcher.problem


class _Desk:
    """Points on their way to trials, by who asks for them; runs in an actor."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Queue[str]] = defaultdict(asyncio.Queue)

    async def give(self, asker: str, task: str) -> None:
        """Hand a task to a trial."""
        await self._tasks[asker].put(task)

    async def take(self, asker: str) -> str:
        """Return the next task of a trial, as soon as there is one; an empty one is the end."""
        return await self._tasks[asker].get()


class _Dispatcher(tune.Callback, tune.Stopper):
    """Passes events of Ray Tune's trials to the searcher, and its suggestions to them, until it has no more."""

    def __init__(self, searcher: "LedgerSearch", desk: Any) -> None:
        self.searcher, self.desk = searcher, desk
        self._waiting: dict[str, str] = {}

    def on_trial_result(self, *, trial: Any, result: dict[str, Any], **_: Any) -> None:  # type: ignore[override]
        """An epoch or a point has ended, or a trial asks for its first one."""
        if "epoch" in result:
            self.searcher.on_epoch(trial.trial_id, result["epoch"], result["score"])
        if "ended" in result:
            self.searcher.on_end(trial.trial_id, result["ended"])
        if "asker" in result:
            self._waiting[trial.trial_id] = result["asker"]
            self._give()

    def on_step_end(self, **_: Any) -> None:  # type: ignore[override]
        """Some time has passed."""
        self._give()

    def on_trial_recover(self, *, trial: Any, **_: Any) -> None:  # type: ignore[override]
        """Note that the worker of a trial failed; Ray Tune starts another one."""
        self._waiting.pop(trial.trial_id, None)
        self.searcher.on_death(trial.trial_id)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:  # noqa: ARG002
        """No trial ends alone."""
        return False

    def stop_all(self) -> bool:
        """Whether nothing is left to do; also where no worker can begin."""
        return self.searcher.is_over

    def _give(self) -> None:
        for trial, asker in [*self._waiting.items()]:
            task = self.searcher.suggest(trial)
            if task is not None:
                del self._waiting[trial]
                self.desk.give.remote(asker, task)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing for the copy that Ray Tune pickles: the ledger has it all."""
        return {}


def _trial(config: dict[str, Any], shared: _Shared) -> None:  # noqa: ARG001
    """What an actor does: one point after the other; Ray Tune hears of each epoch, and of how each point went."""
    quiet_ray()
    asker = uuid4().hex  # of a trial whose worker failed, another one
    tune.report({"asker": asker})
    while text := ray.get(shared.desk.take.remote(asker)):
        task = json.loads(text)
        recipe = shared.kind.from_dict(task["recipe"])
        inputs = shared.inputs[inputs_key(recipe)]
        if shared.placement.workers > 1:
            ended = _on_group(task, inputs, shared)
        else:
            ended = _run(
                task,
                ray.get(inputs),
                recipe,
                shared.scorer,
                device="cuda" if shared.placement.gpus else "cpu",
                on_epoch=lambda epoch: tune.report({"epoch": epoch.epoch, "score": epoch.score}),
            )
        tune.report({"ended": ended, "asker": asker})


def _run(task: dict[str, Any], inputs: Inputs, recipe: BaseRecipe, scorer: Scorer, **placement: Any) -> str:
    """Train a point; return how it ended, as JSON."""
    cuts = {int(epoch): score for epoch, score in task["cut_offs"].items()}
    return json.dumps(asdict(run_trial(inputs, recipe, task["share"], scorer, cuts, **placement)))


def _on_group(task: dict[str, Any], inputs: Any, shared: _Shared) -> str:
    """A trial on several workers of Ray Train; what rank 0 returned."""
    placement = shared.placement
    trainer = TorchTrainer(
        _work,  # type: ignore[arg-type]
        train_loop_config={"task": task, "kind": shared.kind, "inputs": [inputs], "scorer": shared.scorer},
        scaling_config=ScalingConfig(num_workers=placement.workers, use_gpu=placement.gpus),
        torch_config=TorchConfig(backend="nccl" if placement.gpus else "gloo"),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees the RunConfig of Ray Train v1
            name=f"group-{task['trial']}-{uuid4().hex[:8]}",
            storage_path=shared.folder,
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    started = time.monotonic()
    try:
        return str(trainer.fit().return_value)  # type: ignore[attr-defined]
    except WorkerGroupError as error:
        if any(isinstance(failure, WorkerHealthCheckFailedError) for failure in error.worker_failures.values()):
            raise  # a worker failed: the trial runs again
        causes = [f"{type(failure).__name__}: {failure}" for failure in error.worker_failures.values()]
        return json.dumps(asdict(Ended("failed", "; ".join(causes), (), time.monotonic() - started)))


def _work(config: dict[str, Any]) -> str:
    """A worker of a group."""
    quiet_ray()
    task, context = config["task"], ray.train.get_context()
    (inputs,) = ray.get(config["inputs"])
    return _run(
        task,
        inputs,
        config["kind"].from_dict(task["recipe"]),
        config["scorer"],
        device=str(ray.train.torch.get_device()),
        rank=context.get_world_rank(),
        world=context.get_world_size(),
    )


class LedgerSearch:
    """Hands out the points that the ledger does not have, in order, and keeps what becomes of them.

    All state is the ledger: see ``tuning.search``.

    Args:
        points: what is searched.
        settings: how.
        ledger: what is known already.
        concurrent: points at a time.
        max_failures: more failed points end the sweep.
        on_record: called with the record of every point that ends.
        on_epoch: called at the end of every epoch with the number of the point, epoch, score or None.
    """

    def __init__(
        self,
        points: Points,
        settings: SearchSettings,
        ledger: Ledger,
        concurrent: int,
        max_failures: int,
        on_record: Callable[[Record], None],
        on_epoch: Callable[[int, int, float | None], None],
    ) -> None:
        self.points, self.settings, self.ledger = points, settings, ledger
        self.concurrent, self.max_failures = concurrent, max_failures
        self._on_record, self._on_epoch = on_record, on_epoch
        self.num_trials = settings.num_trials(points.space.size)
        self.todo = [number for number in range(self.num_trials) if number not in ledger.records]
        self.problem: OSError | None = None
        self._deaths = Counter[int]()
        self._not_before = 0.0
        self._choices: list[dict[str, int]] = []
        self._running: dict[str, tuple[int, float]] = {}

    def suggest(self, worker: str) -> str | None:
        """The next point, JSON; None while others must end first, empty at the end."""
        if self._ends or not (self.todo or self._running):
            return ""
        # A running point may fail and come back.
        if not self.todo or len(self._running) >= self.concurrent or time.monotonic() < self._not_before:
            return None
        number = self.todo[0]
        known = range(number - self.concurrent + 1)
        if self.settings.looks_back and any(earlier not in self.ledger.records for earlier in known):
            return None
        del self.todo[0]
        self._running[worker] = number, time.monotonic()
        point = self.points.at(self.choices(number))
        cuts = cut_offs(self.settings, point.recipe.epochs, self._known(number))
        return json.dumps({"trial": number, "recipe": point.recipe.to_dict(), "share": point.share, "cut_offs": cuts})

    def on_epoch(self, worker: str, epoch: int, score: float | None) -> None:
        """An epoch of a worker's point has ended."""
        if worker in self._running:
            self._on_epoch(self._running[worker][0], epoch, score)

    def on_end(self, worker: str, ended: str) -> None:
        """A worker's point has ended."""
        number, _ = self._running.pop(worker)
        self._keep(number, json.loads(ended))

    def on_death(self, worker: str) -> None:
        """Put the point of a failed worker back as the next one, unless that happens too often.

        The failure of a worker without a point counts for the next point.
        """
        now = time.monotonic()
        if worker not in self._running:
            if not self.todo or now < self._not_before:
                return
            self._running[worker] = self.todo.pop(0), now
            self._not_before = now + _PAUSE_SECONDS
        number, started = self._running.pop(worker)
        self._deaths[number] += 1
        if self._deaths[number] < _TRIES:
            bisect.insort(self.todo, number)
            if self._deaths[number] > 1:
                self._not_before = now + _PAUSE_SECONDS
            log.warning("trial %d: its worker failed, or could not start; it runs again", number)
            return
        reason = (
            f"its worker failed, or could not start, {_TRIES} times; is there memory for {self.concurrent} trials "
            "at a time?"
        )
        self._keep(number, asdict(Ended("failed", reason, (), now - started)))

    def _keep(self, number: int, ended: dict[str, Any]) -> None:
        point = self.points.at(self.choices(number))
        of_point = {"choices": point.choices, "recipe": point.recipe.to_dict(), "share": point.share}
        record = Record.from_dict({"number": number, **of_point, **ended, "ended": time.time()})
        try:
            self.ledger.add(record)
        except OSError as problem:  # a full disk: raised here, Ray Tune would wrap it in a stack trace
            self.problem = problem
        else:
            self._on_record(record)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing more will."""
        return not self._running and (self._ends or not self.todo)

    @property
    def _ends(self) -> bool:
        """Whether no point is to begin any more: too many have failed, or a record could not be written."""
        return self.problem is not None or len(self.ledger.failed()) > self.max_failures

    def choices(self, number: int) -> dict[str, int]:
        """The point of a trial; those before it that the ledger does not have are worked out again."""
        while len(self._choices) <= number:
            trial = len(self._choices)
            record = self.ledger.records.get(trial)
            if record is not None:
                self._choices.append(record.choices)
            else:
                self._choices.append(
                    suggest(self.points.space, self.settings, trial, tuple(self._choices), self._known(trial))
                )
        return self._choices[number]

    def _known(self, number: int) -> list[Record]:
        """The records that trial ``number`` may depend on."""
        if not self.settings.looks_back:
            return []
        return [self.ledger.records[earlier] for earlier in range(number - self.concurrent + 1)]
