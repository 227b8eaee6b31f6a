"""``st:`` models of sentence-transformers."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch

from paraembed.encoders.foreign import packing
from paraembed.encoders.foreign.base import Matrix, check_ids, largest_id, ragged
from paraembed.encoders.foreign.batches import Batch, InBatches, ModelTokens, packed, padded, special_tokens
from paraembed.encoders.foreign.configuration import LIBRARIES, modules_of
from paraembed.encoders.foreign.files import ModelError, ModelFiles
from paraembed.encoders.foreign.onnx import PROVIDERS, OnnxEncoder, session_options
from paraembed.encoders.packed import Transfer, to_device
from paraembed.encoders.protocol import Embedded
from paraembed.encoders.token_sums import StateSums, merged, sums_of
from paraembed.process import transformers_is_quiet
from paraembed.settings import Backend, Inference
from paraembed.text.ragged import Ragged

_OF_BACKEND = {"torch": (), "onnx": ("optimum", "onnxruntime"), "openvino": ("optimum-intel", "openvino")}
_SETTINGS = ("precision", "prompt", "backend", "batch_tokens", "trust_remote_code")
_LONGEST_PROBE = 1 << 16  # tokens of a text that is truncated, to compare the features of a batch
_REPORTED = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # these are in the report, too
_UNUSED = re.compile(r"(?:^|\.)(?:pooler\.|position_ids$)")  # a vector is a mean of states; positions are counted
_DIMENSION_5 = "get_sentence_embedding_dimension"  # of sentence-transformers 5
_LEAST_COSINE = 0.999  # of the vectors in bfloat16 and float32, with which bfloat16 is used on a GPU
_TEXTS = (  # for comparisons of the model with itself
    "a",
    "The cat sat on the mat.",
    "Two dogs run across a field of snow, and a third one watches them.",
    "Paris, London & Tokyo: 3 of the world's 10 most visited cities in 2019?",
    "He said that the committee had not decided whether the proposal would be accepted before the end of the year.",
    "\u6771\u4eac is the capital of Japan; S\u00e3o Paulo is the largest city of Brazil. " * 3,
)

log = logging.getLogger(__name__)


class SentenceTransformerEncoder(InBatches):
    """Model of sentence-transformers, with transformer blocks or static embeddings, on any of its backends."""

    kind: ClassVar[str] = "st"
    least_cosine: float | None = None
    """Smallest cosine of vectors in bfloat16 and float32, if it decided the precision."""
    _first_position: int | None = 0
    settings: ClassVar[frozenset[str]] = frozenset(_SETTINGS)

    def __init__(self, files: ModelFiles, inference: Inference) -> None:
        self.libraries = (*LIBRARIES, *_OF_BACKEND[inference.backend])
        if inference.backend != "torch" and inference.precision != "float32":
            raise ModelError(
                f"`precision` is {inference.precision}, but {inference.backend} computes as its graph says"
            )
        is_open = inference.precision == "auto"
        inference = replace(inference, precision="float32") if is_open else inference
        options: dict[str, Any] = {"use_safetensors": True, "dtype": getattr(torch, inference.precision)}
        if inference.backend != "torch":
            options = backend_options(inference)
            for name in files.names:
                if name.endswith(".onnx"):
                    files.check_graph(name)
        with transformers_is_quiet():
            self._model = _loaded(files, inference, options)
            self._model.eval()
            if is_open and not hasattr(self._model.tokenizer, "encode_batch_fast"):  # of static embeddings, in float32
                self.least_cosine = cosine_of_bfloat16(self._model)
                if self.least_cosine >= _LEAST_COSINE:
                    inference = replace(inference, precision="bfloat16")
                    self._model = _loaded(files, inference, options | {"dtype": torch.bfloat16}).eval()
        if inference.prompt is None:
            default = self._model.prompts.get(self._model.default_prompt_name) or ""
            inference = replace(inference, prompt=default)
        self.inference, self._prompt = inference, inference.prompt or ""
        self._tokenizer = self._model.tokenizer
        self._sums: list[StateSums] | None = None
        self._is_static = hasattr(self._tokenizer, "encode_batch_fast")  # of `tokenizers`; no special tokens, no limit
        self._bare = self._tokenizer if self._is_static else _without_limit(self._tokenizer)
        self._tokens = None if self._bare is None else ModelTokens(self._bare)
        self._rows = _rows_of(self._model[0])
        if self._is_static and self._rows is not None and (largest := largest_id(self._tokenizer)) >= self._rows:
            raise ModelError(f"its tokenizer has the id {largest:,}, but there are {self._rows:,} vectors of tokens")
        limit = None if self._is_static else self._model.max_seq_length
        self._most = None if limit is None else max(0, limit - self._num_special)
        self._constants = self._constant_features()
        name = "get_embedding_dimension" if hasattr(self._model, "get_embedding_dimension") else _DIMENSION_5
        width = getattr(self._model, name)() or self._compute(["a"]).shape[-1]
        super().__init__(files, inference, width, None if limit is None else max(0, limit - self._overhead))

    @classmethod
    def no_gpu(cls, backend: Backend) -> str:
        """Return the reason if a backend computes on CPUs."""
        if backend == "openvino":
            return "the backend openvino computes on CPUs; use cpu, or another backend"
        if backend == "onnx" and not find_spec("onnxruntime"):
            return "onnxruntime is not installed; install it"
        return OnnxEncoder.no_gpu(backend) if backend == "onnx" else ""

    @property
    def _num_special(self) -> int:
        return 0 if self._is_static else int(self._tokenizer.num_special_tokens_to_add(pair=False))

    @property
    def _unknown(self) -> int | None:
        unknown: int | None = (
            self._tokenizer.token_to_id(getattr(self._tokenizer.model, "unk_token", None) or "")
            if self._is_static
            else self._tokenizer.unk_token_id
        )
        return unknown

    @cached_property
    def _on_device(self) -> Any:
        """The model on its device; moved there with the first batch, because a cluster's driver may have no GPU."""
        return self._model.to(self.inference.device)

    def _prepare(self) -> None:
        """Move the model to its device, and decide whether batches are packed."""
        if "_on_device" in self.__dict__:
            return
        model, is_whole = self._on_device, self._constants is not None and not self._is_static
        if self.inference.device == "cuda" and self.inference.precision != "float32" and is_whole:
            self.pack(model)

    @torch.inference_mode()
    def pack(self, model: Any) -> None:
        """Compute batches without padding, if the vectors of some texts are then the same up to roundings."""
        sums, self._sums = self._sums, None  # of texts whose states are summed, of which these are not
        try:
            padded_BH = torch.from_numpy(self._compute(_TEXTS))
            self._first_position = packing.turn_on(model)
            self.packs = self._first_position is not None
            self.packs = self.packs and packing.is_equal(torch.from_numpy(self._compute(_TEXTS)), padded_BH)
        except Exception as error:  # noqa: BLE001 - of a model whose layers read other arrays
            log.debug("batches are padded: %s", error)
            self.packs = False
        finally:
            self._sums = sums
            if not self.packs and self._first_position is not None:
                packing.turn_off(model)

    def _more_identity(self) -> Mapping[str, Any]:
        return {"backend": self.inference.backend, "trust_remote_code": self.inference.trust_remote_code}

    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n]."""
        return check_ids(self._all_ids(texts), self._rows)

    def _all_ids(self, texts: pa.StringArray) -> Ragged:
        if self._tokens is not None:
            return self._tokens(texts)
        if not len(texts):  # on which tokenizers of transformers fail
            return ragged([])
        only = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
        return ragged(self._tokenizer(texts.to_pylist(), verbose=False, **only)["input_ids"])

    def _arrays(self, batch: Batch) -> dict[str, Any]:
        """Return what the model reads: arrays, and numbers of a packed batch."""
        batch = self._prompted(batch)
        if self._is_static:
            ids = batch.ids.take(batch.rows)
            return {"input_ids": ids.ids.astype(np.int64), "offsets": ids.offsets[:-1]}
        if self.packs:
            given = packed(batch, self._most, *self._special)
            given["position_ids"] += self._first_position
        else:
            is_left = self._tokenizer.padding_side == "left"
            given = padded(batch, self._most, *self._special, self._tokenizer.pad_token_id, left=is_left)
        unread = {"input_ids", "attention_mask", "token_type_ids"} - set(self._tokenizer.model_input_names)
        return {name: value for name, value in given.items() if name not in unread}

    @cached_property
    def _special(self) -> tuple[list[int], list[int]]:
        return special_tokens(self._bare)

    def _constant_features(self) -> dict[str, Any] | None:
        """Return what the model reads besides the tensors, or None if the library has other tensors for some texts, one
        of them longer than the model reads, or truncates vectors. Then the library tokenizes each batch again.
        """
        if (self._most is None and not self._is_static) or getattr(self._model, "truncate_dim", None) is not None:
            return None
        most = self._most or 0
        prepare = getattr(self._model, "preprocess", None)  # version 6
        if prepare is None and not self._prompt:
            prepare = self._model.tokenize
        if prepare is None or self._bare is None or most > _LONGEST_PROBE:
            return None
        texts = ["a", " Two dogs\n", "once " + "red dog " * most]
        expected = prepare(texts, prompt=self._prompt) if self._prompt else prepare(texts)
        tensors = {name: value for name, value in expected.items() if isinstance(value, torch.Tensor)}
        strings = pa.array(texts)
        arrays = self._arrays(Batch(strings, self.token_ids(strings), np.arange(len(texts))))
        built = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if built.keys() != tensors.keys() or any(
            built[name].dtype != tensors[name].dtype or not torch.equal(built[name], tensors[name]) for name in built
        ):
            return None
        return {name: value for name, value in expected.items() if name not in tensors}

    @cached_property
    def has_states(self) -> bool:
        """Whether ``embed_states`` can be used: the last layer has a state for each token, as wide as a text vector,
        and there is no prompt, whose tokens would be counted, too.
        """
        if self._is_static or self._prompt or self.inference.backend != "torch":
            return False
        (output,) = self._model.encode(["a"], output_value=None, show_progress_bar=False, device="cpu")
        states = output.get("token_embeddings")
        return "input_ids" in output and states is not None and states.shape == (len(output["input_ids"]), self.width)

    def embed_states(self, texts: pa.StringArray) -> tuple[Embedded, StateSums]:
        """Return vectors and counts of a string array [n] as ``embed`` does, and the sums of its tokens' states."""
        self._sums = []
        try:
            return self.embed(texts), merged(self._sums, self.width)
        finally:
            self._sums = None

    def _features(self, batch: Batch) -> Any:
        if self._constants is None or self._sums is not None:
            return batch.own_texts.to_pylist()
        device = torch.device(self.inference.device)
        arrays = self._arrays(batch).items()
        return {name: to_device(value, device) if isinstance(value, np.ndarray) else value for name, value in arrays}

    @torch.inference_mode()
    def _forward(self, features: Any) -> Any:
        if isinstance(features, list):
            return Transfer(self._encoded(self._on_device, features).float())
        return Transfer(self._on_device({**features, **(self._constants or {})})["sentence_embedding"].float())

    def _vectors(self, output: Transfer) -> Matrix:
        return output.array()

    def _encoded(self, model: Any, texts: list[str]) -> torch.Tensor:
        """Return the vectors of texts that the library tokenizes, and add the sums of their states, if wanted."""
        options = {"batch_size": len(texts), "prompt": self._prompt, "show_progress_bar": False}
        if self._sums is None:
            return torch.as_tensor(model.encode(texts, convert_to_tensor=True, **options))
        outputs = model.encode(texts, convert_to_numpy=False, output_value=None, **options)
        ids_BL, mask_BL, states_BLH, vectors_BH = (
            torch.stack([output[name] for output in outputs]).cpu()
            for name in ("input_ids", "attention_mask", "token_embeddings", "sentence_embedding")
        )
        special = set(self._tokenizer.all_special_ids) - {self._tokenizer.unk_token_id}
        is_read_BL = mask_BL.bool() & ~torch.isin(ids_BL, torch.tensor(sorted(special), dtype=ids_BL.dtype))
        self._sums.append(sums_of(ids_BL[is_read_BL].numpy(), states_BLH[is_read_BL].float().numpy()))
        return vectors_BH


@torch.inference_mode()
def cosine_of_bfloat16(model: Any) -> float:
    """Return the smallest cosine of the vectors of some texts in float32 and in bfloat16, of a model in float32.

    Weights and the output of each layer are rounded to bfloat16, while products are computed in float32, as on a GPU.
    So any machine gets the same answer, and a CPU without bfloat16 does not take 50 times as long.
    """

    def rounded(_module: Any, _inputs: Any, output: Any) -> Any:
        return output.bfloat16().float() if isinstance(output, torch.Tensor) else output

    how = {"convert_to_tensor": True, "show_progress_bar": False, "device": "cpu"}
    exact_BH = model.encode(list(_TEXTS), **how)
    saved = [(value, value.clone()) for value in model.parameters()]
    hooks = [module.register_forward_hook(rounded) for module in model[0].modules()]
    try:
        for value, original in saved:
            value.copy_(original.bfloat16())
        cosines = torch.nn.functional.cosine_similarity(model.encode(list(_TEXTS), **how), exact_BH)
    finally:
        for value, original in saved:
            value.copy_(original)
        for hook in hooks:
            hook.remove()
    return float(cosines.min())


def _without_limit(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer of the library ``tokenizers`` that neither truncates nor pads; None for one of
    another library. The model's own changes both with each call, so threads cannot share it.
    """
    own = getattr(tokenizer, "backend_tokenizer", None)
    if own is None:
        return None
    copy = type(own).from_str(own.to_str())
    copy.encode_special_tokens = own.encode_special_tokens
    copy.no_truncation()
    copy.no_padding()
    return copy


def backend_options(inference: Inference) -> dict[str, Any]:
    """Return the settings of the backend onnx or openvino: one thread, as each worker has, and the device."""
    if inference.backend == "openvino":
        # By default, OpenVINO computes in bfloat16 where the processor can: vectors of MiniLM then differ by 1e-3.
        return {"ov_config": {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}}
    return {"session_options": session_options(), "provider": PROVIDERS[inference.device]}


def _rows_of(module: Any) -> int | None:
    """Return the number of token vectors of a model's first module; None if it has no such table."""
    embedding = getattr(module, "embedding", None)
    network: Any = getattr(module, "auto_model", None)
    if hasattr(network, "get_input_embeddings"):
        embedding = network.get_input_embeddings()
    return getattr(embedding, "num_embeddings", None)


def _loaded(files: ModelFiles, inference: Inference, options: dict[str, Any]) -> Any:
    """Return the library's model of a snapshot, built from the modules that are allowed."""
    modules, config, only_library = modules_of(files, is_trusted=inference.trust_remote_code)
    library = import_module("sentence_transformers")
    more = {"local_files_only": True, "trust_remote_code": inference.trust_remote_code, "model_kwargs": options}
    more["backend"] = inference.backend
    if only_library:
        more["model_kwargs"] = options | ({"ignore_mismatched_sizes": True} if inference.backend == "torch" else {})
        model = library.SentenceTransformer(str(files.folder), device="cpu", **more)
        for module, built in zip_longest(modules, model):
            network: Any = getattr(built, "auto_model", None)
            if inference.backend == "torch" and hasattr(network, "from_pretrained"):
                folder = files.folder / (module.path if module else "")
                loading = {**options, **_REPORTED, "config": network.config, "local_files_only": True}
                _check_report(type(network).from_pretrained(folder, **loading)[1], built)
        return model
    is_new = find_spec("sentence_transformers.sentence_transformer")  # since version 5.4
    classes = import_module(f"sentence_transformers.{'sentence_transformer.modules' if is_new else 'models'}")
    kinds = {module.kind: getattr(classes, module.kind) for module in modules}
    if inference.backend == "torch" and "Transformer" in kinds:
        kinds["Transformer"] = _reporting(kinds["Transformer"])
    built = [kinds[module.kind].load(str(files.folder), subfolder=module.path, **more) for module in modules]
    if not all(getattr(module, "is_checked", True) for module in built):
        raise ModelError("this version of sentence-transformers does not report which weights are missing; install 6.2")
    prompts = {name: prompt for name, prompt in (config.get("prompts") or {}).items() if prompt is not None}
    settings = {name: config.get(name) for name in ("default_prompt_name", "truncate_dim")}
    return library.SentenceTransformer(modules=built, prompts=prompts, device="cpu", **settings)


def _reporting(transformer: Any) -> Any:
    """Return a subclass of the library's transformer that checks the report of its loading."""

    class Reporting(transformer):  # type: ignore[misc]
        """Transformer all of whose weights come from its files."""

        auto_model: Any
        is_checked = False

        def _load_model(self, *values: Any, **options: Any) -> Any:
            loaded = super()._load_model(*values, **options, **_REPORTED)
            model, report = self.auto_model if loaded is None else loaded  # until and since version 5.4
            _check_report(report, self)
            self.is_checked = True
            if loaded is None:
                self.auto_model = model
            return model

    return Reporting


def _check_report(report: Mapping[str, Any], transformer: Any) -> None:
    """Raise ModelError if weights are missing or have another shape: the library would draw them at random."""
    reads_pooler = "pooler" in str(getattr(transformer, "modality_config", ""))
    missing = [key for key in report["missing_keys"] if reads_pooler or not _UNUSED.search(key)]
    other = [key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]]
    if missing or other or report["error_msgs"]:
        shown = "; ".join(
            f"{problem}: {', '.join(sorted(keys)[:5])}" + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
            for problem, keys in {
                "missing": missing,
                "of another shape": other,
                "not in the model": sorted(report["unexpected_keys"]) if missing else [],
                "errors": report["error_msgs"],
            }.items()
            if keys
        )
        raise ModelError(f"its weights are not those of its config.json ({shown[:400]}); save the model again")
