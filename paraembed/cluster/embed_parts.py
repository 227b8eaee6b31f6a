"""Embed the parts of a plan in Ray actors; a part whose worker fails is retried."""

import logging
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from paraembed.cluster import metrics
from paraembed.console import doing, duration
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.manifest import EmbeddingRun
from paraembed.embedding.part import Done, PartWorker
from paraembed.embedding.plan import Part
from paraembed.embedding.rows import stream_parts
from paraembed.encoders.protocol import TextEncoder
from paraembed.process import on_cluster

_IN_FLIGHT = 2  # parts per worker: one running, one queued, so that memory is bounded and no worker waits
_TRIES = 4  # of a part whose worker fails
_START_TRIES = 6  # of a worker; until Ray detects that a machine failed, each try takes 4 s
_WARN_SECONDS = 60  # without any worker
_GIVE_UP_SECONDS = 1800  # without any worker, if no machine can join

log = logging.getLogger(__name__)


_Task = tuple[InputFile, Part, bytes | None]
"""A part to embed, with its input, and with its text if the input is compressed."""


@dataclass(frozen=True)
class WorkerPool:
    """Actors that are running or starting."""

    encoder: Any  # in Ray's object store, which sends it to every machine once
    starting: dict[Any, Any]  # calls that return when their actor is ready
    gpu_share: float = 0  # that each actor needs


@contextmanager
def started_workers(encoder: TextEncoder, count: int, gpu_share: float = 0) -> Iterator[WorkerPool]:
    """Start actors without waiting for them; they are killed at the end of the block.

    Each actor has one CPU and a fraction of a GPU. With a GPU, an actor works on two parts at a time: one is encoded
    while the other is read or written.
    """
    # Ray retries ``ready``, which returns when a failed worker is back; a part that failed with it is retried here.
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_START_TRIES - 1)(PartWorker)
    on_gpu = {"num_gpus": gpu_share, "max_concurrency": _IN_FLIGHT} if gpu_share else {}
    num_machines = len(ray.nodes())  # type: ignore[no-untyped-call]
    shared = ray.put(encoder.packed(is_local=not on_cluster() and num_machines == 1))
    actors: list[Any] = [actor.options(**on_gpu).remote() for _ in range(count)]
    try:
        starting = {worker.ready.remote(shared): worker for worker in actors for _ in range(_IN_FLIGHT)}
        yield WorkerPool(shared, starting, gpu_share)
    finally:
        for worker in actors:
            ray.kill(worker)


def embed_parts(
    workers: WorkerPool, run: EmbeddingRun, todo: list[Part], out: str, tries: Counter[str]
) -> Generator[Done, None, None]:
    """Embed parts; yield each result when it is done, and show the progress.

    ``out``, the path or URI of the output, must be accessible to every worker. ``tries`` counts, by part name, the
    workers that failed while they embedded the part.

    Raises:
        ChildProcessError: ``_TRIES`` workers failed on one part, workers cannot start, or no worker was ready for half
            an hour on a local Ray. On a cluster the driver keeps waiting, since machines may join.
        ValueError, OSError: embedding a part failed; Ray wraps the error.
    """
    shared = workers.encoder
    progress = EmbeddingProgress(run.plan.rows, run.plan.rows - sum(part.rows for part in todo))
    # A slot is a running call. An actor gets parts once it has answered, so an actor without a CPU delays nothing.
    slots: dict[Any, tuple[Any, _Task | None]] = {call: (actor, None) for call, actor in workers.starting.items()}
    tasks, retries = stream_parts(run.plan, todo), deque[_Task]()
    idle: list[Any] = []  # a worker for each slot without a call: no part was left
    queued: set[Any] = set()  # calls behind another part of their worker: not counted as failed if it fails
    left, absence = len(todo), _Absence(workers.gpu_share)
    try:
        while left:
            ready, _ = ray.wait(list(slots), num_returns=1, timeout=1.0)
            absence.check(bool(ready) or any(task is not None for _, task in slots.values()))
            for ref in ready:
                worker, task = slots.pop(ref)
                done = _result(ref, task, tries, is_queued=ref in queued)
                if task is None:
                    progress.begin()
                elif done is None:
                    retries.append(task)
                    if ref not in queued:
                        progress.retried += 1
                        metrics.part_failed()
                    # The part goes to the worker that answers first: the failed one when it is back, or an idle one.
                    slots.update({free.ready.remote(shared): (free, None) for free in (worker, *idle)})
                    idle.clear()
                    continue
                else:
                    left -= 1
                    queued.difference_update(_calls_of(worker, slots))
                    progress.done += task[1].rows
                    metrics.embedded(done.report.rows)
                    yield done
                following = retries.popleft() if retries else next(tasks, None)
                if following is None:
                    idle.append(worker)
                else:
                    source, part, data = following
                    what = shared, source, part, run.plan.settings, out, data
                    call = worker.embed.options(max_task_retries=0).remote(*what)
                    if _calls_of(worker, slots) and not workers.gpu_share:  # with a GPU, both are running
                        queued.add(call)
                    slots[call] = worker, following
            progress.show()
    finally:
        for call in slots:
            ray.cancel(call)  # otherwise Ray retries the calls and warns when the workers end


def _calls_of(worker: Any, slots: dict[Any, tuple[Any, _Task | None]]) -> list[Any]:
    """Return the calls of a worker that have a part."""
    return [call for call, (actor, task) in slots.items() if actor is worker and task is not None]


class _Absence:
    """Duration for which no worker was available: none has started, or all have failed."""

    def __init__(self, gpu_share: float) -> None:
        self._since = self._warned = time.monotonic()
        self._needs = ("GPU", f"{gpu_share:g} of a GPU and a CPU") if gpu_share else ("CPU", "a CPU")

    def check(self, has_worker: bool) -> None:
        """Warn every ``_WARN_SECONDS``; on a local Ray, raise ChildProcessError after ``_GIVE_UP_SECONDS``."""
        now = time.monotonic()
        if has_worker:
            self._since = self._warned = now
            return
        without = now - self._since
        hopeless = without >= _GIVE_UP_SECONDS and not on_cluster()
        if not hopeless and now - self._warned < _WARN_SECONDS:
            return
        self._warned = now
        kind, needs = self._needs
        free = ray.available_resources().get(kind, 0)  # type: ignore[no-untyped-call]
        why = f"no worker for {duration(without)}: each needs {needs}; free {kind}s in the cluster: {free:g}"
        if hopeless:
            raise ChildProcessError(f"{why}; finished parts are kept: run the same command again when a {kind} is free")
        log.warning("%s", why)


def _result(ref: Any, task: _Task | None, tries: Counter[str], *, is_queued: bool) -> Done | None:
    """Return the result of a call; None if its worker failed, or if it is a call of ``ready``."""
    try:
        done: Done | None = ray.get(ref)
    except (RayActorError, OutOfMemoryError) as error:
        lines = str(error).splitlines()
        why = lines[-1] if "creation task" in lines[0] else lines[0]  # the error that the actor's start raised
        if task is None:
            raise ChildProcessError(
                f"workers fail while they start, possibly because memory or disk space is insufficient ({why}); free "
                "some, or use fewer `workers`"
            ) from None
        if is_queued:
            return None
        name = task[1].name
        tries[name] += 1
        if tries[name] == _TRIES:
            raise ChildProcessError(
                f"{_TRIES} workers failed on the part {name}, possibly because memory is insufficient; "
                f"finished parts are kept: run the same command again with fewer `workers` ({why})"
            ) from None
        return None
    return done


class EmbeddingProgress:
    """Progress line of an embedding run: counts of rows, ``done`` of them, and of parts that were ``retried``."""

    def __init__(self, total: int, before: int) -> None:
        self.done, self.retried = before, 0
        self._total, self._before = total, before
        self._started = time.monotonic()

    def begin(self) -> None:
        """Start the clock when the first worker is ready."""
        if self.done == self._before:
            self._started = time.monotonic()

    def show(self) -> None:
        """Show the line."""
        doing(self.line(time.monotonic() - self._started))

    def line(self, seconds: float) -> str:
        """Return the line: ``300,000 of 718,769 rows  42%  98,000 rows/s  4 s left  1 part failed, retried``."""
        rate = (self.done - self._before) / max(seconds, 1e-9)
        left = f"{duration((self._total - self.done) / rate)} left" if rate else "starting"
        failed = f"  {self.retried} part{'s'[: self.retried > 1]} failed, retried" if self.retried else ""
        share = f"{self.done / self._total:.0%}"
        return f"{self.done:,} of {self._total:,} rows  {share}  {rate:,.0f} rows/s  {left}{failed}"
