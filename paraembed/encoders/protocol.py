"""Interface of all encoders, those of this package and those of other libraries."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ComputeLock = AbstractContextManager[object]
"""What threads that share an encoder hold while it computes; not while it tokenizes, so that these overlap."""
NO_LOCK: ComputeLock = nullcontext()
"""For an encoder that no other thread uses."""
OnRows = Callable[[int], object]
"""Function that is called with the number of texts that were encoded since its last call, from any thread."""
Texts = str | Iterable[Any]
"""A text, or several: any iterable of strings, such as a list, generator, Series, ndarray or Arrow array."""
BATCH_SIZE = 32_768
"""Default number of texts to encode at a time."""


def no_progress(_: int) -> None:
    """Do nothing; see ``OnRows``."""


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Embedded:
    """Vectors and token counts of n texts.

    Attributes:
        vectors: float32 [n, H]; zeros for a text without tokens.
        num_tokens: int32 [n].
        num_unknown: int32 [n], number of tokens that are not in the vocabulary.
        num_cut: number of texts that were truncated to the encoder's maximum.
        num_without_tree: number of texts of three or more tokens that were given without a tree to an encoder that
            reads trees, so a right-branching tree was used. One or two tokens have only one tree.
    """

    vectors: npt.NDArray[np.float32]
    num_tokens: npt.NDArray[np.int32]
    num_unknown: npt.NDArray[np.int32]
    num_cut: int = 0
    num_without_tree: int = 0


def warn_of_unread(embedded: Embedded, max_tokens: int | None) -> None:
    """Log how many texts were truncated or given without a tree."""
    num_texts = len(embedded.vectors)
    if embedded.num_cut:
        log.warning(
            "%d of %d texts have more than max_tokens = %d tokens; further tokens were ignored",
            *(embedded.num_cut, num_texts, max_tokens),
        )
    if embedded.num_without_tree:
        log.warning(
            "%d of %d texts have no parse tree; right-branching trees are used",
            *(embedded.num_without_tree, num_texts),
        )


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

    def embed(self, texts: pa.StringArray, /) -> Embedded:
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
        lock: ComputeLock = ...,
        on_rows: OnRows = ...,
    ) -> Embedded:
        """Return vectors and counts like ``Embeds``; encoders that read trees take a binary tree for each text, null
        for a text without one. ``lock`` is held while vectors are computed, but not while texts are tokenized.
        ``on_rows`` is called whenever texts are encoded.
        """

    def packed(self, *, is_local: bool = False) -> "PackedEncoder":
        """Return the encoder in a form for other processes; ``is_local``: only for those of this machine."""


class PackedEncoder(Protocol):
    """Encoder as settings and arrays, which Ray's object store holds once per machine."""

    def encoder(self) -> TextEncoder:
        """Return the encoder."""


def text_array(texts: Texts, name: str = "texts") -> pa.Array:
    """Return texts as a string array [n], null for None, NaN, NA and null, which count as empty texts, as in
    jobs/embed.py. ``name`` is that of the parameter.

    Raises:
        TypeError: they are bytes, a dictionary, a table, a matrix or a single value, or one is not a string.
        ValueError: a text has half of a surrogate pair, which UTF-8 cannot represent.
    """
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, pa.ChunkedArray):
        chunks = texts.chunks or [pa.array([], texts.type)]
        return pa.concat_arrays([text_array(chunk, name).cast(pa.large_string()) for chunk in chunks])
    if isinstance(texts, pa.Array):
        kind = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
        if kind not in (pa.string(), pa.large_string(), pa.string_view(), pa.null()):
            raise TypeError(f"`{name}` is an Arrow array of {texts.type}; expected strings")
        return texts if texts.type in (pa.string(), pa.large_string()) else texts.cast(pa.large_string())
    is_single = isinstance(texts, bytes | bytearray | memoryview | Mapping) or getattr(texts, "ndim", 1) != 1
    if is_single or not isinstance(texts, Iterable):
        raise TypeError(f"`{name}` is of type {_kind(texts)}; expected a string or an iterable of strings")
    values = list(texts)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            if not _is_missing(value):
                raise TypeError(f"`{name}` has a value of type {_kind(value)} at position {number}; expected a string")
            values[number] = None
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` has {error.object[error.start : error.end]!r}, which is not valid UTF-8; remove it"
        ) from None


def _kind(value: object) -> str:
    dimensions = getattr(value, "ndim", 1)
    return type(value).__name__ + (f" of {dimensions} dimensions" if dimensions != 1 else "")


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or NA or NaT of pandas."""
    is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
    return value is None or is_nan or type(value).__name__ in {"NAType", "NaTType"}


def check_batch_size(batch_size: int) -> None:
    """Raise TypeError or ValueError unless a number of texts is at least 1."""
    if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool):
        raise TypeError(f"`batch_size` is a {type(batch_size).__name__}; expected an integer")
    if batch_size < 1:
        raise ValueError(f"`batch_size` is {batch_size}; it must be at least 1")
