"""Verify an output against its manifest: every row exactly once, no other files, no changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.columns import embeddings_schema, is_id, output_fields
from paraembed.embedding.ids import count_duplicates
from paraembed.embedding.manifest import (
    COUNTS,
    FOLDERS,
    MANIFEST,
    OTHER_COUNTS,
    PLAN,
    REPAIR,
    columns_of,
    format_of,
    open_output,
    read_manifest,
)
from paraembed.embedding.part import rejected_name
from paraembed.embedding.plan import DATA, part_names
from paraembed.embedding.spot_check import compare_sample
from paraembed.io.atomic import SUCCESS
from paraembed.io.places import Place, to_place
from paraembed.io.store import Store, is_committed, is_there, read_bytes
from paraembed.loading import Fetch
from paraembed.options import Count, json_value

_ROWS = 16_384  # read at a time
_REJECTED_BYTES = 1 << 30  # of a list of rejected rows


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str  # name of the check
    ok: bool  # whether it passed
    detail: str  # description of the result


class _Rejected(TypedDict):
    source: str
    row: Count
    reason: str


class _Findings:
    """Problems by check, and counts over all parts."""

    def __init__(self) -> None:
        self.wrong: dict[str, list[str]] = {}
        self.counted = np.zeros(3, np.int64)  # rows, n_tokens, n_unknown
        self.with_ids: list[str] = []  # parts whose ids could be read
        self.n_null_ids = 0

    def add(self, check: str, problem: str) -> None:
        self.wrong.setdefault(check, []).append(problem)

    def check(self, name: str, right: str) -> Check:
        wrong = list(dict.fromkeys(self.wrong.get(name, [])))
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return Check(name, not wrong, "; ".join(wrong[:3]) + more if wrong else right)


def verify(
    out: Place,
    encoder: str | Path | None = None,
    inputs: Sequence[str] = (),
    *,
    fetch: Fetch | None = None,
    trust_remote_code: bool = False,
) -> list[Check]:
    """Read a whole output and compare it with its manifest; with ``encoder``, embed a sample of rows again and compare
    it (see ``spot_check``).

    Each part is read twice, for its digest and for its rows. Ids that are not row numbers are read again, several times
    if they are many (see ``ids.count_duplicates``). For the sample, only files at or below ``inputs``, which are files,
    folders and URIs, are opened, because the plan's paths are not trusted.

    ``out`` missing or not a folder is a FileNotFoundError or NotADirectoryError; an encoder that cannot be loaded, or
    an input that is the empty string, a ValueError.
    """
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
    _verify_names(store, set(names), manifest, findings)
    row = 0
    expected = part_names(len(manifest["parts"]), format_of(manifest))
    for part, name in zip(manifest["parts"], expected, strict=True):
        if part["name"] == name:
            if is_there(store, part["name"]):
                _verify_part(store, part, row, manifest, findings)
            else:
                findings.add("parts", f"{part['name']} is missing, or not a regular file; {REPAIR}")
        row += part["rows"] + part["n_rejected"]
        _verify_rejected(store, part, findings)
    _verify_all(store, manifest, findings)
    compared = ""
    if encoder is not None:
        compared, problems = compare_sample(
            store,
            str(encoder),
            inputs,
            [(part["name"], part["rows"] + part["n_rejected"]) for part in manifest["parts"]],
            fetch=fetch,
            trust_remote_code=trust_remote_code,
        )
        for problem in problems:
            findings.add("sample", problem)
    rows, n_tokens, n_unknown = findings.counted
    checks = [
        success,
        Check("manifest", True, f"encoder {manifest['fingerprints']['encoder'][:12]}"),
        findings.check("parts", f"{len(manifest['parts'])}, complete, no other files"),
        findings.check("sha256", "correct for every part"),
        findings.check("schema", _schema_line(manifest["schema"])),
        findings.check("rows", f"{rows:,}"),
        findings.check("ids", _ids_line(manifest)),
        findings.check("rejected", f"{manifest['n_rejected']:,} rows of the input, each with its reason"),
        findings.check("vectors", "finite; zeros for texts without tokens"),
        findings.check("tokens", f"{n_tokens:,}, {n_unknown:,} of them out of vocabulary"),
    ]
    return checks if encoder is None else [*checks, findings.check("sample", compared)]


def _ids_line(manifest: dict[str, Any]) -> str:
    if _is_numbered(manifest):
        return "row numbers, in order"
    nulls, repeated = manifest["n_null_ids"], manifest["n_duplicate_ids"]
    return f"{nulls:,} null, {repeated:,} repeated, as counted" if nulls or repeated else "none null, none repeated"


def _is_numbered(manifest: dict[str, Any]) -> bool:
    """Return whether the ids are the row numbers of the input."""
    return manifest["settings"].get("id_column") is None and manifest["settings"]["id_kind"] == "row"


def _verify_names(store: Store, files: set[str], manifest: dict[str, Any], findings: _Findings) -> None:
    names = [part["name"] for part in manifest["parts"]]
    for name, expected in zip(names, part_names(len(names), format_of(manifest)), strict=True):
        if name != expected:  # also keeps a manifest from naming a file outside the folder
            findings.add("parts", f"{name[:80]!r} should be {expected!r}")
    if format_of(manifest) > 2:
        files = files - {DATA} | {f"{DATA}/{name}" for name in store.names(f"{DATA}/")}
    for name in sorted(files - {*names, PLAN, *FOLDERS, MANIFEST, SUCCESS}):
        findings.add("parts", f"{name!r} is not in the manifest")


def _verify_part(store: Store, part: dict[str, Any], row: int, manifest: dict[str, Any], findings: _Findings) -> None:
    """Read and check one part; ``row`` is the number of its first row over all parts."""
    name = part["name"]
    if store.sha256(name) != part["sha256"]:
        findings.add("sha256", f"{name} differs; {REPAIR}")
    counted, last = np.zeros(3, np.int64), row + part["rows"] + part["n_rejected"] - 1
    try:
        with store.open(name) as raw, pq.ParquetFile(raw) as file:
            if not _follows_contract(file.schema_arrow, manifest):
                findings.add("schema", f"{name} has {_schema_line(columns_of(file.schema_arrow))}")
                return
            columns = [manifest["id_column"], *output_fields(manifest["settings"]["dtype"])]
            for batch in file.iter_batches(_ROWS, columns=columns):
                if _is_numbered(manifest):
                    row = _verify_numbers(batch, row, last, name, findings)
                else:
                    findings.n_null_ids += batch[manifest["id_column"]].null_count
                counted += _verify_batch(batch, name, findings)
    except (pa.ArrowException, OSError) as error:
        findings.add("rows", f"{name} cannot be read ({str(error).splitlines()[0]}); {REPAIR}")
        return
    findings.counted += counted
    findings.with_ids.append(name)
    for check, count, number in zip(("rows", "tokens", "tokens"), COUNTS, counted, strict=True):
        if number != part[count]:
            findings.add(check, f"{name}: {count} is {number}, the manifest says {part[count]}")


def _verify_numbers(batch: pa.RecordBatch, first: int, last: int, name: str, findings: _Findings) -> int:
    """Check that row numbers ascend within ``first`` … ``last`` (rejected rows leave gaps); return the next number."""
    numbers = batch.column(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((np.diff(numbers, prepend=first - 1) < 1) | (numbers > last))
    if len(wrong):
        findings.add("ids", f"{name}: row number {numbers[wrong[0]]}; expected {first} to {last}, each once, ascending")
    return int(numbers[-1]) + 1 if len(numbers) else first


def _verify_rejected(store: Store, part: dict[str, Any], findings: _Findings) -> None:
    name = rejected_name(part["name"])
    if not part["n_rejected"]:
        return
    if not is_there(store, name) or store.sha256(name) != part["rejected_sha256"]:
        findings.add("rejected", f"{name} is missing or differs; {REPAIR}")
        return
    lines = read_bytes(store, name, _REJECTED_BYTES).split(b"\n")[:-1]
    if len(lines) != part["n_rejected"]:
        findings.add("rejected", f"{name} has {len(lines)} rows, the manifest says {part['n_rejected']}")
    try:
        for number, line in enumerate(lines, 1):
            json_value(line, f"{name}, line {number}", _Rejected)
    except ValueError as error:
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


def _verify_all(store: Store, manifest: dict[str, Any], findings: _Findings) -> None:
    for check, name, number in zip(("rows", "tokens", "tokens"), COUNTS, findings.counted, strict=True):
        if not number == manifest[name] == sum(part[name] for part in manifest["parts"]):
            findings.add(check, f"{name} of all parts is {number}, the manifest says {manifest[name]}")
    for name in OTHER_COUNTS:
        total = sum(part[name] for part in manifest["parts"])
        if total != manifest[name]:
            findings.add("tokens", f"{name} of all parts is {total}, the manifest says {manifest[name]}")
    if not _is_numbered(manifest):
        duplicates, repeated = count_duplicates(store, findings.with_ids, manifest["id_column"])
        if duplicates != manifest["n_duplicate_ids"]:
            findings.add(
                "ids", f"{duplicates} rows repeat an id ({repeated!r}), the manifest says {manifest['n_duplicate_ids']}"
            )
        if findings.n_null_ids != manifest["n_null_ids"]:
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
    dtype, format_number = manifest["settings"]["dtype"], format_of(manifest)
    contract = embeddings_schema(fields[0], fields[1:vectors], width, dtype, format_number)
    return width > 0 and bool(schema.equals(contract)) and columns_of(schema) == manifest["schema"]


def _schema_line(schema: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in schema)
