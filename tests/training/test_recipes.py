"""Every published recipe trains: some steps on the generated sample lower its loss."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import WordConfig
from paraembed.pairs.parse import parse_source
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings
from paraembed.papers import RECIPES
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words, read_words
from paraembed.training.pairs import epoch_batches, pairs_to_ids
from paraembed.training.step import step_for

STEPS, BATCHES = 20, 5
OF_GRU = 5, 3  # 128 texts of width 200 a step take seconds


@dataclass(frozen=True)
class Sample:
    """The sample's word vectors, its pairs, and those of one word each."""

    words: Words
    pairs: Ragged
    word_pairs: Ragged


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    files = write_sample(folder, lines=10_000, dimension=20, sentences=1, test_pairs=10, ppdb_version="2.0")
    parse_source(files.ppdb_2, "sample", ShardSettings(), folder / "pairs.parquet")
    words = read_words(files.vectors)
    pairs = pairs_to_ids([pq.read_table(folder / "pairs.parquet")], words.vocabulary)
    single = np.flatnonzero((pairs.lengths.reshape(-1, 2) == 1).all(axis=1))
    return Sample(words, pairs, pairs.take(np.stack([2 * single, 2 * single + 1], axis=1).reshape(-1)))


def loss_of(encoder, recipe, pairs, num_batches):
    """Mean loss of some batches without dropout and scrambling; the rate is too small to change the encoder."""
    still = replace(
        recipe, dropout=0.0, word_dropout=0.0, scramble=0.0, learning_rate=1e-30, encoder_learning_rate=None
    )
    step = step_for(encoder, still, pairs)
    batches = list(epoch_batches(pairs, epoch=99, seed=recipe.seed, batch_size=recipe.batch_size))[:num_batches]
    return float(np.mean([float(step(batch, number)[0]) for number, batch in enumerate(batches, 1)]))


@pytest.mark.parametrize(
    "name",  # a GRU of phrases takes 5 s
    [pytest.param(name, marks=pytest.mark.slow if "/gru-" in name else ()) for name in RECIPES],
)
def test_a_published_recipe_lowers_its_loss(name, sample):
    recipe = RECIPES[name]
    pairs = sample.word_pairs if isinstance(recipe.encoder, WordConfig) else sample.pairs
    words = Words(sample.words.vocabulary, sample.words.matrix.copy())
    encoder = Encoder(recipe.encoder, words, recipe.tokenizer, recipe.seed)
    steps, num_batches = OF_GRU if name.startswith("pgru2017/") else (STEPS, BATCHES)
    before = loss_of(encoder, recipe, pairs, num_batches)
    step, number = step_for(encoder, recipe, pairs), 0
    while number < steps:
        for batch in epoch_batches(pairs, epoch=number, seed=recipe.seed, batch_size=recipe.batch_size):
            number += 1
            step(batch, number)
            if number == steps:
                break
    assert loss_of(encoder, recipe, pairs, num_batches) < before
