"""The parts of a plan on Ray: actors take them, a part whose worker dies is given out again."""

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from paraembed.cluster import metrics
from paraembed.console import ProgressLine, duration
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.manifest import Run
from paraembed.embedding.plan import Part, Plan
from paraembed.embedding.rows import stream_parts
from paraembed.embedding.worker import Done, PartWorker, Weights

_IN_FLIGHT = 2  # parts a worker: one at work, one ready, so that memory is bounded and no worker waits
_TRIES = 4  # of a part whose worker dies
_START_TRIES = 6  # of a worker; while a machine is dead and Ray does not know it, a try fails in 4 s
_WARN_SECONDS = 60  # without any worker
_GIVE_UP_SECONDS = 1800  # where no other machine can come
_PLAIN_SECONDS = 30  # between progress lines where there is no terminal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Task:
    """A part to embed; ``data`` is its text where the input can only be read from its start."""

    source: InputFile
    part: Part
    data: bytes | None


@dataclass(frozen=True)
class Workers:
    """Actors that have been started, or are on their way.

    Attributes:
        actors: each takes parts.
        weights: the encoder in Ray's object store, from where it goes to every machine once.
        starting: calls that come back when their actor is there.
    """

    actors: list[Any]
    weights: Any
    starting: dict[Any, Any]


@contextmanager
def started_workers(weights: Weights, count: int) -> Iterator[Workers]:
    """Start actors, a CPU each, and do not wait for them; they are killed at the end of the block."""
    # Ray repeats ``ready``, and so says when a worker is there again; a part that died with it is ours to repeat.
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_START_TRIES - 1)(PartWorker)
    shared = ray.put(weights)
    actors: list[Any] = [actor.remote() for _ in range(count)]
    try:
        yield Workers(actors, shared, {one.ready.remote(shared): one for one in actors for _ in range(_IN_FLIGHT)})
    finally:
        for one in actors:
            ray.kill(one)


def embed_parts(
    workers: Workers, run: Run, todo: list[Part], out: str, tries: Counter[str]
) -> Generator[Done, None, None]:
    """Parts in the order in which they get done; progress goes to the user.

    Args:
        workers: who takes the parts.
        run: inputs and settings.
        todo: the parts.
        out: path or URI of the output, which every worker must reach.
        tries: counts, by part name, how often a worker died on it.

    Raises:
        ChildProcessError: workers died ``_TRIES`` times on one part, or cannot start; in a Ray of our own on this
            machine also where none is there for half an hour. On a cluster machines may come: it is waited for them.
        ValueError, OSError: inside Ray's wrappers: what embedding a part raised.
    """
    shared = workers.weights
    progress = Progress(run.plan.rows, run.plan.rows - sum(part.rows for part in todo))
    # A slot is a call under way. An actor gets parts once it has answered, so one that finds no CPU holds up nothing.
    slots: dict[Any, tuple[Any, _Task | None]] = {call: (actor, None) for call, actor in workers.starting.items()}
    tasks, again = _tasks(run.plan, todo), deque[_Task]()
    idle: list[Any] = []  # a worker for each slot without a call: no part was left
    left, absence = len(todo), _Absence()
    try:
        while left:
            ready, _ = ray.wait(list(slots), num_returns=1, timeout=1.0)
            absence.check(bool(ready) or any(task is not None for _, task in slots.values()))
            for ref in ready:
                worker, task = slots.pop(ref)
                done = _result(ref, task, tries)
                if task is None:
                    progress.begin()
                elif done is None:
                    again.append(task)
                    progress.retry()
                    metrics.part_failed()
                    # The part goes to whoever answers first: the worker when it is there again, or an idle one that is.
                    slots.update({one.ready.remote(shared): (one, None) for one in (worker, *idle)})
                    idle.clear()
                    continue
                else:
                    left -= 1
                    progress.add(task.part.rows)
                    metrics.embedded(done.report.rows)
                    yield done
                following = again.popleft() if again else next(tasks, None)
                if following is None:
                    idle.append(worker)
                else:
                    source, part, data = following.source, following.part, following.data
                    what = shared, source, part, run.plan.settings, out, data
                    slots[worker.embed.options(max_task_retries=0).remote(*what)] = worker, following
            progress.show()
    finally:
        progress.close()
        for call in slots:
            ray.cancel(call)  # so that the workers' end is no reason to try again, and to say so


class _Absence:
    """The time in which there is no worker: none has started, or all are gone."""

    def __init__(self) -> None:
        self._since = self._said = time.monotonic()

    def check(self, somebody: bool) -> None:
        """Say that there is no worker, when it is time.

        Raises:
            ChildProcessError: nobody can help: a Ray of our own on this machine, after ``_GIVE_UP_SECONDS``.
        """
        now = time.monotonic()
        if somebody:
            self._since = self._said = now
            return
        without = now - self._since
        hopeless = without >= _GIVE_UP_SECONDS and "RAY_ADDRESS" not in os.environ  # as ``ray_session`` has it
        if not hopeless and now - self._said < _WARN_SECONDS:
            return
        self._said = now
        free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
        why = f"no worker is there since {duration(without)}: each needs a CPU, and the cluster has {free:g} free"
        if hopeless:
            raise ChildProcessError(f"{why}; parts that are done stay: run the same command again when there is one")
        log.warning("%s", why)


def _tasks(plan: Plan, todo: list[Part]) -> Iterator[_Task]:
    """Parts with their input, and with their text where that is compressed: read here, once, as they are due."""
    for number, parts in groupby(todo, key=lambda part: part.file):
        source = plan.inputs[number]
        if source.is_chain:
            yield from (_Task(source, part, data) for part, data in stream_parts(source, list(parts)))
        else:
            yield from (_Task(source, part, None) for part in parts)


def _result(ref: Any, task: _Task | None, tries: Counter[str]) -> Done | None:
    """What a call gave; None where its worker died, or was only asked whether it is ready."""
    try:
        done: Done | None = ray.get(ref)
    except (RayActorError, OutOfMemoryError) as error:
        lines = str(error).splitlines()
        why = lines[-1] if "creation task" in lines[0] else lines[0]  # the error that the actor's start raised
        if task is None:
            raise ChildProcessError(f"workers die as they start, out of memory or disk space perhaps ({why})") from None
        tries[task.part.name] += 1
        if tries[task.part.name] == _TRIES:
            raise ChildProcessError(
                f"a worker died {_TRIES} times on one part, {task.part.name}, out of memory perhaps; parts that are "
                f"done stay: run the same command again, with fewer `workers` ({why})"
            ) from None
        return None
    return done


class Progress:
    """Rows done, as a line for the user."""

    def __init__(self, total: int, before: int) -> None:
        self._total, self._done, self._before, self._retried = total, before, before, 0
        self._started = time.monotonic()
        self._line = ProgressLine(_PLAIN_SECONDS)

    def begin(self) -> None:
        """The first worker is ready: its start does not count as slow rows."""
        if self._done == self._before:
            self._started = time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows."""
        self._done += rows

    def retry(self) -> None:
        """Count a part that failed with its worker and is given out again."""
        self._retried += 1

    def show(self) -> None:
        """Show the line, when it is due."""
        self._line.show(self.line(time.monotonic() - self._started))

    def line(self, seconds: float) -> str:
        """For example ``300,000 of 718,769 rows  42%  98,000 rows/s  4 s left  1 part failed, tried again``."""
        rate = (self._done - self._before) / max(seconds, 1e-9)
        left = f"{duration((self._total - self._done) / rate)} left" if rate else "starting"
        failed = f"  {self._retried} part{'s'[: self._retried > 1]} failed, tried again" if self._retried else ""
        share = f"{self._done / self._total:.0%}"
        return f"{self._done:,} of {self._total:,} rows  {share}  {rate:,.0f} rows/s  {left}{failed}"

    def close(self) -> None:
        """End the line."""
        self._line.close()
