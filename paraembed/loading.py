"""Open any encoder by its name: a folder, an MLflow run or registered model, or a model of another library."""

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.concat import Concat
from paraembed.encoders.devices import chosen_device
from paraembed.encoders.foreign.base import ForeignEncoder, open_foreign
from paraembed.settings import DEFAULT_INFERENCE, SHIPPED, Inference, is_peer, is_run, is_shipped, suggested

Fetch = Callable[[str, Path], Path]
"""Function that downloads the encoder of an MLflow run or registered model to a folder, and returns the encoder
folder.
"""


def open_encoder(
    name: str, inference: Inference = DEFAULT_INFERENCE, fetch: Fetch | None = None
) -> Encoder | Concat | ForeignEncoder:
    """Return an encoder by its name.

    Args:
        name: an encoder folder, or that of two encoders as one; ``small``, the encoder in the package, if there is no
            folder of that name; ``st:``, ``m2v:`` or ``onnx:`` with a folder, or a name on the Hugging Face hub; with
            ``fetch`` also an MLflow run id or ``models:/NAME@ALIAS``.
        inference: device, precision and settings of other libraries' models.
        fetch: see ``Fetch``.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder does not exist.
        ValueError: the model or run does not exist or is damaged, or the encoder does not support a setting.
    """
    if is_peer(name):
        return open_foreign(name, inference)
    if fetch is not None and is_run(name):
        with TemporaryDirectory() as folder:
            return _placed(checkpoint.load(fetch(name, Path(folder))), inference)
    if is_shipped(name):
        return _placed(checkpoint.load(shipped_folder()), inference)
    if not os.path.lexists(name):
        raise FileNotFoundError(f"{name} does not exist; expected an encoder folder{suggested(name)}")
    return _placed(checkpoint.load_any(name), inference)


def shipped_folder() -> Path:
    """Return the folder of the encoder in the package."""
    return Path(__file__).with_name(SHIPPED)


def _placed(encoder: Encoder | Concat, inference: Inference) -> Encoder | Concat:
    for setting in fields(Inference):
        if setting.name not in {"device", "precision"} and getattr(inference, setting.name) != setting.default:
            raise ValueError(
                f"`{setting.name}` only applies to models of other libraries; leave it out for an encoder folder"
            )
    device = chosen_device(inference.device, gains=encoder.gains_from_gpu)
    return encoder.placed(device, inference.precision)
