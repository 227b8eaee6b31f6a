"""Load a finished output of ``jobs/embed.py`` into a table of LanceDB, DuckDB, Delta Lake or PostgreSQL with pgvector.

All rows and the mark of the output, which has the SHA-256 of its manifest, are one commit of the store. The mark is the
comment of a table (DuckDB, PostgreSQL), its description (Delta Lake) or metadata of its schema (LanceDB), so it is
dropped together with the table. After a killed load of LanceDB or Delta Lake, the folder has files that no table reads.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from paraembed.console import doing
from paraembed.embedding.output import Embeddings
from paraembed.io.places import without_credentials

_MARK = "paraembed output "
_METADATA = b"paraembed"  # key of the mark in a schema
_DELTA_FILES = re.compile(r"part-.*\.parquet(#\d+)?|_delta_log")  # of a load that was killed
# Errors of PostgreSQL's client quote parts of a URI with an invalid escape or more than one @, which can be a password.
_ESCAPED = r"%(?!00)[0-9A-Fa-f]{2}"
_POSTGRES = re.compile(rf"postgres(ql)?://(([^%@/?\s]|{_ESCAPED})*@)?([^%@\s]|{_ESCAPED})*")
# Of Arrow's types; the first that matches.
_POSTGRES_TYPES = {
    "uint64|decimal.*": "numeric",
    "u?int.*": "int8",
    "halffloat|float": "float4",
    "double": "float8",
    "bool": "bool",
    "(large_)?string": "text",
    "(large_)?binary": "bytea",
    r"date32\[day\]": "date",
    r"timestamp\[.*tz=.*\]": "timestamptz",
    "timestamp.*": "timestamp",
}


@dataclass(frozen=True)
class Target:
    """Table of a store; ``str`` is for messages, without credentials.

    Attributes:
        kind: lance, duckdb, delta or pgvector.
        place: path of the folder or file, or URI of the database.
        table: name of the table; not used for delta.
    """

    kind: str
    place: str
    table: str

    def __str__(self) -> str:
        return without_credentials(f"{self.kind}:{self.place}" + ("" if self.kind == "delta" else f" {self.table}"))


def load(embeddings: Embeddings, target: Target) -> bool:
    """Load all rows in one commit. Return False, without a change, if the table is already loaded from this output.

    The columns are those of the output, dictionaries as their values, with ``embedding`` in float32 [d]. An output in
    int8 has its vectors multiplied by ``scale``, which is left out.

    Raise FileExistsError if there is another table of this name, ValueError if a package is missing, a URI or a type
    of a column is not supported, or the output is damaged, OSError for an error of the store.
    """
    schema = _schema_of(embeddings).with_metadata({_METADATA: f"{_MARK}{embeddings.digest}"})
    failed = list[BaseException]()

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            for batch in embeddings.batches():
                yield _converted(batch, schema)
                rows += batch.num_rows
                doing(f"loaded {rows:,} of {embeddings.rows:,} rows")
        except (KeyboardInterrupt, Exception) as error:
            failed.append(error)  # the libraries turn it into an error of their own
            raise

    write, packages = _STORES[target.kind]
    try:
        return write(target, pa.RecordBatchReader.from_batches(schema, batches()))
    except ImportError:
        raise ValueError(f"a load into {target.kind} needs other packages; run pip install {packages}") from None
    except (KeyboardInterrupt, Exception) as error:
        if failed:
            raise failed[0] from None
        if isinstance(error, KeyboardInterrupt | OSError | ValueError):
            raise
        reason, *_ = str(error).splitlines() or [type(error).__name__]
        raise OSError(f"{target}: {reason}; correct this and run the same command again") from error


def example(target: Target) -> str:
    """Return a command, for pgvector a query, that shows rows of a loaded table."""
    place, table = json.dumps(target.place), json.dumps(target.table)
    if target.kind == "pgvector":
        return f"SELECT * FROM {table} ORDER BY embedding <=> (SELECT embedding FROM {table} LIMIT 1) LIMIT 3"  # noqa: S608 - a checked name
    code = {
        "lance": f"import lancedb; print(lancedb.connect({place}).open_table({table}).head(3))",
        "duckdb": f"import duckdb; print(duckdb.connect({place}).table({table}).limit(3))",
        "delta": f"import deltalake; print(deltalake.DeltaTable({place}).to_pyarrow_dataset().head(3))",
    }
    return f"python -c {shlex.quote(code[target.kind])}"


def _schema_of(embeddings: Embeddings) -> pa.Schema:
    """Return the schema of the table: float32 vectors, no ``scale`` of int8, values in the place of dictionaries."""
    schema = embeddings.schema.remove_metadata()
    vectors = schema.field("embedding")
    if vectors.type.value_type == pa.int8():
        schema = schema.remove(schema.get_field_index("scale"))
    numbers = pa.list_(vectors.type.value_field.with_type(pa.float32()), embeddings.width)
    for index, field in enumerate(schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        schema = schema.set(index, field.with_type(numbers if field.name == "embedding" else kind))
    return schema


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of an output with the schema of ``_schema_of``."""
    vectors, kind = batch["embedding"], schema.field("embedding").type
    numbers = vectors.flatten().to_numpy().astype(np.float32, copy=False)
    if vectors.type.value_type == pa.int8():
        numbers *= np.repeat(batch["scale"].to_numpy(), kind.list_size)
    columns = {"embedding": pa.FixedSizeListArray.from_arrays(pa.array(numbers), type=kind)}
    arrays = [columns.get(field.name, batch[field.name]).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_loaded(target: Target, mark: str | None, rows: pa.RecordBatchReader) -> bool:
    """Return True if an existing table has the mark of these rows; raise FileExistsError if it has another or none."""
    if mark == _mark_of(rows.schema):
        return True
    what = "has another output" if (mark or "").startswith(_MARK) else "was not written by jobs/load.py"
    raise FileExistsError(f"{target} exists and {what}; drop it, or choose another `to` or `table`")


def _mark_of(schema: pa.Schema) -> str:
    return str((schema.metadata or {}).get(_METADATA, b""), "utf-8")


def _to_lance(target: Target, rows: pa.RecordBatchReader) -> bool:
    import lancedb  # noqa: PLC0415 - an extra

    database = lancedb.connect(target.place)
    try:
        table = database.open_table(target.table)
    except ValueError:  # not found
        database.create_table(target.table, rows)
        return True
    return not _is_loaded(target, _mark_of(table.schema), rows)


def _to_duckdb(target: Target, rows: pa.RecordBatchReader) -> bool:
    import duckdb  # noqa: PLC0415 - an extra

    with duckdb.connect(target.place) as database:
        tables = "FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = current_schema()"
        existing = database.execute(f"SELECT comment {tables} AND table_name = ?", [target.table]).fetchone()
        if existing is not None:
            return not _is_loaded(target, existing[0], rows)
        database.register("paraembed_rows", rows)
        database.begin()
        database.execute(f'CREATE TABLE "{target.table}" AS SELECT * FROM paraembed_rows')  # noqa: S608 - a checked name
        database.execute(f"COMMENT ON TABLE \"{target.table}\" IS '{_mark_of(rows.schema)}'")
        database.commit()
    return True


def _to_delta(target: Target, rows: pa.RecordBatchReader) -> bool:
    from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415 - an extra

    if DeltaTable.is_deltatable(target.place):
        return not _is_loaded(target, DeltaTable(target.place).metadata().description, rows)
    folder = Path(target.place)
    if folder.exists() and not all(_DELTA_FILES.fullmatch(file.name) for file in folder.iterdir()):
        raise FileExistsError(f"{folder} is no Delta table and has other files; choose another `to`")
    write_deltalake(target.place, rows, description=_mark_of(rows.schema))
    return True


def _to_pgvector(target: Target, rows: pa.RecordBatchReader) -> bool:
    import psycopg  # noqa: PLC0415 - an extra
    from pgvector.psycopg import register_vector  # noqa: PLC0415
    from psycopg import sql  # noqa: PLC0415

    if not _POSTGRES.fullmatch(target.place):
        raise ValueError("the URI of pgvector is invalid; write special characters of a password as %40 for @")
    table, types = sql.Identifier(target.table), [_postgres_type(field) for field in rows.schema]
    with psycopg.connect(target.place) as connection:
        existing = connection.execute(
            "SELECT obj_description(oid, 'pg_class') FROM pg_class WHERE oid = to_regclass(%s)",
            [table.as_string(connection)],
        ).fetchone()
        if existing is not None:
            return not _is_loaded(target, existing[0], rows)
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        vector = sql.SQL(f"vector({rows.schema.field('embedding').type.list_size})")
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), vector if kind == "vector" else sql.Identifier(kind))
            for name, kind in zip(rows.schema.names, types, strict=True)
        ]
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(columns)))
        with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(table)) as copy:
            copy.set_types(types)
            for batch in rows:
                vectors = batch["embedding"].flatten().to_numpy().reshape(batch.num_rows, -1)
                values = [vectors if name == "embedding" else batch[name].to_pylist() for name in rows.schema.names]
                for row in zip(*values, strict=True):
                    copy.write_row(row)
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, _mark_of(rows.schema)))
    return True


def _postgres_type(field: pa.Field) -> str:
    kinds = (kind for pattern, kind in _POSTGRES_TYPES.items() if re.fullmatch(pattern, str(field.type)))
    kind = "vector" if field.name == "embedding" else next(kinds, None)
    if kind is None:
        raise ValueError(f"column {field.name!r} is {field.type}, which pgvector does not take; load into duckdb")
    return kind


_STORES: dict[str, tuple[Callable[[Target, pa.RecordBatchReader], bool], str]] = {
    "lance": (_to_lance, "lancedb"),
    "duckdb": (_to_duckdb, "duckdb"),
    "delta": (_to_delta, "deltalake"),
    "pgvector": (_to_pgvector, '"psycopg[binary]" pgvector'),
}
"""Function that writes a table, and the arguments of pip that install its library."""
