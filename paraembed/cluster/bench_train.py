"""The benchmark of training where Ray and MLflow are: training on Ray beside the bare loop, and an MLflow run."""

import argparse
import json
import logging
import os
import shutil
import sys
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from mlflow.tracking import MlflowClient

from paraembed.benchmarks import train_command
from paraembed.benchmarks.peers import texts_of
from paraembed.benchmarks.train import NAMES, RAY, RAY_WORKERS, Measured
from paraembed.benchmarks.train_case import Case
from paraembed.benchmarks.turns import Finished, Program, Turn, Turns, peak_bytes
from paraembed.cluster.placement import Placement
from paraembed.cluster.session import absolute, ray_session
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.tracking import EXPERIMENT, tracked_run
from paraembed.cluster.train import Training, train_encoder
from paraembed.data.shards import ShardSettings

_FEWEST_STEPS = 400  # of an epoch, so that reports come within it
_BLOCK_TEXTS = 1 << 20


def run(flags: argparse.Namespace) -> None:
    """Measure as ``train_command.run`` does, with programs on Ray, and log the numbers.

    Raises:
        OSError, ValueError: a flag will not do, or a program failed.
    """
    flags.out = absolute(flags.out, "--out") if flags.out else None
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    more = {RAY: partial(_start, 1)}
    if flags.device == "cpu":
        more[RAY_WORKERS] = partial(_start, 2)
    with tracked_run("bench train", flags.out or Path.cwd() / "bench") as tracked:
        tracked.params({name: str(value) for name, value in vars(flags).items()})
        for measured in train_command.run(flags, more):
            tracked.metrics(_metrics(measured))
        if flags.out:
            tracked.artifacts(flags.out)


def _metrics(measured: Measured) -> dict[str, float]:
    case = measured.case
    prefix = f"{case.encoder}/{case.texts}/{case.batch_size}"
    rows = {key: row for key, row in measured.rows.items() if not row.skipped}
    rates = {f"{prefix}/{key}/pairs_per_second": measured.rate(key) for key in rows}
    return rates | {f"{prefix}/{key}/peak_bytes": float(row.peak_bytes) for key, row in rows.items()}


def _start(workers: int, case: Case, folder: Path) -> Program:
    """Write the inputs in a process of their own, whose memory is not the training's, then start the training's."""
    if not case.epochs:
        case = replace(case, pairs=max(case.pairs, _FEWEST_STEPS * case.batch_size * workers))
    made = folder / f"inputs-{case.num_pairs}"
    if not made.exists():
        Program("the inputs", [_command("inputs", case, made, workers)], case.threads).close()
    program = Program(NAMES[RAY], [_command("train", case, made, workers)], case.threads, loud=case.epochs > 0)
    program.workers = workers
    return program


def _command(part: str, case: Case, folder: Path, workers: int) -> list[str]:
    specification = {"part": part, "case": vars(case), "folder": str(folder), "workers": workers}
    return [sys.executable, "-P", "-m", "paraembed.cluster.bench_train", json.dumps(specification)]


def _main(specification: dict[str, Any]) -> None:
    """The process of a program."""
    case, folder, workers = Case(**specification["case"]), Path(specification["folder"]), specification["workers"]
    torch.set_num_threads(case.threads)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}-{specification['part']}-{workers}.db"
    os.chdir(folder.parent)  # a run's artifacts, encoders here, go below the working folder
    turns = Turns(0, torch.device(case.device))
    try:
        if specification["part"] == "inputs":
            _write_inputs(case, folder)
            turns.begin()
        else:
            turns.begin()
            for number in count():
                turns.end(_turn(case, folder, folder / f"{workers}-{number}", workers))
    except Finished:
        return


def _write_inputs(case: Case, folder: Path) -> None:
    """Pair shards and a word-vector file, through the front door."""
    folder.mkdir()
    words, pairs = case.draw_words(), case.draw_pairs()
    schema = pa.schema([("first", pa.string()), ("second", pa.string())])
    with pq.ParquetWriter(folder / "pairs.parquet", schema) as file:
        for start in range(0, len(pairs), _BLOCK_TEXTS):
            block = pairs.slice(start, min(start + _BLOCK_TEXTS, len(pairs)))
            file.write_table(pa.table(list(texts_of(block, words)), schema=schema))
    with (folder / "words.txt").open("w") as file:
        for word, vector in zip(words.vocabulary.to_pylist(), words.matrix.tolist(), strict=True):
            file.write(f"{word} {' '.join(map('{:.4g}'.format, vector))}\n")
    with ray_session(1):
        shard_pairs([folder / "pairs.parquet"], folder / "pairs", ShardSettings(tokeniser="space"))


def _turn(case: Case, inputs: Path, out: Path, workers: int) -> Turn:
    """A training by ``train_encoder``, with a Ray of its own.

    Of a whole training all seconds count. Else those between the reports within one epoch: what a step takes, without
    the first steps, and without checkpoints, which a real epoch is too long to notice.
    """
    recipe = case.recipe() if case.epochs else replace(case.recipe(), epochs=1)
    placement = Placement(workers, gpus=case.device == "cuda", checkpoint_minutes=60)
    with ray_session(workers):
        train_encoder(Training("bench", recipe, inputs / "pairs", inputs / "words.txt", out, placement))
    client = MlflowClient()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    run = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])[0]
    peak = peak_bytes() if workers == 1 else 0  # one worker runs in this process
    rates = sorted((one.step, one.value) for one in client.get_metric_history(run.info.run_id, "pairs_per_second"))
    shutil.rmtree(out)
    if case.epochs:
        return Turn(rates[-1][0], run.data.metrics["training_seconds"], peak_bytes=peak)
    steps = [step - before for (before, _), (step, _) in pairwise(rates)]
    pairs = case.batch_size * workers
    seconds = sum(some * pairs / rate for some, (_, rate) in zip(steps, rates[1:], strict=True))
    return Turn(sum(steps), seconds, peak_bytes=peak)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
