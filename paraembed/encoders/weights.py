"""Encoder in a form that can be sent to other processes."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import torch

from paraembed.encoders.base import Encoder
from paraembed.encoders.configs import EncoderConfig
from paraembed.encoders.devices import ComputeDevice
from paraembed.settings import Precision
from paraembed.text.vocabulary import Words


@dataclass(frozen=True)
class Weights:
    """Encoder as options and arrays, see ``PackedEncoder``; all workers of a machine share the arrays."""

    config: EncoderConfig
    options: dict[str, Any]
    fingerprint: str
    device: ComputeDevice
    precision: Precision
    vocabulary: pa.StringArray
    tensors: dict[str, npt.NDArray[Any]]
    pieces: "Weights | None" = None

    @classmethod
    def of(cls, encoder: Encoder) -> "Weights":
        """Return the weights of an encoder, without a copy if it is on a CPU in float32."""
        tensors = {name: tensor.to("cpu", torch.float32).numpy() for name, tensor in encoder.state_dict().items()}
        pieces = None if encoder.pieces is None else cls.of(encoder.pieces)
        computes = encoder.fingerprint, encoder.device, encoder.precision
        return cls(encoder.config, encoder.options, *computes, encoder.vocabulary, tensors, pieces)

    def encoder(self) -> Encoder:
        """Return an encoder on these arrays, which are read-only because several processes share them."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
            words = Words(self.vocabulary, self.tensors["matrix"])
            pieces = None if self.pieces is None else self.pieces.encoder()
            encoder = Encoder(self.config, words, pieces=pieces, **self.options)
            tensors = {name: torch.from_numpy(array) for name, array in self.tensors.items()}
            encoder.load_state_dict(tensors, assign=True)
        encoder.requires_grad_(False).eval()
        encoder.fingerprint = self.fingerprint
        return encoder.placed(self.device, self.precision)
