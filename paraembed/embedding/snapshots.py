"""Files of the current version of a Delta or Iceberg table; its other files are deleted or replaced rows."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paraembed.console import say
from paraembed.io.places import Place, without_credentials

Files = tuple[list[tuple[Place, str]], str]
"""Files, each with its name in the folder of the table, and what identifies the version of the table."""
_METADATA = re.compile(r"metadata/(?:v|0*)(\d+)[^/]*\.metadata\.json")


@contextmanager
def _packages(shown: str, table: str, package: str) -> Iterator[None]:
    """Raise ValueError if the package that reads a table is not installed, or cannot read it."""
    try:
        yield
    except ModuleNotFoundError:
        raise ValueError(
            f"{shown} is {table} table, in which files can be out of date; run pip install {package} to read its "
            "current version, or give its files one by one"
        ) from None


def delta_files(folder: str, files: Iterable[tuple[Place, str]]) -> Files:
    """Return those of the files in a Delta table's folder that the table now consists of.

    Raise ValueError if deltalake is not installed, cannot read the log, or the rows of a file are not those of the
    table: some are deleted by a deletion vector, or its columns have other names.
    """
    shown = without_credentials(folder)
    with _packages(shown, "a Delta", "deltalake"):
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    try:
        table = DeltaTable(folder)
        has_deleted = any(batch.num_rows for batch in table.deletion_vectors())
        uris = table.file_uris()
    except (DeltaError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{shown}: the log of the Delta table cannot be read ({reason})") from None
    is_renamed = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    _check_rows(shown, "a Delta", "deletion vectors" if has_deleted else "renamed columns" if is_renamed else "")
    base = urlsplit(table.table_uri).path if "://" in folder else str(Path(folder).resolve())
    names = {uri[uri.index(base) + len(base) :].lstrip("/") for uri in uris}
    return _current(shown, "a Delta table", f"version {table.version()}", files, names)


def iceberg_files(folder: str, files: Iterable[tuple[Place, str]]) -> Files:
    """Return those of the files in an Iceberg table's folder that belong to the current snapshot of the newest metadata
    file. A catalog may know of another one, which is not asked.

    Raise ValueError if pyiceberg is not installed, cannot read the metadata, or the rows of a file are not those of
    the table: some are deleted by a delete file, or a column was renamed or dropped.
    """
    shown = without_credentials(folder)
    with _packages(shown, "an Iceberg", "'pyiceberg[pyarrow]'"):
        from pyiceberg.exceptions import ValidationError  # noqa: PLC0415 - an extra
        from pyiceberg.table import StaticTable  # noqa: PLC0415
    files = list(files)
    versions = [(int(match[1]), str(place)) for place, name in files if (match := _METADATA.fullmatch(name))]
    try:
        if not versions:
            raise ValueError("no file in metadata/ has a version in its name")
        table = StaticTable.from_metadata(max(versions)[1])
        tasks = list(table.scan().plan_files())
    except (ValidationError, OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{shown}: the metadata of the Iceberg table cannot be read ({reason})") from None
    current, *others = (_columns(schema) for schema in (table.schema(), *table.schemas().values()))
    has_deleted = any(task.delete_files for task in tasks)
    is_changed = any(columns - current for columns in others)
    _check_rows(
        shown, "an Iceberg", "delete files" if has_deleted else "renamed or dropped columns" if is_changed else ""
    )
    names = {task.file.file_path.removeprefix(table.location()).lstrip("/") for task in tasks}
    snapshot = table.current_snapshot()
    return _current(shown, "an Iceberg table", f"snapshot {snapshot.snapshot_id if snapshot else 'none'}", files, names)


def _columns(schema: Any) -> set[tuple[int, str]]:
    """Return number and path of every field of an Iceberg schema."""
    return {(number, schema.find_column_name(number)) for number in schema.field_ids}


def _check_rows(shown: str, table: str, what: str) -> None:
    """Raise ValueError if there is something that the files of a table do not show."""
    if what:
        raise ValueError(
            f"{shown} is {table} table with {what}, which its files do not show; write its current rows to other files"
        )


def _current(shown: str, table: str, version: str, files: Iterable[tuple[Place, str]], names: set[str]) -> Files:
    """Return the files with these names, and the version; raise FileNotFoundError if one does not exist."""
    current = [(place, name) for place, name in files if name in names]
    if len(current) < len(names):
        absent = min(names - {name for _, name in current})
        raise FileNotFoundError(f"{shown}/{absent} is a file of the table, but it does not exist")
    say(f"{shown} is {table}; its {version} has {len(current)} file{'s'[: len(current) != 1]}")
    return current, f"{version} of {table}"
