"""ONNX graphs: ONNX Runtime computes the vectors of every encoder."""

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import ENCODERS
from paraembed.export.folder import write_folder
from paraembed.loading import open_encoder
from tests.export.test_static import TEXTS, encoder_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("unchecked_ids")
OPTIONS = {
    "proj": [{"width": 3}],
    "dan": [{"layers": 3, "width": 5}, {"activation": "relu"}],
    "rnn": [{"width": 3}, {"activation": "relu"}],
    "lstm": [{"width": 3}, {"peepholes": False}, {"output_gate": False}, {"output_gate": False, "peepholes": False}],
    "bilstm": [{"width": 3}, {"combine": "tanh"}],
    "bilstm_avg": [{"width": 5, "combine": "tanh", "output_gate": False}],
    "gran5": [{}, {"state": "last"}],
    "gran_nogate": [{"activation": "tanh"}, {"activation": "relu"}],
    "bigran": [{}, {"combine": "tanh"}],
    "gru": [{"width": 3}, {"bias": True}],
    "cnn": [{"filters": 7}],
}
CONFIGS = [{"name": name, **options} for name in ENCODERS for options in OPTIONS.get(name, [{}])]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: "-".join(map(str, config.values())))
def test_the_same_vectors(config, tmp_path):
    encoder = encoder_of(config, max_tokens=90, bos_eos_tokens="both" if len(config) == 1 else "none")
    if config["name"] == "recursive":
        with pytest.raises(ValueError, match=r"recursive reads a parse tree .*`to` word2vec"):
            write_folder(encoder, "onnx", tmp_path / "model")
        return
    write_folder(encoder, "onnx", tmp_path / "model")
    exported, expected = open_encoder(f"onnx:{tmp_path / 'model'}"), encoder.embed(pa.array(TEXTS))
    embedded = exported.embed(pa.array(TEXTS))
    scale = max(1, np.abs(expected.vectors).max())
    np.testing.assert_allclose(embedded.vectors, expected.vectors, rtol=0, atol=1e-5 * scale)
    np.testing.assert_array_equal(embedded.num_tokens, expected.num_tokens)
    np.testing.assert_array_equal(embedded.num_unknown, expected.num_unknown)
    assert (exported.width, exported.max_tokens, embedded.num_cut) == (encoder.width, 90, expected.num_cut)


@pytest.mark.parametrize("name", ["avg", "lstm", "gran4", "cnn"])
def test_texts_without_tokens_and_any_padding(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    write_folder(encoder_of({"name": name}), "onnx", tmp_path / "model")
    session = runtime.InferenceSession(tmp_path / "model" / "model.onnx")

    def vectors(ids, mask):
        feed = {"input_ids": np.array(ids, np.int64), "attention_mask": np.array(mask, np.int64)}
        return session.run(None, feed)[0]

    assert not vectors(np.empty((2, 0)), np.empty((2, 0))).any()
    padded = vectors([[3, 1, 0, 5], [0, 0, 0, 0]], [[1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(padded[0], vectors([[3, 1]], [[1, 1]])[0], rtol=0, atol=1e-6)
    assert not padded[1].any()


def test_opset_and_bytes(tmp_path):
    for name in ("a", "b"):
        write_folder(encoder_of({"name": "gran4"}), "onnx", tmp_path / name)
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (tmp_path / "b" / "model.onnx").read_bytes()
    model = onnx.load(tmp_path / "a" / "model.onnx")
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
