"""Command ``status``, from an embeddings folder to its progress: see ``python jobs/status.py --help``."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing_output
from paraembed.console import duration, print_table, say

STATES = {
    "finished": "finished",
    "damaged": "damaged: parts are missing; run the jobs/embed.py command again",
    "running": "a run is writing",
    "stopped": "no run is writing; the same jobs/embed.py command resumes",
    "unfinished": "unfinished; whether a run is writing cannot be seen here",
}


@dataclass(frozen=True)
class Status:
    """Show plan, finished parts, rate, time left and last error of an embedding run, also from another machine.

    Only the plan and a listing of the parts are read, without Ray; jobs/verify.py reads the parts.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Folder or URI that jobs/embed.py writes or wrote."""


def main(flags: Status) -> dict[str, Any]:
    """Print the status."""
    folder = existing_output(flags.folder, "FOLDER")
    from paraembed.embedding.status import status_of

    status = status_of(folder)
    left_out = f", {status.bad_files:,} of them left out" if status.bad_files else ""
    lines = [
        ("state", STATES[status.state]),
        ("encoder", status.encoder or "unknown"),
        ("inputs", f"{status.inputs:,}{left_out}"),
        ("rows", f"{status.rows_done:,} of {status.rows:,} ({status.rows_done / status.rows:.0%})"),
        ("parts", f"{status.parts_done:,} of {status.parts:,}"),
        ("generation", f"{status.generation}"),
    ]
    if status.last_part is not None:
        lines.append(("last part", f"{duration(max(0, status.last_part))} ago"))
    if status.rate:
        lines.append(("rate", f"{status.rate:,.0f} rows/s"))
    if status.seconds_left is not None:
        lines.append(("time left", duration(status.seconds_left)))
    width = max(len(value) for _, value in lines)
    print_table(("status", flags.folder.ljust(width)), [(name, value.ljust(width)) for name, value in lines])
    if status.error:
        when = datetime.fromtimestamp(status.error["time"], UTC)
        say(f"last error, {when:%Y-%m-%d %H:%M} UTC on {status.error['host']}: {status.error['message']}")
    if status.replacement:
        say(f"{status.replacement} is the output of a run with --overwrite, which will replace this one")
    return asdict(status)


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Status)
