"""Command ``search``, from queries to the nearest rows of embeddings: see ``python jobs/search.py --help``."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing, existing_output, named_encoder, new_output
from paraembed.console import doing, print_table, say, show
from paraembed.io.escape import printable
from paraembed.settings import Engine, check_workers

if TYPE_CHECKING:
    import pyarrow as pa

ResultFormat = Literal["table", "jsonl", "parquet"]
_TASKS = 4  # a worker, of equal size
_CELL = 100  # characters of a cell of the table
_HIT_COLUMNS = ("query", "query_text", "rank", "cosine")  # before those of the row

GROUPS = {"encoder": "prompt trust_remote_code", "output": "format results", "resources": "workers engine"}


@dataclass(frozen=True)
class Search:
    """Find the rows of an embeddings folder that are nearest to queries, by cosine, exactly.

    Prints the cosine, the id and the columns that jobs/embed.py --keep copied. Rows with equal cosines are in the
    order of ids of the input; those with equal or generated ids are in input order.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Finished output of jobs/embed.py, a folder or URI."""
    query: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT")] = ()
    """Text to search for; repeat the flag for further texts."""
    queries: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text file with one query per line, also .gz, .zst or .bz2; its queries follow those of --query."""
    encoder: Annotated[str | None, tyro.conf.arg(metavar="FOLDER|small|st:MODEL|m2v:MODEL|onnx:FOLDER|RUN")] = None
    """Encoder of the rows, with a name as in jobs/embed.py; default: the one given there, if it is small or a folder of
    this project.
    """
    top: int = 10
    """Number of rows for each query."""
    format: ResultFormat | None = None
    """Output format: table, JSON lines or Parquet; default: a table on the terminal, or the format of the --results
    file name.
    """
    prompt: str | None = None
    """Text to put before each query, such as 'query: ', for st: and onnx: models; default: the prompt of the rows."""
    trust_remote_code: bool = False
    """Run Python code that an st: model contains; read that code first."""
    results: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File to write, .jsonl or .parquet; an existing file is replaced; default: print."""
    workers: int = 2
    """Number of worker processes, one CPU each."""
    engine: Engine = "auto"
    """Where to search: in the process of the job (local), in --workers processes of Ray (ray), or (auto) local if the
    estimated time is below 20 seconds and no cluster is used.
    """


def main(flags: Search) -> dict[str, Any]:
    """Search, and print or write the results."""
    place = existing_output(flags.folder, "FOLDER")
    suffix = "" if flags.results is None else flags.results.suffix
    form = flags.format or ("parquet" if suffix == ".parquet" else "table" if flags.results is None else "jsonl")
    if (form == "table") != (flags.results is None) and form != "jsonl":
        given = "--results writes JSON lines or Parquet" if flags.results else "Parquet needs --results FILE"
        raise ValueError(f"--format is {form}; {given}")
    if not flags.query and flags.queries is None:
        raise ValueError("no query was given; add --query TEXT or --queries FILE")
    check_workers(flags.workers)
    if flags.top < 1:
        raise ValueError(f"--top is {flags.top}; it must be at least 1")
    queries = existing(flags.queries, "--queries") if flags.queries else None
    name = named_encoder(flags.encoder, "--encoder") if flags.encoder else None
    inputs = flags.folder, flags.queries, flags.encoder
    results = new_output(flags.results, "--results", *inputs, is_file=True) if flags.results else None
    from paraembed.cluster.tasks import started_tasks
    from paraembed.embedding.output import Embeddings
    from paraembed.embedding.search import embed_queries, query_encoder, search, seconds_of, table_of
    from paraembed.io.lines import read_text
    from paraembed.tracking.fetch import fetch_encoder

    doing(f"reading {flags.folder}")
    embeddings = Embeddings(place)
    texts = [*flags.query, *(read_text(queries) if queries else [])]
    encoder = query_encoder(
        embeddings, name, prompt=flags.prompt, fetch=fetch_encoder, trust_remote_code=flags.trust_remote_code
    )
    embedded = embed_queries(encoder, texts, embeddings)
    for number in embedded.without_tokens:
        say(
            f"query {number + 1} {_cell(texts[number])!r} has no tokens, so its vector is zero and no row is similar "
            "to it"
        )
    for number in embedded.out_of_vocabulary:
        say(
            f"query {number + 1} {_cell(texts[number])!r} has only out-of-vocabulary tokens, which all have the same "
            "vector"
        )
    with started_tasks(flags.engine, flags.workers, seconds_of(embeddings, len(texts))) as tasks:
        num_tasks = 1 if tasks.is_local else _TASKS * flags.workers
        table = table_of(embeddings, embedded, search(embeddings, embedded.vectors, flags.top, tasks.run, num_tasks))
    if results is not None:
        _write(table, form, results)
        say(f"wrote {table.num_rows:,} rows for {len(texts):,} queries to {results}")
    elif form == "jsonl":
        show(*_json_lines(table))
    else:
        _show_table(table, texts)
    written = [] if results is None else [results]
    return {"written": written, "queries": len(texts), "rows": table.num_rows}


def _write(table: "pa.Table", form: ResultFormat, path: Path) -> None:
    """Write the results to a file."""
    import pyarrow.parquet as pq

    from paraembed.io.atomic import write_file

    if form == "parquet":
        write_file(path, lambda file: pq.write_table(table, file))
    else:
        write_file(path, lambda file: file.write("".join(f"{line}\n" for line in _json_lines(table)).encode()))


def _json_lines(table: "pa.Table") -> list[str]:
    """Return the rows as JSON; numbers that JSON cannot represent become null, values of other types become text."""
    rows = [{name: _json_value(value) for name, value in row.items()} for row in _rows(table)]
    return [json.dumps(row, ensure_ascii=False, default=str, allow_nan=False) for row in rows]


def _rows(table: "pa.Table") -> list[dict[str, Any]]:
    """Return the rows as Python values; what Python cannot represent, such as a date after the year 9999, is text."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_python_value(column, row) for row in range(len(column))] for column in table.columns]
        rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _python_value(column: "pa.ChunkedArray", row: int) -> Any:
    try:
        return column[row].as_py()
    except (OverflowError, ValueError):
        return " ".join(column.slice(row, 1).combine_chunks().to_string().split())


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    return value


def _show_table(table: "pa.Table", texts: list[str]) -> None:
    """Print a table for each query, under the query's text if there are several queries."""
    names = table.column_names[len(_HIT_COLUMNS) :]
    all_rows = _rows(table)
    for number, text in enumerate(texts):
        rows = [row for row in all_rows if row["query"] == number]
        if len(texts) > 1:
            show(f"query {number + 1}: {_cell(text)}")
        cells = [[f"{row['cosine']:.4f}", *(_cell(row[name]) for name in names)] for row in rows]
        widths = [max(map(len, column)) for column in zip(["cosine", *names], *cells, strict=True)]
        lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
        print_table(["cosine", *(name.ljust(width) for name, width in zip(names, widths[1:], strict=True))], lines)
        if not rows:
            show("no row is similar to this query")


def _cell(value: object) -> str:
    """Return a value on one line, truncated."""
    text = printable(str(value))
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Search, GROUPS)
