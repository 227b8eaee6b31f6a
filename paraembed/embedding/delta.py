"""Files of the current version of a Delta table, from its log; its other files are deleted or replaced rows."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from paraembed.console import say
from paraembed.io.places import Place, without_credentials


def current_files(folder: str, files: Iterable[tuple[Place, str]]) -> list[tuple[Place, str]]:
    """Return those of the files in a table's folder, each with its name there, that the table now consists of.

    Raise ValueError if deltalake is not installed, cannot read the log, or the rows of a file are not those of the
    table: some are deleted by a deletion vector, or its columns have other names.
    """
    shown = without_credentials(folder)
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ValueError(
            f"{shown} is a Delta table, in which files can be out of date; run pip install deltalake to read its "
            "current version, or give its files one by one"
        ) from None
    try:
        table = DeltaTable(folder)
        has_deleted = any(batch.num_rows for batch in table.deletion_vectors())
        uris = table.file_uris()
    except (DeltaError, OSError) as error:
        raise ValueError(f"{shown}: the log of the Delta table cannot be read ({error})") from None
    if has_deleted or table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        what = "deletion vectors" if has_deleted else "renamed columns"
        raise ValueError(
            f"{shown} is a Delta table with {what}, which its files do not show; write its current rows to other files"
        )
    base = urlsplit(table.table_uri).path if "://" in folder else str(Path(folder).resolve())
    names = {uri[uri.index(base) + len(base) :].lstrip("/") for uri in uris}
    current = [(place, name) for place, name in files if name in names]
    if len(current) < len(names):
        absent = min(names - {name for _, name in current})
        raise FileNotFoundError(f"{shown}/{absent} is a file of the Delta table, but it does not exist")
    say(f"{shown} is a Delta table; its version {table.version()} has {len(current)} files")
    return current
