"""Two and three processes, each with a part of a GPU's step, against the same processes with the plain step."""

from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from paraembed.encoders import ENCODERS
from paraembed.encoders.configs import Gran4Config, GruConfig, LstmAvgConfig, ProjConfig, SumConfig
from paraembed.text.ragged import Ragged
from paraembed.training import pairs as pairs_module
from paraembed.training.fast.gpu import DeviceStep
from paraembed.training.pairs import MappedPairs
from paraembed.training.step import step_for
from tests.training.conftest import encoder_of
from tests.training.fast.test_gpu import BASE, CHANGES, AsksNothing, name_of
from tests.training.test_exchange import in_processes

ALL = {"negative_pool_workers": "all"}
RECIPES = [
    *(changes for changes in CHANGES if changes.get("objective") != "squared_l2"),
    {"encoder": ProjConfig(), "objective": "squared_l2", "optimizer": "sgd"},  # Adam would enlarge rounded zeros
    {**ALL},
    {**ALL, "encoder": SumConfig(), "similarity": "dot", "negatives": "mix", "clip": 0.05, "clip_form": "global"},
    {**ALL, "encoder": ProjConfig(), "equal_negatives": "excluded", "negatives": "min_violation"},
    {**ALL, "encoder": LstmAvgConfig(), "scramble": 0.5, "scramble_time": "after", "negative_pool": "same_side"},
    {**ALL, "encoder": Gran4Config(), "update": "dense", "paired_negatives": "excluded", "encoder_l2": 0.01},
    {"encoder": GruConfig(), "objective": "contrastive", "contrast_phrases": 3, "train_words": False},
]
ON_DISK = [
    {},
    {"encoder": LstmAvgConfig(), "negatives": "mix"},
    {**ALL, "encoder": ProjConfig()},
    {"mega_batch_size": 2},
]
REPLICAS = [
    {"dropout": 0.2, "word_dropout": 0.1},
    {"precision": "bfloat16", "encoder": LstmAvgConfig(), "dropout": 0.2},
    {**ALL, "precision": "bfloat16", "encoder": ProjConfig()},
]
"""What the plain step rounds or draws in another way: only workers are compared."""
FEW = [*RECIPES[: len(ENCODERS) : 11], *RECIPES[len(ENCODERS) : -7 : 3], *RECIPES[-7:], *REPLICAS[:2]]
"""What workers exchange does not depend on the encoder; all pools of all workers."""


def recipe_of(changes):
    return replace(BASE, batch_size=7, **changes)


def pairs_of(world):
    """Two steps of 7 pairs for each worker, and one of 5 pairs, of which three workers get 2, 3 and none."""
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 10, 2 * (14 * world + 5))
    ids = generator.integers(1, 40, lengths.sum(), dtype=np.int32)
    return Ragged(ids, np.concatenate(([0], np.cumsum(lengths))))


class Collectives(AsksNothing):
    """Counts collectives; raises where a result would be waited for, unless ``asking`` is empty."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.name().startswith("c10d::")
        return super().__torch_dispatch__(function, types, args, kwargs)


def run(step, pairs):
    """Train for an epoch, for two with pairs on disk; return the losses of this worker's parts.

    A step on a device sends the gradients of words and those of other parameters; for a pool of all workers the
    vectors, and their gradients; and before the first batch of a mega-batch its negatives, which come to the host.
    """
    recipe, losses, epochs = step.recipe, [], range(1 + isinstance(pairs, MappedPairs))
    for number, batch in enumerate(chain.from_iterable(step.batches(pairs, epoch) for epoch in epochs), 1):
        is_first, collectives = bool(getattr(batch, "ahead", ())), Collectives()
        if is_first or not isinstance(step, DeviceStep):
            collectives.asking = set()
        with collectives:
            losses.append(step(batch, number))
        if isinstance(step, DeviceStep):
            num_pool = 2 * (recipe.negative_pool_workers == "all" and recipe.objective == "margin")
            assert collectives.count == recipe.train_words + bool(step.update.composition) + num_pool + is_first
    return torch.stack(losses)


def train_all(world, runs, rank, folder):
    for number, (changes, window) in enumerate(runs):
        recipe, pairs = recipe_of(changes), pairs_of(world)
        if window:  # on disk, in blocks of 5 pairs
            pairs_module._BLOCK_PAIRS = 5
            pairs = MappedPairs(pairs.ids, pairs.offsets, window=window)
        ours, theirs = encoder_of(recipe), encoder_of(recipe)
        step = DeviceStep(ours, recipe, pairs, rank, world)
        losses, ends = run(step, pairs), [ours.state_dict(), step.update.state()]
        if changes in REPLICAS:
            assert torch.isfinite(losses).all()
        else:
            plain = step_for(theirs, recipe, pairs, rank, world)
            torch.testing.assert_close(losses, run(plain, pairs), rtol=0, atol=1e-5)
            ends += [theirs.state_dict(), plain.update.state()]
        torch.save(ends, folder / f"{number}.{rank}")


@pytest.mark.parametrize(
    ("world", "recipes", "window"),
    [
        (2, FEW, 15),
        pytest.param(3, [*FEW[1::4], *REPLICAS], 20, marks=pytest.mark.slow),
        pytest.param(2, RECIPES, 15, marks=pytest.mark.slow),
        pytest.param(3, RECIPES[1::3], 20, marks=pytest.mark.slow),
    ],
    ids=["2", "3", "2-all", "3-all"],
)
def test_workers_with_parts_of_a_step_agree_with_two_collectives_a_step(tmp_path, world, recipes, window):
    runs = [*((changes, None) for changes in recipes), *((changes, window) for changes in ON_DISK)]
    in_processes(world, partial(train_all, world, runs), tmp_path)
    for number, (changes, _) in enumerate(runs):
        first, *others = (torch.load(tmp_path / f"{number}.{rank}", weights_only=True) for rank in range(world))
        start = encoder_of(recipe_of(changes)).state_dict()
        assert any(not torch.equal(first[0][name], start[name]) for name in start), changes
        for other in others:
            for mine, yours in zip(first, other, strict=True):
                assert all(torch.equal(mine[name], yours[name]) for name in mine), changes
        for mine, plain in zip(first[:2], first[2:], strict=False):
            for name in plain:
                torch.testing.assert_close(mine[name], plain[name], rtol=0, atol=1e-5, msg=str(changes))


@pytest.fixture
def two_workers():
    """The first of two workers whose collectives send nothing; PyTorch's own, for tests of shapes."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("changes", RECIPES[len(ENCODERS) - 1 :: 8], ids=name_of)
def test_a_step_runs_without_any_number(changes, two_workers, monkeypatch):
    """On the meta device there are only shapes: whatever waits for a number, or depends on one, fails."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)  # which the meta device does not know
    recipe = recipe_of(changes)
    if recipe.mega_batch_size > 1:
        pytest.skip("the negatives of a mega-batch come to the host")
    pairs = pairs_of(2)
    step = DeviceStep(encoder_of(recipe).to("meta"), recipe, pairs, 0, 2)
    for number, batch in enumerate(step.batches(pairs, 0), 1):
        assert step(batch, number).shape == (2,)
