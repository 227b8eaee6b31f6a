"""Out-of-vocabulary tokens: one vector for all, a hashed one for each type, or none."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.encoders import Encoder, base
from paraembed.encoders.configs import AvgConfig, LstmAvgConfig, RecursiveConfig, ScaledAvgConfig, SumConfig
from paraembed.text import tokens
from paraembed.text.oov import codes_of, hashed_vectors
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import UNKNOWN, Words

WIDTH = 70
MATRIX = np.random.default_rng(0).standard_normal((4, WIDTH), dtype=np.float32)
VOCABULARY = pa.array(["cat", UNKNOWN, "dog", "."])
TEXTS = ["a cat naps .", "cat dog cat dog cat zzzz dog", "naps", "", "Internationalization (naps)", "cat dog . . cat"]


def encoder(oov, config=None, tokenizer="ptb-v1"):
    return Encoder(config or AvgConfig(), Words(VOCABULARY, MATRIX.copy()), tokenizer, oov=oov).requires_grad_(False)


def expected(text, mean=True):
    """The vector of a text in plain NumPy, with codes computed from Python's bytes."""
    rows = []
    for token in tokenize(pa.array([text]), "ptb-v1").flat.to_pylist():
        row = VOCABULARY.to_pylist().index(token) if token in VOCABULARY.to_pylist() else None
        rows.append(MATRIX[row] if row is not None else plain_vector(token))
    return (np.mean(rows, axis=0) if mean else np.sum(rows, axis=0)) if rows else np.zeros(WIDTH)


def mixed(bits):
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def plain_vector(token):
    code = 0xCBF29CE484222325
    for octet in token.encode():
        code = (code ^ octet) * 0x100000001B3 % 2**64
    seed = (1 + (mixed(code) >> 33)) * 0x9E3779B97F4A7C15 % 2**64
    signs = []
    for first in range(0, WIDTH, 64):
        bits = mixed((seed + (first + 1) * 0x94D049BB133111EB) % 2**64)
        signs += [1 if bits >> place & 1 else -1 for place in range(64)]
    return np.array(signs[:WIDTH]) * np.linalg.norm(MATRIX[1]) / WIDTH**0.5


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("config", [AvgConfig(), SumConfig(), ScaledAvgConfig()], ids=lambda config: config.name)
def test_each_type_has_its_hashed_vector(config, compiled, monkeypatch):
    for module in (tokens, base):
        monkeypatch.setattr(module, "COMPILED", compiled and module.COMPILED)
    embedded = encoder("hashed", config).embed(pa.array(TEXTS))
    np.testing.assert_allclose(
        embedded.vectors, [expected(text, config.name != "sum") for text in TEXTS], rtol=1e-5, atol=1e-6
    )
    assert embedded.num_tokens.tolist() == [4, 7, 1, 0, 4, 5]
    assert embedded.num_unknown.tolist() == [2, 1, 1, 0, 4, 0]


def test_shared_and_dropped_tokens():
    shared, dropped = encoder("shared").embed(pa.array(TEXTS)), encoder("drop").embed(pa.array(TEXTS))
    assert shared.num_unknown.tolist() == dropped.num_unknown.tolist() == [2, 1, 1, 0, 4, 0]
    assert dropped.num_tokens.tolist() == [4, 7, 1, 0, 4, 5]
    np.testing.assert_allclose(shared.vectors[2], MATRIX[1])
    np.testing.assert_allclose(dropped.vectors[0], MATRIX[[0, 3]].mean(0), rtol=1e-6)
    assert not dropped.vectors[[2, 3, 4]].any()
    np.testing.assert_array_equal(dropped.vectors[5], shared.vectors[5])


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_loops_and_definition_give_the_same_codes(texts):
    ids = tokens.TokenIds(VOCABULARY, "ptb-v1", hashes_unknown=True)
    found = ids(pa.array(texts, pa.string()))
    flat = tokenize(pa.array(texts, pa.string()), "ptb-v1").flat.to_pylist()
    known = {"cat": 0, "dog": 2, ".": 3}
    assert found.ids.tolist() == [known[word] if word in known else codes_of(pa.array([word]))[0] for word in flat]
    assert all(row < 0 for row, word in zip(found.ids, flat, strict=True) if word not in known)


def test_directions_are_spread():
    vectors = hashed_vectors(codes_of(pa.array([f"word{number}" for number in range(400)])), 3.0, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 3, rtol=1e-5)
    cosines = vectors @ vectors.T / 9
    np.fill_diagonal(cosines, 0)
    assert np.abs(cosines).max() < 6 / 384**0.5
    assert cosines.std() == pytest.approx(384**-0.5, rel=0.05)


def test_folders_of_shared_tokens_do_not_change(tmp_path):
    prints = {}
    for oov in ("shared", "hashed", "drop"):
        checkpoint.save(encoder(oov), tmp_path / oov, recipe={}, provenance={}, model_card="")
        loaded = checkpoint.load(tmp_path / oov)
        assert loaded.oov == oov
        assert loaded.packed().encoder().oov == oov
        assert loaded.encode(TEXTS).tobytes() == encoder(oov).encode(TEXTS).tobytes()
        prints[oov] = loaded.fingerprint
    assert "oov" not in checkpoint.read_config(tmp_path / "shared")
    assert len(set(prints.values())) == 3
    path = tmp_path / "hashed" / "config.json"
    path.write_text(path.read_text().replace('"oov": "hashed"', '"oov": "drop"'))
    with pytest.raises(ValueError, match="does not match its fingerprint"):
        checkpoint.load(tmp_path / "hashed")


def test_what_cannot_be_hashed():
    with pytest.raises(ValueError, match="`oov` is drop, but recursive with the tokenizer space has only shared"):
        encoder("drop", RecursiveConfig(), "space")
    with pytest.raises(ValueError, match="`oov` is hashed, but avg with the tokenizer wordpiece has only shared"):
        encoder("hashed", tokenizer="wordpiece")
    texts = ["naps", "zzzz"]
    first, second = encoder("hashed", LstmAvgConfig()).encode(texts)
    assert np.abs(first - second).max() > 1e-3
