"""The generated data of the benchmarks."""

import numpy as np
import pytest

from infra.bench.generated import ZIPF, draw_texts, draw_words, pair_texts, word_chances
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN


def test_words_come_as_often_as_zipf_says():
    chances = word_chances(50)
    assert chances.sum() == pytest.approx(1)
    assert chances[0] / chances[9] == pytest.approx(10**ZIPF)
    texts = draw_texts(20_000, 4, chances, 3, block_texts=700)
    assert texts.lengths.min() == 1
    assert texts.lengths.mean() == pytest.approx(4 + np.exp(-4), rel=0.01)
    counts = np.bincount(texts.ids, minlength=50)
    assert len(counts) == 50
    np.testing.assert_allclose(counts / counts.sum(), chances, atol=4 * np.sqrt(chances.max() / counts.sum()))
    again = draw_texts(20_000, 4, chances, 3, block_texts=700)
    assert (again.ids == texts.ids).all()
    assert not np.array_equal(draw_texts(20_000, 4, chances, 4, block_texts=700).ids, texts.ids)


def test_a_step_holds_as_many_distinct_words_as_text_does():
    texts = draw_texts(200, 15, word_chances(40_000), 1)
    assert len(np.unique(texts.ids)) == pytest.approx(1200, rel=0.05)


def test_words():
    words = draw_words(5, 300, 1)
    assert words.vocabulary.to_pylist() == [UNKNOWN, "w1", "w2", "w3", "w4"]
    assert words.matrix.std() == pytest.approx(0.1, rel=0.05)


def test_texts_of_pairs():
    words = draw_words(4, 2, 1)
    pairs = Ragged(np.array([1, 2, 3, 0, 2, 2], np.int32), np.array([0, 2, 3, 4, 6]))
    assert [column.to_pylist() for column in pair_texts(pairs, words)] == [["w1 w2", "UUUNKKK"], ["w3", "w2 w2"]]
    assert [column.to_pylist() for column in pair_texts(pairs.slice(2, 4), words)] == [["UUUNKKK"], ["w2 w2"]]
