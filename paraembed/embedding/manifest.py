"""What an output of embeddings consists of, a folder or a prefix of an object store, and how a run is started and
resumed there; ``paraembed.embedding.commit`` commits it.

The plan is written first, in ``_plan``: the parts, then the inputs; then every part, whose footer has its report;
then the list of the parts in ``_manifest``, ``_manifest.json``, and last ``_SUCCESS``, which holds the manifest's
SHA-256. The reports of finished parts are written to ``_done``, about a thousand at a time, with the sizes and times of
their files. A listing of the folder shows which of these parts are unchanged. Only the others are read: those in
``_done`` to compare their SHA-256; those without a report there to compare the checksums of their pages, their rows and
the digest in the footer, which is that of everything that decides the bytes. So the same command resumes a run that was
stopped anywhere, and repairs parts that were damaged or removed. While many texts are planned, workers write the first
parts before the plan; ``_plan/unplanned`` identifies their run until then. The parts are in the folder ``data``, which
has no other files; the names of all other files and folders begin with ``_`` or ``.``.

In outputs of format 2, which are read and resumed as they are, the parts are in the same folder as ``_plan.json``, and
each has its report as a file in ``_reports``; ``_manifest.json`` lists the inputs and the parts.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.checkpoint import KnownEncoder
from paraembed.embedding.cache import Cache
from paraembed.embedding.identity import is_same_file
from paraembed.embedding.inputs import LOOKERS, InputFile
from paraembed.embedding.part import FOOTER, REJECTED, REPORTS, PartReport, part_digest, rejected_name, report_name
from paraembed.embedding.plan import (
    DATA,
    IDS,
    PIECES_SCHEMA,
    Part,
    Plan,
    inputs_identity,
    part_name,
    part_names,
    parts_of,
    plan_from_json,
    settings_json,
)
from paraembed.embedding.records import (
    DONE,
    ENTRIES,
    INPUTS,
    PIECES,
    Reports,
    arrow_bytes,
    inputs_of,
    inputs_table,
    listing,
    of_generation,
    read_arrow,
    reports_of,
    without_zeros,
    write_arrow,
)
from paraembed.embedding.settings import Settings
from paraembed.io.arrow import numbers_of
from paraembed.io.atomic import SUCCESS
from paraembed.io.fingerprint import differences, digest_of
from paraembed.io.limits import TableLimits
from paraembed.io.places import Place
from paraembed.io.resume import check_names, foreign_work, is_same_work
from paraembed.io.store import Folder, Remote, Store, is_committed, is_there, open_store, read_bytes, read_json
from paraembed.options import Count, Range, checked, json_value
from paraembed.process import in_threads
from paraembed.settings import Backend, Pooling, Precision

FORMATS = {2: "paraembed-embeddings-2", 3: "paraembed-embeddings-3"}
PLAN, MANIFEST = "_plan.json", "_manifest.json"  # the plan of format 2
NEXT, NEXT_LOCK, NEXT_MANIFEST = "_next", "._next.lock", "_manifest.next.json"
"""Folder of a generation until its commit, its lock, and the manifest with it; see ``paraembed.embedding.append``."""
MEMO = f"{REPORTS}/run.json"  # the MLflow run of this output
ENCODER = f"{REPORTS}/encoder.json"  # how the user named the encoder
RECORDED = f"{REPORTS}/recorded.json"  # written when everything is logged to MLflow
REPAIR = "run the same jobs/embed.py command again with `identity` sha256 to repair it"
COUNTS = ("rows", "n_tokens", "n_unknown")
OTHER_COUNTS = ("n_cut", "n_without_tree", "n_replaced", "n_clipped", "n_rejected", "n_null_ids")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # as io.atomic.hidden_name names them
UNPLANNED = "_plan/unplanned"
"""File of a run that embeds parts before its plan is complete: the digest of its encoder, settings and inputs. It is
removed when the plan is written.
"""
_UNBEGUN = re.compile(rf"_plan|{_TEMPORARY.pattern}")
SUPERSEDED = "_superseded"
"""Folder with the list of rows that newer rows of the same id supersede; see ``ids.superseded_rows``."""
SUPERSEDED_SCHEMA = pa.schema([("part", pa.string()), ("row", pa.int64()), ("chunk", pa.int64())])
"""Name of the part of such a row, its number in it, from 0, and the number of the chunk."""
FOLDERS = (DATA, REPORTS, REJECTED, DONE, IDS, SUPERSEDED, *(name.partition("/")[0] for name in (INPUTS, ENTRIES)))
"""Folders of an output."""
NAMES = (PLAN, *FOLDERS, NEXT, NEXT_LOCK, NEXT_MANIFEST, MANIFEST, SUCCESS)
"""Files and folders of an output, but for the parts of format 2."""
_OWN = re.compile("|".join([r"part-\d{5,}-of-\d{5,}\.parquet", *map(re.escape, NAMES), _TEMPORARY.pattern]))
_ENTRIES_NAME, _INPUTS_NAME, _PIECES_NAME = (
    re.compile(name.replace("-000.", r"-(\d{3,})\.")) for name in (ENTRIES, INPUTS, PIECES)
)
_LISTED = re.compile(rf"{_ENTRIES_NAME.pattern}|{_INPUTS_NAME.pattern}|{_PIECES_NAME.pattern}|_superseded/\d+\.arrow")
_IN_DATA = re.compile(rf"part-\d{{3,}}-\d{{6,}}\.parquet|{_TEMPORARY.pattern}")
_MULTI_LINE = {"n_multi_line", "n_line_breaks", "longest_lines", "longest_first", "longest_file"}
_OF_A_RUN = {
    "seconds",
    "stamp",
    "size",
    "made_of",
    "n_repeated",
    "n_cached",
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
    parts: str = ""  # SHA-256 of the file with the parts, if the plan was read from it
    cache: Cache | None = None  # vectors of earlier runs, which decide nothing
    is_compacted: bool = False  # then the parts are not those of the inputs, and not in the plan


class _About(TypedDict):
    """Run of a plan: JSON in the metadata of its inputs."""

    format: Any
    encoder: str
    tokeniser: str
    model: NotRequired[Any]


class _PlanFile(_About):
    """Plan of format 2."""

    plan: Any


class _PlanTables(_About):
    """Metadata of the inputs of format 3; ``parts`` is the SHA-256 of the pieces."""

    settings: Any
    reading: dict[str, Any]
    parts: str
    compacted: NotRequired[bool]  # the parts are not those of the inputs, see ``paraembed.embedding.compact``


class _Model(TypedDict):
    """What is read of the identity of an encoder."""

    device: Literal["cpu", "cuda"]
    precision: Precision
    prompt: NotRequired[str | None]
    backend: NotRequired[Backend]
    pooling: NotRequired[Pooling]
    batch_tokens: NotRequired[Annotated[int, Range(1, 2**31 - 1)] | None]


class _Fingerprints(TypedDict):
    encoder: str


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
    n_further_chunks: NotRequired[Count]


class _Manifest(_Counts):
    """What is read of a manifest."""

    format: str
    n_duplicate_ids: Count
    schema: list[tuple[str, str]]
    id_column: str
    settings: Settings
    fingerprints: _Fingerprints
    n_bad_files: NotRequired[Count]


class _OldManifest(_Manifest):
    parts: list[_Entry]


class _Generation(TypedDict):
    parts: Count
    rows: Count
    files: dict[str, str]
    inputs: NotRequired[str]  # digest of its inputs, if there are several generations


class _NewManifest(_Manifest):
    generations: list[_Generation]
    n_superseded: NotRequired[Count]


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


def known_manifest(store: Store) -> dict[str, Any]:
    """Return the JSON of a manifest, which lists the parts only in format 2; raise FileNotFoundError or ValueError if
    it is missing, damaged or of another format.
    """
    manifest, where = read_json(store, MANIFEST, most_bytes=MOST_JSON_BYTES), f"{store}/{MANIFEST}"
    if not isinstance(manifest, dict) or manifest.get("format") not in FORMATS.values():
        raise ValueError(f"{where} does not have the format {FORMATS[3]!r}; it was not written by jobs/embed.py")
    checked(_NewManifest if "generations" in manifest else _OldManifest, manifest, where)
    return manifest


def read_manifest(store: Store) -> dict[str, Any]:
    """Return the manifest of an output, with its ``parts``, and with its settings as ``Settings``. Raise
    FileNotFoundError or ValueError if it is missing, damaged or of another format.
    """
    manifest, where = known_manifest(store), f"{store}/{MANIFEST}"
    if "generations" in manifest:
        generations = [*generations_of(manifest).items()]
        tables = in_threads(lambda generation: read_entries(store, *generation), generations, LOOKERS)
        manifest |= {"parts": [part for table in tables for part in table.to_pylist()]}
    known = checked(_OldManifest, manifest, where)
    for part, name in zip(known["parts"], _names_of(manifest), strict=True):
        if part["name"] != name:  # also keeps a manifest from naming a file outside the folder
            raise ValueError(f"{where}: its part {part['name'][:80]!r} should be {name!r}; {REPAIR}")
    if sum(part["rows"] + part["n_rejected"] for part in known["parts"]) >= 2**63:
        raise ValueError(f"{where}: the parts have more rows than 64-bit row numbers can count")
    return dict(known)


def generations_of(manifest: Mapping[str, Any]) -> dict[int, dict[str, str]]:
    """Return the numbers of a manifest's generations, ascending, and the SHA-256 of their files, by name; in format 2
    there is one, without files. Raise ValueError if there is none, or a number is missing or repeated.
    """
    if "generations" not in manifest:
        return {0: {}}
    generations = dict[int, dict[str, str]]()
    for generation in manifest["generations"]:
        numbers = [int(match[1]) for match in map(_ENTRIES_NAME.fullmatch, generation["files"]) if match]
        if len(numbers) != 1 or numbers[0] <= max(generations, default=-1):
            raise ValueError(f"{MANIFEST}: its generations are not in order; {REPAIR}")
        if not all(map(_LISTED.fullmatch, generation["files"])):  # also keeps it from naming files elsewhere
            raise ValueError(f"{MANIFEST}: its generations list unknown files; {REPAIR}")
        generations[numbers[0]] = generation["files"]
    if not generations:
        raise ValueError(f"{MANIFEST} has no generations; {REPAIR}")
    return generations


def _names_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names that the parts of a manifest should have, by the numbers of its generations and their parts."""
    if "generations" not in manifest:
        return part_names(len(manifest["parts"]), 2)
    counts = [generation["parts"] for generation in manifest["generations"]]
    if sum(counts) != len(manifest["parts"]):
        raise ValueError(
            f"{MANIFEST}: its generations have {sum(counts)} parts, not {len(manifest['parts'])}; {REPAIR}"
        )
    generations = zip(generations_of(manifest), counts, strict=True)
    return [name for number, count in generations for name in part_names(count, 3, number)]


def read_entries(store: Store, generation: int, files: Mapping[str, str]) -> pa.Table:
    """Return the list of a generation's parts; raise ValueError if it is not that of the manifest."""
    name = of_generation(ENTRIES, generation)
    if store.sha256(name) != files[name]:
        raise ValueError(f"{store}/{name} has another SHA-256 than the manifest says; {REPAIR}")
    return read_arrow(store, name, ENTRIES_SCHEMA)[0]


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
    begun = bool(planned(store))
    is_own = begun or ("_plan" in names and is_there(store, UNPLANNED))
    if DATA in names and is_own and isinstance(store, Folder):  # elsewhere a listing takes long; see ``begun_run``
        check_names(f"{store}/{DATA}", store.names(f"{DATA}/"), _IN_DATA, "jobs/embed.py")
    check_names(store, names, _OWN if is_own else _UNBEGUN, "jobs/embed.py")
    return begun


def keep_unplanned(store: Store, new: EmbeddingRun) -> bool:
    """Return whether a place has parts of ``new``, which was killed before its plan was complete. Those of another run
    are removed; raise ValueError if they are on an object store, where that run may be active.
    """
    if not is_there(store, UNPLANNED):
        return False
    with store.held():
        if read_bytes(store, UNPLANNED) == _digest_of_unplanned(new):
            return True
        if isinstance(store, Remote):
            raise ValueError(
                f"{store} has parts of another run, which has no plan yet; use another `out`, or remove them"
            )
        for folder in (DATA, REPORTS, REJECTED, IDS):
            store.delete_folder(folder)
        store.delete(UNPLANNED)  # last, as the next run recognizes the folder by it
    return False


def begin_unplanned(store: Store, new: EmbeddingRun) -> None:
    """Prepare a locked place for the first parts of a run whose plan is not complete. Raise ValueError if another run
    has begun there.
    """
    if check_folder(store) or is_there(store, UNPLANNED):
        raise _changed(store)
    store.make_folder("_plan")
    store.write(UNPLANNED, lambda file: file.write(_digest_of_unplanned(new)))
    for folder in (DATA, REPORTS, REJECTED):
        store.make_folder(folder)


def _digest_of_unplanned(new: EmbeddingRun) -> bytes:
    return digest_of(decides(new)).encode()


def _changed(store: Store) -> ValueError:
    return ValueError(f"{store} was changed by another command meanwhile; run the same command again")


def planned(store: Store) -> list[int]:
    """Return the numbers of the generations that have a plan in a place, ascending."""
    matches = map(_INPUTS_NAME.fullmatch, (f"_plan/{name}" for name in store.names("_plan/")))
    numbers = sorted(int(match[1]) for match in matches if match)
    return numbers or ([0] if is_there(store, PLAN) else [])


def continued_run(store: Store, new: EmbeddingRun) -> EmbeddingRun:
    """Return the unfinished run in a place, to resume it as ``new``, whose plan has no parts yet. Raise ValueError if
    it was started with another encoder, tokenizer, setting or input; the message names it with both values.

    Not an ``io.resume.Work``, whose folder is emptied for other work: here other work stays until the new output, in a
    folder next to it, is complete, and the place may be on an object store.
    """
    stored = read_run(store, new.plan.generation)
    inputs = _recognized(new.plan.inputs, stored.plan.inputs)
    if len(inputs) == len(stored.plan.inputs):
        for file, old in zip(inputs, stored.plan.inputs, strict=True):
            if old.fault and not file.fault:
                raise ValueError(
                    f"{store} was begun without {file.shown}, which could not be read and has changed since; give it "
                    "to `append` when the output is finished, or start over"
                )
    new = replace(new, plan=replace(new.plan, inputs=inputs, format=stored.plan.format))
    is_same_work(store, decides(stored), decides(new), overwrite=False, can_overwrite=isinstance(store, Folder))
    files = (replace(file, carried=old.carried) for file, old in zip(inputs, stored.plan.inputs, strict=True))
    return replace(new, plan=replace(stored.plan, inputs=tuple(files)), parts=stored.parts)


def _recognized(files: Sequence[InputFile], before: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return files with the stamps and digests of those of a plan, if they are the same, possibly elsewhere."""
    if len(files) != len(before):
        return tuple(files)
    same = in_threads(lambda pair: is_same_file(*pair), [*zip(before, files, strict=True)], LOOKERS)
    return tuple(
        file
        if file == old  # as ``find_inputs`` returns known files
        else replace(file, stamp=old.stamp, sha256=old.sha256, fault=old.fault, snapshot=old.snapshot)
        if is_same
        else replace(file, sha256=file.sha256 or "another")
        for file, old, is_same in zip(files, before, same, strict=True)
    )


def known_inputs(store: Store, reading: TableLimits) -> dict[str, InputFile]:
    """Return the inputs of the plan in a place, if it has one, by their paths without credentials; see
    ``find_inputs``. None if they were looked at with other limits.
    """
    files = dict[str, InputFile]()
    for place in (store, store.below(NEXT)):
        with suppress(OSError, ValueError):  # a damaged plan, of which the run will say more
            for number in planned(place):
                table, about = read_arrow(place, of_generation(INPUTS, number))
                if checked(_PlanTables, about, INPUTS)["reading"] == asdict(reading):
                    files |= {file.path: file for file in inputs_of(table)}
    return files


def columns_to_add(store: Store, new: EmbeddingRun) -> pa.Schema:
    """Return the columns of a finished output, to which a run adds rows. Raise ValueError if the run has another
    encoder, tokenizer or setting; the message names it with both values.
    """
    stored = read_run(store)
    known, other = (
        {n: value for n, value in decides(run).items() if n not in {"inputs", "snapshot"}} for run in (stored, new)
    )
    is_same_work(store, known, other, overwrite=False, can_overwrite=isinstance(store, Folder))
    first, *_ = generations_of(known_manifest(store))
    with store.open(part_name(0, first)) as raw:
        return pq.read_schema(raw)


def is_append_begun(store: Store) -> bool:
    """Return whether there is something to do for ``append.finish_append``: a commit of a generation that was begun, or
    files of ``compact.compact``.
    """
    names, new = store.names(), store.below(NEXT)
    if NEXT_MANIFEST in names or NEXT not in names:
        return NEXT_MANIFEST in names
    try:
        return not planned(new) or read_run(new, planned(new)[0], with_parts=False).is_compacted
    except (OSError, ValueError):  # a damaged plan of an append, of which the run will say more
        return False


def decides(run: EmbeddingRun) -> dict[str, Any]:
    """Return everything that decides the bytes of an output, by name; the paths of the inputs are not included."""
    plan = run.plan
    model = {"model": dict(run.identity)} if run.identity else {}
    encoder = {} if "files" in run.identity else {"encoder": run.encoder}  # then it is a digest of the identity
    files = inputs_identity(plan.inputs, plan.settings)
    settings = settings_json(plan.settings, plan.format)
    snapshots = "; ".join(dict.fromkeys(file.snapshot for file in plan.inputs if file.snapshot))
    versions = {"snapshot": snapshots} if snapshots else {}
    return {"tokeniser": run.tokenizer, **encoder, **model, **settings, **versions, "inputs": files}


def read_run(store: Store, generation: int | None = None, *, with_parts: bool = True) -> EmbeddingRun:
    """Return the run that was started in a place, of its first generation or another one; format 2 is always read with
    its parts. Raise FileNotFoundError or ValueError if its plan is missing or damaged.
    """
    number = next(iter(planned(store)), 0) if generation is None else generation
    name, pieces = (of_generation(file, number) for file in (INPUTS, PIECES))
    name = PLAN if number == 0 and not is_there(store, name) else name
    try:
        if name == PLAN:
            about = _checked_run(_PlanFile, read_json(store, PLAN, most_bytes=MOST_JSON_BYTES), 2)
            plan = plan_from_json(about["plan"])
        else:
            table, value = read_arrow(store, name)
            about = _checked_run(_PlanTables, value, 3)
            plan = Plan(inputs_of(table), checked(Settings, about["settings"], "settings"), generation=number)
            if with_parts and store.sha256(pieces) != about["parts"]:
                raise ValueError(f"{pieces} is of another plan")
            if with_parts and not about.get("compacted"):
                table = read_arrow(store, pieces, PIECES_SCHEMA)[0]
                plan = replace(plan, parts=parts_of(table, plan.inputs, generation=number))
        known = about["encoder"], about["tokeniser"], plan, about.get("model", {}), about.get("parts", "")
        return EmbeddingRun(*known, is_compacted=about.get("compacted", False))
    except ValueError as error:
        raise ValueError(f"{store}/{name} is damaged ({error}); remove {store} and start over") from None


def encoder_of(store: Store) -> KnownEncoder:
    """Return what the plan of an output says about its encoder."""
    run = read_run(store, with_parts=False)
    return KnownEncoder(run.encoder, run.tokenizer, run.identity)


def read_runs(store: Store, generations: Sequence[int]) -> dict[int, EmbeddingRun]:
    """Return the runs of generations, without the parts of their plans, by number."""
    runs = in_threads(lambda number: read_run(store, number, with_parts=False), generations, LOOKERS)
    return dict(zip(generations, runs, strict=True))


def _checked_run(kind: Any, value: Any, format_number: int) -> Any:
    run = checked(kind, value, "plan")
    if run["format"] != FORMATS[format_number]:
        raise ValueError(f"format is {str(run['format'])[:80]!r}, not {FORMATS[format_number]!r}")
    if run.get("model", {}) != {}:
        checked(_Model, run["model"], "model")
    return run


def write_plan(store: Store, run: EmbeddingRun, **more: Any) -> None:
    """Write the parts of a plan, and then its inputs with what else decides the output."""
    reading = asdict(run.plan.inputs[0].limits)
    about = {"format": FORMATS[3], "encoder": run.encoder, "tokeniser": run.tokenizer, "reading": reading}
    about |= {"settings": settings_json(run.plan.settings, 3)}
    about |= {"model": dict(run.identity)} if run.identity else {}
    pieces, inputs = (of_generation(name, run.plan.generation) for name in (PIECES, INPUTS))
    parts = write_arrow(store, pieces, run.plan.pieces())
    write_arrow(store, inputs, inputs_table(run.plan.inputs), about | more | {"parts": parts})


@contextmanager
def begun_run(
    store: Store, run: EmbeddingRun, *, is_early: bool = False, by_content: bool = False
) -> Iterator[Reports]:
    """Lock a place for a run; yield the reports of the finished parts, of which all are read if ``by_content`` is set.
    Raise ValueError if another run is writing there, or was started there after ``run`` was planned.

    ``is_early``: the place is locked, and workers have been writing parts of this run since before it was planned.
    """
    with nullcontext() if is_early else store.held():
        if not is_early:
            sweep(store)
        if run.plan.generation not in planned(store):
            if planned(store) or is_there(store, MANIFEST):
                raise _changed(store)
            write_plan(store, run)
        store.delete(UNPLANNED)
        identity = check_same(store, run)
        listed = listing(iter(()) if is_early else store.stamps(run.plan.folder))
        others = tuple(_prefix(number) for number in planned(store) if number != run.plan.generation)
        unplanned = listed["name"].filter(pc.invert(pc.is_in(listed["name"], value_set=run.plan.parts.names)))
        names = (name for name in unplanned.to_pylist() if not name.startswith(others))
        foreign = [name for name in names if not _TEMPORARY.fullmatch(name.rpartition("/")[2])]
        if run.plan.format > 2 and foreign:
            raise foreign_work(store, min(foreign), "this run of jobs/embed.py")
        folders = (REPORTS, REJECTED) if run.plan.format == 2 else (DATA, DONE, REPORTS, REJECTED)
        for name in folders:  # after the plan, by which the next run recognizes the folder
            store.make_folder(name)
        reports = Reports(store, identity if run.plan.format > 2 else "", run.plan.generation)
        keep_finished(store, run, reports, listed, by_content=by_content)
        try:
            yield reports
        finally:
            reports.write()


def encoder_name(store: Store) -> str:
    """Return the name that the user gave for the encoder of an output; empty if it is unknown."""
    try:
        return str(read_json(store, ENCODER, dict[str, str]).get("encoder", ""))
    except (OSError, ValueError):
        return ""


def check_same(store: Store, run: EmbeddingRun) -> str:
    """Return the digest of the run, to which the reports of its parts are tied; raise ValueError if the plan in a place
    belongs to another one.
    """
    identity = _identity(run)
    stored = _identity(read_run(store, run.plan.generation, with_parts=False))
    if changed := differences(stored, identity):
        raise ValueError(f"another run, with another {changed}, is writing to {store}; use a separate `out` for each")
    return digest_of(identity)


def sweep(store: Store) -> None:
    """Remove temporary files of killed writers, which an object store has not."""
    for folder in () if isinstance(store, Remote) else ("", *(f"{name}/" for name in FOLDERS)):
        for name in filter(_TEMPORARY.fullmatch, store.names(folder)):
            store.delete(f"{folder}{name}")  # a writer that lost its driver may have renamed it in the meantime


def has_finished(store: Store, new: EmbeddingRun) -> bool:
    """Return whether a place holds the finished output of ``new``, whose plan has no parts, and its parts and lists of
    rejected rows are as their reports say; never for format 2.

    It compares columns: 10⁵ parts take 0.3 s; their objects would take 3 s.
    """
    generation = new.plan.generation
    if not (is_there(store, of_generation(INPUTS, generation)) and is_committed(store, MANIFEST)):
        return False
    stored = read_run(store, generation, with_parts=False)
    inputs, identity = _recognized(new.plan.inputs, stored.plan.inputs), _identity(stored)
    if _identity(replace(new, plan=replace(new.plan, inputs=inputs), parts=stored.parts)) != identity:
        return False
    done = Reports(store, digest_of(identity), generation).read()
    prefix = _prefix(generation)
    listed = listing(named for named in store.stamps(f"{DATA}/") if named[0].startswith(prefix))
    known_stamps = done["stamp"].take(pc.index_in(listed["name"], value_set=done["name"]))
    if len(listed) != len(done) or not listed["stamp"].equals(known_stamps):
        return False
    rejecting = np.flatnonzero(numbers_of(done["n_rejected"])).tolist()

    def has_rejected(row: int) -> bool:
        name, digest = rejected_name(done["name"][row].as_py()), done["rejected_sha256"][row].as_py()
        return is_there(store, name) and store.sha256(name) == digest

    return is_finished(store, stored.plan, done) and all(in_threads(has_rejected, rejecting, LOOKERS))


def _prefix(generation: int) -> str:
    """Return how the names of a generation's parts begin."""
    return f"{DATA}/part-{generation:03d}-"


def keep_finished(
    store: Store, run: EmbeddingRun, reports: Reports, listed: pa.Table, *, by_content: bool = False
) -> None:
    """Keep the reports of the parts of this run whose files, as they are ``listed``, match them."""
    table, parts = reports.read(), run.plan.parts
    rows, further, rejected = (numbers_of(table[name]) for name in ("rows", "n_further_chunks", "n_rejected"))
    planned_rows = np.where((rejected > 0) | by_content, -1, rows - further + rejected)  # -1: is read again
    row = pc.index_in(parts.names, value_set=table["name"])  # null without a report
    stamps = listed["stamp"].take(pc.index_in(parts.names, value_set=listed["name"]))  # null without a file
    has_rows = pc.equal(pa.array(planned_rows).take(row), pa.array(parts.rows))
    is_kept = pc.fill_null(pc.and_(pc.equal(table["stamp"].take(row), stamps), has_rows), False).to_numpy()
    kept = row.filter(pa.array(is_kept)).to_pylist()
    is_unclear = ~is_kept & pc.is_valid(stamps).to_numpy()
    rows_of, stamps_of = (known.filter(pa.array(is_unclear)).to_pylist() for known in (row, stamps))

    def read_again(part: Part, number: int | None, stamp: str) -> PartReport | None:
        before = None if number is None else next(reports_of(table.slice(number, 1)))
        return _finished(store, run, part, before, stamp, by_content=by_content)

    with ThreadPoolExecutor(_THREADS) as pool:
        again = pool.map(read_again, parts[is_unclear], rows_of, stamps_of)
        for report, number in zip(again, rows_of, strict=True):
            if report and number is not None and table["stamp"][number].as_py() == report.stamp:
                kept.append(number)
            elif report:
                reports.add(report)
    reports.keep(table if len(kept) == len(table) else table.take(pa.array(kept, pa.int64())))


def _finished(
    store: Store, run: EmbeddingRun, part: Part, report: PartReport | None, stamp: str, *, by_content: bool
) -> PartReport | None:
    """Return the report of a part if its file is the one that this run writes; else None."""
    try:
        if report is None:
            report = _own_report(store, part)
        expected = part_digest(
            run.encoder, run.identity, run.tokenizer, run.plan.sources(part), part, run.plan.settings
        )
        if (report.name, report.planned_rows, report.made_of) != (part.name, part.rows, expected):
            return None
        if (report.stamp != stamp or by_content) and store.sha256(part.name) != report.sha256:
            return None
        if report.n_rejected and store.sha256(rejected_name(part.name)) != report.rejected_sha256:
            return None
    except (OSError, ValueError, pa.ArrowException):  # missing, damaged, or no file: the part is embedded again
        return None
    return replace(report, stamp=stamp, size=int(stamp.split(" ", maxsplit=1)[0]))


def _own_report(store: Store, part: Part) -> PartReport:
    """Return the report of a part that is in no file of ``_done``: in format 2 a file, else in its footer."""
    if part.format == 2:
        report: PartReport = read_json(store, report_name(part.name), PartReport)
        return report
    with store.open(part.name) as raw, pq.ParquetFile(raw, page_checksum_verification=True) as file:
        about = json_value((file.metadata.metadata or {}).get(FOOTER.encode(), b"null"), part.name, dict[str, Any])
        rows = sum(map(len, file.iter_batches(columns=None)))  # the checksum of each page is compared
    about |= {"name": part.name, "seconds": 0.0, "sha256": store.sha256(part.name)}
    report = checked(PartReport, about, part.name)
    if report.rows != rows:
        raise ValueError(f"{part.name} has {rows} rows, but its footer says {report.rows}")
    return report


def is_finished(store: Store, plan: Plan, reports: pa.Table) -> bool:
    """Return whether a place is committed, with a manifest that agrees with the reports of the parts, as a table."""
    if not is_committed(store, MANIFEST):
        return False
    try:
        manifest: dict[str, Any] = read_json(store, MANIFEST, dict[str, Any], MOST_JSON_BYTES)
        if plan.format == 2:
            return bool(manifest.get("parts") == without_zeros(reports.select(ENTRIES_SCHEMA.names)).to_pylist())
        generations = generations_of(checked(_NewManifest, manifest, MANIFEST))
        if any(store.sha256(name) != digest for files in generations.values() for name, digest in files.items()):
            return False
        entries = read_entries(store, plan.generation, generations[plan.generation])
        rows = pc.index_in(entries["name"], reports["name"])
        columns = (entries[name].equals(reports[name].take(rows)) for name in ENTRIES_SCHEMA.names)
        return len(entries) == len(reports) and all(columns)
    except (OSError, ValueError, LookupError):
        return False


def superseded_name(manifest: Mapping[str, Any]) -> str:
    """Return the file with the superseded rows of an output; empty if there are none."""
    files = (name for files in generations_of(manifest).values() for name in files)
    return next((name for name in files if name.startswith(f"{SUPERSEDED}/")), "")


def read_superseded(store: Store, manifest: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """Return the superseded rows of an output, counted over all parts, ascending, int64 [n]. Raise ValueError if their
    file is not that of the manifest, or lists rows that the parts do not have.
    """
    if not (name := superseded_name(manifest)):
        return np.zeros(0, np.int64)
    if store.sha256(name) not in {files.get(name) for files in generations_of(manifest).values()}:
        raise ValueError(f"{store}/{name} has another SHA-256 than the manifest says; {REPAIR}")
    table, _ = read_arrow(store, name, SUPERSEDED_SCHEMA)
    index = {part["name"]: number for number, part in enumerate(manifest["parts"])}
    starts = np.cumsum([0, *(part["rows"] for part in manifest["parts"])])
    parts = np.array([index.get(part, -1) for part in table["part"].to_pylist()], np.int64)
    rows, num_rows = numbers_of(table["row"]), (numbers_of(table["chunk"]) == 0).sum()  # of the input
    sizes = np.append(np.diff(starts), 0)  # the last one of parts that do not exist
    if not ((rows >= 0) & (rows < sizes[parts])).all() or num_rows != manifest.get("n_superseded", 0):
        raise ValueError(f"{store}/{name} is not the list of superseded rows of these parts; {REPAIR}")
    return np.sort(starts[parts] + rows)


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


_ENTRY = {name: kind for name, kind in get_type_hints(PartReport).items() if name not in _OF_A_RUN}
ENTRIES_SCHEMA = pa.schema([(name, pa.string() if kind is str else pa.int64()) for name, kind in _ENTRY.items()])


def _identity(run: EmbeddingRun) -> dict[str, Any]:
    """Return the identity of a run; two runs may write to one output only if their identities are equal."""
    parts = run.parts or hashlib.sha256(arrow_bytes(run.plan.pieces())).hexdigest()
    return {**decides(run), "parts": parts}


def listing_digest(plan: Plan) -> str:
    """Return the digest of the inputs' sizes and contents, in order, without their paths."""
    return digest_of(inputs_identity(plan.inputs, plan.settings))


def columns_of(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return names and types of the columns, for JSON."""
    return [(field.name, str(field.type)) for field in schema]
