"""The Python blocks of docs/python.md run, one after the other."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.docs.pages import blocks

WIDTH = 300


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vocabulary = [UNKNOWN, *["how", "do", "i", "control", "my", "thoughts", "can", "a", "cat", "sat", "one", "text"]]
    matrix = np.random.default_rng(0).standard_normal((len(vocabulary), WIDTH), dtype=np.float32)
    encoder = Encoder(AvgConfig(), Words(pa.array(vocabulary), matrix), "ptb-v1")
    checkpoint.save(encoder, tmp_path / "encoder", recipe={}, provenance={}, model_card="tiny\n")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), WIDTH)
    (tmp_path / "embeddings").mkdir()
    pq.write_table(
        pa.table({"row": range(len(matrix)), "embedding": vectors}), tmp_path / "embeddings" / "part.parquet"
    )
    names = {}
    for block in blocks("docs/python.md", "python"):
        exec(block, names)
    assert names["vectors"].shape == (2, WIDTH)
    assert names["cosines"].shape == (2, 2)
    assert names["embedded"].num_tokens.tolist() == [3, 1, 0]
    assert names["embedded"].num_unknown.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(names["matrix"], matrix)
