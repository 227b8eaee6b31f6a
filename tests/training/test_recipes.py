"""Every published recipe trains: some steps on the generated sample lower its loss."""

from dataclasses import replace
from itertools import count, islice

import numpy as np
import pyarrow.parquet as pq
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import WordConfig
from paraembed.pairs.parse import parse_source
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings
from paraembed.papers import RECIPES
from paraembed.text.vocabulary import Words, read_words
from paraembed.training.pairs import epoch_batches, pairs_to_ids
from paraembed.training.step import step_for

STEPS, BATCHES = 12, 3
OF_GRU = 3, 2  # 128 texts of width 200 a step take seconds


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The sample's word vectors, its pairs, and those of one word each."""
    folder = tmp_path_factory.mktemp("sample")
    files = write_sample(folder, lines=10_000, dimension=20, sentences=1, test_pairs=10, ppdb_version="2.0")
    parse_source(files.ppdb_2, "sample", ShardSettings(), folder / "pairs.parquet")
    words = read_words(files.vectors)
    pairs = pairs_to_ids([pq.read_table(folder / "pairs.parquet")], words.vocabulary)
    single = np.flatnonzero((pairs.lengths.reshape(-1, 2) == 1).all(axis=1))
    return words, pairs, pairs.take(np.stack([2 * single, 2 * single + 1], axis=1).reshape(-1))


@pytest.mark.parametrize(
    "name",  # a GRU of phrases takes 5 s
    [pytest.param(name, marks=pytest.mark.slow if "/gru-" in name else ()) for name in RECIPES],
)
def test_a_published_recipe_lowers_its_loss(name, sample):
    recipe, (words, pairs, word_pairs) = RECIPES[name], sample
    pairs = word_pairs if isinstance(recipe.encoder, WordConfig) else pairs
    encoder = Encoder(recipe.encoder, Words(words.vocabulary, words.matrix.copy()), recipe.tokenizer, recipe.seed)
    steps, num_batches = OF_GRU if name.startswith("pgru2017/") else (STEPS, BATCHES)
    # Without dropout and scrambling; the rate is too small to change the encoder.
    off = {"dropout": 0.0, "word_dropout": 0.0, "scramble": 0.0, "encoder_learning_rate": None}

    def losses(recipe, first_epoch, most):
        step, of_pairs = step_for(encoder, recipe, pairs), {"seed": recipe.seed, "batch_size": recipe.batch_size}
        batches = (batch for epoch in count(first_epoch) for batch in epoch_batches(pairs, epoch=epoch, **of_pairs))
        return [float(step(batch, number)[0]) for number, batch in enumerate(islice(batches, most), 1)]

    def loss():
        return np.mean(losses(replace(recipe, learning_rate=1e-30, **off), 99, num_batches))

    before = loss()
    losses(recipe, 0, steps)
    assert loss() < before
