"""GRAN encoders: against the loop, and what they become when their gates are forced."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from paraembed.encoders.configs import (
    AvgConfig,
    BiGranConfig,
    Gran2Config,
    Gran3Config,
    Gran4Config,
    Gran5Config,
    GranConfig,
    GranNoGateConfig,
    LstmAvgConfig,
)
from paraembed.encoders.gran import gated_sums
from paraembed.encoders.packed import pack
from paraembed.text.ragged import Ragged
from tests.encoders.oracles import OFFSETS, assert_equals_the_loop, encoder_of, texts_of

CPU = torch.device("cpu")
PLAIN = [GranConfig(), Gran2Config(), Gran3Config(), Gran4Config(), Gran5Config(), GranNoGateConfig(), BiGranConfig()]
CONFIGS = [*PLAIN, Gran5Config(state="last"), GranNoGateConfig(activation="relu"), BiGranConfig(combine="tanh")]


@pytest.mark.parametrize("num_words", [10, 30])  # fewer and more than the tokens
@pytest.mark.parametrize(("output_gate", "peepholes"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_every_option_equals_the_loop(config, output_gate, peepholes, num_words):
    assert_equals_the_loop(encoder_of(replace(config, output_gate=output_gate, peepholes=peepholes), num_words))


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_the_gradient_is_the_difference_quotient(config):
    encoder = encoder_of(config).double()
    texts = texts_of(encoder)
    parameters = list(encoder.parameters())
    ids = torch.from_numpy(texts.ids)
    assert torch.autograd.gradcheck(
        lambda rows, *_: encoder.compose(rows, ids, texts), tuple(parameters), fast_mode=True
    )


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offsets", [OFFSETS, torch.tensor([0, 1]), torch.tensor([0, 4])])
def test_the_gradient_of_gated_sums(offsets, weighted, backward):
    packed = pack(offsets, CPU, backward=backward)
    generator = torch.Generator().manual_seed(1)
    words, logits, weight = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((len(packed.tokens), 3), (len(packed.tokens), 6), (6, 3))
    )
    parts = (words, logits, weight) if weighted else (words, logits)
    assert torch.autograd.gradcheck(lambda words, logits, weight=None: gated_sums(words, logits, weight, packed), parts)
    kept = gated_sums(words, logits, weight if weighted else None, packed)
    with torch.inference_mode():
        assert torch.equal(gated_sums(words, logits.clone(), weight if weighted else None, packed), kept)


def force_gates(encoder, *values):
    """Set each gate to 0 or 1."""
    reader = encoder.composition.reader
    with torch.no_grad():
        for name in ("input_weight", "state_weight", "sum_weight"):
            if getattr(reader, name, None) is not None:
                getattr(reader, name).zero_()
        for gate, value in zip(reader.bias.chunk(len(values)), values, strict=True):
            gate.fill_(50.0 if value else -50.0)


@pytest.mark.parametrize("config", [GranConfig(), Gran3Config(), Gran4Config(), Gran5Config()], ids=repr)
def test_with_open_gates_it_is_avg(config):
    encoder = encoder_of(config)
    force_gates(encoder, *{"gran": (1,), "gran5": (1, 0)}.get(config.name, (1, 1)))
    torch.testing.assert_close(
        encoder(texts_of(encoder)), encoder_of(AvgConfig())(texts_of(encoder)), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("config", [Gran2Config(), Gran5Config()], ids=repr)
def test_with_the_gate_of_the_states_open_it_is_lstm_avg(config):
    encoder, lstm_avg = encoder_of(config), encoder_of(LstmAvgConfig())
    lstm_avg.composition.reader.load_state_dict(encoder.composition.reader.lstm.state_dict())
    force_gates(encoder, *{"gran2": (1,), "gran5": (0, 1)}[config.name])
    texts = texts_of(encoder)
    torch.testing.assert_close(encoder(texts), lstm_avg(texts), rtol=0, atol=1e-6)


def test_gran4_that_does_not_see_the_sum_is_gran3():
    gran3, gran4 = encoder_of(Gran3Config()), encoder_of(Gran4Config())
    assert gran4.load_state_dict(gran3.state_dict(), strict=False).missing_keys == ["composition.reader.sum_weight"]
    gran4.composition.reader.sum_weight.data.zero_()
    texts = texts_of(gran4)
    torch.testing.assert_close(gran4(texts), gran3(texts))


@pytest.mark.parametrize("combine", ["sum", "tanh"])
def test_bigran_with_one_pair_of_eyes_does_not_care_for_the_direction(combine):
    encoder = encoder_of(BiGranConfig(combine=combine)).double()
    composition = encoder.composition
    composition.reader_back.load_state_dict(composition.reader.state_dict())
    if combine == "tanh":
        composition.combine_weight.data[:, 6:] = composition.combine_weight.data[:, :6]
    texts = texts_of(encoder)
    mirrored = Ragged(np.concatenate([texts.slice(at, at + 1).ids[::-1] for at in range(len(texts))]), texts.offsets)
    torch.testing.assert_close(encoder(texts), encoder(mirrored))


@pytest.mark.parametrize("config", PLAIN, ids=repr)
def test_initial_values(config):
    for name, parameter in config.build(150, torch.Generator().manual_seed(1)).named_parameters():
        parameter.requires_grad_(False)
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert 0.98 * 150**-0.5 < parameter.abs().max() <= 150**-0.5


def test_wrong_options_are_refused():
    wrong = "first"
    none = None
    with pytest.raises(ValueError, match="gran5: state is 'first'; allowed: mean, last"):
        Gran5Config(state=wrong)
    with pytest.raises(ValueError, match="gran_nogate: activation is 'first'; allowed: tanh, relu"):
        GranNoGateConfig(activation=wrong)
    with pytest.raises(ValueError, match="bigran: combine is 'first'; allowed: sum, tanh"):
        BiGranConfig(combine=wrong)
    with pytest.raises(ValueError, match="gran: output_gate is None; expected bool"):
        GranConfig(output_gate=none)
