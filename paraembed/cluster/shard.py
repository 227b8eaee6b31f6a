"""Pair files to pair shards: Ray Data parses files in parts, Ray tasks drop duplicates and write the shards."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from paraembed.cluster.session import ray_session
from paraembed.console import doing, say
from paraembed.io.atomic import SUCCESS, replace_folder, work_folder, write_file, write_json
from paraembed.io.escape import listed
from paraembed.io.fingerprint import digest_of, read_json, sha256_of
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.places import Place, name_of, size_of, without_credentials
from paraembed.io.resume import Work, check_own_files
from paraembed.names import on_disk
from paraembed.pairs import shards
from paraembed.pairs.deduplicate import RowNumbers, find_repeats, num_buckets, num_partitions
from paraembed.pairs.filters import read_vocabulary
from paraembed.pairs.formats import SPAN_BYTES, Reading, Source, read_pairs, sources_of, spans_of
from paraembed.pairs.parse import parse_source, reading_of
from paraembed.pairs.parts import ParsedPart, Part, about_sources, parsed_parts, reports_of
from paraembed.pairs.reports import SAMPLED, SourceReport, load_report, save_report, sum_counts
from paraembed.pairs.selection import Selected, select, selection_table, selects
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import Mask, ShardPlan
from paraembed.pairs.statistics import length_histogram, merge_counts, without_vector
from paraembed.pairs.training_sets import row_rules, set_of
from paraembed.settings import check_workers
from paraembed.tracking.runs import send_left, tracked_run

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

_JOB = "jobs/shard.py"
_CODE = 2
"""Version of the files in a work folder; those of another version are dropped."""

_SHOWN_PAIRS, _SHOWN_CHARACTERS = 3, 60
_SHARD = r"pairs-\d{5,}-of-\d{5,}\.parquet"
_FILE = rf"(manifest\.json|_SUCCESS|lengths\.json|vocabulary\.parquet|rejected-sample\.jsonl|{_SHARD})"
_OUTPUT = rf"((train|dev|test|1-of-\d+)/)?({_FILE}|\.{_FILE}\.[0-9a-f]{{8}}\.tmp)"
_STEP = r"(identity\.json|parsed-\d{5,}\.(parquet|arrow|json|columns)|stays-\d{5,}\.npy|spill-\d+\.arrow)"
_OF_OUTPUT = re.compile(_OUTPUT)
"""Paths of the files in an output."""

_OF_WORK = re.compile(rf"{_STEP}|\.{_STEP}\.[0-9a-f]{{8}}\.tmp|{_SHARD}/(lengths|words)|result/{_OUTPUT}")
"""Paths of the files in a work folder."""


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
) -> tuple[dict[str, Any], bool]:
    """Write pair shards of the contract (``PAIRS`` in pairs/shards.py), a manifest and ``_SUCCESS``, last.

    The folder appears when it is complete. Until then the work stands in a hidden folder beside it, and the same call
    resumes from the files that are parsed. Where the settings select several outputs (a split, nested subsets), each is
    a complete folder of pair shards below ``out``.

    Args:
        inputs: pair files; their order breaks ties between equal ranks and orders the rows.
        out: folder to write.
        settings: what decides the rows.
        words: word-vector text file, or a list of words, one a line: the vocabulary.
        max_words: only so many of its words, the first ones.
        workers: files, or parts of large plain ones, parsed side by side.
        overwrite: replace a finished output of other inputs or settings.
        rejected_sample: keep a sample of the rows that are refused, beside the shards and in MLflow.
        limits: what is read of an input at most; ``max_line_bytes`` decides rows, so the manifest has it.
        span_bytes: bytes of a plain file that one task parses.

    Returns:
        The manifest, and whether it was complete before.

    Raises:
        FileNotFoundError, IsADirectoryError: an input is missing or a folder.
        ValueError: an input is unusable, nothing is kept, or ``out`` holds something else.
    """
    check_workers(workers)
    if not inputs:
        raise ValueError("no input; give pair files with `input`")
    names = _names(inputs)
    sources = sources_of(inputs, settings.format)
    vocabulary = read_vocabulary(words, max_words) if words else None
    row_rules(settings, vocabulary)
    reading = reading_of(settings, limits)
    doing("reading the beginnings of the inputs")
    names_of_sources = names[:: len(inputs) // len(sources)]
    heads = list(map(partial(_head_of, reading=reading), sources, names_of_sources))
    work = out.with_name(f".{out.name}.partial")
    spans = [
        (source, name, span)
        for source, name, head in zip(sources, names_of_sources, heads, strict=True)
        for span in spans_of(source, head.form, span_bytes=span_bytes)
    ]
    parts = [Part(*span, work / f"parsed-{number:05d}.parquet") for number, span in enumerate(spans)]
    doing(f"hashing {len(inputs):,} inputs")
    identity: dict[str, Any] = {
        "format": shards.FORMAT,
        "settings": _as_json(settings),
        "inputs": [
            {"name": name, "bytes": size_of(path), "sha256": sha256_of(path)}
            for name, path in zip(names, inputs, strict=True)
        ],
        "words": {"name": words.name, "sha256": sha256_of(words), "max_words": max_words} if words else None,
        "max_line_bytes": limits.max_line_bytes,
    }

    begun = {"code": _CODE, **identity, "rejected_sample": rejected_sample}
    # Unfinished work of other inputs or settings is dropped, not kept until ``overwrite``: it is minutes of parsing.
    unfinished = Work(out, work, "identity.json", begun, _OF_WORK, _JOB, overwrite=True)

    def finished() -> dict[str, Any] | None:
        output = replace(unfinished, fingerprint=identity, overwrite=overwrite)
        if not output.is_finished(lambda folder: _identity_of(folder, identity)):
            return None
        manifest: dict[str, Any] = read_json(out / "manifest.json", shards.FinishedManifest)
        send_left(out)
        say(f"{out} is finished already, {manifest['counts']['kept']:,} pairs; nothing to do")
        return manifest

    before = finished()
    if before is not None:
        return before, True
    task = _Task(settings, vocabulary, workers, SAMPLED if rejected_sample else 0, limits)
    with work_folder(work):
        before = finished()  # by another run, since
        if before is not None:
            return before, True
        check_own_files(out, _OF_OUTPUT, _JOB, may_be_link=True)
        check_own_files(_old(out), _OF_OUTPUT, _JOB)
        check_own_files(work, _OF_WORK, _JOB)
        _say_columns(names_of_sources, heads, with_pairs=rejected_sample)
        doing("starting Ray and MLflow")
        manifest = _run(task, parts, unfinished, identity)
    return manifest, False


def _as_json(settings: ShardSettings) -> dict[str, Any]:
    """Return settings as JSON. One that is newer than the first version is left out where it has its default."""
    values: dict[str, Any] = on_disk(json.loads(json.dumps(asdict(settings))))
    return values if settings.no_header else {name: value for name, value in values.items() if name != "no_header"}


@dataclass(frozen=True)
class _Head:
    """What the first rows of a source show: its format, what its columns are, up to three pairs."""

    form: str
    columns: tuple[tuple[str, str], ...]
    pairs: list[tuple[str, str]]


def _head_of(source: Source, name: str, reading: Reading) -> _Head:
    """Read the first rows of a source, so that an unusable one fails at once."""
    for block in read_pairs(source, reading):
        pairs = block.pairs
        rows = np.flatnonzero(pairs.refused.is_null())[:_SHOWN_PAIRS]
        texts = [column.take(pa.array(rows)).to_pylist() for column in (pairs.first, pairs.second)]
        return _Head(block.form, tuple(block.columns.items()), list(zip(*texts, strict=True)))
    raise ValueError(f"{name} has no rows; leave it out, or make it again")


def _say_columns(names: Sequence[str], heads: Sequence[_Head], *, with_pairs: bool) -> None:
    """Show, once for each format and choice of columns, what was read as what, and the first pairs."""
    files = Counter((head.form, head.columns) for head in heads)
    first = {(head.form, head.columns): (name, head) for name, head in reversed([*zip(names, heads, strict=True)])}
    for kind, count in files.items():
        name, head = first[kind]
        more = f" and {count - 1:,} more" if count > 1 else ""
        columns = f": {listed([f'{role} is {column}' for role, column in head.columns])}" if head.columns else ""
        say(f"{name[:_SHOWN_CHARACTERS]}{more}, {head.form}{columns}")
        for pair in head.pairs if with_pairs else ():
            say(f"  {' | '.join(json.dumps(text[:_SHOWN_CHARACTERS], ensure_ascii=False) for text in pair)}")


@dataclass(frozen=True)
class _Task:
    """What all parts have in common.

    ``sampled`` is the number of rejected rows to keep as examples, for each reason and part.
    """

    settings: ShardSettings
    vocabulary: pa.StringArray | None
    workers: int
    sampled: int
    limits: ReadLimits


def _run(task: _Task, parts: Sequence[Part], work: Work, identity: dict[str, Any]) -> dict[str, Any]:
    """Write the output; return its manifest."""
    out, old = work.out, _old(work.out)
    with tracked_run(f"shard {out.name}", out) as run, ray_session(task.workers):
        if work.is_begun():
            say(f"resuming the work in {work.folder}")
        else:
            work.clear()
            work.begin()
        about = {
            "inputs": len(identity["inputs"]),
            "input_digest": digest_of(identity["inputs"]),
            **asdict(task.limits),
        }
        run.params({**about, **identity["settings"]})
        manifest = _shard(task, parts, work.folder, identity)
        result = work.folder / "result"
        run.metrics({name: manifest["counts"][name] for name in ("read", "kept", "refused", "duplicates")})
        run.metrics({f"refused/{reason}": count for reason, count in manifest["counts"]["reasons"].items()})
        shutil.rmtree(old, ignore_errors=True)
        replace_folder(result, out, old)
        work.remove()
        for path in sorted(out.rglob("*.json*")):  # from their place, where they are read later if MLflow is away
            run.artifacts(path, str(path.parent.relative_to(out)) if path.parent != out else None)
    return manifest


def _old(out: Path) -> Path:
    """Where a replaced output is before it is removed."""
    return out.with_name(f".{out.name}.old")


def _identity_of(out: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Return what decided the rows of a finished output: the fields of ``identity``, as its manifest has them.

    Raises:
        ValueError: ``out`` holds something else.
    """
    if not out.is_dir():
        raise ValueError(f"{out} is a file; `out` must be a folder, new or empty")
    manifest: dict[str, Any] = {}
    if (out / SUCCESS).is_file() and (out / "manifest.json").is_file():
        manifest = read_json(out / "manifest.json", dict[str, Any])
    if manifest.get("format") not in {shards.FORMAT, shards.SUBSETS_FORMAT}:
        check_own_files(out, _OF_OUTPUT, _JOB, may_be_link=True)
        raise ValueError(f"{out} holds no finished pair shards; choose another `out`, or empty it")
    manifest.setdefault("max_line_bytes", DEFAULT_LIMITS.max_line_bytes)  # absent from manifests of older versions
    return {name: manifest.get(name) for name in identity} | {"format": identity["format"]}


def _shard(task: _Task, parts: Sequence[Part], work: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Write the outputs to ``work/result``; return the manifest."""
    partitions = num_partitions(sum(one["bytes"] for one in identity["inputs"]))
    files = parsed_parts(parts, _parse_all(task, parts, partitions))
    num_read, num_parsed = (sum(getattr(file.report, name) for file in files) for name in ("read", "parsed"))
    by_reason = sum_counts([file.report.refused for file in files])
    if not num_parsed:
        why = ", ".join(f"{count:,} {reason}" for reason, count in by_reason.items())
        shutil.rmtree(work)
        raise ValueError(f"no pair is left of {num_read:,} rows: {why}")
    if not set_of(task.settings).keeps_duplicates:
        _drop_duplicates(files, partitions, work, task.workers)
    duplicates = sum(file.duplicates for file in files)
    say(f"  {duplicates:,} duplicates of {num_parsed:,} pairs removed")
    result = work / "result"
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir()
    sample = None
    if task.sampled:
        shown = [row for report in reports_of(files).values() for row in report.sample]
        sample = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in shown)

    def counts(kept: int, reasons: dict[str, int]) -> dict[str, Any]:
        refused = sum(reasons.values())
        return {"read": num_read, "kept": kept, "refused": refused, "duplicates": duplicates, "reasons": reasons}

    manifests: dict[str, dict[str, Any]] = {}
    for selected, masks in _select(task, files):
        folder = result / selected.name
        folder.mkdir(exist_ok=True)
        entries, about = _write_all(task, files, masks, folder, work)
        kept, reasons = sum(entry["rows"] for entry in entries), sum_counts([by_reason, selected.counts])
        assert num_read == kept + sum(reasons.values()) + duplicates
        manifests[selected.name] = {
            **identity,
            **({"subset": selected.name} if selected.name else {}),
            "counts": counts(kept, reasons),
            "sources": about_sources(files),
            **about,
            "shards": sorted(entries, key=lambda entry: str(entry["name"])),
        }
        _finish(folder, manifests[selected.name], sample)
    if "" in manifests:
        return manifests[""]
    whole = {
        **identity,
        "format": shards.SUBSETS_FORMAT,
        "counts": counts(num_parsed - duplicates, by_reason),
        "subsets": {name: one["counts"]["kept"] for name, one in manifests.items()},
    }
    _finish(result, whole, sample)
    return whole


def _finish(folder: Path, manifest: dict[str, Any], sample: str | None) -> None:
    for left in folder.glob(".*.tmp"):  # of a worker that was killed
        left.unlink()
    if sample is not None:
        write_file(folder / "rejected-sample.jsonl", lambda file: file.write(sample.encode()))
    write_json(folder / "manifest.json", manifest)
    write_json(folder / SUCCESS, {"manifest_sha256": sha256_of(folder / "manifest.json")})


class _Parts(Datasource):
    """Pair files for Ray Data: a read task a part, which parses and commits it; its block says what became of it.

    The pairs themselves go to files, not through Ray's object store: a run that is killed resumes from them.
    """

    def __init__(self, task: _Task, parts: Sequence[Part], partitions: int) -> None:
        self._task = ray.put(task)  # once, not with every read task: it may hold a million words
        self._parts, self._partitions = parts, partitions

    def estimate_inmemory_data_size(self) -> None:
        """Return None: blocks are a row each."""

    def get_read_tasks(self, *_: Any, **__: Any) -> list[ReadTask]:
        """Read tasks, one a part; none holds the list of all parts, which would be quadratic."""
        about = BlockMetadata(num_rows=1, size_bytes=None, input_files=None, exec_stats=None)
        task, partitions = self._task, self._partitions
        return [
            ReadTask(partial(_parse, number, part, task, partitions), about) for number, part in enumerate(self._parts)
        ]


def _parse_all(task: _Task, parts: Sequence[Part], partitions: int) -> list[SourceReport]:
    """Parse the parts through Ray Data, a task each."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    doing(f"parsing {len(parts):,} parts")
    workers = min(task.workers, len(parts))
    data = ray.data.read_datasource(
        _Parts(task, parts, partitions), concurrency=workers, override_num_blocks=len(parts), num_cpus=1
    )
    reports: dict[int, SourceReport] = {}
    for done, row in enumerate(data.iter_rows(), start=1):
        doing(f"parsing: part {done:,} of {len(parts):,} is done")
        if row["error"]:
            if not any(part.report.exists() for part in parts):
                shutil.rmtree(parts[0].parsed.parent, ignore_errors=True)  # nothing to resume; tasks may still write
            raise ValueError(row["error"])
        part = parts[row["number"]]
        report = reports[row["number"]] = load_report(part.report)
        when = " (parsed before)" if row["before"] else ""
        say(f"  {part}: {report.read:,} rows read, {report.parsed:,} pairs{when}")
    return [reports[number] for number in range(len(parts))]


def _parse(number: int, part: Part, task: "ray.ObjectRef[_Task]", partitions: int) -> list[pa.Table]:
    """Parse a part, unless an earlier run did; return the block of one row that says so."""
    error, before = "", part.report.exists()
    if not before:
        try:
            common = ray.get(task)
            what = part.source, part.name, common.settings, part.parsed, partitions, common.vocabulary, part.span
            save_report(parse_source(*what, sampled=common.sampled, limits=common.limits), part.report)
        except (ValueError, OSError) as cause:  # the user's to mend; raised by the driver, without Ray's wrapping
            error = str(cause)
    return [pa.table({"number": [number], "error": [error], "before": [before]})]


def _drop_duplicates(files: Sequence[ParsedPart], partitions: int, work: Path, workers: int) -> None:
    """Take the rows that repeat a pair out of the masks of the files.

    Ray Data's hash shuffle by the pair's key does the same in 4.4 to 7.5 times the time (1M lines, 2 workers).
    """
    by_partition, ranks = [file.part.partitions for file in files], [file.first_rank for file in files]

    def find(bucket: int) -> tuple[RowNumbers, RowNumbers]:
        return find_repeats(by_partition, bucket, partitions, ranks, work / f"spill-{bucket}.arrow")

    doing("finding duplicates")
    buckets = num_buckets(partitions)
    starts = np.cumsum([0, *(file.report.parsed for file in files)])[:-1]
    whole = np.concatenate([file.stays for file in files])
    for number, (sources, rows) in enumerate(_each(find, range(buckets), workers), start=1):
        doing(f"finding duplicates: bucket {number:,} of {buckets:,}")
        whole[starts[sources] + rows] = False
    for file, stays in zip(files, np.split(whole, starts[1:]), strict=True):
        file.stays[:] = stays


def _select(task: _Task, files: Sequence[ParsedPart]) -> list[tuple[Selected, list[Mask]]]:
    """The outputs, and for each which pairs of the files are in it."""
    settings, stays = task.settings, [file.stays for file in files]
    if not selects(settings):
        return [(Selected("", np.zeros(0, np.int64)), stays)]
    _save_masks(files, stays)

    def columns_of(part: Part) -> None:
        pq.write_table(selection_table(part.parsed, np.load(part.mask, mmap_mode="r"), settings), part.columns)

    list(_each(columns_of, [file.part for file in files], task.workers))
    columns = pa.concat_tables([pq.read_table(file.part.columns) for file in files]).combine_chunks()
    kept = np.flatnonzero(np.concatenate(stays))
    ends = np.cumsum([len(mask) for mask in stays])
    outputs = []
    for selected in select(settings, columns):
        whole = np.zeros(ends[-1], bool)
        whole[kept[selected.rows]] = True
        outputs.append((selected, np.split(whole, ends[:-1])))
    return outputs


def _write_all(
    task: _Task, files: Sequence[ParsedPart], masks: Sequence[Mask], folder: Path, work: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the shards of one output, its lengths and vocabulary; returns the shards' entries and what it is about."""
    plans = shards.plan_shards([file.report for file in files], masks, task.settings.rows_per_shard)
    _save_masks(files, masks)
    parts, ranks = [file.part for file in files], [file.first_rank for file in files]

    def write(plan: ShardPlan) -> dict[str, Any]:
        staying = {number: np.load(parts[number].mask, mmap_mode="r") for number, _ in plan.groups}
        return shards.write_shard(plan, [part.parsed for part in parts], staying, folder, work / plan.name, ranks)

    entries: list[dict[str, Any]] = []
    for entry in _each(write, plans, task.workers):
        doing(f"writing: shard {len(entries) + 1:,} of {len(plans):,}")
        entries.append(entry)
    counts = merge_counts([shards.load_counts(work / plan.name) for plan in plans])
    write_json(folder / "lengths.json", length_histogram(counts))
    write_file(folder / "vocabulary.parquet", lambda file: pq.write_table(counts.words, file))
    return entries, {} if task.vocabulary is None else {"coverage": without_vector(counts, task.vocabulary)}


def _save_masks(files: Sequence[ParsedPart], masks: Sequence[Mask]) -> None:
    """Write masks to files, which the workers map into memory."""
    for file, mask in zip(files, masks, strict=True):
        np.save(file.part.mask, mask)


def _each(function: Callable[[_Argument], _Result], arguments: Sequence[_Argument], workers: int) -> Iterator[_Result]:
    """Results of ``function``, as they come, of Ray tasks of which ``workers`` run at a time.

    A dataset of Ray Data, whose executor takes 0.8 s to start, would do the same.
    """
    task = ray.remote(num_cpus=1)(function)
    waiting = iter(arguments)
    running = [task.remote(argument) for argument in islice(waiting, workers)]
    while running:
        (done,), running = ray.wait(running)
        running += [task.remote(argument) for argument in islice(waiting, 1)]
        yield ray.get(done)


def _names(inputs: Sequence[Place]) -> list[str]:
    """File names; with their number in front where two inputs have one name."""
    counts = Counter(os.path.realpath(place) if isinstance(place, Path) else place for place in inputs)
    if len(counts) < len(inputs):
        twice = [without_credentials(str(place)) for place, count in counts.items() if count > 1]
        raise ValueError(f"an input is given twice: {listed(twice)}; name each once")
    names = [name_of(place) for place in inputs]
    return names if len(set(names)) == len(names) else [f"{at}/{name}" for at, name in enumerate(names)]
