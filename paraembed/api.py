"""The Python API: what ``import paraembed`` offers, on the engines of the jobs."""

from pathlib import Path

from paraembed.encoders import Encoder
from paraembed.encoders.foreign.base import ForeignEncoder
from paraembed.loading import open_encoder
from paraembed.settings import DEFAULT_INFERENCE, Inference
from paraembed.tracking.fetch import fetch_encoder


def load(name: str | Path, inference: Inference = DEFAULT_INFERENCE) -> Encoder | ForeignEncoder:
    """Load an encoder.

    Args:
        name: encoder folder; ``st:``, ``m2v:`` or ``onnx:`` with a model's folder, or its name on the Hugging Face hub;
            id of an MLflow run; ``models:/NAME@ALIAS``.
        inference: device, precision, prompt.

    Returns:
        The encoder; ``encode`` takes one text or a list, ``embed`` an Arrow array.

    Raises:
        FileNotFoundError, NotADirectoryError: no folder there, or a file of it is missing.
        ValueError: not an encoder, a damaged one, a missing library, or a setting that it does not have.

    Examples:
        >>> encoder = paraembed.load("encoder")
        >>> encoder.encode(["the cat sat", "a dog ran"]).shape
        (2, 4)
    """
    return open_encoder(str(name), inference, fetch_encoder)
