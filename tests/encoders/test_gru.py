"""``gru`` against one step by hand, a loop under autograd, and ``torch.nn.GRU`` where both are the same function."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from paraembed.encoders import Encoder
from paraembed.encoders.configs import GruConfig

OFFSETS = torch.tensor([0, 4, 5, 12, 19, 20])


def made(width, *, bias):
    gru = GruConfig(bias, width).build(6, torch.Generator().manual_seed(1)).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return gru


def ids_and_rows(num_rows):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(num_rows, 6, generator=generator, dtype=torch.float64)
    return torch.randint(0, num_rows, (20,), generator=generator, dtype=torch.int32), rows


def looped(gru, rows_RD, ids_T):
    """Zhou 2017 §2.2, word by word, for autograd to go back through."""
    bias = torch.zeros(3 * gru.width, dtype=torch.float64) if gru.bias is None else gru.bias
    (W_z, W_r, W), (U_z, U_r, U) = gru.input_weight.chunk(3), gru.state_weight.chunk(3)
    b_z, b_r, b = bias.chunk(3)
    vectors = []
    for start, stop in pairwise(OFFSETS.tolist()):
        h = torch.zeros(gru.width, dtype=torch.float64)
        for x in rows_RD[ids_T[start:stop]]:
            z = torch.sigmoid(W_z @ x + U_z @ h + b_z)
            r = torch.sigmoid(W_r @ x + U_r @ h + b_r)
            h = (1 - z) * h + z * torch.tanh(W @ x + U @ (r * h) + b)
        vectors.append(h)
    return torch.stack(vectors)


@pytest.mark.parametrize("num_rows", [9, 30])  # fewer and more than the 20 tokens
@pytest.mark.parametrize("bias", [False, True])
def test_vectors_and_gradients_are_those_of_a_loop(bias, num_rows):
    gru = made(5, bias=bias)
    ids, rows = ids_and_rows(num_rows)
    rows.requires_grad_()
    vectors, expected = gru(rows, ids, OFFSETS), looped(gru, rows, ids)
    torch.testing.assert_close(vectors, expected)
    weighted = torch.arange(1.0, vectors.numel() + 1, dtype=torch.float64).view_as(vectors)
    inputs = [rows, *gru.parameters()]
    gradients = torch.autograd.grad((vectors * weighted).sum(), inputs)
    for gradient, wanted in zip(gradients, torch.autograd.grad((expected * weighted).sum(), inputs), strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("offsets", [[0, 3, 4, 8, 10], [0, 1, 2], [0, 10]])
def test_every_entry_of_the_gradient(offsets):
    gru = made(3, bias=True)
    ids, rows = ids_and_rows(4)
    rows.requires_grad_()
    at = torch.tensor(offsets)
    assert torch.autograd.gradcheck(lambda rows, *_: gru(rows, ids[: offsets[-1]], at), (rows, *gru.parameters()))


def test_a_word_alone_is_one_step_by_hand(tiny_words):
    encoder = Encoder(GruConfig(), tiny_words, "space", seed=1)
    W_z, _, W = np.split(encoder.composition.input_weight.detach().numpy(), 3)
    x = tiny_words.matrix[tiny_words.vocabulary.to_pylist().index("cat")]
    expected = 1 / (1 + np.exp(-W_z @ x)) * np.tanh(W @ x)
    np.testing.assert_allclose(encoder.encode("cat"), expected, rtol=0, atol=1e-6)


def torchs(gru):
    """The same weights in ``torch.nn.GRU``; its z is our 1 - z, and it stacks r, z, n."""
    other = torch.nn.GRU(6, gru.width, bias=False, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in (("weight_ih_l0", gru.input_weight), ("weight_hh_l0", gru.state_weight)):
            z, r, candidate = weight.chunk(3)
            getattr(other, name).copy_(torch.cat([r, -z, candidate]))
    return other


def test_the_reset_gate_acts_before_the_weight():
    """torch lets it act behind U: the same function only where U is diagonal."""
    gru = made(5, bias=False)
    ids, rows = ids_and_rows(9)

    def by_torch():
        return torch.stack([torchs(gru)(rows[ids[a:b]])[1][0] for a, b in pairwise(OFFSETS.tolist())])

    assert (gru(rows, ids, OFFSETS) - by_torch()).abs().max() > 0.01
    with torch.no_grad():
        candidate = gru.state_weight[2 * 5 :]
        candidate.copy_(candidate.diag().diag())
    torch.testing.assert_close(gru(rows, ids, OFFSETS), by_torch())


def test_a_wide_vector_of_the_text(tiny_words):
    encoder = Encoder(GruConfig(width=7), tiny_words, "space")
    assert encoder.encode(["the cat", ""]).shape == (2, 7)
    assert sum(one.numel() for one in encoder.composition.parameters()) == 3 * 7 * (4 + 7)
