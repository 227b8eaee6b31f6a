"""Verify an output against its manifest: every row exactly once, no other files, no changes."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.console import doing
from paraembed.embedding.columns import CHUNK_FIELDS, embeddings_schema, is_id, output_fields
from paraembed.embedding.ids import Hashes, Parts, comparable, count_duplicates, file_of, hashes_name, hashes_of
from paraembed.embedding.manifest import (
    COUNTS,
    MANIFEST,
    NAMES,
    OTHER_COUNTS,
    REPAIR,
    columns_of,
    format_of,
    generations_of,
    open_output,
    read_manifest,
    read_superseded,
)
from paraembed.embedding.part import BAD_FILES, rejected_name
from paraembed.embedding.plan import DATA, IDS
from paraembed.embedding.settings import Settings
from paraembed.embedding.spot_check import compare_sample
from paraembed.io.atomic import SUCCESS
from paraembed.io.places import Place, to_place
from paraembed.io.store import Folder, Store, is_committed, is_there, read_bytes
from paraembed.loading import Fetch
from paraembed.options import Count, json_value
from paraembed.process import RunTasks, in_order


def _planned(part: dict[str, Any]) -> int:
    """Return the rows of the plan of a part of the manifest."""
    count: int = part["rows"] - part.get("n_further_chunks", 0) + part["n_rejected"]
    return count


_Entry = tuple[dict[str, Any], int]
"""A part of the manifest, and the number of its first row over all parts."""
_ROWS = 16_384  # read at a time
_TASK_ROWS = 100_000  # about
_SECONDS_A_ROW = 3e-6  # with 256 float32 numbers
_IN_MEMORY = 256 << 20  # bytes of a part of an object store, which is then read once
_REJECTED_BYTES = 1 << 30  # of a list of rejected rows


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str  # name of the check
    ok: bool  # whether it passed
    detail: str  # description of the result


class _Rejected(TypedDict):
    """Rejected row, or file that was left out."""

    source: str
    row: NotRequired[Count]
    reason: str


@dataclass
class _Findings:
    """Problems by check, and counts over parts."""

    wrong: dict[str, list[str]] = field(default_factory=dict)
    counted: Any = field(default_factory=lambda: np.zeros(3, np.int64))  # rows, n_tokens, n_unknown
    n_null_ids: int = 0
    hashes: dict[str, bytes] = field(default_factory=dict)  # of the ids, by the name of the part

    def add(self, check: str, problem: str) -> None:
        self.wrong.setdefault(check, []).append(problem)

    def merge(self, later: "_Findings") -> None:
        """Add what was found in later parts, but not the hashes."""
        for check, problems in later.wrong.items():
            self.wrong.setdefault(check, []).extend(problems)
        self.counted += later.counted
        self.n_null_ids += later.n_null_ids

    def check(self, name: str, right: str) -> Check:
        wrong = list(dict.fromkeys(self.wrong.get(name, [])))
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return Check(name, not wrong, "; ".join(wrong[:3]) + more if wrong else right)


def verify(
    out: Place,
    encoder: str | Path | None = None,
    inputs: Sequence[str] = (),
    *,
    sample_parts: int | None = None,
    started: Callable[[float], AbstractContextManager[RunTasks]] = lambda _: nullcontext(map),
    fetch: Fetch | None = None,
    trust_remote_code: bool = False,
) -> list[Check]:
    """Read a whole output, or ``sample_parts`` evenly spaced parts, and compare it with its manifest; with ``encoder``,
    embed a sample of rows again and compare it (see ``spot_check``). For the sample, only files at or below ``inputs``,
    which are files, folders and URIs, are opened, because the plan's paths are not trusted.

    A task reads one part or some small ones. On a disk each part is read twice, for its digest and for its rows, which
    takes less time than to keep its bytes; on an object store once, up to 256 MB. ``started`` gives what runs the
    tasks, from the seconds that one process takes; the checks do not depend on it. The hashes of ids that are not row
    numbers are kept in a temporary folder of this machine, 8 bytes a row; see ``ids.count_duplicates``.

    ``out`` missing or not a folder is a FileNotFoundError or NotADirectoryError; ``sample_parts`` below 1, an encoder
    that cannot be loaded, or an input that is the empty string, a ValueError.
    """
    if sample_parts is not None and sample_parts < 1:
        raise ValueError(f"`sample_parts` is {sample_parts}; it must be at least 1")
    inputs = [str(to_place(name)) for name in inputs]
    store, names = open_output(out)
    findings = _Findings()
    if not is_committed(store, MANIFEST):
        findings.add(SUCCESS, "missing, or of another manifest; run the same jobs/embed.py command again to finish")
    success = findings.check(SUCCESS, "written last, and of this manifest")
    try:
        manifest = read_manifest(store)
    except (OSError, ValueError) as error:
        return [success, Check("manifest", False, str(error))]
    for name, digest in (file for files in generations_of(manifest).values() for file in files.items()):
        if not is_there(store, name) or store.sha256(name) != digest:
            findings.add("manifest", f"{name} is missing or differs; {REPAIR}")
    _verify_names(store, set(names), manifest, findings)
    if num_bad := manifest.get("n_bad_files", 0):
        _verify_lines(store, BAD_FILES, num_bad, findings)
    parts = manifest["parts"]
    sizes = [_planned(part) for part in parts]
    entries = list(zip(parts, accumulate(sizes, initial=0), strict=False))
    if is_sample := sample_parts is not None and sample_parts < len(parts):
        entries = [entries[number] for number in np.linspace(0, len(parts) - 1, sample_parts).astype(int).tolist()]
    with tempfile.TemporaryDirectory() as folder:
        _verify_parts(store, entries, manifest, started, findings, Folder(Path(folder)), is_sample=is_sample)
    compared = ""
    if encoder is not None:
        compared, problems = compare_sample(
            store,
            str(encoder),
            inputs,
            [(part["name"], size) for part, size in zip(parts, sizes, strict=True)],
            fetch=fetch,
            trust_remote_code=trust_remote_code,
        )
        for problem in problems:
            findings.add("sample", problem)
    rows, n_tokens, n_unknown = findings.counted
    rejected = f"{manifest['n_rejected']:,} rows{f' and {num_bad:,} files' if num_bad else ''}"
    complete = f"no other files; {len(entries):,} of them were read" if is_sample else "complete, no other files"
    checks = [
        success,
        findings.check("manifest", f"encoder {manifest['fingerprints']['encoder'][:12]}"),
        findings.check("parts", f"{len(parts)}, {complete}"),
        findings.check("sha256", f"correct for {'these parts' if is_sample else 'every part'}"),
        findings.check("schema", _schema_line(manifest["schema"])),
        findings.check("rows", f"{rows:,} of {manifest['rows']:,}" if is_sample else f"{rows:,}"),
        findings.check("ids", _ids_line(manifest, findings.n_null_ids, is_sample=is_sample)),
        findings.check("rejected", f"{rejected} of the input, each with its reason"),
        findings.check("vectors", "finite; zeros for texts without tokens"),
        findings.check("tokens", f"{n_tokens:,}, {n_unknown:,} of them out of vocabulary"),
    ]
    checks += [findings.check("chunks", "in order, without gaps")] if manifest["settings"].has_chunks else []
    return checks if encoder is None else [*checks, findings.check("sample", compared)]


def _verify_parts(
    store: Store,
    entries: list[_Entry],
    manifest: dict[str, Any],
    started: Callable[[float], AbstractContextManager[RunTasks]],
    findings: _Findings,
    ids: Folder,
    *,
    is_sample: bool,
) -> None:
    """Read parts in tasks, and check the totals of all parts; ``ids`` is an empty folder."""
    with_ids, has_ids = list[str](), not (is_sample or _is_numbered(manifest))
    ids.make_folder(IDS)
    contract = {name: value for name, value in manifest.items() if name not in {"parts", "inputs"}}
    rows = sum(part["rows"] for part, _ in entries)
    size = max(1, len(entries) * _TASK_ROWS // max(1, rows))
    groups = [entries[start : start + size] for start in range(0, len(entries), size)]
    with started(_SECONDS_A_ROW * rows) as run:
        verify_group = partial(_verify_group, store, contract, has_ids=has_ids)
        for number, later in enumerate(in_order(run, verify_group, groups), 1):
            doing(f"verifying: {min(number * size, len(entries)):,} of {len(entries):,} parts")
            findings.merge(later)
            for name, content in later.hashes.items():
                (ids.path / hashes_name(name, "")).write_bytes(content)
                with_ids.append(name)
    _verify_totals(manifest, findings, is_sample=is_sample)
    try:
        read_superseded(store, manifest)  # not whether newer rows supersede them
    except (OSError, ValueError) as error:
        findings.add("ids", str(error))
    if has_ids:
        of_parts = Parts(
            store, manifest["id_column"], dict.fromkeys(with_ids, ""), ids, has_chunks=manifest["settings"].has_chunks
        )
        duplicates, repeated = count_duplicates(of_parts, manifest["rows"])
        if duplicates != (known := manifest["n_duplicate_ids"] + manifest.get("n_superseded", 0)):
            findings.add("ids", f"{duplicates} rows repeat an id ({repeated!r}), the manifest says {known}")


def _verify_group(store: Store, manifest: dict[str, Any], group: list[_Entry], *, has_ids: bool) -> _Findings:
    """Return the findings of some parts; ``has_ids``: with the hashes of their ids."""
    findings = _Findings()
    for part, row in group:
        if is_there(store, part["name"]):
            _verify_part(store, part, row, manifest, findings, has_ids=has_ids)
        else:
            findings.add("parts", f"{part['name']} is missing, or not a regular file; {REPAIR}")
        _verify_rejected(store, part, findings)
    return findings


def _ids_line(manifest: dict[str, Any], num_nulls: int, *, is_sample: bool) -> str:
    if _is_numbered(manifest):
        return "row numbers, in order"
    if is_sample:
        return f"{num_nulls:,} null in these parts; repeated ids were not counted"
    nulls, repeated = manifest["n_null_ids"], manifest["n_duplicate_ids"]
    old = f", {manifest['n_superseded']:,} superseded by newer rows" if manifest.get("n_superseded") else ""
    return f"{nulls:,} null, {repeated:,} repeated{old}" if nulls or repeated else f"none null, none repeated{old}"


def _is_numbered(manifest: dict[str, Any]) -> bool:
    """Return whether the ids are the row numbers of the input."""
    settings: Settings = manifest["settings"]
    return settings.id_column is None and settings.id_kind == "row"


def _verify_names(store: Store, files: set[str], manifest: dict[str, Any], findings: _Findings) -> None:
    names = {part["name"] for part in manifest["parts"]}
    if format_of(manifest) > 2:
        files = files - {DATA} | {f"{DATA}/{name}" for name in store.names(f"{DATA}/")}
    for name in sorted(names - files):
        findings.add("parts", f"{name} is missing, or not a regular file; {REPAIR}")
    for name in sorted(files - {*names, *NAMES}):  # an object store may keep the name of an empty folder
        findings.add("parts", f"{name!r} is not in the manifest")


def _verify_part(
    store: Store, part: dict[str, Any], row: int, manifest: dict[str, Any], findings: _Findings, *, has_ids: bool
) -> None:
    """Read and check one part; ``row`` is the number of its first row over all parts."""
    name = part["name"]
    counted, last = np.zeros(3, np.int64), row + _planned(part) - 1
    hashes = list[Hashes]()
    try:
        with _opened(store, name) as (digest, raw):
            if digest != part["sha256"]:
                findings.add("sha256", f"{name} differs; {REPAIR}")
            file = pq.ParquetFile(raw)
            if not _follows_contract(file.schema_arrow, manifest):
                findings.add("schema", f"{name} has {_schema_line(columns_of(file.schema_arrow))}")
                return
            if manifest["settings"].has_chunks:
                _verify_chunks(file, part, manifest, findings)
            columns = [manifest["id_column"], *output_fields(manifest["settings"].dtype)]
            columns += [CHUNK_FIELDS[0].name] * manifest["settings"].has_chunks
            for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
                ids = batch.filter(pc.equal(batch[columns[-1]], 0)) if manifest["settings"].has_chunks else batch
                row = _verify_ids(ids[manifest["id_column"]], row, last, name, manifest, findings)
                if has_ids:
                    hashes.append(hashes_of(ids[manifest["id_column"]]))
                counted += _verify_batch(batch, name, findings)
    except (pa.ArrowException, OSError) as error:
        findings.add("rows", f"{name} cannot be read ({str(error).splitlines()[0]}); {REPAIR}")
        return
    findings.counted += counted
    if has_ids:
        findings.hashes[name] = file_of(hashes)
    for check, count, number in zip(("rows", "tokens", "tokens"), COUNTS, counted, strict=True):
        if number != part[count]:
            findings.add(check, f"{name}: {count} is {number}, the manifest says {part[count]}")


@contextmanager
def _opened(store: Store, name: str) -> Iterator[tuple[str, Any]]:
    """Open a part for random access; yield its SHA-256 and the file."""
    with store.open(name) as raw:
        if isinstance(store, Folder) or raw.size() > _IN_MEMORY:
            yield store.sha256(name), raw
        else:
            data = raw.read_buffer()
            yield sha256(data).hexdigest(), pa.BufferReader(data)


def _verify_ids(ids: pa.Array, first: int, last: int, name: str, manifest: dict[str, Any], findings: _Findings) -> int:
    """Count null ids; or check that row numbers ascend, with gaps for rejected rows, and return the next one."""
    if not _is_numbered(manifest):
        findings.n_null_ids += ids.null_count
        return first
    numbers = ids.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((np.diff(numbers, prepend=first - 1) < 1) | (numbers > last))
    if len(wrong):
        findings.add("ids", f"{name}: row number {numbers[wrong[0]]}; expected {first} to {last}, each once, ascending")
    return int(numbers[-1]) + 1 if len(numbers) else first


def _verify_chunks(file: pq.ParquetFile, part: dict[str, Any], manifest: dict[str, Any], findings: _Findings) -> None:
    """Check the ids and ``CHUNK_FIELDS`` of a part: the chunks of a row have the numbers 0, 1, 2 …; the first begins
    with the text, each other one behind the start of the one before it, at the latest at its end; without
    overlap, at its end; an element of a list behind the space after the one before it.
    """
    id_column, settings = manifest["id_column"], manifest["settings"]
    table = file.read([id_column, *(field.name for field in CHUNK_FIELDS)], use_threads=False).combine_chunks()
    ids, (number, start, end) = comparable(table[id_column].combine_chunks()), map(np.asarray, table.columns[1:])
    is_first = number == 0
    if (count := int(is_first.sum())) != part["rows"] - part.get("n_further_chunks", 0):
        findings.add("chunks", f"{part['name']} has {count} first chunks, which the manifest does not say")
    is_right = np.where(is_first, start == 0, False)
    follows = (start[1:] > start[:-1]) & (end[1:] > end[:-1]) & (settings.chunk_tokens is not None)
    follows &= (start[1:] <= end[:-1]) if settings.chunk_overlap else (start[1:] == end[:-1])
    is_right[1:] |= (
        (number[1:] == number[:-1] + 1)
        & (follows | (settings.explode & (start[1:] == end[:-1] + 1) & (end[1:] >= start[1:])))
        & pc.fill_null(pc.equal(ids[1:], ids[:-1]), True).to_numpy(zero_copy_only=False)
    )
    if len(wrong := np.flatnonzero(~is_right)):
        findings.add("chunks", f"{part['name']}, row {wrong[0] + 1}: chunk {number[wrong[0]]} follows another")


def _verify_rejected(store: Store, part: dict[str, Any], findings: _Findings) -> None:
    name = rejected_name(part["name"])
    if not part["n_rejected"]:
        return
    if not is_there(store, name) or store.sha256(name) != part["rejected_sha256"]:
        findings.add("rejected", f"{name} is missing or differs; {REPAIR}")
        return
    _verify_lines(store, name, part["n_rejected"], findings)


def _verify_lines(store: Store, name: str, count: int, findings: _Findings) -> None:
    """Check that a file has ``count`` lines, each a JSON object with a reason."""
    try:
        lines = read_bytes(store, name, _REJECTED_BYTES).split(b"\n")[:-1]
        if len(lines) != count:
            findings.add("rejected", f"{name} has {len(lines)} lines, the manifest says {count}")
        for number, line in enumerate(lines, 1):
            rejected = json_value(line, f"{name}, line {number}", _Rejected)
            if "row" not in rejected and name != BAD_FILES:
                raise ValueError(f"{name}, line {number}: no row")
    except (FileNotFoundError, ValueError) as error:
        findings.add("rejected", str(error))


def _verify_batch(batch: pa.RecordBatch, name: str, findings: _Findings) -> tuple[int, int, int]:
    """Check the rows of a batch; return the numbers of rows, tokens and OOV tokens."""
    vectors = batch["embedding"].flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
    n_tokens, n_unknown = (batch[column].to_numpy(zero_copy_only=False) for column in ("n_tokens", "n_unknown"))
    scales = batch["scale"].to_numpy() if "scale" in batch.schema.names else 0.0
    if not (np.isfinite(vectors).all() and np.isfinite(scales).all()):
        findings.add("vectors", f"{name} has values that are not finite")
    if vectors[n_tokens == 0].any():
        findings.add("vectors", f"{name} has a text without tokens whose vector is not zero")
    if ((n_tokens < 0) | (n_unknown < 0) | (n_unknown > n_tokens)).any():
        findings.add("tokens", f"{name} has a row whose n_unknown is not between 0 and n_tokens")
    return len(batch), int(n_tokens.sum(dtype=np.int64)), int(n_unknown.sum(dtype=np.int64))


def _verify_totals(manifest: dict[str, Any], findings: _Findings, *, is_sample: bool) -> None:
    checks = dict.fromkeys(OTHER_COUNTS, "tokens") | dict(zip(COUNTS, ("rows", "tokens", "tokens"), strict=True))
    counted = {} if is_sample else dict(zip(COUNTS, findings.counted, strict=True))
    for name, check in checks.items():
        total = sum(part[name] for part in manifest["parts"])
        for number in {total, counted.get(name, total)} - {manifest[name]}:
            findings.add(check, f"{name} of all parts is {number}, the manifest says {manifest[name]}")
    if not (is_sample or _is_numbered(manifest)) and findings.n_null_ids != manifest["n_null_ids"]:
        findings.add("ids", f"{findings.n_null_ids} are null, the manifest says {manifest['n_null_ids']}")


def _follows_contract(schema: pa.Schema, manifest: dict[str, Any]) -> bool:
    """Return whether a file has the columns of the manifest and the schema of embeddings, including nullability."""
    fields = list(schema)
    vectors = schema.get_field_index("embedding")
    if vectors < 1 or not pa.types.is_fixed_size_list(fields[vectors].type) or fields[0].name != manifest["id_column"]:
        return False
    if not (fields[0].type == pa.int64() if _is_numbered(manifest) else is_id(fields[0].type)):
        return False
    width = fields[vectors].type.list_size
    dtype, format_number = manifest["settings"].dtype, format_of(manifest)
    if manifest["settings"].has_chunks and fields[1:4] != [*CHUNK_FIELDS]:
        return False
    contract = embeddings_schema(fields[0], fields[1:vectors], width, dtype, format_number)
    return width > 0 and bool(schema.equals(contract)) and columns_of(schema) == manifest["schema"]


def _schema_line(schema: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in schema)
