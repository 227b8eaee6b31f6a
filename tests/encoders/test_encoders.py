"""What every encoder of the registry owes: the contract, and agreement with a loop over tokens in float64."""

import json
import pickle
import re
from dataclasses import FrozenInstanceError, fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed import checkpoint
from paraembed.encoders import ENCODERS, Encoder, config_from_dict, config_to_dict, configs
from paraembed.encoders.base import Weights
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from tests.encoders.oracles import vector_of

TEXTS = ["the cat sat on the mat .", "a dog ran home", "cat", "", "zebra", "the zebra sat", "the " * 500, "a , ."]
PLAIN = {"avg", "sum", "word", "scaled_avg", "irnn"}
"""Encoders for which nothing is drawn."""


def moved(encoder):
    """The encoder with every parameter of its composition away from its special initial value."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.composition.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
            if encoder.config.name == "irnn":
                parameter.mul_(0.8)  # else the state of 500 tokens overflows
    return encoder


def copy_of(words):
    return Words(words.vocabulary, words.matrix.copy())


@pytest.fixture(params=list(ENCODERS))
def encoder(request, tiny_words):
    """Each registered encoder with its default options."""
    return moved(Encoder(ENCODERS[request.param](), copy_of(tiny_words), "ptb-v1", seed=2))


def ids_of(encoder, text):
    vocabulary = encoder.vocabulary.to_pylist()
    return [vocabulary.index(token if token in vocabulary else UNKNOWN) for token in text.split()]


def test_vectors_equal_a_loop_over_tokens(encoder):
    before = encoder.matrix.detach().clone()
    texts = [*TEXTS, UNKNOWN, "zebra yak zebra", None, " \t", "\x00"]
    embedded = encoder.embed(pa.array(texts))
    assert (embedded.vectors.dtype, embedded.vectors.shape) == (np.float32, (len(texts), encoder.width))
    rows = [ids_of(encoder, text.strip("\x00") if text else "") for text in texts]
    for ids, vector in zip(rows, embedded.vectors, strict=True):
        loop = vector_of(encoder, ids) if ids else np.zeros(encoder.width)
        np.testing.assert_allclose(vector, loop, rtol=1e-5, atol=1e-5)  # rtol: the sum of 500 words has few digits
    assert embedded.num_tokens.tolist() == [*map(len, rows)]
    assert embedded.num_unknown.tolist() == [ids.count(encoder.vocabulary.to_pylist().index(UNKNOWN)) for ids in rows]
    np.testing.assert_array_equal(encoder.encode(texts), embedded.vectors)
    assert not encoder.encode(["", ""]).any()
    assert encoder.encode([]).shape == (0, encoder.width)
    assert torch.equal(encoder.matrix, before)


@pytest.fixture(scope="module")
def wide_words():
    """Fifty words of width 300, as long as those that the papers start from."""
    matrix = np.random.default_rng(0).standard_normal((50, 300), dtype=np.float32) / np.float32(10)
    return Words(pa.array([UNKNOWN, *(f"w{row}" for row in range(1, 50))]), matrix)


@pytest.mark.parametrize(
    "config", [*(config() for config in ENCODERS.values()), configs.Gran5Config(state="last")], ids=repr
)
def test_vectors_depend_on_neither_batch_nor_order(config, wide_words):
    encoder = Encoder(config, wide_words, "space", seed=1)
    drawn = np.random.default_rng(1)
    lengths = (1, 100, 0, 2, 15, 99, 4, 15, 40)
    texts = [" ".join(f"w{row}" for row in drawn.integers(1, 50, size)) for size in lengths]
    alone = np.stack([encoder.encode(text) for text in texts])
    for batch_size in (3, 1000):
        order = drawn.permutation(len(texts))
        shuffled = encoder.encode([texts[number] for number in order], batch_size)
        np.testing.assert_allclose(shuffled, alone[order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", [*(config() for config in ENCODERS.values()), configs.ProjConfig(width=7)], ids=repr)
def test_a_saved_encoder_and_one_in_another_process_have_the_same_bits(config, wide_words, tmp_path):
    ends = Words(pa.array([*wide_words.vocabulary.to_pylist(), START, END]), np.ones((52, 300), np.float32))
    ends.matrix[:50] = wide_words.matrix
    encoder = moved(Encoder(config, ends, "ptb-v1", seed=1, max_tokens=5, bos_eos_tokens="both"))
    fingerprint = checkpoint.save(encoder, tmp_path / "e", recipe={}, provenance={}, model_card="")
    loaded = checkpoint.load(tmp_path / "e")
    assert loaded.config == config
    assert loaded.state_dict().keys() == encoder.state_dict().keys()
    assert all(map(torch.equal, loaded.state_dict().values(), encoder.state_dict().values()))
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    buffers = []
    sent = pickle.dumps(Weights.of(loaded), protocol=5, buffer_callback=buffers.append)  # as Ray's object store does
    shared = [bytes(buffer) for buffer in buffers]  # read-only, as there
    arrived = pickle.loads(sent, buffers=shared).encoder()
    assert any(np.shares_memory(arrived.matrix.numpy(), np.frombuffer(buffer, np.uint8)) for buffer in shared if buffer)
    texts = ["w1", "w2 w3 w4.", "", "zebra", "w5 w6 " * 20]
    for same in (loaded, arrived):
        assert (same.fingerprint, same.tokenizer) == (fingerprint, "ptb-v1")
        assert (same.max_tokens, same.bos_eos_tokens, same.training) == (5, "both", False)
        np.testing.assert_array_equal(same.encode(texts), encoder.encode(texts))


def test_few_tokens_at_once_give_the_same(encoder, monkeypatch):
    texts = [text.strip() for text in TEXTS if len(text) < 500] * 3
    whole = encoder.embed(pa.array(texts))
    calls = []
    encoder.composition.register_forward_pre_hook(lambda _, inputs: calls.append(len(inputs[1])))
    encoder.composition.tokens_at_once = 9
    monkeypatch.setattr(type(encoder.config), "adds", None)  # PyTorch instead of the compiled loop
    parts = encoder.embed(pa.array(texts))
    assert len(calls) > 3
    assert sum(calls) == whole.num_tokens.sum()
    np.testing.assert_allclose(parts.vectors, whole.vectors, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(parts.num_tokens, whole.num_tokens)


@pytest.mark.parametrize(
    ("name", "which"),
    [*((name, "both") for name in ENCODERS), *product(("avg", "lstm", "recursive"), ("start", "end"))],
)
def test_boundary_tokens_are_words_around_the_text(name, which, tiny_words):
    ends = np.random.default_rng(3).standard_normal((2, 4), dtype=np.float32)
    words = Words(pa.array([*tiny_words.vocabulary.to_pylist(), START, END]), np.concatenate([tiny_words.matrix, ends]))
    encoder = Encoder(ENCODERS[name](), words, "space", seed=2, bos_eos_tokens=which)
    row = words.vocabulary.to_pylist().index
    start, end = [row(START)] * (which != "end"), [row(END)] * (which != "start")
    for text in ("the cat sat", "dog"):
        ids = [*start, *ids_of(encoder, text)]
        # The end word joins the tree of what is before it.
        merges = [*[0] * (len(ids) - 1), len(ids) - 1, *[1] * len(end)]
        with_ends = vector_of(encoder, [*ids, *end], merges)
        np.testing.assert_allclose(encoder.encode(["", text, "a"])[1], with_ends, rtol=0, atol=1e-5)
    assert not encoder.encode("").any()
    assert encoder.embed(pa.array(["the cat"])).num_tokens.tolist() == [2]


@pytest.mark.parametrize("name", ENCODERS)
def test_max_tokens_reads_the_first_only(name, tiny_words):
    whole, cut = (Encoder(ENCODERS[name](), tiny_words, "space", seed=2, max_tokens=most) for most in (None, 3))
    vectors = cut.encode(["the cat sat on the mat", "", "a dog"])
    np.testing.assert_allclose(vectors, whole.encode(["the cat sat", "", "a dog"]), rtol=0, atol=1e-6)


BATCH = Ragged(np.array([3, 5, 3, 7, 2, 1, 9], np.int32), np.array([0, 5, 6, 7]))


def test_the_gradient_reaches_exactly_the_words_used_and_changes_no_vector(encoder):
    vectors = encoder(BATCH)
    with torch.no_grad():
        assert torch.equal(encoder(BATCH), vectors)
    (vectors * torch.arange(1.0, vectors.numel() + 1).view_as(vectors)).sum().backward()
    used = [1, 3, 9] if encoder.config.name == "word" else [1, 2, 3, 5, 7, 9]
    assert encoder.matrix.grad is not None
    assert encoder.matrix.grad.abs().sum(dim=1).nonzero().flatten().tolist() == used
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.composition.parameters())


@pytest.mark.parametrize("name", ENCODERS)
def test_the_seed_decides_the_composition(name, tiny_words):
    def parameters(seed):
        return list(Encoder(ENCODERS[name](), tiny_words, "space", seed).composition.parameters())

    torch.manual_seed(9)
    first = parameters(1)
    torch.manual_seed(8)
    assert all(map(torch.equal, first, parameters(1)))
    assert all(map(torch.equal, first, parameters(2))) == (name in PLAIN)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_configuration_is_frozen_and_comes_back_from_json(name):
    config = ENCODERS[name]()
    assert config_from_dict(config_to_dict(config)) == config
    for field in fields(config):
        with pytest.raises(FrozenInstanceError):
            setattr(config, field.name, None)


MISTAKES = [json.loads(line) for line in Path(__file__).with_name("mistakes.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("values", "message"), MISTAKES, ids=str)
def test_what_is_unknown_or_not_allowed_is_refused(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config_from_dict(values)


def test_a_batch_of_nothing_is_refused(tiny_words):
    with pytest.raises(ValueError, match=r"batch_size` is 0;.* at least 1"):
        Encoder(configs.ProjConfig(), tiny_words, "space").encode(["a"], batch_size=0)


@torch.no_grad()
def test_initial_weights(wide_words):
    first, second = Encoder(configs.DanConfig(layers=2), wide_words, "space", seed=1).composition.weights
    assert first.std().item() == pytest.approx(0.1, rel=0.02)  # released code
    assert second.abs().max().item() == pytest.approx((6 / 600) ** 0.5, rel=0.01)  # Glorot
    filters = Encoder(configs.CnnConfig(), wide_words, "space", seed=1).composition.weight
    assert filters.abs().max().item() == pytest.approx((6 / 500) ** 0.5, rel=0.01)  # Glorot


RECURRENT = [config() for config in ENCODERS.values() if hasattr(config(), "output_gate")]
RECURRENT += [configs.BiLstmConfig(combine="tanh"), configs.BiLstmAvgConfig(combine="tanh")]


@pytest.mark.parametrize("config", [configs.RnnConfig(), configs.GruConfig(), *RECURRENT], ids=repr)
def test_initial_values_of_recurrent_encoders(config):
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


def test_irnn_starts_as_the_mean(tiny_words):
    irnn, mean = (Encoder(config, tiny_words, "space") for config in (configs.IrnnConfig(), configs.AvgConfig()))
    np.testing.assert_allclose(irnn.encode(TEXTS), mean.encode(TEXTS), rtol=0, atol=1e-6)


def test_the_first_of_equal_maxima_gets_the_gradient(tiny_words):
    """The same words in all places: one token, not a share of each, so that every run and every machine agree."""
    composition = Encoder(configs.CnnConfig(), tiny_words, "space").composition
    rows = torch.from_numpy(tiny_words.matrix[[3, 3, 5, 5]]).requires_grad_()
    vectors = composition(rows, torch.arange(4, dtype=torch.int32), torch.tensor([0, 2, 4]))
    vectors.sum().backward()
    assert rows.grad is not None
    assert rows.grad.abs().sum(dim=1).ne(0).tolist() == [True, False, True, False]
    torch.testing.assert_close(rows.grad[0], composition.weight[vectors[0] > 0].sum(dim=0))


def test_a_filter_that_no_word_reaches_is_zero_and_learns_nothing(tiny_words):
    composition = Encoder(configs.CnnConfig(2), tiny_words, "space").composition
    composition.bias.data = torch.tensor([1e3, -1e3])
    rows = torch.from_numpy(tiny_words.matrix[:3].copy()).requires_grad_()
    vectors = composition(rows, torch.arange(3, dtype=torch.int32), torch.tensor([0, 3]))
    assert vectors[0, 0] == 0
    assert vectors[0, 1] > 900
    vectors.sum().backward()
    assert composition.bias.grad.tolist() == [0, -1]
    assert not composition.weight.grad[0].any()


# FACTS §7, "Initial values"
OF_RELEASED = {"proj", "rnn", "lstm", "lstm_avg", "bilstm", "bilstm_avg", "bigran", "gran_nogate"} | {
    "gran",
    *(f"gran{number}" for number in range(2, 6)),
}


def initialized(name, init):
    words = Words(pa.array([UNKNOWN, "a", "b"]), np.ones((3, 30), np.float32))
    return Encoder(ENCODERS[name](), words, "space", 3, init=init)


@pytest.mark.parametrize("name", ENCODERS)
def test_released_values_differ_where_that_code_draws_others(name):
    ours, released = (initialized(name, init).state_dict() for init in ("ours", "released"))
    differ = {key for key, tensor in ours.items() if not torch.equal(tensor, released[key])}
    assert ENCODERS[name].has_released_init == (name in OF_RELEASED) == bool(differ)
    assert not any(key.endswith("bias") for key in differ)


def test_released_values_have_their_spread():
    lstm = initialized("lstm", "released").state_dict()
    for name in ("input_weight", "state_weight", "peepholes"):
        assert float(lstm[f"composition.reader.{name}"].std()) == pytest.approx(0.1, rel=0.2)
    rnn, proj = (initialized(name, "released").state_dict() for name in ("rnn", "proj"))
    assert float(rnn["composition.state_weight"].abs().max()) == pytest.approx(0.01, rel=0.05)
    assert float(proj["composition.weight"].abs().max()) == pytest.approx((6 / 60) ** 0.5, rel=0.05)
