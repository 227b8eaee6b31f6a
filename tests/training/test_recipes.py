"""Every published recipe lowers its loss in a few steps; row-sparse against dense training, on real pairs too."""

from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import WordConfig
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import read_sts
from paraembed.pairs.formats import Reading, read_pairs
from paraembed.pairs.parse import parse_source
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings
from paraembed.papers import RECIPES
from paraembed.recipe import Recipe
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import Words, read_words
from paraembed.training.loop import train
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


QUICK = {"tacl2015/word-constraints", "iclr2016/proj", "acl2017/gran"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RECIPES]
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


SHARED = Path(__file__).parents[3] / "shared/data"
PAIRS = [SHARED / "train/sentpairs" / name for name in ("qcpg.parabk2.validation.csv.gz", "parasci.ACL.train.tsv.gz")]
WORDS = SHARED / "train/vectors/word2vec-googlenews-300d.subset-8000.txt.gz"


def tokenized(texts):
    tokens = tokenize(texts, "ptb-v1")
    return pa.array(
        [" ".join(words) for words in pa.LargeListArray.from_arrays(tokens.offsets, tokens.flat).to_pylist()]
    )


@pytest.mark.slow
@pytest.mark.skipif(not WORDS.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.001), ("adagrad", 0.05)])
def test_both_reach_the_same_score(optimizer, rate):
    """Dense Adam and λ_w on every row, as printed, against moments and λ_w on the rows a batch touches: 0.3 points."""
    recipe = Recipe(learning_rate=rate, epochs=1, word_l2=1e-5, optimizer=optimizer)
    words = read_words(WORDS, None)
    rows = [block.pairs for path in PAIRS for block in read_pairs(path, Reading())]
    blocks = [
        pa.table({"first": tokenized(one.first), "second": tokenized(one.second)}).filter(one.refused.is_null())
        for one in rows
    ]
    pairs = pairs_to_ids(blocks, words.vocabulary)
    candidates = []
    for update in ("untrained", "sparse", "dense"):
        encoder = Encoder(recipe.encoder, read_words(WORDS, None), "ptb-v1")
        if update != "untrained":
            train(encoder, pairs, replace(recipe, update=update))
        candidates.append(Candidate(update, update, encoder))
    report = compare(candidates, [read_sts(SHARED / "eval/sts")])
    means = [next(score for score in column.scores if score.name == "sts/mean") for column in report.columns]
    untrained, sparse, dense = (100 * mean.pearson for mean in means)
    assert dense > untrained + 2
    assert sparse == pytest.approx(dense, abs=0.3)
