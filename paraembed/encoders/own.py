"""Base of this package's encoders: the path from texts to word ids, and from there to vectors and counts.

Shapes in names: T tokens, N texts, V words, R rows of the word matrix in use, D width of a word, H width of a text.
Texts are ragged, as ``ids_T`` with ``offsets_N1``: text i is ``ids_T[offsets_N1[i]:offsets_N1[i + 1]]``.
"""

from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.encoders.added import NO_TYPES
from paraembed.encoders.configs import BosEosTokens, EncoderConfig, Oov
from paraembed.encoders.devices import ComputeDevice
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
from paraembed.process import num_threads
from paraembed.settings import Precision
from paraembed.text import OF_PIECES, WORDPIECE
from paraembed.text.bigrams import has_bigrams
from paraembed.text.ragged import Ragged
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds, as_strings
from paraembed.text.trees import fitting_trees
from paraembed.text.vocabulary import END, START, unknown_row, word_ids, word_row

_ADDED_AT_ONCE = 4096
"""Number of texts to encode at a time if words are only summed, so that their ids fit in a core's cache."""
_BYTES_AT_ONCE = 256 << 20
"""Maximum bytes of texts to encode at a time: tokenization makes them at most three times as long, and an Arrow string
array holds less than 2 GiB.
"""


class OwnEncoder(EncoderMethods):
    """Encoder of this package: tokenizer, vocabulary, word vectors, and what makes a text vector of them.

    ``Encoder`` computes with PyTorch and can be trained; ``WordAverage`` adds word vectors without PyTorch.

    Attributes:
        config: the encoder's options.
        tokenizer: name of the tokenizer; a ``SubwordTokenizer`` has its file, too.
        bos_eos_tokens: which of the tokens ``START`` and ``END`` are added around every text (Wieting 2017 footnote 4).
        max_tokens: maximum tokens per text; longer texts are truncated. None: no maximum.
        oov: vectors of OOV tokens when texts are embedded; training only knows the shared vector.
        pieces: with ``oov`` pieces, an encoder ``avg`` of the same width: the vector of an OOV token has the direction
            of the one that it gives the token as a text.
        vocabulary: string array [V].
        has_bigrams: whether the vocabulary has bigrams, see ``paraembed.text.bigrams``.
        fingerprint: fingerprint of the encoder folder; empty for an encoder that was not loaded from one.
        provenance: provenance in the encoder folder, or in the folder of the pretrained encoder; empty without either.
    """

    def _read_with(
        self,
        config: EncoderConfig,
        vocabulary: pa.StringArray,
        tokenizer: str,
        *,
        bos_eos_tokens: BosEosTokens,
        max_tokens: int | None,
        oov: Oov,
        pieces: "OwnEncoder | None",
    ) -> None:
        """Set how texts are read; raise ValueError if the settings do not fit each other."""
        self.config = config
        self.tokenizer = tokenizer
        self.bos_eos_tokens, self.max_tokens, self.oov = bos_eos_tokens, max_tokens, oov
        self.vocabulary, self.has_bigrams = vocabulary, has_bigrams(vocabulary)
        self._start = word_row(vocabulary, START) if bos_eos_tokens in {"start", "both"} else None
        self._end = word_row(vocabulary, END) if bos_eos_tokens in {"end", "both"} else None
        self._pieces: list[Any] = [] if pieces is None else [pieces]  # PyTorch trains modules in attributes
        if oov != "shared" and (config.reads_trees or (self._has_types and tokenizer in OF_PIECES)):
            only = "shared" if config.reads_trees else "shared or drop"
            raise ValueError(f"`oov` is {oov}, but {config.name} with the tokenizer {tokenizer} has only {only}")
        if self.has_bigrams and (config.adds is None or max_tokens is not None):
            given = config.name if config.adds is None else f"`max_tokens` {max_tokens}"
            raise ValueError(
                f"the words have bigrams, which only avg and sum without `max_tokens` add up, but {given} is given; "
                "use one of these encoders, or other `words`"
            )
        _check_pieces(oov, pieces, self._word_width)
        self._about = config.name, tokenizer, f"{len(vocabulary):,} words"
        self.fingerprint = ""
        self.provenance: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, Any]:
        """How texts are read, as arguments for another encoder."""
        names = "tokenizer", "bos_eos_tokens", "max_tokens", "oov"
        return {name: getattr(self, name) for name in names}

    @property
    @abstractmethod
    def width(self) -> int:
        """H, the length of a text vector."""

    @property
    def reads_trees(self) -> bool:
        """Whether ``embed`` accepts trees."""
        return self.config.reads_trees

    @property
    def gains_from_gpu(self) -> bool:
        """Whether a GPU computes the vectors faster than a CPU, which reads the words of averages as fast."""
        return self.config.adds is None

    @property
    def encodes_once(self) -> bool:
        """Whether a vector takes longer to compute than to look up: not of averages, and of dense layers on them."""
        return self.config.composition.partition(":")[0] not in {"averages", "dense"}

    @property
    def identity(self) -> dict[str, Any]:
        """Device and precision, if they are not those of training; see ``TextEncoder``."""
        return {}

    @abstractmethod
    def placed(self, device: ComputeDevice, precision: Precision) -> "OwnEncoder":
        """Return this encoder with another device and number type; it is moved when it first embeds."""

    @abstractmethod
    def packed(self, *, is_local: bool = False) -> Any:
        """Return the encoder in a form for other processes, see ``PackedEncoder``."""

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the word matrix and all other weights by name, without a copy if they are on a CPU."""

    @property
    def pieces(self) -> "OwnEncoder | None":
        """Encoder of OOV tokens."""
        return None

    @property
    @abstractmethod
    def _word_width(self) -> int:
        """D, the length of a word vector."""

    @property
    @abstractmethod
    def _adds_words(self) -> bool:
        """Whether compiled loops, not PyTorch, compute the vectors."""

    @property
    @abstractmethod
    def _oov_length(self) -> float | None:
        """Length of the vectors of OOV tokens; None if they do not have vectors of their own."""

    @abstractmethod
    def _write_vectors(self, texts: Ragged, vectors: Floats, types_UD: Floats) -> None:
        """Write the vectors [n, H] of n non-empty texts; ``types_UD`` are the vectors of OOV types."""

    def _move(self, lock: ComputeLock) -> None:
        """Move the weights to where they compute, if they are elsewhere."""

    def with_boundaries(self, texts: Ragged) -> Ragged:
        """Return the texts, none of them empty, with the BOS/EOS tokens of this encoder."""
        return texts.with_ends(self._start, self._end)

    def embed(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        trees: Texts | None = None,
        *,
        tokens: Ragged | None = None,
        lock: ComputeLock = NO_LOCK,
        on_rows: OnRows = no_progress,
    ) -> Embedded:
        """Encode n texts; return vectors and counts.

        If compiled loops do the sums, they use as many threads as PyTorch would.

        Args:
            texts: string array [n], in which null counts as empty, or other texts as ``encode`` takes them.
            batch_size: number of texts to encode at a time.
            trees: string array [n], null for a text without a tree; see ``paraembed.text.trees``.
            tokens: tokens of the texts, if they are known, see ``token_ids``; they are changed.
            lock: held while vectors are computed; see ``TextEncoder``.
            on_rows: called with the number of texts that were encoded since its last call.

        Raises:
            TypeError: texts or trees are something else.
            ValueError: trees were given to an encoder that does not read trees, or their number differs from the number
                of texts. A ``TreeError``: a tree is malformed, or does not match the tokens of its text.

        Example:
            >>> embedded = paraembed.load("encoder").embed(pa.array(["the cat", "zzzz", None]))
            >>> embedded.num_tokens.tolist(), embedded.num_unknown.tolist()
            ([2, 1, 0], [0, 1, 0])
        """
        check_batch_size(batch_size)
        strings, parses = text_array(texts), None if trees is None else text_array(trees, "trees")
        if parses is not None and not self.reads_trees:
            raise ValueError(
                f"trees were given, but the encoder {self.config.name} does not read trees; leave them out"
            )
        if parses is not None and len(parses) != len(strings):
            raise ValueError(
                f"{len(parses)} trees were given for {len(strings)} texts; give one tree, or None, for each text"
            )
        self._move(lock)
        counts = np.empty((2, len(strings)), np.int32)
        flags = np.zeros((2, len(strings)), np.bool_)
        embedded = Embedded(np.empty((len(strings), self.width), np.float32), *counts, *flags)
        size, threads = batch_size, 1
        if self._adds_words:
            size, threads = min(batch_size, _ADDED_AT_ONCE), num_threads()
        spans = [(start, min(start + size, len(strings))) for start in range(0, len(strings), size)]

        def embed_span(span: tuple[int, int]) -> None:
            self._embed_span(strings, parses, tokens, *span, embedded, lock)
            on_rows(span[1] - span[0])

        if min(threads, len(spans)) < 2:
            for span in spans:
                embed_span(span)
        else:
            with ThreadPoolExecutor(min(threads, len(spans))) as pool:
                list(pool.map(embed_span, spans))
        return embedded

    def _embed_span(
        self,
        texts: pa.Array,
        trees: pa.Array | None,
        tokens: Ragged | None,
        start: int,
        stop: int,
        embedded: Embedded,
        lock: ComputeLock,
    ) -> None:
        """Write vectors and counts of some texts."""
        block = texts[start:stop]
        of_texts = pa.nulls(len(block), pa.string()) if trees is None else trees[start:stop]
        if stop - start > 1 and block.nbytes + of_texts.nbytes > _BYTES_AT_ONCE:
            middle = (start + stop) // 2
            self._embed_span(texts, trees, tokens, start, middle, embedded, lock)
            self._embed_span(texts, trees, tokens, middle, stop, embedded, lock)
            return
        if self.reads_trees:
            words, of_texts = tokenize(as_strings(block), self.tokenizer), as_strings(of_texts)
            read = fitting_trees(of_texts, words, start)
            ragged = Ragged(word_ids(words.flat, self.vocabulary), words.offsets, read.merges)
            if embedded.lacks_tree is not None:
                embedded.lacks_tree[start:stop] = read.is_missing
        else:
            ragged = self.token_ids(block) if tokens is None else tokens.slice(start, stop)
        unknown = np.flatnonzero(ragged.ids < 0 if self._has_types else ragged.ids == self._unknown)
        types_UD = self._number_types(block, ragged, unknown) if self.oov == "pieces" else NO_TYPES
        lengths, vectors = ragged.lengths, embedded.vectors[start:stop]
        embedded.num_tokens[start:stop] = lengths
        embedded.num_unknown[start:stop] = np.diff(np.searchsorted(unknown, ragged.offsets))
        if self.has_bigrams:
            ragged = self._token_ids.with_bigrams(ragged)
        if self.oov == "drop" and len(unknown):
            unknown = np.flatnonzero(ragged.ids == self._unknown)
            ragged = Ragged(np.delete(ragged.ids, unknown), ragged.offsets - np.searchsorted(unknown, ragged.offsets))
            lengths = ragged.lengths
        filled = lengths > 0
        if filled.all():  # the copy below costs as much as the mean itself
            with lock:
                self._write_vectors(ragged, vectors, types_UD)
        else:
            some_vectors = np.empty((int(filled.sum()), self.width), np.float32)
            ragged = ragged.take(np.flatnonzero(filled))
            with lock:
                self._write_vectors(ragged, some_vectors, types_UD)
            vectors[filled], vectors[~filled] = some_vectors, 0
        if self.max_tokens is not None and embedded.is_cut is not None:
            embedded.is_cut[start:stop] = lengths > self.max_tokens

    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n]; OOV tokens that have vectors of their own have negative numbers."""
        return self._token_ids.tokens(texts)

    @property
    def joins_tokens(self) -> bool:
        """Whether the tokens of a text are those of its sentences, one after the other."""
        return self.tokenizer.partition("+")[0] == WORDPIECE or self.tokenizer in {"ptb-v1", "ptb-v1+nfc"}

    @property
    def _has_types(self) -> bool:
        """Whether OOV tokens have vectors of their own."""
        return self.oov in {"hashed", "pieces"}

    @cached_property
    def _token_ids(self) -> TokenIds:
        return TokenIds(self.vocabulary, self.tokenizer, hashes_unknown=self._has_types)

    def _number_types(self, texts: pa.StringArray, ragged: Ragged, unknown: npt.NDArray[np.int64]) -> Floats:
        """Replace the ids at ``unknown`` with -1 - u for type u; return the types' vectors [U, D]."""
        if not len(unknown):
            return NO_TYPES
        rows = np.unique(np.searchsorted(ragged.offsets, unknown, side="right") - 1)
        tokens = tokenize(as_strings(texts.take(pa.array(rows))), self.tokenizer).flat  # in the order of the ids
        types = tokens.filter(pa.array(ragged.take(rows).ids < 0)).dictionary_encode()
        ragged.ids[unknown] = -1 - types.indices.to_numpy()
        vectors_UD = self._pieces[0].embed(types.dictionary).vectors
        return normalized(vectors_UD) * np.float32(self._oov_length or 0)

    @cached_property
    def _unknown(self) -> int:
        return unknown_row(self.vocabulary)


def _check_pieces(oov: Oov, pieces: OwnEncoder | None, width: int) -> None:
    """Raise ValueError unless an encoder of OOV tokens is given where it is needed, and fits the width of the words."""
    if (oov == "pieces") != (pieces is not None):
        raise ValueError(f"`oov` is {oov}, but `pieces` is {'given' if pieces else 'missing'}; set both, or neither")
    if pieces is None:
        return
    if pieces.config.adds != "mean" or pieces.width != width or pieces.tokenizer not in OF_PIECES:
        raise ValueError(
            f"the encoder of pieces is {pieces.config.name} of width {pieces.width} with the tokenizer "
            f"{pieces.tokenizer}; give one that is avg, has the width of the words, {width}, and tokenizes into word "
            "pieces or subwords"
        )
