"""Static models: their own libraries compute the vectors of the encoder, in a process without paraembed."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder, config_from_dict
from paraembed.encoders.configs import AvgConfig
from paraembed.export.folder import write_folder
from paraembed.export.smaller import averaged, pruned, token_counts
from paraembed.loading import open_encoder
from paraembed.settings import SHIPPED_FOLDER
from paraembed.text import NORMALIZED
from paraembed.text.subword import vocabulary_of, without_ends
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from tests.encoders.models import subword_tokenizer
from tests.jobs import digests

TEXTS = [
    *("The cat's on the mat, isn't it?", "zebra", "", " \u00a0 ", "the", "cat cat cat zebra", UNKNOWN, "İ THE"),
    *(" ".join(["the cat on a mat"] * 20), "中 THE 中 cat"),
    *("ｔｈｅ ｃａｔ", "c\u00adat \u200bthe", "a\u0301 e\u0301", "1½ \ufb01le №"),
]
CODE = {
    "sentence-transformers": "from sentence_transformers import SentenceTransformer as Model; make = Model",
    "model2vec": "from model2vec import StaticModel as Model; make = Model.from_pretrained",
}
LOADED = """
import json, sys
import numpy as np
{}
texts = json.load(sys.stdin)
for name in map(str, range(int(sys.argv[1]))):
    np.save(name, make(name).encode(texts))
assert "paraembed" not in sys.modules
"""
ENCODERS = [
    {"name": "avg"},
    {"name": "scaled_avg"},
    {"name": "word"},
    {"name": "proj", "width": 3},
    {"name": "dan", "layers": 3, "activation": "tanh", "width": 5},
    {"name": "dan", "layers": 1, "activation": "relu"},
]


KINDS = ["bytes", "unigram", "cased"]


def encoder_of(config, tokenizer="ptb-v1", **options):
    """Encoder whose parameters are all random."""
    vocabulary = pa.array(["the", "cat", "'s", "on", UNKNOWN, "mat", ",", "a", "中", START, END, ""])
    rng = np.random.default_rng(len(config["name"]))
    matrix = rng.standard_normal((len(vocabulary), 4), np.float32)
    encoder = Encoder(config_from_dict(config), Words(vocabulary, matrix), tokenizer, **options)
    for parameter in encoder.composition.parameters():
        parameter.data.copy_(parameter.data.new_tensor(rng.standard_normal(parameter.shape)))
    return encoder.requires_grad_(False).eval()


def with_own_tokenizer(kind):
    tokenizer = without_ends(subword_tokenizer(kind).to_str().encode())
    words = vocabulary_of(tokenizer)
    matrix = np.random.default_rng(0).standard_normal((len(words), 4), np.float32)
    return Encoder(AvgConfig(), Words(words, matrix), tokenizer, max_tokens=40).requires_grad_(False).eval()


def check_loaded(to, encoders, folder):
    """That the library computes the vectors of the encoders, in a process of its own."""
    pytest.importorskip(to.replace("-", "_"))
    for number, encoder in enumerate(encoders):
        write_folder(encoder, to, folder / str(number))
    code = [sys.executable, "-W", "ignore", "-c", LOADED.format(CODE[to]), str(len(encoders))]
    subprocess.run(code, input=json.dumps(TEXTS), text=True, check=True, cwd=folder, capture_output=True)
    for number, encoder in enumerate(encoders):
        vectors = np.load(folder / f"{number}.npy")
        np.testing.assert_allclose(vectors, encoder.encode(TEXTS), rtol=1e-6, atol=1e-6, err_msg=encoder.config.name)
        assert vectors[1].any() or to != "model2vec"  # OOV tokens count
        assert not vectors[2].any()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_ids")
def test_sentence_transformers_computes_the_same_vectors(tmp_path):
    cut, same = (encoder_of({"name": "avg"}, tokenizer, max_tokens=3) for tokenizer in ("ptb-v1", "ptb-v1+nfkc"))
    assert np.array_equal(same.encode(["ｔｈｅ ｃａｔ"]), same.encode(["the cat"]))
    check_loaded(
        "sentence-transformers", [cut, same, *map(encoder_of, ENCODERS), *map(with_own_tokenizer, KINDS)], tmp_path
    )


@pytest.mark.usefixtures("unchecked_ids")
def test_model2vec_computes_the_same_vectors_of_unknown_words_too(tmp_path):
    static = [encoder_of(config, "space") for config in ENCODERS if config["name"] in {"avg", "scaled_avg", "proj"}]
    static += [encoder_of({"name": "avg"}, f"ptb-v1+{form}") for form in NORMALIZED]
    check_loaded("model2vec", [*static, checkpoint.load(SHIPPED_FOLDER)], tmp_path)


@pytest.mark.usefixtures("unchecked_ids")
@pytest.mark.parametrize(
    ("config", "options", "to", "message"),
    [
        ({"name": "lstm"}, {}, "sentence-transformers", "vector of lstm depends on the order .* `to` onnx"),
        ({"name": "cnn"}, {}, "model2vec", "vector of cnn is a maximum"),
        ({"name": "avg"}, {"bos_eos_tokens": "both"}, "sentence-transformers", r"adds BOS/EOS tokens \(both\)"),
        ({"name": "dan"}, {}, "model2vec", "has layers on the mean, .* `to` sentence-transformers"),
        ({"name": "avg"}, {"max_tokens": 9}, "model2vec", "has at most 9 tokens per text"),
    ],
)
def test_what_a_library_cannot_compute_is_refused(config, options, to, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_folder(encoder_of(config, **options), to, tmp_path / "model")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", KINDS)
def test_encoders_with_a_tokenizer_of_their_own(kind, tmp_path):
    encoder = with_own_tokenizer(kind)
    write_folder(encoder, "onnx", tmp_path / "onnx")
    loaded = open_encoder(f"onnx:{tmp_path / 'onnx'}")
    np.testing.assert_allclose(loaded.embed(pa.array(TEXTS)).vectors, encoder.encode(TEXTS), rtol=0, atol=1e-5)
    encoder.max_tokens = None
    with pytest.raises(ValueError, match=r"model2vec leaves out OOV .*`to` sentence-transformers"):
        write_folder(encoder, "model2vec", tmp_path / "out")
    texts = pa.array(["the cat sat", "Katze"])
    smaller = pruned(encoder, token_counts(encoder, lambda: iter([texts])), 3)
    assert len(smaller.vocabulary) == 4
    assert token_counts(smaller, lambda: iter([texts])).sum() == token_counts(encoder, lambda: iter([texts])).sum()
    with pytest.raises(ValueError, match=r"lacks pieces of its tokenizer.json"):
        write_folder(smaller, "onnx", tmp_path / "out")
    if kind == "cased":
        folded = json.loads(encoder.tokenizer.contents) | {"normalizer": {"type": "Lowercase"}}
        words = Words(encoder.vocabulary, encoder.matrix.numpy())
        other = Encoder(AvgConfig(), words, without_ends(json.dumps(folded).encode()))
        with pytest.raises(ValueError, match=r"b differs from a in tokenizer.json"):
            averaged([encoder, other], ["a", "b"])


def test_the_bytes_depend_only_on_the_encoder(tmp_path):
    for name in ("a", "b"):
        write_folder(encoder_of({"name": "dan", "layers": 2}), "sentence-transformers", tmp_path / name)
    files = digests(tmp_path / "a", "**/*")
    assert len(files) == 9
    assert files == digests(tmp_path / "b", "**/*")
