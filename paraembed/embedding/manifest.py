"""An embeddings folder on disk: begin, continue, commit.

``_plan.json`` comes first, then every part with its report in ``_reports``, then ``manifest.json``, and last
``_SUCCESS``, which holds the manifest's SHA-256. A part counts as done when its report names the digest of its file;
so a run that stopped anywhere, or a part that was damaged or removed later, is mended by the same command.
"""

import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.part import REPORTS, PartReport
from paraembed.embedding.plan import InputFile, Plan, Settings, plan_from_json
from paraembed.files import (
    SUCCESS,
    differences,
    digest_of,
    locked,
    read_json,
    replace_folder,
    sha256_of,
    sync_folder,
    write_file,
    write_json,
)

FORMAT = "paraembed-embeddings-1"
PLAN, MANIFEST = "_plan.json", "manifest.json"
COUNTS = ("rows", "n_tokens", "n_unknown")
OTHER_COUNTS = ("n_cut", "n_without_tree")  # cannot be read off the parts again; manifests of older versions lack them
_PART = re.compile(r"part-\d{5,}-of-\d{5,}\.parquet")
_TEMPORARY = re.compile(r"\.(part-.*|_plan\.json|manifest\.json|_SUCCESS)\.[0-9a-f]{8}\.tmp")

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
    ours = (PLAN, REPORTS, MANIFEST, SUCCESS) if begun else ()
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
    stored = _read_plan(folder)
    before = _decides(stored.encoder, stored.tokeniser, stored.plan.inputs, stored.plan.settings)
    changed = differences(before, _decides(encoder, tokeniser, inputs, settings))
    if changed:
        raise ValueError(
            f"{folder} was begun with another {changed}; go back to that, give another --out, or start afresh with "
            "--overwrite"
        )
    return replace(stored.plan, inputs=inputs)  # files that moved are the same files


def _decides(encoder: str, tokeniser: str, inputs: tuple[InputFile, ...], settings: Settings) -> dict[str, Any]:
    files = [{"size": file.size, "sha256": file.sha256} for file in inputs]
    return {"tokeniser": tokeniser, "encoder": encoder, **asdict(settings), "inputs": files}


def _read_plan(folder: Path) -> Run:
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
        (folder / REPORTS).mkdir(exist_ok=True)
        if not (folder / PLAN).exists():
            write_json(
                folder / PLAN,
                {"format": FORMAT, "encoder": run.encoder, "tokeniser": run.tokeniser, "plan": run.plan.to_json()},
            )
        yield finished_parts(folder, run.plan)


def _sweep(folder: Path) -> None:
    """Remove what writers that were killed have left."""
    for entry in folder.iterdir():
        if _TEMPORARY.fullmatch(entry.name):
            entry.unlink()


def finished_parts(folder: Path, plan: Plan) -> dict[str, PartReport]:
    """Reports, by part name, of the parts whose file has the digest that its report says."""
    done = {}
    for part in plan.parts:
        report = _read_report(folder / REPORTS / f"{part.name}.json")
        file = folder / part.name
        if report and (report.name, report.rows) == (part.name, part.rows) and file.is_file():  # noqa: SIM102 - dear
            if sha256_of(file) == report.sha256:
                done[part.name] = report
    return done


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


def commit(folder: Path, run: Run, reports: dict[str, PartReport]) -> dict[str, Any]:
    """Write ``manifest.json``, then ``_SUCCESS``; returns the manifest. It is the same for every run of a plan."""
    plan = run.plan
    parts = [{key: value for key, value in asdict(reports[p.name]).items() if key != "seconds"} for p in plan.parts]
    manifest = {
        "format": FORMAT,
        "rows": plan.rows,
        **{name: sum(part[name] for part in parts) for name in (*COUNTS[1:], *OTHER_COUNTS)},
        "schema": columns_of(pq.read_schema(folder / plan.parts[0].name)),
        "id_column": plan.settings.id_field,
        "numbered": plan.settings.id_column is None,
        "fingerprints": {
            "encoder": run.encoder,
            "tokeniser": run.tokeniser,
            "settings": digest_of(asdict(plan.settings)),
            "inputs": listing_digest(plan.inputs),
        },
        "settings": asdict(plan.settings),
        "inputs": [asdict(file) for file in plan.inputs],
        "parts": parts,
    }
    write_json(folder / MANIFEST, manifest)
    digest = sha256_of(folder / MANIFEST)
    _sweep(folder)
    write_file(folder / SUCCESS, lambda file: file.write(f"{digest}\n".encode()))
    return manifest


def listing_digest(inputs: tuple[InputFile, ...]) -> str:
    """Digest of the inputs' sizes and contents, in their order; where they lie does not count."""
    return digest_of([{"size": file.size, "sha256": file.sha256} for file in inputs])


def fresh_folder(out: Path) -> Path:
    """Where ``--overwrite`` builds, so that what stands at ``out`` stays readable."""
    return out.with_name(f".{out.name}.new")


def discard(folder: Path) -> None:
    """Remove a folder of this job; ValueError if it holds anything else."""
    check_folder(folder)
    if folder.exists():
        shutil.rmtree(folder)


def swap(folder: Path, out: Path) -> None:
    """Put a finished folder in the place of ``out``, then remove what stood there."""
    check_folder(out)
    replace_folder(folder, out)


def columns_of(schema: pa.Schema) -> list[list[str]]:
    """Names and types of the columns, for JSON."""
    return [[field.name, str(field.type)] for field in schema]
