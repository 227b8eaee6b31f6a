"""Resumable work in a folder, identified by the fingerprint of its result: finished, resumed, rejected or restarted."""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paraembed.io.atomic import check_file, foreign_file, work_folder, write_json
from paraembed.io.fingerprint import differences, read_json
from paraembed.io.places import Place, open_regular, path_exists, resolve
from paraembed.options import MOST_BYTES
from paraembed.settings import is_peer, is_run

log = logging.getLogger(__name__)

MARK = "paraembed.json"  # in the folders of jobs/export.py, whose other files are those of another library
_WITH_FORMAT = ("config.json", "manifest.json", MARK, "_plan.json", "_plan/inputs-000.arrow", "_manifest.json")
_FORMAT = re.compile(rb'"format": ?"paraembed-')
_SWEEP = {"space", "metric", "search", "searched"}  # keys of the sweep.json of jobs/tune.py, which has no format
_SCORES = {"encoders", "published"}  # keys of the scores.json of jobs/evaluate.py


@dataclass(frozen=True)
class Work:
    """Work on an output; a job with the same fingerprint resumes it."""

    out: Path
    folder: Path  # folder of the unfinished work, next to the output, or the output itself
    record: str  # name of the file in the folder that holds the fingerprint
    fingerprint: dict[str, Any]  # JSON object of everything that decides the result
    # Pattern of the paths that the job writes; a folder with another file is neither emptied nor removed.
    files: re.Pattern[str]
    job: str  # file name of the job, for messages
    # Replace an output with another fingerprint, and discard unfinished work with another fingerprint.
    overwrite: bool = False
    is_nested: bool = False  # name only the first differing field, since it often causes the later differences

    def is_finished(self, read: Callable[[Path], dict[str, Any]]) -> bool:
        """Return whether the output is complete; ``read`` returns the fingerprint of an output.

        Raise ValueError if the output has another fingerprint and ``overwrite`` is not set, or the job did not write
        it.
        """
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return False
        return self._is_same(self.out, read(self.out))

    def is_begun(self) -> bool:
        """Return True if the folder holds this work, which is then resumed; False if new work can start.

        Raise ValueError if it holds other work and ``overwrite`` is not set, or a file that the job did not write.
        """
        saved = self.folder / self.record
        files = self.files
        if saved.is_file():
            if self._is_same(self.folder, self.read()):
                return True
        elif self.folder == self.out:  # a folder of the user, without work of this job
            files = re.compile(rf"\.{re.escape(self.record)}\..*")
        check_own_files(self.folder, files, self.job, may_be_link=True)
        return False

    def clear(self) -> None:
        """Empty the folder, deleting the record first."""
        (self.folder / self.record).unlink(missing_ok=True)
        for entry in self.folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def begin(self) -> None:
        """Record the fingerprint; from now on the work can be resumed."""
        write_json(self.folder / self.record, self.fingerprint)

    def remove(self) -> None:
        """Remove the folder of finished work, unless it holds a file that the job did not write."""
        foreign = foreign_file(self.folder, self.files)
        if foreign is None:
            shutil.rmtree(self.folder)
        else:
            log.warning(
                "%s was not removed, because it contains %s, which is not a file of %s",
                self.folder,
                foreign.name,
                self.job,
            )

    def remove_leftover(self) -> None:
        """Remove the work folder of a job that was killed after its output was complete."""
        with contextlib.suppress(OSError, ValueError):
            if self.is_recorded():
                with work_folder(self.folder):  # otherwise the run that holds it removes it
                    self.remove()

    def is_recorded(self) -> bool:
        """Return whether the folder holds this work, finished or not."""
        try:
            return not differences(read_json(self.folder / self.record), self.fingerprint)
        except (OSError, ValueError):
            return False

    def read(self) -> dict[str, Any]:
        """Return the recorded fingerprint; if it is damaged, an empty one with ``overwrite``, else raise ValueError."""
        try:
            recorded: dict[str, Any] = read_json(self.folder / self.record, dict[str, Any])
        except ValueError as error:
            if self.overwrite:
                return {}
            raise ValueError(f"{error}; start over with `overwrite`") from None
        return recorded

    def _is_same(self, place: Path, before: dict[str, Any]) -> bool:
        now = self.fingerprint
        fields = [({name: before.get(name)}, {name: now[name]}) for name in now] if self.is_nested else [(before, now)]
        return all(is_same_work(place, *field, overwrite=self.overwrite) for field in fields)


def is_same_work(
    place: object, before: dict[str, Any], now: dict[str, Any], *, overwrite: bool, can_overwrite: bool = True
) -> bool:
    """Return whether a place with the fingerprint ``before`` holds the work with the fingerprint ``now``.

    Raise ValueError, naming the differing fields, if it does not, and ``overwrite`` is not set.
    """
    changed = differences(before, now)
    if changed and not overwrite:
        raise other_work(place, changed, can_overwrite=can_overwrite)
    return not changed


def other_work(place: object, changed: str, *, can_overwrite: bool = True) -> ValueError:
    """Return the error for a place where the job started with another fingerprint; ``changed`` names what differs."""
    remedy = "choose another `out`, or start over with `overwrite`" if can_overwrite else "or choose another `out`"
    return ValueError(f"{place} was started with another {changed}; use the earlier value, {remedy}")


def cannot_overwrite(place: object) -> ValueError:
    """Return the error for ``overwrite`` with an output on an object store."""
    return ValueError(
        f"`overwrite` needs a folder, but {place} is on an object store, which cannot replace an output atomically; "
        "give a new `out`, or remove the objects there"
    )


def foreign_work(place: object, name: object, job: str) -> ValueError:
    """Return the error for a place that holds a file the job did not write."""
    return ValueError(
        f"{place} contains a file that {job} did not write: {name}; choose another `out`, or move the file away"
    )


def check_own_files(folder: Path, files: re.Pattern[str], job: str, *, may_be_link: bool = False) -> None:
    """Raise ValueError if a folder to be emptied or replaced holds a file that ``job`` did not write.

    The folder may be missing; it may be a symbolic link to a folder only if ``may_be_link`` is set. ``files`` is the
    pattern of the paths that the job writes.
    """
    if os.path.lexists(folder) and (not folder.is_dir() or (folder.is_symlink() and not may_be_link)):
        raise foreign_work(folder.parent, folder.name, job)
    foreign = foreign_file(folder, files)
    if foreign is not None:
        raise foreign_work(folder, foreign.relative_to(folder), job)


def check_destination(out: Place, *inputs: Place | None, name: str = "out", is_file: bool = False) -> None:
    """Raise ValueError or OSError if a job must not write to a path, given as the parameter ``name``.

    A file must be new or a regular one. File or folder must not be, contain or be inside of an input, nor be inside of
    an output of a job, also through symbolic links. An object store is not checked. ``inputs`` are paths, globs, URIs
    and names of encoders; a string that is not an existing path is ignored. Leave out folders of which a job reads only
    some files, such as the one with the evaluation sets: they may contain the output.
    """
    if isinstance(out, str):
        if not out.startswith("file:"):
            return
        out = Path(resolve(out)[1])
    try:
        os.fspath(out).encode()
    except UnicodeEncodeError:
        raise ValueError(f"`{name}` {os.fsencode(out)!r} is not UTF-8; choose another name") from None
    if is_file:
        check_file(out)
    given = ((value, path) for value in inputs if value is not None for path in _paths_of(value))
    for place in (path for value, path in given if isinstance(value, Path) or path_exists(path)):
        if is_within(out, place) or is_within(place, out):
            raise ValueError(f"`{name}` {out} is, contains or is inside of the input {place}; choose another path")
    for folder in Path(os.path.realpath(out)).parents:
        if is_output(folder):
            raise ValueError(f"`{name}` {out} is inside of {folder}, which a job wrote; choose a path outside of it")


def is_output(folder: Path) -> bool:
    """Return whether a folder is the output of a job, finished or not."""
    if is_scores(folder) or described(folder / "sweep.json").keys() >= _SWEEP:
        return True
    return any(_has_format(folder / name) for name in _WITH_FORMAT)


def is_scores(folder: Path) -> bool:
    """Return whether a folder holds the scores of jobs/evaluate.py."""
    return described(folder / "scores.json").keys() >= _SCORES


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or inside of it, also through symbolic links."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def described(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if the file is missing or something else."""
    with contextlib.suppress(OSError, ValueError):
        if file.is_file():
            return dict(read_json(file, dict[str, Any]))
    return {}


def _has_format(file: Path) -> bool:
    """Return whether a file has a format of this package in its first 64 MiB."""
    with contextlib.suppress(OSError, ValueError), open_regular(file) as opened:
        return bool(_FORMAT.search(opened.read(MOST_BYTES)))
    return False


def _paths_of(value: Place) -> list[Path]:
    """Return the paths that a value may name: ``st:folder`` is that path, or ``folder``; an MLflow run is none."""
    if isinstance(value, Path):
        return [value]
    if value.startswith("file:"):
        return [Path(resolve(value)[1])]
    if "://" in value or is_run(value):
        return []
    return [Path(text) for text in (value, value.partition(":")[2] if is_peer(value) else "") if text]


def check_names(place: object, names: Iterable[str], files: re.Pattern[str], job: str) -> None:
    """Raise ValueError if one of the names in a place does not match ``files``, the names that ``job`` writes."""
    foreign = next((name for name in names if not files.fullmatch(name)), None)
    if foreign is not None:
        raise foreign_work(place, foreign, job)
