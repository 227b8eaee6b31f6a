"""Encoders that compute with PyTorch and can be trained: the word matrix and the composition.

Shapes in names: as in ``paraembed.encoders.own``.
"""

import logging
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from paraembed.encoders.added import add_words
from paraembed.encoders.composition import draw_as_released
from paraembed.encoders.configs import BosEosTokens, EncoderConfig, Oov
from paraembed.encoders.devices import ComputeDevice, require_device
from paraembed.encoders.own import OwnEncoder
from paraembed.encoders.protocol import ComputeLock
from paraembed.encoders.tables import Floats
from paraembed.settings import Precision
from paraembed.text.oov import hashed_vectors
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words

log = logging.getLogger(__name__)


class Encoder(OwnEncoder, nn.Module):
    """Encoder from texts to vectors: tokenizer, vocabulary, word matrix and composition; see ``OwnEncoder``.

    ``words.matrix`` is not copied, so training the encoder changes it.

    Attributes:
        matrix: word matrix W_w, parameter [V, D].
        composition: W_c.
        device: device of the computation, see ``placed``.
        precision: number type of the computation.
    """

    def __init__(
        self,
        config: EncoderConfig,
        words: Words,
        tokenizer: str,
        seed: int = 0,
        *,
        bos_eos_tokens: BosEosTokens = "none",
        max_tokens: int | None = None,
        oov: Oov = "shared",
        pieces: "Encoder | None" = None,
        init: Literal["ours", "released"] = "ours",
    ) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.from_numpy(words.matrix))
        read: dict[str, Any] = {"bos_eos_tokens": bos_eos_tokens, "max_tokens": max_tokens, "oov": oov}
        self._read_with(config, words.vocabulary, tokenizer, **read, pieces=pieces)
        generator = torch.Generator().manual_seed(seed)
        self.composition = config.build(words.matrix.shape[1], generator)
        if init == "released" and config.has_released_init:
            draw_as_released(config.name, self.composition, generator)
        self.composition.for_vocabulary(len(words.vocabulary))
        self.device: ComputeDevice = "cpu"
        self.precision: Precision = "float32"
        self._halves = False

    @property
    def pieces(self) -> "Encoder | None":
        """Encoder of OOV tokens."""
        return self._pieces[0] if self._pieces else None

    def with_words(self, words: Words, seed: int = 0, pieces: "Encoder | None" = None) -> "Encoder":
        """Return a new encoder with the same options, over other words; ``pieces`` None: those of this encoder."""
        return Encoder(self.config, words, seed=seed, pieces=pieces or self.pieces, **self.options)

    @property
    def width(self) -> int:
        """H, the length of a text vector."""
        return self.composition.width

    @property
    def identity(self) -> dict[str, Any]:
        """Device and precision, if they are not those of training; see ``TextEncoder``."""
        if (self.device, self.precision) == ("cpu", "float32"):
            return {}
        return {"device": self.device, "precision": self.precision}

    def placed(self, device: ComputeDevice, precision: Precision) -> "Encoder":
        """Set the device and the number type; see ``OwnEncoder``."""
        self.device, self.precision = device, precision
        return self

    def packed(self, *, is_local: bool = False) -> "Weights":  # noqa: ARG002 - processes of a machine share the arrays
        """Return the weights."""
        return Weights.of(self)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the weights by name."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.state_dict().items()}

    def forward(self, texts: Ragged) -> Tensor:
        """Return vectors [N, H] of N non-empty texts; the caller has added BOS/EOS tokens and truncated them."""
        return self.compose(self.matrix, torch.from_numpy(texts.ids).to(self.matrix.device), texts)

    def compose(self, rows_RD: Tensor, ids_T: Tensor, texts: Ragged) -> Tensor:
        """Return the vectors [N, H] of texts whose words are rows of another matrix than the word matrix; ``ids_T``
        replaces ``texts.ids``.
        """
        structure = [torch.from_numpy(texts.offsets)]
        if self.composition.reads_trees:
            with_trees = texts.right_branching() if texts.merges is None else texts
            structure.append(torch.from_numpy(with_trees.merges))
        if self.composition.reads_words:
            structure.append(torch.from_numpy(texts.ids).to(ids_T.device))
        vectors: Tensor = self.composition(rows_RD, ids_T, *structure)
        return vectors

    @property
    def _oov_length(self) -> float | None:
        return float(torch.linalg.vector_norm(self.matrix[self._unknown].detach().float())) if self._has_types else None

    @property
    def _word_width(self) -> int:
        return self.matrix.shape[1]

    def _move(self, lock: ComputeLock) -> None:
        if self.identity:
            require_device(self.device)
            with lock:
                self.to(self.device, getattr(torch, self.precision))

    @property
    def _adds_words(self) -> bool:
        matrix = self.matrix
        return self.config.adds is not None and (matrix.device.type, matrix.dtype) == ("cpu", torch.float32)

    @torch.inference_mode()
    def _write_vectors(self, texts: Ragged, vectors: Floats, types_UD: Floats) -> None:
        texts = self.with_boundaries(texts if self.max_tokens is None else texts.cut(self.max_tokens))
        limit = self.composition.tokens_at_once
        if self._adds_words:
            is_mean, length = self.config.adds == "mean", self._oov_length
            add_words(self.matrix.detach().numpy(), texts, is_mean, vectors, length, types_UD)
        elif limit is None or len(texts.ids) <= limit:
            if len(texts):
                vectors[:] = self._computed(texts, types_UD)
        else:
            order = np.argsort(-texts.lengths, kind="stable")  # texts of about one length together
            by_length = texts.take(order)
            cuts = np.searchsorted(by_length.offsets, np.arange(0, len(texts.ids), limit))
            for first, last in pairwise(np.unique([*cuts, len(texts)])):
                vectors[order[first:last]] = self._computed(by_length.slice(first, last), types_UD)

    def _computed(self, texts: Ragged, types_UD: Floats) -> Floats:
        """Return the vectors [n, H] of n non-empty texts, in halves if a GPU has too little memory for them."""
        try:
            computed_NH: Tensor = self._with_types(texts, types_UD) if (texts.ids < 0).any() else self(texts)
            vectors_NH: Floats = computed_NH.float().cpu().numpy()
            return vectors_NH
        except torch.OutOfMemoryError:
            if len(texts) == 1:
                raise ValueError(
                    "the GPU has too little free memory for one text; stop other programs that use it, or use the CPU"
                ) from None
        if not self._halves:
            log.warning("the GPU has too little free memory for %d texts; continuing with smaller batches", len(texts))
            self._halves = True
        torch.cuda.empty_cache()
        middle = len(texts) // 2
        parts = texts.slice(0, middle), texts.slice(middle, len(texts))
        return np.concatenate([self._computed(part, types_UD) for part in parts])

    def _with_types(self, texts: Ragged, types_UD: Floats) -> Tensor:
        """Return the vectors [n, H] of n non-empty texts in which negative ids are codes of OOV types, or their numbers
        if these have vectors [U, D].
        """
        is_code = texts.ids < 0
        codes, of_tokens = np.unique(texts.ids[is_code], return_inverse=True)
        if self.oov == "hashed":
            types_UD = hashed_vectors(codes, self._oov_length or 0, self.matrix.shape[1])
        else:
            types_UD = types_UD[-1 - codes]
        ids, rows = texts.ids.copy(), texts.ids.copy()
        ids[is_code], rows[is_code] = self._unknown, len(self.matrix) + of_tokens.reshape(-1)
        rows_RD = torch.cat([self.matrix, torch.from_numpy(types_UD).to(self.matrix)])
        return self.compose(rows_RD, torch.from_numpy(rows).to(rows_RD.device), Ragged(ids, texts.offsets))


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
        return cls(
            encoder.config,
            encoder.options,
            encoder.fingerprint,
            device=encoder.device,
            precision=encoder.precision,
            vocabulary=encoder.vocabulary,
            tensors={name: tensor.to("cpu", torch.float32).numpy() for name, tensor in encoder.state_dict().items()},
            pieces=None if encoder.pieces is None else cls.of(encoder.pieces),
        )

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
