"""Two encoders as one: its text vector is those of both, one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paraembed.encoders.devices import ComputeDevice
from paraembed.encoders.own import OwnEncoder
from paraembed.encoders.protocol import (
    BATCH_SIZE,
    NO_LOCK,
    ComputeLock,
    Embedded,
    EncoderMethods,
    OnRows,
    Texts,
    check_batch_size,
    no_progress,
    text_array,
)
from paraembed.encoders.tables import Floats, normalized
from paraembed.settings import Precision
from paraembed.text.ragged import Ragged

if TYPE_CHECKING:
    from paraembed.encoders.base import Weights
    from paraembed.encoders.word_average import PackedAverage

_SQRT_HALF = np.float32(np.sqrt(0.5))
_ROWS = 1024  # normalized at a time, so that temporary arrays stay in the cache


class Concat(EncoderMethods):
    """Two encoders as one, see ``TextEncoder``.

    Both text vectors are scaled to length √½, so the cosine of two texts is the mean of the cosines that the encoders
    give, unless one of them gives a text the vector zero. Tokens and OOV tokens are those of the first encoder; a text
    is truncated to the lower maximum of both. Encoders that read trees cannot be a part.
    """

    reads_trees = False

    def __init__(self, first: OwnEncoder, second: OwnEncoder) -> None:
        for encoder in (first, second):
            if encoder.reads_trees:
                raise ValueError(f"an encoder is {encoder.config.name}, which reads trees; give two without trees")
        self.first, self.second = first, second
        self.tokenizer = first.tokenizer
        limits = [encoder.max_tokens for encoder in (first, second) if encoder.max_tokens is not None]
        self.max_tokens = min(limits, default=None)
        self._about = f"{first.config.name} and {second.config.name}", self.tokenizer
        self.fingerprint = ""
        self.provenance: dict[str, Any] = {}

    @property
    def width(self) -> int:
        """H, the sum of the widths."""
        return self.first.width + self.second.width

    @property
    def gains_from_gpu(self) -> bool:
        """Whether a GPU computes the vectors of one of the encoders faster than a CPU."""
        return self.first.gains_from_gpu or self.second.gains_from_gpu

    @property
    def encodes_once(self) -> bool:
        """Whether that pays for one of the encoders."""
        return self.first.encodes_once or self.second.encodes_once

    @property
    def identity(self) -> Mapping[str, Any]:
        """Device and precision, if they are not those of training."""
        return self.first.identity

    def placed(self, device: ComputeDevice, precision: Precision) -> "Concat":
        """Return this encoder with another device and number type; it is moved when it first embeds."""
        for encoder in (self.first, self.second):
            encoder.placed(device, precision)
        return self

    def packed(self, *, is_local: bool = False) -> "PackedConcat":  # noqa: ARG002 - as Encoder.packed
        """Return the encoder in a form for other processes."""
        return PackedConcat(self.first.packed(), self.second.packed(), self.fingerprint)

    def embed(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        trees: pa.StringArray | None = None,
        *,
        lock: ComputeLock = NO_LOCK,
        on_rows: OnRows = no_progress,
    ) -> Embedded:
        """Return vectors and counts of a string array [n], see ``Encoder.embed``; trees are a ValueError."""
        if trees is not None:
            raise ValueError("trees were given, but a pair of encoders does not read trees; leave them out")
        check_batch_size(batch_size)
        strings = text_array(texts)
        vectors = np.empty((len(strings), self.width), np.float32)
        first = self.first.embed(strings, batch_size, lock=lock)
        _write_normalized(vectors[:, : self.first.width], first.vectors)
        second = self.second.embed(strings, batch_size, lock=lock, on_rows=on_rows)
        _write_normalized(vectors[:, self.first.width :], second.vectors)
        is_cut = max(first, second, key=lambda embedded: embedded.num_cut).is_cut
        return replace(first, vectors=vectors, is_cut=is_cut)

    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n], those of the first encoder."""
        return self.first.token_ids(texts)


def _write_normalized(out_NH: Floats, vectors_NH: Floats) -> None:
    """Write the vectors with length √½."""
    for start in range(0, len(out_NH), _ROWS):
        rows = slice(start, start + _ROWS)
        out_NH[rows] = normalized(vectors_NH[rows]) * _SQRT_HALF


@dataclass(frozen=True)
class PackedConcat:
    """Two encoders as settings and arrays, see ``PackedEncoder``."""

    first: "Weights | PackedAverage"
    second: "Weights | PackedAverage"
    fingerprint: str

    def encoder(self) -> Concat:
        """Return the encoder."""
        both = Concat(self.first.encoder(), self.second.encoder())
        both.fingerprint = self.fingerprint
        return both
