"""Command ``load``, from an output of embed to a table of another store: see ``python jobs/load.py --help``."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing_output, new_output
from paraembed.console import doing, say

_STORES = ("lance", "duckdb", "delta", "pgvector")


@dataclass(frozen=True)
class Load:
    """Load a finished output of jobs/embed.py into a table of another store, each row exactly once.

    All rows are committed together with the SHA-256 of the output's manifest. A load that fails or is killed leaves no
    table, and a second run finds the loaded table and does nothing. A table of another origin is never changed.

    The columns are those of the output. Vectors are float32; those of int8 are multiplied by their scale.

    lance:DIR is the folder of a LanceDB database, duckdb:FILE a DuckDB file, delta:DIR a Delta table, and pgvector:URI
    a PostgreSQL database with the extension vector, postgresql://USER@HOST/DATABASE; PGPASSWORD or ~/.pgpass can have
    the password. Each needs its package: pip install lancedb, duckdb, deltalake, or "psycopg[binary]" pgvector.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Finished output of jobs/embed.py, a folder or URI."""
    to: Annotated[str, tyro.conf.arg(metavar="lance:DIR|duckdb:FILE|delta:DIR|pgvector:URI")]
    """Store and place of the table."""
    table: str | None = None
    """Name of the table, of letters, digits and underscores; default: embeddings. A Delta table has only its folder."""


def main(flags: Load) -> dict[str, Any]:
    """Load, and print how to read the table."""
    place = existing_output(flags.folder, "FOLDER")
    kind, _, address = flags.to.partition(":")
    if kind not in _STORES or not address:  # not shown, since it can be an address with a password
        raise ValueError("--to has no known store; give lance:DIR, duckdb:FILE, delta:DIR or pgvector:URI")
    if kind == "delta" and flags.table is not None:
        raise ValueError(f"--table is {flags.table!r}, but a Delta table has only its folder; leave --table out")
    table = "embeddings" if flags.table is None else flags.table
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", table):
        raise ValueError(f"--table is {table!r}; give up to 63 letters, digits and underscores, first no digit")
    if kind != "pgvector":
        address = str(new_output(Path(address), "--to", flags.folder, is_file=kind == "duckdb"))
    from paraembed.embedding.load import Target, example, load
    from paraembed.embedding.output import Embeddings

    doing(f"reading {flags.folder}")
    target, embeddings = Target(kind, address, table), Embeddings(place)
    rows = embeddings.rows - len(embeddings.superseded)
    if not load(embeddings, target):
        say(f"{target} is already loaded from this output, {rows:,} rows; nothing to do")
        return {"rows": rows}
    say(f"wrote {rows:,} rows to {target}; next: {example(target)}")
    return {"written": [str(target)], "rows": rows}


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Load)
