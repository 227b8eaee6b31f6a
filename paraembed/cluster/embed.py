"""Embed files: plan, embed parts in this process or in actors of Ray, commit. Whatever embeds them, the reports in the
output record which parts are done, so one engine finishes the run of the other.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paraembed.checkpoint import KnownEncoder
from paraembed.cluster.tasks import Tasks, has_ray, is_local
from paraembed.console import doing, say, shown_status
from paraembed.embedding import manifest
from paraembed.embedding.append import Step, finish_append, steps
from paraembed.embedding.cache import Cache, open_cache, trim
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.commit import commit, uncommit
from paraembed.embedding.estimate import given_inputs, prepared, seconds_here, seconds_of_gpus, threads_here, workers_of
from paraembed.embedding.identity import changed_inputs
from paraembed.embedding.inputs import InputFile, check_apart, check_faults, readable
from paraembed.embedding.local import embed_here
from paraembed.embedding.manifest import EmbeddingRun
from paraembed.embedding.part import BAD_FILES, REJECTED, Done, PartReport, rejected_name, shown_row
from paraembed.embedding.plan import DATA, IN_GROUPS, NO_PARTS, NoRowsError, Parts, Plan, Planner, part_name
from paraembed.embedding.records import Reports
from paraembed.embedding.replace import discard, remove_previous, replace_output, staging_folder
from paraembed.embedding.rows import streams_of_workers
from paraembed.embedding.settings import DEFAULT_LIMITS, Identity, Limits, Settings
from paraembed.embedding.status import error_kept
from paraembed.encoders.protocol import TextEncoder
from paraembed.io.atomic import SUCCESS, locked
from paraembed.io.places import Place
from paraembed.io.resume import cannot_overwrite
from paraembed.io.store import Folder, Store, is_there, open_store
from paraembed.loading import known_encoder, open_encoder
from paraembed.process import RunTasks
from paraembed.settings import CACHE_GB, DEFAULT_GPUS, DEFAULT_INFERENCE, Engine, Gpus, Inference
from paraembed.signals import RunFailedError
from paraembed.tracking.fetch import fetch_encoder
from paraembed.tracking.records import record_path

if TYPE_CHECKING:
    from paraembed.cluster.embed_pool import WorkerPool

_MANY_UNKNOWN = 0.05
_EARLY_BYTES = 1e9  # of texts, which take two seconds to plan; Ray and its workers start in the meantime
_MANY_BYTES = 20e9  # of inputs, for which threads of one machine take 20 s to plan
_REASONS_BYTES = 1 << 20  # of the rejected rows of a part, to find the most frequent reason


@dataclass(frozen=True)
class EmbeddingResult:
    """Result of ``embed``.

    Attributes:
        rows: rows of the output.
        table: folder of the Parquet files, or its URI.
        parts: parts of the output.
        embedded: parts that this run embedded; earlier runs embedded the others.
        was_finished: whether nothing was left to do.
        added: rows of the generations that this run added to a finished output.
        bad_files: input files that were left out, see ``Limits.max_bad_files``.
        cached: texts that took the vector of an earlier run from the cache.
    """

    rows: int
    table: str
    parts: int
    embedded: int
    was_finished: bool = False
    added: int = 0
    bad_files: int = 0
    cached: int = 0


def embed(
    encoder: str | Path,
    inputs: Sequence[str | Path],
    out: Place,
    settings: Settings,
    *,
    workers: int = 2,
    engine: Engine = "auto",
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    inference: Inference = DEFAULT_INFERENCE,
    gpus: Gpus = DEFAULT_GPUS,
    loaded: TextEncoder | None = None,
    identity: Identity = "stamp",
    append: bool = False,
    cache: Place | None = None,
    cache_gb: float = CACHE_GB,
) -> EmbeddingResult:
    """Embed input files into ``out``, or resume a run that the same call began there; the arguments are those of
    ``paraembed.embed``, and ``loaded`` is the encoder of that name, if it is open already.

    Raises:
        ValueError, OSError: the inputs, the encoder or ``out`` cannot be used; then nothing is changed. Or an input is
            damaged, or a limit is exceeded; then finished parts are kept.
    """
    home = open_store(out)
    if overwrite and append:
        raise ValueError("`overwrite` and `append` are both given; give only one of them")
    if overwrite and not isinstance(home, Folder):
        raise cannot_overwrite(home)
    is_begun = manifest.check_folder(home)
    if is_begun and manifest.is_append_begun(home):
        with home.held():
            finish_append(home)
    files = given_inputs(inputs, home, settings, limits, identity)
    todo = [Step(files)] if overwrite else steps(home, files, settings, append=append)
    job = _Job(str(encoder), home, workers, engine, overwrite, limits, gpus, identity)
    known = lru_cache(1)(partial(known_encoder, job.encoder, inference, partial(manifest.encoder_of, home)))
    if not todo:
        of_run = known()
        if of_run is None:
            loaded = loaded or open_encoder(str(encoder), gpus.on(inference), fetch_encoder)
            of_run = KnownEncoder(loaded.fingerprint, loaded.tokenizer, loaded.identity)
        _check_same_run(home, of_run, files, settings)
    is_quick = is_begun and not (overwrite or loaded) and gpus == DEFAULT_GPUS and is_there(home, SUCCESS)
    was_finished, counts = True, Counter[str]()
    for step in todo:
        if is_quick and not step.is_next and _is_finished_before(job, inputs, known, settings, step):
            continue
        loaded, complete = prepared(
            loaded or encoder, inputs, step.files, home, settings, workers, gpus.on(inference), fetch_encoder
        )
        opened = None if cache is None else open_cache(cache, loaded, cache_gb)
        if (done := _embed_step(job, loaded, complete, step, opened)) is not None:
            was_finished, counts = False, counts + done
    written = manifest.known_manifest(home)
    generations, rows = written.get("generations"), written["rows"]
    num_parts = sum(generation["parts"] for generation in generations) if generations else len(written["parts"])
    if was_finished:
        _clear_up(home)
        say(f"{home} is already finished, {rows:,} rows; nothing to do")
    table, num_bad = f"{home}/{DATA}" if generations else str(home), written.get("n_bad_files", 0)
    options = {"was_finished": was_finished, "bad_files": num_bad, "added": counts["added"], "cached": counts["cached"]}
    return EmbeddingResult(rows, table, num_parts, counts["embedded"], **options)


@dataclass(frozen=True)
class _Job:
    """Arguments of ``embed`` that decide how its generations are embedded."""

    encoder: str
    home: Store
    workers: int
    engine: Engine
    overwrite: bool
    limits: Limits
    gpus: Gpus
    identity: Identity


def _check_same_run(home: Store, encoder: KnownEncoder, files: tuple[InputFile, ...], settings: Settings) -> None:
    """Raise ValueError if a finished output is of another encoder or other settings, or lacks a part."""
    stored = manifest.read_run(home)
    new = replace(stored, encoder=encoder.fingerprint, identity=encoder.identity)
    complete = complete_settings(settings, readable(files), reads_trees=stored.plan.settings.tree_column is not None)
    manifest.columns_to_add(home, replace(new, plan=replace(stored.plan, settings=complete)))
    present = dict(home.stamps(f"{DATA}/"))
    for part in manifest.read_manifest(home)["parts"]:
        if part["name"] not in present:
            raise ValueError(f"{home}/{part['name']} is missing; give all inputs without `append`, or start over")


def _embed_step(
    job: _Job, loaded: TextEncoder, settings: Settings, step: Step, cache: Cache | None
) -> Counter[str] | None:
    """Do as ``_embed``, but return None for new files without rows, such as a table that is only a header."""
    try:
        return _embed(job, loaded, settings, step, cache)
    except NoRowsError as error:
        if not step.is_next:
            raise
        say(str(error))
        return None


def _embed(job: _Job, loaded: TextEncoder, settings: Settings, step: Step, cache: Cache | None) -> Counter[str] | None:
    """Embed the files of a generation; return counts of parts, rows and cached texts, None if it was finished."""
    home, limits = job.home, job.limits
    started = time.perf_counter()
    (workers, gpu_share), feeders = workers_of(loaded, job.workers, job.gpus), threads_here(loaded, job.gpus)
    replaced = home if job.overwrite and isinstance(home, Folder) else None
    added_to = home if step.is_next else None
    store: Store = Folder(staging_folder(replaced.path)) if replaced else home
    with ExitStack() as stack:
        doing("planning the parts")
        plan = Plan(step.files, settings, generation=step.generation)
        unplanned = EmbeddingRun(loaded.fingerprint, loaded.tokenizer, plan, loaded.identity, cache=cache)
        columns = _columns_to_add(stack, added_to, unplanned) if added_to else None
        store = added_to.below(manifest.NEXT) if added_to else store
        stack.enter_context(shown_status())  # for callers from Python
        tries, of_pool = Counter[str](), (loaded, workers, gpu_share, job.gpus.cpus_per_gpu)
        run, early = _run(stack, job, unplanned, store, columns, of_pool, tries)
        is_held, peak = replaced is not None and _hold(stack, replaced), 0
        begun = manifest.begun_run(store, run, is_early=early is not None, by_content=job.identity == "sha256")
        reports = stack.enter_context(begun)
        todo = run.plan.parts.without(reports.names)
        if not (todo or replaced or added_to) and _is_committed(store, job.encoder, run, reports, workers):
            return None
        is_here = early is None and (not todo or _is_here(job, loaded, run, todo, workers, gpu_share))
        _say_plan(run.plan, todo, 0 if is_here else workers, home, loaded)
        uncommit(store, job.encoder)
        here = embed_here(loaded, run, todo, store, threads=feeders) if is_here else None
        done_now = here or early or _in_workers(stack, of_pool, run, todo, store, tries)
        from paraembed.cluster.embed_tracking import describe, record, recorded  # noqa: PLC0415

        with error_kept(added_to or store), recorded(store, home) as into:
            describe(into.tracked, job.encoder, run, workers)
            before = (Done(report, peak_memory=0) for report in reports)
            new = stack.enter_context(closing(done_now))
            for number, part in enumerate(_within(limits, run.plan, store, chain(before, new))):
                if number >= len(run.plan.parts) - len(todo):
                    reports.add(part.report)
                peak = max(peak, part.peak_memory)
            _check_inputs(step.files, run.plan, home)
            doing("checking and committing the parts")
            on_duplicate_id, run_tasks = limits.on_duplicate_id, Tasks(is_here, workers).run
            written = commit(store, run, reports, on_duplicate_id, run_tasks, added_to)
            measured = {
                "rows_per_second": int(todo.rows.sum()) / (time.perf_counter() - started),
                "peak_worker_memory_bytes": peak,
                "parts_retried": tries.total(),
                "n_cached": reports.sum("n_cached"),
                **_cosine_of_bfloat16(loaded),
            }
            if added_to:
                finish_append(home)
            if replaced:
                is_held = is_held or _hold(stack, replaced)  # raises if another run has begun there
                replace_output(Path(store.place), replaced.path)
            record(replace(into, store=home), written, reports, measured)
    _say_losses(written, loaded.max_tokens, home, run.plan, reports)
    if cache is not None:
        trim(cache)
        say(f"{measured['n_cached']:,} texts took their vectors from the cache")
    added = reports.sum("rows") if added_to else 0
    return Counter(embedded=len(todo), added=added, cached=int(measured["n_cached"]))


def _cosine_of_bfloat16(encoder: TextEncoder) -> dict[str, float]:
    least: float | None = getattr(encoder, "least_cosine", None)
    return {} if least is None else {"least_cosine_of_bfloat16": least}


def _columns_to_add(stack: ExitStack, home: Store, run: EmbeddingRun) -> pa.Schema:
    """Lock an output until ``stack`` ends, and return its columns, to which a run adds a generation."""
    stack.enter_context(home.held())
    if run.plan.generation != 1 + max(manifest.planned(home)):
        raise RunFailedError(f"{home} was changed by another command meanwhile; run the same command again")
    return manifest.columns_to_add(home, run)


def _is_finished_before(
    job: _Job, inputs: Sequence[str | Path], known: Callable[[], KnownEncoder | None], settings: Settings, step: Step
) -> bool:
    """Return whether the output is known to be finished without opening the encoder, which takes seconds."""
    if job.identity != "stamp" or _is_unrecorded(job.home):
        return False
    if (encoder := known()) is None:
        return False
    check_apart(inputs, step.files, job.home, part_name(0))
    complete = complete_settings(settings, readable(step.files), reads_trees=False)
    plan = Plan(step.files, complete, generation=step.generation)
    run = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan, encoder.identity)
    if not manifest.has_finished(job.home, run):
        return False
    _say_bad_files(step.files, job.home)
    return True


def _clear_up(store: Store) -> None:
    """Finish a run that was killed after its commit."""
    if isinstance(store, Folder):
        remove_previous(store.path)
    out = store.path if isinstance(store, Folder) else Path.cwd() / store.name
    if record_path(out).is_file():
        from paraembed.tracking.runs import send_left  # noqa: PLC0415

        send_left(out)


def _say_bad_files(inputs: Sequence[InputFile], home: Store) -> None:
    """Report the input files that were left out."""
    if num_bad := len(inputs) - len(readable(inputs)):
        files = f"{num_bad:,} of {len(inputs):,} input files"
        say(f"{files} could not be read and were left out; the reasons are in {home}/{BAD_FILES}")


def _check_inputs(files: Sequence[InputFile], plan: Plan, home: Store) -> None:
    """Raise RunFailedError if an input changed since the start of this run."""
    planned = zip(files, plan.inputs, strict=True)
    if changed := changed_inputs([replace(file, sha256=before.sha256) for file, before in planned]):
        remedy = "`overwrite`" if isinstance(home, Folder) else "another `out`"
        raise RunFailedError(f"{changed[0].shown} changed while it was embedded; start over with {remedy}")


def _hold(stack: ExitStack, folder: Folder) -> bool:
    """Lock a folder until ``stack`` ends; return False if it does not exist."""
    try:
        stack.enter_context(locked(folder.path))
    except FileNotFoundError:
        return False
    return True


def _is_here(job: _Job, encoder: TextEncoder, run: EmbeddingRun, todo: Parts, workers: int, gpu_share: float) -> bool:
    """Return whether parts of a run are embedded in this process."""
    if gpu_share:
        return is_local(job.engine, seconds_of_gpus(workers))
    return is_local(job.engine, lambda: seconds_here(encoder, run.plan, todo, run.cache))


_OfPool = tuple[TextEncoder, int, float, int | None]
"""Arguments of ``WorkerPool``."""


def _pool(stack: ExitStack, of_pool: _OfPool) -> "WorkerPool":
    """Connect to Ray until ``stack`` ends, and return workers that end then."""
    from paraembed.cluster.embed_pool import WorkerPool  # noqa: PLC0415 - with Ray, 2 s
    from paraembed.cluster.session import ray_session  # noqa: PLC0415

    _, workers, *_ = of_pool
    stack.enter_context(ray_session(workers))
    pool = WorkerPool(*of_pool)
    stack.callback(pool.end_all)
    return pool


def _in_workers(
    stack: ExitStack, of_pool: _OfPool, run: EmbeddingRun, todo: Parts, store: Store, tries: Counter[str]
) -> Generator[Done, None, None]:
    """Start workers, and return the results of the parts, see ``embed_parts``.

    Ray takes 5 s to start here and its workers 3 s to embed a part, so this process embeds the first part meanwhile,
    if the encoder only adds rows of a table: 0.6 s for 100,000 sentences.
    """
    from paraembed.cluster.embed_parts import embed_parts  # noqa: PLC0415 - with Ray, 2 s

    encoder, _, gpu_share, _ = of_pool
    is_quick = not (gpu_share or getattr(encoder, "gains_from_gpu", True) or has_ray())
    first, rest = todo[:is_quick], todo[is_quick:]
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(lambda: list(embed_here(encoder, run, first, store, rest)))
        pool = _pool(stack, of_pool)
        pool.start(len(rest))

    def results() -> Iterator[Done | None]:
        yield from done.result()  # here, where the caller handles the errors of parts
        yield from embed_parts(pool, run, rest, store.place, tries)

    return _ended(pool, results())


def _ended(pool: "WorkerPool", results: Iterable[Done | None]) -> Generator[Done, None, None]:
    """Yield results, and end the workers, so that the tasks of the commit have their CPUs."""
    for done in results:
        assert done is not None
        yield done
    pool.end_all()


def _run(
    stack: ExitStack,
    job: _Job,
    new: EmbeddingRun,
    store: Store,
    columns: pa.Schema | None,
    of_pool: _OfPool,
    tries: Counter[str],
) -> tuple[EmbeddingRun, Generator[Done, None, None] | None]:
    """Return the run to resume, or ``new`` with its plan, and the results of parts that are embedded meanwhile."""
    if run := _resumed(store, new, job.overwrite, job.limits.max_bad_files):
        return run, None
    _, workers, gpu_share, _ = of_pool
    files, generation = new.plan.inputs, new.plan.generation
    planner = Planner(files, new.plan.settings, job.limits.max_bad_files, generation=generation, columns=columns)
    tasks, early = _planning_tasks(stack, job.engine, files, workers), None
    is_new = not (job.overwrite or generation or manifest.keep_unplanned(store, new))
    is_long = sum(file.size for file in files if file.kind not in IN_GROUPS) >= _EARLY_BYTES
    is_here = is_local(job.engine, seconds_of_gpus(workers) if gpu_share else math.inf)
    if is_new and is_long and not is_here:
        plan, early = _embedded_early(stack, new, store, planner, tasks, of_pool, tries)
    else:
        plan = planner.make(tasks)
    if job.overwrite and isinstance(store, Folder) and store.path.exists():
        with locked(store.path):
            discard(store.path)
    return replace(new, plan=plan), early


def _embedded_early(
    stack: ExitStack,
    new: EmbeddingRun,
    store: Store,
    planner: Planner,
    tasks: RunTasks | None,
    of_pool: _OfPool,
    tries: Counter[str],
) -> tuple[Plan, Generator[Done, None, None]]:
    """Return the plan, and the results of its parts, some of which are embedded when the plan is complete."""
    from paraembed.cluster.embed_parts import embed_parts  # noqa: PLC0415 - with Ray, 2 s
    from paraembed.cluster.embed_plan import Planning  # noqa: PLC0415

    stack.enter_context(store.held())
    manifest.begin_unplanned(store, new)
    planning = Planning(planner, tasks)
    stack.callback(planning.close)
    pool = _pool(stack, of_pool)
    results = embed_parts(pool, new, NO_PARTS, store.place, tries, planning)
    done = [*iter(results.__next__, None)]
    return planning.plan(), _ended(pool, chain(done, results))


def _is_unrecorded(store: Store) -> bool:
    """Return whether a run was killed after its commit, before everything was logged."""
    return is_there(store, manifest.MEMO) and not is_there(store, manifest.RECORDED)


def _is_committed(store: Store, encoder: str, run: EmbeddingRun, reports: Reports, workers: int) -> bool:
    """Return whether an output with all parts is committed, after logging what a killed run did not."""
    if not manifest.is_finished(store, run.plan, reports.table()):
        return False
    if _is_unrecorded(store):
        from paraembed.cluster.embed_tracking import describe, record, recorded  # noqa: PLC0415

        with recorded(store, store) as into:
            describe(into.tracked, encoder, run, workers)
            record(into, manifest.known_manifest(store), reports, {})
    _say_bad_files(run.plan.inputs, store)
    return True


def _planning_tasks(stack: ExitStack, engine: Engine, files: Sequence[InputFile], workers: int) -> RunTasks | None:
    """Return what plans large inputs: tasks of Ray, which is connected until ``stack`` ends; None: threads."""
    if engine == "local" or sum(file.size for file in files) < _MANY_BYTES:
        return None
    import ray  # noqa: PLC0415 - takes a second

    from paraembed.cluster.session import ray_session, run_tasks  # noqa: PLC0415 - with Ray

    stack.enter_context(ray_session(workers))
    cpus = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    at_once = min(workers, max(2, int(cpus)))  # not all on the head of a cluster that is to grow
    return partial(run_tasks, workers=at_once, num_cpus=0)  # the CPUs are those of the workers that embed meanwhile


def _resumed(store: Store, new: EmbeddingRun, overwrite: bool, max_bad_files: int) -> EmbeddingRun | None:
    """Return the run to resume, or None; with ``overwrite``, only a run begun with ``overwrite`` is resumed."""
    if manifest.check_folder(store):
        try:
            run = manifest.continued_run(store, new)
            check_faults(run.plan.inputs, max_bad_files)
            return run
        except ValueError:
            if not (overwrite or new.plan.generation):
                raise
            if new.plan.generation:  # an append that was begun with other files
                store.delete_folder("")
    return None


def _within(limits: Limits, plan: Plan, store: Store, results: Iterable[Done]) -> Iterator[Done]:
    """Yield results, those of earlier runs first; raise RunFailedError if a limit is exceeded."""
    rejected, rows, share = 0, plan.rows, limits.max_rejected_share
    for done in results:
        report = done.report
        rejected += report.n_rejected
        if limits.max_rejected is not None and rejected > limits.max_rejected:
            raise _too_many(store, report, rejected, rows, "max_rejected", limits.max_rejected)
        if rejected == rows or rejected > share * rows:
            raise _too_many(store, report, rejected, rows, "max_rejected_share", share)
        if report.n_null_ids and limits.on_duplicate_id == "fail":
            raise RunFailedError(
                f"{shown_row(plan, report.null_id)}: {plan.settings.id_column!r} is null, but every row needs an id; "
                "correct the input, or resume with `on_duplicate_id` keep"
            )
        yield done


def _too_many(store: Store, report: PartReport, rejected: int, rows: int, limit: str, value: float) -> RunFailedError:
    """Return the error of a run with too many rejected rows, with the most frequent reason of one of its parts."""
    name = rejected_name(report.name)
    with store.open(name) as file:
        lines = file.read(_REASONS_BYTES).rpartition(b"\n")[0].splitlines()
    reason = Counter(json.loads(line)["reason"] for line in lines).most_common(1)[0][0]
    allowed, remedy = f", but `{limit}` is {value:g}", f", or resume with a larger `{limit}`"
    if rejected == rows and value >= 1:
        allowed = remedy = ""
    return RunFailedError(
        f"{rejected:,} of {rows:,} rows cannot be read{allowed}; most often in {store}/{name}: {reason}; correct the "
        f"input{remedy if rejected < rows else ''}"
    )


def _say_plan(plan: Plan, todo: Parts, workers: int, home: Store, encoder: TextEncoder) -> None:
    done = len(plan.parts) - len(todo)
    before = f"; {done} of them are already done" if done else ""
    by = f"workers: {min(workers, len(todo))}" if workers else "in this process"
    rows = f"{plan.rows:,} row{'s'[: plan.rows != 1]}"
    say(f"{rows} in {len(plan.parts)} part{'s'[: len(plan.parts) > 1]} to {home}, {by}{before}")
    for cosine in _cosine_of_bfloat16(encoder).values():
        used = encoder.identity["precision"]
        say(f"the model computes in {used}: cosines of some vectors in bfloat16 and float32 are at least {cosine:.5f}")
    parts = np.bincount(plan.parts.files)
    streams = [number for number in np.flatnonzero(parts > 1).tolist() if plan.inputs[number].is_stream]
    if workers and streams and not streams_of_workers(plan, todo, workers):
        shown = plan.inputs[streams[0]].shown
        say(f"{shown} is compressed or converted, so one worker reads it for all {workers}")


def _say_losses(written: dict[str, Any], max_tokens: int | None, home: Store, plan: Plan, reports: Reports) -> None:
    """Report rows that lost something, tokens out of vocabulary, and files that were left out."""
    rows = f"of {written['rows']:,} rows"
    for name, what in (
        ("n_cut", f"{rows} have more than max_tokens = {max_tokens} tokens and were truncated, see `chunk_tokens`"),
        ("n_without_tree", f"{rows} have no tree; right-branching trees were used"),
        ("n_replaced", f"{rows} were not UTF-8; invalid bytes became U+FFFD"),
        ("n_clipped", f"{rows} have numbers outside of float16; they were clipped to ±65504"),
        ("n_null_ids", f"{rows} have no id"),
        ("n_duplicate_ids", f"{rows} repeat an id"),
        ("n_rejected", f"rows of the input could not be read; the reasons are in {home}/{REJECTED}"),
    ):
        if written[name]:
            say(f"{written[name]:,} {what}")
    _say_multi_line(plan, reports)
    _say_unknown(plan, reports)
    _say_bad_files(plan.inputs, home)


def _say_unknown(plan: Plan, reports: Reports) -> None:
    """Report the tokens that are out of vocabulary, if they are more than ``_MANY_UNKNOWN`` or all tokens of a row."""
    tokens, unknown, rows = map(reports.sum, ("n_tokens", "n_unknown", "n_only_unknown"))
    if not rows and unknown <= _MANY_UNKNOWN * tokens:
        return
    firsts = (shown_row(plan, row) for report in reports for row in report.only_unknown)
    examples = "; ".join(islice(firsts, 3))
    only = f"; rows without other tokens: {rows:,} ({examples}); their vectors carry no meaning" if rows else ""
    say(
        f"{unknown / tokens:.1%} of the tokens are out of vocabulary{only}; use an encoder of their language, such as "
        "st:MODEL, or one with pieces for OOV tokens, which jobs/export.py writes"
    )


def _say_multi_line(plan: Plan, reports: Reports) -> None:
    """Report CSV rows with line breaks in their cells, since two stray quotes can join many lines to one valid row."""
    num_rows = reports.sum("n_multi_line")
    if not num_rows:
        return
    longest = max(reports, key=lambda report: report.longest_lines)
    begins = f"{plan.inputs[longest.longest_file].name}, line {longest.longest_first:,}"
    say(
        f"{num_rows:,} rows have line breaks inside of quoted cells; the longest has {longest.longest_lines:,} lines "
        f"and begins in {begins}: if its quotes are stray, correct them or give a smaller `max_field_lines`"
    )
