"""What precedes a run: its checked inputs, its workers, and an estimate of rows, parts, bytes and time."""

import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.console import doing, duration, print_table, say
from paraembed.embedding.append import steps
from paraembed.embedding.cache import Cache, open_cache
from paraembed.embedding.chunks import cut
from paraembed.embedding.columns import check_columns, complete_settings
from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import InputFile, check_apart, find_inputs, readable
from paraembed.embedding.manifest import check_folder, known_inputs
from paraembed.embedding.part import embedded, layout
from paraembed.embedding.plan import Part, Parts, Plan, make_plan, part_name
from paraembed.embedding.repeated import DistinctTexts
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import DEFAULT_LIMITS, Identity, Limits, Settings, check_dim
from paraembed.encoders.devices import require_device
from paraembed.encoders.protocol import TextEncoder
from paraembed.io.places import Place
from paraembed.io.store import Store, open_store
from paraembed.loading import Fetch, open_encoder
from paraembed.process import num_threads, on_cluster, one_thread
from paraembed.settings import (
    CACHE_GB,
    DEFAULT_GPUS,
    DEFAULT_INFERENCE,
    MOST_CPUS_PER_GPU,
    Gpus,
    Inference,
    check_workers,
)

_RAY_SECONDS = 10.0  # from the command to the first part: Ray, then torch in every worker (2 cores: 6 to 12)
_LOCAL_SECONDS = 2.0  # the same without Ray
_PROBE_SECONDS = 2.0
_BATCH_ROWS, _GROUP_BATCHES = 1024, 32
_WARM_ROWS = 64
_FIRST_SECONDS = 0.1  # to measure whether the rows are worth the start of Ray
_FEW_BATCHES = 8  # with fewer, chance decides: another process's work, the lengths of the texts
_PARTS = 8
_CHUNK_SECONDS = 1.0  # to count the chunks of a sample


@dataclass(frozen=True)
class Estimate:
    """Estimate of a run."""

    rows: int  # rows of the output
    parts: int  # files of the output
    size: int  # bytes of the output
    rows_per_second: float  # rows per second of one worker, on its own core
    probed: int  # number of rows that were embedded for the estimate
    batches: int  # number of batches of these rows
    cached: float = 0.0  # share of their distinct texts, or chunks, whose vector is in the cache

    @property
    def seconds(self) -> float:
        """Seconds of one worker."""
        return self.rows / self.rows_per_second if self.rows else 0.0

    @property
    def basis(self) -> str:
        """What the estimate is based on, as part of a sentence."""
        rough = "roughly " if self.batches < _FEW_BATCHES else ""
        return f"measured {rough}on {self.probed:,} rows in {self.batches} batches"


def workers_of(encoder: TextEncoder, workers: int, gpus: Gpus) -> tuple[int, float]:
    """Return the number of actors, and the fraction of a GPU for each. Raise ValueError if GPUs are given for an
    encoder that computes on a CPU, or there is no GPU.
    """
    if encoder.identity.get("device") != "cuda":
        for name, usual in (("gpus", None), ("gpu_share", 1.0), ("cpus_per_gpu", None)):
            if (value := getattr(gpus, name)) != usual:
                raise ValueError(f"`{name}` is {value}, but the encoder computes on a CPU; leave `{name}` out")
        return workers, 0
    if not on_cluster():  # of a cluster, the workers have the GPUs
        require_device("cuda", gpus.gpus or 1)
    return gpus.workers, gpus.gpu_share


def threads_here(encoder: TextEncoder, gpus: Gpus) -> int:
    """Return the threads that feed a GPU in this process; 1 if the encoder computes on a CPU."""
    if encoder.identity.get("device") != "cuda":
        return 1
    import torch  # noqa: PLC0415 - imported by now, if a GPU is used

    return gpus.cpus_per_gpu or max(2, min(MOST_CPUS_PER_GPU, num_threads() // max(1, torch.cuda.device_count())))


def seconds_of_gpus(workers: int) -> float:
    """Return what counts as the time of one process with GPUs: nothing for one, which its threads feed, without Ray."""
    return 0.0 if workers == 1 else math.inf


@one_thread()
def estimate(
    encoder: TextEncoder, plan: Plan, probe_seconds: float = _PROBE_SECONDS, cache: Cache | None = None
) -> Estimate:
    """Embed rows from the whole input for some seconds, on one thread as a worker does, writing them to memory."""
    # The first batch imports and compiles, which takes a worker 2 s once: `small` embeds 400,000 texts meanwhile.
    next(_sample(encoder, plan, _WARM_ROWS), None)
    texts = DistinctTexts(encoder, cache)
    started, rows, num_batches = time.perf_counter(), 0, 0
    batches = _until(started + probe_seconds, _sample(encoder, plan, _BATCH_ROWS, texts))
    with io.BytesIO() as file:
        writer = None
        while group := list(islice(batches, _GROUP_BATCHES)):
            writer = writer or pq.ParquetWriter(file, group[0].schema, **layout(group[0].schema, plan.settings))
            writer.write_table(pa.Table.from_batches(group))
            rows, num_batches = rows + sum(map(len, group)), num_batches + len(group)
        if writer is not None:
            writer.close()
        size = file.tell()
    rate = rows / (time.perf_counter() - started)
    total = round(plan.rows * chunks_per_row(encoder, plan))
    size = size * total // max(1, rows)
    return Estimate(
        total, len(plan.parts), size, rate, rows, num_batches, texts.num_cached / max(1, texts.num_distinct)
    )


@one_thread()
def seconds_here(encoder: TextEncoder, plan: Plan, todo: Parts, cache: Cache | None = None) -> float:
    """Return the estimated seconds of one process for parts of a plan; 0 for few rows."""
    doing("measuring the speed of the encoder")
    rate = math.inf
    for size in (_WARM_ROWS, _BATCH_ROWS):
        batches, measured = _sample(encoder, plan, size, DistinctTexts(encoder, cache)), 0
        next(batches, None)  # imports, compiles, decompresses and parses; see ``estimate``
        started = time.perf_counter()
        for batch in _until(started + _FIRST_SECONDS, batches):
            measured += len(batch)
        if not measured:
            break
        rate = measured / (time.perf_counter() - started)
        if rate < _BATCH_ROWS / _FIRST_SECONDS:  # a transformer takes seconds for a large batch
            break
    return int(todo.rows.sum()) * chunks_per_row(encoder, plan) / rate


def _sample(
    encoder: TextEncoder, plan: Plan, rows: int, texts: DistinctTexts | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of some rows from ``_drawn`` parts of the plan."""
    settings = replace(plan.settings, batch_size=min(rows, plan.settings.batch_size))
    for part in _drawn(plan):
        yield from embedded(encoder, plan.sources(part), part, settings, texts)


def _drawn(plan: Plan) -> list[Part]:
    """Return parts spread over the plan; of a compressed file only the first."""
    firsts = {part.file: part for part in plan.parts[np.unique(plan.parts.files, return_index=True)[1]]}
    drawn = plan.parts[:: -(-len(plan.parts) // _PARTS)]
    return list(dict.fromkeys(firsts[part.file] if plan.inputs[part.file].is_stream else part for part in drawn))


def chunks_per_row(encoder: TextEncoder, plan: Plan) -> float:
    """Return the rows of the output for a row of the input: the chunks of rows from the whole input, cut for a second;
    1 without chunks.
    """
    if not plan.settings.has_chunks:
        return 1.0
    rows, chunks, parts = 0, 0, _drawn(plan)
    for part in parts:
        started = time.perf_counter()
        for block in read_part(plan.sources(part), part, plan.settings):
            rows, chunks = (
                rows + len(block.texts),
                chunks + len(cut(encoder, block.texts, plan.settings, block.elements)),
            )
            if time.perf_counter() - started > _CHUNK_SECONDS / len(parts):
                break
    return chunks / max(1, rows)


def _check_chunks(settings: Settings, encoder: TextEncoder) -> None:
    """Raise ValueError if an encoder cannot encode the chunks of the settings."""
    if encoder.reads_trees and settings.splits:
        given = "explode" if settings.explode else "chunk_tokens"
        raise ValueError(f"`{given}` is given, but the encoder reads trees, which chunks do not have; leave it out")
    if encoder.max_tokens is not None and (settings.chunk_tokens or 0) > encoder.max_tokens:
        raise ValueError(
            f"`chunk_tokens` is {settings.chunk_tokens:,}, but the encoder reads only {encoder.max_tokens:,} tokens of "
            f"a text; give at most {encoder.max_tokens}"
        )


def _until(deadline: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        if time.perf_counter() > deadline:
            return


def dry_run(
    encoder: str | Path,
    inputs: Sequence[str | Path],
    out: Place,
    settings: Settings,
    *,
    workers: int = 2,
    price_per_hour: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    inference: Inference = DEFAULT_INFERENCE,
    gpus: Gpus = DEFAULT_GPUS,
    fetch: Fetch | None = None,
    append: bool = False,
    is_local: Callable[[float], bool] = lambda _: False,
    cache: Place | None = None,
    cache_gb: float = CACHE_GB,
) -> dict[str, float]:
    """Print and return an estimate of ``embed`` from two seconds of embedding; nothing is written. The arguments and
    errors are those of ``embed``; ``is_local``: whether work of some seconds is done in the process of the job.
    """
    if price_per_hour is not None and not 0 <= price_per_hour < math.inf:
        raise ValueError(f"`price_per_hour` is {price_per_hour}; it must be at least 0")
    store = open_store(out)
    files = given_inputs(inputs, store, settings, limits)
    if append:
        files = tuple(file for step in steps(store, files, settings, append=True) for file in step.files)
        if not files:
            say(f"{store} has all of these inputs; nothing to do")
            return {"rows": 0}
    loaded, settings = prepared(encoder, inputs, files, store, settings, workers, gpus.on(inference), fetch)
    workers, gpu_share = workers_of(loaded, workers, gpus)
    doing("planning the parts and embedding a sample")
    plan = make_plan(files, settings, max_bad_files=limits.max_bad_files)
    opened = None if cache is None else open_cache(cache, loaded, cache_gb, reads_only=True)
    expected = estimate(loaded, plan, cache=opened)
    start, where = _RAY_SECONDS, f"{workers} workers"
    if is_local(seconds_of_gpus(workers) if gpu_share else expected.seconds):
        start, where, workers = _LOCAL_SECONDS, "one process", 1
    seconds = start + expected.seconds / workers
    rate = workers * expected.rows_per_second
    lines = [
        ("rows", f"{expected.rows:,}"),
        *([("rows of the input", f"{plan.rows:,}")] if settings.has_chunks else []),
        ("parts", f"{expected.parts:,}"),
        ("bytes", f"{expected.size:,}"),
        ("rows/s", f"{rate:,.0f}"),
        ("time", duration(seconds)),
    ]
    cost = {} if price_per_hour is None else {"cost": price_per_hour * seconds / 3600}
    lines += [(name, f"{value:,.4f}") for name, value in cost.items()]
    if cache is not None:
        lines.insert(1, ("in the cache", f"{expected.cached:.0%} of the texts"))
    if num_bad := len(plan.inputs) - len(readable(plan.inputs)):
        lines.insert(0, ("bad files", f"{num_bad:,}"))
    print_table(("estimate", where), lines)
    needs = f"{gpu_share:g} of a GPU and its own core" if gpu_share else "its own core"
    say(f"{expected.basis}, by one worker on this machine; each worker needs {needs}")
    sizes = {"rows": expected.rows, "parts": expected.parts, "bytes": expected.size}
    return {**sizes, "rows_per_second": rate, "seconds": seconds, **cost}


def given_inputs(
    inputs: Sequence[str | Path], home: Store, settings: Settings, limits: Limits, identity: Identity = "stamp"
) -> tuple[InputFile, ...]:
    """Find the input files and check their columns; those of a plan in ``home`` are not opened again. If ``identity``
    is ``sha256``, they have their digests.
    """
    doing("finding the input files")
    known = known_inputs(home, limits.reading) if identity == "stamp" else {}
    files = find_inputs(inputs, limits.reading, known=known, max_bad_files=limits.max_bad_files)
    check_columns(readable(files), settings)
    return hash_inputs(files) if identity == "sha256" else files


def prepared(
    encoder: str | Path | TextEncoder,
    inputs: Sequence[str | Path],
    files: Sequence[InputFile],
    home: Store,
    settings: Settings,
    workers: int,
    inference: Inference,
    fetch: Fetch | None,
) -> tuple[TextEncoder, Settings]:
    """Check and return the encoder and the completed settings; the errors are those of ``embed``."""
    check_workers(workers)
    check_folder(home)
    loaded: TextEncoder
    if isinstance(encoder, str | Path):
        doing(f"reading {Path(encoder).name}")
        loaded = open_encoder(str(encoder), inference, fetch)
    else:
        loaded = encoder
    check_dim(settings, loaded.width)
    _check_chunks(settings, loaded)
    check_apart(inputs, files, home, part_name(0))
    return loaded, complete_settings(settings, readable(files), loaded.reads_trees)
