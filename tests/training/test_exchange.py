"""Two processes against one: what workers tell each other, when they save and stop, and what stops their drift."""

import os
import shutil
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from multiprocessing import set_forkserver_preload
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import multiprocessing

from paraembed.encoders.configs import ProjConfig
from paraembed.process import records_graphs
from paraembed.recipe import Recipe
from paraembed.training import loop
from paraembed.training.exchange import first_problem, gather_texts
from paraembed.training.fast.gpu import Graphs, StepInputs, all_record
from paraembed.training.loop import SaveRequest, _said_by_its_worker, bits_digest, run_steps, train
from paraembed.training.negatives import Negatives, candidate_similarity
from paraembed.training.state import Checkpoints
from paraembed.training.step import step_for
from tests.training.conftest import encoder_of, make_pairs, same_bits

ALL = Recipe(encoder=ProjConfig(), negative_pool_workers="all", batch_size=5, optimizer="sgd", learning_rate=0.1)


def in_two_processes(work, folder):
    in_processes(2, work, folder)


def in_processes(count, work, folder):
    # Forked, in 0.1 s in place of 8 s of CPU time each, from a server that has imported torch, this module, and what
    # pa.array and a dispatch mode of torch import.
    set_forkserver_preload([__name__, "pandas", "torch._dynamo"])
    multiprocessing.start_processes(_start, (count, work, folder), nprocs=count, start_method="forkserver")


def _start(rank, count, work, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=count)
    work(rank, folder)
    dist.barrier()
    dist.destroy_process_group()


def encoder_and_pairs():
    return encoder_of(ALL), make_pairs().slice(0, 42)


def check_choice(rank):
    """The pool's embeddings have dropout, those that negatives are chosen by have none."""
    encoder, pairs = encoder_and_pairs()
    vectors = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    selected = torch.randn(12, 4, generator=torch.Generator().manual_seed(2))
    mine = slice(0, 4) if rank == 0 else slice(4, 12)
    negatives = Negatives(ALL, encoder, pairs, 2)
    parts = pairs.slice(0, 4), pairs.slice(4, 12)
    pool, chosen = negatives(vectors[mine], selected[mine], parts, rank, np.random.default_rng(0))
    similarity = candidate_similarity(selected[mine], selected, "both_sides", first=mine.start)
    assert torch.equal(pool, torch.cat([vectors[:4], torch.zeros(4, 4), vectors[4:]]))
    place = similarity.argmax(dim=1)
    assert chosen.tolist() == torch.where(place < 4, place, place + 4).tolist()


def check_texts(rank):
    texts = gather_texts(["", "kein Platz für ☃" * 200][rank], 2, torch.device("cpu"))
    assert texts[0] == ""
    assert texts[1].startswith("kein Platz für ☃ke")
    assert 1990 < len(texts[1].encode()) <= 2000


def check_problems(rank):
    problems = [first_problem(text, 2, torch.device("cpu")) for text in (["", "late"][rank], ["one", "two"][rank], "")]
    assert problems == ["late", "one", ""]


def check_environment(rank):
    """One worker whose machine turns graphs off turns them off for both; they are on unless told otherwise."""
    os.environ.pop("PARAEMBED_CUDA_GRAPHS", None)
    assert records_graphs()
    os.environ["PARAEMBED_CUDA_GRAPHS"] = "10"[rank]
    assert records_graphs() == (rank == 0)
    assert not all_record(2, torch.device("cpu"))
    os.environ["PARAEMBED_CUDA_GRAPHS"] = "1"
    assert all_record(2, torch.device("cpu"))


class Replay:
    """Stands for a recorded step; none may be replayed."""

    def replay(self):
        raise AssertionError


class OneFails(Graphs):
    """Recording works on rank 0, and not on rank 1."""

    rank = 0

    def _captured(self, run, recorded):  # noqa: ARG002
        return Replay(), ["", "no memory"][self.rank]


def check_recordings(rank):
    """If one worker cannot record a step, neither replays any: the step runs as often as it is called."""
    graphs, runs = OneFails(torch.device("cpu"), 2), []
    graphs.rank, graphs._records = rank, True
    for shape in (1, 2):
        inputs = StepInputs({"ids": torch.ones(shape)}, None, None, 1, 2, 1)
        graphs._seen[inputs.shape] = 3  # what comes before needs a GPU
        for _ in range(2):
            graphs(runs.append, inputs)
    assert len(runs) == 4
    assert not graphs._recorded


CHECKS = [check_choice, check_texts, check_problems, check_environment, check_recordings]


def _check(rank, folder):
    for check in CHECKS:
        check(rank)
        (folder / f"{check.__name__}{rank}").touch()


def test_what_two_workers_tell_each_other(tmp_path):
    in_two_processes(_check, tmp_path)
    assert len([*tmp_path.glob("check_*")]) == 2 * len(CHECKS)


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


REQUESTS = {SaveRequest.SAVE: 13, SaveRequest.STOP: 29}


def train_with_requests(rank, folder):
    """Of two workers, the second is asked at a poll and the later ones; both save or stop there, once.

    They end as without it; the one that is stopped resumes.
    """
    whole, pairs = data(PROJ)
    train(whole, pairs, PROJ, rank=rank, world=2)
    for request, asked_at in REQUESTS.items():
        train_with_request(request, asked_at, rank, folder / request.name, whole)
        dist.barrier()


def train_with_request(request, asked_at, rank, folder, whole):
    checkpoints, polls = Checkpoints(folder, keep=9), count(1)
    how = {"rank": rank, "world": 2, "checkpoints": checkpoints}
    (encoder, pairs), stops = data(PROJ), request == SaveRequest.STOP
    poll = lambda: request if next(polls) >= asked_at and rank == 1 else SaveRequest.NONE  # noqa: E731
    with patch.object(loop, "_POLL_SECONDS", 0), pytest.raises(KeyboardInterrupt) if stops else nullcontext():
        train(encoder, pairs, PROJ, poll=poll, **how)
    assert next(polls) == (asked_at + 1 if stops else 43)  # one at each step
    if stops:
        dist.barrier()
        encoder, _ = data(PROJ)
        train(encoder, pairs, PROJ, **how)
    assert same_bits(whole, encoder)


def test_workers_save_or_stop_at_the_step_at_which_one_of_them_is_asked(tmp_path):
    in_two_processes(train_with_requests, tmp_path)
    for request, asked_at in REQUESTS.items():
        saved = {path.name for path in (tmp_path / request.name).iterdir()}
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
