"""Two workers that are broken off go on as two, or as one."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders import Encoder
from paraembed.encoders.configs import ProjConfig
from paraembed.io.tensors import load_tensors, save_tensors
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training import loop
from paraembed.training.loop import SaveRequest, _said_by_its_worker, bits_digest, run_steps, train
from paraembed.training.state import Checkpoints
from paraembed.training.step import step_for
from tests.training.conftest import Killed
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


def break_off(report):
    if report.step == 100:
        raise Killed


def train_as_two(recipe, rank, folder):
    """An unbroken run; one that is broken off at step 100, last saved at step 98, between two reports; and its end."""
    checkpoints = Checkpoints(folder / "checkpoints", steps=7)
    whole, pairs = data(recipe)
    unbroken = train(whole, pairs, recipe, rank=rank, world=2)
    with pytest.raises(Killed):
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


@pytest.mark.parametrize("recipe", [AVG, pytest.param(PROJ, marks=pytest.mark.slow)], ids=["avg", "proj"])
def test_two_workers_go_on_as_two_or_as_one(tmp_path, caplog, recipe):
    in_two_processes(partial(train_as_two, recipe), tmp_path)
    first, second = (load_tensors(tmp_path / f"rank{rank}") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads((tmp_path / "workers").read_text()) == [[[1, 2]], 2 * NUM_PAIRS, 2 * 62]
    encoder, pairs = data(recipe)
    counters = train(encoder, pairs, recipe, checkpoints=Checkpoints(tmp_path / "as-one"))
    assert re.search(r"after step 98 .*\(2 before, now 1\)", caplog.text)
    assert counters.workers == [(1, 2), (99, 1)]
    assert counters.pairs == 2 * NUM_PAIRS
    # 36 steps of 20 pairs of the second epoch were done: 514 pairs are left, in steps of 10.
    assert counters.step == 98 + 52
    assert [step for step, *_ in counters.curve] == [62, 100, 150]


def go_on_apart(rank, folder):
    encoder, pairs = data(AVG)
    where = Checkpoints(folder / f"seen-by-{rank}")
    with pytest.raises(ValueError, match=r"different checkpoints .*\(step 124; step 0\)"):
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
        pytest.raises(RuntimeError, match=r"worker 1: .*GPU's memory .*no 2 GiB") as raised,
        _said_by_its_worker(1, 2),
    ):
        raise torch.OutOfMemoryError("no 2 GiB")
    assert isinstance(raised.value.__cause__, ValueError)  # which the job shows


def train_with_notice(rank, folder):
    """Of two workers, the second is told at its 40th question; both save at once, once, and train as without it."""
    polls = 0

    def poll():
        nonlocal polls
        polls += 1
        return SaveRequest.SAVE if rank == 1 and polls >= 40 else SaveRequest.NONE

    unnoticed, pairs = data(PROJ)
    train(unnoticed, pairs, PROJ, rank=rank, world=2)
    encoder, _ = data(PROJ)
    checkpoints = Checkpoints(folder / "checkpoints", keep=9)
    with patch.object(loop, "_POLL_SECONDS", 0):  # at every step
        train(encoder, pairs, PROJ, rank=rank, world=2, checkpoints=checkpoints, poll=poll)
    assert all(torch.equal(one, other) for one, other in zip(unnoticed.parameters(), encoder.parameters(), strict=True))
    assert polls == 124


def test_workers_save_at_the_step_at_which_one_of_them_gets_a_notice(tmp_path):
    in_two_processes(train_with_notice, tmp_path)
    saved = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert saved == ["step-0000000040", "step-0000000062", "step-0000000124"]


def train_with_stop(rank, folder):
    """Of two workers, the second is stopped at its 70th poll; both stop there, saved, and resume to the same bits."""
    whole, pairs = data(PROJ)
    train(whole, pairs, PROJ, rank=rank, world=2)
    encoder, _ = data(PROJ)
    checkpoints, polls = Checkpoints(folder / "checkpoints", keep=9), iter(range(1, 1000))
    poll = lambda: SaveRequest.STOP if next(polls) == 70 and rank == 1 else SaveRequest.NONE  # noqa: E731
    with patch.object(loop, "_POLL_SECONDS", 0), pytest.raises(KeyboardInterrupt):
        train(encoder, pairs, PROJ, rank=rank, world=2, checkpoints=checkpoints, poll=poll)
    saved = sorted(path.name for path in checkpoints.folder.iterdir())
    dist.barrier()
    assert saved == ["step-0000000062", "step-0000000070"] or rank == 1  # rank 0 writes
    resumed, _ = data(PROJ)
    train(resumed, pairs, PROJ, rank=rank, world=2, checkpoints=checkpoints)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_workers_stop_at_the_step_at_which_one_of_them_is_stopped(tmp_path):
    in_two_processes(train_with_stop, tmp_path)


def train_apart(rank, folder):
    """The last bit of one number of one worker's moments changes after the first epoch."""
    encoder, pairs = data(PROJ)
    step = step_for(encoder, PROJ, pairs, rank, 2)

    def flip(report):
        if report.end_of_epoch and rank == 1:
            step.update.state()["rows.mean"].view(torch.int32)[3, 5] ^= 1

    with pytest.raises(ValueError, match="differ after step 62") as raised:
        run_steps(encoder, step, pairs, NUM_PAIRS, checkpoints=Checkpoints(folder / "checkpoints"), on_report=flip)
    (folder / f"out{rank}").write_text(type(raised.value).__name__)


def test_workers_that_drift_apart_stop_before_they_save(tmp_path):
    in_two_processes(train_apart, tmp_path)
    assert [(tmp_path / f"out{rank}").read_text() for rank in (0, 1)] == ["TrainingDivergedError"] * 2
    assert not [*tmp_path.glob("checkpoints/step-*")]


@given(numbers=st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=40), data=st.data())
def test_a_digest_shows_each_changed_bit_and_each_swap(numbers, data):
    bits = torch.tensor(numbers, dtype=torch.int64).to(torch.int32)
    digest = bits_digest(bits.view(torch.float32))
    assert bits_digest(bits.view(torch.float32), block=7) == digest
    place, other = (data.draw(st.integers(0, len(bits) - 1)) for _ in range(2))
    changed = bits.clone()
    changed[place] ^= 1 << data.draw(st.integers(0, 30))
    assert bits_digest(changed.view(torch.float32)) != digest
    swapped = bits.clone()
    swapped[[place, other]] = bits[[other, place]]
    assert (bits_digest(swapped.view(torch.float32)) == digest) == torch.equal(swapped, bits)
