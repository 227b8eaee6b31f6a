"""Benchmark programs that need Ray and MLflow: training on Ray, and ``jobs/embed.py`` from the command line."""

import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from infra.bench.command import Case
from infra.bench.generated import draw_pairs, draw_words, pair_texts
from infra.bench.rounds import ROOT, Clock, Program, Round, peak_bytes, start
from infra.bench.train import recipe
from paraembed.cluster.session import ray_session
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.train import Training, train_model
from paraembed.embedding.part import REPORTS
from paraembed.io.atomic import SUCCESS
from paraembed.io.fingerprint import read_json
from paraembed.pairs.settings import ShardSettings
from paraembed.settings import Placement
from paraembed.tracking.store import EXPERIMENT
from paraembed.training.data import Pairs

_FEWEST_STEPS = 400  # of an epoch, so that reports come within it
_BLOCK_TEXTS = 1 << 20


@dataclass(frozen=True)
class JobRound(Round):
    """A run of ``jobs/embed.py``; ``seconds`` is the time from the start of the first part to the commit."""

    start_seconds: float = 0.0  # from the command to the begin of the first part
    whole_seconds: float = 0.0  # from the command to its end
    part_seconds: float = 0.0  # time of all workers together in parts
    parts: int = 0


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
        done = subprocess.run(  # noqa: S603
            command,
            cwd=folder,
            env={**os.environ, "MLFLOW_TRACKING_URI": store, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        ended = time.time()
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
            peak_bytes=int(_newest_run(MlflowClient(store)).data.metrics["peak_worker_memory_bytes"]),
            start_seconds=first - started,
            whole_seconds=ended - started,
            part_seconds=sum(report["seconds"] for report in reports),
            parts=len(reports),
        )

    return Program(name, run_round)


def start_training(name: str, workers: int, case: Case, folder: Path) -> Program:
    """Start training on Ray; a separate process, whose memory is not counted, writes the inputs first."""
    if not case.epochs:
        case = replace(case, pairs=max(case.pairs, _FEWEST_STEPS * case.batch_size * workers))
    inputs = folder / f"inputs-{case.num_pairs}"
    arguments = {"case": vars(case), "folder": str(inputs)}
    if not inputs.exists():
        start("the inputs", write_inputs, arguments, threads=case.threads).close()
    how: dict[str, Any] = {"threads": case.threads, "device": case.device, "is_loud": case.epochs > 0}
    return start(name, train, {**arguments, "workers": workers}, workers=workers, **how)


def write_inputs(clock: Clock, case: dict[str, Any], folder: str) -> None:
    """Write pair shards and a word-vector file, as a user would have them."""
    size, inputs = Case(**case), Path(folder)
    _set_store(inputs, "inputs")
    inputs.mkdir()
    words, pairs = draw_words(size.words, size.width, size.seed), draw_pairs(size)
    schema = pa.schema([("first", pa.string()), ("second", pa.string())])
    with pq.ParquetWriter(inputs / "pairs.parquet", schema) as file:
        for first in range(0, len(pairs), _BLOCK_TEXTS):
            block = pairs.slice(first, min(first + _BLOCK_TEXTS, len(pairs)))
            file.write_table(pa.table(list(pair_texts(block, words)), schema=schema))
    with (inputs / "words.txt").open("w") as lines:
        for word, vector in zip(words.vocabulary.to_pylist(), words.matrix.tolist(), strict=True):
            lines.write(f"{word} {' '.join(map('{:.4g}'.format, vector))}\n")
    with ray_session(1):
        shard_pairs([inputs / "pairs.parquet"], inputs / "pairs", ShardSettings(tokenizer="space"))
    clock.begin()


def train(clock: Clock, case: dict[str, Any], folder: str, workers: int) -> None:
    """Train once per round with ``train_model``, each time with a new Ray session.

    For a whole training, all seconds count. Otherwise only the time between the reports within an epoch counts, which
    is the time of the steps, without the first steps and without checkpoints, which are negligible in a real epoch.
    """
    size, inputs = Case(**case), Path(folder)
    _set_store(inputs, f"train-{workers}")
    how = recipe(size) if size.epochs else replace(recipe(size), epochs=1)
    placement = Placement(workers, gpus=size.device == "cuda", checkpoint_minutes=60)
    clock.begin()
    for number in count():
        out = inputs / f"{workers}-{number}"
        with ray_session(workers):
            pairs = Pairs(how, inputs / "pairs", inputs / "words.txt", max_bytes=placement.pairs_bytes)
            train_model(Training("bench", pairs, out, placement))
        shutil.rmtree(out)
        clock.end(_training_round(size, workers))


def _training_round(case: Case, workers: int) -> Round:
    client = MlflowClient()
    run = _newest_run(client)
    peak = peak_bytes() if workers == 1 else 0  # one worker runs in this process
    rates = sorted(
        (point.step, point.value) for point in client.get_metric_history(run.info.run_id, "pairs_per_second")
    )
    if case.epochs:
        return Round(rates[-1][0], run.data.metrics["training_seconds"], peak_bytes=peak)
    steps = [step - before for (before, _), (step, _) in pairwise(rates)]
    pairs = case.batch_size * workers
    seconds = sum(count * pairs / rate for count, (_, rate) in zip(steps, rates[1:], strict=True))
    return Round(sum(steps), seconds, peak_bytes=peak)


def _set_store(inputs: Path, name: str) -> None:
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{inputs}-{name}.db"
    os.chdir(inputs.parent)  # a run's artifacts, encoders here, go below the working folder


def _newest_run(client: MlflowClient) -> Run:
    logging.getLogger("alembic").setLevel(logging.WARNING)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    run: Run = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1)[0]
    return run
