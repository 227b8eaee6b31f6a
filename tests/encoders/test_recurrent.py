"""Every option against the loop; memory and initial values of recurrent encoders. Gradients: ``tests/parity``."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from paraembed.encoders import ENCODERS, Encoder, configs
from tests.encoders.oracles import OFFSETS, assert_equals_the_loop, encoder_of

CPU = torch.device("cpu")
GATES = list(product([True, False], [True, False]))
LSTMS = [configs.LstmConfig(), configs.LstmAvgConfig()]
LSTMS += [kind(combine=form) for kind in (configs.BiLstmConfig, configs.BiLstmAvgConfig) for form in ("sum", "tanh")]
GRANS = [config() for name, config in ENCODERS.items() if "gran" in name]
MORE_GRANS = [replace(GRANS[4], state="last"), replace(GRANS[5], activation="relu"), replace(GRANS[6], combine="tanh")]
TEXTS = ["the cat sat on the mat .", "dog", "a dog ran home", "the " * 60]


OTHERS = [
    *(configs.DanConfig(layers, f, width) for layers, f, width in [(1, "relu", 3), (2, "tanh", None), (4, "relu", 9)]),
    *(configs.ProjConfig(width) for width in (1, 3, 6, 9)),
    *(configs.RnnConfig(f, width) for f, width in [("relu", None), ("tanh", 1), ("relu", 9)]),
    *(configs.GruConfig(bias, width) for bias, width in [(True, None), (True, 3), (False, 9)]),
    *(configs.CnnConfig(filters) for filters in (1, 3, 9)),
]
GATED = [*(replace(lstm, width=width) for lstm in LSTMS for width in (None, 3, 9)), *GRANS, *MORE_GRANS]


ALL = [
    *OTHERS,
    *(replace(one, output_gate=output, peepholes=peepholes) for one in GATED for output, peepholes in GATES),
]


@pytest.mark.parametrize(("number", "config"), list(enumerate(ALL)), ids=repr)
def test_every_option_equals_the_loop(number, config):
    encoder = encoder_of(config, num_words=10 if number % 3 else 30)  # fewer and more than the tokens
    assert encoder.width == (getattr(config, "width", None) or getattr(config, "filters", None) or 6)
    assert_equals_the_loop(encoder)


def randomized(composition):
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in composition.double().parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return composition


def test_the_reset_gate_acts_before_the_weight():
    """torch lets it act behind U: the same function only where U is diagonal."""
    gru, generator = (
        randomized(configs.GruConfig(width=5).build(6, torch.Generator())),
        torch.Generator().manual_seed(3),
    )
    rows = torch.randn(int(OFFSETS[-1]), 6, generator=generator, dtype=torch.float64)

    def by_torch():
        """The same weights in ``torch.nn.GRU``; its z is our 1 - z, and it stacks r, z, n."""
        other = torch.nn.GRU(6, gru.width, bias=False, dtype=torch.float64)
        with torch.no_grad():
            for name, weight in (("weight_ih_l0", gru.input_weight), ("weight_hh_l0", gru.state_weight)):
                z, r, candidate = weight.chunk(3)
                getattr(other, name).copy_(torch.cat([r, -z, candidate]))
        return torch.stack([other(rows[start:stop])[1][0] for start, stop in pairwise(OFFSETS.tolist())])

    ids = torch.arange(len(rows), dtype=torch.int32)
    assert (gru(rows, ids, OFFSETS) - by_torch()).abs().max() > 0.01
    with torch.no_grad():
        candidate = gru.state_weight[2 * 5 :]
        candidate.copy_(candidate.diag().diag())
    torch.testing.assert_close(gru(rows, ids, OFFSETS), by_torch())


def test_irnn_starts_as_the_mean(tiny_words):
    irnn, mean = (Encoder(config, tiny_words, "space") for config in (configs.IrnnConfig(), configs.AvgConfig()))
    np.testing.assert_allclose(irnn.encode(TEXTS), mean.encode(TEXTS), rtol=0, atol=1e-6)


def test_without_a_gradient_the_word_vectors_stay(tiny_words):
    encoder = Encoder(configs.RnnConfig(), tiny_words, "space").requires_grad_(False)
    before = encoder.matrix.clone()
    encoder.encode(TEXTS)
    torch.testing.assert_close(encoder.matrix, before, rtol=0, atol=0)


@pytest.mark.parametrize("config", [configs.RnnConfig(), configs.GruConfig(), *LSTMS, *GRANS], ids=repr)
def test_initial_values(config):
    has_width = hasattr(config, "width")
    config = replace(config, width=150) if has_width else config
    composition = config.build(200 if has_width else 150, torch.Generator().manual_seed(1)).requires_grad_(False)
    for name, parameter in composition.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            bound = (6 / 450) ** 0.5 if name == "combine_weight" else 150**-0.5
            assert 0.98 * bound < parameter.abs().max() <= bound
            assert abs(float(parameter.mean())) < 0.01
