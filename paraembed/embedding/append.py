"""Add generations to a finished output: new files are embedded in its folder ``_next``, as a run of their own, and
moved into the output at the commit. Parts of earlier generations are not touched.

The commit writes ``_manifest.next.json``, moves the files of the new generation, and replaces ``_manifest.json`` and
``_SUCCESS``. After a kill at any moment, the next command finishes it. Readers of the folder see, until then, more
parts than the manifest lists, but never fewer and never half of one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from paraembed.embedding import manifest
from paraembed.embedding.identity import is_same_file
from paraembed.embedding.inputs import InputFile, readable
from paraembed.embedding.manifest import MANIFEST, NEXT, NEXT_LOCK, NEXT_MANIFEST, SUPERSEDED, planned
from paraembed.embedding.part import REJECTED, REPORTS
from paraembed.embedding.plan import DATA, IDS, Plan
from paraembed.embedding.records import DONE, Reports, reports_of
from paraembed.embedding.settings import Settings
from paraembed.io.fingerprint import json_bytes
from paraembed.io.store import Store, commit_manifest, is_committed, is_there, read_bytes, read_json

_NUMBER = re.compile(r"\d{3,}")  # of the generation, in the name of a file
_MOVED = DATA, IDS, REJECTED, REPORTS, SUPERSEDED, "_manifest", "_plan"  # the plan last: by it, the reports are read


class Step(NamedTuple):
    """Files of a generation, which is in the output or, until it is complete, in ``_next``."""

    files: tuple[InputFile, ...]
    generation: int = 0
    is_next: bool = False


def steps(home: Store, files: Sequence[InputFile], settings: Settings, *, append: bool) -> list[Step]:
    """Return the generations of these files that may have something to do: those of the output, or with ``append`` only
    an unfinished one and a new one.

    Raise ValueError if a file of a finished generation has changed, files of an unfinished output are missing, there
    are new files without ``append``, or row numbers are the ids.
    """
    if append and settings.id_field == "row":
        raise ValueError(
            "`append` needs ids that do not change if files are added, but these are row numbers over all inputs; give "
            "`id_kind` file-row, or an `id_column`"
        )
    numbers = planned(home)
    if numbers == [] or (numbers == [0] and not append):
        return [Step(tuple(files))]
    runs = manifest.read_runs(home, numbers)
    plans = {number: run.plan for number, run in runs.items()}
    by_generation, new = _matched({number: plan.inputs for number, plan in plans.items()}, files)
    _check_new(home, plans, new, append=append)
    if append and settings.stamp_column is None:
        _check_tables(home, plans, by_generation, files)
    is_complete, result = is_committed(home, MANIFEST), list[Step]()
    for number, plan in plans.items():
        given = by_generation[number]
        if runs[number].is_compacted or (append and is_complete) or not (given or append):
            continue
        if missing := _missing(plan.inputs, given):
            raise ValueError(f"{home} needs {missing.shown}, too, which was embedded together with the others; give it")
        result.append(Step(_in_order(plan.inputs, given), number))
    number = max(numbers) + 1
    begun = _begun(home.below(NEXT), number, new) if append and is_complete else ()
    places = {file.shown for file in begun}
    left = [file for file in new if file.shown not in places]
    for files_of in (begun, left):
        if readable(files_of):
            result.append(Step(tuple(files_of), number, is_next=True))
            number += 1
    return result


def _begun(store: Store, number: int, new: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return the files of an unfinished generation; none if some are missing or have changed."""
    if planned(store) != [number]:
        return ()
    try:
        inputs = manifest.read_run(store, number, with_parts=False).plan.inputs
        given = _matched({number: inputs}, new)[0][number]
    except ValueError:
        return ()
    return () if _missing(inputs, given) else _in_order(inputs, given)


def _missing(inputs: Sequence[InputFile], given: Mapping[int, InputFile]) -> InputFile | None:
    """Return the first input of a plan that is not given, but for those that could not be read."""
    return next((file for index, file in enumerate(inputs) if index not in given and not file.fault), None)


def _in_order(inputs: Sequence[InputFile], given: Mapping[int, InputFile]) -> tuple[InputFile, ...]:
    """Return the inputs of a plan as they are given now; tables are compared by their files, not by version."""
    return tuple(replace(given.get(index, file), snapshot=file.snapshot) for index, file in enumerate(inputs))


def _check_tables(
    home: Store, plans: Mapping[int, Plan], given: Mapping[int, Mapping[int, InputFile]], files: Sequence[InputFile]
) -> None:
    """Raise ValueError if a file of an output is in no current version of its Delta or Iceberg table any more."""
    current = {file.shown.removesuffix(file.name): file.snapshot for file in files if file.snapshot}
    for number, plan in plans.items():
        for index, file in enumerate(plan.inputs):
            now = current.get(file.shown.removesuffix(file.name))
            if now and file.snapshot and index not in given[number]:
                raise ValueError(
                    f"rows of {file.shown}, which {home} has from {file.snapshot}, are deleted or rewritten in {now}; "
                    "start over, or give `stamp_column` for rows that supersede others"
                )


def _check_new(home: Store, plans: Mapping[int, Plan], new: Sequence[InputFile], *, append: bool) -> None:
    """Raise ValueError if files cannot be added to an output."""
    first = next(iter(plans.values()))
    if append and first.format == 2:
        raise ValueError(f"{home} was written by an earlier version, to which nothing can be added; start over")
    if new and not append:
        raise ValueError(f"{new[0].shown} is not an input of {home}; give `append` to add it")
    known = {file.name: file.shown for plan in plans.values() for file in plan.inputs if not file.fault}
    same = next((file for file in new if file.name in known), None)
    if same and first.settings.id_kind == "file-row":
        raise ValueError(
            f"{same.shown} has the name of {known[same.name]}, which is in {home}, so their file:row ids would be "
            "equal; rename it"
        )


def _matched(
    planned_inputs: Mapping[int, Sequence[InputFile]], files: Sequence[InputFile]
) -> tuple[dict[int, dict[int, InputFile]], list[InputFile]]:
    """Return the files by generation and index in it, and the new ones. Raise ValueError if a file has changed."""
    places = [(file, number, index) for number, inputs in planned_inputs.items() for index, file in enumerate(inputs)]
    by_path = {file.shown: (file, number, index) for file, number, index in places if file.fault}
    by_path |= {file.shown: (file, number, index) for file, number, index in places if not file.fault}
    given = {file.shown for file in files}
    elsewhere: dict[tuple[str, int], list[tuple[InputFile, int, int]]] = {}
    for place in places:
        if place[0].shown not in given:  # else a copy is a new file
            elsewhere.setdefault((place[0].name, place[0].size), []).append(place)
    by_generation: dict[int, dict[int, InputFile]] = {number: {} for number in planned_inputs}
    new = list[InputFile]()
    for file in files:
        known = by_path.get(file.shown)
        if known and known[0].fault and (not file.fault or not is_same_file(known[0], file)):
            known = None  # it could not be read then
        elif known and not is_same_file(known[0], file):
            raise ValueError(
                f"{file.shown} has changed since it was embedded; give changed rows in a file of their own, with "
                "`id_column` and `stamp_column`, or start over"
            )
        elif not known:
            moved = elsewhere.get((file.name, file.size), [])
            known = next((place for place in moved if is_same_file(place[0], file)), None)
            if known:
                moved.remove(known)
        if known:
            by_generation[known[1]][known[2]] = file
        else:
            new.append(file)
    return by_generation, new


def finish_append(home: Store) -> None:
    """Complete the commit of a generation, if one was begun; or remove the parts of a compaction that was killed
    before. Every call writes the same bytes.
    """
    if not manifest.is_append_begun(home):
        return
    if not is_there(home, NEXT_MANIFEST):
        home.delete_folder(NEXT)
        return
    written: dict[str, Any] = read_json(home, NEXT_MANIFEST, dict[str, Any], manifest.MOST_JSON_BYTES)
    content, next_store = json_bytes(written), home.below(NEXT)
    most = manifest.MOST_JSON_BYTES
    if not (is_committed(home, MANIFEST) and read_bytes(home, MANIFEST, most) == content):
        number = max(manifest.generations_of(written))
        if is_there(next_store, manifest.MEMO):
            home.delete(manifest.RECORDED)  # that of the generation before
        for folder in _MOVED:
            home.make_folder(folder)
            for name in next_store.names(f"{folder}/"):
                home.move(f"{NEXT}/{folder}/{name}", f"{folder}/{name}")
        _write_done(home, number)
        commit_manifest(home, MANIFEST, written)
    _remove_compacted(home, {*manifest.generations_of(written)})
    manifest.sweep(home)
    home.delete_folder(NEXT)
    home.delete(NEXT_LOCK)  # of a process that was killed
    home.delete(NEXT_MANIFEST)


def _remove_compacted(home: Store, numbers: set[int]) -> None:
    """Remove the files of generations that a compacted one replaces, but not the lists of rejected rows."""
    for folder in (DATA, DONE, IDS, SUPERSEDED, "_manifest", "_plan"):
        for name in home.names(f"{folder}/"):
            number = _NUMBER.search(name)
            if number and int(number[0]) not in numbers:
                home.delete(f"{folder}/{name}")


def _write_done(home: Store, number: int) -> None:
    """Write the reports of a generation's parts again, with the stamps of the moved files."""
    run = manifest.check_same(home, manifest.read_run(home, number))
    stamps = dict(home.stamps(f"{DATA}/"))
    reports = Reports(home.below(NEXT), run, number).read()
    for name in home.names(f"{DONE}/"):
        if name.startswith(f"{number:03d}-"):  # of a call that was killed
            home.delete(f"{DONE}/{name}")
    done = Reports(home, run, number)
    for report in reports_of(reports):
        done.add(replace(report, stamp=stamps[report.name]))
    done.write()
