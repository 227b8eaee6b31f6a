"""Row-sparse training against the papers' dense one, on real pairs and real test sets (minutes)."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import read_sts
from paraembed.pairs.formats import Reading, read_pairs
from paraembed.recipe import Recipe
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import read_words
from paraembed.training.loop import train
from paraembed.training.pairs import pairs_to_ids

SHARED = Path(__file__).parents[3] / "shared/data"
PAIRS = [SHARED / "train/sentpairs" / name for name in ("qcpg.parabk2.validation.csv.gz", "parasci.ACL.train.tsv.gz")]
WORDS = SHARED / "train/vectors/word2vec-googlenews-300d.subset-8000.txt.gz"


def tokenized(texts):
    tokens = tokenize(texts, "ptb-v1")
    return pa.array(
        [" ".join(words) for words in pa.LargeListArray.from_arrays(tokens.offsets, tokens.flat).to_pylist()]
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.skipif(not WORDS.exists(), reason="the shared data are not here")
def test_both_reach_the_same_sts_score(optimizer):
    """Dense Adam and λ_w on every row, as printed, against moments and λ_w on the rows a batch touches: 0.3 points."""
    recipe = Recipe(learning_rate=0.001 if optimizer == "adam" else 0.05, epochs=1, word_l2=1e-5, optimizer=optimizer)
    words = read_words(WORDS, None)
    rows = [block.pairs for path in PAIRS for block in read_pairs(path, Reading())]
    blocks = [
        pa.table({"first": tokenized(one.first), "second": tokenized(one.second)}).filter(one.refused.is_null())
        for one in rows
    ]
    pairs = pairs_to_ids(blocks, words.vocabulary)
    suite = read_sts(SHARED / "eval/sts")
    candidates = []
    for update in ("untrained", "sparse", "dense"):
        encoder = Encoder(recipe.encoder, read_words(WORDS, None), "ptb-v1")
        if update != "untrained":
            train(encoder, pairs, replace(recipe, update=update))
        candidates.append(Candidate(update, update, encoder))
    report = compare(candidates, [suite])
    means = [next(score for score in column.scores if score.name == "sts/mean") for column in report.columns]
    untrained, sparse, dense = (100 * mean.pearson for mean in means)
    assert dense > untrained + 2
    assert sparse == pytest.approx(dense, abs=0.3)
