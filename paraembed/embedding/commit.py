"""Commit an output of embeddings: check its parts and ids, and write the manifest, then ``_SUCCESS``; see
``paraembed.embedding.manifest``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding import ids
from paraembed.embedding.manifest import (
    COUNTS,
    ENCODER,
    ENTRIES_SCHEMA,
    FORMATS,
    MANIFEST,
    NEXT,
    NEXT_MANIFEST,
    OTHER_COUNTS,
    SUPERSEDED,
    SUPERSEDED_SCHEMA,
    EmbeddingRun,
    check_same,
    columns_of,
    generations_of,
    known_manifest,
    listing_digest,
    planned,
    read_entries,
    read_run,
    read_runs,
    superseded_name,
    sweep,
    tolerance,
    write_plan,
)
from paraembed.embedding.part import BAD_FILES, REJECTED, PartReport, rejected_name
from paraembed.embedding.plan import NO_PARTS, Plan, settings_json
from paraembed.embedding.records import (
    ENTRIES,
    PIECES,
    Reports,
    listing,
    of_generation,
    read_arrow,
    reports_of,
    table_of,
    values_of,
    without_zeros,
    write_arrow,
)
from paraembed.embedding.settings import OnDuplicateId
from paraembed.io.atomic import SUCCESS
from paraembed.io.escape import listed
from paraembed.io.fingerprint import digest_of
from paraembed.io.store import Store, commit_manifest, is_there, write_json
from paraembed.process import RunTasks
from paraembed.signals import RunFailedError


def uncommit(store: Store, encoder: str) -> None:
    """Remove ``_SUCCESS``, before parts are replaced; keep the name of the encoder for jobs/search.py."""
    store.delete(SUCCESS)
    write_json(store, ENCODER, {"encoder": encoder})


def commit(
    store: Store,
    run: EmbeddingRun,
    reports: Reports,
    on_duplicate_id: OnDuplicateId = "fail",
    run_tasks: RunTasks = map,
    added_to: Store | None = None,
) -> dict[str, Any]:
    """Write the manifest, then ``_SUCCESS``; return the manifest, which is equal for every run of the same plan.
    ``run_tasks`` runs the tasks that look for repeated ids.

    If ``store`` is the folder ``NEXT`` of a finished output ``added_to``, the manifest with the new generation is
    written there as ``NEXT_MANIFEST``: from then on, ``append.finish_append`` can complete it.

    Raises:
        ValueError: an id is repeated and ``on_duplicate_id`` is ``fail`` (the parts are kept); a part differs from its
            report; or another run was started on the same object store, which has no locks.
    """
    check_same(store, run)
    parts = without_zeros(reports.table().select(ENTRIES_SCHEMA.names))
    _check_parts(store, run.plan, reports)
    plan, settings, home = run.plan, run.plan.settings, added_to or store
    known = {} if planned(home) in ([], [plan.generation]) else known_manifest(home)
    numbers = generations_of(known) if known else {}
    others = {n: read_entries(home, n, files) for n, files in numbers.items() if n != plan.generation}
    if added_to and plan.generation <= max(others):
        raise RunFailedError(f"{home} was changed by another command meanwhile; run the same command again")
    with store.open(plan.parts[0].name) as raw:
        schema = pq.read_schema(raw)
    if known and columns_of(schema) != [tuple(column) for column in known["schema"]]:
        raise RunFailedError(
            f"{store} has other columns than {home}: {listed([name for name, _ in columns_of(schema)])}"
        )
    tables = [*others.values(), parts]
    options: dict[str, Any] = {"is_added": added_to is not None}
    of_ids, superseded = _check_ids(home, run, others, parts, known, on_duplicate_id, run_tasks, **options)
    model: dict[str, Any] = {}
    if run.identity:  # on a GPU, the order of a kernel's sums depends on the batch's shape and on other work there
        same_bytes = run.identity["device"] == "cpu"
        model = {"model": {**run.identity, "same_bytes": same_bytes, "tolerance": tolerance(run.identity)}}
    manifest = {
        "format": FORMATS[plan.format],
        **{name: sum(sum(values_of(table[name])) for table in tables) for name in (*COUNTS, *OTHER_COUNTS)},
        **of_ids,
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
    }
    if plan.format == 2:
        manifest |= {"inputs": [file.to_json() for file in plan.inputs], "parts": parts.to_pylist()}
    else:
        # Not the inputs, whose paths and times differ between equal runs; the fingerprints have their digests.
        pieces, entries = (of_generation(name, plan.generation) for name in (PIECES, ENTRIES))
        files = {pieces: store.sha256(pieces), entries: write_arrow(store, entries, parts)}
        own = {"parts": len(parts), "rows": sum(values_of(parts["rows"])), "files": files}
        generations = _generations(known, {plan.generation: own | {"inputs": listing_digest(plan)}}, superseded)
        if len(generations) > 1:
            manifest["fingerprints"]["inputs"] = digest_of([generation["inputs"] for generation in generations])
        else:
            del generations[0]["inputs"]
        manifest["generations"] = generations
    num_repeated = reports.sum("n_repeated") if added_to or not others else 0
    if num_repeated := num_repeated + known.get("n_repeated", 0):
        manifest |= {"n_repeated": num_repeated}
    if num_bad := _write_bad_files(store, home, [*others], plan):
        manifest |= {"n_bad_files": num_bad}  # not their digest, since paths differ between equal runs
    sweep(store)
    if added_to is None:
        commit_manifest(store, MANIFEST, manifest)
    else:
        write_json(home, NEXT_MANIFEST, manifest)
    return manifest


def _write_bad_files(store: Store, home: Store, others: Sequence[int], plan: Plan) -> int:
    """List the input files of all generations that could not be read so far; return their number."""
    plans = [*(run.plan for run in read_runs(home, others).values()), plan]
    files = [file for known in plans for file in known.inputs]
    read = {file.shown for file in files if not file.fault}
    bad = {file.shown: file.fault for file in files if file.fault and file.shown not in read}
    lines = [
        f"{json.dumps({'source': source, 'reason': fault}, ensure_ascii=False)}\n" for source, fault in bad.items()
    ]
    if lines or is_there(home, BAD_FILES):
        store.make_folder(REJECTED)
        store.write(BAD_FILES, lambda file: file.write("".join(lines).encode("utf-8", "replace")))
    return len(bad)


def commit_compacted(store: Store, generation: int, reports: Sequence[PartReport]) -> None:
    """Write the plan and the list of parts of a compacted output in ``NEXT``, then ``NEXT_MANIFEST``."""
    known, next_store = known_manifest(store), store.below(NEXT)
    runs = [read_run(store, number) for number in planned(store)]
    inputs = tuple(file for run in runs for file in run.plan.inputs)
    write_plan(
        next_store,
        replace(runs[0], plan=replace(runs[0].plan, inputs=inputs, parts=NO_PARTS, generation=generation)),
        compacted=True,
    )
    parts = without_zeros(table_of(reports).select(ENTRIES_SCHEMA.names))
    pieces, entries = (of_generation(name, generation) for name in (PIECES, ENTRIES))
    files = {pieces: next_store.sha256(pieces), entries: write_arrow(next_store, entries, parts)}
    counts = {name: sum(values_of(parts[name])) for name in (*COUNTS, *OTHER_COUNTS)}
    superseded = {"n_superseded": 0} if "n_superseded" in known else {}
    generations = [{"parts": len(parts), "rows": counts["rows"], "files": files}]
    write_json(store, NEXT_MANIFEST, known | counts | superseded | {"generations": generations})


def _check_ids(
    home: Store,
    run: EmbeddingRun,
    others: Mapping[int, pa.Table],
    parts: pa.Table,
    known: Mapping[str, Any],
    on_duplicate_id: OnDuplicateId,
    run_tasks: RunTasks,
    *,
    is_added: bool,
) -> tuple[dict[str, int], dict[str, str]]:
    """Compare the ids of all generations; return counts, and the SHA-256 of the list of superseded rows."""
    settings, prefix = run.plan.settings, f"{NEXT}/" if is_added else ""
    if settings.id_column is None:
        return {"n_duplicate_ids": 0}, {}
    new = {f"{prefix}{name}": digest for name, digest in _digests(parts).items()}
    before = {name: digest for table in others.values() for name, digest in _digests(table).items()}
    if not is_added:  # after a repair all are compared, in their order
        new, before = dict(sorted((before | new).items(), key=lambda part: (len(part[0]), part[0]))), {}
    rows = sum(sum(values_of(table["rows"])) for table in ([parts] if is_added else [*others.values(), parts]))
    of_parts = ids.Parts(home, settings.id_column, new, home, before, settings.has_chunks)
    if settings.stamp_column is not None:
        try:
            old = ids.superseded_rows(of_parts, settings.stamp_column, rows, run_tasks)
        except ValueError as error:
            raise RunFailedError(str(error)) from None
        names = pc.replace_substring_regex(old["part"], f"^{NEXT}/", "")
        old = pa.table([names, old["row"], old["chunk"]], schema=SUPERSEDED_SCHEMA)
        if is_added and (name := superseded_name(known)):
            rows_before = read_arrow(home, name, SUPERSEDED_SCHEMA)[0]
            old = pa.concat_tables([rows_before, old]).group_by(["part", "row", "chunk"]).aggregate([])
        old = old.sort_by([("part", "ascending"), ("row", "ascending")])
        name = f"{SUPERSEDED}/{max([run.plan.generation, *others]):03d}.arrow"
        write = partial(write_arrow, home.below(NEXT) if is_added else home, name, old)
        num_rows = pc.sum(pc.equal(old["chunk"], 0)).as_py() or 0  # of the input
        return {"n_duplicate_ids": 0, "n_superseded": num_rows}, {name: write()} if len(old) else {}
    duplicates, repeated = ids.count_duplicates(of_parts, rows, run_tasks)
    if duplicates and on_duplicate_id == "fail":
        raise RunFailedError(
            f"`id_column` {settings.id_column!r}: {duplicates:,} rows repeat an id, for example {repeated!r}; "
            "correct the input, or resume with `on_duplicate_id` keep"
        )
    return {"n_duplicate_ids": duplicates + (known.get("n_duplicate_ids", 0) if is_added else 0)}, {}


def _digests(parts: pa.Table) -> dict[str, str]:
    return dict(zip(parts["name"].to_pylist(), parts["sha256"].to_pylist(), strict=True))


def _generations(known: Mapping[str, Any], own: dict[int, Any], superseded: dict[str, str]) -> list[dict[str, Any]]:
    """Return the generations of a manifest, of which the last one has the file of superseded rows."""
    if known:
        before = dict(zip(generations_of(known), known["generations"], strict=True))
        digest = known["fingerprints"]["inputs"]
        own = {number: {"inputs": digest} | generation for number, generation in before.items()} | own
    ordered = [own[number] for number in sorted(own)]
    for generation in ordered:
        files = {name: digest for name, digest in generation["files"].items() if not name.startswith(SUPERSEDED)}
        generation["files"] = files | (superseded if generation is ordered[-1] else {})
    return ordered


def _check_parts(store: Store, plan: Plan, reports: Reports) -> None:
    """Raise ValueError if a part was removed or replaced after its report was written."""
    table, listed = reports.table(), listing(store.stamps(plan.folder))
    rejected = {f"{REJECTED}/{name}" for name in store.names(f"{REJECTED}/")}
    stamps = listed["stamp"].take(pc.index_in(table["name"], value_set=listed["name"]))
    is_same = pc.equal(stamps, table["stamp"])  # null without a file
    is_unclear = pc.invert(pc.fill_null(pc.and_(is_same, pc.equal(table["n_rejected"], 0)), False))

    def is_wrong(report: PartReport, is_same: bool | None) -> bool:
        if is_same is None or (report.n_rejected and rejected_name(report.name) not in rejected):
            return True
        # On NFS, the time of a file that another machine wrote can be that of an earlier moment.
        return not is_same and store.sha256(report.name) != report.sha256

    unclear = zip(reports_of(table.filter(is_unclear)), is_same.filter(is_unclear).to_pylist(), strict=True)
    wrong = sorted(report.name for report, is_same in unclear if is_wrong(report, is_same))
    if wrong:
        raise ValueError(
            f"{wrong[0]} in {store} was removed or changed by another process ({len(wrong)} such parts); make sure "
            "that no other process writes there, and run the same command again to repair them"
        )
