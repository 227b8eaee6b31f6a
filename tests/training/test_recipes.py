"""Every published recipe trains: 50 steps on the generated sample lower its loss."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from paraembed.data.sample import write_sample
from paraembed.data.shards import ShardSettings, parse_source
from paraembed.encoders import Encoder
from paraembed.encoders.word import WordConfig
from paraembed.papers import RECIPES
from paraembed.ragged import Ragged
from paraembed.training.pairs import epoch_batches, pairs_to_ids
from paraembed.training.step import Step
from paraembed.words import Words, read_words

STEPS = 50


@dataclass(frozen=True)
class Sample:
    """The sample's word vectors, its pairs, and those of one word each."""

    words: Words
    pairs: Ragged
    word_pairs: Ragged


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    folder = tmp_path_factory.mktemp("sample")
    files = write_sample(folder, lines=10_000, dimension=20, sentences=1, test_pairs=10, ppdb_version="2.0")
    parse_source(files.ppdb_2, "sample", ShardSettings(), folder / "pairs.parquet")
    words = read_words(files.vectors)
    pairs = pairs_to_ids([pq.read_table(folder / "pairs.parquet")], words.vocabulary)
    single = np.flatnonzero((pairs.lengths.reshape(-1, 2) == 1).all(axis=1))
    return Sample(words, pairs, pairs.take(np.stack([2 * single, 2 * single + 1], axis=1).reshape(-1)))


@pytest.mark.parametrize("name", RECIPES)
def test_a_published_recipe_lowers_its_loss(name: str, sample: Sample) -> None:
    recipe = RECIPES[name]
    pairs = sample.word_pairs if isinstance(recipe.encoder, WordConfig) else sample.pairs
    words = Words(sample.words.vocabulary, sample.words.matrix.copy())
    encoder = Encoder(recipe.encoder, words, recipe.tokeniser, recipe.seed)
    step = Step(encoder, recipe, pairs)
    losses: list[float] = []
    epoch = 0
    while len(losses) < STEPS:
        for batch in epoch_batches(pairs, epoch=epoch, seed=recipe.seed, batch_size=recipe.batch_size):
            losses.append(float(step(batch, len(losses) + 1)[0]))
        epoch += 1
    assert np.isfinite(losses).all()
    assert np.mean(losses[STEPS - 10 : STEPS]) < np.mean(losses[:10])
