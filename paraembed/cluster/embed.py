"""Embed files on Ray: actors take the parts of a plan; Ray schedules and retries, the folder's manifest commits."""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from paraembed import checkpoint
from paraembed.cluster.job import say
from paraembed.cluster.progress import ProgressLine
from paraembed.cluster.session import check_workers, ray_session
from paraembed.cluster.tracking import tracked_run
from paraembed.embedding import manifest
from paraembed.embedding.manifest import Run
from paraembed.embedding.part import PartReport, PartWorker, stream_parts
from paraembed.embedding.plan import InputFile, Part, Plan, Settings, list_inputs, make_plan, with_trees
from paraembed.encoders import config_from_dict
from paraembed.encoders.base import reads_trees
from paraembed.files import locked

_IN_FLIGHT = 2  # parts a worker: one at work, one ready, so that memory is bounded and no worker waits
_TRIES = 4  # of a part whose worker dies
_WARN_SECONDS = 60  # without any worker
_PLAIN_SECONDS = 30  # between progress lines where there is no terminal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Attributes:
        rows: rows in the output.
        parts: parts in the output.
        embedded: parts that this run embedded; the others were done before.
        was_finished: nothing was left to do.
    """

    rows: int
    parts: int
    embedded: int
    was_finished: bool = False


def embed(
    encoder: Path, inputs: list[Path], out: Path, settings: Settings, *, workers: int = 2, overwrite: bool = False
) -> Outcome:
    """Embed input files into the folder ``out``, or go on where an earlier run stopped.

    Args:
        encoder: encoder folder.
        inputs: text or Parquet files; rows are numbered in this order.
        out: output folder: new, empty, or begun by the same command.
        settings: columns and sizes.
        workers: actors, a CPU each.
        overwrite: embed everything again, beside ``out``, and put it into place at the end.

    Raises:
        ValueError, OSError: the inputs, the encoder or ``out`` will not do; nothing was changed then. Or an input
            turned out bad in the middle; parts that are done stay.
    """
    started = time.perf_counter()
    check_workers(workers)
    manifest.check_folder(out)
    config = checkpoint.read_config(encoder)
    stamps = _stamps(inputs)
    files = list_inputs(inputs)
    settings = with_trees(settings, files, reads_trees(config_from_dict(config["encoder"])))
    folder = manifest.fresh_folder(out) if overwrite else out
    run = _run(folder, config, files, settings, overwrite)
    with ExitStack() as held:
        if overwrite and out.exists():
            held.enter_context(locked(out))
        reports = held.enter_context(manifest.begun_run(folder, run))
        todo = [part for part in run.plan.parts if part.name not in reports]
        if not todo and manifest.is_committed(folder) and not overwrite:
            say(f"{out} is finished already, {run.plan.rows:,} rows; nothing to do")
            return Outcome(run.plan.rows, len(run.plan.parts), 0, was_finished=True)
        _say_plan(run.plan, todo, workers, out)
        manifest.uncommit(folder)
        with tracked_run(f"embed {out.name}", out) as tracked, ray_session(workers):
            tracked.params(_params(run, workers))
            for report in _embed_parts(encoder, run, todo, folder, workers):
                reports[report.name] = report
            if _stamps(inputs) != stamps:
                raise ValueError("an input changed while it was embedded; start afresh with --overwrite")
            written = manifest.commit(folder, run, reports)
            seconds = time.perf_counter() - started
            tracked.metrics(
                {
                    "rows": written["rows"],
                    "rows_per_second": sum(part.rows for part in todo) / seconds,
                    "unknown_share": written["n_unknown"] / max(1, written["n_tokens"]),
                    "rows_cut": written["n_cut"],
                    "rows_without_tree": written["n_without_tree"],
                    "seconds": seconds,
                }
            )
            tracked.artifacts(folder / manifest.MANIFEST)
        if overwrite:
            manifest.swap(folder, out)
    _say_losses(written, config["max_tokens"])
    return Outcome(run.plan.rows, len(run.plan.parts), len(todo))


def _run(
    folder: Path, config: dict[str, Any], files: tuple[InputFile, ...], settings: Settings, overwrite: bool
) -> Run:
    """The run to go on with, or a new one; ``--overwrite`` goes on only with what an equal ``--overwrite`` began."""
    encoder, tokeniser = config["fingerprint"], config["tokeniser"]
    if manifest.check_folder(folder):
        try:
            plan = manifest.continued_plan(folder, encoder, tokeniser, files, settings)
            return Run(encoder, tokeniser, plan)
        except ValueError:
            if not overwrite:
                raise
    plan = make_plan(files, settings)
    if overwrite and folder.exists():
        with locked(folder):
            manifest.discard(folder)
    return Run(encoder, tokeniser, plan)


def _embed_parts(encoder: Path, run: Run, todo: list[Part], folder: Path, workers: int) -> Iterator[PartReport]:
    """Reports in the order in which parts get done; progress goes to the user."""
    if not todo:
        return
    count = min(workers, len(todo))
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_TRIES - 1)(PartWorker)
    pool: list[Any] = [actor.remote(str(encoder.absolute()), run.encoder) for _ in range(count)]
    progress = Progress(run.plan.rows, run.plan.rows - sum(part.rows for part in todo))
    # A slot is a call under way. An actor gets parts once it has answered, so one that finds no CPU holds up nothing.
    slots = {worker.ready.remote(): worker for worker in pool for _ in range(_IN_FLIGHT)}
    parts = _with_data(run.plan, todo)
    left, warn_at = len(todo), time.monotonic() + _WARN_SECONDS
    try:
        while left:
            done, _ = ray.wait(list(slots), num_returns=1, timeout=1.0)
            if done:
                warn_at = math.inf
            elif time.monotonic() > warn_at:
                warn_at = time.monotonic() + _WARN_SECONDS
                free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
                log.warning("no worker has started yet: each needs a CPU, and the cluster has %g free", free)
            for ref in done:
                worker = slots.pop(ref)
                report = _result(ref)
                if report is None:
                    progress.begin()
                else:
                    left -= 1
                    progress.add(report.rows)
                    yield report
                following = next(parts, None)
                if following is not None:
                    source, part, data = following
                    call = worker.embed.remote(source, part, run.plan.settings, str(folder.absolute()), data)
                    slots[call] = worker
            progress.show()
    finally:
        progress.close()
        for call in slots:
            ray.cancel(call)  # so that the kill is no reason to try again, and to say so
        for worker in pool:
            ray.kill(worker)


def _with_data(plan: Plan, todo: list[Part]) -> Iterator[tuple[InputFile, Part, bytes | None]]:
    """Parts with their input file, and with their text where the file is gzipped: read here, once, as they are due."""
    for number, parts in groupby(todo, key=lambda part: part.file):
        source = plan.inputs[number]
        if source.is_chain:
            yield from ((source, part, data) for part, data in stream_parts(source, list(parts)))
        else:
            yield from ((source, part, None) for part in parts)


def _result(ref: Any) -> PartReport | None:
    try:
        report: PartReport | None = ray.get(ref)
    except (RayActorError, OutOfMemoryError) as error:
        raise ChildProcessError(
            f"a worker died {_TRIES} times on one part, out of memory perhaps; parts that are done stay: run the same "
            f"command again, with fewer --workers ({str(error).splitlines()[0]})"
        ) from None
    return report


class Progress:
    """Rows done, as a line for the user."""

    def __init__(self, total: int, before: int) -> None:
        self._total, self._done, self._before = total, before, before
        self._started = time.monotonic()
        self._line = ProgressLine(_PLAIN_SECONDS)

    def begin(self) -> None:
        """The first worker is ready: its start does not count as slow rows."""
        if self._done == self._before:
            self._started = time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows."""
        self._done += rows

    def show(self) -> None:
        """Show the line, when it is due."""
        self._line.show(self.line(time.monotonic() - self._started))

    def line(self, seconds: float) -> str:
        """For example ``300,000 of 718,769 rows  42%  98,000 rows/s  4 s left``."""
        rate = (self._done - self._before) / max(seconds, 1e-9)
        left = f"{(self._total - self._done) / rate:,.0f} s left" if rate else "starting"
        return f"{self._done:,} of {self._total:,} rows  {self._done / self._total:.0%}  {rate:,.0f} rows/s  {left}"

    def close(self) -> None:
        """End the line."""
        self._line.close()


def _say_plan(plan: Plan, todo: list[Part], workers: int, out: Path) -> None:
    done = len(plan.parts) - len(todo)
    before = f"; {done} of them are done already" if done else ""
    say(f"{plan.rows:,} rows in {len(plan.parts)} parts to {out}, workers: {min(workers, len(todo))}{before}")


def _say_losses(written: dict[str, Any], max_tokens: int | None) -> None:
    """What the vectors do not know of their rows."""
    rows = f"of {written['rows']:,} rows"
    if written["n_cut"]:
        say(f"{written['n_cut']:,} {rows} have more than max_tokens = {max_tokens} tokens; what follows was not read")
    if written["n_without_tree"]:
        say(f"{written['n_without_tree']:,} {rows} came without a parse; right-branching trees stand in for theirs")


def _params(run: Run, workers: int) -> dict[str, Any]:
    listing = manifest.listing_digest(run.plan.inputs)
    return {"encoder": run.encoder, "inputs": listing, "settings": asdict(run.plan.settings), "workers": workers}


def _stamps(paths: list[Path]) -> list[tuple[int, int]]:
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.exists()]
