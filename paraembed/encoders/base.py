"""What every encoder shares: the word matrix around a composition, and the way from texts to vectors.

Shapes in names: T tokens, N texts, V words, R rows of the word matrix at hand, D width of a word, H width of a text.
Texts are ragged: ``ids_T`` with ``offsets_N1``; text i owns ``ids_T[offsets_N1[i]:offsets_N1[i + 1]]``.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from paraembed.text import Tokens, tokenise
from paraembed.words import Words, unknown_row, word_ids


class Composition(nn.Module):
    """The part of an encoder that is not the word matrix: W_c of the papers.

    ``width`` is H, the length of a text vector.
    """

    width: int

    @abstractmethod
    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Vectors [N, H] of N non-empty texts whose ids point into ``rows_RD``."""


class EncoderConfig(Protocol):
    """A frozen dataclass with an encoder's options."""

    def build(self, dimension: int, generator: torch.Generator) -> Composition:
        """The composition for word vectors of width ``dimension``, initialised from ``generator``."""
        ...


@dataclass(frozen=True)
class Embedded:
    """Vectors of n texts and what is known of them.

    Attributes:
        vectors: float32 [n, H]; zeros for a text without tokens.
        num_tokens: int32 [n].
        num_unknown: int32 [n], tokens that are not in the vocabulary.
    """

    vectors: npt.NDArray[np.float32]
    num_tokens: npt.NDArray[np.int32]
    num_unknown: npt.NDArray[np.int32]


class Encoder(nn.Module):
    """Texts to vectors: tokeniser, vocabulary, word matrix and composition.

    ``words.matrix`` is taken over, not copied: training the encoder changes it.

    Attributes:
        config: the encoder's options.
        tokeniser: name of the tokeniser.
        vocabulary: string array [V].
        matrix: word matrix W_w, parameter [V, D].
        composition: W_c.
        fingerprint: of the saved folder; empty for an encoder that was not loaded.
    """

    def __init__(self, config: EncoderConfig, words: Words, tokeniser: str, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.tokeniser = tokeniser
        self.vocabulary = words.vocabulary
        self.matrix = nn.Parameter(torch.from_numpy(words.matrix))
        self.composition = config.build(words.matrix.shape[1], torch.Generator().manual_seed(seed))
        self.fingerprint = ""

    @property
    def width(self) -> int:
        """H, the length of a text vector."""
        return self.composition.width

    def forward(self, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Vectors [N, H] of N non-empty texts."""
        vectors: Tensor = self.composition(self.matrix, ids_T, offsets_N1)
        return vectors

    @overload
    def encode(self, texts: str, batch_size: int = 4096) -> npt.NDArray[np.float32]: ...
    @overload
    def encode(self, texts: Sequence[str], batch_size: int = 4096) -> npt.NDArray[np.float32]: ...
    def encode(self, texts: str | Sequence[str], batch_size: int = 4096) -> npt.NDArray[np.float32]:
        """Vectors of texts.

        Args:
            texts: one text, or n.
            batch_size: texts at a time; memory, not the result, depends on it.

        Returns:
            float32 [H] for one text, [n, H] for n; zeros for a text without tokens.
        """
        if isinstance(texts, str):
            one: npt.NDArray[np.float32] = self.embed(pa.array([texts])).vectors[0]
            return one
        return self.embed(pa.array(texts, pa.string()), batch_size).vectors

    def embed(self, texts: pa.StringArray, batch_size: int = 4096) -> Embedded:
        """Vectors and token counts of a string array [n]; see ``Embedded``."""
        parts = [self._embed_tokens(tokenise(batch, self.tokeniser)) for batch in _slices(texts, batch_size)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none = np.zeros(0, np.int32)
            return Embedded(np.zeros((0, self.width), np.float32), none, none)
        return Embedded(
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.num_tokens for part in parts]),
            np.concatenate([part.num_unknown for part in parts]),
        )

    @torch.inference_mode()
    def _embed_tokens(self, tokens: Tokens) -> Embedded:
        ids = word_ids(tokens.flat, self.vocabulary)
        lengths = np.diff(tokens.offsets)
        known_before = np.concatenate(([0], np.cumsum(ids != unknown_row(self.vocabulary))))
        num_known = known_before[tokens.offsets[1:]] - known_before[tokens.offsets[:-1]]
        filled = lengths > 0
        if filled.all():  # the copy below costs as much as the mean itself
            vectors = self._vectors(ids, tokens.offsets)
        else:
            vectors = np.zeros((len(lengths), self.width), np.float32)
            if filled.any():
                vectors[filled] = self._vectors(ids, np.concatenate(([0], np.cumsum(lengths[filled]))))
        return Embedded(vectors, lengths.astype(np.int32), (lengths - num_known).astype(np.int32))

    def _vectors(self, ids: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Vectors [n, H] of n non-empty texts."""
        device = self.matrix.device
        made: Tensor = self(torch.from_numpy(ids).to(device), torch.from_numpy(offsets).to(device, torch.int32))
        vectors: npt.NDArray[np.float32] = made.float().cpu().numpy()
        return vectors


def _slices(texts: pa.StringArray, size: int) -> Iterator[pa.StringArray]:
    if size < 1:
        raise ValueError(f"batch_size is {size}; it must be at least 1")
    for start in range(0, len(texts), size):
        yield texts.slice(start, size)
