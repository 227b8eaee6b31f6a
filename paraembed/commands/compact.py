"""Command ``compact``, from an output of several generations to one: see ``python jobs/compact.py --help``."""

from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing_output
from paraembed.console import doing, say


@dataclass(frozen=True)
class Compact:
    """Rewrite an embeddings folder that was added to as one generation, without the rows that newer ones supersede.

    Parts become as large as --part-rows of jobs/embed.py; vectors keep their bytes. Readers see the previous rows until
    it is complete. The parts can then not be embedded again from the inputs; files can still be added.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Finished output of jobs/embed.py, a folder or URI."""


def main(flags: Compact) -> dict[str, Any]:
    """Compact, and print the next command."""
    folder = existing_output(flags.folder, "FOLDER")
    from paraembed.embedding.compact import compact

    doing(f"reading {flags.folder}")
    done = compact(folder)
    if (done.rows, done.parts) == (done.rows_before, done.parts_before):
        say(f"{flags.folder} has one generation and no superseded rows; nothing to do")
    else:
        before = f"{done.rows_before:,} rows in {done.parts_before:,} parts"
        say(
            f"compacted {before} to {done.rows:,} rows in {done.parts:,}; "
            f"next: python jobs/verify.py {quote(str(flags.folder))}"
        )
    return {"rows": done.rows, "parts": done.parts}


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Compact)
