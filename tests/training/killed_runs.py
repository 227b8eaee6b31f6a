"""Train in forked processes that die by SIGKILL at seeded moments, until one gets to the end; run by test_kills.py.

``python killed_runs.py FOLDER SEED RECIPE`` prints JSON: how many kills, how many amid the writing of a checkpoint,
and what the runs reported and made, beside the same of a run that nobody killed.
"""

import json
import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from paraembed.encoders import Encoder
from paraembed.encoders.configs import ProjConfig
from paraembed.io.fingerprint import sha256_of
from paraembed.io.tensors import save_tensors
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.best import Evaluation
from paraembed.training.loop import train
from paraembed.training.state import Checkpoints

AVG = Recipe(batch_size=20, epochs=3, learning_rate=0.01, word_l2=1e-4)
RECIPES = {
    "avg": AVG,
    "mega": replace(AVG, mega_batch_size=3, negatives="mix"),
    "best": replace(AVG, epochs=9),
    "proj": replace(AVG, encoder=ProjConfig(), dropout=0.2, negatives="mix", scramble=0.5, clip=1.0),
}
NUM_WORDS, NUM_PAIRS = 500, 2007
KILLS = 5
WRITES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def data(recipe):
    generator = np.random.default_rng(7)
    lengths = generator.integers(1, 9, 2 * NUM_PAIRS)
    ids = generator.integers(1, NUM_WORDS, lengths.sum(), dtype=np.int32)
    matrix = generator.standard_normal((NUM_WORDS, 20), dtype=np.float32)
    words = Words(pa.array([UNKNOWN, *(f"w{number}" for number in range(1, NUM_WORDS))]), matrix)
    return Encoder(recipe.encoder, words, "space", recipe.seed), Ragged(ids, np.concatenate(([0], np.cumsum(lengths))))


def one_run(folder, recipe):
    """Train to the end; every report is a line of ``curve``, the encoder goes to ``encoder``."""
    encoder, pairs = data(recipe)
    curve = os.open(folder / "curve", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(report):
        os.write(curve, (json.dumps([report.step, report.loss, report.active]) + "\n").encode())

    def leap(encoder):
        """A score that leaps, and that the weights alone decide."""
        return math.sin(1e4 * encoder.matrix.detach().double().sum().item()), {}

    def note_line(line):
        if line.startswith("evaluation"):
            step = int(line.split()[3].rstrip(","))
            os.write(curve, (json.dumps([step, leap(encoder)[0], line]) + "\n").encode())

    evaluation = None
    if recipe == RECIPES["best"]:
        evaluation = Evaluation(leap, every=0.13, patience=12, show=note_line)
    checkpoints = Checkpoints(folder / "checkpoints", steps=7)
    train(encoder, pairs, recipe, checkpoints=checkpoints, on_report=note, evaluation=evaluation)
    save_tensors(encoder.state_dict(), folder / "encoder")


def die_at_write(number, folder):
    """SIGKILL to this process just before it does something to the checkpoints for the ``number``-th time."""
    left = [number]

    def hook(event, arguments):
        if event in WRITES and str(arguments[0]).startswith(f"{folder}/checkpoints"):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def forked(folder, recipe, write=None, seconds=None):
    """A run in a process of its own, which dies at its n-th write or after some seconds; whether it got to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if write is not None:
                die_at_write(write, folder)
            one_run(folder, recipe)
            status = 0
        finally:
            os._exit(status)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a run failed")
    return os.WIFEXITED(status)


def outcome(folder):
    return {
        "encoder": sha256_of(folder / "encoder"),
        "curve": sorted({tuple(json.loads(line)) for line in (folder / "curve").read_text().splitlines()}),
    }


def main(folder, seed, recipe):
    torch.set_num_threads(1)
    one_run(new(folder / "warm-up"), recipe)  # compiles, so that the forked runs need not
    started = time.perf_counter()
    assert forked(new(folder / "unbroken"), recipe)
    seconds = time.perf_counter() - started
    generator = np.random.default_rng(seed)
    broken, killed, in_writes = [new(folder / "broken-0")], 0, 0
    while killed < KILLS:
        if killed % 2:
            ended = forked(broken[-1], recipe, seconds=float(generator.uniform(0, 0.5 * seconds)))
        else:
            ended = forked(broken[-1], recipe, write=int(generator.integers(1, 120)))
        killed += not ended
        in_writes += bool(list((broken[-1] / "checkpoints").glob(".step-*")))
        if ended:
            broken.append(new(folder / f"broken-{len(broken)}"))
    assert forked(broken[-1], recipe)
    result = {"unbroken": outcome(folder / "unbroken"), "broken": [outcome(one) for one in broken]}
    sys.stdout.write(json.dumps({"killed": killed, "in_writes": in_writes, **result}) + "\n")


def new(folder):
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), RECIPES[sys.argv[3]])
