"""Interface of all encoders, those of this package and those of other libraries."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from paraembed.encoders.base import Embedded

Turn = AbstractContextManager[object]
ALONE: Turn = nullcontext()
"""Turn of an encoder that no other thread uses."""


class NotFiniteError(ValueError):
    """Error for a vector with NaN or infinity: the number of its text."""

    def __init__(self, text: int) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"text {self.text + 1}: {self.fault}"

    fault = (
        "the encoder computed a vector with NaN or infinity; use another encoder, or train this one again with a lower "
        "learning rate"
    )


def check_finite(vectors: npt.NDArray[np.float32]) -> None:
    """Raise NotFiniteError for a vector [n, H] with NaN or infinity."""
    if vectors.size and not (np.isfinite(vectors.min()) and np.isfinite(vectors.max())):
        # Two passes without a copy: minimum and maximum are NaN if any value is.
        raise NotFiniteError(int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0]))


class Embeds(Protocol):
    """Part of an encoder's interface that scoring uses."""

    def embed(self, texts: pa.StringArray, /) -> "Embedded":
        """Return vectors and counts of a string array [n]; null counts as empty."""


class TextEncoder(Embeds, Protocol):
    """Encoder from texts to vectors.

    Attributes:
        fingerprint: digest of everything that decides the vectors, except ``identity`` of an encoder folder.
        identity: settings that decide the vectors, by name, for messages and manifests; empty for an encoder folder
            that computes in float32 on a CPU.
        tokenizer: name of the tokenizer.
        max_tokens: maximum tokens of a text; longer texts are truncated. None: no maximum.
        reads_trees: whether ``embed`` accepts trees.
    """

    tokenizer: str
    max_tokens: int | None

    @property
    def fingerprint(self) -> str: ...  # noqa: D102 - see the class
    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def reads_trees(self) -> bool: ...  # noqa: D102
    @property
    def width(self) -> int:
        """H, the length of a text vector."""

    def embed(
        self,
        texts: pa.StringArray,
        /,
        batch_size: int = ...,
        trees: pa.StringArray | None = None,
        *,
        turn: Turn = ...,
    ) -> "Embedded":
        """Return vectors and counts like ``Embeds``; encoders that read trees take a binary tree for each text, null
        for a text without one. ``turn`` is held while vectors are computed, but not while texts are tokenized; it is a
        lock if several threads use the encoder.
        """

    def packed(self, *, is_local: bool = False) -> "PackedEncoder":
        """Return the encoder in a form for other processes; ``is_local``: only for those of this machine."""


class PackedEncoder(Protocol):
    """Encoder as settings and arrays, which Ray's object store holds once per machine."""

    def encoder(self) -> TextEncoder:
        """Return the encoder."""
