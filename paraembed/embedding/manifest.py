"""An embeddings folder on disk: begin, continue, commit.

``_plan.json`` comes first, then every part with its report in ``_reports``, then ``_manifest.json``, and last
``_SUCCESS``, which holds the manifest's SHA-256. A part counts as done when its report names the digest of its file;
so a run that stopped anywhere, or a part that was damaged or removed later, is mended by the same command. What is not
a part has a name that begins with ``_`` or ``.``: pandas, Arrow, DuckDB's globs and Spark read the folder as one table.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding.inputs import InputFile
from paraembed.embedding.part import REJECTED, REPORTS, PartReport, rejected_name
from paraembed.embedding.plan import Part, Plan, inputs_identity, plan_from_json
from paraembed.embedding.settings import Settings
from paraembed.files import (
    SUCCESS,
    differences,
    digest_of,
    locked,
    read_json,
    sha256_of,
    sync_folder,
    write_file,
    write_json,
)

FORMAT = "paraembed-embeddings-2"
PLAN, MANIFEST = "_plan.json", "_manifest.json"
COUNTS = ("rows", "n_tokens", "n_unknown")
OTHER_COUNTS = ("n_cut", "n_without_tree", "n_replaced", "n_clipped", "n_rejected", "n_null_ids")
OnDuplicateId = Literal["fail", "keep"]
_PART = re.compile(r"part-\d{5,}-of-\d{5,}\.parquet")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # as files.write_file names them

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Everything that the bytes of an output depend on.

    Attributes:
        encoder: fingerprint of the encoder folder.
        tokeniser: its name, which changes with its rules.
        plan: inputs, settings and parts.
    """

    encoder: str
    tokeniser: str
    plan: Plan


def check_folder(folder: Path) -> bool:
    """Whether an embedding run was begun in a folder; a folder that is missing or empty will do for a new one.

    Raises:
        NotADirectoryError, ValueError: the folder holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; --out expects a folder that is new, empty or from this job")
    names = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    begun = PLAN in names
    ours = (PLAN, REPORTS, REJECTED, MANIFEST, SUCCESS) if begun else ()
    for name in sorted(names):
        if name not in ours and not (begun and _PART.fullmatch(name)) and not _TEMPORARY.fullmatch(name):
            raise ValueError(
                f"{folder} holds {name!r}, which is not from this job; choose a new or empty folder for --out"
            )
    return begun


def continued_plan(
    folder: Path, encoder: str, tokeniser: str, inputs: tuple[InputFile, ...], settings: Settings
) -> Plan:
    """The plan of the run that was begun in a folder, to go on with.

    Raises:
        ValueError: it was begun with another encoder, tokeniser, setting or input: which, and both values.
    """
    stored = read_run(folder)
    before = decides(stored.encoder, stored.tokeniser, stored.plan.inputs, stored.plan.settings)
    changed = differences(before, decides(encoder, tokeniser, inputs, settings))
    if changed:
        raise ValueError(
            f"{folder} was begun with another {changed}; go back to that, give another --out, or start afresh with "
            "--overwrite"
        )
    return replace(stored.plan, inputs=inputs)  # files that moved are the same files


def decides(encoder: str, tokeniser: str, inputs: tuple[InputFile, ...], settings: Settings) -> dict[str, Any]:
    """What the bytes of an output depend on, by name; where the inputs lie does not count."""
    files = inputs_identity(inputs, settings)
    return {"tokeniser": tokeniser, "encoder": encoder, **asdict(settings), "inputs": files}


def read_run(folder: Path) -> Run:
    """The run that was begun in a folder.

    Raises:
        FileNotFoundError, ValueError: its plan is missing or damaged.
    """
    value = read_json(folder / PLAN)
    try:
        if value["format"] != FORMAT:
            raise ValueError(f"format is {value['format']!r}, not {FORMAT!r}")
        return Run(value["encoder"], value["tokeniser"], plan_from_json(value["plan"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PLAN} is damaged ({error}); remove {folder} and start afresh") from None


@contextmanager
def begun_run(folder: Path, run: Run) -> Iterator[dict[str, PartReport]]:
    """Hold a folder for a run, alone; yields the reports of the parts that are done, by name.

    Raises:
        ValueError: another run is writing there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _sweep(folder)
        if not (folder / PLAN).exists():
            write_json(
                folder / PLAN,
                {"format": FORMAT, "encoder": run.encoder, "tokeniser": run.tokeniser, "plan": run.plan.to_json()},
            )
        for name in (REPORTS, REJECTED):  # after the plan, by which the next run knows the folder for its own
            (folder / name).mkdir(exist_ok=True)
        yield finished_parts(folder, run.plan)


def _sweep(folder: Path) -> None:
    """Remove what writers that were killed have left."""
    for place in (folder, folder / REPORTS, folder / REJECTED):
        for entry in place.iterdir() if place.exists() else ():
            if _TEMPORARY.fullmatch(entry.name):
                entry.unlink(missing_ok=True)  # a worker that lost touch with the driver may still rename it


def finished_parts(folder: Path, plan: Plan) -> dict[str, PartReport]:
    """Reports, by part name, of the parts whose files have the digests that their reports say."""
    done = {}
    for part in plan.parts:
        report = _read_report(folder / REPORTS / f"{part.name}.json")
        if report and _is_done(folder, part, report):
            done[part.name] = report
    return done


def _is_done(folder: Path, part: Part, report: PartReport) -> bool:
    if (report.name, report.rows + report.n_rejected) != (part.name, part.rows):
        return False
    files = {folder / part.name: report.sha256}
    if report.n_rejected:
        files[folder / rejected_name(part.name)] = report.rejected_sha256
    return all(path.is_file() and sha256_of(path) == digest for path, digest in files.items())


def _read_report(path: Path) -> PartReport | None:
    try:
        return PartReport(**read_json(path))
    except (OSError, ValueError, TypeError):
        return None  # missing or damaged: the part is embedded again


def is_committed(folder: Path) -> bool:
    """Whether ``_SUCCESS`` is there and holds the manifest's digest."""
    success, manifest = folder / SUCCESS, folder / MANIFEST
    return success.is_file() and manifest.is_file() and success.read_text().strip() == sha256_of(manifest)


def uncommit(folder: Path) -> None:
    """Take back ``_SUCCESS``, before parts are written again."""
    (folder / SUCCESS).unlink(missing_ok=True)
    sync_folder(folder)


def commit(
    folder: Path, run: Run, reports: dict[str, PartReport], on_duplicate_id: OnDuplicateId = "fail"
) -> dict[str, Any]:
    """Write ``_manifest.json``, then ``_SUCCESS``; returns the manifest. It is the same for every run of a plan.

    Memory grows with the ids where they come from an id column: they are compared over all parts.

    Raises:
        ValueError: an id stands twice, and that is to ``fail``; the parts stay.
    """
    plan, settings = run.plan, run.plan.settings
    duplicates, first = 0, None
    if settings.id_column is not None:
        columns = [_read_column(folder / part.name, settings.id_column) for part in plan.parts]
        duplicates, first = count_duplicates(pa.concat_tables(columns)[0])
    if duplicates and on_duplicate_id == "fail":
        raise ValueError(
            f"--id-column {settings.id_column!r}: {duplicates:,} rows repeat an id, the first is {first!r}; mend the "
            "input, or go on from the finished parts with --on-duplicate-id keep"
        )
    parts = [{key: value for key, value in asdict(reports[p.name]).items() if key != "seconds"} for p in plan.parts]
    manifest = {
        "format": FORMAT,
        **{name: sum(part[name] for part in parts) for name in (*COUNTS, *OTHER_COUNTS)},
        "n_duplicate_ids": duplicates,
        "schema": columns_of(pq.read_schema(folder / plan.parts[0].name)),
        "id_column": settings.id_field,
        "fingerprints": {
            "encoder": run.encoder,
            "tokeniser": run.tokeniser,
            "settings": digest_of(asdict(settings)),
            "inputs": listing_digest(plan),
        },
        "settings": asdict(settings),
        "inputs": [file.to_json() for file in plan.inputs],
        "parts": parts,
    }
    write_json(folder / MANIFEST, manifest)
    digest = sha256_of(folder / MANIFEST)
    _sweep(folder)
    write_file(folder / SUCCESS, lambda file: file.write(f"{digest}\n".encode()))
    return manifest


def _read_column(path: Path, name: str) -> pa.Table:
    with pq.ParquetFile(path) as file:  # not read_table, to which a folder named key=value is another column
        return file.read([name])


def count_duplicates(ids: pa.ChunkedArray) -> tuple[int, Any]:
    """Rows whose id stands in an earlier row, too, and the first such id; null is no id."""
    known = ids.drop_null()
    duplicates = len(known) - pc.count_distinct(known).as_py()
    if not duplicates:
        return 0, None
    counts = pc.value_counts(known)
    return duplicates, counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()


def listing_digest(plan: Plan) -> str:
    """Digest of the inputs' sizes and contents, in their order; where they lie does not count."""
    return digest_of(inputs_identity(plan.inputs, plan.settings))


def columns_of(schema: pa.Schema) -> list[list[str]]:
    """Names and types of the columns, for JSON."""
    return [[field.name, str(field.type)] for field in schema]
