"""The process that embeds parts, and the encoder on its way there."""

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
    """An encoder as options and arrays: what Ray's object store holds once a machine, for all its workers to read.

    Attributes:
        config: the encoder's options.
        tokenizer: its name.
        bos_eos_tokens: as ``Encoder`` has it.
        max_tokens: as ``Encoder`` has it.
        fingerprint: of the encoder folder.
        vocabulary: string array [V].
        tensors: the encoder's state by name.
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
        """The weights of an encoder, not copied."""
        tensors = {name: tensor.numpy() for name, tensor in encoder.state_dict().items()}
        options = encoder.config, encoder.tokenizer, encoder.bos_eos_tokens, encoder.max_tokens, encoder.fingerprint
        return cls(*options, encoder.vocabulary, tensors)

    def encoder(self) -> Encoder:
        """The encoder, on these arrays; for reading alone, since they may lie in memory that processes share."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
            words = Words(self.vocabulary, self.tensors["matrix"])
            made = Encoder(
                self.config, words, self.tokenizer, bos_eos_tokens=self.bos_eos_tokens, max_tokens=self.max_tokens
            )
            made.load_state_dict({name: torch.from_numpy(array) for name, array in self.tensors.items()}, assign=True)
        made.requires_grad_(False).eval()
        made.fingerprint = self.fingerprint
        return made


@dataclass(frozen=True)
class Done:
    """A part that was embedded.

    Attributes:
        report: what was written.
        peak_memory: most bytes that the worker's process has held so far, pages it shares with others included.
    """

    report: PartReport
    peak_memory: int


class PartWorker:
    """Embeds parts, one at a time, on one thread.

    It stands here, not with the code that runs it in Ray actors, so that these import neither MLflow nor more of Ray:
    half of a worker's start.
    """

    def __init__(self) -> None:
        use_one_thread()
        self._encoder: Encoder | None = None
        self._store: Store | None = None

    def ready(self, weights: Weights) -> None:
        """Make the encoder."""
        if self._encoder is None:
            self._encoder = weights.encoder()

    def embed(
        self, weights: Weights, source: InputFile, part: Part, settings: Settings, out: str, data: bytes | None
    ) -> Done:
        """Embed one part; see ``embed_part``. The weights come with each call, so that a new process has them, too."""
        self.ready(weights)
        assert self._encoder is not None
        if self._store is None or self._store.place != out:
            self._store = open_store(to_place(out))
        report = embed_part(self._encoder, source, part, settings, self._store, data=data)
        return Done(report, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
