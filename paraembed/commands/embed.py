"""Embed text or tables: one vector a row, to a folder of Parquet files."""

from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Annotated

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import absolute_place, existing_encoder
from paraembed.console import say
from paraembed.embedding.settings import Compression, Dtype, IdKind, Limits, OnDuplicateId, Settings, check_settings
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.settings import check_workers

DEFAULTS = Settings()


@dataclass(frozen=True)
class Flags:
    """Embed text or tables: one vector a row, to a folder of Parquet files.

    The output has the id column, the columns kept, embedding, n_tokens and n_unknown. The same command again continues
    a run that was stopped, and mends parts that are missing or damaged.

    Attributes:
        encoder: Encoder folder, as jobs/train.py writes.
        input: Files, folders, globs or URIs: .txt (a text a line), .jsonl, .csv, .tsv, also .gz, .zst, .bz2; .parquet.
        out: Output folder, or URI of one (s3://, gs://): new, empty, or begun by the same command.
        text_column: Column with the texts; needed for all but .txt.
        id_column: Column that identifies a row; without it ids are made, as --id-kind says.
        id_kind: Ids made: 'row' numbers the rows of all files from 0; 'file-row' is 'a.txt:17', from 0 in each file.
        keep: Columns to carry to the output, or all, but of .jsonl each by name; for .txt 'text'.
        tree_column: Column with binary trees of the texts, for an encoder that reads them; 'tree' where there is one.
        dtype: Numbers of a vector; for int8 a column 'scale' is added: vector = scale * embedding.
        normalize: Divide vectors by their length.
        dim: Keep the first numbers of a vector, this many.
        part_rows: Rows an output file; fewer where texts are long. Parquet inputs are cut between row groups only.
        batch_size: Rows encoded at a time.
        compression: Of the output files.
        max_rejected: Fail once more rows than this cannot be read; by default they are listed and left out.
        on_duplicate_id: What to do about an id that is null or repeated: fail, or keep and count it.
        workers: Processes, a CPU each.
        overwrite: Embed everything again and replace the output at the end.
        dry_run: Print rows, parts, bytes and time instead, from two seconds of embedding.
        price_per_hour: Price of an hour of all workers, for --dry-run to print the cost.
    """

    encoder: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    input: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE [FILE ...]")]
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    text_column: str | None = None
    id_column: str | None = None
    id_kind: IdKind = DEFAULTS.id_kind
    keep: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COLUMN ...]")] = ()
    tree_column: str | None = None
    dtype: Dtype = DEFAULTS.dtype
    normalize: bool = False
    dim: int | None = None
    part_rows: int = DEFAULTS.part_rows
    batch_size: int = DEFAULTS.batch_size
    compression: Compression = DEFAULTS.compression
    max_rejected: int | None = None
    on_duplicate_id: OnDuplicateId = "fail"
    workers: int = 2
    overwrite: bool = False
    dry_run: bool = False
    price_per_hour: float | None = None
    reading: Annotated[TableLimits, tyro.conf.arg(name="")] = DEFAULT_TABLE_LIMITS


def main(flags: Flags) -> None:
    """Embed, and say what to do next."""
    settings = Settings(**{field.name: getattr(flags, field.name) for field in fields(Settings)})
    check_settings(settings)
    check_workers(flags.workers)
    encoder, out = existing_encoder(flags.encoder, "--encoder"), absolute_place(flags.out, "--out")
    inputs = [str(absolute_place(argument, "--input")) for argument in flags.input]
    if flags.price_per_hour is not None and not flags.dry_run:
        raise ValueError(f"--price-per-hour is {flags.price_per_hour}, but a cost is printed with --dry-run alone")
    from paraembed.cluster.embed import dry_run, embed

    if flags.dry_run:
        price, reading = flags.price_per_hour, flags.reading
        dry_run(encoder, inputs, out, settings, workers=flags.workers, price_per_hour=price, reading=reading)
        return
    limits = Limits(flags.max_rejected, flags.on_duplicate_id, flags.reading)
    done = embed(encoder, inputs, out, settings, workers=flags.workers, overwrite=flags.overwrite, limits=limits)
    if not done.was_finished:
        say(f"wrote {done.rows:,} rows in {done.parts} parts to {out}; next: python jobs/verify.py {quote(str(out))}")


def command() -> int:
    """Run the job of this process's command line."""
    return run(main, Flags)
