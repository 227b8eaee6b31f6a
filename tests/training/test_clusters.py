"""Batches of pairs that are similar to the teacher."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from paraembed.recipe import Recipe
from paraembed.training.clusters import ClusteredOrder, nearest_anchors, order_for
from paraembed.training.fast.gpu import DeviceStep
from paraembed.training.loop import train
from paraembed.training.pairs import MappedPairs, Windows, epoch_batches
from paraembed.training.state import Checkpoints
from paraembed.training.step import Step, step_for
from tests.training.conftest import encoder_of, make_pairs
from tests.training.test_exchange import in_two_processes
from tests.training.test_loop import interrupt

RECIPE = Recipe(batch_size=20, epochs=2, teacher_objective="similarity", batches="clustered")


def mean_cosine(pairs, order, size):
    """Mean cosine of the teacher's vectors of first texts within batches."""
    vectors = pairs.teacher[::2][order[: len(order) // size * size]].reshape(-1, size, pairs.teacher.shape[1])
    return float((vectors @ vectors.transpose(0, 2, 1)).mean())


def test_an_order_is_a_permutation_into_similar_batches(pairs):
    order = order_for(RECIPE, pairs)
    assert isinstance(order, ClusteredOrder)
    random = order_for(replace(RECIPE, batches="random"), pairs)
    orders = [order(1030, epoch, 1) for epoch in (0, 1)]
    for epoch, numbers in enumerate(orders):
        assert np.array_equal(np.sort(numbers), np.arange(1030))
        assert np.array_equal(numbers, order_for(RECIPE, pairs)(1030, epoch, 1))
        assert mean_cosine(pairs, numbers, 20) > mean_cosine(pairs, random(1030, epoch, 1), 20) + 0.3
    assert not np.array_equal(*orders)
    assert not np.array_equal(orders[0], order_for(replace(RECIPE, seed=2), pairs)(1030, 0, 1))
    batches = [sorted(numbers[:1020].reshape(-1, 20).tolist()) for numbers in orders]
    assert [sorted(batch) for batch in batches[0]] != [sorted(batch) for batch in batches[1]]


def test_anchors_are_the_most_similar(pairs):
    vectors = pairs.teacher[::2]
    clusters = nearest_anchors(vectors, 20, 1)
    assert len(np.unique(clusters)) == 52  # each anchor is nearest to itself
    drawn = np.random.default_rng(np.random.SeedSequence(1, spawn_key=(0,))).choice(1030, 52, replace=False)
    assert clusters[drawn].tolist() == list(range(52))
    similar = vectors @ vectors[drawn].T
    assert (similar.max(axis=1) - np.take_along_axis(similar, clusters[:, None], 1)[:, 0]).max() < 0.02  # int8
    assert np.array_equal(nearest_anchors(np.tile(vectors, (1, 300)), 20, 1), clusters)  # in float64
    assert np.array_equal(nearest_anchors(vectors[:, ::-1], 20, 1), clusters)  # the order of the sums
    assert set(nearest_anchors(vectors[:3], 20, 1)) == {0}


@pytest.mark.parametrize("make", [step_for, DeviceStep])
def test_steps_take_the_batches_of_the_order(pairs, make):
    order = order_for(RECIPE, pairs)(1030, 1, RECIPE.seed)
    step = make(encoder_of(RECIPE), RECIPE, pairs)
    batches = [*step.batches(pairs, 1)][2:4] + [*step.batches(pairs, 1, first_pair=80)][:2]
    for number, batch in enumerate(batches, 2):
        expected = pairs.take_pairs(order[20 * number : 20 * number + 20])
        assert np.array_equal(batch.texts.ids, expected.ids)
        assert np.array_equal(batch.texts.teacher, expected.teacher)
    halves = [
        next(epoch_batches(pairs, epoch=1, seed=1, batch_size=20, rank=rank, world=2, order=step._order))
        for rank in (0, 1)
    ]
    for rank, batch in enumerate(halves):
        assert np.array_equal(batch.texts.ids, pairs.take_pairs(order[20 * rank : 20 * rank + 20]).ids)


@pytest.fixture
def mapped(pairs):
    """The pairs as if they were on disk, in five windows of four blocks of 64 pairs; a block has 6."""
    return MappedPairs(pairs.ids, pairs.offsets, teacher=pairs.teacher, window=256, block_pairs=64)


@pytest.mark.parametrize("epoch", [0, 1])
def test_batches_of_pairs_on_disk_are_of_the_clusters_of_a_window(mapped, epoch):
    """Every pair comes once; a batch that two windows share is random, all others are similar."""
    step = step_for(encoder_of(RECIPE), RECIPE, mapped)
    batches = [*step.batches(mapped, epoch)]
    number_of = {text.tobytes(): number for number, text in enumerate(mapped.teacher[::2])}
    order = np.array([number_of[text.tobytes()] for batch in batches for text in batch.texts.teacher[::2]])
    assert np.array_equal(np.sort(order), np.arange(1030))
    again = [*step.batches(mapped, epoch, first_pair=500)]
    assert [batch.texts.ids.tolist() for batch in again] == [batch.texts.ids.tolist() for batch in batches[25:]]
    starts = Windows(mapped, epoch=epoch, seed=RECIPE.seed)._starts.tolist()
    is_whole = np.array([not any(0 < start - 20 * place < 20 for start in starts) for place in range(51)])
    assert 46 < is_whole.sum() < 51
    random = [*step_for(encoder_of(RECIPE), replace(RECIPE, batches="random"), mapped).batches(mapped, epoch)]
    shuffled = np.array([number_of[text.tobytes()] for batch in random for text in batch.texts.teacher[::2]])
    whole, shuffled = (numbers[:1020].reshape(-1, 20)[is_whole].reshape(-1) for numbers in (order, shuffled))
    assert mean_cosine(mapped, whole, 20) > mean_cosine(mapped, shuffled, 20) + 0.15
    assert all(len(set(order[first:last] // 64)) <= 4 for first, last in pairwise(starts))


@pytest.mark.parametrize("where", ["pairs", "mapped"])
def test_a_resumed_training_has_the_same_batches(where, request, tmp_path):
    pairs = request.getfixturevalue(where)
    unbroken, resumed = encoder_of(RECIPE), encoder_of(RECIPE)
    train(unbroken, pairs, RECIPE)
    with pytest.raises(KeyboardInterrupt):
        train(encoder_of(RECIPE), pairs, RECIPE, checkpoints=Checkpoints(tmp_path, steps=7), on_report=interrupt)
    train(resumed, pairs, RECIPE, checkpoints=Checkpoints(tmp_path))
    assert torch.equal(unbroken.matrix, resumed.matrix)
    random = encoder_of(RECIPE)
    train(random, pairs, replace(RECIPE, batches="random"))
    assert not torch.equal(unbroken.matrix, random.matrix)


def _as_two(rank, folder):
    ends, whole = [], make_pairs()
    mapped = MappedPairs(whole.ids, whole.offsets, teacher=whole.teacher, window=256, block_pairs=64)
    for pairs, make in (
        (whole.slice(0, 600), step_for),
        (whole.slice(0, 600), Step),
        (mapped, step_for),
        (mapped, Step),
    ):
        encoder = encoder_of(RECIPE)
        step = make(encoder, RECIPE, pairs, rank, 2)
        for number, batch in enumerate(step.batches(pairs, 0), 1):
            step(batch, number)
        ends.append(encoder.matrix.detach().clone())
    torch.save(ends, folder / f"out{rank}")


def test_two_workers_take_a_batch_each(tmp_path):
    """Of the compiled step, every worker has the whole step; by autograd, its own batch."""
    in_two_processes(_as_two, tmp_path)
    one, other = (torch.load(tmp_path / f"out{rank}", weights_only=True) for rank in (0, 1))
    torch.testing.assert_close(one[::2], one[1::2], rtol=0, atol=2e-5)
    assert all(torch.equal(*both) for both in zip(one, other, strict=True))
