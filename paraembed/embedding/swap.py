"""Put a finished embeddings folder in the place of another, which stays readable until then."""

import ctypes
import os
import shutil
from contextlib import suppress
from pathlib import Path

from paraembed.embedding.manifest import PLAN, check_folder
from paraembed.embedding.store import Folder
from paraembed.io.atomic import replace_folder, sync_folder

_AT_FDCWD, _EXCHANGE = -100, 2  # renameat2(2), Linux


def fresh_folder(out: Path) -> Path:
    """Where ``overwrite`` builds, so that what stands at ``out`` stays readable: beside what a link leads to."""
    out = out.resolve()
    return out.with_name(f".{out.name}.new")


def old_folder(out: Path) -> Path:
    """Where what stood at ``out`` waits for its removal."""
    out = out.resolve()
    return out.with_name(f".{out.name}.old")


def discard(folder: Path) -> None:
    """Remove a folder of this job; ValueError if it holds anything else.

    The plan goes last: by it the next run knows the folder, should this one be killed here.
    """
    begun = check_folder(Folder(folder))
    if not folder.exists():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != PLAN:
            entry.unlink()
    if begun:
        (folder / PLAN).unlink()
    folder.rmdir()


def sweep(out: Path) -> None:
    """Remove what stood at ``out`` before a run that was killed while it removed that."""
    with suppress(ValueError, NotADirectoryError):  # something else of that name
        discard(old_folder(out))


def swap(folder: Path, out: Path) -> None:
    """Put a finished folder in the place of ``out``, then remove what stood there.

    In one step on Linux; where the file system cannot do that, ``out`` is missing for a moment between two renames.
    A link at ``out`` stays, what it leads to is replaced.
    """
    check_folder(Folder(out))
    out, old = out.resolve(), old_folder(out)
    discard(old)  # from a run that was killed here
    if not out.exists():
        folder.rename(out)
    elif _exchange(folder, out):
        folder.rename(old)  # under this name ``sweep`` knows it for what was replaced
        discard(old)
    else:
        replace_folder(folder, out, old)
    sync_folder(out.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders; False where that is not to be had."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0)
