"""Row-sparse training against the papers' dense one: on a generated sample; on real pairs and test sets (minutes)."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import read_pairs_files, read_sts
from paraembed.pairs.formats import Reading, read_pairs
from paraembed.pairs.sample import write_sample
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


@pytest.fixture(params=["generated", "published"])
def data(request, tmp_path):
    """Files of pairs, word vectors, test sets, the name of their score, and the number of epochs."""
    if request.param == "published":
        if not WORDS.exists():
            pytest.skip("the shared data are not here")
        return PAIRS, WORDS, read_sts(SHARED / "eval/sts"), "sts/mean", 1
    files = write_sample(tmp_path, lines=20_000, sentences=0, dimension=50, ppdb_version="2.0")
    return [files.ppdb_2], files.vectors, read_pairs_files([files.test_pairs]), "pairs/test-pairs", 10


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_both_reach_the_same_score(optimizer, data):
    """Dense Adam and λ_w on every row, as printed, against moments and λ_w on the rows a batch touches: 0.3 points."""
    pair_files, vectors, suite, name, epochs = data
    rate = 0.001 if optimizer == "adam" else 0.05
    recipe = Recipe(learning_rate=rate, epochs=epochs, word_l2=1e-5, optimizer=optimizer)
    words = read_words(vectors, None)
    rows = [block.pairs for path in pair_files for block in read_pairs(path, Reading())]
    blocks = [
        pa.table({"first": tokenized(one.first), "second": tokenized(one.second)}).filter(one.refused.is_null())
        for one in rows
    ]
    pairs = pairs_to_ids(blocks, words.vocabulary)
    candidates = []
    for update in ("untrained", "sparse", "dense"):
        encoder = Encoder(recipe.encoder, read_words(vectors, None), "ptb-v1")
        if update != "untrained":
            train(encoder, pairs, replace(recipe, update=update))
        candidates.append(Candidate(update, update, encoder))
    report = compare(candidates, [suite])
    means = [next(score for score in column.scores if score.name == name) for column in report.columns]
    untrained, sparse, dense = (100 * mean.pearson for mean in means)
    assert dense > untrained + 2
    assert sparse == pytest.approx(dense, abs=0.3)
