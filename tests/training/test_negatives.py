from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders import Encoder
from paraembed.encoders.configs import ProjConfig, WordConfig
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged, joined
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.negatives import Negatives, candidate_similarity, choose, mega_batches
from paraembed.training.objectives import margin_terms, positive, unit
from paraembed.training.pairs import epoch_batches
from paraembed.training.step import Step, step_for
from tests.training.conftest import encoder_of


def embeddings(num_texts, seed, coarse):
    """Random vectors; coarse ones make many similarities equal."""
    generator = torch.Generator().manual_seed(seed)
    if coarse:
        return torch.nn.functional.one_hot(torch.randint(0, 3, (num_texts,), generator=generator), 3).double()
    return unit(torch.randn(num_texts, 4, generator=generator, dtype=torch.float64))


def candidates_of(text, num_pool, first, pool, excluded):
    own = first + text - text % 2
    return [
        other
        for other in range(num_pool)
        if other not in {own, own + 1}
        and (pool == "both_sides" or other % 2 == text % 2)
        and not bool(excluded[text, other])
    ]


@given(
    num_pairs=st.integers(1, 7),
    more_pairs=st.integers(0, 4),
    first_pair=st.integers(0, 4),
    seed=st.integers(0, 10_000),
    coarse=st.booleans(),
    pool=st.sampled_from(["both_sides", "same_side"]),
    rule=st.sampled_from(["max", "min_violation", "rand", "mix"]),
    share_excluded=st.sampled_from([0.0, 0.3, 0.9]),
)
def test_the_choice_is_that_of_a_search_over_all_candidates(
    num_pairs, more_pairs, first_pair, seed, coarse, pool, rule, share_excluded
):
    first = 2 * min(first_pair, more_pairs)
    everyone = embeddings(2 * (num_pairs + more_pairs), seed, coarse)
    vectors = everyone[first : first + 2 * num_pairs]
    generator = torch.Generator().manual_seed(seed + 1)
    excluded = torch.rand(len(vectors), len(everyone), generator=generator) < share_excluded
    mask = excluded if share_excluded else None
    draws = torch.rand(2, len(vectors), generator=generator, dtype=torch.float64)
    similarity = candidate_similarity(vectors, everyone, pool, first=first, excluded_NP=mask)
    chosen = choose(rule, similarity, positive(vectors), 0.4, draws).tolist()
    for text, negative in enumerate(chosen):
        allowed = candidates_of(text, len(everyone), first, pool, excluded)
        if not allowed:
            assert negative == -1
            continue
        cosines = {other: float(vectors[text] @ everyone[other]) for other in allowed}
        most_similar = max(allowed, key=lambda other: (similarity[text, other].item(), -other))
        assert cosines[most_similar] == pytest.approx(max(cosines.values()), abs=1e-12)
        threshold = positive(vectors)[text // 2].item() - 0.4
        violating = [other for other in allowed if similarity[text, other].item() > threshold]
        expected = {
            "max": most_similar,
            "min_violation": min(
                violating, key=lambda other: (similarity[text, other].item(), other), default=most_similar
            ),
            "rand": allowed[int(draws[0, text].item() * len(allowed))],
        }
        expected["mix"] = expected["max"] if draws[1, text] < 0.5 else expected["rand"]
        assert negative == expected[rule]


def word_pairs(*pairs):
    ids = np.array(pairs, np.int32).reshape(-1)
    return Ragged(ids, np.arange(len(ids) + 1))


NAMES = [UNKNOWN, "cup", "mug", "dog", "hound", "hounds", "cat"]


def chosen_words(recipe, data, batch):
    """Which words are chosen for each word of a batch, over 60 draws; -1 for none."""
    matrix = np.random.default_rng(0).standard_normal((len(NAMES), 6), dtype=np.float32)
    encoder = Encoder(recipe.encoder, Words(pa.array(NAMES), matrix), "space")
    vectors = unit(torch.from_numpy(matrix[batch.ids]))
    negatives, generator = Negatives(recipe, encoder, data, 1), np.random.default_rng(0)
    draws = torch.stack([negatives(vectors, None, [batch], 0, generator)[1] for _ in range(60)])
    return [{int(batch.ids[at]) if at >= 0 else -1 for at in column} for column in draws.T]


def test_equal_words_are_no_negatives_of_the_encoder_word():
    """MAX would take the other "cup"; auto excludes it for ``word`` and for no other encoder."""
    batch = word_pairs((1, 2), (1, 6))
    word, excluded = Recipe(encoder=WordConfig()), Recipe(equal_negatives="excluded")
    assert chosen_words(word, batch, batch)[::2] == chosen_words(excluded, batch, batch)[::2] == [{6}, {2}]
    assert chosen_words(Recipe(), batch, batch)[::2] == [{1}, {1}]
    assert chosen_words(replace(word, equal_negatives="allowed"), batch, batch)[::2] == [{1}, {1}]


def test_what_the_data_pair_with_a_word_or_a_lemma_of_it_is_no_negative():
    """Elsewhere in the data "dog" is paired with "hounds", whose lemma is "hound", and "cat" with "mug"."""
    batch, elsewhere = word_pairs((3, 1), (4, 2), (6, 5)), word_pairs((3, 5), (6, 2))
    data = Ragged(np.concatenate([batch.ids, elsewhere.ids]), np.arange(11))
    recipe = Recipe(encoder=WordConfig(), negatives="rand")
    assert chosen_words(recipe, data, batch)[0] == {2, 4, 5, 6}
    constrained = replace(recipe, paired_negatives="excluded")
    dog, _, _, mug, cat, hounds = chosen_words(constrained, data, batch)
    assert (dog, mug, cat, hounds) == ({2, 6}, {1, 3, 5}, {1, 3}, {1, 2, 4})


def test_a_text_without_candidates_has_no_negative():
    data = word_pairs((1, 2), (1, 3), (1, 4), (3, 4))
    recipe = Recipe(encoder=WordConfig(), paired_negatives="excluded")
    assert chosen_words(recipe, data, word_pairs((1, 2), (3, 4)))[0] == {-1}


RECIPE = Recipe(encoder=ProjConfig(), batch_size=10, mega_batch_size=4, optimizer="sgd", learning_rate=0.5)


@given(st.integers(2, 60), st.integers(1, 5))
def test_batches_stay_as_they_are_and_the_first_of_a_mega_batch_brings_them_all(num_pairs, size):
    pairs = Ragged(np.arange(2 * num_pairs, dtype=np.int32), np.arange(2 * num_pairs + 1))
    plain = list(epoch_batches(pairs, epoch=0, seed=1, batch_size=4))
    marked = list(mega_batches(iter(plain), size))
    assert [one.texts.ids.tolist() for one in marked] == [one.texts.ids.tolist() for one in plain]
    assert marked[-1].may_pause
    for first in range(0, len(marked), size):
        group = marked[first : first + size]
        (ahead,) = group[0].ahead
        assert ahead.ids.tolist() == joined(*(one.texts for one in group)).ids.tolist()
        assert [one.ahead for one in group[1:]] == [()] * (len(group) - 1)
        assert [one.may_pause for one in group] == [False] * (len(group) - 1) + [True]


def test_negatives_come_from_the_whole_mega_batch_as_it_was_before_its_first_step(pairs):
    """Against plain autograd: most similar text of the other 39 pairs by the first weights, and both of its sides
    learn.
    """
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
    plain, mega = (step_for(encoder_of(recipe), one, pairs) for one in (replace(recipe, mega_batch_size=1), recipe))
    for number in (1, 2):  # one batch holds all pairs: the mega-batch is that batch
        losses = [step(next(step.batches(pairs, number)), number) for step in (plain, mega)]
        torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-6)


def test_a_last_batch_of_one_pair_has_the_negatives_of_its_mega_batch(pairs):
    recipe = replace(RECIPE, batch_size=20, mega_batch_size=3)
    for num_pairs, skipped in ((41, 0), (61, 1)):  # 20 + 20 + 1, and a mega-batch of 1 behind 20 + 20 + 20
        step = step_for(encoder_of(recipe), recipe, pairs.slice(0, 2 * num_pairs))
        losses = [step(one, at) for at, one in enumerate(step.batches(pairs.slice(0, 2 * num_pairs), 0), 1)]
        assert step.skipped_pairs == skipped
        assert (losses[-1] == 0).all() == bool(skipped)
