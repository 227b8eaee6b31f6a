"""Messages between a driver and its workers on any machine, through an actor next to the driver: records for MLflow,
which it appends to the file of the job, and the request to stop.

A file on a folder that machines share would do only if appending were atomic, which it is not on NFS.
"""

from dataclasses import dataclass
from typing import Any

import ray

from paraembed.cluster.session import on_this_machine
from paraembed.tracking.records import RecordFile


@dataclass
class Relay:
    """File of records on another machine, to which an actor appends, and the driver's request to stop.

    ``started`` is the start of the run, in milliseconds since 1970.
    """

    actor: Any
    started: int

    def append(self, kind: str, value: Any) -> None:
        """Send a record, without waiting."""
        self.actor.append.remote(kind, value)

    def stop(self) -> None:
        """Request, without waiting, that the workers save and stop."""
        self.actor.stop.remote()

    def is_stopped(self) -> bool:
        """Return whether ``stop`` was called; all earlier records of this process are in the file then."""
        return bool(ray.get(self.actor.is_stopped.remote()))


class _Writer(RecordFile):
    """Actor that appends records, in the order in which a worker sends them, and keeps the request to stop."""

    _is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True

    def is_stopped(self) -> bool:
        return self._is_stopped


def relayed(file: RecordFile) -> Relay:
    """Return the relay of a run's records for its workers. It ends with the driver's last reference."""
    scheduling = on_this_machine()
    actor = ray.remote(num_cpus=0)(_Writer).options(scheduling_strategy=scheduling).remote(file.out, file.path)
    return Relay(actor, file.started)
