"""Compile the loops of all jobs in advance: ``python infra/warm.py``, a step of the Dockerfile.

The machine code is cached in ``NUMBA_CACHE_DIR``, for the processor it was compiled on. On another processor, each loop
is compiled at its first call, and also cached if the folder is writable.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.evaluation.measures import resampled_correlations
from paraembed.pairs.deduplicate import find_repeats
from paraembed.pairs.parse import parse_source, partitions_of
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings
from paraembed.papers import RECIPES
from paraembed.text import TOKENIZERS
from paraembed.text.trees import parse_trees
from paraembed.text.vocabulary import Words, read_words
from paraembed.training.pairs import pairs_to_ids
from paraembed.training.step import step_for


def warm(folder: Path) -> None:
    """Call each loop on a small sample, like the jobs do."""
    files = write_sample(folder, lines=2000, dimension=20, sentences=200, test_pairs=10, pairs=200)
    for number, path in enumerate((files.ppdb_1, files.ppdb_2, files.pairs)):
        assert path is not None
        parsed = folder / f"{number}.parquet"
        parse_source(path, path.name, ShardSettings(), parsed, partitions=2)
        find_repeats([partitions_of(parsed)], 0, 2, [0])
    parse_trees(pa.array(["((a b) c)"]), np.array([3]))
    words = read_words(files.vectors)
    pairs = pairs_to_ids([pq.read_table(folder / "1.parquet")], words.vocabulary)
    for recipe in RECIPES.values():
        encoder = Encoder(recipe.encoder, Words(words.vocabulary, words.matrix.copy()), recipe.tokenizer, recipe.seed)
        step = step_for(encoder, recipe, pairs)
        step(next(step.batches(pairs, 0)), 1)
    texts = files.sentences.read_text().splitlines()
    for tokenizer in TOKENIZERS:
        Encoder(RECIPES["iclr2016/avg"].encoder, words, tokenizer).encode(texts)
    (folder / "t.csv").write_text("".join(f'"{text}"\n' for text in ["text", *texts]))
    make_plan(hash_inputs(find_inputs([folder / "t.csv"])), Settings("text"))
    resampled_correlations(np.arange(10.0), np.arange(10.0), 10, "warm")


if __name__ == "__main__":
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        warm(Path(place))
    sys.stdout.write(f"compiled in {time.perf_counter() - started:.0f} s\n")
