"""The training step on pairs. ``tests/parity`` compares its arithmetic with the papers' formulas."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from paraembed.encoders import config_from_dict
from paraembed.encoders.configs import AvgConfig, ProjConfig, RnnConfig
from paraembed.recipe import Recipe
from paraembed.training.pairs import epoch_batches
from paraembed.training.step import Step, exchanged, step_for
from paraembed.training.update import RowAdaGrad, RowAdam, bias_of
from tests.training.conftest import encoder_of


def encoded(step, texts):
    generator = np.random.default_rng(1)
    vectors, chosen_by = step._encoded(step._reading([texts], generator), generator)
    return vectors, vectors.detach() if chosen_by is None else chosen_by


@pytest.mark.parametrize(
    ("changes", "world", "line"),
    [
        ({"batch_size": 299, "clip": 1.0}, 2, "with a batch_size of 299, one worker may be faster than 2"),
        ({"batch_size": 300, "clip": 1.0}, 2, "each computes all gradients"),
        ({"batch_size": 100}, 3, "with a batch_size of 100, one worker may be faster than 3"),
        ({"batch_size": 1024}, 3, "8 bytes per text; each computes all gradients"),
        ({"encoder": ProjConfig()}, 2, "sum the gradients of the word vectors in the step and of the other parameters"),
        ({"encoder": ProjConfig(), "train_words": False}, 2, "workers sum the gradients of the other parameters"),
        ({"update": "dense"}, 2, "workers sum gradients of the whole word matrix, 0 MB per step"),
    ],
)
def test_what_workers_exchange_is_said_and_where_fewer_are_faster(changes, world, line):
    recipe = replace(Recipe(), **changes)
    assert exchanged(encoder_of(recipe), recipe, world).endswith(line)


@pytest.mark.parametrize("update", ["sparse", "dense"])
def test_a_batch_of_one_pair_is_skipped_and_counted(pairs, update):
    """After steps that left moments behind, and with penalties that pull: still nothing moves."""
    recipe = Recipe(encoder=ProjConfig(), batch_size=4, word_l2=0.1, encoder_l2=0.1, update=update)
    encoder = encoder_of(recipe)
    step = step_for(encoder, recipe, pairs)
    for number, batch in enumerate(list(epoch_batches(pairs, epoch=0, seed=1, batch_size=4))[:3], 1):
        step(batch, number)
    before = [parameter.detach().clone() for parameter in encoder.parameters()]
    alone = next(epoch_batches(pairs.slice(0, 2), epoch=0, seed=1, batch_size=4))
    assert step(alone, 4).tolist() == [0.0, 0.0]
    assert step.skipped_pairs == 1
    for old, new in zip(before, encoder.parameters(), strict=True):
        assert torch.equal(old, new.detach())


SGD = Recipe(encoder=ProjConfig(), optimizer="sgd", learning_rate=1.0, batch_size=12)


@pytest.mark.parametrize("name", ["avg", "scaled_avg", "gran", "recursive"])
def test_fresh_masks_of_negatives_change_the_loss_of_dropped_texts_alone(name, pairs):
    """A negative with its own mask has a vector of its own; without dropout it is the text's vector."""
    recipe = Recipe(encoder=config_from_dict({"name": name}), batch_size=12, negatives="mix", scramble=0.5)
    batch = next(epoch_batches(pairs, epoch=0, seed=1, batch_size=12))

    def loss(**changes):
        changed = replace(recipe, **changes)
        encoder = encoder_of(changed)
        return float(step_for(encoder, changed, pairs)(batch, 1)[0]), encoder.matrix.detach()

    shared, _ = loss(dropout=0.4)
    fresh, moved = loss(dropout=0.4, negative_dropout="fresh")
    again, moved_again = loss(dropout=0.4, negative_dropout="fresh")
    assert fresh != shared
    assert (fresh, moved.tolist()) == (again, moved_again.tolist())
    assert loss()[0] == loss(negative_dropout="fresh")[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_words": False}, r"train_words is off, .*avg has no other"),
        ({"precision": "bfloat16"}, r"precision is 'bfloat16', .*on a CPU"),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused(pairs, changes, message):
    recipe = Recipe(**changes)
    with pytest.raises(ValueError, match=message):
        step_for(encoder_of(recipe), recipe, pairs)


@pytest.mark.parametrize("changes", [{"dropout": 0.6}, {"word_dropout": 0.6}])
def test_negatives_are_chosen_without_dropout(pairs, changes):
    batch = next(epoch_batches(pairs, epoch=0, seed=1, batch_size=12))
    recipe = replace(SGD, **changes)
    encoder = encoder_of(recipe)
    vectors, chosen_by = encoded(step_for(encoder, recipe, pairs), batch.texts)
    torch.testing.assert_close(chosen_by, encoder(batch.texts).detach(), rtol=0, atol=1e-6)
    assert not torch.allclose(vectors.detach(), chosen_by, atol=1e-2)


@pytest.mark.parametrize("time", ["before", "after"])
def test_scrambling_happens_before_or_after_the_choice(pairs, time):
    """The rnn sees order: the vectors that negatives are chosen by are those of the unshuffled texts, or not."""
    batch = next(epoch_batches(pairs, epoch=0, seed=1, batch_size=12))
    recipe = replace(SGD, encoder=RnnConfig(), scramble=1.0, scramble_time=time)
    encoder = encoder_of(recipe)
    step = step_for(encoder, recipe, pairs)
    plain = encoder(batch.texts).detach()
    vectors, chosen_by = encoded(step, batch.texts)
    assert not torch.allclose(vectors.detach(), plain, atol=1e-4)
    assert torch.allclose(chosen_by, plain, atol=1e-6) == (time == "after")
    assert torch.equal(chosen_by, vectors.detach()) == (time == "before")
    bag = encoder_of(replace(recipe, encoder=AvgConfig()))
    shuffled, _ = encoded(Step(bag, replace(recipe, encoder=AvgConfig()), pairs), batch.texts)
    torch.testing.assert_close(shuffled, bag(batch.texts), rtol=0, atol=1e-6)


def test_contrast_phrases_are_not_scrambled(pairs):
    recipe = replace(
        SGD, encoder=AvgConfig(), scramble=1.0, objective="contrastive", contrast_phrases=4, bos_eos_tokens="both"
    )
    encoder, read = encoder_of(recipe), []
    compose, matrix = encoder.compose, encoder.matrix.detach().clone()

    def recorded(rows, ids, texts):
        words = (rows.detach()[ids.long()][:, None] == matrix).all(dim=2).int().argmax(dim=1)
        read.extend(tuple(text.tolist()) for text in np.split(words.numpy(), texts.offsets[1:-1]))
        return compose(rows, ids, texts)

    batch = next(epoch_batches(pairs, epoch=0, seed=1, batch_size=12))
    with patch.object(encoder, "compose", recorded):
        step_for(encoder, recipe, pairs)(batch, 1)
    assert {(text[0], text[-1]) for text in read} == {(40, 41)}
    whole = {(40, *pairs.slice(at, at + 1).ids.tolist(), 41) for at in range(len(pairs))}
    assert {*read[24:]} <= whole
    assert not {*read[:24]} <= whole


FORMS = {  # of the first two steps with a gradient
    "lasagne": lambda grad: sum(grad / np.sqrt(number * grad**2 + 1e-6) for number in (1, 2)),
    "matlab": lambda grad: sum(grad / (np.sqrt(number) * grad + 1e-4) for number in (1, 2)),
    "torch": lambda grad: sum(grad / (np.sqrt(number) * grad + 1e-10) for number in (1, 2)),
    "paper": lambda grad: 2 * grad / (grad + 1e-8),
    "released": lambda grad: sum(grad / (grad + 1e-8 / np.sqrt(1 - 0.999**number)) for number in (1, 2)),
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_forms_differ_where_gradients_are_as_small_as_epsilon(form, compiled):
    """At word gradients of 5e-5 the first step of torch's AdaGrad is 20 times that of Lasagne's."""
    kind, grad = (RowAdam, 1e-8) if form in {"paper", "released"} else (RowAdaGrad, 5e-5)
    matrix, rows = torch.zeros(3, 2), torch.arange(3)
    optimizer = kind(matrix, 0.1, compiled, form)
    for step in (1, 2):
        optimizer.update(matrix, rows, torch.full((3, 2), grad), bias_of(step))
    assert matrix.numpy() == pytest.approx(-0.1 * FORMS[form](grad), rel=1e-4)
