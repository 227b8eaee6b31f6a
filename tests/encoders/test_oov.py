"""Out-of-vocabulary tokens: one vector for all, a hashed one or one of pieces for each type, or none."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, LstmAvgConfig, RecursiveConfig, ScaledAvgConfig, SumConfig
from paraembed.recipe import Recipe
from paraembed.text import tokens
from paraembed.text.oov import hashed_vectors, oov_code
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.initial import initial_words

WIDTH = 70
MATRIX = np.random.default_rng(0).standard_normal((4, WIDTH), dtype=np.float32)
VOCABULARY = pa.array(["cat", UNKNOWN, "dog", "."])
TEXTS = ["a cat naps .", "cat dog cat dog cat zzzz dog", "naps", "", "Internationalization (naps)", "cat dog . . cat"]


PIECES = ["nap", "##s", UNKNOWN, "(", ")", "inter", "##nation", "##al", "##ization", "a"]
PIECE_MATRIX = np.random.default_rng(1).standard_normal((len(PIECES), WIDTH), dtype=np.float32)


def pieces_of(**options):
    return Encoder(AvgConfig(), Words(pa.array(PIECES), PIECE_MATRIX.copy()), "wordpiece", **options)


def encoder(oov, config=None, tokenizer="ptb-v1", **more):
    options = {"oov": oov, "pieces": pieces_of() if oov == "pieces" else None, **more}
    return Encoder(config or AvgConfig(), Words(VOCABULARY, MATRIX.copy()), tokenizer, **options).requires_grad_(False)


def vector_of_pieces(token):
    divided = {"naps": [0, 1], "internationalization": [5, 6, 7, 8], "a": [9], "(": [3], ")": [4], "zzzz": [2]}
    mean = PIECE_MATRIX[divided[token]].astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean) * np.linalg.norm(MATRIX[1])


def expected(text, mean=True, oov="hashed"):
    """The vector of a text in plain NumPy, with codes computed from Python's bytes."""
    rows = []
    for token in tokenize(pa.array([text]), "ptb-v1").flat.to_pylist():
        row = VOCABULARY.to_pylist().index(token) if token in VOCABULARY.to_pylist() else None
        of_type = vector_of_pieces if oov == "pieces" else plain_vector
        rows.append(MATRIX[row] if row is not None else of_type(token))
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


@pytest.mark.parametrize("oov", ["hashed", "pieces"])
@pytest.mark.parametrize("config", [AvgConfig(), SumConfig(), ScaledAvgConfig()], ids=lambda config: config.name)
def test_each_type_has_its_own_vector(config, oov):
    embedded = encoder(oov, config).embed(pa.array(TEXTS))
    np.testing.assert_allclose(
        embedded.vectors, [expected(text, config.name != "sum", oov) for text in TEXTS], rtol=1e-5, atol=1e-6
    )
    one_by_one = [encoder(oov, config).encode(text) for text in TEXTS]
    assert oov == "hashed" or embedded.vectors.tobytes() == np.stack(one_by_one).tobytes()
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


def code_of(word):
    return oov_code(np.frombuffer(word.encode(), np.uint8), 0, len(word.encode()))


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_loops_and_definition_give_the_same_codes(texts):
    ids = tokens.TokenIds(VOCABULARY, "ptb-v1", hashes_unknown=True)
    found = ids(pa.array(texts, pa.string()))
    flat = tokenize(pa.array(texts, pa.string()), "ptb-v1").flat.to_pylist()
    known = {"cat": 0, "dog": 2, ".": 3}
    assert found.ids.tolist() == [known[word] if word in known else code_of(word) for word in flat]
    assert all(row < 0 for row, word in zip(found.ids, flat, strict=True) if word not in known)


def test_directions_are_spread():
    vectors = hashed_vectors(np.array([code_of(f"word{number}") for number in range(400)]), 3.0, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 3, rtol=1e-5)
    cosines = vectors @ vectors.T / 9
    np.fill_diagonal(cosines, 0)
    assert np.abs(cosines).max() < 6 / 384**0.5
    assert cosines.std() == pytest.approx(384**-0.5, rel=0.05)


def test_folders_of_shared_tokens_do_not_change(tmp_path):
    prints = {}
    for oov in ("shared", "hashed", "drop", "pieces"):
        checkpoint.save(encoder(oov), tmp_path / oov, recipe={}, provenance={}, model_card="")
        loaded = checkpoint.load(tmp_path / oov)
        assert loaded.oov == oov
        assert loaded.packed().encoder().oov == oov
        assert loaded.encode(TEXTS).tobytes() == encoder(oov).encode(TEXTS).tobytes()
        prints[oov] = loaded.fingerprint
    assert "oov" not in checkpoint.read_config(tmp_path / "shared")
    assert len(set(prints.values())) == 4
    path = tmp_path / "hashed" / "config.json"
    path.write_text(path.read_text().replace('"oov": "hashed"', '"oov": "drop"'))
    with pytest.raises(ValueError, match="does not match its fingerprint"):
        checkpoint.load(tmp_path / "hashed")


def test_pieces_are_those_of_the_folder_and_are_not_trained(tmp_path):
    own, other = encoder("pieces"), encoder("pieces")
    other.pieces.matrix.data[0] += 1
    for name, one in (("own", own), ("other", other)):
        checkpoint.save(one, tmp_path / name, recipe={}, provenance={}, model_card="")
        assert [name for name, _ in one.named_parameters()] == ["matrix"]
    configs = [checkpoint.read_config(tmp_path / name) for name in ("own", "other")]
    assert configs[0]["files"] == configs[1]["files"]
    assert configs[0]["fingerprint"] != configs[1]["fingerprint"]
    (tmp_path / "own" / "pieces").rename(tmp_path / "pieces")
    with pytest.raises(FileNotFoundError, match="pieces does not exist"):
        checkpoint.load(tmp_path / "own")
    (tmp_path / "own" / "pieces").symlink_to(tmp_path / "other" / "pieces")
    with pytest.raises(ValueError, match="is another encoder than in"):
        checkpoint.load(tmp_path / "own")
    with pytest.raises(ValueError, match=r"add them with `oov_pieces` of jobs/export\.py"):
        initial_words(tmp_path / "other", Recipe())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encoder("pieces", pieces=None), "`oov` is pieces, but `pieces` is missing"),
        (lambda: encoder("hashed", pieces=pieces_of()), "`oov` is hashed, but `pieces` is given"),
        (
            lambda: encoder("pieces", pieces=encoder("pieces")),
            "is avg of width 70 with the tokenizer ptb-v1; give one that is avg",
        ),
        (lambda: encoder("drop", RecursiveConfig(), "space"), r"`oov` is drop, .*recursive .*has only shared"),
        (lambda: encoder("hashed", tokenizer="wordpiece"), r"`oov` is hashed, .*wordpiece has only shared"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_hashed_types_differ_in_an_lstm():
    first, second = encoder("hashed", LstmAvgConfig()).encode(["naps", "zzzz"])
    assert np.abs(first - second).max() > 1e-3
