"""Embed text or Parquet files: one vector a row, to a folder of Parquet files."""

import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

import tyro

from paraembed.cluster.embed import embed
from paraembed.cluster.job import run, say
from paraembed.cluster.session import absolute
from paraembed.embedding.plan import Settings

DEFAULTS = Settings()


@dataclass(frozen=True)
class Flags:
    """Embed text or Parquet files: one vector a row, to a folder of Parquet files.

    The output has the id column, the columns kept, embedding, n_tokens and n_unknown. The same command again continues
    a run that was stopped, and mends parts that are missing or damaged.

    Attributes:
        encoder: Encoder folder, as jobs/train.py writes.
        input: One or several files: .txt or .txt.gz (one text a line), or .parquet.
        out: Output folder: new, empty, or begun by the same command.
        text_column: Column with the texts; needed for Parquet.
        id_column: Column that identifies a row; without it rows are numbered from 0 over all files, as 'row'.
        keep: Columns to carry to the output; for text files 'text'.
        tree_column: Column with the binary trees of the texts, for an encoder that reads them; by default 'tree' where
            there is one.
        part_rows: Rows an output file; fewer where texts are long. Parquet inputs are cut between row groups only.
        batch_size: Rows encoded at a time.
        workers: Processes, a CPU each.
        overwrite: Embed everything again and replace the output at the end.
    """

    encoder: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    input: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE [FILE ...]")]
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    text_column: str | None = None
    id_column: str | None = None
    keep: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COLUMN ...]")] = ()
    tree_column: str | None = None
    part_rows: int = DEFAULTS.part_rows
    batch_size: int = DEFAULTS.batch_size
    workers: int = 2
    overwrite: bool = False


def main(flags: Flags) -> None:
    """Embed, and say what to do next."""
    settings = Settings(
        flags.text_column, flags.id_column, flags.keep, flags.part_rows, flags.batch_size, flags.tree_column
    )
    encoder = absolute(flags.encoder, "--encoder")  # read by processes that may run elsewhere, like an output
    inputs = [absolute(path, "--input") for path in flags.input]
    out = absolute(flags.out, "--out")
    done = embed(encoder, inputs, out, settings, workers=flags.workers, overwrite=flags.overwrite)
    if not done.was_finished:
        say(f"wrote {done.rows:,} rows in {done.parts} parts to {out}; next: python jobs/verify.py {quote(str(out))}")


if __name__ == "__main__":
    sys.exit(run(main, Flags))
