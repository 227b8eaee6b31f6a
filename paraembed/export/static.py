"""Write bag-of-words encoders as static models of sentence-transformers and model2vec: the mean of a table's rows.

The text vector of ``avg`` is that mean. The scales of ``scaled_avg`` and the linear map of ``proj`` go into the table,
W_p·mean(x) + b = mean(W_p·x + b), so that a text without tokens keeps the vector zero. The layers of ``dan`` follow as
Dense modules without a bias: a further column of ones in the table carries it, for the same reason.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders.averages import Avg, ScaledAvg, Word, vectors_of
from paraembed.encoders.base import Encoder
from paraembed.encoders.dense import Dan, Proj
from paraembed.io.atomic import write_json
from paraembed.io.tensors import save_tensors

_SATURATED = 20.0  # tanh of it is 1 in float32
_OF_MODULES = "sentence_transformers.models"  # every version from 3 on finds its modules under this name


@dataclass(frozen=True)
class StaticForm:
    """A text vector as a mean of table rows, float32 [V, H], or [V, D + 1] if dense layers follow: weights [out, in],
    and the name of their activation function in ``torch.nn``. At most ``max_tokens`` tokens per text count; None: all.
    """

    table: npt.NDArray[np.float32]
    layers: tuple[Tensor, ...] = ()
    activation: str = ""
    max_tokens: int | None = None


def static_form(encoder: Encoder) -> StaticForm:
    """Return the static form of an encoder; raise ValueError if it has none."""
    composition, name, limit = encoder.composition, encoder.config.name, encoder.max_tokens
    if encoder.bos_eos_tokens != "none":
        raise ValueError(
            f"the encoder adds BOS/EOS tokens ({encoder.bos_eos_tokens}), which static models cannot; export it with "
            "`to` onnx"
        )
    if isinstance(composition, Avg | ScaledAvg):
        return StaticForm(vectors_of(encoder), max_tokens=limit)
    if isinstance(composition, Word):
        return StaticForm(vectors_of(encoder), max_tokens=1)
    if isinstance(composition, Proj):
        mapped = encoder.matrix.detach().double() @ composition.weight.double().T + composition.bias.double()
        return StaticForm(mapped.float().numpy(), max_tokens=limit)
    if isinstance(composition, Dan):
        ones = np.ones((len(encoder.vocabulary), 1), np.float32)
        activation = "Tanh" if composition.activation == "tanh" else "ReLU"
        layers = _without_bias(composition)
        return StaticForm(np.hstack([vectors_of(encoder), ones]), layers, activation, limit)
    reason = "is a sum, and static models only compute means; those of avg have the same cosines"
    if name != "sum":
        reason = "depends on the order of the tokens" if name != "cnn" else "is a maximum, not a mean"
    raise ValueError(f"the vector of {name} {reason}; export the encoder with `to` onnx")


def _without_bias(dan: Dan) -> tuple[Tensor, ...]:
    """Return the weights of the layers, [H + 1, D + 1], …, [H, H + 1]: the last input is 1 and its weights the bias.

    The last output is again 1, the activation of its weight; the last layer does without it.
    """
    unit = torch.tensor([_SATURATED if dan.activation == "tanh" else 1.0])
    layers = []
    for weight, bias in zip(dan.weights, dan.biases, strict=True):
        carry = torch.cat([torch.zeros(weight.shape[1]), unit])
        layers.append(torch.cat([torch.cat([weight.detach(), bias.detach()[:, None]], dim=1), carry[None]]))
    layers[-1] = layers[-1][:-1]
    return tuple(layers)


def write_sentence_transformers(form: StaticForm, tokenizer: bytes, folder: Path) -> None:
    """Write the files that ``SentenceTransformer(folder)`` loads into an existing folder."""
    modules = [("", "StaticEmbedding"), *((f"{number}_Dense", "Dense") for number in range(1, len(form.layers) + 1))]
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_OF_MODULES}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    about: dict[str, Any] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", {**about, "similarity_fn_name": "cosine"})
    save_tensors({"embedding.weight": torch.from_numpy(form.table)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(tokenizer)
    for (path, _), weight in zip(modules[1:], form.layers, strict=True):
        (folder / path).mkdir()
        activation = f"torch.nn.modules.activation.{form.activation}"
        shape = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False}
        write_json(folder / path / "config.json", {**shape, "activation_function": activation})
        save_tensors({"linear.weight": weight}, folder / path / "model.safetensors")


def write_model2vec(form: StaticForm, tokenizer: bytes, folder: Path) -> None:
    """Write the files that ``StaticModel.from_pretrained(folder)`` loads into an existing folder. Raise ValueError if
    the form has layers or a maximum number of tokens.

    ``max_length`` is null, because model2vec would otherwise truncate texts to 512 tokens, and before that to a number
    of characters. The tokenizer has marks, because model2vec drops the tokens that are named unknown.
    """
    if form.layers or form.max_tokens is not None:
        what = "layers on the mean" if form.layers else f"at most {form.max_tokens} tokens per text"
        raise ValueError(
            f"the encoder has {what}, which model2vec cannot compute; export it with `to` sentence-transformers"
        )
    about = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": form.table.shape[1]}
    write_json(folder / "config.json", {**about, "normalize": False, "max_length": None, "embedding_dtype": "float32"})
    module = {"idx": 0, "name": "0", "path": ".", "type": f"{_OF_MODULES}.StaticEmbedding"}
    write_json(folder / "modules.json", [module])
    save_tensors({"embeddings": torch.from_numpy(form.table)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(tokenizer)
