"""Command ``verify``, from an embeddings folder to a table of checks: see ``python jobs/verify.py --help``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing_output, named_encoder
from paraembed.console import doing, print_table
from paraembed.process import RunTasks
from paraembed.settings import Engine, check_workers
from paraembed.signals import RunFailedError

GROUPS = {"resources": "workers engine"}


@dataclass(frozen=True)
class Verify:
    """Read an embeddings folder, completely or --sample-parts of it, and compare it with its manifest.

    Prints one line per check. The exit status is 0 if all checks pass, 1 if one fails.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Folder or URI that jobs/embed.py wrote."""
    encoder: Annotated[str | None, tyro.conf.arg(metavar="FOLDER|small|st:MODEL|m2v:MODEL|onnx:FOLDER|RUN")] = None
    """Encoder, with a name as in jobs/embed.py; if given, a sample of the rows is embedded again and the vectors are
    compared; needs --input.
    """
    input: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE [FILE ...]")] = ()
    """Input files of the run, or folders or URIs that contain them; no other files are read."""
    trust_remote_code: bool = False
    """Run Python code that an st: model contains; read that code first."""
    sample_parts: int | None = None
    """Spot check: read N parts, evenly spaced, instead of all."""
    workers: int = 2
    """Number of worker processes, one CPU each."""
    engine: Engine = "auto"
    """Where to read: in the process of the job (local), in --workers processes of Ray (ray), or (auto) local if the
    estimated time is below 20 seconds and no cluster is used.
    """


def main(flags: Verify) -> dict[str, Any]:
    """Verify, and print the checks."""
    check_workers(flags.workers)
    if flags.input and flags.encoder is None:
        raise ValueError("--input is only read with --encoder; add --encoder FOLDER, or leave --input out")
    folder = existing_output(flags.folder, "FOLDER")
    encoder = None if flags.encoder is None else named_encoder(flags.encoder, "--encoder")
    from paraembed.cluster.tasks import started_tasks
    from paraembed.embedding.verify import verify
    from paraembed.tracking.fetch import fetch_encoder

    @contextmanager
    def started(seconds: float) -> Iterator[RunTasks]:
        with started_tasks(flags.engine, flags.workers, seconds) as tasks:
            yield tasks.run

    doing(f"reading {flags.folder}")
    checks = verify(
        folder,
        encoder,
        flags.input,
        sample_parts=flags.sample_parts,
        started=started,
        fetch=fetch_encoder,
        trust_remote_code=flags.trust_remote_code,
    )
    width = max(len(check.detail) for check in checks)
    rows = [(check.name, "ok" if check.ok else "FAILED", check.detail.ljust(width)) for check in checks]
    print_table(("check", "result", "found".ljust(width)), rows)
    failed = sum(not check.ok for check in checks)
    if failed:
        raise RunFailedError(f"{failed} of {len(checks)} checks FAILED for {flags.folder}")
    return {"checks": len(checks)}


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Verify, GROUPS)
