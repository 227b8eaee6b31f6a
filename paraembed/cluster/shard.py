"""Pair files → pair shards, on Ray Data: files are parsed side by side, duplicates found, shards written."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray.data

from paraembed.cluster.job import say
from paraembed.cluster.session import check_workers, ray_session
from paraembed.cluster.tracking import Run, tracked_run
from paraembed.data import shards
from paraembed.data.pairs import read_pairs
from paraembed.data.shards import ShardPlan, ShardSettings, SourceReport
from paraembed.files import (
    SUCCESS,
    differences,
    digest_of,
    empty_folder,
    read_json,
    replace_folder,
    sha256_of,
    work_folder,
    write_file,
    write_json,
)


def shard_pairs(
    inputs: Sequence[Path], out: Path, settings: ShardSettings, *, workers: int = 2, overwrite: bool = False
) -> tuple[dict[str, Any], bool]:
    """Write pair shards of the contract (data/schemas.py ``PAIRS``), a manifest and ``_SUCCESS``, last.

    The folder appears when it is complete. Until then the work stands in a hidden folder beside it, and the same call
    goes on from the files that are parsed.

    Args:
        inputs: pair files; their order breaks ties between equal ranks and orders the rows.
        out: folder to write.
        settings: what decides the rows.
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
    for path in inputs:
        next(read_pairs(path, settings.format, settings.columns))  # what is unusable is said at once
    identity = {
        "format": shards.FORMAT,
        "settings": json.loads(json.dumps(asdict(settings))),
        "inputs": [
            {"name": name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for name, path in zip(_names(inputs), inputs, strict=True)
        ],
    }
    finished = read_finished(out, identity, overwrite)
    if finished is not None:
        say(f"{out} is complete already ({finished['counts']['kept']:,} pairs); nothing to do")
        return finished, True
    work = out.with_name(f".{out.name}.partial")
    with work_folder(work), tracked_run(f"shard {out.name}", out) as run, ray_session(workers):
        _begin(work, identity)
        run.params({"inputs": len(inputs), "input_digest": digest_of(identity["inputs"]), **identity["settings"]})
        manifest = _shard(inputs, work, identity, settings, workers)
        result = work / "result"
        run.metrics({name: manifest["counts"][name] for name in ("read", "kept", "refused", "duplicates")})
        run.metrics({f"refused/{reason}": count for reason, count in manifest["counts"]["reasons"].items()})
        _log_files(run, result)
        replace_folder(result, out)
        shutil.rmtree(work)
    return manifest, False


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
    changed = differences({key: manifest.get(key) for key in identity}, identity)
    if not changed:
        return manifest
    if manifest.get("format") == shards.FORMAT and overwrite:
        return None
    raise ValueError(f"{out} holds other pairs: {changed}; choose another --out, or replace it with --overwrite")


def _shard(
    inputs: Sequence[Path], work: Path, identity: dict[str, Any], settings: ShardSettings, workers: int
) -> dict[str, Any]:
    parsed = [work / f"parsed-{number:05d}.parquet" for number in range(len(inputs))]
    names = [one["name"] for one in identity["inputs"]]
    parse = partial(_parse, inputs=inputs, names=names, parsed=parsed, settings=settings)
    for row in _map(parse, [{"number": number} for number in range(len(inputs))], workers):
        if row["error"]:
            if not any(map(Path.exists, map(_report_path, parsed))):
                shutil.rmtree(work)  # nothing in it to go on from
            raise ValueError(row["error"])
        report = shards.load_report(_report_path(parsed[row["number"]]))
        when = " (parsed before)" if row["before"] else ""
        say(f"  {names[row['number']]}: {report.read:,} rows read, {report.parsed:,} pairs{when}")
    reports = [shards.load_report(_report_path(path)) for path in parsed]
    kept = sum(report.parsed for report in reports)
    if not kept:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in _reasons(reports).items())
        shutil.rmtree(work)
        raise ValueError(f"no pair is left of {sum(report.read for report in reports):,} rows: {reasons}")
    dropped = _find_duplicates(parsed, kept, workers)
    duplicates = sum(map(len, dropped))
    say(f"  {duplicates:,} duplicates of {kept:,} pairs removed")
    plans = shards.plan_shards(reports, dropped, settings.rows_per_shard)
    result = work / "result"
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir()
    rows = [{"plan": json.dumps(asdict(plan))} for plan in plans]
    entries = list(_map(partial(_write, parsed=parsed, dropped=dropped, folder=result), rows, workers))
    reasons_by_count = _reasons(reports)
    manifest = {
        **identity,
        "counts": {
            "read": sum(report.read for report in reports),
            "kept": kept - duplicates,
            "refused": sum(reasons_by_count.values()),
            "duplicates": duplicates,
            "reasons": reasons_by_count,
        },
        "sources": {
            name: {"read": report.read, "pairs": report.parsed, "duplicates": len(gone), "refused": report.refused}
            for name, report, gone in zip(names, reports, dropped, strict=True)
        },
        "shards": sorted(entries, key=lambda entry: str(entry["name"])),
    }
    sample = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in shards.iter_refused(reports))
    write_file(result / "rejected-sample.jsonl", lambda file: file.write(sample.encode()))
    write_json(result / "manifest.json", manifest)
    write_json(result / SUCCESS, {"manifest_sha256": sha256_of(result / "manifest.json")})
    return manifest


def _map(
    function: Callable[[dict[str, Any]], dict[str, Any]], rows: list[dict[str, Any]], workers: int
) -> Iterator[dict[str, Any]]:
    """Results of ``function`` on each row, through Ray Data, as they come."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    data = ray.data.from_items(rows, override_num_blocks=len(rows))
    mapped = data.map(function, num_cpus=1, compute=ray.data.TaskPoolStrategy(size=min(workers, len(rows))))
    return iter(mapped.iter_rows())


def _parse(
    row: dict[str, Any], inputs: Sequence[Path], names: Sequence[str], parsed: Sequence[Path], settings: ShardSettings
) -> dict[str, Any]:
    number = row["number"]
    report = _report_path(parsed[number])
    if report.exists():  # written after the pairs, in an earlier run that was cut short
        return {"number": number, "error": "", "before": True}
    try:
        shards.save_report(shards.parse_source(inputs[number], names[number], settings, parsed[number]), report)
    except (ValueError, OSError) as error:  # the user's to mend; raised by the driver, without Ray's wrapping
        return {"number": number, "error": str(error), "before": False}
    return {"number": number, "error": "", "before": False}


def _find_duplicates(parsed: Sequence[Path], rows: int, workers: int) -> list[npt.NDArray[np.int64]]:
    buckets = shards.num_buckets(rows)

    def find(row: dict[str, Any]) -> dict[str, Any]:
        found = shards.find_duplicates(parsed, row["bucket"], buckets)
        return {"ranks": np.concatenate(found), "counts": np.array([len(one) for one in found])}

    dropped: list[list[npt.NDArray[np.int64]]] = [[] for _ in parsed]
    for row in _map(find, [{"bucket": bucket} for bucket in range(buckets)], workers):
        for number, ranks in enumerate(np.split(row["ranks"], np.cumsum(row["counts"])[:-1])):
            dropped[number].append(ranks)
    return [np.sort(np.concatenate(ranks)) for ranks in dropped]


def _write(
    row: dict[str, Any], parsed: Sequence[Path], dropped: Sequence[npt.NDArray[np.int64]], folder: Path
) -> dict[str, Any]:
    values = json.loads(row["plan"])
    plan = ShardPlan(**{**values, "groups": [tuple(group) for group in values["groups"]]})
    return shards.write_shard(plan, parsed, dropped, folder)


def _reasons(reports: Sequence[SourceReport]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for report in reports:
        for reason, count in report.refused.items():
            totals[reason] = totals.get(reason, 0) + count
    return dict(sorted(totals.items()))


def _names(inputs: Sequence[Path]) -> list[str]:
    """File names; with their number in front where two inputs have one name."""
    if len({path.resolve() for path in inputs}) < len(inputs):
        raise ValueError(f"an input is given twice: {', '.join(map(str, inputs))}")
    names = [path.name for path in inputs]
    return names if len(set(names)) == len(names) else [f"{at}/{name}" for at, name in enumerate(names)]


def _report_path(parsed: Path) -> Path:
    return parsed.with_suffix(".json")


def _begin(work: Path, identity: dict[str, Any]) -> None:
    """Empty the work folder, unless it is of the same inputs and settings."""
    saved = work / "identity.json"
    if not (saved.is_file() and read_json(saved) == identity):
        empty_folder(work)
        write_json(saved, identity)


def _log_files(run: Run, result: Path) -> None:
    for name in ("manifest.json", "rejected-sample.jsonl"):
        run.artifacts(result / name)
