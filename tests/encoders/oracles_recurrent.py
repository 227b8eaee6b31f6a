"""LSTM and GRAN encoders again, as loops over tokens in float64 from the equations, and what their tests share."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from paraembed.encoders import Encoder
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words

Vector = npt.NDArray[np.float64]
Parameters = dict[str, Vector]
OFFSETS = torch.tensor([0, 5, 6, 9, 21, 23])


def oracle_lstm(encoder, ids):
    return lstm(encoder.config, reader_of(encoder, "reader"), words_of(encoder, ids))[-1]


def oracle_lstm_avg(encoder, ids):
    return mean(lstm(encoder.config, reader_of(encoder, "reader"), words_of(encoder, ids)))


def oracle_bilstm(encoder, ids):
    ahead, back = both_ways(encoder, ids, lstm)
    return combined(encoder, ahead[-1], back[0])


def oracle_bilstm_avg(encoder, ids):
    return mean([combined(encoder, *states) for states in zip(*both_ways(encoder, ids, lstm), strict=True)])


def oracle_gran(encoder, ids):
    return mean(gran(encoder.config, reader_of(encoder, "reader"), words_of(encoder, ids)))


def oracle_gran2(encoder, ids):
    return mean([h * sigmoid(gate) for _, h, gate in gates_of(encoder, ids)])


def oracle_gran3(encoder, ids):
    total = np.zeros(encoder.width)
    for x, _, gates in gates_of(encoder, ids):
        first, second = np.split(sigmoid(gates), 2)
        total = total * first + x * second
    return total / len(ids)


def oracle_gran4(encoder, ids):
    weight = reader_of(encoder, "reader")["sum_weight"]
    total = np.zeros(encoder.width)
    for x, _, gates in gates_of(encoder, ids):
        first, second = np.split(sigmoid(gates + weight @ total), 2)
        total = total * first + x * second
    return total / len(ids)


def oracle_gran5(encoder, ids):
    config = encoder.config
    sums = []
    for x, h, gates in gates_of(encoder, ids):
        first, second = np.split(sigmoid(gates), 2)
        sums.append(x * first + h * second)
    return mean(sums) if config.state == "mean" else sums[-1]


def oracle_gran_nogate(encoder, ids):
    config = encoder.config
    f = {"tanh": np.tanh, "relu": lambda vector: np.maximum(vector, 0)}[config.activation]
    return mean([f(gate) for _, _, gate in gates_of(encoder, ids)])


def oracle_bigran(encoder, ids):
    return mean([combined(encoder, *vectors) for vectors in zip(*both_ways(encoder, ids, gran), strict=True)])


ORACLES = {
    "lstm": oracle_lstm,
    "lstm_avg": oracle_lstm_avg,
    "bilstm": oracle_bilstm,
    "bilstm_avg": oracle_bilstm_avg,
    "gran": oracle_gran,
    "gran2": oracle_gran2,
    "gran3": oracle_gran3,
    "gran4": oracle_gran4,
    "gran5": oracle_gran5,
    "gran_nogate": oracle_gran_nogate,
    "bigran": oracle_bigran,
}


def sigmoid(vector):
    return 1 / (1 + np.exp(-vector))


def mean(vectors):
    return sum(vectors, np.zeros_like(vectors[0])) / len(vectors)


def words_of(encoder, ids):
    matrix = encoder.matrix.detach().double().numpy()
    return [matrix[row] for row in ids]


def reader_of(encoder, name):
    prefix = f"composition.{name}."
    state = encoder.state_dict()
    return {key.removeprefix(prefix): state[key].double().numpy() for key in state if key.startswith(prefix)}


def lstm(config, parameters, words):
    """States h_t."""
    names = ["i", "f", "c", "o"] if config.output_gate else ["i", "f", "c"]
    of_word, of_state, bias = (
        dict(zip(names, np.split(parameters[name], len(names)), strict=True))
        for name in ("input_weight", "state_weight", "bias")
    )
    width = bias["i"].shape[0]
    no_peepholes = np.zeros((3, width))
    peepholes = dict(zip("ifo", parameters["peepholes"] if config.peepholes else no_peepholes, strict=False))
    h, c = np.zeros(width), np.zeros(width)
    states = []
    for x in words:
        i = sigmoid(of_word["i"] @ x + of_state["i"] @ h + peepholes["i"] * c + bias["i"])
        f = sigmoid(of_word["f"] @ x + of_state["f"] @ h + peepholes["f"] * c + bias["f"])
        c = f * c + i * np.tanh(of_word["c"] @ x + of_state["c"] @ h + bias["c"])
        if config.output_gate:
            h = sigmoid(of_word["o"] @ x + of_state["o"] @ h + peepholes["o"] * c + bias["o"]) * np.tanh(c)
        else:
            h = np.tanh(c)
        states.append(h)
    return states


def logits(config, parameters, words):
    """x_t, h_t and W_x x_t + W_h h_t + b of each token."""
    prefix = "lstm."
    cell = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
    return [
        (x, h, parameters["input_weight"] @ x + parameters["state_weight"] @ h + parameters["bias"])
        for x, h in zip(words, lstm(config, cell, words), strict=True)
    ]


def gates_of(encoder, ids):
    return logits(encoder.config, reader_of(encoder, "reader"), words_of(encoder, ids))


def gran(config, parameters, words):
    """a_t = x_t⊙σ(W_x x_t + W_h h_t + b)."""
    return [x * sigmoid(gate) for x, _, gate in logits(config, parameters, words)]


def both_ways(encoder, ids, read):
    """The vectors of each token, read from the start and read from the end; both in the order of the tokens."""
    words = words_of(encoder, ids)
    ahead = read(encoder.config, reader_of(encoder, "reader"), words)
    back = read(encoder.config, reader_of(encoder, "reader_back"), words[::-1])
    return ahead, back[::-1]


def combined(encoder, ahead, back):
    config = encoder.config
    if config.combine == "sum":
        return ahead + back
    state = encoder.state_dict()
    weight, bias = (state[f"composition.combine_{name}"].double().numpy() for name in ("weight", "bias"))
    return np.tanh(weight @ np.concatenate((ahead, back)) + bias)


def encoder_of(config, num_words=30):
    """An encoder over words of width 6, every parameter away from its special initial value."""
    matrix = np.random.default_rng(0).standard_normal((num_words, 6), dtype=np.float32)
    encoder = Encoder(config, Words(pa.array([str(row) for row in range(num_words)]), matrix), "space", seed=2)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.composition.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return encoder


def texts_of(encoder):
    ids = np.random.default_rng(1).integers(0, len(encoder.matrix), int(OFFSETS[-1])).astype(np.int32)
    return Ragged(ids, OFFSETS.numpy())


def assert_equals_the_loop(encoder):
    config = encoder.config
    texts = texts_of(encoder)
    expected = [ORACLES[config.name](encoder, texts.slice(at, at + 1).ids.tolist()) for at in range(len(texts))]
    np.testing.assert_allclose(encoder(texts).detach().numpy(), expected, rtol=0, atol=1e-5)
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            np.testing.assert_allclose(encoder(texts).numpy(), expected, rtol=0, atol=1e-5)


def assert_alone_is_together(config):
    """A text has the same vector alone, in a batch and in another order, also of 500 tokens and width 300."""
    drawn = np.random.default_rng(3)
    offsets = np.cumsum([0, 500, 3, 1, 40, 500, 17])
    texts = Ragged(drawn.integers(0, 400, offsets[-1]).astype(np.int32), offsets)
    rows = torch.from_numpy(drawn.standard_normal((400, 300), dtype=np.float32) * np.float32(0.2))
    composition = config.build(300, torch.Generator().manual_seed(1))

    def vectors(texts):
        return composition(rows, torch.from_numpy(texts.ids), torch.from_numpy(texts.offsets))

    order = np.array([3, 5, 0, 4, 1, 2])
    with torch.inference_mode():
        together = vectors(texts)
        alone = torch.cat([vectors(texts.slice(at, at + 1)) for at in range(len(texts))])
        torch.testing.assert_close(alone, together, rtol=0, atol=1e-6)
        torch.testing.assert_close(vectors(texts.take(order)), together[order], rtol=0, atol=1e-6)
