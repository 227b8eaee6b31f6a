"""The programs next to ours compute what ours does, on generated data, so the times can be compared."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from infra.bench.generated import ZIPF, draw_texts, draw_words, pair_texts, word_chances
from infra.bench.peers import embedding, embedding_bag, margin_loss
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.pairs import epoch_batches
from paraembed.training.step import step_for

Peer = Callable[[Words, Sequence[Ragged], torch.device], Iterator[Tensor]]


def test_the_loss_by_hand():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0]])
    # cosines: pair 1: 0, pair 2: -√½; hardest of each: text 3 (√½) for both, then text 1 (√½) and text 2 (0)
    root = 0.5**0.5
    terms = [0.4 - 0 + root, 0.4 - 0 + root, 0.4 + root + root, 0.4 + root + 0]
    assert float(margin_loss(vectors)) == pytest.approx(sum(terms) / 2, abs=1e-6)


@pytest.mark.parametrize(("peer", "update"), [(embedding_bag, "sparse"), (embedding, "dense")])
def test_a_peer_trains_as_we_do(peer, update):
    chances = word_chances(60)
    pairs = draw_texts(200, 5, chances, 2)
    batches = list(epoch_batches(pairs, epoch=0, seed=1, batch_size=20))
    recipe = Recipe(tokenizer="space", batch_size=20, update=update)
    encoder = Encoder(AvgConfig(), draw_words(60, 16, 3), "space")
    step = step_for(encoder, recipe, pairs)
    ours = [float(step(batch, number)[0]) for number, batch in enumerate(batches, 1)]
    words = draw_words(60, 16, 3)
    theirs = [float(loss) for loss in islice(peer(words, [one.texts for one in batches], torch.device("cpu")), 5)]
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    # Adam makes a step of full size of a gradient that is a rounding error, so single numbers may differ by more.
    assert np.abs(words.matrix - encoder.matrix.detach().numpy()).mean() < 1e-6
    assert np.abs(words.matrix - draw_words(60, 16, 3).matrix).mean() > 1e-3


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
