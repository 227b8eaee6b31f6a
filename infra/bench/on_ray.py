"""``jobs/embed.py`` from the command line as a benchmark program, which needs Ray and MLflow."""

import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from infra.bench.rounds import ROOT, Program, Round
from paraembed.embedding.part import REPORTS
from paraembed.io.atomic import SUCCESS
from paraembed.io.fingerprint import read_json
from paraembed.tracking.place import EXPERIMENT


@dataclass(frozen=True)
class JobRound(Round):
    """A run of ``jobs/embed.py``; ``seconds`` is the time from the start of the first part to the commit."""

    start_seconds: float = 0.0  # from the command to the begin of the first part
    part_seconds: float = 0.0  # time of all workers together in parts


def start_job(name: str, workers: int, flags: dict[str, Any], folder: Path) -> Program:
    """Return ``jobs/embed.py`` as a program; its output and its MLflow store are in ``folder``."""
    out = folder / "job"
    given = {"out": out, "workers": workers, **flags}
    command = [sys.executable, str(ROOT / "jobs" / "embed.py")]
    command += [part for flag, value in given.items() for part in (f"--{flag}", str(value))]
    # The experiment's artifacts stay in the working folder of the job that made it, so all jobs share one.
    store = f"sqlite:///{folder / 'mlflow.db'}"

    def run_round() -> Round:
        started = time.time()
        env = {**os.environ, "MLFLOW_TRACKING_URI": store, "PYTHONPATH": str(ROOT)}
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, cwd=folder, env=env, check=False, **how)  # noqa: S603
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            raise ValueError(f"{name} ended with status {done.returncode}: {(last[0] if last else 'no output')}")
        paths = [*(out / REPORTS).glob("part-*.parquet.json")]
        reports = [read_json(path, dict[str, Any]) for path in paths]
        first = min(path.stat().st_mtime - report["seconds"] for path, report in zip(paths, reports, strict=True))
        commit = (out / SUCCESS).stat().st_mtime
        shutil.rmtree(out)
        return JobRound(
            steps=sum(report["rows"] for report in reports),
            seconds=commit - first,
            peak_bytes=_peak_bytes(MlflowClient(store)),
            start_seconds=first - started,
            part_seconds=sum(report["seconds"] for report in reports),
        )

    return Program(name, run_round)


def _peak_bytes(client: MlflowClient) -> int:
    """Return the maximum memory of a worker of the newest run."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1)
    return int(run.data.metrics["peak_worker_memory_bytes"])
