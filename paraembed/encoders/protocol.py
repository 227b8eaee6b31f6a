"""What every encoder offers: those of this package and those of other libraries."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from paraembed.encoders.base import Embedded


class Embeds(Protocol):
    """What a score needs of an encoder."""

    def embed(self, texts: pa.StringArray, /) -> "Embedded":
        """Return vectors and counts of a string array [n]; null counts as empty."""


class TextEncoder(Embeds, Protocol):
    """Texts to vectors.

    Attributes:
        fingerprint: digest of everything that decides the vectors, except ``identity`` of an encoder folder.
        identity: settings that decide the vectors, by name, for messages and manifests; empty for an encoder folder
            that computes in float32 on a CPU.
        tokenizer: name of the tokenizer.
        max_tokens: number of tokens of a text that are read; None: all.
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

    def embed(self, texts: pa.StringArray, /, batch_size: int = ..., trees: pa.StringArray | None = None) -> "Embedded":
        """As ``Embeds``; with a binary tree for each text, null for a text without one, if the encoder reads trees."""

    def packed(self) -> "Packed":
        """Return the encoder in a form for other processes."""


class Packed(Protocol):
    """An encoder as settings and arrays, which Ray's object store holds once per machine."""

    def encoder(self) -> TextEncoder:
        """Return the encoder."""
