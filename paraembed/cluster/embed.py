"""Embed files on Ray: plan, parts by actors, commit. Ray schedules; the folder's manifest says what is done."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.cluster.embed_parts import embed_parts
from paraembed.cluster.embed_tracking import describe, record
from paraembed.cluster.job import print_table, say
from paraembed.cluster.progress import duration
from paraembed.cluster.session import check_workers, ray_session
from paraembed.cluster.tracking import tracked_run
from paraembed.embedding import manifest
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.estimate import estimate
from paraembed.embedding.inputs import InputFile, list_inputs, stamps
from paraembed.embedding.manifest import OnDuplicateId, Run
from paraembed.embedding.part import REJECTED, REPORTS, PartReport, rejected_name
from paraembed.embedding.plan import Part, Plan, make_plan
from paraembed.embedding.settings import Settings, check_dim
from paraembed.embedding.swap import discard, fresh_folder, swap
from paraembed.embedding.worker import Done, Weights
from paraembed.encoders import Encoder
from paraembed.encoders.base import reads_trees
from paraembed.files import locked

_STORES = {"s3:", "gs:", "gcs:", "abfs:", "abfss:", "hdfs:", "http:", "https:"}  # a path has one "/" of a URI's two


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


@dataclass(frozen=True)
class Limits:
    """What stops a run though every part can be embedded; the bytes do not depend on it.

    Attributes:
        max_rejected: most rows that may be unreadable; None: any number.
        on_duplicate_id: whether an id that is null or stands twice is to ``fail`` or be kept, and counted.
    """

    max_rejected: int | None = None
    on_duplicate_id: OnDuplicateId = "fail"


def embed(
    encoder: Path,
    inputs: Sequence[str | Path],
    out: Path,
    settings: Settings,
    *,
    workers: int = 2,
    overwrite: bool = False,
    limits: Limits = Limits(),
) -> Outcome:
    """Embed input files into the folder ``out``, or go on where an earlier run stopped.

    Args:
        encoder: encoder folder.
        inputs: files, folders, globs or URIs; rows are numbered in this order.
        out: output folder: new, empty, or begun by the same command.
        settings: columns, kind of numbers, sizes.
        workers: actors, a CPU each.
        overwrite: embed everything again, beside ``out``, and put it into place at the end.
        limits: what stops the run.

    Raises:
        ValueError, OSError: the inputs, the encoder or ``out`` will not do; nothing was changed then. Or an input
            turned out bad in the middle, or a limit was passed; parts that are done stay.
    """
    started = time.perf_counter()
    loaded, files, settings = _prepared(encoder, inputs, out, settings, workers)
    if limits.max_rejected is not None and limits.max_rejected < 0:
        raise ValueError(f"--max-rejected is {limits.max_rejected}; it must be at least 0")
    before = stamps(files)
    folder = fresh_folder(out) if overwrite else out
    run = _run(folder, loaded, files, settings, overwrite)
    with ExitStack() as held:
        if overwrite and out.exists():
            held.enter_context(locked(out))
        reports = held.enter_context(manifest.begun_run(folder, run))
        todo = [part for part in run.plan.parts if part.name not in reports]
        if not todo and manifest.is_committed(folder) and not overwrite:
            rows = sum(report.rows for report in reports.values())
            say(f"{out} is finished already, {rows:,} rows; nothing to do")
            return Outcome(rows, len(run.plan.parts), 0, was_finished=True)
        _say_plan(run.plan, todo, workers, out)
        manifest.uncommit(folder)
        tries, peaks = Counter[str](), [0]
        memo, spool = folder / REPORTS / "run.json", out.with_name(f"{out.name}.mlflow.jsonl")
        session = ray_session(workers) if todo else nullcontext()
        with tracked_run(f"embed {out.name}", out, memo, spool) as tracked, session:
            describe(tracked, encoder, run, workers)
            with closing(embed_parts(Weights.of(loaded), run, todo, folder, workers, tries)) as made:
                for report in _within(limits, settings, folder, reports.values(), _reports(made, peaks)):
                    reports[report.name] = report
            if stamps(files) != before:
                raise ValueError("an input changed while it was embedded; start afresh with --overwrite")
            written = manifest.commit(folder, run, reports, limits.on_duplicate_id)
            if overwrite:
                swap(folder, out)
            rate = sum(part.rows for part in todo) / (time.perf_counter() - started)
            record(tracked, out, written, reports.values(), rate, max(peaks), tries.total())
    _say_losses(written, loaded.max_tokens, out)
    return Outcome(written["rows"], len(run.plan.parts), len(todo))


def dry_run(
    encoder: Path,
    inputs: Sequence[str | Path],
    out: Path,
    settings: Settings,
    *,
    workers: int = 2,
    price_per_hour: float | None = None,
) -> None:
    """Print what ``embed`` would take, from two seconds of it; nothing is written.

    Raises:
        ValueError, OSError: as ``embed``.
    """
    loaded, files, settings = _prepared(encoder, inputs, out, settings, workers)
    found = estimate(loaded, make_plan(files, settings), workers)
    lines = [
        ("rows", f"{found.rows:,}"),
        ("parts", f"{found.parts:,}"),
        ("bytes", f"{found.size:,}"),
        ("rows/s", f"{found.rows_per_second:,.0f}"),
        ("time", duration(found.seconds)),
    ]
    if price_per_hour is not None:
        lines.append(("cost", f"{price_per_hour * found.seconds / 3600:,.4f}"))
    print_table(("estimate", f"{workers} workers"), lines)
    say(f"measured on {found.probed:,} rows, on one thread here; a worker needs a core of its own for as much")


def _prepared(
    encoder: Path, inputs: Sequence[str | Path], out: Path, settings: Settings, workers: int
) -> tuple[Encoder, tuple[InputFile, ...], Settings]:
    """The encoder, the input files, and the settings with what follows from both; all are checked."""
    check_workers(workers)
    if not _STORES.isdisjoint(out.parts):
        raise ValueError(f"--out {out} is in an object store; give a folder on a disk that all workers reach")
    manifest.check_folder(out)
    loaded = checkpoint.load(encoder)
    check_dim(settings, loaded.width)
    files = list_inputs(inputs)
    _check_apart(inputs, files, out)
    return loaded, files, complete_settings(settings, files, reads_trees(loaded.config))


def _check_apart(inputs: Sequence[str | Path], files: Sequence[InputFile], out: Path) -> None:
    """Raise ValueError where output and inputs lie in each other: a run would take its own parts for input."""
    there = out.resolve()
    for asked in inputs:
        folder = Path(str(asked).partition("**")[0])
        if "://" not in str(asked) and folder.is_dir() and there.is_relative_to(folder.resolve()):
            raise ValueError(f"--out {out} lies in the input {asked}; choose a folder beside it")
    for file in files:
        if isinstance(file.place, Path) and file.place.resolve().is_relative_to(there):
            raise ValueError(f"the input {file.place} lies in --out {out}; choose another --out")


def _run(folder: Path, encoder: Encoder, files: tuple[InputFile, ...], settings: Settings, overwrite: bool) -> Run:
    """The run to go on with, or a new one; ``--overwrite`` goes on only with what an equal ``--overwrite`` began."""
    decides = encoder.fingerprint, encoder.tokeniser
    if manifest.check_folder(folder):
        try:
            return Run(*decides, manifest.continued_plan(folder, *decides, files, settings))
        except ValueError:
            if not overwrite:
                raise
    plan = make_plan(files, settings)
    if overwrite and folder.exists():
        with locked(folder):
            discard(folder)
    return Run(*decides, plan)


def _reports(made: Iterable[Done], peaks: list[int]) -> Iterator[PartReport]:
    """The reports of parts; how much memory their workers held goes to ``peaks``."""
    for done in made:
        peaks.append(done.peak_memory)
        yield done.report


def _within(
    limits: Limits, settings: Settings, folder: Path, before: Iterable[PartReport], made: Iterator[PartReport]
) -> Iterator[PartReport]:
    """Reports, those of earlier runs first, until one passes a limit."""
    rejected = 0
    for report in chain(list(before), made):
        rejected += report.n_rejected
        if limits.max_rejected is not None and rejected > limits.max_rejected:
            raise ValueError(
                f"{rejected:,} rows cannot be read, --max-rejected is {limits.max_rejected}; the reasons are in "
                f"{folder / rejected_name(report.name)}: mend the input, or go on from the finished parts "
                "with a larger --max-rejected"
            )
        if report.n_null_ids and limits.on_duplicate_id == "fail":
            raise ValueError(
                f"{report.null_id}: {settings.id_column!r} is null; an id is needed: mend the input, or go on from the "
                "finished parts with --on-duplicate-id keep"
            )
        yield report


def _say_plan(plan: Plan, todo: list[Part], workers: int, out: Path) -> None:
    done = len(plan.parts) - len(todo)
    before = f"; {done} of them are done already" if done else ""
    say(f"{plan.rows:,} rows in {len(plan.parts)} parts to {out}, workers: {min(workers, len(todo))}{before}")
    parts = Counter(part.file for part in plan.parts)
    for number in dict.fromkeys(part.file for part in todo):
        if plan.inputs[number].is_chain and parts[number] > 1:
            say(f"{plan.inputs[number].shown} is compressed: one reader inflates it, from its start")


def _say_losses(written: dict[str, Any], max_tokens: int | None, out: Path) -> None:
    """What the vectors do not know of their rows, and rows that have none."""
    rows = f"of {written['rows']:,} rows"
    for name, what in (
        ("n_cut", f"{rows} have more than max_tokens = {max_tokens} tokens; what follows was not read"),
        ("n_without_tree", f"{rows} came without a parse; right-branching trees stand in for theirs"),
        ("n_replaced", f"{rows} were not UTF-8; U+FFFD stands for the bytes that were not"),
        ("n_clipped", f"{rows} have numbers outside float16; they were clipped to ±65504"),
        ("n_null_ids", f"{rows} have no id"),
        ("n_duplicate_ids", f"{rows} repeat the id of another"),
        ("n_rejected", f"rows of the input could not be read; the reasons are in {out / REJECTED}"),
    ):
        if written[name]:
            say(f"{written[name]:,} {what}")
