"""Actors of Ray Tune that are kept until the search is over, for trials that are shorter than an actor's start.

Ray Tune's own controller gives the actor of a trial that has ended to a trial whose own actor is being started, and
ends the latter in the middle of its imports; the next trial asks for an actor again. Where a trial takes less than the
3 s of a start, one actor runs all trials, one after the other, beside a process that imports torch and is ended, again
and again. It also keeps at most one actor that has nothing to do.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from ray.tune import tune as tuning  # the names below are nowhere else
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.utils.object_cache import _ObjectCache


@contextmanager
def kept_actors() -> Iterator[None]:
    """Let the sweeps of the block keep their actors."""
    before = tuning.TuneController  # type: ignore[attr-defined]
    tuning.TuneController = _Controller  # type: ignore[attr-defined]
    try:
        yield
    finally:
        tuning.TuneController = before  # type: ignore[attr-defined]


class _Cache(_ObjectCache):
    """Keeps every actor that has nothing to do; a trial takes one of them before it asks for a new one."""

    def cache_object(self, key: Any, obj: Any) -> bool:
        self._cached_objects[key].append(obj)
        self._num_cached_objects += 1
        return True

    def flush_cached_objects(self, force_all: bool = False) -> Generator[Any, None, None]:
        if force_all:
            yield from super().flush_cached_objects(force_all=True)


class _Controller(TuneController):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._actor_cache = _Cache()

    def _maybe_reuse_cached_actor(self, trial: Trial) -> bool:
        """Not for a trial whose actor has got its resources, and so will come; others would wait for ever."""
        own = self._trial_to_actor.get(trial)
        is_on_its_way = own is not None and self._actor_manager.is_actor_started(own)
        if is_on_its_way and trial not in self._resetting_trials:
            return False
        return bool(super()._maybe_reuse_cached_actor(trial))
