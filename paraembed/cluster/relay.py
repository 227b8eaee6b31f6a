"""Records for MLflow of a worker on any machine, written to the spool of its job by an actor next to the driver.

A file on a folder that machines share would do only if appending were atomic, which it is not on NFS.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from paraembed.cluster.session import on_this_machine
from paraembed.tracking.runs import Run
from paraembed.tracking.spool import Spool


@dataclass(frozen=True)
class Relay:
    """Spool of another machine.

    Attributes:
        actor: actor that appends to the file.
        started: start of the run, in milliseconds since 1970.
    """

    actor: Any
    started: int

    def append(self, kind: str, value: Any) -> None:
        """Send a record, without waiting."""
        self.actor.append.remote(kind, value)

    def flush(self) -> None:
        """Wait until all records of this process are in the file."""
        ray.get(self.actor.append.remote("", None))


class _Writer:
    """Actor that appends records, in the order in which a worker sends them."""

    def __init__(self, path: Path) -> None:
        self._spool = Spool(path)

    def append(self, kind: str, value: Any) -> None:
        """Append a record; an empty kind only waits for those before it."""
        if kind:
            self._spool.append(kind, value)


def relayed(run: Run) -> Relay | None:
    """Return the spool of a run for workers; None if nothing is logged. It ends with the driver's last reference."""
    if run.spool is None:
        return None
    actor = ray.remote(num_cpus=0)(_Writer).options(scheduling_strategy=on_this_machine()).remote(run.spool)
    return Relay(actor, run.started)
