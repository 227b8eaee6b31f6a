"""Trials on Ray Tune: a searcher of Ray Tune suggests the points of a space that have no record yet.

Ray Tune starts, places, reuses and restarts the trials' processes. A trial is one point; in a reused process it takes
50 ms more than its training. Each machine has one copy of the inputs in the object store.

What an ended trial gave is in the ledger, not in Ray Tune's files: after a SIGKILL of the driver, ``Tuner.restore``
trained 5 of 12 ended trials again.
"""

import bisect
import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from paraembed.io.staging import Mirror
from paraembed.process import RAY_TUNE, environment, quiet_ray, records_graphs, set_environment, turn_off_graphs
from paraembed.recipe import BaseRecipe
from paraembed.settings import SearchSettings
from paraembed.training.best import Scorer
from paraembed.tuning.ledger import Ledger, TrialRecord
from paraembed.tuning.points import Points
from paraembed.tuning.search import cut_offs, suggest
from paraembed.tuning.trial import Ended, TrialInputs, inputs_key, run_trial

_TRIES = 4  # of a trial whose worker fails: the second at once, the others when Ray knows which machines are left
_PAUSE_SECONDS = 20.0  # Ray sees a machine's death after 9 to 15 s, and until then sends trials there

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Shared:
    """Arguments that all trials share."""

    inputs: Mapping[str, Any]  # references into the object store, by ``inputs_key``
    kind: type[BaseRecipe]
    scorer: Scorer
    device: str  # cpu or cuda
    records_graphs: bool  # whether the driver's environment lets steps be recorded


@environment(RAY_TUNE)
def run_trials(
    searcher: "LedgerSearch",
    inputs: dict[str, TrialInputs],
    scorer: Scorer,
    resources: Mapping[str, float],
    home: Mirror,
) -> None:
    """Run the points that the searcher suggests until it has no more; raise the error that kept it from recording one.

    A trial trains in an actor of Ray Tune, which needs the ``resources`` ``CPU``, ``GPU``, ``memory`` in bytes. The
    ``inputs`` are moved to the object store and removed from the dictionary. The subfolder ``ray`` of ``home``, for the
    files of Ray Tune, is removed at the end.
    """
    quiet_ray()  # importing Ray Tune set the levels of its loggers
    folder, storage = home.folder / "ray", home.place("ray")
    shutil.rmtree(folder, ignore_errors=True)
    references = {key: ray.put(inputs.pop(key)) for key in [*inputs]}
    device = "cuda" if "GPU" in resources else "cpu"
    shared = _Shared(references, searcher.points.kind, scorer, device, records_graphs())
    takes = {name.lower(): amount for name, amount in resources.items()}
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(_trial, shared=shared), takes),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,  # the searcher says when it has no more
            max_concurrent_trials=searcher.concurrent,
            reuse_actors=True,  # a new one imports torch: 3 s
            trial_name_creator=lambda trial: f"trial-{trial.trial_id}",
            trial_dirname_creator=lambda trial: f"trial-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(name="tune", storage_path=storage[0], storage_filesystem=storage[1], verbose=0),
    )
    try:
        tuner.fit()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        home.remove("ray")
    if searcher.problem is not None:
        raise searcher.problem


def _trial(config: dict[str, Any], shared: _Shared) -> None:
    """Train a point in an actor; report each epoch and the result to Ray Tune."""
    quiet_ray()
    set_environment(RAY_TUNE)
    if not shared.records_graphs:
        turn_off_graphs()
    task = json.loads(config["task"])
    recipe = shared.kind.from_dict(task["recipe"])
    ended = run_trial(
        ray.get(shared.inputs[inputs_key(recipe)]),
        recipe,
        task["share"],
        shared.scorer,
        {int(epoch): score for epoch, score in task["cut_offs"].items()},
        device=shared.device,
        on_epoch=lambda epoch: tune.report({"epoch": epoch.epoch, "epoch_score": epoch.score}),
    )
    tune.report({"ended": json.dumps(asdict(ended))})


class LedgerSearch(Searcher):
    """Searcher of Ray Tune that suggests the points missing in the ledger, in order, and records their results.

    Its whole state is the ledger; see ``tuning.search``. More than ``max_failures`` failed points end the sweep.
    ``on_record`` gets the record of every point that ends, ``on_epoch`` the number of a point, an epoch and its score.
    """

    def __init__(
        self,
        points: Points,
        settings: SearchSettings,
        ledger: Ledger,
        concurrent: int,
        max_failures: int,
        on_record: Callable[[TrialRecord], None],
        on_epoch: Callable[[int, int, float | None], None],
    ) -> None:
        super().__init__()
        self.points, self.settings, self.ledger = points, settings, ledger
        self.concurrent, self.max_failures = concurrent, max_failures
        self._on_record, self._on_epoch = on_record, on_epoch
        num_trials = settings.num_trials(points.space.size)
        self.todo = [number for number in range(num_trials) if number not in ledger.records]
        self.problem: Exception | None = None
        self._failures = Counter[int]()
        self._not_before = 0.0
        self._choices: list[dict[str, int]] = []
        self._running: dict[str, tuple[int, float]] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return the next point; None while other points must end first, ``FINISHED`` at the end."""
        ends = self.problem is not None or len(self.ledger.failed()) > self.max_failures
        if ends or not (self.todo or self._running):
            return Searcher.FINISHED
        if not self.todo or time.monotonic() < self._not_before:  # the worker of a running point may fail
            return None
        number = self.todo[0]
        known = range(number - self.concurrent + 1)
        if self.settings.looks_back and any(earlier not in self.ledger.records for earlier in known):
            return None
        del self.todo[0]
        self._running[trial_id] = number, time.monotonic()
        point = self.points.at(self.choices(number))
        cuts = cut_offs(self.settings, point.recipe.epochs, self._known(number))
        task = {"trial": number, "recipe": point.recipe.to_dict(), "share": point.share, "cut_offs": cuts}
        return {"task": json.dumps(task)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Handle the end of an epoch."""
        if "epoch" in result:
            self._on_epoch(self._running[trial_id][0], result["epoch"], result["epoch_score"])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Record a point whose trial has ended; suggest it again if its worker failed, unless that was too often.

        Ray Tune itself does not restart a trial whose reused process was on a lost machine.
        """
        number, started = self._running.pop(trial_id)
        if not error:
            if result is not None and "ended" in result:  # else the sweep was stopped
                self._keep(number, json.loads(result["ended"]))
            return
        now = time.monotonic()
        self._failures[number] += 1
        if self._failures[number] < _TRIES:
            bisect.insort(self.todo, number)
            if self._failures[number] > 1:
                self._not_before = now + _PAUSE_SECONDS
            log.warning("trial %d: its worker failed, or could not start; the trial is restarted", number)
            return
        reason = (
            f"its worker failed, or could not start, {_TRIES} times; check that the memory suffices for "
            f"{self.concurrent} trials at a time"
        )
        self._keep(number, asdict(Ended("failed", reason, (), now - started)))

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state for the copy that Ray Tune pickles: the ledger may have a URI with a key."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Write nothing, since the ledger holds everything."""

    restore = save

    def _keep(self, number: int, ended: dict[str, Any]) -> None:
        point = self.points.at(self.choices(number))
        of_point = {"choices": point.choices, "recipe": point.recipe.to_dict(), "share": point.share}
        record = TrialRecord.from_dict({"number": number, **of_point, **ended, "ended": time.time()})
        try:
            self.ledger.add(record)
            self._on_record(record)
        except Exception as problem:  # noqa: BLE001  such as a full disk: Ray Tune would wrap it in its own error
            self.problem = problem

    def choices(self, number: int) -> dict[str, int]:
        """Return the point of a trial; earlier points that are missing in the ledger are computed again."""
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

    def _known(self, number: int) -> list[TrialRecord]:
        """Return the records that trial ``number`` may depend on."""
        if not self.settings.looks_back:
            return []
        return [self.ledger.records[earlier] for earlier in range(number - self.concurrent + 1)]
