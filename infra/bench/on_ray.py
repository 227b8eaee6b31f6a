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

import pyarrow as pa
import pyarrow.ipc
from mlflow.tracking import MlflowClient

from infra.bench.rounds import ROOT, Program, Round
from paraembed.embedding.records import DONE
from paraembed.io.atomic import SUCCESS
from paraembed.tracking.place import EXPERIMENT


@dataclass(frozen=True)
class JobRound(Round):
    """A run of ``jobs/embed.py``: time and rows from the start of the workers' first parts to the commit, without a
    part that the driver has written while Ray starts.
    """

    start_seconds: float = 0.0  # from the command to the first part that is written
    row_seconds: float = 0.0  # of a worker for a row


def start_job(name: str, workers: int, flags: dict[str, Any], folder: Path) -> Program:
    """Return ``jobs/embed.py`` as a program; its output and its MLflow store are in ``folder``."""
    out = folder / "job"
    given = {"out": out, "workers": workers, "engine": "ray", **flags}
    command = [sys.executable, str(ROOT / "jobs" / "embed.py")]
    command += [part for flag, value in given.items() for part in (f"--{flag}", str(value))]
    # The experiment's artifacts stay in the working folder of the job that made it, so all jobs share one.
    store = f"sqlite:///{folder / 'mlflow.db'}"

    def run_round() -> Round:
        started = time.time()
        env = {**os.environ, "MLFLOW_TRACKING_URI": store, "PYTHONPATH": str(ROOT), "PARAEMBED_WAIT_FOR_MLFLOW": "1"}
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, cwd=folder, env=env, check=False, **how)  # noqa: S603
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            raise ValueError(f"{name} ended with status {done.returncode}: {(last[0] if last else 'no output')}")
        reports = pa.concat_tables([pa.ipc.open_file(file).read_all() for file in (out / DONE).iterdir()])
        parts = sorted(
            ((out / report["name"]).stat().st_mtime, report["seconds"], report["rows"])
            for report in reports.to_pylist()
        )
        commit, metrics = (out / SUCCESS).stat().st_mtime, _metrics(MlflowClient(store))
        shutil.rmtree(out)
        begin = min(written - seconds for written, seconds, _ in parts[1:] or parts)
        of_workers = [(seconds, rows) for written, seconds, rows in parts if written > begin]
        busy, steps = map(sum, zip(*of_workers, strict=True))
        return JobRound(
            steps=steps,
            seconds=commit - begin,
            peak_bytes=int(metrics["peak_worker_memory_bytes"]),
            start_seconds=parts[0][0] - started,
            row_seconds=busy / steps,
        )

    return Program(name, run_round)


def _metrics(client: MlflowClient) -> dict[str, float]:
    """Return the metrics of the newest run."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1)
    return dict(run.data.metrics)
