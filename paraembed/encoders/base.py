"""What every encoder shares: the word matrix around a composition, and the way from texts to vectors.

Shapes in names: T tokens, N texts, V words, R rows of the word matrix at hand, D width of a word, H width of a text.
Texts are ragged: ``ids_T`` with ``offsets_N1``; text i owns ``ids_T[offsets_N1[i]:offsets_N1[i + 1]]``.
"""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, Protocol, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from paraembed.data.trees import fitting_trees
from paraembed.ragged import Ragged
from paraembed.text import Tokens, tokenise
from paraembed.words import END, START, Words, unknown_row, word_ids, word_row

MAX_WIDTH = 65_536
"""Longest text vector: a matrix of its square fits in memory."""
BATCH_SIZE = 32_768
"""Texts encoded at a time where it is not said; with 4,096, ``avg`` takes 1.2 to 1.5 times the CPU (40k words)."""
BoundaryTokens = Literal["none", "start", "end", "both"]

log = logging.getLogger(__name__)


class Composition(nn.Module):
    """The part of an encoder that is not the word matrix: W_c of the papers.

    Attributes:
        width: H, the length of a text vector.
        reads_trees: whether ``forward`` takes ``merges_T`` (see ``Ragged``, int32 [T] on the CPU) as a fourth argument.
        tokens_at_once: most tokens it is given at a time outside training, for it keeps several vectors a token;
            None: any number.
    """

    width: int
    reads_trees: ClassVar[bool] = False
    tokens_at_once: ClassVar[int | None] = None

    @abstractmethod
    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Vectors of texts.

        Args:
            rows_RD: word vectors.
            ids_T: rows of the tokens, int32, on the device of ``rows_RD``.
            offsets_N1: where each text begins and ends, int64, on the CPU: how a batch is laid out is decided there,
                and a GPU is not waited for. No text is empty.

        Returns:
            Vectors [N, H].
        """


class EncoderConfig(Protocol):
    """A frozen dataclass with an encoder's options; a class attribute ``reads_trees`` where its composition has one."""

    def build(self, dimension: int, generator: torch.Generator) -> Composition:
        """The composition for word vectors of width ``dimension``, initialised from ``generator``."""
        ...


def reads_trees(config: EncoderConfig) -> bool:
    """Whether the encoder that a configuration describes reads trees."""
    return bool(getattr(config, "reads_trees", False))


def drawn(generator: torch.Generator, bound: float, *shape: int) -> nn.Parameter:
    """A parameter of uniform numbers between -bound and bound.

    With bound 1/√H, as torch.nn's recurrent modules have it, a rounding error fades along a text. With the N(0, 0.1²)
    of other toolkits it grows by 11 % a token at H = 300 (tanh), and a long text's vector would depend on its batch.
    The papers do not print their initial values.
    """
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


@dataclass(frozen=True)
class Embedded:
    """Vectors of n texts and what is known of them.

    Attributes:
        vectors: float32 [n, H]; zeros for a text without tokens.
        num_tokens: int32 [n].
        num_unknown: int32 [n], tokens that are not in the vocabulary.
        num_cut: texts of more tokens than the encoder reads.
        num_without_tree: texts of three tokens or more that came without a tree to an encoder that reads trees; the
            right-branching tree stood in. One or two tokens have one tree only.
    """

    vectors: npt.NDArray[np.float32]
    num_tokens: npt.NDArray[np.int32]
    num_unknown: npt.NDArray[np.int32]
    num_cut: int = 0
    num_without_tree: int = 0


class Encoder(nn.Module):
    """Texts to vectors: tokeniser, vocabulary, word matrix and composition.

    ``words.matrix`` is taken over, not copied: training the encoder changes it.

    Attributes:
        config: the encoder's options.
        tokeniser: name of the tokeniser.
        boundary_tokens: which of the words ``START`` and ``END`` are put around every text (Wieting 2017 footnote 4).
        max_tokens: a text is read up to here; None: whole.
        vocabulary: string array [V].
        matrix: word matrix W_w, parameter [V, D].
        composition: W_c.
        fingerprint: of the saved folder; empty for an encoder that was not loaded.
    """

    def __init__(
        self,
        config: EncoderConfig,
        words: Words,
        tokeniser: str,
        seed: int = 0,
        *,
        boundary_tokens: BoundaryTokens = "none",
        max_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.tokeniser = tokeniser
        self.boundary_tokens, self.max_tokens = boundary_tokens, max_tokens
        self.vocabulary = words.vocabulary
        self._start = word_row(words.vocabulary, START) if boundary_tokens in {"start", "both"} else None
        self._end = word_row(words.vocabulary, END) if boundary_tokens in {"end", "both"} else None
        self.matrix = nn.Parameter(torch.from_numpy(words.matrix))
        self.composition = config.build(words.matrix.shape[1], torch.Generator().manual_seed(seed))
        self.fingerprint = ""

    @property
    def width(self) -> int:
        """H, the length of a text vector."""
        return self.composition.width

    def with_boundaries(self, texts: Ragged) -> Ragged:
        """Texts, none of them empty, with the boundary tokens of this encoder."""
        return texts.with_ends(self._start, self._end)

    def forward(self, texts: Ragged) -> Tensor:
        """Vectors [N, H] of N non-empty texts, as they stand: boundaries and cut are the caller's."""
        return self.compose(self.matrix, torch.from_numpy(texts.ids).to(self.matrix.device), texts)

    def compose(self, rows_RD: Tensor, ids_T: Tensor, texts: Ragged) -> Tensor:
        """Vectors [N, H] of texts whose words are given by other rows than the word matrix.

        Args:
            rows_RD: word vectors.
            ids_T: rows of the tokens, in the place of ``texts.ids``.
            texts: offsets and trees.
        """
        structure = [torch.from_numpy(texts.offsets)]
        if self.composition.reads_trees:
            with_trees = texts.right_branching() if texts.merges is None else texts
            structure.append(torch.from_numpy(with_trees.merges))
        vectors: Tensor = self.composition(rows_RD, ids_T, *structure)
        return vectors

    @overload
    def encode(self, texts: str, batch_size: int = BATCH_SIZE, trees: str | None = None) -> npt.NDArray[np.float32]: ...
    @overload
    def encode(
        self,
        texts: Sequence[str],
        batch_size: int = BATCH_SIZE,
        trees: Sequence[str | None] | pa.StringArray | None = None,
    ) -> npt.NDArray[np.float32]: ...
    def encode(
        self,
        texts: str | Sequence[str],
        batch_size: int = BATCH_SIZE,
        trees: str | Sequence[str | None] | pa.StringArray | None = None,
    ) -> npt.NDArray[np.float32]:
        """Vectors of texts; a warning says how many were cut, or had no tree where the encoder reads trees.

        Args:
            texts: one text, or n.
            batch_size: texts at a time; memory, not the result, depends on it.
            trees: a bracketed binary tree a text, None for a text without one; see ``paraembed.data.trees``.

        Returns:
            float32 [H] for one text, [n, H] for n; zeros for a text without tokens.

        Raises:
            ValueError: as ``embed``.
        """
        if trees is not None and isinstance(texts, str) != isinstance(trees, str):
            raise ValueError("give one text and one tree, or a sequence of texts and one of as many trees")
        if isinstance(texts, str):
            one: npt.NDArray[np.float32] = self.encode([texts], batch_size, None if trees is None else [trees])[0]
            return one
        if trees is not None and not isinstance(trees, pa.Array):
            trees = pa.array(trees, pa.string())
        embedded = self.embed(pa.array(texts, pa.string()), batch_size, trees)
        self.warn_of_unread(embedded)
        return embedded.vectors

    def warn_of_unread(self, embedded: Embedded) -> None:
        """Log how many of the texts were cut, or came without a tree; nothing is left out in silence."""
        num_texts = len(embedded.vectors)
        if embedded.num_cut:
            log.warning(
                "%d of %d texts have more than max_tokens = %d tokens; what follows was not read",
                *(embedded.num_cut, num_texts, self.max_tokens),
            )
        if embedded.num_without_tree:
            log.warning(
                "%d of %d texts came without a parse; right-branching trees stand in for theirs",
                *(embedded.num_without_tree, num_texts),
            )

    def embed(
        self, texts: pa.StringArray, batch_size: int = BATCH_SIZE, trees: pa.StringArray | None = None
    ) -> Embedded:
        """Vectors and counts of a string array [n]; see ``Embedded``.

        Args:
            texts: string array [n]; null counts as empty.
            batch_size: texts at a time.
            trees: string array [n], null where a text has no tree; see ``paraembed.data.trees``.

        Raises:
            ValueError: trees for an encoder that reads none, or another number of them than of texts. A ``TreeError``:
                one is malformed, or not over the tokens of its text.
        """
        if trees is None:
            trees = pa.nulls(len(texts), pa.string())
        elif not self.composition.reads_trees:
            raise ValueError(f"trees were given, but {type(self.composition).__name__} reads none; leave them out")
        elif len(trees) != len(texts):
            raise ValueError(f"{len(trees)} trees were given for {len(texts)} texts; expected one a text, or None")
        parts, done = [], 0
        slices = _slices(texts, batch_size), _slices(trees.cast(pa.string()), batch_size)
        for batch, batch_trees in zip(*slices, strict=True):
            parts.append(self._embed_tokens(tokenise(batch, self.tokeniser), batch_trees, done))
            done += len(batch)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none = np.zeros(0, np.int32)
            return Embedded(np.zeros((0, self.width), np.float32), none, none)
        return Embedded(
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.num_tokens for part in parts]),
            np.concatenate([part.num_unknown for part in parts]),
            sum(part.num_cut for part in parts),
            sum(part.num_without_tree for part in parts),
        )

    @torch.inference_mode()
    def _embed_tokens(self, tokens: Tokens, trees: pa.StringArray, first: int) -> Embedded:
        """Vectors of some texts; ``first`` is the number of the first of them."""
        merges, num_without_tree = None, 0
        if self.composition.reads_trees:
            read = fitting_trees(trees, tokens, first)
            merges, num_without_tree = read.merges, read.num_missing
        texts = Ragged(word_ids(tokens.flat, self.vocabulary), tokens.offsets, merges)
        known_before = np.concatenate(([0], np.cumsum(texts.ids != unknown_row(self.vocabulary))))
        num_known = known_before[tokens.offsets[1:]] - known_before[tokens.offsets[:-1]]
        lengths = texts.lengths
        filled = lengths > 0
        if filled.all():  # the copy below costs as much as the mean itself
            vectors = self._vectors(texts)
        else:
            vectors = np.zeros((len(lengths), self.width), np.float32)
            if filled.any():
                vectors[filled] = self._vectors(texts.take(np.flatnonzero(filled)))
        return Embedded(
            vectors,
            lengths.astype(np.int32),
            (lengths - num_known).astype(np.int32),
            0 if self.max_tokens is None else int((lengths > self.max_tokens).sum()),
            num_without_tree,
        )

    def _vectors(self, texts: Ragged) -> npt.NDArray[np.float32]:
        """Vectors [n, H] of n non-empty texts."""
        texts = self.with_boundaries(texts if self.max_tokens is None else texts.cut(self.max_tokens))
        limit = self.composition.tokens_at_once
        if limit is None or len(texts.ids) <= limit:
            return _to_numpy(self(texts))
        order = np.argsort(-texts.lengths, kind="stable")  # texts of about one length together
        by_length = texts.take(order)
        cuts = np.searchsorted(by_length.offsets, np.arange(0, len(texts.ids), limit))
        bounds = np.unique([*cuts, len(texts)])
        vectors = np.empty((len(texts), self.width), np.float32)
        for start, stop in pairwise(bounds):
            vectors[order[start:stop]] = _to_numpy(self(by_length.slice(start, stop)))
        return vectors


def _to_numpy(vectors_NH: Tensor) -> npt.NDArray[np.float32]:
    vectors: npt.NDArray[np.float32] = vectors_NH.float().cpu().numpy()
    return vectors


def _slices(texts: pa.StringArray, size: int) -> Iterator[pa.StringArray]:
    if size < 1:
        raise ValueError(f"batch_size is {size}; it must be at least 1")
    for start in range(0, len(texts), size):
        yield texts.slice(start, size)
