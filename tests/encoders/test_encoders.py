"""What every encoder of the registry owes: the contract, and agreement with a loop over tokens in float64."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.encoders import ENCODERS, Encoder, config_from_dict, config_to_dict, encoder_name
from paraembed.encoders.proj import ProjConfig
from paraembed.ragged import Ragged
from paraembed.words import UNKNOWN, Words

Vector = npt.NDArray[np.float64]
TEXTS = ["the cat sat on the mat .", "a dog ran home", "cat", "", "zebra", "the zebra sat", "the " * 500, "a , ."]


def oracle_avg(encoder: Encoder, ids: list[int]) -> Vector:
    matrix = encoder.matrix.detach().double().numpy()
    total = np.zeros(matrix.shape[1])
    for row in ids:
        total += matrix[row]
    return total / len(ids)


def oracle_proj(encoder: Encoder, ids: list[int]) -> Vector:
    weight, bias = (encoder.state_dict()[f"composition.{name}"].double().numpy() for name in ("weight", "bias"))
    mean = oracle_avg(encoder, ids)
    projected: Vector = np.array([sum(w * m for w, m in zip(row, mean, strict=True)) for row in weight]) + bias
    return projected


ORACLES: dict[str, Callable[[Encoder, list[int]], Vector]] = {"avg": oracle_avg, "proj": oracle_proj}


@pytest.fixture(params=list(ENCODERS))
def encoder(request: pytest.FixtureRequest, tiny_words: Words) -> Encoder:
    """Each registered encoder with its default options, every parameter away from its special initial value."""
    made = Encoder(ENCODERS[request.param](), Words(tiny_words.vocabulary, tiny_words.matrix.copy()), "ptb-v1", seed=2)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.composition.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return made


def ids_of(encoder: Encoder, text: str) -> list[int]:
    vocabulary = encoder.vocabulary.to_pylist()
    return [vocabulary.index(token if token in vocabulary else UNKNOWN) for token in text.split()]


def test_every_encoder_has_an_oracle() -> None:
    assert set(ORACLES) == set(ENCODERS)


def test_vectors_equal_a_loop_over_tokens(encoder: Encoder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), encoder.width)
    for text, vector in zip(TEXTS, vectors, strict=True):
        if text:
            expected = ORACLES[encoder_name(encoder.config)](encoder, ids_of(encoder, text))
            np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-5)


def test_an_empty_text_is_zeros(encoder: Encoder) -> None:
    embedded = encoder.embed(pa.array(["", None, " \t", "cat", "\x00"]))
    assert not embedded.vectors[[0, 1, 2, 4]].any()
    assert embedded.vectors[3].any()
    assert embedded.num_tokens.tolist() == [0, 0, 0, 1, 0]
    assert not encoder.embed(pa.array(["", ""])).vectors.any()
    assert encoder.encode([]).shape == (0, encoder.width)


def test_unknown_words_are_the_unknown_row(encoder: Encoder) -> None:
    embedded = encoder.embed(pa.array(["zebra", "zebra yak zebra", UNKNOWN, "the zebra"]))
    row = encoder.vocabulary.to_pylist().index(UNKNOWN)
    expected = ORACLES[encoder_name(encoder.config)](encoder, [row])
    for vector in embedded.vectors[:3]:
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-6)
    assert embedded.num_tokens.tolist() == [1, 3, 1, 2]
    assert embedded.num_unknown.tolist() == [1, 3, 1, 1]


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_vectors_depend_on_neither_batch_nor_order(tiny_words: Words, data: st.DataObject) -> None:
    texts = data.draw(
        st.lists(
            st.lists(st.sampled_from([*tiny_words.vocabulary.to_pylist(), "zebra"]), max_size=9).map(" ".join),
            min_size=1,
            max_size=9,
        )
    )
    batch_size = data.draw(st.integers(1, 10))
    order = data.draw(st.permutations(range(len(texts))))
    for config in ENCODERS.values():
        encoder = Encoder(config(), tiny_words, "space")
        alone = np.stack([encoder.encode(text) for text in texts])
        shuffled = encoder.encode([texts[at] for at in order], batch_size)
        np.testing.assert_allclose(shuffled, alone[order], rtol=0, atol=1e-6)


def test_one_token_and_five_hundred(encoder: Encoder) -> None:
    one, many = encoder.embed(pa.array(["cat", "cat " * 500])).vectors
    np.testing.assert_allclose(one, encoder.encode("cat"), rtol=0, atol=1e-6)
    assert encoder.embed(pa.array(["cat " * 500])).num_tokens.tolist() == [500]
    if encoder_name(encoder.config) in {"avg", "proj"}:  # a mean of equal words is the word
        np.testing.assert_allclose(many, one, rtol=0, atol=1e-5)


def test_one_text_is_one_vector(encoder: Encoder) -> None:
    assert encoder.encode("the cat").shape == (encoder.width,)
    np.testing.assert_array_equal(encoder.encode("the cat"), encoder.encode(["the cat"])[0])


def test_the_gradient_reaches_exactly_the_words_used(encoder: Encoder) -> None:
    vectors = encoder(Ragged(np.array([3, 5, 3, 1], np.int32), np.array([0, 3, 4])))
    (vectors * torch.arange(1.0, vectors.numel() + 1).view_as(vectors)).sum().backward()
    assert encoder.matrix.grad is not None
    assert encoder.matrix.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [1, 3, 5]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.composition.parameters())


def test_the_gradient_is_the_difference_quotient(encoder: Encoder) -> None:
    encoder.double()
    texts = Ragged(np.array([3, 5, 3, 1], np.int32), np.array([0, 3, 4]))
    ids = torch.from_numpy(texts.ids)
    rows = encoder.matrix.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: encoder.compose(rows, ids, texts), rows)


def test_a_saved_encoder_gives_the_same_vectors(encoder: Encoder, tmp_path: Any) -> None:
    checkpoint.save(encoder, tmp_path / "e", recipe={}, provenance={}, model_card="")
    np.testing.assert_array_equal(checkpoint.load(tmp_path / "e").encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize("name", ENCODERS)
def test_the_seed_decides_the_composition(name: str, tiny_words: Words) -> None:
    def parameters(seed: int) -> list[torch.Tensor]:
        return list(Encoder(ENCODERS[name](), tiny_words, "space", seed).composition.parameters())

    torch.manual_seed(9)
    first = parameters(1)
    torch.manual_seed(8)
    assert all(map(torch.equal, first, parameters(1)))
    assert not first or not all(map(torch.equal, first, parameters(2)))


@pytest.mark.parametrize("name", ENCODERS)
def test_a_configuration_is_frozen_and_comes_back_from_json(name: str) -> None:
    config = ENCODERS[name]()
    assert config_from_dict(config_to_dict(config)) == config
    assert encoder_name(config) == name
    for field in fields(config):
        with pytest.raises(FrozenInstanceError):
            setattr(config, field.name, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "gpt"}, r"unknown encoder 'gpt'; allowed: avg, proj"),
        ({}, r"encoder is \{\}; expected an object such as"),
        ({"name": "avg", "width": 3}, r"encoder 'avg' has no option 'width'; allowed: none"),
        ({"name": "proj", "widht": 3}, r"encoder 'proj' has no option 'widht'; allowed: width"),
    ],
)
def test_what_is_unknown_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_from_dict(values)


@pytest.mark.parametrize("width", [1, 3, 4, 9])
def test_proj_may_change_the_width(width: int, tiny_words: Words) -> None:
    encoder = Encoder(ProjConfig(width), tiny_words, "space")
    assert encoder.encode("the cat").shape == (width,)
    expected = oracle_proj(encoder, ids_of(encoder, "the cat"))
    np.testing.assert_allclose(encoder.encode("the cat"), expected, rtol=0, atol=1e-5)


def test_wrong_sizes_are_refused(tiny_words: Words) -> None:
    with pytest.raises(ValueError, match="proj: width is 0; allowed: 1 to 65536"):
        Encoder(ProjConfig(0), tiny_words, "space")
    with pytest.raises(ValueError, match="batch_size is 0; it must be at least 1"):
        Encoder(ProjConfig(), tiny_words, "space").encode(["a"], batch_size=0)
