"""Embed the parts of a plan in this process, one after the other; and the progress line of every engine."""

import time
from collections.abc import Generator, Sequence

from paraembed.console import doing, duration
from paraembed.embedding.manifest import EmbeddingRun
from paraembed.embedding.part import Done, embed_part, peak_memory
from paraembed.embedding.plan import Part
from paraembed.embedding.rows import stream_parts
from paraembed.encoders.protocol import TextEncoder
from paraembed.io.store import Store
from paraembed.process import one_thread


def embed_here(
    encoder: TextEncoder, run: EmbeddingRun, todo: Sequence[Part], store: Store, of_workers: Sequence[Part] = ()
) -> Generator[Done, None, None]:
    """Embed parts into ``store`` on one thread, as a worker does, and show the progress; yield each result when it is
    done. The errors are those of ``embed_part``. Workers embed the parts ``of_workers`` later.
    """
    progress = EmbeddingProgress(run.plan.rows, run.plan.rows - sum(part.rows for part in [*todo, *of_workers]))

    def count(rows: int) -> None:
        progress.begun += rows
        progress.show()

    with one_thread():
        for sources, part, data in stream_parts(run.plan, todo):
            report = embed_part(
                encoder, sources, part, run.plan.settings, store, data=data, on_rows=count, cache=run.cache
            )
            progress.done, progress.begun = progress.done + part.rows, 0
            yield Done(report, peak_memory())


class EmbeddingProgress:
    """Progress line of an embedding run: counts of rows, ``done`` in finished parts, ``begun`` in others, and of parts
    that were ``retried``.
    """

    def __init__(self, total: int, before: int) -> None:
        self.done, self.retried = before, 0
        self.begun = 0  # rows of parts that are not finished
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
        done = min(self.done + self.begun, self._total)  # a part that is repeated may be counted twice
        rate = (done - self._before) / max(seconds, 1e-9)
        left = f"{duration((self._total - done) / rate)} left" if rate else "starting"
        failed = f"  {self.retried} part{'s'[: self.retried > 1]} failed, retried" if self.retried else ""
        share = f"{done / self._total:.0%}"
        return f"{done:,} of {self._total:,} rows  {share}  {rate:,.0f} rows/s  {left}{failed}"
