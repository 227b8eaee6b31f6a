"""Outputs of a sharding job: their identity, their manifests, and their files, finished and unfinished."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.aliases import on_disk
from paraembed.io.atomic import SUCCESS, write_file, write_json
from paraembed.io.fingerprint import read_json
from paraembed.io.limits import DEFAULT_LIMITS
from paraembed.io.parquet import open_parquet
from paraembed.io.resume import Work, check_own_files
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import (
    FORMAT,
    SUBSETS_FORMAT,
    VOCABULARY,
    length_histogram,
    load_counts,
    merge_counts,
    without_vector,
)
from paraembed.pairs.source_parts import ParsedPart, about_sources, reports_of, sum_counts

JOB = "jobs/shard.py"
_CODE = 4
"""Version of the files in a work folder; files of another version are discarded."""
_SHARD = r"pairs-\d{5,}-of-\d{5,}\.parquet"
_FILE = rf"(manifest\.json|_SUCCESS|lengths\.json|vocabulary\.parquet|rejected-sample\.jsonl|{_SHARD})"
_OUTPUT = rf"((train|dev|test|1-of-\d+)/)?({_FILE}|\.{_FILE}\.[0-9a-f]{{8}}\.tmp)"
_STEP = r"(identity\.json|parsed-\d{5,}\.(parquet|arrow|json|columns)|stays-\d{5,}\.npy|spill-\d+\.arrow)"
OUTPUT_FILES = re.compile(_OUTPUT)
_WORK_FILES = re.compile(rf"{_STEP}|\.{_STEP}\.[0-9a-f]{{8}}\.tmp|{_SHARD}/(lengths|words)|result/{_OUTPUT}")


def settings_to_json(settings: ShardSettings, *, has_labels: bool = False) -> dict[str, Any]:
    """Return settings as JSON, without fields that the first version did not have and that have no effect: an unset
    ``no_header``, and ``keep_labels`` of inputs without labels.
    """
    values: dict[str, Any] = on_disk(json.loads(json.dumps(asdict(settings))))
    values["keep_labels"] = values["keep_labels"] or "default"
    effective = {"no_header": settings.no_header, "keep_labels": has_labels}
    return {name: value for name, value in values.items() if effective.get(name, True)}


def is_finished(out: Path, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Return whether ``out`` is the finished output of an identity; raise ValueError as ``Work.is_finished`` does."""
    work = Work(out, work_folder_of(out), "identity.json", identity, _WORK_FILES, JOB, overwrite)
    return work.is_finished(partial(read_identity, fields=tuple(identity)))


def has_labels(out: Path) -> bool:
    """Return whether pairs of a finished output have labels, from the footers of its shards."""
    for path in out.rglob("pairs-*.parquet"):
        with open_parquet(path) as file:
            footer, column = file.metadata, file.schema_arrow.get_field_index("relation")
        chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
        if any(chunk.statistics.null_count < chunk.num_values for chunk in chunks):
            return True
    return False


def unfinished_output(out: Path, identity: dict[str, Any], *, rejected_sample: bool) -> Work:
    """Return the ``Work`` of an output in progress.

    Unfinished work of other inputs or settings is discarded even without ``overwrite``, since it costs only minutes of
    parsing.
    """
    fingerprint = {"code": _CODE, **identity, "rejected_sample": rejected_sample}
    return Work(out, work_folder_of(out), "identity.json", fingerprint, _WORK_FILES, JOB, overwrite=True)


def work_folder_of(out: Path) -> Path:
    """Return the folder of the unfinished work, hidden next to the output."""
    return out.with_name(f".{out.name}.partial")


def replaced_folder_of(out: Path) -> Path:
    """Return the folder that holds a replaced output until it is removed."""
    return out.with_name(f".{out.name}.old")


def check_folders(out: Path) -> None:
    """Raise ValueError if a folder that the job empties or replaces holds a file that the job did not write."""
    check_own_files(out, OUTPUT_FILES, JOB, may_be_link=True)
    check_own_files(replaced_folder_of(out), OUTPUT_FILES, JOB)
    check_own_files(work_folder_of(out), _WORK_FILES, JOB)


def read_identity(out: Path, fields: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a finished output's manifest that decided its rows; raise ValueError if it holds other
    files.
    """
    if not out.is_dir():
        raise ValueError(f"{out} is a file; `out` must be a folder, new or empty")
    manifest: dict[str, Any] = {}
    if (out / SUCCESS).is_file() and (out / "manifest.json").is_file():
        manifest = read_json(out / "manifest.json", dict[str, Any])
    if manifest.get("format") not in {FORMAT, SUBSETS_FORMAT}:
        check_own_files(out, OUTPUT_FILES, JOB, may_be_link=True)
        raise ValueError(f"{out} does not contain finished pair shards; choose another `out`, or empty it")
    manifest.setdefault("max_line_bytes", DEFAULT_LIMITS.max_line_bytes)  # absent from manifests of older versions
    return {name: manifest.get(name) for name in fields} | {"format": FORMAT}


class Outputs:
    """Writer of all outputs of one job, within one folder, which is emptied first.

    ``identity`` holds the fields that decide the rows, at the beginning of every manifest; in ``files``, duplicates are
    marked.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], files: Sequence[ParsedPart], *, rejected_sample: bool
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._folder, self._identity, self._files = folder, identity, files
        self._manifests: dict[str, dict[str, Any]] = {}
        self._sample: str | None = None
        if rejected_sample:
            rows = [row for report in reports_of(files).values() for row in report.sample]
            self._sample = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    def make_folder(self, name: str) -> Path:
        """Create the folder of an output; the empty name is the result folder itself."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def add(
        self,
        name: str,
        shards: Sequence[dict[str, Any]],
        lost: dict[str, int],
        counts: Sequence[Path],
        vocabulary: pa.StringArray | None,
    ) -> None:
        """Complete an output whose shards are written, given their entries from ``write_shard``.

        ``lost`` counts the rows that the selection left out, by reason; ``counts`` are the folders with the counts of
        the shards. The coverage of a vocabulary [V] is reported.
        """
        folder = self._folder / name
        merged = merge_counts([load_counts(path) for path in counts])
        write_json(folder / "lengths.json", length_histogram(merged))
        write_file(folder / VOCABULARY, lambda file: pq.write_table(merged.words, file))
        self._manifests[name] = {
            **self._identity,
            **({"subset": name} if name else {}),
            "counts": self._counts(sum(entry["rows"] for entry in shards), lost),
            "sources": about_sources(self._files),
            **({} if vocabulary is None else {"coverage": without_vector(merged, vocabulary)}),
            "shards": sorted(shards, key=lambda entry: str(entry["name"])),
        }
        self._finish(folder, self._manifests[name])

    def finish(self) -> dict[str, Any]:
        """Return the manifest of the result, after writing it if the result has several outputs."""
        if "" in self._manifests:
            return self._manifests[""]
        kept = sum(int(file.stays.sum()) for file in self._files)
        manifest = {
            **self._identity,
            "format": SUBSETS_FORMAT,
            "counts": self._counts(kept, {}),
            "subsets": {name: manifest["counts"]["kept"] for name, manifest in self._manifests.items()},
        }
        self._finish(self._folder, manifest)
        return manifest

    def _counts(self, kept: int, lost: dict[str, int]) -> dict[str, Any]:
        read, duplicates = sum(file.report.read for file in self._files), sum(file.duplicates for file in self._files)
        reasons = sum_counts([*(file.report.refused for file in self._files), lost])
        refused = sum(reasons.values())
        assert read == kept + refused + duplicates
        return {"read": read, "kept": kept, "refused": refused, "duplicates": duplicates, "reasons": reasons}

    def _finish(self, folder: Path, manifest: dict[str, Any]) -> None:
        for temporary in folder.glob(".*.tmp"):  # of a worker that was killed
            temporary.unlink()
        sample = self._sample
        if sample is not None:
            write_file(folder / "rejected-sample.jsonl", lambda file: file.write(sample.encode()))
        write_json(folder / SUCCESS, {"manifest_sha256": write_json(folder / "manifest.json", manifest)})
