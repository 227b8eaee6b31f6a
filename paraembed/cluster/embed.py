"""Embed files on Ray: plan, parts by actors, commit. Ray schedules; the folder's manifest says what is done."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.cluster.embed_parts import embed_parts, started_workers
from paraembed.cluster.session import ray_session
from paraembed.console import doing, duration, print_table, say
from paraembed.embedding import manifest
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.estimate import estimate
from paraembed.embedding.inputs import InputFile, changed_inputs, check_apart, list_inputs
from paraembed.embedding.manifest import Run
from paraembed.embedding.part import REJECTED, PartReport, rejected_name
from paraembed.embedding.plan import Part, Plan, make_plan, part_name
from paraembed.embedding.settings import DEFAULT_LIMITS, Limits, Settings, check_dim
from paraembed.embedding.store import Folder, Store, is_there, open_store, read_json
from paraembed.embedding.swap import discard, fresh_folder, swap, sweep
from paraembed.embedding.worker import Done, Weights
from paraembed.encoders import Encoder
from paraembed.io.atomic import locked
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.io.places import Place
from paraembed.settings import check_workers
from paraembed.stops import RunFailedError
from paraembed.tracking.spool import spool_path


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
    encoder: Path,
    inputs: Sequence[str | Path],
    out: Place,
    settings: Settings,
    *,
    workers: int = 2,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Outcome:
    """Embed input files into ``out``, or go on where an earlier run stopped.

    Args:
        encoder: encoder folder.
        inputs: files, folders, globs or URIs; rows are numbered in this order.
        out: output folder, or URI of one on an object store: new, empty, or begun by the same command.
        settings: columns, kind of numbers, sizes.
        workers: actors, a CPU each.
        overwrite: embed everything again, beside ``out``, and put it into place at the end; for folders alone.
        limits: what stops the run.

    Raises:
        ValueError, OSError: the inputs, the encoder or ``out`` will not do; nothing was changed then. Or an input
            turned out bad in the middle, or a limit was passed; parts that are done stay.
    """
    started = time.perf_counter()
    home = open_store(out)
    if overwrite and not isinstance(home, Folder):
        raise ValueError(
            f"`overwrite` cannot put a new output into the place of {home} in one step; give a new `out`, or remove "
            "what is there"
        )
    loaded, files, settings = _prepared(encoder, inputs, home, settings, workers, limits.reading)
    if limits.max_rejected is not None and limits.max_rejected < 0:
        raise ValueError(f"`max_rejected` is {limits.max_rejected}; it must be at least 0")
    replaced = home if overwrite and isinstance(home, Folder) else None
    store: Store = Folder(fresh_folder(replaced.path)) if replaced else home
    doing("planning the parts")
    run = _run(store, loaded, files, settings, overwrite)
    with ExitStack() as held:
        is_held = replaced is not None and _hold(held, replaced)
        reports = held.enter_context(manifest.begun_run(store, run))
        todo = [part for part in run.plan.parts if part.name not in reports]
        if not todo and not replaced and manifest.is_finished(store, reports):
            rows = sum(report.rows for report in reports.values())
            _clear_up(store, encoder, run, reports, workers)
            say(f"{home} is finished already, {rows:,} rows; nothing to do")
            return Outcome(rows, len(run.plan.parts), 0, was_finished=True)
        _say_plan(run.plan, todo, workers, home)
        manifest.uncommit(store)
        tries, peaks = Counter[str](), [0]
        pool = None
        if todo:
            held.enter_context(ray_session(workers))
            pool = held.enter_context(started_workers(Weights.of(loaded), min(workers, len(todo))))
        # MLflow takes seconds to import and to open; the workers start meanwhile.
        from paraembed.cluster.embed_tracking import describe, record, recorded  # noqa: PLC0415

        with recorded(store, home) as into:
            describe(into.tracked, encoder, run, workers)
            if pool is not None:
                made = held.enter_context(closing(embed_parts(pool, run, todo, store.place, tries)))
                for report in _within(limits, settings, store, reports.values(), _reports(made, peaks)):
                    reports[report.name] = report
            if changed := changed_inputs(files):
                remedy = "`overwrite`" if isinstance(home, Folder) else "another `out`"
                raise RunFailedError(f"{changed[0].shown} changed while it was embedded; start over with {remedy}")
            doing("checking and committing the parts")
            written = manifest.commit(store, run, reports, limits.on_duplicate_id)
            measured = {
                "rows_per_second": sum(part.rows for part in todo) / (time.perf_counter() - started),
                "peak_worker_memory_bytes": max(peaks),
                "parts_retried": tries.total(),
            }
            if replaced:
                if not is_held:
                    _hold(held, replaced)  # another run may have begun there meanwhile
                swap(Path(store.place), replaced.path)
            record(replace(into, store=home), written, reports.values(), measured)
    _say_losses(written, loaded.max_tokens, home)
    _say_multi_line(run.plan, reports)
    return Outcome(written["rows"], len(run.plan.parts), len(todo))


def _hold(held: ExitStack, folder: Folder) -> bool:
    """Keep other runs from a folder until ``held`` ends; False where there is none."""
    try:
        held.enter_context(locked(folder.path))
    except FileNotFoundError:
        return False
    return True


def dry_run(
    encoder: Path,
    inputs: Sequence[str | Path],
    out: Place,
    settings: Settings,
    *,
    workers: int = 2,
    price_per_hour: float | None = None,
    reading: TableLimits = DEFAULT_TABLE_LIMITS,
) -> None:
    """Print what ``embed`` would take, from two seconds of it; nothing is written.

    Raises:
        ValueError, OSError: as ``embed``.
    """
    if price_per_hour is not None and not 0 <= price_per_hour < math.inf:
        raise ValueError(f"`price_per_hour` is {price_per_hour}; give a number from 0 on")
    loaded, files, settings = _prepared(encoder, inputs, open_store(out), settings, workers, reading)
    doing("planning the parts, embedding a sample")
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
    encoder: Path, inputs: Sequence[str | Path], home: Store, settings: Settings, workers: int, reading: TableLimits
) -> tuple[Encoder, tuple[InputFile, ...], Settings]:
    """The encoder, the input files, and the settings with what follows from both; all are checked."""
    check_workers(workers)
    manifest.check_folder(home)
    doing(f"reading {encoder.name}")
    loaded = checkpoint.load(encoder)
    check_dim(settings, loaded.width)
    doing("finding the input files")
    files = list_inputs(inputs, reading, _show_files)
    check_apart(inputs, files, home.path if isinstance(home, Folder) else home.place, part_name(0, 1))
    return loaded, files, complete_settings(settings, files, loaded.config.reads_trees)


def _show_files(done: int, total: int) -> None:
    doing(f"hashing the input files, {done:,} of {total:,} done")


def _clear_up(store: Store, encoder: Path, run: Run, reports: dict[str, PartReport], workers: int) -> None:
    """Do what a run had left to do that was killed between its commit and its end."""
    if isinstance(store, Folder):
        sweep(store.path)
    if is_there(store, manifest.MEMO) and not is_there(store, manifest.RECORDED):
        from paraembed.cluster.embed_tracking import describe, record, recorded  # noqa: PLC0415

        with recorded(store, store) as into:
            describe(into.tracked, encoder, run, workers)
            value = read_json(store, manifest.MANIFEST, most_bytes=manifest.MOST_JSON_BYTES)
            record(into, value, reports.values(), {})
    out = store.path if isinstance(store, Folder) else Path.cwd() / store.name
    if spool_path(out).is_file():
        from paraembed.tracking.runs import send_left  # noqa: PLC0415

        send_left(out)


def _run(store: Store, encoder: Encoder, files: tuple[InputFile, ...], settings: Settings, overwrite: bool) -> Run:
    """Return the run to resume, or a new one; ``overwrite`` resumes only what an equal ``overwrite`` began."""
    decides = encoder.fingerprint, encoder.tokenizer
    if manifest.check_folder(store):
        try:
            return Run(*decides, manifest.continued_plan(store, *decides, files, settings))
        except ValueError:
            if not overwrite:
                raise
    plan = make_plan(files, settings)
    if overwrite and isinstance(store, Folder) and store.path.exists():
        with locked(store.path):
            discard(store.path)
    return Run(*decides, plan)


def _reports(made: Iterable[Done], peaks: list[int]) -> Iterator[PartReport]:
    """The reports of parts; how much memory their workers held goes to ``peaks``."""
    for done in made:
        peaks.append(done.peak_memory)
        yield done.report


def _within(
    limits: Limits, settings: Settings, store: Store, before: Iterable[PartReport], made: Iterator[PartReport]
) -> Iterator[PartReport]:
    """Reports, those of earlier runs first, until one passes a limit."""
    rejected = 0
    for report in chain(list(before), made):
        rejected += report.n_rejected
        if limits.max_rejected is not None and rejected > limits.max_rejected:
            raise RunFailedError(
                f"{rejected:,} rows cannot be read, `max_rejected` is {limits.max_rejected}; the reasons are in "
                f"{store}/{rejected_name(report.name)}: mend the input, or go on from the finished parts "
                "with a larger `max_rejected`"
            )
        if report.n_null_ids and limits.on_duplicate_id == "fail":
            raise RunFailedError(
                f"{report.null_id}: {settings.id_column!r} is null; an id is needed: mend the input, or go on from the "
                "finished parts with `on_duplicate_id` keep"
            )
        yield report


def _say_plan(plan: Plan, todo: list[Part], workers: int, home: Store) -> None:
    done = len(plan.parts) - len(todo)
    before = f"; {done} of them are done already" if done else ""
    say(f"{plan.rows:,} rows in {len(plan.parts)} parts to {home}, workers: {min(workers, len(todo))}{before}")
    parts = Counter(part.file for part in plan.parts)
    for number in dict.fromkeys(part.file for part in todo):
        if plan.inputs[number].is_chain and parts[number] > 1:
            say(f"{plan.inputs[number].shown} is compressed: one reader inflates it, from its start")


def _say_losses(written: dict[str, Any], max_tokens: int | None, home: Store) -> None:
    """What the vectors do not know of their rows, and rows that have none."""
    rows = f"of {written['rows']:,} rows"
    for name, what in (
        ("n_cut", f"{rows} have more than max_tokens = {max_tokens} tokens; what follows was not read"),
        ("n_without_tree", f"{rows} came without a parse; right-branching trees stand in for theirs"),
        ("n_replaced", f"{rows} were not UTF-8; U+FFFD stands for the bytes that were not"),
        ("n_clipped", f"{rows} have numbers outside float16; they were clipped to ±65504"),
        ("n_null_ids", f"{rows} have no id"),
        ("n_duplicate_ids", f"{rows} repeat the id of another"),
        ("n_rejected", f"rows of the input could not be read; the reasons are in {home}/{REJECTED}"),
    ):
        if written[name]:
            say(f"{written[name]:,} {what}")


def _say_multi_line(plan: Plan, reports: dict[str, PartReport]) -> None:
    """How many rows of CSV have line breaks in their cells: two stray quotes can join many lines to one legal row."""
    num_rows = sum(report.n_multi_line for report in reports.values())
    if not num_rows:
        return
    part = max(plan.parts, key=lambda part: reports[part.name].longest_lines)
    longest = reports[part.name]
    say(
        f"{num_rows:,} rows have line breaks inside of quoted cells; the longest has {longest.longest_lines:,} lines "
        f"and begins in {plan.inputs[part.file].shown}, line {longest.longest_first:,}: if its quotes are stray, mend "
        "them or give a smaller `max_field_lines`"
    )
