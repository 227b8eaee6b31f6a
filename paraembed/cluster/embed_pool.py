"""Ray actors that embed parts, and the calls that they are working on."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import get_node_ip_address

from paraembed.console import duration
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.part import PartWorker
from paraembed.embedding.plan import Part
from paraembed.encoders.protocol import TextEncoder
from paraembed.process import on_cluster

_PARTS_PER_GPU = 4  # at a time, by default; if a worker is lost, so are these
_POLL_SECONDS = 2.0  # between calls that ask a worker for its rows
_STATUS = "status"  # group of calls that do not wait for those with parts
_START_TRIES = 6  # in a row, as long as no worker has started
_LONGEST_PAUSE_SECONDS = 60.0  # between failed starts

log = logging.getLogger(__name__)

READER = "reader"
"""Group of calls that read a compressed file for all workers."""
Task = tuple[tuple[InputFile, ...], Part, Callable[[], bytes | None] | None]
"""A part to embed, with its inputs, and what returns its text if another worker reads it."""


@dataclass
class Call:
    """Running call of a worker: of ``embed`` with a part, or of ``ready`` without one."""

    task: Task | None
    begun: float | None  # time; None while the call is queued behind another one of its worker


@dataclass(eq=False)
class Worker:
    """Actor, with its calls in the order in which they were made."""

    actor: Any
    calls: dict[Any, Call] = field(default_factory=dict)
    place: str = ""  # process and machine, once it has started
    file: int = -1  # the stream that it reads
    rows: int = 0  # encoded, of parts that are not finished, at its last answer
    poll: Any = None  # call that asks for these rows
    polled: float = 0.0  # time of this call


class WorkerPool:
    """Workers that are running or starting, ``count`` at most.

    A worker that fails is replaced by a new actor. Ray would restart it, but only when it has detected that a machine
    is lost, which takes 15 s and more; until then all calls to the actor fail.
    """

    def __init__(self, encoder: TextEncoder, count: int, gpu_share: float, cpus_per_gpu: int | None) -> None:
        """Each worker gets one CPU and a fraction of a GPU, if that is not 0. With a GPU, it works on several parts at
        a time, two at least (``cpus_per_gpu``; None: four): one is encoded while others are read, tokenized or written.
        """
        self.count, self.gpu_share = count, gpu_share
        # Ray reserves one CPU alone: machines differ, and one with fewer CPUs would never start a worker.
        self.in_flight = max(2, int(gpu_share * (cpus_per_gpu or _PARTS_PER_GPU)))
        """Parts per worker; without a GPU one is queued, so that memory is bounded and no worker waits."""
        self.workers: dict[Worker, None] = {}  # in the order of their starts
        self.of_call: dict[Any, Worker] = {}
        self.has_started, self._failed_starts, self._next_start = False, 0, 0.0
        on_gpu = {"num_gpus": gpu_share, "max_concurrency": self.in_flight} if gpu_share else {}
        self._next_poll = 0.0
        remote: Any = ray.remote  # its types lack this option
        actor = remote(concurrency_groups={_STATUS: 1, READER: 1})(PartWorker)
        self._actor: Any = actor.options(num_cpus=1, max_restarts=0, **on_gpu)
        num_machines = len(ray.nodes())  # type: ignore[no-untyped-call]
        # In Ray's object store, which sends it to every machine once.
        self.encoder = ray.put(encoder.packed(is_local=not on_cluster() and num_machines == 1))

    def start(self, wanted: int) -> None:
        """Start workers without waiting for them, until ``wanted`` of them are starting, or there are ``count``."""
        starting = sum(not worker.place for worker in self.workers)
        for _ in range(min(wanted - starting, self.count - len(self.workers))):
            if time.monotonic() < self._next_start:
                return
            worker = Worker(self._actor.remote())
            self.workers[worker] = None
            self.add(worker, worker.actor.ready.remote(self.encoder, get_node_ip_address), None)

    def wait(self, seconds: float) -> list[Any]:
        """Return a call that is done, or none after some seconds."""
        if not self.of_call:  # all starts failed, and the next one is later
            time.sleep(seconds)
            return []
        return list(ray.wait(list(self.of_call), num_returns=1, timeout=seconds)[0])

    def rows_begun(self) -> int:
        """Return how many rows are encoded of parts that are not finished, as of two seconds ago."""
        if time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + _POLL_SECONDS
            for worker in self.workers:
                if worker.poll is not None and ray.wait([worker.poll], timeout=0)[0]:
                    with suppress(RayError):  # a worker that failed, as the call with its part will say
                        worker.rows = ray.get(worker.poll)
                    worker.poll = None
                if worker.poll is None and worker.place:
                    worker.poll = worker.actor.rows_begun.options(concurrency_group=_STATUS).remote()
                    worker.polled = time.monotonic()
        return sum(worker.rows for worker in self.workers)

    def add(self, worker: Worker, ref: Any, task: Task | None) -> None:
        """Record a call of a worker. On a CPU, a worker runs one call at a time."""
        is_queued = worker.calls and not self.gpu_share
        worker.calls[ref] = Call(task, None if is_queued else time.monotonic())
        self.of_call[ref] = worker

    def remove(self, worker: Worker, ref: Any) -> Call:
        """Forget a call of a worker; the one behind it, if any, begins now."""
        del self.of_call[ref]
        call = worker.calls.pop(ref)
        for other in worker.calls.values():
            other.begun = other.begun or time.monotonic()
        return call

    def end(self, worker: Worker) -> list[Call]:
        """Kill a worker, and return its calls."""
        del self.workers[worker]
        for ref in worker.calls:
            del self.of_call[ref]
        ray.kill(worker.actor)
        return list(worker.calls.values())

    def end_all(self) -> None:
        """Kill all workers."""
        for worker in list(self.workers):
            self.end(worker)

    def started(self, worker: Worker, place: str) -> None:
        """Record that a worker is ready."""
        worker.place, self.has_started, self._failed_starts = place, True, 0

    def start_failed(self, error: Exception) -> None:
        """Pause before the next start; ChildProcessError if no worker has started so far, and another try would not
        help.
        """
        why, is_raised = reason_of(error)
        self._failed_starts += 1
        if not self.has_started and (is_raised or self._failed_starts == _START_TRIES):
            raise ChildProcessError(
                f"workers fail while they start, possibly because memory or disk space is insufficient ({why}); free "
                "some, or use fewer `workers`"
            ) from None
        pause = min(2.0**self._failed_starts, _LONGEST_PAUSE_SECONDS)
        self._next_start = time.monotonic() + pause
        log.warning("a worker failed while it started (%s); another one is started in %s", why, duration(pause))


def reason_of(error: Exception) -> tuple[str, bool]:
    """Return why a worker failed, and whether its start raised an error."""
    lines = str(error).splitlines()
    is_raised = isinstance(error, RayTaskError) or "creation task" in lines[0]
    return lines[-1] if is_raised else lines[0], is_raised
