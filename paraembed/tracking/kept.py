"""Copies of the files that unsent records name, in ``<out>.mlflow.files``, next to the spool.

A job with its output on an object store removes its temporary files, which the records name, when it ends. A copied
model takes its space a second time until MLflow has it.
"""

import hashlib
import logging
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from paraembed.tracking.spool import Spool, SpoolRecord, is_record

_KINDS = {"artifacts", "model"}  # their values begin with a path

log = logging.getLogger(__name__)


def keep_files(spool: Spool, start: int) -> None:
    """Copy the files of the records from byte ``start`` on, except those in the output of the job or next to it."""
    out = spool.home.absolute().with_name(spool.home.name.removesuffix(".mlflow.jsonl"))
    for path in _paths(spool.read(start)):
        source, copy = Path(path).absolute(), _copy_of(path, spool)
        is_next_to_it = source.parent == out.parent and source.name.startswith(f"{out.name}.")
        if source.is_relative_to(out) or is_next_to_it or not source.exists():
            continue
        try:
            _folder(spool).mkdir(mode=0o700, exist_ok=True)  # the files may hold texts
            copy.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, dirs_exist_ok=True)
            else:
                shutil.copy2(source, copy)  # with its time, which the stamp of the record contains
        except OSError as error:
            shutil.rmtree(copy.parent, ignore_errors=True)
            log.warning("%s cannot be copied to %s (%s), so MLflow will not get it", source.name, copy.parent, error)


def with_copy(spool: Spool, kind: str, value: Any) -> Any:
    """Return the value of a record, with the path of the copy if its file no longer exists."""
    if kind not in _KINDS or Path(value[0]).exists():
        return value
    copy = _copy_of(value[0], spool)
    return [str(copy), *value[1:]] if copy.exists() else value


def remove_copies(spool: Spool) -> None:
    """Remove the copies of the files of a spool's records."""
    folder = _folder(spool)
    if not folder.exists():
        return
    for path in _paths(spool.read()):
        shutil.rmtree(_copy_of(path, spool).parent, ignore_errors=True)
    with suppress(OSError):  # another spool of this output has copies, too
        folder.rmdir()


def _paths(records: Iterable[SpoolRecord]) -> set[str]:
    """Return the paths of the files and folders that records name."""
    values = (record.value[1:] if record.kind == "again" else (record.kind, record.value) for record in records)
    paths = {value[0] for kind, value in values if kind in _KINDS and is_record(kind, value)}
    return {path for path in paths if Path(path).name.strip(".")}  # in a damaged spool it may be `/` or `..`


def _folder(spool: Spool) -> Path:
    return spool.home.with_name(spool.home.name.removesuffix("jsonl") + "files")


def _copy_of(path: str, spool: Spool) -> Path:
    """Return the path of the copy, which the next job finds by the path in the record."""
    digest = hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()
    return _folder(spool) / digest[:16] / Path(path).name
