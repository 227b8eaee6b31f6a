"""What a step draws: contrast phrases, orders of tokens, what is dropped."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.objectives import ContrastPhrases, PairedPhrases, phrase_keys
from paraembed.training.regularize import dropped, scrambled

TEXTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=12)


def ragged(texts):
    ids = np.array([one for text in texts for one in text], np.int32)
    return Ragged(ids, np.concatenate(([0], np.cumsum([len(text) for text in texts]))))


@given(TEXTS, st.integers(1, 13))
def test_keys_are_equal_where_the_texts_are_in_whatever_block(texts, block):
    keys = phrase_keys(ragged(texts), block=block).tolist()
    for text, key in zip(texts, keys, strict=True):
        assert [other == key for other in keys] == [other == text for other in texts]


def test_contrast_phrases_are_uniform_over_types_and_not_of_the_pair():
    """Phrase 1 occurs 500 times, the others once; each is drawn equally often."""
    pairs = ragged([text for number in range(20) for text in ([1], [10 + number])] + [[1], [2]] * 480)
    contrast = ContrastPhrases(pairs, 50)
    generator = np.random.default_rng(3)
    batch = ragged([[1], [2], [11], [12]])
    counts = np.zeros((2, 40), np.int64)
    for _ in range(400):
        numbers, drawn = contrast.draw(batch, generator)
        for pair in (0, 1):
            ids = pairs.take(numbers).ids[drawn[pair].numpy()]
            counts[pair] += np.bincount(ids, minlength=40)
    words = [1, 2, *range(10, 30)]
    for pair, own in enumerate(([1, 2], [11, 12])):
        others = [word for word in words if word not in own]
        assert counts[pair, own].tolist() == [0, 0]
        assert counts[pair, others].sum() == 400 * 50
        assert stats.chisquare(counts[pair, others]).pvalue > 1e-4


def test_too_few_phrases_are_refused():
    with pytest.raises(ValueError, match=r"only 2 distinct phrases; .*at least 3"):
        ContrastPhrases(ragged([[1], [2], [2], [1]]), 5)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12), st.booleans())
def test_paired_phrases_are_those_of_the_data_and_their_lemmas(pairs, lemmas):
    lemma = {5: 1, 6: 2} if lemmas else {}
    data = ragged([[word] for pair in pairs for word in pair])
    paired = PairedPhrases.of(data, lemma.get)
    expected = {(a, b) for a, b in pairs} | {(b, a) for a, b in pairs}
    expected |= {(a, lemma[b]) for a, b in expected if b in lemma}
    words = ragged([[word] for word in range(8)])
    among = paired.among(phrase_keys(words), phrase_keys(words))
    assert {(int(a), int(b)) for a, b in np.argwhere(among)} == expected


ROWS = torch.arange(1.0, 13.0).view(4, 3)


def numbered(lengths):
    """Every token another one, so that its place tells where it came from."""
    return Ragged(np.arange(sum(lengths), dtype=np.int32), np.concatenate(([0], np.cumsum(lengths))))


def texts_of(texts, places):
    return [
        texts.ids[places][start:stop].tolist() for start, stop in zip(texts.offsets, texts.offsets[1:], strict=False)
    ]


@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=8).filter(lambda lengths: len(lengths) % 2 == 0),
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.0, 0.5, 1.0]),
    form=st.sampled_from(["pair", "each"]),
    swaps=st.sampled_from([None, 1.5]),
    first=st.booleans(),
    last=st.booleans(),
)
def test_scrambling_leaves_the_bag_of_words_and_the_boundaries(lengths, seed, rate, form, swaps, first, last):
    texts = numbered([length + first + last for length in lengths])
    ends = {(False, False): "none", (True, False): "start", (False, True): "end", (True, True): "both"}[first, last]
    recipe = Recipe(scramble=rate, scramble_form=form, scramble_swaps=swaps, bos_eos_tokens=ends)
    places = scrambled(recipe, texts, np.random.default_rng(seed))
    for before, after in zip(texts_of(texts, np.arange(len(texts.ids))), texts_of(texts, places), strict=True):
        assert sorted(after) == before
        assert rate > 0 or after == before
        assert not first or after[0] == before[0]
        assert not last or after[-1] == before[-1]


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("form", ["pair", "each"])
def test_scrambling_has_its_rate_and_takes_pairs_together(rate, form):
    """Texts of 12 tokens: that a shuffle leaves one as it is happens once in 479,001,600."""
    texts = numbered([12] * 20_000)
    places = scrambled(Recipe(scramble=rate, scramble_form=form), texts, np.random.default_rng(1))
    changed = (places.reshape(-1, 12) != np.arange(len(places)).reshape(-1, 12)).any(axis=1)
    assert changed.mean() == pytest.approx(rate, abs=0.02)
    together = (changed[0::2] == changed[1::2]).mean()
    assert together == (1.0 if form == "pair" else pytest.approx(rate**2 + (1 - rate) ** 2, abs=0.02))


def test_every_order_is_equally_likely_and_swaps_follow_poisson():
    """A swap of two different words: no swap leaves a text as it is with probability e^-λ."""
    places = scrambled(Recipe(scramble=1.0), numbered([3] * 12_000), np.random.default_rng(2)).reshape(-1, 3) % 3
    counts = np.unique(places @ [9, 3, 1], return_counts=True)[1]
    assert len(counts) == 6
    assert counts == pytest.approx(2000, rel=0.1)
    recipe = Recipe(scramble=1.0, scramble_form="each", scramble_swaps=0.7)
    places = scrambled(recipe, numbered([30] * 20_000), np.random.default_rng(3))
    moved = (places.reshape(-1, 30) != np.arange(len(places)).reshape(-1, 30)).sum(axis=1)
    assert (moved == 0).mean() == pytest.approx(np.exp(-0.7), abs=0.02)
    assert (moved == 2).mean() == pytest.approx(0.7 * np.exp(-0.7), abs=0.02)
    assert not (moved == 1).any()


def test_dropout_drops_numbers_and_word_dropout_words():
    ids = torch.zeros(20_000, dtype=torch.int32)
    numbers, places = dropped(Recipe(dropout=0.4), ROWS, ids, np.random.default_rng(1))
    assert places.tolist() == list(range(20_000))
    assert (numbers == 0).float().mean().item() == pytest.approx(0.4, abs=0.02)
    assert torch.unique(numbers[:, 0]).tolist() == [0.0, pytest.approx(1 / 0.6)]
    words, _ = dropped(Recipe(word_dropout=0.25), ROWS, ids, np.random.default_rng(1))
    whole = (words == 0).all(dim=1)
    assert torch.equal(whole, (words == 0).any(dim=1))
    assert whole.float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert words[~whole][0].tolist() == pytest.approx((ROWS[0] / 0.75).tolist())
