"""Open any encoder by its name: a folder, an MLflow run or registered model, or a model of another library."""

import os
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from paraembed import checkpoint
from paraembed.encoders.devices import chosen_device
from paraembed.process import HUB, set_environment
from paraembed.settings import (
    DEFAULT_INFERENCE,
    PEERS,
    SHIPPED_FOLDER,
    Inference,
    Precision,
    is_peer,
    is_run,
    is_shipped,
    suggested,
)

if TYPE_CHECKING:
    from paraembed.encoders import Encoder
    from paraembed.encoders.concat import Concat
    from paraembed.encoders.foreign.base import ForeignEncoder
    from paraembed.encoders.word_average import WordAverage

Fetch = Callable[[str, Path], Path]
"""Function that downloads the encoder of an MLflow run or registered model to a folder, and returns the encoder
folder.
"""

_CLASSES = {
    "st": "sentence_transformers:SentenceTransformerEncoder",
    "m2v": "model2vec:Model2VecEncoder",
    "onnx": "onnx:OnnxEncoder",
}
_GPUS = "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"  # devices of drivers; PyTorch takes 2 s to look for a GPU
# Not the extras of paraembed: on a public index anybody could register that name.
_PACKAGES = {"st": "sentence-transformers", "m2v": "model2vec", "onnx": "onnxruntime tokenizers"}


def open_encoder(
    name: str, inference: Inference = DEFAULT_INFERENCE, fetch: Fetch | None = None, *, for_vectors: bool = True
) -> "Encoder | WordAverage | Concat | ForeignEncoder":
    """Return an encoder by its name.

    Args:
        name: an encoder folder, or that of two encoders as one; ``small``, the encoder in the package, if there is no
            folder of that name; ``st:``, ``m2v:`` or ``onnx:`` with a folder, or a name on the Hugging Face hub; with
            ``fetch`` also an MLflow run id or ``models:/NAME@ALIAS``.
        inference: device, precision and settings of other libraries' models.
        fetch: see ``Fetch``.
        for_vectors: the encoder is only asked for vectors; then one that adds words needs no PyTorch.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder does not exist.
        ValueError: the model or run does not exist or is damaged, its library is not installed, its weights could run
            code, or the encoder does not support a setting.
    """
    if is_peer(name):
        return _of_library(name, inference)
    is_usual = inference.device != "cuda" and inference.precision in {"auto", "float32"}
    if fetch is not None and is_run(name):
        with TemporaryDirectory() as folder:
            encoder = checkpoint.load_any(fetch(name, Path(folder)), for_vectors=for_vectors and is_usual)
    elif is_shipped(name) or os.path.lexists(name):
        place = SHIPPED_FOLDER if is_shipped(name) else name
        encoder = checkpoint.load_any(place, for_vectors=for_vectors and is_usual)
    else:
        raise FileNotFoundError(f"{name} does not exist; expected an encoder folder{suggested(name)}")
    for setting in fields(Inference):
        if setting.name not in {"device", "precision"} and getattr(inference, setting.name) != setting.default:
            raise ValueError(
                f"`{setting.name}` only applies to models of other libraries; leave it out for an encoder folder"
            )
    precision: Precision = "float32" if inference.precision == "auto" else inference.precision
    return encoder.placed(chosen_device(inference.device, gains=encoder.gains_from_gpu), precision)


def known_encoder(
    name: str, inference: Inference, stored: Callable[[], checkpoint.KnownEncoder] | None = None
) -> checkpoint.KnownEncoder | None:
    """Return what is known of an encoder with default settings, float32 among them, without opening it; None if it must
    be opened.

    An ``st:`` model in a folder is compared with that of a finished output, ``stored``, unless a GPU would compute it.
    """
    kind, _, wanted = name.partition(":")
    if inference not in {DEFAULT_INFERENCE, Inference(precision="float32")}:
        return None
    if kind == "st" and stored and Path(wanted).is_dir() and not any(map(os.path.exists, _GPUS)):
        from paraembed.encoders.foreign import configuration, files  # noqa: PLC0415 - takes 0.1 s

        before = stored()
        of_model = files.model_files(wanted, name, inference.backend)
        return before if configuration.has_defaults(of_model, before.identity) else None
    if is_peer(name) or is_run(name) or not (is_shipped(name) or Path(name).is_dir()):
        return None
    return checkpoint.known(SHIPPED_FOLDER if is_shipped(name) else Path(name))


def _of_library(name: str, inference: Inference) -> "ForeignEncoder":
    from paraembed.encoders.foreign.files import model_files  # noqa: PLC0415

    kind, _, wanted = name.partition(":")
    set_environment(HUB)
    try:
        import_module(PEERS[kind])
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{name} needs {PEERS[kind]}, but {error.name} is not installed; run pip install {_PACKAGES[kind]}"
        ) from None
    files = model_files(wanted, name, "onnx:" if kind == "onnx" else inference.backend)
    encoder: type[ForeignEncoder] = resolve_name(f"paraembed.encoders.foreign.{_CLASSES[kind]}")
    return encoder.opened(files, inference, name)
