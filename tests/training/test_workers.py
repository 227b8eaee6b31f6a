"""Two workers that are broken off go on as two, or as one."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist

from paraembed.encoders import Encoder
from paraembed.encoders.configs import ProjConfig
from paraembed.io.tensors import load_tensors, save_tensors
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.loop import _said_by_its_worker, train
from paraembed.training.state import Checkpoints
from tests.training.test_exchange import in_two_processes

AVG = Recipe(batch_size=10, epochs=2, learning_rate=0.01)
PROJ = replace(AVG, encoder=ProjConfig(), negatives="mix", dropout=0.2)
NUM_PAIRS = 1234


def data(recipe):
    generator = np.random.default_rng(3)
    lengths = generator.integers(1, 6, 2 * NUM_PAIRS)
    ids = generator.integers(1, 60, lengths.sum(), dtype=np.int32)
    words = Words(
        pa.array([UNKNOWN, *(f"w{one}" for one in range(59))]), generator.standard_normal((60, 8), np.float32)
    )
    return Encoder(recipe.encoder, words, "space"), Ragged(ids, np.concatenate(([0], np.cumsum(lengths))))


class BrokenOff(BaseException):
    """Stands for the death of all workers."""


def break_off(report):
    if report.step == 100:
        raise BrokenOff


def train_as_two(recipe, rank, folder):
    """An unbroken run; one that is broken off at step 100, last saved at step 98, between two reports; and its end."""
    checkpoints = Checkpoints(folder / "checkpoints", steps=7)
    whole, pairs = data(recipe)
    unbroken = train(whole, pairs, recipe, rank=rank, world=2)
    with pytest.raises(BrokenOff):
        train(data(recipe)[0], pairs, recipe, rank=rank, world=2, checkpoints=checkpoints, on_report=break_off)
    dist.barrier()
    if rank == 0:
        shutil.copytree(checkpoints.folder, folder / "as-one")
    dist.barrier()
    encoder, _ = data(recipe)
    resumed = train(encoder, pairs, recipe, rank=rank, world=2, checkpoints=checkpoints)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), encoder.parameters(), strict=True))
    assert resumed.curve == unbroken.curve
    save_tensors(encoder.state_dict(), folder / f"rank{rank}")
    if rank == 0:
        (folder / "workers").write_text(json.dumps([resumed.workers, resumed.pairs, resumed.step]))


@pytest.mark.parametrize("recipe", [AVG, PROJ], ids=["avg", "proj"])
def test_two_workers_go_on_as_two_or_as_one(tmp_path, caplog, recipe):
    in_two_processes(partial(train_as_two, recipe), tmp_path)
    first, second = (load_tensors(tmp_path / f"rank{rank}") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads((tmp_path / "workers").read_text()) == [[[1, 2]], 2 * NUM_PAIRS, 2 * 62]
    encoder, pairs = data(recipe)
    counters = train(encoder, pairs, recipe, checkpoints=Checkpoints(tmp_path / "as-one"))
    assert re.search(r"1 workers after step 98 \(2 workers before\)", caplog.text)
    assert counters.workers == [(1, 2), (99, 1)]
    assert counters.pairs == 2 * NUM_PAIRS
    # 36 steps of 20 pairs of the second epoch were done: 514 pairs are left, in steps of 10.
    assert counters.step == 98 + 52
    assert [step for step, *_ in counters.curve] == [62, 100, 150]


def go_on_apart(rank, folder):
    encoder, pairs = data(AVG)
    where = Checkpoints(folder / f"seen-by-{rank}")
    with pytest.raises(ValueError, match=r"different checkpoints in .* \(step 124; step 0\); put it in a folder"):
        train(encoder, pairs, AVG, rank=rank, world=2, checkpoints=where)


def test_workers_that_see_different_checkpoints_do_not_begin(tmp_path):
    encoder, pairs = data(AVG)
    train(encoder, pairs, AVG, checkpoints=Checkpoints(tmp_path / "seen-by-0", keep=9))
    shutil.rmtree(max((tmp_path / "seen-by-0").iterdir()))  # the end; that of the first epoch stays
    in_two_processes(go_on_apart, tmp_path)


def test_a_gpu_that_is_too_small_ends_all_workers():
    """The others wait for this one; of one worker alone it is for the caller to say."""
    with pytest.raises(torch.OutOfMemoryError), _said_by_its_worker(0, 1):
        raise torch.OutOfMemoryError("no 2 GiB")
    with (
        pytest.raises(RuntimeError, match="worker 1: the GPU's memory is too small: no 2 GiB; use a smaller") as raised,
        _said_by_its_worker(1, 2),
    ):
        raise torch.OutOfMemoryError("no 2 GiB")
    assert isinstance(raised.value.__cause__, ValueError)  # which the job shows
