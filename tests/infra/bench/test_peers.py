"""The programs beside ours compute what ours does, and so the times can be compared."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from infra.bench.generated import draw_texts, draw_words, word_chances
from infra.bench.peers import embedding, embedding_bag, margin_loss
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words
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
