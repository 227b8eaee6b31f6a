"""Worker process that embeds parts, and the encoder in the form in which Ray sends it there."""

import resource
import warnings
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import torch

from paraembed.embedding.inputs import InputFile
from paraembed.embedding.part import PartReport, embed_part
from paraembed.embedding.plan import Part
from paraembed.embedding.settings import Settings
from paraembed.embedding.store import Store, open_store
from paraembed.encoders import Encoder
from paraembed.encoders.configs import BosEosTokens, EncoderConfig
from paraembed.io.places import to_place
from paraembed.process import use_one_thread
from paraembed.text.vocabulary import Words


@dataclass(frozen=True)
class Weights:
    """Encoder as options and arrays; Ray's object store holds it once per machine, for all workers.

    Attributes:
        config: options of the encoder.
        tokenizer: name of the tokenizer.
        bos_eos_tokens: see ``Encoder``.
        max_tokens: see ``Encoder``.
        fingerprint: fingerprint of the encoder folder.
        vocabulary: string array [V].
        tensors: state of the encoder by name.
    """

    config: EncoderConfig
    tokenizer: str
    bos_eos_tokens: BosEosTokens
    max_tokens: int | None
    fingerprint: str
    vocabulary: pa.StringArray
    tensors: dict[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, encoder: Encoder) -> "Weights":
        """Return the weights of an encoder without a copy."""
        tensors = {name: tensor.numpy() for name, tensor in encoder.state_dict().items()}
        options = encoder.config, encoder.tokenizer, encoder.bos_eos_tokens, encoder.max_tokens, encoder.fingerprint
        return cls(*options, encoder.vocabulary, tensors)

    def encoder(self) -> Encoder:
        """Return the encoder on these arrays, which are read-only: processes may share them."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
            words = Words(self.vocabulary, self.tensors["matrix"])
            encoder = Encoder(
                self.config, words, self.tokenizer, bos_eos_tokens=self.bos_eos_tokens, max_tokens=self.max_tokens
            )
            tensors = {name: torch.from_numpy(array) for name, array in self.tensors.items()}
            encoder.load_state_dict(tensors, assign=True)
        encoder.requires_grad_(False).eval()
        encoder.fingerprint = self.fingerprint
        return encoder


@dataclass(frozen=True)
class Done:
    """Result of a worker for one part.

    Attributes:
        report: report of the part.
        peak_memory: peak memory of the worker's process in bytes, including shared pages.
    """

    report: PartReport
    peak_memory: int


class PartWorker:
    """Worker that embeds parts, one at a time, on one thread.

    It is in this module, apart from the code that starts the Ray actors, so that the actors import neither MLflow nor
    more of Ray; that halves a worker's start.
    """

    def __init__(self) -> None:
        use_one_thread()
        self._encoder: Encoder | None = None
        self._store: Store | None = None

    def ready(self, weights: Weights) -> None:
        """Load the encoder."""
        if self._encoder is None:
            self._encoder = weights.encoder()

    def embed(
        self, weights: Weights, source: InputFile, part: Part, settings: Settings, out: str, data: bytes | None
    ) -> Done:
        """Embed one part; see ``embed_part``. Each call has the weights, so that a restarted process has them, too."""
        self.ready(weights)
        assert self._encoder is not None
        if self._store is None or self._store.place != out:
            self._store = open_store(to_place(out))
        report = embed_part(self._encoder, source, part, settings, self._store, data=data)
        return Done(report, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
