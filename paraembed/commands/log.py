"""Command ``paraembed log``, from the records of a job to MLflow: see ``paraembed log --help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from paraembed.commands.job import run
from paraembed.console import say
from paraembed.signals import RunFailedError


@dataclass(frozen=True)
class Log:
    """Send to MLflow what a job could not send, because MLflow was not reachable.

    The job kept these records in OUT.mlflow.jsonl, which is removed once MLflow has all of them. A run without an end
    is closed as KILLED; the same command as before resumes it. MLFLOW_TRACKING_URI selects the server, as for the job.
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Output of the job, or its file of records; of an output on an object store, its name in the job's working folder.
    """


def main(flags: Log) -> None:
    """Send the records."""
    from paraembed.tracking.records import SUFFIX, record_path
    from paraembed.tracking.runs import send_left

    out = Path(str(flags.out).removesuffix(SUFFIX))
    path = record_path(out)
    if not path.is_file():
        say(f"{path} does not exist; nothing to send")
        return
    if not send_left(out, "KILLED", waits=True):
        raise RunFailedError(f"records are left in {path}; run the same command again when MLflow is reachable")
    say(f"MLflow has all records of {out}")


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Log)
