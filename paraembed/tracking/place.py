"""Where a job logs to; MLflow, which takes 2 s to import, is not needed for it."""

import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from paraembed.io.places import in_submitted_job, without_credentials
from paraembed.process import on_cluster

EXPERIMENT = "paraembed"
"""Experiment of the runs, unless the user names another one."""


@dataclass(frozen=True)
class RunLabels:
    """What the user sets of the runs of a job: the experiment, the name of the outermost run, and tags of all."""

    experiment: str | None = None  # None: MLFLOW_EXPERIMENT_NAME, or ``EXPERIMENT``
    name: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


labels: ContextVar[RunLabels] = ContextVar("labels", default=RunLabels())  # noqa: B039 - frozen
_NETWORK = re.compile("nfs4?|cifs|lustre|gpfs|beegfs.*|ceph|glusterfs|fuse[.](?!fuse-overlayfs|lxcfs).+")


class StorePlace:
    """Place of a job's tracking store: ``MLFLOW_TRACKING_URI``, or ``mlruns`` in the working folder.

    In a submitted job, whose working folder is temporary, ``mlruns`` is next to the output.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        named = os.environ.get("MLFLOW_TRACKING_URI") or None
        self.folder = None
        if named is None:
            self.folder = (out.absolute().parent if in_submitted_job() else Path.cwd()) / "mlruns"
        self.uri = named or f"sqlite:///{self.folder}/mlflow.db"
        self.shown = without_credentials(self.uri)

    def check(self) -> None:
        """Raise ValueError if a job of a cluster would write to an SQLite file that does not last, or is shared."""
        if not (self.uri.startswith("sqlite:") and (in_submitted_job() or on_cluster())):
            return
        file = Path(self.uri.partition("?")[0].removeprefix("sqlite:///")).absolute()
        if in_submitted_job() and file.is_relative_to(Path.cwd()):
            problem = "is in the temporary folder of the job"
        elif kind := network_file_system(file):
            problem = f"is on a network file system ({kind}), where SQLite can lose data"
        else:
            return
        raise ValueError(
            f"on a cluster, jobs log to an MLflow server, but the MLflow store {self.shown} {problem}; start a server "
            "on the machine of the head, mlflow server --backend-store-uri sqlite:////var/tmp/mlflow.db "
            "--artifacts-destination /var/tmp/mlflow (for a team: infra/mlflow), and set "
            "MLFLOW_TRACKING_URI=http://127.0.0.1:5000 in the environment of the head"
        )


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the network file system that a path, whose last parts may be missing, is on; None for any
    other.

    ``mounts`` is the content of ``/proc/self/mounts``. psutil reads ``/etc/mtab`` first, which may be an old copy.
    """
    text = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    kinds = {Path(fields[1].replace(r"\040", " ")): fields[2] for fields in map(str.split, text.splitlines())}
    resolved = path.resolve()
    kind = next((kinds[folder] for folder in (resolved, *resolved.parents) if folder in kinds), "")
    return kind if _NETWORK.fullmatch(kind) else None
