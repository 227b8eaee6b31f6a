"""Embed the parts of a plan in this process; and the progress line of every engine."""

import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError
from threading import Event, Lock
from typing import Any

from paraembed.console import doing, duration
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.manifest import EmbeddingRun
from paraembed.embedding.part import Done, embed_part, peak_memory
from paraembed.embedding.plan import NO_PARTS, Part, Parts
from paraembed.embedding.rows import stream_parts
from paraembed.encoders.protocol import NO_LOCK, TextEncoder
from paraembed.io.store import Store
from paraembed.process import map_in_threads, one_thread

_RATE_SECONDS = 10.0


def embed_here(
    encoder: TextEncoder, run: EmbeddingRun, todo: Parts, store: Store, of_workers: Parts = NO_PARTS, threads: int = 1
) -> Generator[Done, None, None]:
    """Embed parts into ``store``, each on one thread, as a worker does, and show the progress; yield the results in
    order. Several threads feed a GPU: they encode one at a time, while others read, tokenize and write. The errors are
    those of ``embed_part``. Workers embed the parts ``of_workers`` later.
    """
    progress = EmbeddingProgress(run.plan.rows, run.plan.rows - int(todo.rows.sum() + of_workers.rows.sum()))
    begun, lock, stopped = Counter[str](), NO_LOCK if threads == 1 else Lock(), Event()

    def embedded(task: tuple[Sequence[InputFile], Part, bytes | None]) -> tuple[Part, Done]:
        sources, part, data = task

        def count(rows: int) -> None:
            if stopped.is_set():  # so that Ctrl-C does not wait for the parts of all threads
                raise CancelledError
            begun[part.name] += rows
            progress.begun = sum([*begun.values()])  # a list, as other threads add parts
            progress.show()

        options: dict[str, Any] = {"data": data, "lock": lock, "on_rows": count, "cache": run.cache}
        return part, Done(embed_part(encoder, sources, part, run.plan.settings, store, **options), peak_memory())

    with one_thread():
        tasks = stream_parts(run.plan, todo)  # each may hold the text of its part
        for part, done in map_in_threads(embedded, tasks, threads, stopped.set, ahead=1):
            progress.done += part.rows
            progress.begun -= begun.pop(part.name, 0)
            yield done


class EmbeddingProgress:
    """Progress line of an embedding run: counts of rows, ``done`` in finished parts, ``begun`` in others, and of parts
    that were ``retried``.
    """

    def __init__(self, total: int, before: int) -> None:
        self.done, self.retried = before, 0
        self.begun = 0  # rows of parts that are not finished
        self.total, self._before = total, before  # a total of 0: it is not known yet, and no line is shown
        self._started = time.monotonic()
        self._shown = deque([(0.0, before)])  # seconds and rows, of the last seconds

    def begin(self) -> None:
        """Start the clock when the first worker is ready."""
        if self.done == self._before:
            self._started = time.monotonic()
            self._shown = deque([(0.0, self._before)])

    def show(self) -> None:
        """Show the line."""
        if self.total:
            doing(self.line(time.monotonic() - self._started))

    def line(self, seconds: float) -> str:
        """Return the line, with the speed of the last ten seconds: ``300,000 of 718,769 rows  42%  98,000 rows/s  4 s
        left  1 part failed, retried``.
        """
        done = min(self.done + self.begun, self.total)  # a part that is repeated may be counted twice
        shown = self._shown
        shown.append((seconds, done))
        while len(shown) > 2 and seconds - shown[1][0] > _RATE_SECONDS:
            shown.popleft()
        rate = max(0.0, (done - shown[0][1]) / max(seconds - shown[0][0], 1e-9))
        left = f"{duration((self.total - done) / rate)} left" if rate else "starting"
        failed = f"  {self.retried} part{'s'[: self.retried > 1]} failed, retried" if self.retried else ""
        share = f"{done / self.total:.0%}"
        return f"{done:,} of {self.total:,} rows  {share}  {rate:,.0f} rows/s  {left}{failed}"
