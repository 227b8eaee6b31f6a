"""Trials on Ray Tune: reused actors take them, one copy of the inputs a machine lies in the object store."""

import bisect
import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
from ray import tune
from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError  # nowhere else
from ray.train.v2.api.exceptions import WorkerGroupError
from ray.tune.search import Searcher

from paraembed.cluster.tune_actors import kept_actors
from paraembed.process import RAY_TUNE, environment, quiet_ray
from paraembed.recipe import BaseRecipe
from paraembed.settings import SearchSettings
from paraembed.training.best import Scorer
from paraembed.tuning.ledger import Ledger, Record
from paraembed.tuning.points import Points
from paraembed.tuning.search import cut_offs, suggest
from paraembed.tuning.trial import Ended, Inputs, inputs_key, run_trial

_TRIES = 4  # of a trial whose worker dies: the second at once, the others when Ray knows which machines are left
_PAUSE_SECONDS = 20.0  # Ray sees a machine's death after 9 to 15 s, and until then sends trials there

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resources:
    """What a trial takes, and how many run side by side.

    Attributes:
        concurrent: trials at a time.
        workers: processes of a trial; one trains in Ray Tune's actor, several are a group of Ray Train.
        gpus: whether each worker has a GPU.
    """

    concurrent: int
    workers: int = 1
    gpus: bool = False

    @property
    def device(self) -> str:
        """Where a trial trains."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class _Shared:
    """What every trial is given.

    Attributes:
        inputs: references into the object store, by ``inputs_key``.
        kind: of their recipes.
        scorer: what is maximised.
        resources: of a trial.
        folder: for the files of Ray Train.
    """

    inputs: Mapping[str, Any]
    kind: type[BaseRecipe]
    scorer: Scorer
    resources: Resources
    folder: str


@environment(RAY_TUNE)
def run_trials(
    searcher: "LedgerSearch", inputs: dict[str, Inputs], scorer: Scorer, resources: Resources, folder: Path
) -> None:
    """Run what the searcher hands out until it has no more.

    Args:
        searcher: which trials; it keeps their records.
        inputs: by ``inputs_key``; moved into the object store, and gone from here.
        scorer: what is maximised.
        resources: of a trial.
        folder: for the files of Ray Tune and Ray Train; nothing in it is needed afterwards.

    Raises:
        OSError: a record could not be written.
    """
    quiet_ray()  # importing Ray Tune set the levels of its loggers
    shutil.rmtree(folder, ignore_errors=True)
    references = {key: ray.put(inputs.pop(key)) for key in [*inputs]}
    shared = _Shared(references, searcher.points.kind, scorer, resources, str(folder))
    trainable = tune.with_parameters(_trial, shared=shared)
    takes: dict[str, float] = {"cpu": 1.0, "gpu": float(resources.gpus)}
    if resources.workers > 1:  # they may take every CPU there is; this, their driver, takes a byte: it must take some
        takes = {"cpu": 0.0, "memory": 1.0}
    tuner = tune.Tuner(
        tune.with_resources(trainable, takes),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,  # the searcher ends it
            max_concurrent_trials=resources.concurrent,  # else one actor is started after the other
            reuse_actors=True,  # a new one imports torch: 3 s
            trial_name_creator=lambda trial: f"trial-{trial.trial_id}",
            trial_dirname_creator=lambda trial: f"trial-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder), verbose=0),
    )
    try:
        with kept_actors():
            tuner.fit()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if searcher.problem is not None:
        raise searcher.problem


def _trial(config: dict[str, Any], shared: _Shared) -> dict[str, str]:
    """What an actor does with a trial: Ray Tune hears of each epoch, and at the end of how it went."""
    quiet_ray()
    task = json.loads(config["task"])
    recipe = shared.kind.from_dict(task["recipe"])
    inputs = shared.inputs[inputs_key(recipe)]
    if shared.resources.workers > 1:
        return {"ended": _on_group(task, inputs, shared)}
    ended = run_trial(
        ray.get(inputs),
        recipe,
        task["share"],
        shared.scorer,
        {int(epoch): score for epoch, score in task["cut_offs"].items()},
        device=shared.resources.device,
        on_epoch=lambda epoch: tune.report({"epoch": epoch.epoch, "score": epoch.score}),
    )
    return {"ended": json.dumps(asdict(ended))}


def _on_group(task: dict[str, Any], inputs: Any, shared: _Shared) -> str:
    """A trial on several workers of Ray Train; what rank 0 returned."""
    resources = shared.resources
    trainer = TorchTrainer(
        _work,  # type: ignore[arg-type]
        train_loop_config={"task": task, "kind": shared.kind, "inputs": [inputs], "scorer": shared.scorer},
        scaling_config=ScalingConfig(num_workers=resources.workers, use_gpu=resources.gpus),
        torch_config=TorchConfig(backend="nccl" if resources.gpus else "gloo"),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees the RunConfig of Ray Train v1
            name=f"group-{tune.get_context().get_trial_id()}",
            storage_path=shared.folder,
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    started = time.monotonic()
    try:
        return str(trainer.fit().return_value)  # type: ignore[attr-defined]
    except WorkerGroupError as error:
        if any(isinstance(one, WorkerHealthCheckFailedError) for one in error.worker_failures.values()):
            raise  # a worker died: the trial runs again
        causes = [f"{type(one).__name__}: {one}" for one in error.worker_failures.values()]
        return json.dumps(asdict(Ended("failed", "; ".join(causes), (), time.monotonic() - started)))


def _work(config: dict[str, Any]) -> str:
    """A worker of a group."""
    quiet_ray()
    task, context = config["task"], ray.train.get_context()
    (inputs,) = ray.get(config["inputs"])
    ended = run_trial(
        inputs,
        config["kind"].from_dict(task["recipe"]),
        task["share"],
        config["scorer"],
        {int(epoch): score for epoch, score in task["cut_offs"].items()},
        device=str(ray.train.torch.get_device()),
        rank=context.get_world_rank(),
        world=context.get_world_size(),
    )
    return json.dumps(asdict(ended))


class LedgerSearch(Searcher):
    """Hands out the trials that the ledger does not have, in order, and keeps what becomes of them.

    Ray Tune asks for a trial whenever it could start one. All state is the ledger: see ``tuning.search``.

    Args:
        points: what is searched.
        settings: how.
        ledger: what is known already.
        concurrent: trials at a time.
        max_failures: more failed trials end the sweep.
        on_record: told of every trial that ends.
        on_epoch: told of every epoch: trial, epoch, score or None.
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
        super().__init__()
        self.points, self.settings, self.ledger = points, settings, ledger
        self.concurrent, self.max_failures = concurrent, max_failures
        self.on_record, self.on_epoch = on_record, on_epoch
        self.num_trials = settings.num_trials(points.space.size)
        self.todo = [number for number in range(self.num_trials) if number not in ledger.records]
        self.problem: OSError | None = None
        self._deaths = Counter[int]()
        self._not_before = 0.0
        self._choices: list[dict[str, int]] = []
        self._running: dict[str, tuple[int, float]] = {}

    def suggest(self, trial_id: str) -> dict[str, str] | str | None:  # type: ignore[override]  # or FINISHED
        """The next trial; None while others must end first."""
        if self.too_many_failed or self.problem is not None or not (self.todo or self._running):
            return str(self.FINISHED)
        # What runs may die and come back, and Ray Tune asks no more after FINISHED.
        if not self.todo or len(self._running) >= self.concurrent or time.monotonic() < self._not_before:
            return None
        number = self.todo[0]
        known = range(number - self.concurrent + 1)
        if self.settings.looks_back and any(one not in self.ledger.records for one in known):
            return None
        del self.todo[0]
        self._running[trial_id] = number, time.monotonic()
        point = self.points.at(self.choices(number))
        cuts = cut_offs(self.settings, point.recipe.epochs, self._known(number))
        task = {"trial": number, "recipe": point.recipe.to_dict(), "share": point.share, "cut_offs": cuts}
        return {"task": json.dumps(task)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """An epoch has ended."""
        if "epoch" in result and trial_id in self._running:
            self.on_epoch(self._running[trial_id][0], result["epoch"], result["score"])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial has ended, or its worker has died: then it is the next one again, unless that happens too often."""
        number, started = self._running.pop(trial_id)
        if error or not result or "ended" not in result:
            self._deaths[number] += 1
            if self._deaths[number] < _TRIES:
                bisect.insort(self.todo, number)
                if self._deaths[number] > 1:
                    self._not_before = time.monotonic() + _PAUSE_SECONDS
                log.warning("trial %d: its worker died, or could not begin; it runs again", number)
                return
            reason = (
                f"its worker died, or could not begin, {_TRIES} times; is there memory for {self.concurrent} trials "
                "at a time?"
            )
            ended = asdict(Ended("failed", reason, (), time.monotonic() - started))
        else:
            ended = json.loads(result["ended"])
        point = self.points.at(self.choices(number))
        of_point = {"choices": point.choices, "recipe": point.recipe.to_dict(), "share": point.share}
        record = Record.from_dict({"number": number, **of_point, **ended, "ended": time.time()})
        try:
            self.ledger.add(record)
        except OSError as problem:  # a full disk: raised here, Ray Tune would wrap it in a stack trace
            self.problem = problem
        else:
            self.on_record(record)

    @property
    def too_many_failed(self) -> bool:
        """Whether more trials have failed than may."""
        return len(self.ledger.failed()) > self.max_failures

    def choices(self, number: int) -> dict[str, int]:
        """The point of a trial; those before it that the ledger does not have are worked out again."""
        while len(self._choices) <= number:
            at = len(self._choices)
            record = self.ledger.records.get(at)
            if record is not None:
                self._choices.append(record.choices)
            else:
                self._choices.append(
                    suggest(self.points.space, self.settings, at, tuple(self._choices), self._known(at))
                )
        return self._choices[number]

    def _known(self, number: int) -> list[Record]:
        """The records that trial ``number`` may depend on."""
        if not self.settings.looks_back:
            return []
        return [self.ledger.records[one] for one in range(number - self.concurrent + 1)]

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""

    def get_state(self) -> dict[str, Any]:
        """Nothing beside the ledger."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Nothing beside the ledger."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing for the copy that Ray Tune pickles, either."""
        return {}
