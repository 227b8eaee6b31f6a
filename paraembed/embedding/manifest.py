"""Start, resume and commit an output of embeddings: a folder, or a prefix of an object store.

The parts are in the folder ``data``; in outputs of format 2, which are read and resumed as they are, next to the plan.

``_plan.json`` is written first, then every part with its report in ``_reports``, then ``_manifest.json``, and last
``_SUCCESS``, which holds the manifest's SHA-256. A part counts as done if its report has the digest of its file and of
everything that decides the file's bytes. So the same command resumes a run that was stopped anywhere, and repairs parts
that were damaged or removed. On a disk, the files are read to check their digests. On an object store, one request per
part returns size and ETag, and a file is read only if they differ from its report. The names of all other files begin
with ``_`` or ``.``; the folder of the parts has no other files.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.part import REJECTED, REPORTS, PartReport, part_digest, rejected_name, report_name
from paraembed.embedding.plan import DATA, IDS, Part, Plan, inputs_identity, plan_from_json, settings_json
from paraembed.embedding.settings import Dtype, IdKind, OnDuplicateId
from paraembed.io.atomic import SUCCESS
from paraembed.io.fingerprint import differences, digest_of
from paraembed.io.places import Place
from paraembed.io.resume import check_names, foreign_work, is_same_work
from paraembed.io.store import Folder, Store, commit_manifest, is_committed, is_there, open_store, read_json, write_json
from paraembed.options import Count, Range, checked
from paraembed.process import RunTasks, on_cluster
from paraembed.settings import Backend, Pooling, Precision
from paraembed.signals import RunFailedError

FORMATS = {2: "paraembed-embeddings-2", 3: "paraembed-embeddings-3"}
PLAN, MANIFEST = "_plan.json", "_manifest.json"
MEMO = f"{REPORTS}/run.json"  # the MLflow run of this output
ENCODER = f"{REPORTS}/encoder.json"  # how the user named the encoder
RECORDED = f"{REPORTS}/recorded.json"  # written when everything is logged to MLflow
REPAIR = "run the same jobs/embed.py command again to repair it"
COUNTS = ("rows", "n_tokens", "n_unknown")
OTHER_COUNTS = ("n_cut", "n_without_tree", "n_replaced", "n_clipped", "n_rejected", "n_null_ids")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # as io.atomic.hidden_name names them
_NAMES = (PLAN, DATA, REPORTS, REJECTED, IDS, MANIFEST, SUCCESS)
_OWN = re.compile("|".join([r"part-\d{5,}-of-\d{5,}\.parquet", *map(re.escape, _NAMES), _TEMPORARY.pattern]))
_IN_DATA = re.compile(rf"part-\d{{3}}-\d{{6,}}\.parquet|{_TEMPORARY.pattern}")
_MULTI_LINE = {"n_multi_line", "n_line_breaks", "longest_lines", "longest_first"}
_OF_A_RUN = {
    "seconds",
    "stamp",
    "size",
    "made_of",
    "n_only_unknown",
    "only_unknown",
    *_MULTI_LINE,
}  # fields of a report that the manifest leaves out
MOST_JSON_BYTES = 1 << 30  # of plan and manifest: some hundred bytes a part
_THREADS = 16  # to check parts; an answer of an object store takes 20 ms and more


@dataclass(frozen=True)
class EmbeddingRun:
    """Everything that decides the bytes of an output."""

    encoder: str  # fingerprint of the encoder folder
    tokenizer: str  # name of the tokenizer, which changes with its rules
    plan: Plan  # inputs, settings and parts
    identity: Mapping[str, Any] = field(default_factory=dict)  # identity of the encoder, see ``TextEncoder``


class _PlanFile(TypedDict):
    format: Any
    encoder: str
    tokeniser: str
    plan: Any
    model: NotRequired[Any]


class _Model(TypedDict):
    """What is read of the identity of an encoder."""

    device: Literal["cpu", "cuda"]
    precision: Precision
    prompt: NotRequired[str | None]
    backend: NotRequired[Backend]
    pooling: NotRequired[Pooling]
    batch_tokens: NotRequired[Annotated[int, Range(1, 2**31 - 1)] | None]


class _Settings(TypedDict):
    dtype: Dtype
    id_kind: IdKind
    text_column: NotRequired[str | None]
    id_column: NotRequired[str | None]
    dim: NotRequired[Count | None]
    normalize: NotRequired[bool]


class _Fingerprints(TypedDict):
    encoder: str


class _Input(TypedDict):
    sha256: str


class _Counts(TypedDict):
    rows: Count
    n_tokens: Count
    n_unknown: Count
    n_cut: Count
    n_without_tree: Count
    n_replaced: Count
    n_clipped: Count
    n_rejected: Count
    n_null_ids: Count


class _Entry(_Counts):
    name: str
    sha256: str
    rejected_sha256: str


class _Manifest(_Counts):
    """What is read of a manifest."""

    format: str
    n_duplicate_ids: Count
    schema: list[tuple[str, str]]
    id_column: str
    settings: _Settings
    fingerprints: _Fingerprints
    inputs: NotRequired[list[_Input]]
    parts: list[_Entry]


def open_output(place: Place) -> tuple[Store, list[str]]:
    """Return the store of an output, and the names in it. Raise FileNotFoundError or NotADirectoryError if the place is
    missing, empty or a file.
    """
    store = open_store(place)
    try:
        names = store.names()
    except NotADirectoryError:
        raise NotADirectoryError(f"{store} is a file; expected a folder that jobs/embed.py wrote") from None
    if not names:
        raise FileNotFoundError(f"{store} does not exist or is empty; expected a folder that jobs/embed.py wrote")
    if all(map(_IN_DATA.fullmatch, names)):
        raise FileNotFoundError(f"{store} has only the parts of an output; give the folder that contains it")
    return store, names


def read_manifest(store: Store) -> dict[str, Any]:
    """Return the manifest of an output; raise FileNotFoundError or ValueError if it is missing, damaged or of another
    format.
    """
    manifest, where = read_json(store, MANIFEST, most_bytes=MOST_JSON_BYTES), f"{store}/{MANIFEST}"
    if not isinstance(manifest, dict) or manifest.get("format") not in FORMATS.values():
        raise ValueError(f"{where} does not have the format {FORMATS[3]!r}; it was not written by jobs/embed.py")
    known = checked(_Manifest, manifest, where)
    if sum(part["rows"] + part["n_rejected"] for part in known["parts"]) >= 2**63:
        raise ValueError(f"{where}: the parts have more rows than 64-bit row numbers can count")
    return dict(known)


def format_of(manifest: Mapping[str, Any]) -> int:
    """Return the number of a manifest's format."""
    return next(number for number, name in FORMATS.items() if name == manifest["format"])


def check_folder(store: Store) -> bool:
    """Return True if a place holds an embedding run, False if it is missing or empty. Raise NotADirectoryError or
    ValueError if it holds other files.
    """
    try:
        names = store.names()
    except NotADirectoryError:
        raise NotADirectoryError(
            f"{store} is a file; `out` must be a folder that is new, empty or written by this job"
        ) from None
    begun = PLAN in names
    if DATA in names and begun:
        check_names(f"{store}/{DATA}", store.names(f"{DATA}/"), _IN_DATA, "jobs/embed.py")
    check_names(store, names, _OWN if begun else _TEMPORARY, "jobs/embed.py")
    return begun


def continued_run(store: Store, new: EmbeddingRun) -> EmbeddingRun:
    """Return the unfinished run in a place, to resume it as ``new``, whose plan has no parts yet. Raise ValueError if
    it was started with another encoder, tokenizer, setting or input; the message names it with both values.

    Not an ``io.resume.Work``, whose folder is emptied for other work: here other work stays until the new output, in a
    folder next to it, is complete, and the place may be on an object store.
    """
    stored = read_run(store)
    new = replace(new, plan=replace(new.plan, format=stored.plan.format))
    is_same_work(store, decides(stored), decides(new), overwrite=False, can_overwrite=isinstance(store, Folder))
    inputs = zip(new.plan.inputs, stored.plan.inputs, strict=True)  # files that moved are the same files
    files = tuple(replace(file, carried=before.carried) for file, before in inputs)
    return replace(new, plan=replace(stored.plan, inputs=files))


def decides(run: EmbeddingRun) -> dict[str, Any]:
    """Return everything that decides the bytes of an output, by name; the paths of the inputs are not included."""
    plan = run.plan
    model = {"model": dict(run.identity)} if run.identity else {}
    encoder = {} if "files" in run.identity else {"encoder": run.encoder}  # then it is a digest of the identity
    files = inputs_identity(plan.inputs, plan.settings)
    settings = settings_json(plan.settings, plan.format)
    return {"tokeniser": run.tokenizer, **encoder, **model, **settings, "inputs": files}


def read_run(store: Store) -> EmbeddingRun:
    """Return the run that was started in a place. Raise FileNotFoundError or ValueError if its plan is missing or
    damaged.
    """
    value = read_json(store, PLAN, most_bytes=MOST_JSON_BYTES)
    try:
        run = checked(_PlanFile, value, PLAN)
        if run["format"] not in FORMATS.values():
            raise ValueError(f"format is {str(run['format'])[:80]!r}, not {FORMATS[3]!r}")
        model = value.get("model", {})
        if model != {}:
            checked(_Model, model, "model")
        plan = plan_from_json(run["plan"], format_of(run))
        return EmbeddingRun(run["encoder"], run["tokeniser"], plan, model)
    except ValueError as error:
        raise ValueError(f"{store}/{PLAN} is damaged ({error}); remove {store} and start over") from None


@contextmanager
def begun_run(store: Store, run: EmbeddingRun) -> Iterator[dict[str, PartReport]]:
    """Lock a place for a run; yield the reports of the finished parts, by name. Raise ValueError if another run is
    writing there, or was started there after ``run`` was planned.
    """
    with store.held():
        _sweep(store)
        if not is_there(store, PLAN):
            value = {"format": FORMATS[run.plan.format], "encoder": run.encoder, "tokeniser": run.tokenizer}
            model = {"model": dict(run.identity)} if run.identity else {}
            write_json(store, PLAN, value | {"plan": run.plan.to_json()} | model)
        _check_same(store, run)
        names = {part.name for part in run.plan.parts}
        foreign = {f"{DATA}/{name}" for name in store.names(f"{DATA}/")} - names
        if foreign:
            raise foreign_work(store, min(foreign), "this run of jobs/embed.py")
        folders = (REPORTS, REJECTED) if run.plan.format == 2 else (DATA, REPORTS, REJECTED)
        for name in folders:  # after the plan, by which the next run recognizes the folder
            store.make_folder(name)
        yield finished_parts(store, run)


def removal_of_new(store: Store) -> Callable[[], None]:
    """Return a function that removes what ``begun_run`` writes after this call, if Ray does not start on this machine.

    It keeps a plan and a folder that exist now. It keeps everything if the run is on a cluster, which may answer later.
    """
    if not isinstance(store, Folder) or on_cluster() or is_there(store, PLAN):
        return lambda: None
    out, is_users = store.path, store.path.exists()

    def remove() -> None:
        with suppress(OSError):  # read-only, or not empty
            (out / ENCODER).unlink(missing_ok=True)
            for folder in filter(Path.exists, (out / name for name in (DATA, REPORTS, REJECTED, IDS))):
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()
            (out / PLAN).unlink()
            if not is_users:
                out.rmdir()

    return remove


def encoder_name(store: Store) -> str:
    """Return the name that the user gave for the encoder of an output; empty if it is unknown."""
    try:
        return str(read_json(store, ENCODER, dict[str, str]).get("encoder", ""))
    except (OSError, ValueError):
        return ""


def _check_same(store: Store, run: EmbeddingRun) -> None:
    """Raise ValueError if the plan in a place belongs to another run."""
    if changed := differences(_identity(read_run(store)), _identity(run)):
        raise ValueError(f"another run, with another {changed}, is writing to {store}; use a separate `out` for each")


def _sweep(store: Store) -> None:
    """Remove temporary files of killed writers."""
    for folder in ("", f"{DATA}/", f"{REPORTS}/", f"{REJECTED}/", f"{IDS}/"):
        for name in filter(_TEMPORARY.fullmatch, store.names(folder)):
            store.delete(f"{folder}{name}")  # a writer that lost its driver may have renamed it in the meantime


def finished_parts(store: Store, run: EmbeddingRun) -> dict[str, PartReport]:
    """Return the reports, by part name, of the parts of this run whose files match their reports."""
    names = {f"{REPORTS}/{name}" for name in store.names(REPORTS)}
    reported = [part for part in run.plan.parts if report_name(part.name) in names]
    with ThreadPoolExecutor(_THREADS) as pool:
        done = pool.map(partial(_finished, store, run), reported)
        return {report.name: report for report in done if report is not None}


def _finished(store: Store, run: EmbeddingRun, part: Part) -> PartReport | None:
    try:
        report: PartReport = read_json(store, report_name(part.name), PartReport)
    except (OSError, ValueError):
        return None  # missing or damaged: the part is embedded again
    source, settings = run.plan.inputs[part.file], run.plan.settings
    expected = part_digest(run.encoder, run.identity, run.tokenizer, source, part, settings)
    if (report.name, report.rows + report.n_rejected, report.made_of) != (part.name, part.rows, expected):
        return None
    try:
        stamp = store.stamp(part.name)
        size = report.size if stamp else store.size(part.name)
        same = (bool(stamp) and stamp == report.stamp) or store.sha256(part.name) == report.sha256
        if same and report.n_rejected:
            same = store.sha256(rejected_name(part.name)) == report.rejected_sha256
    except (FileNotFoundError, IsADirectoryError, ValueError):  # ValueError: a FIFO, socket or device
        return None
    return replace(report, stamp=stamp, size=size) if same else None  # the output may be a copy, with other stamps


def is_finished(store: Store, reports: dict[str, PartReport]) -> bool:
    """Return whether a place is committed, with a manifest that agrees with the reports of the parts."""
    if not is_committed(store, MANIFEST):
        return False
    try:
        manifest: dict[str, Any] = read_json(store, MANIFEST, dict[str, Any], MOST_JSON_BYTES)
    except ValueError:
        return False
    return manifest.get("parts") == _entries(reports)


def uncommit(store: Store, encoder: str) -> None:
    """Remove ``_SUCCESS``, before parts are replaced; keep the name of the encoder for jobs/search.py."""
    store.delete(SUCCESS)
    write_json(store, ENCODER, {"encoder": encoder})


def commit(
    store: Store,
    run: EmbeddingRun,
    reports: dict[str, PartReport],
    on_duplicate_id: OnDuplicateId = "fail",
    run_tasks: RunTasks = map,
) -> dict[str, Any]:
    """Write ``_manifest.json``, then ``_SUCCESS``; return the manifest, which is equal for every run of the same plan.
    ``run_tasks`` runs the tasks that look for repeated ids.

    Raises:
        ValueError: an id is repeated and ``on_duplicate_id`` is ``fail`` (the parts are kept); a part differs from its
            report; or another run was started on the same object store, which has no locks.
    """
    _check_same(store, run)
    _check_parts(store, reports)
    plan, settings = run.plan, run.plan.settings
    duplicates, repeated = 0, None
    if settings.id_column is not None:
        from paraembed.embedding.ids import count_duplicates  # noqa: PLC0415 - imports numba, 0.4 s

        names, rows = [part.name for part in plan.parts], sum(report.rows for report in reports.values())
        duplicates, repeated = count_duplicates(store, names, settings.id_column, rows, store, run_tasks)
    if duplicates and on_duplicate_id == "fail":
        raise RunFailedError(
            f"`id_column` {settings.id_column!r}: {duplicates:,} rows repeat an id, for example {repeated!r}; "
            "correct the input, or resume with `on_duplicate_id` keep"
        )
    with store.open(plan.parts[0].name) as raw:
        schema = pq.read_schema(raw)
    parts = _entries(reports)
    model: dict[str, Any] = {}
    if run.identity:  # on a GPU, the order of a kernel's sums depends on the batch's shape and on other work there
        same_bytes = run.identity["device"] == "cpu"
        model = {"model": {**run.identity, "same_bytes": same_bytes, "tolerance": tolerance(run.identity)}}
    manifest = {
        "format": FORMATS[plan.format],
        **{name: sum(part[name] for part in parts) for name in (*COUNTS, *OTHER_COUNTS)},
        "n_duplicate_ids": duplicates,
        "schema": columns_of(schema),
        "id_column": settings.id_field,
        "fingerprints": {
            "encoder": run.encoder,
            "tokeniser": run.tokenizer,
            "settings": digest_of(settings_json(settings, plan.format)),
            "inputs": listing_digest(plan),
        },
        **model,
        "settings": settings_json(settings, plan.format),
        "inputs": [file.to_json() for file in plan.inputs],
        "parts": parts,
    }
    _sweep(store)
    store.delete_folder(IDS)  # before the commit, after which a run has nothing to do
    commit_manifest(store, MANIFEST, manifest)
    return manifest


def tolerance(identity: Mapping[str, Any]) -> float:
    """Return the largest possible difference of a text's vector between batches, relative to the vector's maximum.

    It is 1e-5 for an encoder folder on a CPU, because of the order of sums, and 1e-3 for a transformer in float32,
    because its sums are long; float16 and bfloat16 have only 11 and 8 bits.
    """
    if not identity:
        return 1e-5
    if identity.get("quantized") or identity.get("backend", "torch") != "torch":
        return 5e-2
    return {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}[identity["precision"]]


def _entries(reports: dict[str, PartReport]) -> list[dict[str, Any]]:
    """Return the manifest's entries of the parts, in order."""
    ordered = [asdict(reports[name]) for name in sorted(reports, key=lambda name: (len(name), name))]
    return [{key: value for key, value in report.items() if key not in _OF_A_RUN} for report in ordered]


def _check_parts(store: Store, reports: dict[str, PartReport]) -> None:
    """Raise ValueError if a part was removed or replaced after its report was written."""
    with ThreadPoolExecutor(_THREADS) as pool:
        right = pool.map(lambda report: _is_unchanged(store, report), reports.values())
        wrong = sorted(report.name for report, is_right in zip(reports.values(), right, strict=True) if not is_right)
    if wrong:
        raise ValueError(
            f"{wrong[0]} in {store} was removed or changed by another process ({len(wrong)} such parts); make sure "
            "that no other process writes there, and run the same command again to repair them"
        )


def _is_unchanged(store: Store, report: PartReport) -> bool:
    try:
        same = store.stamp(report.name) == report.stamp if report.stamp else store.size(report.name) == report.size
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return False
    return same and (not report.n_rejected or is_there(store, rejected_name(report.name)))


def _identity(run: EmbeddingRun) -> dict[str, Any]:
    """Return the identity of a run; two runs may write to one output only if their identities are equal."""
    parts = digest_of([asdict(part) for part in run.plan.parts])
    return {**decides(run), "parts": parts}


def listing_digest(plan: Plan) -> str:
    """Return the digest of the inputs' sizes and contents, in order, without their paths."""
    return digest_of(inputs_identity(plan.inputs, plan.settings))


def columns_of(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return names and types of the columns, for JSON."""
    return [(field.name, str(field.type)) for field in schema]
