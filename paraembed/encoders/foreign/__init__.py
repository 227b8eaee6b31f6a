"""Encoders of other libraries, computed by these libraries: ``st:``, ``m2v:``, ``onnx:``."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from paraembed.encoders.devices import chosen_device
from paraembed.encoders.foreign.base import ForeignEncoder
from paraembed.encoders.foreign.files import ModelFiles, model_files
from paraembed.process import set_environment
from paraembed.settings import PEERS, Inference

_CLASSES = {
    "st": "sentence_transformers.SentenceTransformerEncoder",
    "m2v": "model2vec.Model2VecEncoder",
    "onnx": "onnx.OnnxEncoder",
}
# Not the extras of paraembed: on a public index anybody could register that name.
_PACKAGES = {"st": "sentence-transformers", "m2v": "model2vec", "onnx": "onnxruntime tokenizers"}
# Read by the libraries of the hub when they are imported.
_QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}


def open_foreign(name: str, inference: Inference) -> ForeignEncoder:
    """Return the encoder ``st:PATH_OR_NAME``, ``m2v:PATH_OR_NAME`` or ``onnx:PATH``; a name is one of the Hugging Face
    hub.

    Raises:
        ValueError: the library is not installed, the model does not exist, its weights could run code, or it does not
            support a setting.
    """
    kind, _, wanted = name.partition(":")
    set_environment(_QUIET)
    try:
        import_module(PEERS[kind])
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{name} needs {PEERS[kind]}, but {error.name} is not installed; run pip install {_PACKAGES[kind]}"
        ) from None
    return open_files(kind, model_files(wanted, name), inference, name)


def open_files(kind: str, files: ModelFiles, inference: Inference, name: str) -> ForeignEncoder:
    """Return the encoder of a model's files; see ``open_foreign``."""
    inference = replace(inference, device=chosen_device(inference.device, gains=kind != "m2v"))
    module, _, kind_of = _CLASSES[kind].partition(".")
    encoder: Callable[[ModelFiles, Inference], ForeignEncoder] = getattr(import_module(f"{__name__}.{module}"), kind_of)
    try:
        return encoder(files, inference)
    except Exception as error:  # libraries raise errors of any kind for damaged files
        reason, *_ = str(error).strip().splitlines() or [repr(error)]
        raise ValueError(f"{name} is not a model that {PEERS[kind]} can load: {reason[:300]}") from error
