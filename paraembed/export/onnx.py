"""Write encoders as ONNX graphs: padded word ids and their mask in, text vectors out.

Inputs ``input_ids`` and ``attention_mask``, int64 [N, L]; output ``sentence_embedding``, float32 [N, H], zeros for a
text without tokens. N and L are dynamic. Other libraries read this layout, and none reads ids with offsets.

The recurrences are ONNX's own operators LSTM, GRU and RNN, with the weights in their order. An LSTM without an output
gate gets one that is open, σ(30) = 1 in float32. Only ``gran3`` and ``gran4``, whose gates act on a sum, need a Scan.

Shapes in names: N texts, L tokens of the longest text, D width of a word, H width of a text.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders.averages import Avg, ScaledAvg, Sum, Word, vectors_of
from paraembed.encoders.base import Encoder
from paraembed.encoders.cnn import Cnn
from paraembed.encoders.composition import Composition
from paraembed.encoders.dense import Dan, Proj
from paraembed.encoders.gran import Gran
from paraembed.encoders.gru import Gru
from paraembed.encoders.lstm import Lstm, Reader, Recurrent
from paraembed.encoders.rnn import Rnn
from paraembed.io.atomic import write_json
from paraembed.text.vocabulary import BOS_EOS, UNKNOWN

OPSET = 17
_IR = 8  # the version of the file format that belongs to the opset
_MOST_BYTES = 2**31 - 2**20  # a graph is one protobuf message
_MOST_TOKENS = 2**20 - 1  # readers take a larger number, or none, for a limit of 512
_OPEN = 30.0
_LOWEST = float(np.finfo(np.float32).min)


class _Graph:
    """Graph under construction: methods add a node and return the name of its output."""

    def __init__(self, prefix: str = "") -> None:
        self.onnx, self._prefix = import_module("onnx"), prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{self._prefix}{kind.lower()}_{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Tensor | npt.ArrayLike) -> str:
        """Add a constant: float32 or int64."""
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        name = f"{self._prefix}constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def linear(self, vectors: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """Apply a linear map [out, in] to vectors […, in]."""
        product: str = self("MatMul", vectors, self.constant(weight.t()))
        return product if bias is None else self("Add", product, self.constant(bias))


class _Texts:
    """The tokens of a batch in a graph; words are time-major, and the mask is 1 for a token, 0 for padding, float32."""

    def __init__(self, graph: _Graph, table: npt.NDArray[np.float32]) -> None:
        self._graph = graph
        # With a column of padding, there is a token to read even if all texts are empty.
        pad = graph.constant([0, 0, 0, 1])
        ids_NL, mask_NL = (graph("Pad", name, pad) for name in ("input_ids", "attention_mask"))
        self.words_LND = graph("Gather", graph.constant(table), graph("Transpose", ids_NL, perm=[1, 0]))
        self.mask_NL = graph("Cast", mask_NL, to=graph.onnx.TensorProto.FLOAT)
        self.num_tokens_N1 = graph("ReduceSum", self.mask_NL, graph.constant([1]), keepdims=1)
        self.lengths_N1 = graph("Max", self.num_tokens_N1, graph.constant(1.0))  # float32
        flat = graph("Squeeze", self.lengths_N1, graph.constant([1]))
        self.lengths_N = graph("Cast", flat, to=graph.onnx.TensorProto.INT32)  # for recurrences

    def first(self) -> str:
        """Return the word vectors [N, D] of the first tokens."""
        return str(self._graph("Gather", self.words_LND, self._graph.constant(0), axis=0))

    def total(self, vectors_LNH: str) -> str:
        """Return the sums over the tokens, [N, H]."""
        return self._weighted(vectors_LNH, self.mask_NL)

    def mean(self, vectors_LNH: str) -> str:
        """Return the means over the tokens, [N, H]."""
        return str(self._graph("Div", self.total(vectors_LNH), self.lengths_N1))

    def last(self, vectors_LNH: str) -> str:
        """Return the vectors of the last tokens, [N, H]."""
        graph = self._graph
        numbers_NL = graph("CumSum", self.mask_NL, graph.constant(1))  # from 1; stays at the last one in the padding
        is_last = graph("Cast", graph("Equal", numbers_NL, self.lengths_N1), to=graph.onnx.TensorProto.FLOAT)
        return self._weighted(vectors_LNH, graph("Mul", is_last, self.mask_NL))

    def _weighted(self, vectors_LNH: str, weights_NL: str) -> str:
        graph = self._graph
        weights_N1L = graph("Unsqueeze", weights_NL, graph.constant([1]))
        sums_N1H = graph("MatMul", weights_N1L, graph("Transpose", vectors_LNH, perm=[1, 0, 2]))
        return str(graph("Squeeze", sums_N1H, graph.constant([1])))


def write_onnx(encoder: Encoder, tokenizer: bytes, folder: Path) -> None:
    """Write ``model.onnx``, ``tokenizer.json`` and their settings into an existing folder. Raise ValueError if the
    encoder reads trees, has 2 GiB or more, or the package onnx is not installed.
    """
    (folder / "model.onnx").write_bytes(_model(encoder))
    (folder / "tokenizer.json").write_bytes(tokenizer)
    limit = _MOST_TOKENS if encoder.max_tokens is None else encoder.max_tokens + len(BOS_EOS[encoder.bos_eos_tokens])
    write_json(folder / "config.json", {"hidden_size": encoder.width, "pad_token_id": 0})
    write_json(
        folder / "tokenizer_config.json",
        {
            "model_max_length": limit,
            "pad_token": encoder.vocabulary[0].as_py(),
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": UNKNOWN,
        },
    )
    write_json(folder / "special_tokens_map.json", {})


def _model(encoder: Encoder) -> bytes:
    """Return the graph of an encoder."""
    try:
        graph = _Graph()
    except ModuleNotFoundError:
        raise ValueError("the export needs the package onnx; run pip install onnx") from None
    add_vectors = _VECTORS.get(type(encoder.composition))
    if add_vectors is None:
        reason = "reads a parse tree of each text" if encoder.reads_trees else "has no form as a graph"
        raise ValueError(f"{encoder.config.name} {reason}; export its word vectors with `to` word2vec")
    size = sum(parameter.numel() * 4 for parameter in encoder.parameters())
    if size > _MOST_BYTES:
        raise ValueError(
            f"the encoder has {size:,} bytes, but an ONNX graph holds {_MOST_BYTES:,}; train with fewer words"
        )
    helper, kinds = graph.onnx.helper, graph.onnx.TensorProto
    texts = _Texts(graph, vectors_of(encoder))
    vectors_NH = add_vectors(graph, texts, encoder.composition)
    ends = float(len(BOS_EOS[encoder.bos_eos_tokens]))
    filled_N1 = graph("Clip", graph("Sub", texts.num_tokens_N1, graph.constant(ends)), *map(graph.constant, (0.0, 1.0)))
    graph.nodes.append(helper.make_node("Mul", [vectors_NH, filled_N1], ["sentence_embedding"]))
    inputs = [helper.make_tensor_value_info(name, kinds.INT64, ["n", "l"]) for name in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info("sentence_embedding", kinds.FLOAT, ["n", encoder.width])
    whole = helper.make_graph(graph.nodes, encoder.config.name, inputs, [output], graph.constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(whole, opset_imports=[opset], ir_version=_IR, producer_name="paraembed")
    graph.onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _linear(graph: _Graph, texts: _Texts, proj: Proj) -> str:
    return graph.linear(texts.mean(texts.words_LND), proj.weight, proj.bias)


def _layers(graph: _Graph, texts: _Texts, dan: Dan) -> str:
    vectors = texts.mean(texts.words_LND)
    for weight, bias in zip(dan.weights, dan.biases, strict=True):
        vectors = graph("Tanh" if dan.activation == "tanh" else "Relu", graph.linear(vectors, weight, bias))
    return vectors


def _maxima(graph: _Graph, texts: _Texts, cnn: Cnn) -> str:
    responses_LNF = graph.linear(texts.words_LND, cnn.weight)
    mask_LN1 = graph("Unsqueeze", graph("Transpose", texts.mask_NL, perm=[1, 0]), graph.constant([2]))
    is_token = graph("Cast", mask_LN1, to=graph.onnx.TensorProto.BOOL)
    masked_LNF = graph("Where", is_token, responses_LNF, graph.constant(_LOWEST))
    maxima_NF = graph("ReduceMax", masked_LNF, axes=[0], keepdims=0)
    return str(graph("Relu", graph("Sub", maxima_NF, graph.constant(cnn.bias))))


def _recurrence(
    graph: _Graph, texts: _Texts, kind: str, weights: Sequence[Tensor], outputs: int, more: str = "", **attributes: Any
) -> list[str]:
    """Add a recurrent operator from the state zero, with input weight, state weight and bias, in ONNX's order."""
    named = [graph.constant(weight[None]) for weight in weights]
    inputs = [texts.words_LND, *named, texts.lengths_N, *(["", "", more] if more else [])]
    results: list[str] = graph(kind, *inputs, outputs=outputs, **attributes)
    return results


def _rnn(graph: _Graph, texts: _Texts, rnn: Rnn) -> str:
    is_irnn = rnn.activation == "identity"
    activation: dict[str, Any] = {"activations": [rnn.activation.capitalize()]}
    if is_irnn:
        activation = {"activations": ["Affine"], "activation_alpha": [1.0], "activation_beta": [0.0]}
    weights = rnn.input_weight, rnn.state_weight, torch.cat([rnn.bias, torch.zeros_like(rnn.bias)])
    _, last_1NH = _recurrence(graph, texts, "RNN", weights, 2, hidden_size=rnn.width, **activation)
    last_NH = str(graph("Squeeze", last_1NH, graph.constant([0])))
    return str(graph("Div", last_NH, texts.lengths_N1)) if is_irnn else last_NH


def _recurrent(graph: _Graph, texts: _Texts, recurrent: Recurrent) -> str:
    if recurrent.reader_back is not None:
        return _both_ways(graph, texts, recurrent, recurrent.reader_back)
    vectors_LNH = _read(graph, texts, recurrent.reader)
    if recurrent.pool == "mean":
        return texts.mean(vectors_LNH)
    last_NH = texts.last(vectors_LNH)
    return last_NH if recurrent.pool == "last" else str(graph("Div", last_NH, texts.lengths_N1))


def _gru(graph: _Graph, texts: _Texts, gru: Gru) -> str:
    """Add a GRU; ONNX's update gate is 1 - z, so the weights of z change their sign."""
    sign = torch.ones(3 * gru.width)
    sign[: gru.width] = -1
    bias = torch.zeros(3 * gru.width) if gru.bias is None else gru.bias * sign
    weights = (
        gru.input_weight * sign[:, None],
        gru.state_weight * sign[:, None],
        torch.cat([bias, torch.zeros_like(bias)]),
    )
    _, last_1NH = _recurrence(graph, texts, "GRU", weights, 2, hidden_size=gru.width, linear_before_reset=0)
    return str(graph("Squeeze", last_1NH, graph.constant([0])))


def _read(graph: _Graph, texts: _Texts, reader: Reader, direction: str = "forward") -> str:
    """Add a reader; return the name of its vectors [L, N, H]."""
    if isinstance(reader, Lstm):
        return _lstm(graph, texts, reader, direction)
    assert isinstance(reader, Gran)
    states_LND = _lstm(graph, texts, reader.lstm, direction)
    of_words = graph.linear(texts.words_LND, reader.input_weight, reader.bias)
    logits = graph("Add", of_words, graph.linear(states_LND, reader.state_weight))
    match reader.form:
        case "tanh" | "relu":
            return str(graph(reader.form.capitalize(), logits))
        case "gran" | "gran2":
            gated = texts.words_LND if reader.form == "gran" else states_LND
            return str(graph("Mul", gated, graph("Sigmoid", logits)))
        case "gran5":
            of_word, of_state = graph("Split", graph("Sigmoid", logits), outputs=2, axis=2)
            return str(graph("Add", graph("Mul", texts.words_LND, of_word), graph("Mul", states_LND, of_state)))
    return _gated_sums(graph, texts, logits, reader)


def _lstm(graph: _Graph, texts: _Texts, lstm: Lstm, direction: str) -> str:
    """Add an LSTM; return the name of its states [L, N, H]."""
    width = lstm.width
    has_output = len(lstm.bias) == 4 * width
    parts = [weight.chunk(4 if has_output else 3) for weight in (lstm.input_weight, lstm.state_weight, lstm.bias)]
    if not has_output:
        still = [torch.zeros_like(parts[0][0]), torch.zeros_like(parts[1][0]), torch.full((width,), _OPEN)]
        parts = [(*gates, gate) for gates, gate in zip(parts, still, strict=True)]
    inputs, states, bias = (torch.cat([take, output, forget, new]) for take, forget, new, output in parts)
    holes = ""
    if lstm.peepholes is not None:
        take, forget, *output = lstm.peepholes
        holes = graph.constant(torch.cat([take, *(output or [torch.zeros(width)]), forget])[None])
    weights = inputs, states, torch.cat([bias, torch.zeros_like(bias)])
    how = {"hidden_size": width, "direction": direction}
    states_L1NH, *_ = _recurrence(graph, texts, "LSTM", weights, 3, holes, **how)
    return str(graph("Squeeze", states_L1NH, graph.constant([1])))


def _gated_sums(graph: _Graph, texts: _Texts, logits: str, gran: Gran) -> str:
    """Add a Scan for a_t = a_{t-1}⊙g_1 + x_t⊙g_2; return the name of the sums [L, N, D]."""
    helper, kinds = graph.onnx.helper, graph.onnx.TensorProto
    step = _Graph("step_")
    gates = "logits"
    if gran.sum_weight is not None:
        gates = step("Add", gates, step.linear("before", gran.sum_weight))
    of_sum, of_word = step("Split", step("Sigmoid", gates), outputs=2, axis=1)
    sums = step("Add", step("Mul", "before", of_sum), step("Mul", "words", of_word))
    step.nodes.append(helper.make_node("Identity", [sums], ["sums"]))

    def value(name: str, width: int) -> Any:
        return helper.make_tensor_value_info(name, kinds.FLOAT, ["n", width])

    takes = [value("before", gran.width), value("words", gran.width), value("logits", 2 * gran.width)]
    gives = [value(sums, gran.width), value("sums", gran.width)]
    body = helper.make_graph(step.nodes, "step", takes, gives, step.constants)
    start_ND = graph("Mul", texts.first(), graph.constant(0.0))
    _, sums_LND = graph("Scan", start_ND, texts.words_LND, logits, outputs=2, body=body, num_scan_inputs=2)
    return str(sums_LND)


def _both_ways(graph: _Graph, texts: _Texts, composition: Recurrent, reader_back: Reader) -> str:
    ahead_LNH = _read(graph, texts, composition.reader)
    back_LNH = _read(graph, texts, reader_back, "reverse")
    if composition.pool == "last":  # the backward reader ends at the first token
        both = texts.last(ahead_LNH), graph("Gather", back_LNH, graph.constant(0), axis=0)
    else:
        both = ahead_LNH, back_LNH
    if composition.combine_weight is None:
        combined = graph("Add", *both)
    else:
        joined = graph("Concat", *both, axis=-1)
        combined = graph("Tanh", graph.linear(joined, composition.combine_weight, composition.combine_bias))
    return str(combined) if composition.pool == "last" else texts.mean(combined)


_VECTORS: dict[type[Composition], Callable[[_Graph, _Texts, Any], str]] = {
    Avg: lambda _, texts, __: texts.mean(texts.words_LND),
    ScaledAvg: lambda _, texts, __: texts.mean(texts.words_LND),
    Sum: lambda _, texts, __: texts.total(texts.words_LND),
    Word: lambda _, texts, __: texts.first(),
    Proj: _linear,
    Dan: _layers,
    Cnn: _maxima,
    Rnn: _rnn,
    Gru: _gru,
    Recurrent: _recurrent,
}
"""Composition → the function that adds its nodes and returns the name of the text vectors [N, H]."""
