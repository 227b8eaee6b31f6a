"""Interface of all encoders, those of this package and those of other libraries."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.console import doing, shown_status
from paraembed.encoders.tables import normalized
from paraembed.text.ragged import Ragged

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
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
        is_cut: bool [n], whether a text was truncated to the encoder's maximum; None: no text.
        lacks_tree: bool [n], whether a text of three or more tokens was given without a tree to an encoder that reads
            trees, so a right-branching tree was used; None: no text. One or two tokens have only one tree.
    """

    vectors: npt.NDArray[np.float32]
    num_tokens: npt.NDArray[np.int32]
    num_unknown: npt.NDArray[np.int32]
    is_cut: npt.NDArray[np.bool_] | None = None
    lacks_tree: npt.NDArray[np.bool_] | None = None

    @classmethod
    def blank(cls, count: int, width: int) -> "Embedded":
        """Return arrays for ``write``, whose values are not set."""
        counts, flags = np.empty((2, count), np.int32), np.empty((2, count), np.bool_)
        return cls(np.empty((count, width), np.float32), *counts, *flags)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """The arrays, in the order of the attributes."""
        none = np.zeros(len(self.vectors), np.bool_)
        flags = (none if flag is None else flag for flag in (self.is_cut, self.lacks_tree))
        return [self.vectors, self.num_tokens, self.num_unknown, *flags]

    def take(self, rows: Rows) -> "Embedded":
        """Return a copy of some rows."""
        return Embedded(*(array[rows] for array in self.arrays))

    def write(self, rows: Rows, values: "Embedded") -> None:
        """Write values to rows."""
        for array, of_values in zip(self.arrays, values.arrays, strict=True):
            array[rows] = of_values

    @property
    def num_cut(self) -> int:
        """Number of truncated texts."""
        return 0 if self.is_cut is None else int(self.is_cut.sum())

    @property
    def num_without_tree(self) -> int:
        """Number of texts that lack a tree."""
        return 0 if self.lacks_tree is None else int(self.lacks_tree.sum())


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
            "%d of %d texts have no parse tree; right-branching trees are used", *(embedded.num_without_tree, num_texts)
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

    def token_ids(self, texts: pa.StringArray, /) -> Ragged:
        """Return the tokens of a string array [n] without null, without special ones, as ``embed`` counts them."""

    def packed(self, *, is_local: bool = False) -> "PackedEncoder":
        """Return the encoder in a form for other processes; ``is_local``: only for those of this machine."""


class EncoderMethods:
    """Methods of every encoder that ``paraembed.load`` returns, on its ``embed``.

    Attributes:
        name: name with which it was loaded, of a folder its last part; empty for an encoder that was built.
        encodes_once: whether a vector takes longer to compute than to look up, so that jobs/embed.py encodes equal
            texts once, and can keep vectors. Measured on one core with 20 % repeated texts: ``lstm_avg`` 1.2 times as
            fast, ``dan`` 0.9, ``small`` 0.5.
    """

    name = ""
    encodes_once: Any = False  # bool, as an attribute or a property
    embed: Callable[..., Embedded]
    max_tokens: int | None
    width: Any  # int, as an attribute or a property
    _about: tuple[str, ...]  # architecture, and what follows the dimensions in ``repr``

    def __repr__(self) -> str:
        kind, *more = self._about
        return f"Encoder {self.name and f'{self.name}: '}{', '.join([kind, f'{self.width:,} dimensions', *more])}"

    def encode(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        trees: Texts | None = None,
        *,
        normalize: bool = False,
        show_progress: bool | None = None,
    ) -> Vectors:
        """Encode texts; a warning is logged if texts were truncated, or lack a tree that the encoder reads.

        Args:
            texts: one text, or any iterable of n texts: list, generator, Series, ndarray, Arrow array. None and NaN
                count as empty texts.
            batch_size: number of texts to encode at a time; it changes the memory use, not the result.
            trees: a bracketed binary tree for each text, None for a text without one; see ``paraembed.text.trees``.
            normalize: divide each vector by its Euclidean length; zeros stay zeros.
            show_progress: show a status line on stderr after half a second; None: on a terminal.

        Returns:
            float32 [H] for one text, [n, H] for n; zeros for a text without tokens.

        Raises:
            TypeError, ValueError: the same errors as ``embed``.

        Example:
            >>> encoder = paraembed.load("encoder")
            >>> encoder.encode(["the cat sat", "a dog ran home"]).shape
            (2, 4)
            >>> encoder.encode("the cat sat").shape
            (4,)
        """
        if trees is not None and isinstance(texts, str) != isinstance(trees, str):
            raise ValueError(
                "the number of trees does not match the texts; give one text with one tree, or equally long "
                "sequences of both"
            )
        strings = text_array(texts)
        is_shown = sys.stderr.isatty() and not isinstance(texts, str) if show_progress is None else show_progress
        with _progress(len(strings)) if is_shown else nullcontext(no_progress) as on_rows:
            embedded = self.embed(strings, batch_size, trees, on_rows=on_rows)
        warn_of_unread(embedded, self.max_tokens)
        vectors = normalized(embedded.vectors) if normalize else embedded.vectors
        return vectors[0] if isinstance(texts, str) else vectors

    def similarity(self, first: Any, second: Any) -> Vectors:
        """Return the cosines of n with m texts or vectors, float32 [n, m]; that of a vector of zeros is 0.

        Args:
            first: texts as ``encode`` takes them, or vectors [n, H] or [H]: an array or tensor of numbers.
            second: texts or vectors, as ``first``.

        Raises:
            TypeError, ValueError: the errors of ``encode``, or vectors of another shape.
        """
        vectors_NH, others_MH = self._unit_vectors(first, "first"), self._unit_vectors(second, "second")
        cosines_NM: Vectors = np.clip(vectors_NH @ others_MH.T, -1, 1)
        return cosines_NM

    def _unit_vectors(self, values: Any, name: str) -> Vectors:
        """Return the vectors of length 1 of texts or vectors, which are the parameter ``name``."""
        array = np.asarray(values) if hasattr(values, "__array__") else np.empty(0, object)
        if array.dtype.kind not in "fiu":
            return np.atleast_2d(self.encode(values, normalize=True))
        if array.ndim not in {1, 2} or array.shape[-1] != self.width:
            raise ValueError(
                f"`{name}` has the shape {list(array.shape)}; expected vectors [n, {self.width}], or texts"
            )
        return normalized(np.atleast_2d(array).astype(np.float32))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write an encoder folder that ``paraembed.load`` opens, with the word matrix in float32.

        Raises:
            ValueError, OSError: the folder holds something else, or an encoder without ``overwrite``; or the encoder is
                of another library, or not in float32.
        """
        import_module("paraembed.checkpoint").write(self, Path(folder), overwrite=overwrite)  # which imports this one


@contextmanager
def _progress(num_texts: int) -> Iterator[OnRows]:
    """Show how many texts are encoded until the end of the block."""
    done = 0

    def on_rows(count: int) -> None:
        nonlocal done
        done += count
        doing(f"encoding: {done:,} of {num_texts:,} texts")

    with shown_status():
        on_rows(0)
        yield on_rows


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
