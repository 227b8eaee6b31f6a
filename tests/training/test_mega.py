from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders.configs import ProjConfig
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged, joined
from paraembed.training.negatives import mega_batch_size, mega_size
from paraembed.training.objectives import margin_terms, unit
from paraembed.training.pairs import epoch_batches
from paraembed.training.step import Step
from tests.training.conftest import encoder_of

RECIPE = Recipe(encoder=ProjConfig(), batch_size=10, mega_batch_size=4, optimizer="sgd", learning_rate=0.5)


def test_annealing_adds_a_batch_at_a_time():
    recipe = replace(RECIPE, mega_batch_anneal_steps=3)
    assert [mega_size(recipe, step) for step in range(1, 14)] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    assert mega_size(RECIPE, 1) == 4


@given(st.integers(2, 60), st.integers(1, 5), st.integers(0, 3), st.integers(1, 9))
def test_batches_stay_as_they_are_and_the_first_of_a_mega_batch_brings_them_all(num_pairs, size, anneal, first_step):
    recipe = Recipe(batch_size=4, mega_batch_size=size, mega_batch_anneal_steps=anneal)
    pairs = Ragged(np.arange(2 * num_pairs, dtype=np.int32), np.arange(2 * num_pairs + 1))
    plain = list(epoch_batches(pairs, epoch=0, seed=1, batch_size=4))
    marked = list(mega_batch_size(iter(plain), recipe, first_step))
    assert [one.texts.ids.tolist() for one in marked] == [one.texts.ids.tolist() for one in plain]
    assert marked[-1].may_pause
    at = 0
    while at < len(marked):
        group = marked[at : at + mega_size(recipe, first_step + at)]
        assert group[0].ahead is not None
        assert group[0].ahead.ids.tolist() == joined(*(one.texts for one in group)).ids.tolist()
        assert [one.ahead for one in group[1:]] == [None] * (len(group) - 1)
        assert [one.may_pause for one in group] == [False] * (len(group) - 1) + [True]
        at += len(group)


def test_negatives_come_from_the_whole_mega_batch_as_it_was_before_its_first_step(pairs):
    """Against plain autograd: most similar text of the other 39 pairs by the first weights, both of its sides learn."""
    ours, plain = encoder_of(RECIPE).double(), encoder_of(RECIPE).double()
    step = Step(ours, RECIPE, pairs)
    batches = list(step.batches(pairs, 0))[:4]
    group = joined(*(batch.texts for batch in batches))
    with torch.no_grad():
        vectors = unit(plain(group))
    similarity = vectors @ vectors.T
    for text in range(len(group)):
        similarity[text, text - text % 2 : text - text % 2 + 2] = -9.0
    hardest = similarity.argmax(dim=1).numpy()
    in_own_batch = hardest // 20 == np.arange(80) // 20
    assert 0 < in_own_batch.sum() < 80
    for number, batch in enumerate(batches):
        loss = step(batch, number + 1)[0]
        chosen = hardest[20 * number : 20 * (number + 1)]
        texts, negatives = unit(plain(batch.texts)), unit(plain(group.take(chosen)))
        expected = margin_terms(texts, negatives, torch.arange(20), RECIPE.margin).sum() / 10
        grads = torch.autograd.grad(expected, list(plain.parameters()))
        assert float(loss) == pytest.approx(float(expected.detach()), abs=1e-9)
        with torch.no_grad():
            for parameter, grad in zip(plain.parameters(), grads, strict=True):
                parameter.sub_(0.5 * grad)
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_many_texts_are_chosen_for_in_blocks(pairs):
    """1,030 pairs in one mega-batch are more than fit into one block of the similarity matrix."""
    recipe = Recipe(batch_size=1030, mega_batch_size=2)
    plain, mega = (Step(encoder_of(recipe), one, pairs) for one in (replace(recipe, mega_batch_size=1), recipe))
    for number in (1, 2):  # one batch holds all pairs: the mega-batch is that batch
        losses = [step(next(step.batches(pairs, number)), number) for step in (plain, mega)]
        torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-6)


def test_a_worker_cannot_choose_from_the_others_mega_batch():
    with pytest.raises(
        ValueError, match=r"mega_batch_size is 4, and negative_pool_workers is 'all'.*set negative_pool_workers to own"
    ):
        replace(RECIPE, negative_pool_workers="all")


def test_a_last_batch_of_one_pair_has_the_negatives_of_its_mega_batch(pairs):
    recipe = replace(RECIPE, batch_size=20, mega_batch_size=3)
    for num_pairs, skipped in ((41, 0), (61, 1)):  # 20 + 20 + 1, and a mega-batch of 1 behind 20 + 20 + 20
        step = Step(encoder_of(recipe), recipe, pairs.slice(0, 2 * num_pairs))
        losses = [step(one, at) for at, one in enumerate(step.batches(pairs.slice(0, 2 * num_pairs), 0), 1)]
        assert step.skipped_pairs == skipped
        assert (losses[-1] == 0).all() == bool(skipped)
