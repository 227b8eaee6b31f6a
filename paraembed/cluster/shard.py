"""Pair files → pair shards, on Ray Data: files are parsed side by side, duplicates found, shards written."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray.data

from paraembed.cluster.job import say
from paraembed.cluster.session import check_workers, ray_session
from paraembed.cluster.tracking import tracked_run
from paraembed.data import shards
from paraembed.data.duplicates import find_duplicates, num_partitions
from paraembed.data.pairs import Source, read_pairs, sources_of
from paraembed.data.selection import Selected, select, selects
from paraembed.data.shards import Mask, ShardPlan, ShardSettings, SourceReport
from paraembed.data.statistics import length_histogram, merge_counts, without_vector
from paraembed.data.training_sets import row_rules, set_of
from paraembed.data.vocabulary import read_vocabulary
from paraembed.files import (
    SUCCESS,
    Place,
    differences,
    digest_of,
    empty_folder,
    name_of,
    read_json,
    replace_folder,
    sha256_of,
    size_of,
    work_folder,
    write_file,
    write_json,
)


def shard_pairs(
    inputs: Sequence[Place],
    out: Path,
    settings: ShardSettings,
    *,
    words: Path | None = None,
    max_words: int | None = None,
    workers: int = 2,
    overwrite: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Write pair shards of the contract (data/schemas.py ``PAIRS``), a manifest and ``_SUCCESS``, last.

    The folder appears when it is complete. Until then the work stands in a hidden folder beside it, and the same call
    goes on from the files that are parsed. Where the settings select several outputs (a split, halvings), each is a
    complete folder of pair shards below ``out``.

    Args:
        inputs: pair files; their order breaks ties between equal ranks and orders the rows.
        out: folder to write.
        settings: what decides the rows.
        words: word-vector text file, or a list of words, one a line: the vocabulary.
        max_words: only so many of its words, the first ones.
        workers: files parsed side by side.
        overwrite: replace a finished output of other inputs or settings.

    Returns:
        The manifest, and whether it was complete before.

    Raises:
        FileNotFoundError, IsADirectoryError: an input is missing or a folder.
        ValueError: an input is unusable, nothing is kept, or ``out`` holds something else.
    """
    check_workers(workers)
    if not inputs:
        raise ValueError("no input; give pair files with --input")
    names = _names(inputs)
    sources = sources_of(inputs, settings.format)
    vocabulary = read_vocabulary(words, max_words) if words else None
    row_rules(settings, vocabulary)
    for source in sources:
        next(read_pairs(source, shards.reading_of(settings)))  # what is unusable is said at once
    identity = {
        "format": shards.FORMAT,
        "settings": json.loads(json.dumps(asdict(settings))),
        "inputs": [
            {"name": name, "bytes": size_of(path), "sha256": sha256_of(path)}
            for name, path in zip(names, inputs, strict=True)
        ],
        "words": {"name": words.name, "sha256": sha256_of(words), "max_words": max_words} if words else None,
    }
    finished = read_finished(out, identity, overwrite)
    if finished is not None:
        say(f"{out} is complete already ({finished['counts']['kept']:,} pairs); nothing to do")
        return finished, True
    task = _Task(sources, names[:: len(inputs) // len(sources)], settings, vocabulary, workers)
    work = out.with_name(f".{out.name}.partial")
    with work_folder(work), tracked_run(f"shard {out.name}", out) as run, ray_session(workers):
        _begin(work, identity)
        run.params({"inputs": len(inputs), "input_digest": digest_of(identity["inputs"]), **identity["settings"]})
        manifest = _shard(task, work, identity)
        result = work / "result"
        run.metrics({name: manifest["counts"][name] for name in ("read", "kept", "refused", "duplicates")})
        run.metrics({f"refused/{reason}": count for reason, count in manifest["counts"]["reasons"].items()})
        for path in sorted(result.rglob("*.json*")):
            run.artifacts(path, str(path.parent.relative_to(result)) if path.parent != result else None)
        replace_folder(result, out)
        shutil.rmtree(work)
    return manifest, False


@dataclass(frozen=True)
class _Task:
    """What is sharded: sources and their names, how, the known words, how many workers."""

    sources: Sequence[Source]
    names: Sequence[str]
    settings: ShardSettings
    vocabulary: pa.StringArray | None
    workers: int


def read_finished(out: Path, identity: dict[str, Any], overwrite: bool = False) -> dict[str, Any] | None:
    """The manifest of a finished output with this identity; None where there is none and one may be made.

    Raises:
        ValueError: ``out`` holds something else, or pairs of other inputs or settings that are not to be overwritten.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir():
        raise ValueError(f"{out} is a file; --out needs a folder, new or empty")
    if not (out / SUCCESS).is_file() or not (out / "manifest.json").is_file():
        raise ValueError(f"{out} holds something that jobs/shard.py did not write; choose another --out or empty it")
    manifest: dict[str, Any] = read_json(out / "manifest.json")
    if not isinstance(manifest, dict):
        raise ValueError(f"{out}/manifest.json holds no object; expected what jobs/shard.py writes")
    ours = manifest.get("format") in {shards.FORMAT, shards.SUBSETS_FORMAT}
    changed = differences(*({key: one.get(key) for key in identity if key != "format"} for one in (manifest, identity)))
    if ours and not changed:
        return manifest
    if ours and overwrite:
        return None
    raise ValueError(f"{out} holds other pairs: {changed}; choose another --out, or replace it with --overwrite")


def _shard(task: _Task, work: Path, identity: dict[str, Any]) -> dict[str, Any]:
    settings, workers = task.settings, task.workers
    parsed = [work / f"parsed-{number:05d}.parquet" for number in range(len(task.sources))]
    partitions = num_partitions(sum(one["bytes"] for one in identity["inputs"]))
    reports = _parse_all(task, parsed, partitions)
    num_read, num_parsed = (sum(getattr(one, name) for one in reports) for name in ("read", "parsed"))
    if not num_parsed:
        why = ", ".join(f"{count:,} {reason}" for reason, count in _reasons(reports).items())
        shutil.rmtree(work)
        raise ValueError(f"no pair is left of {num_read:,} rows: {why}")
    stays = [np.ones(report.parsed, bool) for report in reports]
    if not set_of(settings).keeps_duplicates:
        _drop_duplicates(stays, parsed, partitions, workers)
    duplicates = [int(len(mask) - mask.sum()) for mask in stays]
    say(f"  {sum(duplicates):,} duplicates of {num_parsed:,} pairs removed")
    outputs = _select(task, parsed, stays, work)
    result = work / "result"
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir()
    sample = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in shards.iter_refused(reports))
    manifests: dict[str, dict[str, Any]] = {}
    for selected, masks in outputs:
        folder = result / selected.name
        folder.mkdir(exist_ok=True)
        entries, about = _write_all(task, parsed, reports, masks, folder, work)
        reasons = _reasons(reports)
        for reason, count in selected.counts.items():
            reasons[reason] = reasons.get(reason, 0) + count
        kept = sum(entry["rows"] for entry in entries)
        manifests[selected.name] = {
            **identity,
            **({"subset": selected.name} if selected.name else {}),
            "counts": {
                "read": num_read,
                "kept": kept,
                "refused": sum(reasons.values()),
                "duplicates": sum(duplicates),
                "reasons": dict(sorted(reasons.items())),
            },
            "sources": {
                name: _about_source(report, repeated)
                for name, report, repeated in zip(task.names, reports, duplicates, strict=True)
            },
            **about,
            "shards": sorted(entries, key=lambda entry: str(entry["name"])),
        }
        assert num_read == kept + sum(reasons.values()) + sum(duplicates)
        _finish(folder, manifests[selected.name], sample)
    if "" in manifests:
        return manifests[""]
    whole = {
        **identity,
        "format": shards.SUBSETS_FORMAT,
        "counts": {
            "read": num_read,
            "kept": num_parsed - sum(duplicates),
            "refused": sum(_reasons(reports).values()),
            "duplicates": sum(duplicates),
            "reasons": _reasons(reports),
        },
        "subsets": {name: one["counts"]["kept"] for name, one in manifests.items()},
    }
    _finish(result, whole, sample)
    return whole


def _about_source(report: SourceReport, duplicates: int) -> dict[str, Any]:
    """A source's entry in the manifest."""
    version = {} if report.version is None else {"ppdb_version": report.version}
    counts = {"read": report.read, "pairs": report.parsed, "duplicates": duplicates, "refused": report.refused}
    return {**version, **counts}


def _finish(folder: Path, manifest: dict[str, Any], sample: str) -> None:
    for left in folder.glob(".*.tmp"):  # of a worker that was killed
        left.unlink()
    write_file(folder / "rejected-sample.jsonl", lambda file: file.write(sample.encode()))
    write_json(folder / "manifest.json", manifest)
    write_json(folder / SUCCESS, {"manifest_sha256": sha256_of(folder / "manifest.json")})


def _parse_all(task: _Task, parsed: Sequence[Path], partitions: int) -> list[SourceReport]:
    parse = partial(_parse, task=task, parsed=parsed, partitions=partitions)
    for row in _map(parse, [{"number": number} for number in range(len(parsed))], task.workers):
        if row["error"]:
            if not any(map(Path.exists, map(_report_path, parsed))):
                shutil.rmtree(parsed[0].parent)  # nothing in it to go on from
            raise ValueError(row["error"])
        report = shards.load_report(_report_path(parsed[row["number"]]))
        when = " (parsed before)" if row["before"] else ""
        say(f"  {task.names[row['number']]}: {report.read:,} rows read, {report.parsed:,} pairs{when}")
    return [shards.load_report(_report_path(path)) for path in parsed]


def _select(
    task: _Task, parsed: Sequence[Path], stays: Sequence[Mask], work: Path
) -> list[tuple[Selected, list[Mask]]]:
    """The outputs, and for each which rows of the parsed files are in it."""
    if not selects(task.settings):
        return [(Selected("", np.zeros(0, np.int64)), list(stays))]
    masks = _save_masks(stays, work)

    def columns_of(row: dict[str, Any]) -> dict[str, Any]:
        number = row["number"]
        table = shards.selection_table(parsed[number], np.load(masks[number], mmap_mode="r"), task.settings)
        pq.write_table(table, _columns_path(parsed[number]))
        return {"number": number}

    list(_map(columns_of, [{"number": number} for number in range(len(parsed))], task.workers))
    columns = pa.concat_tables([pq.read_table(_columns_path(path)) for path in parsed]).combine_chunks()
    kept = np.flatnonzero(np.concatenate(list(stays)))
    ends = np.cumsum([len(mask) for mask in stays])[:-1]
    outputs = []
    for selected in select(task.settings, columns):
        whole = np.zeros(sum(map(len, stays)), bool)
        whole[kept[selected.rows]] = True
        outputs.append((selected, np.split(whole, ends)))
    return outputs


def _write_all(
    task: _Task,
    parsed: Sequence[Path],
    reports: Sequence[SourceReport],
    stays: Sequence[Mask],
    folder: Path,
    work: Path,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the shards of one output, its lengths and vocabulary; returns the shards' entries and what it is about."""
    plans = shards.plan_shards(reports, stays, task.settings.rows_per_shard)
    write = partial(_write, parsed=parsed, masks=_save_masks(stays, work), folder=folder, work=work)
    rows = [{"plan": json.dumps(asdict(plan))} for plan in plans]
    entries = list(_map(write, rows, task.workers)) if rows else []
    counts = merge_counts([shards.load_counts(work / plan.name) for plan in plans])
    write_json(folder / "lengths.json", length_histogram(counts))
    write_file(folder / "vocabulary.parquet", lambda file: pq.write_table(counts.words, file))
    return entries, {} if task.vocabulary is None else {"coverage": without_vector(counts, task.vocabulary)}


def _map(
    function: Callable[[dict[str, Any]], dict[str, Any]], rows: list[dict[str, Any]], workers: int
) -> Iterator[dict[str, Any]]:
    """Results of ``function`` on each row, through Ray Data, as they come."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    data = ray.data.from_items(rows, override_num_blocks=len(rows))
    mapped = data.map(function, num_cpus=1, compute=ray.data.TaskPoolStrategy(size=min(workers, len(rows))))
    return iter(mapped.iter_rows())


def _parse(row: dict[str, Any], task: _Task, parsed: Sequence[Path], partitions: int) -> dict[str, Any]:
    number = row["number"]
    out = parsed[number]
    if _report_path(out).exists():  # written after the pairs, in an earlier run that was cut short
        return {"number": number, "error": "", "before": True}
    try:
        report = shards.parse_source(
            task.sources[number], task.names[number], task.settings, out, partitions, task.vocabulary
        )
        shards.save_report(report, _report_path(out))
    except (ValueError, OSError) as error:  # the user's to mend; raised by the driver, without Ray's wrapping
        return {"number": number, "error": str(error), "before": False}
    return {"number": number, "error": "", "before": False}


def _drop_duplicates(stays: Sequence[Mask], parsed: Sequence[Path], partitions: int, workers: int) -> None:
    """Clear, in the masks of the parsed files, the rows that repeat a pair."""
    by_partition = [shards.partitions_of(path) for path in parsed]

    def find(row: dict[str, Any]) -> dict[str, Any]:
        found = find_duplicates(by_partition, row["partition"], partitions)
        return {"rows": np.concatenate(found), "counts": np.array([len(one) for one in found])}

    for row in _map(find, [{"partition": number} for number in range(partitions)], workers):
        for mask, gone in zip(stays, np.split(row["rows"], np.cumsum(row["counts"])[:-1]), strict=True):
            mask[gone] = False


def _save_masks(stays: Sequence[Mask], work: Path) -> list[Path]:
    """Masks as files, which the writers of the shards map into memory."""
    paths = [work / f"stays-{number:05d}.npy" for number in range(len(stays))]
    for path, mask in zip(paths, stays, strict=True):
        np.save(path, mask)
    return paths


def _write(
    row: dict[str, Any], parsed: Sequence[Path], masks: Sequence[Path], folder: Path, work: Path
) -> dict[str, Any]:
    values = json.loads(row["plan"])
    plan = ShardPlan(**{**values, "groups": [tuple(group) for group in values["groups"]]})
    stays = {number: np.load(masks[number], mmap_mode="r") for number, _ in plan.groups}
    return shards.write_shard(plan, parsed, stays, folder, work / plan.name)


def _reasons(reports: Sequence[SourceReport]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for report in reports:
        for reason, count in report.refused.items():
            totals[reason] = totals.get(reason, 0) + count
    return dict(sorted(totals.items()))


def _names(inputs: Sequence[Place]) -> list[str]:
    """File names; with their number in front where two inputs have one name."""
    if len({place.resolve() if isinstance(place, Path) else place for place in inputs}) < len(inputs):
        raise ValueError(f"an input is given twice: {', '.join(map(str, inputs))}")
    names = [name_of(place) for place in inputs]
    return names if len(set(names)) == len(names) else [f"{at}/{name}" for at, name in enumerate(names)]


def _columns_path(parsed: Path) -> Path:
    return parsed.with_suffix(".columns")


def _report_path(parsed: Path) -> Path:
    return parsed.with_suffix(".json")


def _begin(work: Path, identity: dict[str, Any]) -> None:
    """Empty the work folder, unless it is of the same inputs and settings."""
    saved = work / "identity.json"
    if not (saved.is_file() and read_json(saved) == identity):
        empty_folder(work)
        write_json(saved, identity)
