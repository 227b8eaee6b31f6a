"""The recurrence of ``rnn`` and ``irnn``: its gradient, its memory, and the mean that ``irnn`` starts as."""

import numpy as np
import pytest
import torch

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, IrnnConfig, RnnConfig
from paraembed.encoders.packed import pack
from paraembed.encoders.rnn import last_states

OFFSETS = torch.tensor([0, 4, 5, 12, 12 + 7, 20])
TEXTS = ["the cat sat on the mat .", "dog", "a dog ran home", "the " * 60]


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
