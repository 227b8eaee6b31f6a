"""Default MLflow store: an SQLite file in ``mlruns`` that is created and migrated atomically."""

import fcntl
import logging
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy
from alembic.util.exc import CommandError
from mlflow.exceptions import MlflowException
from mlflow.store.db import utils
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from paraembed.io.atomic import sync_folder

log = logging.getLogger(__name__)

schema: Any = utils  # MLflow's are without types
_Store: Any = SqlAlchemyStore

_CHECKED_BYTES = 64 << 20  # of a database that is read as a whole before it is used: 0.1 s
_WAIT_SECONDS = 20.0  # for another process that writes
# SQLite's own codes for what is not the file's fault: busy, locked, read-only, disk error, full, cannot open.
_PASSING = {5, 6, 8, 10, 13, 14}


def whole_database(folder: Path) -> Path:
    """Return the database in a folder, created or migrated to the installed version of MLflow if necessary.

    MLflow migrates in place, and a database whose migration was killed cannot be opened again. Therefore a copy is
    migrated and then renamed. A damaged database is renamed, kept, and replaced by a new one. A lock prevents two jobs
    from doing so at once. Raise an error of OSError, MLflow or SQLAlchemy if the database cannot be written or used.
    """
    if "?" in str(folder):
        raise OSError(
            f"{folder}: SQLite does not allow a '?' in a database path; use another folder, or set MLFLOW_TRACKING_URI"
        )
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "mlflow.db"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if database.exists():
            problem = _unreadable(database)
            if problem is None and not _is_current(database):
                problem = _upgrade(database)
            if problem is not None:
                kept = _set_aside(database, "broken")
                log.warning(
                    "%s is damaged (%s); it is kept as %s, and a new one is created", database, problem, kept.name
                )
        if not database.exists():
            new = _temporary(database)
            _migrate(new)
            _put(new, database)
    return database


def _unreadable(database: Path) -> str | None:
    """Return why SQLite cannot read a file; None if it can, or if the problem may be temporary."""
    try:
        with closing(sqlite3.connect(database, timeout=_WAIT_SECONDS)) as connection:
            if database.stat().st_size > _CHECKED_BYTES:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return None
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return None if result == "ok" else str(result)
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        return str(error)


def _engine(database: Path) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(f"sqlite:///{database}", poolclass=sqlalchemy.NullPool)


def _is_current(database: Path) -> bool:
    """Return whether MLflow would use a database without migrating it."""
    engine = _engine(database)
    if not schema._all_tables_exist(engine):
        return False
    return bool(schema._get_schema_version(engine) == schema._get_latest_schema_revision())


def _upgrade(database: Path) -> str | None:
    """Migrate a copy and replace the database by it, keeping the old one; return why it cannot be migrated, or None.

    The database is unchanged if a newer MLflow wrote it (MlflowException), or the disk is full or not writable.
    """
    before = schema._get_schema_version(_engine(database))
    copy = _temporary(database)
    with closing(sqlite3.connect(database, timeout=_WAIT_SECONDS)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    try:
        _migrate(copy)
    except CommandError as error:
        raise MlflowException(
            f"{database} belongs to another version of MLflow ({error}); install that version, or set "
            "MLFLOW_TRACKING_URI"
        ) from None
    except DBAPIError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PASSING:
            raise
        return str(error.orig)
    except SQLAlchemyError as error:
        return str(error).partition("\n")[0]
    if before is None:
        database.unlink()  # empty
    else:
        kept = _set_aside(database, f"before-{schema._get_latest_schema_revision()}")
        log.warning("%s was migrated to this version of MLflow; the earlier one is kept as %s", database, kept.name)
    _put(copy, database)
    return None


def _migrate(database: Path) -> None:
    """Migrate a database that no other process uses to the newest schema, and create the default experiment."""
    if not _is_current(database):
        schema._initialize_tables(_engine(database))
    store = _Store(f"sqlite:///{database}", str(database.parent))
    store.engine.dispose()


def _temporary(database: Path) -> Path:
    """Return a name for an unfinished database, after removing what a killed job left there."""
    path = database.with_name(f".{database.name}.new")
    for end in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    return path


def _put(new: Path, database: Path) -> None:
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(database)
    sync_folder(database.parent)


def _set_aside(database: Path, why: str) -> Path:
    """Rename a database together with SQLite's files next to it."""
    kept = database.with_name(f"{database.name}.{why}-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6:06}")
    for end in ("-journal", "-wal", "-shm", ""):
        part = database.with_name(database.name + end)
        if part.exists():
            part.replace(kept.with_name(kept.name + end))
    return kept
