"""Replace an embeddings folder atomically; the previous one stays readable until then."""

import ctypes
import os
import shutil
from contextlib import suppress
from pathlib import Path

from paraembed.embedding.manifest import PLAN, check_folder
from paraembed.io.atomic import replace_folder, sync_folder
from paraembed.io.store import Folder

_AT_FDCWD, _EXCHANGE = -100, 2  # renameat2(2), Linux


def staging_folder(out: Path) -> Path:
    """Return the folder in which ``overwrite`` builds the new output: next to ``out``, or next to the target of a
    link.
    """
    out = out.resolve()
    return out.with_name(f".{out.name}.new")


def previous_folder(out: Path) -> Path:
    """Return the folder that holds the previous output until it is removed."""
    out = out.resolve()
    return out.with_name(f".{out.name}.old")


def discard(folder: Path) -> None:
    """Remove a folder of this job; raise ValueError if it contains other files.

    The plan is removed last, so that the next run recognizes the folder if this one is killed.
    """
    check_folder(Folder(folder))
    if not folder.exists():
        return
    plan, plans = folder / PLAN, folder / "_plan"
    for entry in folder.iterdir():
        if entry.is_dir() and entry != plans:
            shutil.rmtree(entry)
        elif entry.is_file() and entry != plan:
            entry.unlink()
    plan.unlink(missing_ok=True)
    shutil.rmtree(plans, ignore_errors=True)
    folder.rmdir()


def remove_previous(out: Path) -> None:
    """Remove the previous output that a killed run left behind."""
    with suppress(ValueError, NotADirectoryError):  # not a folder of this job
        discard(previous_folder(out))


def replace_output(folder: Path, out: Path) -> None:
    """Replace ``out`` by a finished folder, then remove the previous output.

    The replacement is atomic on Linux. If the file system cannot exchange names, ``out`` is missing for a moment
    between two renames. A link at ``out`` is kept, and its target is replaced.
    """
    check_folder(Folder(out))
    out, old = out.resolve(), previous_folder(out)
    discard(old)  # from a run that was killed here
    if not out.exists():
        folder.rename(out)
    elif _exchange(folder, out):
        folder.rename(old)  # the name that ``remove_previous`` looks for
        discard(old)
    else:
        replace_folder(folder, out, old, lambda path: check_folder(Folder(path)))
    sync_folder(out.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders; return False if the system does not support it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0)
