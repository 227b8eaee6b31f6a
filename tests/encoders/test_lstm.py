"""LSTM encoders: against the loop, and what must hold between them."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from paraembed.encoders.configs import BiLstmAvgConfig, BiLstmConfig, LstmAvgConfig, LstmConfig
from paraembed.encoders.lstm import lstm_states
from paraembed.encoders.packed import pack
from paraembed.text.ragged import Ragged
from tests.encoders.oracles import OFFSETS, assert_equals_the_loop, encoder_of, texts_of

CPU = torch.device("cpu")
GATES = list(product([True, False], [True, False]))
CONFIGS = [LstmConfig(), LstmAvgConfig(), BiLstmConfig(), BiLstmAvgConfig()]
BOTH_WAYS = [BiLstmConfig(combine="tanh"), BiLstmAvgConfig(combine="tanh")]


@pytest.mark.parametrize("num_words", [10, 30])  # fewer and more than the tokens
@pytest.mark.parametrize("width", [None, 3, 9])
@pytest.mark.parametrize(("output_gate", "peepholes"), GATES)
@pytest.mark.parametrize("config", [*CONFIGS, *BOTH_WAYS], ids=repr)
def test_every_option_equals_the_loop(config, output_gate, peepholes, width, num_words):
    encoder = encoder_of(replace(config, output_gate=output_gate, peepholes=peepholes, width=width), num_words)
    assert encoder.width == (width or 6)
    assert_equals_the_loop(encoder)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("output_gate", "peepholes"), GATES)
@pytest.mark.parametrize("offsets", [OFFSETS, torch.tensor([0, 1]), torch.tensor([0, 1, 2]), torch.tensor([0, 4])])
def test_the_gradient_is_the_difference_quotient(offsets, output_gate, peepholes, backward):
    packed = pack(offsets, CPU, backward=backward)
    gates = 4 if output_gate else 3
    inputs, weight, seen = drawn((len(packed.tokens), gates * 3), (gates * 3, 3), (gates - 1, 3))
    parts = (inputs, weight, seen) if peepholes else (inputs, weight)
    assert torch.autograd.gradcheck(
        lambda inputs, weight, seen=None: lstm_states(inputs, weight, seen, packed), parts, fast_mode=True
    )


def drawn(*shapes):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(*shape, generator=generator, dtype=torch.float64).mul_(0.7).requires_grad_() for shape in shapes
    ]


def test_no_peepholes_are_peepholes_of_zero():
    """torch's LSTM and ours, with the same parameters."""
    seeing, blind = encoder_of(LstmAvgConfig()), encoder_of(LstmAvgConfig(peepholes=False))
    seeing.composition.reader.peepholes.data.zero_()
    assert blind.load_state_dict(seeing.state_dict(), strict=False).unexpected_keys == ["composition.reader.peepholes"]
    texts = texts_of(blind)
    vectors, expected = seeing(texts), blind(texts)
    torch.testing.assert_close(vectors, expected)
    onto = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
    (vectors * onto).sum().backward()
    (expected * onto).sum().backward()
    for name, parameter in blind.named_parameters():
        torch.testing.assert_close(parameter.grad, seeing.get_parameter(name).grad)


def test_the_gradient_does_not_spoil_what_it_needs():
    packed = pack(OFFSETS, CPU)
    parts = drawn((len(packed.tokens), 12), (12, 3), (3, 3))
    total = lstm_states(*parts, packed).square().sum()
    first = torch.autograd.grad(total, parts, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(total, parts)))


@pytest.mark.parametrize("config", [BiLstmConfig(), BiLstmAvgConfig(), *BOTH_WAYS], ids=repr)
def test_a_palindrome_is_the_same_from_both_ends(config):
    encoder = encoder_of(config).double()
    composition = encoder.composition
    composition.reader_back.load_state_dict(composition.reader.state_dict())
    palindromes = Ragged(np.array([3, 5, 7, 5, 3, 4, 8, 8, 4, 6], np.int32), np.array([0, 5, 9, 10]))
    ahead, back = vectors_by_direction(encoder, palindromes)
    for start, stop in pairwise(palindromes.offsets):
        torch.testing.assert_close(ahead[start:stop], back[start:stop].flip(0))
    if config.combine == "tanh":  # symmetric weights: [A; A]
        width = encoder.width
        composition.combine_weight.data[:, width:] = composition.combine_weight.data[:, :width]
    texts = texts_of(encoder)
    mirrored = Ragged(np.concatenate([texts.ids[a:b][::-1] for a, b in pairwise(texts.offsets)]), texts.offsets)
    torch.testing.assert_close(encoder(texts), encoder(mirrored))


def vectors_by_direction(encoder, texts):
    """Vectors of the tokens by either reader, in the order of the tokens."""
    offsets = torch.from_numpy(texts.offsets)
    ids = torch.from_numpy(texts.ids)

    def read(reader, packed):
        return reader(encoder.matrix, ids[packed.tokens], packed)[packed.slots]

    composition = encoder.composition
    return [
        read(composition.reader, pack(offsets, CPU)),
        read(composition.reader_back, pack(offsets, CPU, backward=True)),
    ]


@pytest.mark.parametrize("config", [*CONFIGS, *BOTH_WAYS], ids=repr)
def test_initial_values(config):
    composition = replace(config, width=150).build(200, torch.Generator().manual_seed(1))
    for name, parameter in composition.named_parameters():
        parameter.requires_grad_(False)
        if name.endswith("bias"):
            assert not parameter.any()
        elif name == "combine_weight":
            bound = (6 / 450) ** 0.5
            assert 0.98 * bound < parameter.abs().max() <= bound
        else:
            assert 0.98 * 150**-0.5 < parameter.abs().max() <= 150**-0.5
            assert abs(float(parameter.mean())) < 0.01
    shapes = {name: tuple(parameter.shape) for name, parameter in composition.reader.named_parameters()}
    assert shapes == {
        "input_weight": (600, 200),
        "state_weight": (600, 150),
        "bias": (600,),
        "peepholes": (3, 150),
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 0}, "lstm: width is 0; allowed: 1 to 65536"),
        ({"width": 1.5}, "lstm: width is 1.5; expected int or none"),
        ({"peepholes": 1}, "lstm: peepholes is 1; expected bool"),
    ],
)
def test_wrong_options_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        LstmConfig(**values)


def test_wrong_combinations_are_refused():
    wrong = "product"
    with pytest.raises(ValueError, match="bilstm_avg: combine is 'product'; allowed: sum, tanh"):
        BiLstmAvgConfig(combine=wrong)
