"""Tasks of a job: in its process, where they take less time than Ray's start, or on Ray."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from paraembed.process import on_cluster, one_thread
from paraembed.settings import Engine

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value")
_LOCAL_SECONDS = 20.0
"""Work of one process that is worth the start of Ray: 8 s until the first result, and 12 s of CPU time."""


def is_local(engine: Engine, seconds: float | Callable[[], float]) -> bool:
    """Return whether work is done in this process, see ``Engine``; ``seconds``: estimated time there, or a function
    that measures it.
    """
    if engine == "auto" and not has_ray():
        return (seconds() if callable(seconds) else seconds) < _LOCAL_SECONDS
    return engine == "local"


def has_ray() -> bool:
    """Return whether this process has joined a Ray, or will join a cluster rather than start a Ray."""
    ray = sys.modules.get("ray")
    return on_cluster() or bool(ray and ray.is_initialized())


@dataclass(frozen=True)
class Tasks:
    """Where the tasks of a job run: in this process, one after the other; or ``workers`` at a time on Ray, ``here``:
    only on this machine, even if it is a head without CPUs, because they use files that other machines do not see.
    """

    is_local: bool
    workers: int
    here: bool = False

    def run(
        self, function: Callable[[_Argument], _Result], arguments: Sequence[_Argument], workers: int | None = None
    ) -> Iterator[_Result]:
        """Yield the results of ``function``, in the order in which the tasks end."""
        if not self.is_local:
            from paraembed.cluster.session import run_tasks  # noqa: PLC0415 - with Ray, 1 s

            yield from run_tasks(function, arguments, workers or self.workers, here=self.here)
            return
        for argument in arguments:
            with one_thread():  # as a task of Ray; the number of threads decides the last bits of a product
                result = function(argument)
            yield result

    def share(self, value: _Value) -> Callable[[], _Value]:
        """Return a function that returns a value within tasks, to which it is sent once."""
        if self.is_local:
            return lambda: value
        import ray  # noqa: PLC0415 - as above

        reference = ray.put(value)
        return lambda: ray.get(reference)


@contextmanager
def started_tasks(engine: Engine, workers: int, seconds: float, *, here: bool = False) -> Iterator[Tasks]:
    """Yield where tasks run; Ray is started for the block if needed. ``seconds``: estimated time of one process."""
    if is_local(engine, seconds):
        yield Tasks(is_local=True, workers=1)
        return
    from paraembed.cluster.session import ray_session  # noqa: PLC0415 - with Ray, 1 s

    with ray_session(workers):
        yield Tasks(is_local=False, workers=workers, here=here)
