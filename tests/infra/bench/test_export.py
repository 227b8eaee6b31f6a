"""The benchmark of exports: peers compute in processes of their own, and a difference is seen."""

import numpy as np
import pytest

from infra.bench.command import parse
from infra.bench.export import run, share_of_equal_tops


@pytest.mark.slow
def test_every_format_of_an_encoder_is_compared(tmp_path):
    for name in ("sentence_transformers", "model2vec", "onnx", "onnxruntime"):
        pytest.importorskip(name)
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat .\na dog ran home , the cat did not .\n" * 10)
    measured = {}
    flags = ["--rows", "20", "--width", "4", "--rounds", "1", "--encoders", "dan"]
    numbers = run(parse(["export", "--texts", str(texts), *flags]), measured.update)
    assert [row["format"] for row in numbers["rows"]] == ["sentence-transformers", "model2vec", "onnx"]
    assert "error" in numbers["rows"][1]
    assert all(row["equal_ids"] == row["equal_top"] == 1 for row in numbers["rows"] if "error" not in row)
    assert measured["dan/onnx/largest_difference"] < 1e-5


def test_other_vectors_have_other_neighbors():
    vectors = np.random.default_rng(0).standard_normal((50, 4), np.float32)
    assert share_of_equal_tops(vectors, vectors * 2) == 1
    assert share_of_equal_tops(vectors, vectors[::-1]) < 0.1
