"""Mean or sum of word vectors without PyTorch, whose import takes 2 s of a process."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.encoders.added import add_words
from paraembed.encoders.configs import EncoderConfig, Oov
from paraembed.encoders.devices import ComputeDevice
from paraembed.encoders.own import OwnEncoder
from paraembed.encoders.tables import Floats
from paraembed.settings import Precision
from paraembed.text.ragged import Ragged


def is_word_average(config: EncoderConfig, oov: Oov) -> bool:
    """Return whether a ``WordAverage`` computes the vectors of an encoder: with ``hashed`` and ``pieces``, PyTorch
    decides the last bit of the length of OOV tokens.
    """
    return config.adds is not None and oov in {"shared", "drop"}


class WordAverage(OwnEncoder):
    """Encoder ``avg`` or ``sum`` that only embeds; its vectors are those of ``Encoder``, bit for bit.

    Attributes:
        matrix: word vectors, float32 [V, D].
    """

    def __init__(self, config: EncoderConfig, vocabulary: pa.StringArray, matrix: Floats, **options: Any) -> None:
        """Make an encoder; ``options`` are those of ``OwnEncoder.options``. Raise ValueError if they do not fit."""
        self.matrix = matrix
        self._read_with(config, vocabulary, **options, pieces=None)

    @property
    def width(self) -> int:
        """H = D, the length of a text vector."""
        return int(self.matrix.shape[1])

    _word_width, _adds_words, _oov_length = width, True, None

    def placed(self, device: ComputeDevice, precision: Precision) -> "WordAverage":
        """Return this encoder; raise ValueError for another device or number type than a CPU and float32."""
        if (device, precision) != ("cpu", "float32"):
            raise ValueError(f"without PyTorch, words are added on a CPU in float32, not on {device} in {precision}")
        return self

    def packed(self, *, is_local: bool = False) -> "PackedAverage":  # noqa: ARG002 - processes share the arrays
        """Return the settings and arrays."""
        return PackedAverage(self.config, self.vocabulary, self.matrix, self.options, self.fingerprint)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the word matrix."""
        return {"matrix": self.matrix}

    def _write_vectors(self, texts: Ragged, vectors: Floats, types_UD: Floats) -> None:  # noqa: ARG002 - none here
        texts = self.with_boundaries(texts if self.max_tokens is None else texts.cut(self.max_tokens))
        add_words(self.matrix, texts, self.config.adds == "mean", vectors)


@dataclass(frozen=True)
class PackedAverage:
    """``WordAverage`` as options and arrays, see ``PackedEncoder``; all workers of a machine share the arrays."""

    config: EncoderConfig
    vocabulary: pa.StringArray
    matrix: npt.NDArray[np.float32]
    options: dict[str, Any]
    fingerprint: str

    def encoder(self) -> WordAverage:
        """Return an encoder on these arrays."""
        encoder = WordAverage(self.config, self.vocabulary, self.matrix, **self.options)
        encoder.fingerprint = self.fingerprint
        return encoder
