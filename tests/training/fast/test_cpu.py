"""Which step runs; the compiled step of avg and sum against the same step by autograd; the memory of its workers."""

import os
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist

from paraembed.encoders.configs import ProjConfig, ScaledAvgConfig, SumConfig
from paraembed.recipe import Recipe, SupervisedRecipe
from paraembed.training.fast import cpu as additive
from paraembed.training.fast import step_kind
from paraembed.training.step import Step, step_for
from tests.training.conftest import encoder_of, make_pairs
from tests.training.test_exchange import in_two_processes

NAMELESS = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memory without a name on this system")

BASE = Recipe(batch_size=50, learning_rate=0.01, margin=0.4)
CHANGES = [
    {},
    {"encoder": SumConfig(), "similarity": "dot", "margin": 1.0},
    {"similarity": "dot", "optimizer": "adagrad", "learning_rate": 0.05},
    {"optimizer": "adagrad", "adagrad_form": "matlab", "clip": 0.05, "clip_form": "gate"},
    {"optimizer": "adagrad", "adagrad_form": "torch"},
    {"adam_form": "released"},
    {"negative_pool": "same_side", "optimizer": "sgd", "learning_rate": 0.5},
    {"negatives": "mix", "clip": 0.05},
    {"negatives": "rand", "word_l2": 0.1},
    {"negatives": "min_violation", "word_l2": 0.1, "l2_form": "released", "clip": 0.1, "clip_form": "global"},
    {"bos_eos_tokens": "both", "equal_negatives": "excluded", "paired_negatives": "excluded"},
    {"mega_batch_size": 3, "bos_eos_tokens": "start"},
    {"encoder": SumConfig(), "mega_batch_size": 4, "negatives": "mix"},
]


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, ("additive", "shared", "graphs")),
        ({"encoder": SumConfig(), "similarity": "dot"}, ("additive", "shared", "graphs")),
        ({"clip": 1.0}, ("additive", "additive", "graphs")),
        ({"negative_pool_workers": "all"}, ("additive", "additive", "graphs")),
        ({"mega_batch_size": 2}, ("additive", "compiled", "graphs")),
        ({"negative_dropout": "fresh", "dropout": 0.1}, ("compiled", "compiled", "plain")),
        *(
            (changes, ("compiled", "compiled", "graphs"))
            for changes in (
                {"encoder": ProjConfig()},
                {"encoder": ScaledAvgConfig()},
                {"dropout": 0.1},
                {"word_dropout": 0.1},
                {"scramble": 0.1},
                {"update": "dense"},
                {"objective": "squared_l2"},
            )
        ),
    ],
)
def test_the_fastest_step_that_can_runs(changes, kinds):
    recipe = replace(Recipe(), **changes)

    def kind(device, world, **more):
        return step_kind(recipe.encoder, recipe, device, world, **more)

    assert (kind("cpu", 1), kind("cpu", 2), kind("cuda", 1)) == kinds
    assert kind("cuda", 2) == kinds[2]
    assert kind("cpu", 1, dtype=torch.float64) == kind("cuda", 1, dtype=torch.float64) == "plain"
    head = SupervisedRecipe()
    assert [step_kind(head.encoder, head, device, 2) for device in ("cpu", "cuda")] == ["compiled", "plain"]


def trained(encoder, recipe, pairs, rank=0, world=1, make=step_for):
    step = make(encoder, recipe, pairs, rank, world)
    losses = [step(batch, number) for number, batch in enumerate(step.batches(pairs, 0), 1)]
    return torch.stack(losses)


@pytest.mark.parametrize("changes", CHANGES)
def test_the_compiled_step_is_that_of_autograd(pairs, changes):
    recipe = replace(BASE, **changes)
    ours, theirs = encoder_of(recipe), encoder_of(recipe)
    start = ours.matrix.detach().clone()
    losses = trained(ours, recipe, pairs)
    assert len(losses) == 21
    torch.testing.assert_close(losses, trained(theirs, recipe, pairs, make=Step), rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(ours.matrix, theirs.matrix, rtol=0, atol=2e-6)
    assert (ours.matrix - start).abs().max() > 0.02


def test_a_text_whose_vector_is_zero_moves_as_in_autograd(pairs):
    recipe = replace(BASE, optimizer="sgd", learning_rate=1e-9)  # the gradient of a zero vector's cosine is 1e8 wide
    ends = []
    for make in (step_for, Step):
        encoder = encoder_of(recipe)
        with torch.no_grad():
            encoder.matrix[:10] = 0.0
        before = encoder.matrix.detach().clone()
        losses = trained(encoder, recipe, pairs.slice(0, 100), make=make)
        ends.append((losses, encoder.matrix.detach() - before))
    for one, other in zip(*ends, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
    assert ends[0][1][:10].abs().max() > 1e-3


def test_a_loss_that_is_no_number_is_told(pairs):
    encoder = encoder_of(BASE)
    with torch.no_grad():
        encoder.matrix[:] = np.nan
    assert torch.isnan(trained(encoder, BASE, pairs.slice(0, 100))[:, 0]).all()


SHARED = {
    "avg": {},
    "proj": {"encoder": ProjConfig(), "optimizer": "sgd", "learning_rate": 0.1},
    "excluded": {"paired_negatives": "excluded"},
}
SHARED = {name: replace(BASE, batch_size=25, negative_pool_workers="all", **more) for name, more in SHARED.items()}
SHARED_PAIRS = 153
"""The last of four steps has three pairs, none for the second worker."""


def _shared_pool(rank, folder):
    for name, recipe in SHARED.items():
        encoder = encoder_of(recipe)
        losses = trained(encoder, recipe, make_pairs().slice(0, 2 * SHARED_PAIRS), rank=rank, world=2)
        ends = [one.detach() for one in encoder.parameters()]
        torch.save([losses, *ends], folder / f"{name}{rank}")


def test_two_workers_that_share_the_pool_do_what_one_with_the_whole_step_does(tmp_path):
    in_two_processes(_shared_pool, tmp_path)
    for name, recipe in SHARED.items():
        one, other = (torch.load(tmp_path / f"{name}{rank}", weights_only=True) for rank in (0, 1))
        encoder, alone = encoder_of(recipe), replace(recipe, batch_size=50, negative_pool_workers="own")
        losses = trained(encoder, alone, make_pairs().slice(0, 2 * SHARED_PAIRS))
        assert len(losses) == 4
        torch.testing.assert_close(one[0] + other[0], losses, rtol=0, atol=1e-5)
        for ours, theirs, whole in zip(one[1:], other[1:], encoder.parameters(), strict=True):
            assert torch.equal(ours, theirs)
            torch.testing.assert_close(ours, whole.detach(), rtol=0, atol=1e-4)


OWN = [(replace(BASE, batch_size=20, **changes), 81 + number % 4) for number, changes in enumerate(CHANGES)]
"""With so many pairs, the last of three steps has one, which is left alone; or two or three, none for the second
worker.
"""


def _own_pool(rank, folder):
    """Train with shared memory, as on several machines, and by autograd."""
    ends = []
    for recipe, num_pairs in OWN:
        for way in ("shared", "sent", "plain"):
            encoder, pairs = encoder_of(recipe), make_pairs().slice(0, 2 * num_pairs)
            with patch.object(additive, "shared_zeros", return_value=None) if way == "sent" else nullcontext():
                step = (Step if way == "plain" else step_for)(encoder, recipe, pairs, rank, 2)
            shares = isinstance(step, additive.AdditiveStep) and step._grad_NH is not None
            assert shares == (way == "shared" and recipe.clip is None and recipe.mega_batch_size == 1)
            losses = [step(batch, number) for number, batch in enumerate(step.batches(pairs, 0), 1)]
            dist.barrier()
            ends.append([torch.stack(losses), encoder.matrix.detach().clone(), *step.update.state().values()])
    torch.save(ends, folder / f"out{rank}")


def test_two_workers_with_pools_of_their_own_get_the_same_bits_on_one_machine_and_on_several(tmp_path):
    """And in compiled loops what they get by autograd."""
    in_two_processes(_own_pool, tmp_path)
    one, other = (torch.load(tmp_path / f"out{rank}", weights_only=True) for rank in (0, 1))
    for ends in (one, other):
        for shared, sent, plain in zip(ends[::3], ends[1::3], ends[2::3], strict=True):
            assert all(torch.equal(*both) for both in zip(shared, sent, strict=True))
            torch.testing.assert_close(shared[0], plain[0], rtol=1e-6, atol=2e-6)
            # Adam's first steps blow up the rounding of a gradient near its ε: one number in 336 differs by 9e-6.
            torch.testing.assert_close(shared[1], plain[1], rtol=0, atol=2e-5)
    for ours, theirs in zip(one, other, strict=True):
        assert torch.equal(ours[1], theirs[1])


def _lets_go(rank):
    """Workers that share the words let go of their own."""
    recipe = replace(BASE, word_l2=0.1)
    encoder = encoder_of(recipe)
    own = encoder.matrix.detach().numpy().copy()
    encoder.matrix.data = torch.from_numpy(own)
    before, is_held = own.copy(), weakref.ref(own)
    del own
    step = step_for(encoder, recipe, make_pairs(), rank, 2)
    assert is_held() is None
    words = step.update.words
    assert len(words) == 2
    assert all(np.array_equal(one.numpy(), before) for one in words)
    assert len({one.untyped_storage().data_ptr() for one in (*words, *step.update.state().values())}) == 1


MEMORY = [(3, 4), (5,)]


def _share(rank):
    """Workers see what the others write, and on several machines share none."""
    tensors = additive.shared_zeros(MEMORY, rank, 2)
    assert tensors is not None
    assert [tuple(one.shape) for one in tensors] == MEMORY
    assert not any(one.any() for one in tensors)
    dist.barrier()
    tensors[rank][rank] = rank + 1.0
    dist.barrier()
    assert (float(tensors[0].sum()), tensors[1].tolist()) == (4.0, [0.0, 2.0, 0.0, 0.0, 0.0])
    mapped = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if "paraembed" in line and "memfd" in line
    ]
    assert mapped
    assert all(line.endswith("(deleted)") for line in mapped)  # it has no name, and is gone with its workers
    with patch.object(additive, "gather_texts", return_value=["/proc/0/fd/3 none"]):  # as another machine sees the path
        assert additive.shared_zeros(MEMORY, rank, 2) is None


def _check_memory(rank, folder):
    _share(rank)
    _lets_go(rank)
    (folder / f"out{rank}").touch()


@NAMELESS
def test_memory_of_two_workers(tmp_path):
    in_two_processes(_check_memory, tmp_path)
    assert len([*tmp_path.glob("out*")]) == 2


@NAMELESS
def test_other_memory_at_the_same_path_is_told_by_its_token():
    made = additive._made(200, "a" * 64)
    assert made is not None
    path = f"/proc/{os.getpid()}/fd/{made[0]}"
    assert additive._mapped(f"{path} {'a' * 64}", 200) is not None
    assert additive._mapped(f"{path} {'b' * 64}", 200) is None
    assert additive._mapped(f"{path} {'a' * 64}", 400) is None
    os.close(made[0])
