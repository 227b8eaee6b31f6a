import os
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.tune.search import Searcher

from paraembed.cluster.tune_actors import kept_actors

pytestmark = pytest.mark.ray


class Rounds(Searcher):
    """Three rounds of two trials: a round begins when that before it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.ended = 0

    def suggest(self, trial_id: str) -> dict[str, int] | str | None:  # type: ignore[override]  # noqa: ARG002
        if self.begun == 6:
            return str(self.FINISHED) if self.ended == 6 else None
        if self.ended < self.begun // 2 * 2:
            return None
        self.begun += 1
        return {"round": (self.begun - 1) // 2}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: ARG002
        self.ended += 1

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


@pytest.mark.parametrize("room", [2, 1])
def test_trials_shorter_than_the_start_of_an_actor_all_run_on_the_first_ones(
    room: int, ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(config: dict[str, int]) -> dict[str, int]:
        return {"process": os.getpid(), "round": config["round"]}

    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    cpus = ray.cluster_resources()["CPU"] // room  # type: ignore[no-untyped-call]
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": cpus}),
        tune_config=tune.TuneConfig(search_alg=Rounds(), num_samples=-1, max_concurrent_trials=2, reuse_actors=True),
        run_config=tune.RunConfig(name="tune", storage_path=str(tmp_path), verbose=0),
    )
    with kept_actors():
        results = tuner.fit()
    rounds: list[set[int]] = [set(), set(), set()]
    for at in range(len(results)):
        told = results[at].metrics
        assert told is not None
        rounds[told["round"]].add(told["process"])
    assert len(rounds[0]) == room
    assert rounds == [rounds[0]] * 3
