"""Two workers that are asked to save or stop, that see different checkpoints, or that drift apart."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders.configs import ProjConfig
from paraembed.recipe import Recipe
from paraembed.training import loop
from paraembed.training.loop import SaveRequest, _said_by_its_worker, bits_digest, run_steps, train
from paraembed.training.state import Checkpoints
from paraembed.training.step import step_for
from tests.training.conftest import encoder_of, make_pairs, same_bits
from tests.training.test_exchange import in_two_processes

AVG = Recipe(batch_size=10, epochs=2, learning_rate=0.01)
PROJ = replace(AVG, encoder=ProjConfig(), negatives="mix", dropout=0.2)
NUM_PAIRS = 414
"""Of two workers, 21 steps an epoch."""


def data(recipe):
    return encoder_of(recipe), make_pairs().slice(0, 2 * NUM_PAIRS)


def go_on_apart(rank, folder):
    encoder, pairs = data(AVG)
    where = Checkpoints(folder / f"seen-by-{rank}")
    with pytest.raises(ValueError, match=r"different checkpoints .*\(step 42; step 0\)"):
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
    with pytest.raises(RuntimeError, match=r"worker 1: .*GPU's memory .*no 2 GiB") as raised, _said_by_its_worker(1, 2):
        raise torch.OutOfMemoryError("no 2 GiB")
    assert isinstance(raised.value.__cause__, ValueError)  # which the job shows


def train_with_request(request, asked_at, rank, folder):
    """Of two workers, the second is asked at a poll and the later ones; both save or stop there, once.

    They end as without it; the one that is stopped resumes.
    """
    whole, pairs = data(PROJ)
    train(whole, pairs, PROJ, rank=rank, world=2)
    checkpoints, polls = Checkpoints(folder / "checkpoints", keep=9), count(1)
    how = {"rank": rank, "world": 2, "checkpoints": checkpoints}
    encoder, stops = data(PROJ)[0], request == SaveRequest.STOP
    poll = lambda: request if next(polls) >= asked_at and rank == 1 else SaveRequest.NONE  # noqa: E731
    with patch.object(loop, "_POLL_SECONDS", 0), pytest.raises(KeyboardInterrupt) if stops else nullcontext():
        train(encoder, pairs, PROJ, poll=poll, **how)
    assert next(polls) == (asked_at + 1 if stops else 43)  # one at each step
    if stops:
        dist.barrier()
        encoder, _ = data(PROJ)
        train(encoder, pairs, PROJ, **how)
    assert same_bits(whole, encoder)


@pytest.mark.parametrize(("request_", "asked_at"), [(SaveRequest.SAVE, 13), (SaveRequest.STOP, 29)])
def test_workers_save_or_stop_at_the_step_at_which_one_of_them_is_asked(tmp_path, request_, asked_at):
    in_two_processes(partial(train_with_request, request_, asked_at), tmp_path)
    saved = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert saved == {f"step-{step:010}" for step in (asked_at, 21, 42)}


def train_apart(rank, folder):
    """The last bit of one number of one worker's moments changes after the first epoch."""
    encoder, pairs = data(PROJ)
    step = step_for(encoder, PROJ, pairs, rank, 2)

    def flip(report):
        if report.end_of_epoch and rank == 1:
            step.update.state()["rows.mean"].view(torch.int32)[3, 5] ^= 1

    with pytest.raises(ValueError, match="differ after step 21") as raised:
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
