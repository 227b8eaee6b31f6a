"""Shard pair files on Ray: parse parts with Ray Data, remove duplicates, select rows, write shards, commit."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from paraembed.cluster.session import ray_session, run_tasks, wait_for_cpu
from paraembed.console import doing, say
from paraembed.io.atomic import replace_folder, work_folder
from paraembed.io.fingerprint import digest_of, read_json, sha256_of
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.places import Place, shown
from paraembed.io.resume import Work
from paraembed.io.staging import Mirror
from paraembed.pairs import outputs
from paraembed.pairs.deduplicate import RowNumbers, find_repeats, num_buckets, num_partitions
from paraembed.pairs.filters import read_vocabulary
from paraembed.pairs.formats import SPAN_BYTES
from paraembed.pairs.outputs import Outputs
from paraembed.pairs.parse import parse_source, partitions_of, reading_of
from paraembed.pairs.schema import SourceReport
from paraembed.pairs.selection import Selected, select_masks, selection_table, selects
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import FORMAT, FinishedManifest, Mask, ShardPlan, plan_shards, write_shard
from paraembed.pairs.source_parts import (
    SAMPLED,
    ParsedPart,
    SourcePart,
    check_pairs,
    cut_parts,
    describe,
    digests_of,
    load_report,
    parsed_parts,
    read_heads,
    save_masks,
    save_report,
)
from paraembed.pairs.training_sets import row_rules, set_of
from paraembed.process import ray_data
from paraembed.settings import check_workers
from paraembed.signals import NO_SPACE


@dataclass(frozen=True)
class _Task:
    """Settings that all parts share; ``sampled`` rejected rows are kept as examples, for each reason and part."""

    settings: ShardSettings
    vocabulary: pa.StringArray | None
    workers: int
    sampled: int
    limits: ReadLimits
    here: bool
    inputs: tuple[str, ...]
    records: Path


def shard_pairs(
    inputs: Sequence[Place],
    out: Path,
    settings: ShardSettings,
    *,
    words: Path | None = None,
    max_words: int | None = None,
    workers: int = 2,
    overwrite: bool = False,
    rejected_sample: bool = True,
    limits: ReadLimits = DEFAULT_LIMITS,
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
        workers: number of files, or parts of large plain files, to parse in parallel.
        overwrite: replace a finished output of other inputs or settings.
        rejected_sample: write examples of the rejected rows, next to the shards and to MLflow.
        limits: limits on reading an input; ``max_line_bytes`` affects rows, so the manifest records it.
        span_bytes: bytes of a plain file that one task parses.
        uri: URI of the output on an object store; ``out`` is then the copy on this machine. All tasks run on this
            machine, because the other machines of a cluster do not see the copy.
        upload: called when ``out`` is complete, within the MLflow run.

    Raises:
        FileNotFoundError, IsADirectoryError: an input is missing or a folder.
        ValueError: an input cannot be used, all rows were rejected, or ``out`` contains other files.
    """
    check_workers(workers)
    if not inputs:
        raise ValueError("no input files; give pair files with `input`")
    doing("reading the first rows of the inputs")
    sources = read_heads(inputs, reading_of(settings, limits))
    vocabulary = read_vocabulary(words, max_words) if words else None
    row_rules(settings, vocabulary)
    doing(f"hashing {len(inputs):,} inputs")
    identity: dict[str, Any] = {
        "format": FORMAT,
        "settings": outputs.settings_to_json(settings),
        "inputs": digests_of(inputs),
        "words": {"name": words.name, "sha256": sha256_of(words), "max_words": max_words} if words else None,
        "max_line_bytes": limits.max_line_bytes,
    }

    from paraembed.tracking.runs import send_left  # noqa: PLC0415 - imports MLflow, which the workers do without

    records = Mirror(out, uri).records

    output = outputs.finished_output(out, identity, overwrite=overwrite)
    read_identity = partial(outputs.read_identity, fields=tuple(identity))

    def check(_: Path) -> None:
        outputs.check_folders(out)
        output.is_finished(read_identity)

    def finished() -> dict[str, Any] | None:
        if not output.is_finished(read_identity):
            return None
        manifest: dict[str, Any] = read_json(out / "manifest.json", FinishedManifest)
        send_left(records)
        say(f"{shown(uri or out)} is already finished, {manifest['counts']['kept']:,} pairs; nothing to do")
        return manifest

    work = outputs.unfinished_output(out, identity, rejected_sample=rejected_sample)
    before = finished()
    if before is not None:
        work.remove_leftover()
        return before, True
    sampled, names = SAMPLED if rejected_sample else 0, tuple(map(str, inputs))
    task = _Task(settings, vocabulary, workers, sampled, limits, uri is not None, names, records)
    with work_folder(work.folder):
        before = finished()  # by another run, since
        if before is not None:
            return before, True
        outputs.check_folders(out)
        for line in describe(sources, with_pairs=rejected_sample):
            say(line)
        return _run(task, cut_parts(sources, work.folder, span_bytes), work, identity, upload, check), False


def _run(
    task: _Task,
    parts: Sequence[SourcePart],
    work: Work,
    identity: dict[str, Any],
    upload: Callable[[], object],
    check: Callable[[Path], object],
) -> dict[str, Any]:
    """Write and upload the output, if ``check`` still allows it; return its manifest."""
    from paraembed.tracking.runs import tracked_run  # noqa: PLC0415 - as in ``shard_pairs``

    out, replaced = work.out, outputs.replaced_folder_of(work.out)
    doing("starting Ray and MLflow")
    with tracked_run(f"shard {out.name}", task.records) as run, ray_session(task.workers):
        if work.is_begun():
            say(f"resuming the work in {work.folder}")
        else:
            work.clear()
            work.begin()
        inputs = identity["inputs"]
        run.params({"inputs": len(inputs), "input_digest": digest_of(inputs), **asdict(task.limits)})
        run.params(identity["settings"])
        run.dataset("pair files", digest_of(inputs), list(task.inputs), "sharding")
        manifest = _shard(task, parts, work.folder, identity)
        run.metrics({name: manifest["counts"][name] for name in ("read", "kept", "refused", "duplicates")})
        run.metrics({f"refused/{reason}": count for reason, count in manifest["counts"]["reasons"].items()})
        shutil.rmtree(replaced, ignore_errors=True)
        replace_folder(work.folder / "result", out, replaced, check)
        work.remove()
        upload()
        for path in sorted(out.rglob("*.json*")):  # from their place, where they are read later if MLflow is away
            run.artifacts(path, str(path.parent.relative_to(out)) if path.parent != out else None)
    return manifest


def _shard(task: _Task, parts: Sequence[SourcePart], work: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Write the outputs to ``work/result``; return the manifest."""
    partitions = num_partitions(sum(file["bytes"] for file in identity["inputs"]))
    files = parsed_parts(parts, _parse_all(task, parts, partitions))
    try:
        check_pairs(files)
    except ValueError:
        shutil.rmtree(work)
        raise
    if not set_of(task.settings).keeps_duplicates:
        _drop_duplicates(files, partitions, work, task)
    duplicates, pairs = sum(file.duplicates for file in files), sum(file.report.parsed for file in files)
    say(f"  {duplicates:,} duplicates of {pairs:,} pairs removed")
    result = Outputs(work / "result", identity, files, rejected_sample=bool(task.sampled))
    for selected, masks in _select(task, files):
        plans = plan_shards([file.report for file in files], masks, task.settings.rows_per_shard)
        entries = _write_shards(task, files, masks, plans, result.make_folder(selected.name), work)
        result.add(selected.name, entries, selected.counts, [work / plan.name for plan in plans], task.vocabulary)
    return result.finish()


class _Parts(Datasource):
    """Ray Data source of pair files, with one read task per part, which parses the part and returns one row about it.

    The pairs are written to files, not to Ray's object store, so that a killed run resumes from the files.
    """

    def __init__(self, task: _Task, parts: Sequence[SourcePart], partitions: int) -> None:
        self._task = ray.put(task)  # once, not with every read task: it may hold a million words
        self._parts, self._partitions = parts, partitions

    def estimate_inmemory_data_size(self) -> None:
        """Return None, since each block is a single row."""

    def get_read_tasks(self, *_: Any, **__: Any) -> list[ReadTask]:
        """Return a read task per part; none contains the list of all parts, which would take quadratic memory."""
        about = BlockMetadata(num_rows=1, size_bytes=None, input_files=None, exec_stats=None)
        task, partitions = self._task, self._partitions
        return [
            ReadTask(partial(_parse, number, part, task, partitions), about) for number, part in enumerate(self._parts)
        ]


def _parse_all(task: _Task, parts: Sequence[SourcePart], partitions: int) -> list[SourceReport]:
    """Parse the parts on Ray Data, one task per part."""
    doing(f"parsing {len(parts):,} parts")
    workers = min(task.workers, len(parts))
    reports: dict[int, SourceReport] = {}
    for done, row in enumerate(_parsed_rows(task, parts, partitions, workers), start=1):
        doing(f"parsing: {done:,} of {len(parts):,} parts are done")
        if row["error"]:
            if not any(part.report.exists() for part in parts):
                shutil.rmtree(parts[0].parsed.parent, ignore_errors=True)  # nothing to resume; tasks may still write
            if row["errno"]:
                raise OSError(row["errno"], row["error"], str(parts[row["number"]].parsed.parent))
            raise ValueError(row["error"])
        part = parts[row["number"]]
        report = reports[row["number"]] = load_report(part.report)
        when = " (parsed before)" if row["before"] else ""
        say(f"  {part}: {report.read:,} rows read, {report.parsed:,} pairs{when}")
    return [reports[number] for number in range(len(parts))]


def _parsed_rows(task: _Task, parts: Sequence[SourcePart], partitions: int, workers: int) -> Iterator[dict[str, Any]]:
    """Yield the row about each part, as ``_parse`` returns it, in the order in which the parts are done."""
    if task.here:
        shared = ray.put(task)

        def parse(numbered: tuple[int, SourcePart]) -> dict[str, Any]:
            (block,) = _parse(*numbered, shared, partitions)
            return dict(block.to_pylist()[0])

        yield from run_tasks(parse, list(enumerate(parts)), workers, here=True)
        return
    wait_for_cpu()
    with ray_data(ray.data.DataContext.get_current()):
        data = ray.data.read_datasource(
            _Parts(task, parts, partitions), concurrency=workers, override_num_blocks=len(parts), num_cpus=1
        )
        yield from data.iter_rows()


def _parse(number: int, part: SourcePart, task: "ray.ObjectRef[_Task]", partitions: int) -> list[pa.Table]:
    """Parse a part, unless an earlier run did; return a block of one row: number, error, was it parsed before; errno is
    that of a disk without space, else 0.
    """
    error, code, before = "", 0, part.report.exists()
    if not before:
        try:
            common = ray.get(task)
            report = parse_source(
                part.source,
                part.name,
                common.settings,
                part.parsed,
                partitions,
                vocabulary=common.vocabulary,
                span=part.span,
                sampled=common.sampled,
                limits=common.limits,
            )
            save_report(report, part.report)
        except (ValueError, OSError) as cause:  # bad input; the driver raises it, without Ray's wrapping
            error = str(cause)
            if isinstance(cause, OSError) and cause.errno in NO_SPACE:
                code, error = cause.errno, os.strerror(cause.errno)
    return [pa.table({"number": [number], "error": [error], "errno": [code], "before": [before]})]


def _drop_duplicates(files: Sequence[ParsedPart], partitions: int, work: Path, task: _Task) -> None:
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
    for number, (sources, rows) in enumerate(run_tasks(find, range(buckets), task.workers, here=task.here), start=1):
        doing(f"finding duplicates: bucket {number:,} of {buckets:,}")
        whole[starts[sources] + rows] = False
    for file, stays in zip(files, np.split(whole, starts[1:]), strict=True):
        file.stays[:] = stays


def _select(task: _Task, files: Sequence[ParsedPart]) -> list[tuple[Selected, list[Mask]]]:
    """Return the outputs, each with the masks of its pairs in the files."""
    settings, stays = task.settings, [file.stays for file in files]
    if not selects(settings):
        return [(Selected("", np.zeros(0, np.int64)), stays)]
    save_masks(files, stays)

    def columns_of(part: SourcePart) -> None:
        pq.write_table(selection_table(part.parsed, np.load(part.mask, mmap_mode="r"), settings), part.columns)

    list(run_tasks(columns_of, [file.part for file in files], task.workers, here=task.here))
    return select_masks(settings, pa.concat_tables([pq.read_table(file.part.columns) for file in files]), stays)


def _write_shards(
    task: _Task,
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
    for entry in run_tasks(write, plans, task.workers, here=task.here):
        doing(f"writing: shard {len(entries) + 1:,} of {len(plans):,}")
        entries.append(entry)
    return entries
