"""Embed the parts of a plan in Ray actors. A part whose worker fails, or does not return, goes to another worker."""

import logging
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

import numpy as np
import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError

from paraembed.cluster import metrics
from paraembed.cluster.embed_plan import Planning
from paraembed.cluster.embed_pool import READER, Call, Task, Worker, WorkerPool, reason_of
from paraembed.console import duration
from paraembed.embedding.local import EmbeddingProgress
from paraembed.embedding.manifest import EmbeddingRun
from paraembed.embedding.part import Done
from paraembed.embedding.plan import Part, Parts, Plan
from paraembed.embedding.rows import streams_of_workers
from paraembed.process import on_cluster

_TRIES = 4  # of a part whose worker fails
_LATE_SECONDS, _LATE_FACTOR = 10.0, 3  # a part is late after both: these seconds, and times what its rows usually take
_FIRST_SECONDS = 600.0  # after which a part is late if none is finished
_WARN_SECONDS = 60  # without any worker, the report of a part, or an answer of the worker that reads for all
_GIVE_UP_SECONDS = 1800  # without any worker, if no machine can join

log = logging.getLogger(__name__)


def embed_parts(
    pool: WorkerPool, run: EmbeddingRun, todo: Parts, out: str, tries: Counter[str], planning: Planning | None = None
) -> Generator[Done | None, None, None]:
    """Embed parts; yield each result when it is done, and show the progress. With ``planning``, the parts of ``run``
    are those of that plan, as soon as their files have been read; None is yielded when it is complete.

    When no part is left to hand out, a worker that is free gets the oldest part that is late, for example because its
    worker hangs. The first report of a part counts, and the other worker is killed: both write the same bytes, except
    for the last bits of a GPU, which are an error at the commit. Of the workers without a part, one remains for parts
    that fail or are late, and the one that reads a compressed file for all; the others end, so that their machines can
    go back.

    ``out``, the path or URI of the output, must be accessible to every worker. ``tries`` counts, by part name, the
    workers that failed while they embedded the part.

    Raises:
        ChildProcessError: ``_TRIES`` workers failed on one part, workers cannot start, or no worker was ready for half
            an hour on a local Ray. On a cluster the driver keeps waiting, since machines may join.
        ValueError, OSError: embedding a part failed; Ray wraps the error.
    """
    progress = EmbeddingProgress(run.plan.rows, run.plan.rows - int(todo.rows.sum()))
    parts, absence = _Parts(pool, run, out), _Absence(pool.gpu_share)
    parts.add(run.plan, todo)
    while parts.left or planning:
        if planning and parts.grow(planning):
            progress.total, planning = parts.plan.rows, None
            yield None
            continue
        pool.start(parts.num_wanted)
        ready = pool.wait(1.0)
        absence.check(any(worker.place for worker in pool.workers))
        for ref in ready:
            worker = pool.of_call[ref]
            try:
                result = ray.get(ref)
            except Exception as error:
                is_lost = isinstance(error, RayActorError | OutOfMemoryError)
                if not is_lost and (worker.place or not pool.has_started):
                    raise  # of a part, or of the encoder: other workers would fail, too
                failed = parts.lose_failed(worker, error)
                progress.retried += len(failed)
                _count(failed, tries, error)
                continue
            call = pool.remove(worker, ref)
            if call.task is None:
                pool.started(worker, result)
                progress.begin()
            elif parts.finish(worker, call):
                progress.done += call.task[1].rows
                worker.rows, worker.poll = 0, None  # an answer may count this part
                metrics.embedded(result.report.rows)
                yield result
            parts.hand_out(worker)
        if not ready:
            parts.warn()
            if not parts.num_waiting:
                pool.start(len(parts.late()))
        parts.drop_silent_reader()
        parts.use_spare()
        progress.begun = pool.rows_begun()
        progress.show()


class _Parts:
    """Parts of a run: those that wait for a worker, and the workers that have the others."""

    def __init__(self, pool: WorkerPool, run: EmbeddingRun, out: str) -> None:
        self.left = set[str]()
        self.holders: dict[str, list[Worker]] = {}  # name of a part → the workers that have it
        self.plan, self._is_growing = run.plan, False
        self._pool, self._settings, self._out = pool, run.plan.settings, out
        self._again = deque[Task]()
        self._cache = run.cache and ray.put(run.cache)
        self._streams: dict[int, deque[Part]] = {}
        self._others, self._shared = deque[Iterator[Part]](), set[int]()
        self._reader: Worker | None = None  # which reads the shared streams for all workers
        self._spare: Worker | None = None
        self._rows, self._seconds = 0, 0.0  # of finished parts
        self._warned: dict[str, float] = {}  # name of a part → its seconds at the last warning

    def add(self, plan: Plan, todo: Parts) -> None:
        """Add parts of a plan that has grown."""
        self.plan, streams = plan, streams_of_workers(plan, todo, self._pool.count)
        self.left.update(todo.names.to_pylist())
        others = todo[~np.isin(todo.files, [*streams])]
        num_parts = Counter(others.files.tolist())
        self._shared |= {file for file, count in num_parts.items() if plan.inputs[file].is_stream and count > 1}
        self._streams |= streams
        self._others.append(iter(others))

    def grow(self, planning: Planning) -> bool:
        """Take parts that have been planned, if few wait; return whether the plan is complete."""
        is_done = planning.is_done
        self._is_growing = not is_done
        plan = planning.plan() if is_done else planning.plan_so_far() if self.num_waiting < self._pool.count else None
        if plan:
            self.add(plan, plan.parts[len(self.plan.parts) :])
        for worker in [worker for worker in self._pool.workers if worker.place and not worker.calls]:
            self.hand_out(worker)
        return is_done

    @property
    def num_waiting(self) -> int:
        """Number of parts that no worker has."""
        return len(self.left) - len(self.holders)

    def hand_out(self, worker: Worker) -> None:
        """Give parts to a worker that is ready; without any, it waits for the plan, becomes the spare one, or ends."""
        if worker not in self._pool.workers:
            return
        while len(worker.calls) < self._pool.in_flight and (task := self._next(worker)):
            self._give(worker, task)
        if not worker.calls and (late := self.late()):
            name = late[0][1].name
            place = self.holders[name][0].place
            log.warning("%s takes much longer than other parts in %s; another worker embeds it, too", name, place)
            self._give(worker, late[0])
        if worker.calls or self._is_growing:
            return
        if self._spare not in self._pool.workers:
            self._spare = worker
        elif worker not in (self._spare, self._reader):
            self._pool.end(worker)

    def use_spare(self) -> None:
        """Give parts to the worker that has none, if there is one."""
        if self._spare in self._pool.workers and not self._spare.calls:
            self.hand_out(self._spare)

    def drop_silent_reader(self) -> None:
        """Kill the worker that reads for all if it does not answer, since the others wait for its texts."""
        reader = self._reader
        if reader and reader in self._pool.workers and reader.poll is not None:
            seconds = time.monotonic() - reader.polled
            if seconds > _WARN_SECONDS:
                silent = duration(seconds)
                log.warning("%s reads for all and has not answered for %s; another worker does", reader.place, silent)
                self.lose(reader)

    def finish(self, worker: Worker, call: Call) -> bool:
        """Record that a part is finished, and kill others that have it; return False if it was finished before."""
        assert call.task is not None
        name = call.task[1].name
        if name not in self.left:
            return False
        self.left.remove(name)
        if call.begun is not None:
            self._rows += call.task[1].rows
            self._seconds += time.monotonic() - call.begun
        for other in self.holders.pop(name):
            if other is not worker:
                self.lose(other)
        return True

    def lose(self, worker: Worker) -> list[str]:
        """Kill a worker, and return the parts that it was embedding; its parts wait again, unless another has them."""
        failed = []
        for call in self._pool.end(worker):
            if call.task is not None and (name := call.task[1].name) in self.holders:
                self._take(call.task, worker)
                if call.begun is not None:
                    failed.append(name)
                if name not in self.holders:
                    self._again.append(_read_alone(call.task))
        return failed

    def lose_failed(self, worker: Worker, error: Exception) -> list[str]:
        """Do as ``lose`` for a worker that failed, possibly while it started."""
        failed = self.lose(worker)
        if not worker.place:
            self._pool.start_failed(error)
        return failed

    def late(self) -> list[Task]:
        """Return parts that take much longer than others, and those behind them, unless two workers have them."""
        limits = [(worker, seconds, self._usual(task) or _FIRST_SECONDS) for seconds, worker, task in self._running()]
        workers = [worker for worker, seconds, limit in limits if seconds > max(_LATE_SECONDS, limit)]
        tasks = (call.task for worker in workers for call in worker.calls.values())
        return [_read_alone(task) for task in tasks if task is not None and len(self.holders[task[1].name]) == 1]

    def warn(self) -> None:
        """Warn of the part that has been running longest, after a minute and each time that its time has doubled."""
        for seconds, worker, task in self._running()[:1]:
            name = task[1].name
            if seconds > max(_WARN_SECONDS, self._usual(task), 2 * self._warned.get(name, 0)):
                self._warned[name] = seconds
                log.warning("%s has been running for %s in %s", name, duration(seconds), worker.place)

    @property
    def num_wanted(self) -> int:
        """Number of workers that should be started: one for each part that waits, all while parts are planned."""
        return self._pool.count if self._is_growing else self.num_waiting

    def _next(self, worker: Worker) -> Task | None:
        if self._again:
            return self._again.popleft()
        if not self._streams:
            while self._others:
                if following := next(self._others[0], None):
                    return self._task(following, worker)
                self._others.popleft()
            return None
        if worker.file not in self._streams:  # one that no other worker reads, else the one with most parts
            others = {other.file for other in self._pool.workers}
            new = (file for file in self._streams if file not in others)
            worker.file = next(new, max(self._streams, key=lambda file: len(self._streams[file])))
        part = self._streams[worker.file].popleft()
        if not self._streams[worker.file]:
            del self._streams[worker.file]
        return self.plan.sources(part), part, None

    def _task(self, part: Part, worker: Worker) -> Task:
        """Return the task of a part; of a shared stream, its text is read by ``worker`` if no other worker does."""
        sources = self.plan.sources(part)
        if part.file not in self._shared:
            return sources, part, None
        if self._reader not in self._pool.workers:
            self._reader = worker
        assert self._reader is not None
        ref = self._reader.actor.read.options(concurrency_group=READER).remote(sources[0], part.pieces[0])
        return sources, part, partial(_text_of, ref)

    def _usual(self, task: Task) -> float:
        """Return how many seconds a part may take, from those of the finished parts; 0 if none is."""
        return _LATE_FACTOR * task[1].rows * self._seconds / max(1, self._rows)

    def _running(self) -> list[tuple[float, Worker, Task]]:
        """Return seconds, worker and task of the parts that workers embed, the oldest first."""
        calls = ((worker, call) for worker in self._pool.workers for call in worker.calls.values())
        now = time.monotonic()
        running = [(now - call.begun, worker, call.task) for worker, call in calls if call.task and call.begun]
        return sorted(running, key=lambda item: -item[0])

    def _give(self, worker: Worker, task: Task) -> None:
        sources, part, text = task
        given = self._pool.encoder, sources, part, self._settings, self._out, text, self._cache
        ref = worker.actor.embed.remote(*given)
        self._pool.add(worker, ref, task)
        self.holders.setdefault(part.name, []).append(worker)

    def _take(self, task: Task, worker: Worker) -> None:
        name = task[1].name
        self.holders[name].remove(worker)
        if not self.holders[name]:
            del self.holders[name]


def _text_of(ref: Any) -> bytes | None:
    """Return the text of a part from its reader; None if the worker is lost or the file is damaged."""
    try:
        text: bytes = ray.get(ref)
    except RayError as error:
        log.warning("this worker reads its part from the start of the file: %s", reason_of(error)[0])
        return None
    return text


def _read_alone(task: Task) -> Task:
    """Return a part for another worker, which reads its stream from the start."""
    sources, part, _ = task
    return sources, part, None


def _count(failed: list[str], tries: Counter[str], error: Exception) -> None:
    """Count the parts whose worker failed; ChildProcessError if one of them has no more tries."""
    tries.update(failed)
    for name in failed:
        metrics.part_failed()
        if tries[name] == _TRIES:
            raise ChildProcessError(
                f"{_TRIES} workers failed on the part {name}, possibly because memory is insufficient; finished parts "
                f"are kept: run the same command again with fewer `workers` ({reason_of(error)[0]})"
            ) from None


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
