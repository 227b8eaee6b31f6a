"""The recurrence of ``rnn`` and ``irnn`` against torch's own kernels, and ``irnn`` against the mean it starts as."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, IrnnConfig, RnnConfig
from paraembed.encoders.packed import pack
from paraembed.encoders.rnn import last_states

OFFSETS = torch.tensor([0, 4, 5, 12, 12 + 7, 20])
TEXTS = ["the cat sat on the mat .", "dog", "a dog ran home", "the " * 60]


def ids_and_rows(num_rows):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(num_rows, 6, generator=generator, dtype=torch.float64)
    return torch.randint(0, num_rows, (20,), generator=generator, dtype=torch.int32), rows


@pytest.mark.parametrize("num_rows", [9, 30])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn_is_that_of_torch(activation, num_rows):
    ids, rows = ids_and_rows(num_rows)
    ours = RnnConfig(activation, 5).build(6, torch.Generator().manual_seed(1)).double()
    torchs = torch.nn.RNN(6, 5, nonlinearity=activation, dtype=torch.float64)
    with torch.no_grad():
        ours.bias.normal_()
        for name, value in (("weight_ih", "input_weight"), ("weight_hh", "state_weight"), ("bias_ih", "bias")):
            getattr(torchs, f"{name}_l0").copy_(getattr(ours, value))
        torchs.bias_hh_l0.zero_()
    leaves = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    expected = torch.stack([torchs(leaves[1][ids[start:stop]])[1][0] for start, stop in pairwise(OFFSETS.tolist())])
    vectors = ours(leaves[0], ids, OFFSETS)
    torch.testing.assert_close(vectors, expected)
    weighted = torch.arange(1.0, vectors.numel() + 1, dtype=torch.float64).view_as(vectors)
    (vectors * weighted).sum().backward()
    (expected * weighted).sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    torch.testing.assert_close(ours.input_weight.grad, torchs.weight_ih_l0.grad)
    torch.testing.assert_close(ours.state_weight.grad, torchs.weight_hh_l0.grad)
    torch.testing.assert_close(ours.bias.grad, torchs.bias_ih_l0.grad)


@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
@pytest.mark.parametrize("lengths", [[3, 1, 4, 2], [1, 1], [5]])
def test_every_entry_of_the_gradient(activation, lengths):
    generator = torch.Generator().manual_seed(2)
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    inputs = torch.randn(int(offsets[-1]), 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    packed = pack(offsets, torch.device("cpu"))
    assert torch.autograd.gradcheck(lambda *given: last_states(*given, packed, activation), (inputs, weight))


def test_without_a_gradient_the_states_take_no_memory_of_their_own():
    packed = pack(OFFSETS, torch.device("cpu"))
    inputs, weight = torch.randn(20, 3), torch.eye(3).requires_grad_()
    before = inputs.clone()
    with_gradient = last_states(inputs, weight, packed, "tanh")
    torch.testing.assert_close(inputs, before, rtol=0, atol=0)
    with torch.no_grad():
        without = last_states(inputs, weight, packed, "tanh")
    torch.testing.assert_close(without, with_gradient, rtol=0, atol=0)
    torch.testing.assert_close(without, inputs[packed.last], rtol=0, atol=0)


def test_irnn_starts_as_the_mean(tiny_words):
    irnn, mean = (Encoder(config, tiny_words, "space") for config in (IrnnConfig(), AvgConfig()))
    np.testing.assert_allclose(irnn.encode(TEXTS), mean.encode(TEXTS), rtol=0, atol=1e-6)


def test_without_a_gradient_the_word_vectors_stay(tiny_words):
    encoder = Encoder(RnnConfig(), tiny_words, "space").requires_grad_(False)
    before = encoder.matrix.clone()
    encoder.encode(TEXTS)
    torch.testing.assert_close(encoder.matrix, before, rtol=0, atol=0)
