import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paraembed.text.ragged import Ragged
from paraembed.training.objectives import ContrastPhrases, PairedPhrases, phrase_keys

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
