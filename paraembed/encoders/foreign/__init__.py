"""Encoders of other libraries, computed by these libraries: ``st:``, ``m2v:``, ``onnx:``."""

from collections.abc import Callable
from dataclasses import fields, replace
from importlib import import_module
from pkgutil import resolve_name

from paraembed.encoders.devices import chosen_device
from paraembed.encoders.foreign.base import ForeignEncoder, errors_of_libraries
from paraembed.encoders.foreign.files import ModelFiles, model_files
from paraembed.process import HUB, set_environment
from paraembed.settings import PEERS, Inference

_CLASSES = {
    "st": "sentence_transformers:SentenceTransformerEncoder",
    "m2v": "model2vec:Model2VecEncoder",
    "onnx": "onnx:OnnxEncoder",
}
# Not the extras of paraembed: on a public index anybody could register that name.
_PACKAGES = {"st": "sentence-transformers", "m2v": "model2vec", "onnx": "onnxruntime tokenizers"}


def open_foreign(name: str, inference: Inference) -> ForeignEncoder:
    """Return the encoder ``st:PATH_OR_NAME``, ``m2v:PATH_OR_NAME`` or ``onnx:PATH``; a name is one of the Hugging Face
    hub. Raise ValueError if the library is not installed, the model does not exist, its weights could run code, or it
    does not support a setting.
    """
    kind, _, wanted = name.partition(":")
    set_environment(HUB)
    try:
        import_module(PEERS[kind])
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{name} needs {PEERS[kind]}, but {error.name} is not installed; run pip install {_PACKAGES[kind]}"
        ) from None
    files = model_files(wanted, name, "onnx:" if kind == "onnx" else inference.backend)
    return open_files(kind, files, inference, name)


def open_files(kind: str, files: ModelFiles, inference: Inference, name: str) -> ForeignEncoder:
    """Return the encoder of a model's files; see ``open_foreign``."""
    set_environment(HUB)
    encoder: type[ForeignEncoder] = resolve_name(f"{__name__}.{_CLASSES[kind]}")
    for setting in fields(Inference):
        value = getattr(inference, setting.name)
        if setting.name not in {"device", *encoder.settings} and value not in {None, "", setting.default}:
            raise ValueError(f"`{setting.name}` is {value!r}, but {kind}: models do not support it; leave it out")
    without_gpu = encoder.no_gpu(inference.backend)
    if inference.device == "cuda" and without_gpu:
        raise ValueError(f"`device` is cuda, but {without_gpu}")
    inference = replace(inference, device=chosen_device(inference.device, gains=not without_gpu))
    make: Callable[[ModelFiles, Inference], ForeignEncoder] = encoder
    with errors_of_libraries(f"{name} is not a model that {PEERS[kind]} can load", name), files.snapshot() as snapshot:
        loaded = make(snapshot, inference)
    loaded.files = files
    return loaded
