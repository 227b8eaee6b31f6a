"""Shard pair files: parse parts, remove duplicates, select rows, write shards, commit; small inputs in this process,
others by tasks of Ray.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from paraembed.cluster.tasks import Tasks, started_tasks
from paraembed.console import doing, say
from paraembed.io.atomic import SUCCESS, replace_folder, work_folder
from paraembed.io.escape import listed
from paraembed.io.fingerprint import digest_of, read_json, sha256_of
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.places import Place, shown
from paraembed.io.staging import Mirror
from paraembed.pairs import outputs, source_parts
from paraembed.pairs.deduplicate import RowNumbers, find_repeats, num_buckets, num_partitions
from paraembed.pairs.filters import read_vocabulary
from paraembed.pairs.formats import SPAN_BYTES
from paraembed.pairs.outputs import Outputs
from paraembed.pairs.parse import parse_source, partitions_of, reading_of
from paraembed.pairs.schema import SourceReport
from paraembed.pairs.selection import Selected, read_columns, select_masks, selects, write_columns
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import FORMAT, FinishedManifest, Mask, ShardPlan, plan_shards, write_shard
from paraembed.pairs.source_parts import SAMPLED, InputSource, ParsedPart, SourcePart, save_masks
from paraembed.pairs.training_sets import row_rules, set_of
from paraembed.settings import Engine, check_workers
from paraembed.signals import NO_SPACE, RunFailedError
from paraembed.tracking.records import Run
from paraembed.tracking.runs import send_left, tracked_run

_BYTES_PER_SECOND, _PPDB_BYTES_PER_SECOND = 5e6, 5e7  # of compressed files that one process shards, at least


@dataclass(frozen=True)
class _Task:
    """Settings that all parts share; ``sampled`` rejected rows are kept as examples, for each reason and part."""

    settings: ShardSettings
    vocabulary: pa.StringArray | None
    sampled: int
    limits: ReadLimits
    max_rejected_share: float


class _Parsed(NamedTuple):
    """Result of parsing a part: whether an earlier run parsed it, or an error."""

    number: int
    before: bool = False
    error: Exception | None = None


def shard_pairs(
    inputs: Sequence[Place],
    out: Path,
    settings: ShardSettings,
    *,
    words: Path | None = None,
    max_words: int | None = None,
    workers: int = 2,
    engine: Engine = "auto",
    overwrite: bool = False,
    rejected_sample: bool = True,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_rejected_share: float = 0.5,
    span_bytes: int = SPAN_BYTES,
    uri: str | None = None,
    upload: Callable[[], object] = lambda: None,
) -> tuple[dict[str, Any], bool]:
    """Write pair shards (schema ``PAIRS`` in pairs/shards.py), then a manifest, then ``_SUCCESS``; return the manifest,
    and whether the output was already finished.

    The folder appears when it is complete. Until then the work is in a hidden folder next to it, and the same call
    resumes from the parsed files. If the settings select several outputs (splits, nested subsets), each is a complete
    folder of pair shards below ``out``.

    Args:
        inputs: pair files; their order decides the order of the rows, and which of two equal ranks comes first.
        out: folder to write.
        settings: settings that decide the rows.
        words: the vocabulary, as a word-vector text file or a list of words, one per line.
        max_words: use only the first N words of the vocabulary.
        workers: number of files, or parts of large plain files, to parse in parallel; the threads that parse fewer
            files.
        engine: ``local``, in this process; ``ray``; or ``auto``, local if the estimated time is below 20 seconds.
        overwrite: replace a finished output of other inputs or settings.
        rejected_sample: write examples of the rejected rows, next to the shards and to MLflow.
        limits: limits on reading an input, encoding and form of CSV; but for ``max_inflation``, the manifest has them.
        max_rejected_share: maximum share of all rows that cannot be read, 0 to 1.
        span_bytes: bytes of a plain file that one task parses.
        uri: URI of the output on an object store; ``out`` is then the copy on this machine. All tasks run on this
            machine, because the other machines of a cluster do not see the copy.
        upload: called when ``out`` is complete, within the MLflow run.

    Raises:
        FileNotFoundError, IsADirectoryError: an input is missing or a folder.
        ValueError: an input cannot be used, or ``out`` contains other files.
        RunFailedError: all rows were rejected, or too many cannot be read.
    """
    check_workers(workers)
    if not inputs:
        raise ValueError("no input files; give pair files with `input`")
    digests = cache(partial(_digests, inputs, words, max_words))

    def identity_of(*, has_labels: bool) -> dict[str, Any]:
        of_rows = outputs.settings_to_json(settings, has_labels=has_labels) | limits.dialect
        return {"format": FORMAT, "settings": of_rows, **digests(), "max_line_bytes": limits.max_line_bytes}

    records = Mirror(out, uri).records

    def check(_: Path) -> None:
        outputs.check_folders(out)
        outputs.is_finished(out, identity, overwrite=overwrite)

    def finished() -> dict[str, Any]:
        manifest: dict[str, Any] = read_json(out / "manifest.json", FinishedManifest)
        send_left(records)
        say(f"{shown(uri or out)} is already finished, {manifest['counts']['kept']:,} pairs; nothing to do")
        return manifest

    keeps_labels = bool(settings.keep_labels)
    if _is_recognized(out, identity_of, keeps_labels=keeps_labels, rejected_sample=rejected_sample):
        return finished(), True
    sources, has_labels = _read_sources(inputs, settings, limits)
    vocabulary = read_vocabulary(words, max_words) if words else None
    row_rules(settings, vocabulary)
    identity = identity_of(has_labels=has_labels)
    outputs.is_finished(out, identity, overwrite=overwrite)
    work = outputs.unfinished_output(out, identity, rejected_sample=rejected_sample)
    task = _Task(settings, vocabulary, SAMPLED if rejected_sample else 0, limits, max_rejected_share)
    with work_folder(work.folder):
        if outputs.is_finished(out, identity, overwrite=overwrite):  # by another run, since
            return finished(), True
        outputs.check_folders(out)
        say(*source_parts.describe(sources, with_pairs=rejected_sample))
        is_converted = limits.codec != "utf-8"  # from its start
        parts = source_parts.cut_parts(sources, work.folder, sys.maxsize if is_converted else span_bytes)
        doing("starting the job")
        seconds = _estimate(sources, identity["inputs"])
        with (
            tracked_run(f"shard {out.name}", records) as run,
            started_tasks(engine, workers, seconds, here=uri is not None) as tasks,
        ):
            input_digest = digest_of(identity["inputs"])
            about = {"inputs": len(inputs), "input_digest": input_digest, "max_line_bytes": limits.max_line_bytes}
            run.params(about | {"max_inflation": limits.max_inflation, **identity["settings"]})
            run.dataset("pair files", input_digest, list(map(str, inputs)), "sharding")
            if work.is_begun():
                say(f"resuming the work in {work.folder}")
            else:
                work.clear()
                work.begin()
            manifest = _shard(task, tasks, workers, parts, work.folder, identity)
            replaced = outputs.replaced_folder_of(out)
            shutil.rmtree(replaced, ignore_errors=True)
            replace_folder(work.folder / "result", out, replaced, check)
            work.remove()
            upload()
            _record(run, manifest["counts"], out)
    return manifest, False


def _is_recognized(
    out: Path, identity_of: Callable[..., dict[str, Any]], *, keeps_labels: bool, rejected_sample: bool
) -> bool:
    """Return whether an output is finished, without parsing rows of the inputs (0.7 s) to see whether they have labels.

    Version 0.1 kept the rows of every label, so an output with labels whose identity has none is another one.
    """
    if not (out / SUCCESS).is_file():
        return False
    for has_labels in (True,) if keeps_labels else (False, True):
        identity = identity_of(has_labels=has_labels)
        if outputs.is_finished(out, identity, overwrite=True):
            if not has_labels and outputs.has_labels(out):
                return False
            outputs.unfinished_output(out, identity, rejected_sample=rejected_sample).remove_leftover()
            return True
    return False


def _digests(inputs: Sequence[Place], words: Path | None, max_words: int | None) -> dict[str, Any]:
    doing(f"hashing {len(inputs):,} inputs")
    return {
        "inputs": source_parts.digests_of(inputs),
        "words": {"name": words.name, "sha256": sha256_of(words), "max_words": max_words} if words else None,
    }


def _read_sources(
    inputs: Sequence[Place], settings: ShardSettings, limits: ReadLimits
) -> tuple[list[InputSource], bool]:
    """Return the sources, and whether rows are kept by their labels."""
    doing("reading the first rows of the inputs")
    reading = reading_of(settings, limits)
    sources = source_parts.read_heads(inputs, reading)
    labeled = [source for source in sources if source.is_labeled]
    if settings.keep_labels and not labeled:
        raise ValueError(
            "`keep_labels` is given, but the first rows have no labels; give a column the role relation with `columns`"
        )
    return sources, any(reading.labels.applies_to(source.form) for source in labeled)


def _estimate(sources: Sequence[InputSource], inputs: Sequence[dict[str, Any]]) -> float:
    """Return the seconds that one process takes."""
    sizes: dict[str, int] = {file["name"]: file["bytes"] for file in inputs}
    ppdb = sum(sizes[source.name] for source in sources if source.form == "ppdb")
    return ppdb / _PPDB_BYTES_PER_SECOND + (sum(sizes.values()) - ppdb) / _BYTES_PER_SECOND


def _record(run: Run, counts: dict[str, Any], out: Path) -> None:
    run.metrics({name: counts[name] for name in ("read", "kept", "refused", "duplicates")})
    run.metrics({f"refused/{reason}": count for reason, count in counts["reasons"].items()})
    for path in sorted(out.rglob("*.json*")):  # from their place, where they are read later if MLflow is away
        run.artifacts(path, str(path.parent.relative_to(out)) if path.parent != out else None)


def _shard(
    task: _Task, tasks: Tasks, workers: int, parts: Sequence[SourcePart], work: Path, identity: dict[str, Any]
) -> dict[str, Any]:
    """Write the outputs to ``work/result``; return the manifest."""
    sizes = {file["name"]: file["bytes"] for file in identity["inputs"]}
    partitions = num_partitions(sum(sizes.values()))
    batches = source_parts.batch_parts(parts, sizes, workers)
    files = source_parts.parsed_parts(parts, _parse_all(task, tasks, parts, partitions, batches))
    try:
        source_parts.check_pairs(files, task.max_rejected_share)
    except ValueError:
        shutil.rmtree(work)
        raise
    if not set_of(task.settings).keeps_duplicates:
        _drop_duplicates(files, partitions, work, tasks)
    duplicates, pairs = sum(file.duplicates for file in files), sum(file.report.parsed for file in files)
    say(f"  {duplicates:,} duplicates of {pairs:,} pairs removed")
    result = Outputs(work / "result", identity, files, rejected_sample=bool(task.sampled))
    for selected, masks in _select(task.settings, tasks, files):
        if not any(mask.any() for mask in masks) and selected.name in {"", "1-of-1"}:
            shutil.rmtree(work)
            why = ", ".join(f"{count:,} {reason}" for reason, count in selected.counts.items())
            raise RunFailedError(f"the selection leaves none of {pairs - duplicates:,} pairs ({why}); select others")
        plans = plan_shards([file.report for file in files], masks, task.settings.rows_per_shard)
        entries = _write_shards(tasks, files, masks, plans, result.make_folder(selected.name), work)
        result.add(selected.name, entries, selected.counts, [work / plan.name for plan in plans], task.vocabulary)
    return result.finish()


def _parse_all(
    task: _Task, tasks: Tasks, parts: Sequence[SourcePart], partitions: int, batches: Sequence[tuple[list[int], int]]
) -> list[SourceReport]:
    """Parse the parts, one task per batch. The pairs are written to files, from which a killed run resumes."""
    doing(f"parsing {len(parts):,} parts")
    shared = tasks.share(task)

    def parse(batch: tuple[dict[int, SourcePart], int]) -> list[_Parsed]:
        numbered, threads = batch
        return [_parse(number, part, threads, shared, partitions) for number, part in numbered.items()]

    reports: dict[int, SourceReport] = {}
    numbered = [({number: parts[number] for number in numbers}, threads) for numbers, threads in batches]
    for done, parsed in enumerate(chain.from_iterable(tasks.run(parse, numbered)), start=1):
        doing(f"parsing: {done:,} of {len(parts):,} parts are done")
        part = parts[parsed.number]
        if parsed.error:
            if not any(part.report.exists() for part in parts):
                shutil.rmtree(part.parsed.parent, ignore_errors=True)  # nothing to resume; tasks may still write
            raise parsed.error
        report = reports[parsed.number] = source_parts.load_report(part.report)
        when = " (parsed before)" if parsed.before else ""
        say(f"  {part}: {report.read:,} rows read, {report.parsed:,} pairs{when}")
        if labels := [f"{label} ({count:,})" for label, count in report.labels.items()]:
            say(f"  labels kept: {listed(labels)}")
    return [reports[number] for number in range(len(parts))]


def _parse(number: int, part: SourcePart, threads: int, shared: Callable[[], _Task], partitions: int) -> _Parsed:
    """Parse a part, unless an earlier run did."""
    if part.report.exists():
        return _Parsed(number, before=True)
    task = shared()
    try:
        report = parse_source(
            part.source,
            part.name,
            task.settings,
            part.parsed,
            partitions,
            vocabulary=task.vocabulary,
            span=part.span,
            is_labeled=part.is_labeled,
            sampled=task.sampled,
            limits=task.limits,
            threads=min(threads, os.cpu_count() or 1),
        )
        source_parts.save_report(report, part.report)
    except (ValueError, OSError) as error:  # bad input; the driver raises it, without Ray's wrapping
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            full = OSError(error.errno, os.strerror(error.errno), str(part.parsed.parent))
            return _Parsed(number, error=full)
        return _Parsed(number, error=ValueError(str(error)))
    return _Parsed(number)


def _drop_duplicates(files: Sequence[ParsedPart], partitions: int, work: Path, tasks: Tasks) -> None:
    """Unmark repeated pairs in the masks of the files.

    Ray Data's hash shuffle by the pair's key takes 4.4 to 7.5 times as long for the same result (1M lines, 2 workers).
    """
    by_partition, ranks = [partitions_of(file.part.parsed) for file in files], [file.first_rank for file in files]

    def find(bucket: int) -> tuple[RowNumbers, RowNumbers]:
        return find_repeats(by_partition, bucket, partitions, ranks, work / f"spill-{bucket}.arrow")

    doing("finding duplicates")
    buckets = num_buckets(partitions)
    starts = np.cumsum([0, *(file.report.parsed for file in files)])[:-1]
    whole = np.concatenate([file.stays for file in files])
    for number, (sources, rows) in enumerate(tasks.run(find, range(buckets)), start=1):
        doing(f"finding duplicates: bucket {number:,} of {buckets:,}")
        whole[starts[sources] + rows] = False
    for file, stays in zip(files, np.split(whole, starts[1:]), strict=True):
        file.stays[:] = stays


def _select(
    settings: ShardSettings, tasks: Tasks, files: Sequence[ParsedPart]
) -> Iterable[tuple[Selected, list[Mask]]]:
    """Return the outputs, each with the masks of its pairs in the files."""
    stays = [file.stays for file in files]
    if not selects(settings):
        return [(Selected("", np.zeros(0, bool)), stays)]
    save_masks(files, stays)

    def columns_of(part: SourcePart) -> None:
        write_columns(part.parsed, np.load(part.mask, mmap_mode="r"), settings, part.columns)

    list(tasks.run(columns_of, [file.part for file in files]))
    return select_masks(settings, partial(read_columns, [file.part.columns for file in files]), stays)


def _write_shards(
    tasks: Tasks,
    files: Sequence[ParsedPart],
    masks: Sequence[Mask],
    plans: Sequence[ShardPlan],
    folder: Path,
    work: Path,
) -> list[dict[str, Any]]:
    """Write the shards of one output; return their manifest entries."""
    save_masks(files, masks)
    parts, ranks = [file.part for file in files], [file.first_rank for file in files]

    def write(plan: ShardPlan) -> dict[str, Any]:
        staying = {number: np.load(parts[number].mask, mmap_mode="r") for number, _ in plan.groups}
        return write_shard(plan, [part.parsed for part in parts], staying, folder, work / plan.name, ranks)

    entries: list[dict[str, Any]] = []
    for entry in tasks.run(write, plans):
        doing(f"writing: shard {len(entries) + 1:,} of {len(plans):,}")
        entries.append(entry)
    return entries
