"""``onnx:`` models: ``model.onnx`` and ``tokenizer.json``, as in the folders of sentence-transformers and fastembed."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from paraembed.encoders.foreign.base import Matrix, check_width
from paraembed.encoders.foreign.batches import Batch, InBatches, ModelTokens, Padded, padded, special_tokens
from paraembed.encoders.foreign.configuration import check_prompt
from paraembed.encoders.foreign.files import GRAPHS, ModelError, ModelFiles
from paraembed.io.fingerprint import read_json
from paraembed.settings import Backend, Inference, Pooling
from paraembed.text.ragged import Ragged

_VECTORS = ("sentence_embedding", "embedding", "embeddings", "vectors")  # outputs that are vectors of texts already
_QUANTIZED = b"DynamicQuantizeLinear"  # operator: its scales depend on the other texts of the batch
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Device → what computes there, in ONNX Runtime."""
_MOST_TOKENS = 512  # where no file of the model has another limit


class OnnxEncoder(InBatches):
    """Model that ONNX Runtime computes.

    Inputs: ``input_ids`` and, if the graph has them, ``attention_mask`` and ``token_type_ids``, int64 [n, L]. Output:
    text vectors [n, H], or token vectors [n, L, H]. Token vectors are pooled as ``1_Pooling/config.json`` or, without
    this file, the setting ``pooling`` says, and normalized if ``modules.json`` has a Normalize module.
    """

    kind: ClassVar[str] = "onnx"
    settings: ClassVar[frozenset[str]] = frozenset({"prompt", "pooling", "batch_tokens"})
    libraries = ("onnxruntime", "tokenizers")

    def __init__(self, files: ModelFiles, inference: Inference) -> None:
        runtime, tokenizers = import_module("onnxruntime"), import_module("tokenizers")
        graph = next((name for name in GRAPHS if name in files.names), None)
        if graph is None or "tokenizer.json" not in files.names:
            raise ModelError(f"a file is missing; expected tokenizer.json and one of {', '.join(GRAPHS)}")
        files.check_graph(graph)
        provider = PROVIDERS[inference.device]
        self._session = runtime.InferenceSession(str(files.folder / graph), session_options(), providers=[provider])
        if provider not in self._session.get_providers():  # ONNX Runtime only warns if CUDA's libraries are missing
            raise ModelError(
                "`device` is cuda, but ONNX Runtime finds no GPU or CUDA library; use cpu, or install them"
            )
        self._inputs = {value.name for value in self._session.get_inputs()}
        outputs = {value.name: value for value in self._session.get_outputs()}
        self._output = next((name for name in _VECTORS if name in outputs), next(iter(outputs)))
        if isinstance(width := [*outputs[self._output].shape, None][-2], int):  # as ONNX Runtime infers it
            check_width(width)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(files.folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._pad = int((self._tokenizer.padding or {}).get("pad_id", 0))
        self._tokenizer.no_padding()
        self._special, self._tokens = special_tokens(self._tokenizer), ModelTokens(self._tokenizer)
        self._prompt = _default_prompt(files) if inference.prompt is None else inference.prompt
        stated, self._normalizes = _pooling(files, has_prompt=bool(self._prompt))
        if stated is None and len(outputs[self._output].shape) == 2:
            stated = "mean"  # of the graph itself
        self._pooling = stated or inference.pooling
        if inference.pooling not in {None, self._pooling}:
            raise ModelError(f"`pooling` is {inference.pooling}, but the model's own is {stated}, which is always used")
        self._is_quantized = _QUANTIZED in (files.folder / graph).read_bytes()
        limit = _limit(files)
        self._most = max(0, limit - self._num_special)  # tokens of a text with its prompt
        width = self._compute(["a"]).shape[-1]
        super().__init__(files, replace(inference, prompt=self._prompt), width, max(0, limit - self._overhead))

    @classmethod
    def no_gpu(cls, backend: Backend) -> str:  # noqa: ARG003
        """Return the reason if the installed ONNX Runtime is that for CPUs."""
        if PROVIDERS["cuda"] in import_module("onnxruntime").get_available_providers():
            return ""
        return "the installed onnxruntime does not support CUDA; install onnxruntime-gpu, or use cpu"

    @property
    def _num_special(self) -> int:
        return int(self._tokenizer.num_special_tokens_to_add(is_pair=False))

    def _more_identity(self) -> Mapping[str, Any]:
        # A graph that returns vectors of texts has none to choose.
        return {"pooling": self._pooling or "mean", "normalizes": self._normalizes, "quantized": self._is_quantized}

    @property
    def _unknown(self) -> int | None:
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        return self._tokenizer.token_to_id(unknown) if unknown else None

    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n]."""
        return self._tokens(texts)

    def _features(self, batch: Batch) -> tuple[dict[str, Padded], Padded]:
        given = padded(self._prompted(batch), self._most, *self._special, self._pad)
        return {name: value for name, value in given.items() if name in self._inputs}, given["attention_mask"]

    def _forward(self, features: tuple[dict[str, Padded], Padded]) -> Matrix:
        feed, mask = features
        try:
            output = np.asarray(self._session.run([self._output], feed)[0], np.float32)
        except Exception as error:
            if "allocate memory" in str(error):  # ONNX Runtime has no type of its own for it
                raise torch.OutOfMemoryError(str(error)) from None
            raise
        if output.shape[:-1] not in {mask.shape[:1], mask.shape}:
            raise ModelError(
                f"the graph returns an array of the shape {list(output.shape)} for {list(mask.shape)} tokens; expected "
                "a vector for each text, or for each token"
            )
        check_width(output.shape[-1])
        if output.ndim == 2:
            vectors: Matrix = output
        elif self._pooling is None:
            raise ModelError(
                "the graph returns a vector for each token, but no 1_Pooling/config.json says how to pool them; "
                "give `pooling` mean or cls, as the model was trained"
            )
        else:
            vectors = output[:, 0].copy() if self._pooling == "cls" else _mean(output, mask)
        if self._normalizes:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors

    def _vectors(self, output: Matrix) -> Matrix:
        return output


def session_options() -> Any:
    """Return the options of a session with one thread, as each worker has."""
    options = import_module("onnxruntime").SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options


def _mean(states_NLH: Matrix, mask_NL: npt.NDArray[np.int64]) -> Matrix:
    weights = mask_NL.astype(np.float32)
    mean: Matrix = np.einsum("nlh,nl->nh", states_NLH, weights) / weights.sum(axis=1, keepdims=True)
    return mean


def _default_prompt(files: ModelFiles) -> str:
    """Return the prompt that the model puts before each text by itself."""
    config = _json(files, "config_sentence_transformers.json") or {}
    prompt = str((config.get("prompts") or {}).get(config.get("default_prompt_name")) or "")
    check_prompt(prompt)
    return prompt


def _pooling(files: ModelFiles, *, has_prompt: bool) -> tuple[str | None, bool]:
    """Return how token vectors are pooled, None if no file says it, and whether the text vector is normalized."""
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in _json(files, "modules.json") or []]
    if other := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
        raise ModelError(f"modules.json names {min(other)}, which onnx: does not support; load the model with st:")
    normalizes = "Normalize" in kinds
    config = _json(files, "1_Pooling/config.json")
    if config is None:
        return None, normalizes
    if has_prompt and config.get("include_prompt") is False:
        raise ModelError("onnx: cannot leave the prompt out of the mean, as 1_Pooling/config.json asks; use st:")
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    active = [name for name, value in config.items() if name.startswith("pooling_mode") and value is True]
    modes = [known.get(name) for name in active] or [config.get("pooling_mode", "mean")]
    if len(modes) != 1 or modes[0] not in get_args(Pooling):
        raise ModelError("1_Pooling/config.json: onnx: supports only mean and cls pooling; load the model with st:")
    return str(modes[0]), normalizes


def _limit(files: ModelFiles) -> int:
    """Return the maximum number of tokens of the model, including special tokens."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
        ("config.json", "max_position_embeddings"),
    ):
        value = (_json(files, name) or {}).get(key)
        if isinstance(value, int) and 0 < value < 1 << 20:  # transformers writes 10^30 for no limit
            return value
    return _MOST_TOKENS


def _json(files: ModelFiles, name: str) -> Any:
    return (
        read_json(files.folder / name, dict[str, Any] if name != "modules.json" else list[dict[str, Any]])
        if name in files.names
        else None
    )
