from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.recipe import Recipe
from paraembed.training.inputs import untrained_encoder
from paraembed.words import END, START


@pytest.mark.parametrize("has_ends", [True, False])
def test_boundary_words_take_the_files_vectors_or_random_ones(tmp_path: Path, has_ends: bool) -> None:
    pq.write_table(pa.table({"first": ["a b"], "second": ["b"]}), tmp_path / "pairs.parquet")
    ends = "<s> 7 8\n</S> 9 10\n" if has_ends else ""
    (tmp_path / "words.txt").write_text(f"a 1 2\n{ends}b 3 4\n")
    shards = {"shards": [{"name": "pairs.parquet"}]}
    recipe = Recipe(boundary_tokens="both", max_tokens=9)
    encoder, _ = untrained_encoder(tmp_path / "words.txt", tmp_path, shards, recipe)
    assert (encoder.boundary_tokens, encoder.max_tokens) == ("both", 9)
    rows = {word: encoder.matrix[row].tolist() for row, word in enumerate(encoder.vocabulary.to_pylist())}
    assert ([rows[START], rows[END]] == [[7, 8], [9, 10]]) == has_ends
    a, both = encoder.encode(["a"])[0], np.array([rows[START], [1, 2], rows[END]])
    np.testing.assert_allclose(a, both.mean(axis=0), rtol=1e-6)
