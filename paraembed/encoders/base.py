"""Base of all encoders: the word matrix, the composition, and the path from texts to vectors.

Shapes in names: T tokens, N texts, V words, R rows of the word matrix in use, D width of a word, H width of a text.
Texts are ragged, as ``ids_T`` with ``offsets_N1``: text i is ``ids_T[offsets_N1[i]:offsets_N1[i + 1]]``.
"""

import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from paraembed.compiled import COMPILED
from paraembed.encoders.added import NO_TYPES, add_words
from paraembed.encoders.composition import draw_as_released
from paraembed.encoders.configs import BosEosTokens, EncoderConfig, Oov
from paraembed.encoders.devices import ComputeDevice, require_device
from paraembed.encoders.protocol import (
    BATCH_SIZE,
    NO_LOCK,
    ComputeLock,
    Embedded,
    Texts,
    check_batch_size,
    text_array,
    warn_of_unread,
)
from paraembed.encoders.tables import Floats, normalized
from paraembed.settings import Precision
from paraembed.text import OF_PIECES
from paraembed.text.bigrams import has_bigrams
from paraembed.text.oov import hashed_vectors
from paraembed.text.ragged import Ragged
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds, as_strings
from paraembed.text.trees import fitting_trees
from paraembed.text.vocabulary import END, START, Words, unknown_row, word_ids, word_row

_ADDED_AT_ONCE = 4096
"""Number of texts to encode at a time if words are only summed, so that their ids fit in a core's cache."""
_BYTES_AT_ONCE = 256 << 20
"""Maximum bytes of texts to encode at a time: tokenization makes them at most three times as long, and an Arrow string
array holds less than 2 GiB.
"""

log = logging.getLogger(__name__)


class Encoder(nn.Module):
    """Encoder from texts to vectors: tokenizer, vocabulary, word matrix and composition.

    ``words.matrix`` is not copied, so training the encoder changes it.

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
        matrix: word matrix W_w, parameter [V, D].
        composition: W_c.
        fingerprint: fingerprint of the encoder folder; empty for an encoder that was not loaded from one.
        device: device of the computation, see ``placed``.
        precision: number type of the computation.
        provenance: provenance in the encoder folder, or in the folder of the pretrained encoder; empty without either.
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
        self.config = config
        self.tokenizer = tokenizer
        self.bos_eos_tokens, self.max_tokens, self.oov = bos_eos_tokens, max_tokens, oov
        self.vocabulary, self.has_bigrams = words.vocabulary, has_bigrams(words.vocabulary)
        self._start = word_row(words.vocabulary, START) if bos_eos_tokens in {"start", "both"} else None
        self._end = word_row(words.vocabulary, END) if bos_eos_tokens in {"end", "both"} else None
        self.matrix = nn.Parameter(torch.from_numpy(words.matrix))
        generator = torch.Generator().manual_seed(seed)
        self.composition = config.build(words.matrix.shape[1], generator)
        if init == "released" and config.has_released_init:
            draw_as_released(config.name, self.composition, generator)
        self.composition.for_vocabulary(len(words.vocabulary))
        if oov != "shared" and (self.composition.reads_trees or (self._has_types and tokenizer in OF_PIECES)):
            only = "shared" if self.composition.reads_trees else "shared or drop"
            raise ValueError(f"`oov` is {oov}, but {config.name} with the tokenizer {tokenizer} has only {only}")
        if self.has_bigrams and (self.composition.adds is None or max_tokens is not None):
            given = config.name if self.composition.adds is None else f"`max_tokens` {max_tokens}"
            raise ValueError(
                f"the words have bigrams, which only avg and sum without `max_tokens` add up, but {given} is given; "
                "use one of these encoders, or other `words`"
            )
        self._pieces = [] if pieces is None else [pieces]  # not a part of this module, whose parameters are trained
        _check_pieces(oov, pieces, words.matrix.shape[1])
        self.fingerprint = ""
        self.device: ComputeDevice = "cpu"
        self.precision: Precision = "float32"
        self._halves = False
        self.provenance: dict[str, Any] = {}

    def with_words(self, words: Words, seed: int = 0, pieces: "Encoder | None" = None) -> "Encoder":
        """Return a new encoder with the same options, over other words; ``pieces`` None: those of this encoder."""
        return Encoder(self.config, words, seed=seed, pieces=pieces or self.pieces, **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """How texts are read, as arguments for another encoder."""
        names = "tokenizer", "bos_eos_tokens", "max_tokens", "oov"
        return {name: getattr(self, name) for name in names}

    @property
    def pieces(self) -> "Encoder | None":
        """Encoder of OOV tokens."""
        return self._pieces[0] if self._pieces else None

    @property
    def width(self) -> int:
        """H, the length of a text vector."""
        return self.composition.width

    @property
    def reads_trees(self) -> bool:
        """Whether ``embed`` accepts trees."""
        return self.composition.reads_trees

    @property
    def gains_from_gpu(self) -> bool:
        """Whether a GPU computes the vectors faster than a CPU, which reads the words of averages as fast."""
        return self.composition.adds is None

    @property
    def identity(self) -> dict[str, Any]:
        """Device and precision, if they are not those of training; see ``TextEncoder``."""
        if (self.device, self.precision) == ("cpu", "float32"):
            return {}
        return {"device": self.device, "precision": self.precision}

    def placed(self, device: ComputeDevice, precision: Precision) -> "Encoder":
        """Return this encoder with another device and number type; it is moved when it first embeds."""
        self.device, self.precision = device, precision
        return self

    def packed(self, *, is_local: bool = False) -> "Weights":  # noqa: ARG002 - processes of a machine share the arrays
        """Return the encoder in a form for other processes."""
        return Weights.of(self)

    def with_boundaries(self, texts: Ragged) -> Ragged:
        """Return the texts, none of them empty, with the BOS/EOS tokens of this encoder."""
        return texts.with_ends(self._start, self._end)

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

    def encode(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        trees: Texts | None = None,
    ) -> npt.NDArray[np.float32]:
        """Encode texts; a warning is logged if texts were truncated, or lack a tree that the encoder reads.

        Args:
            texts: one text, or any iterable of n texts: list, generator, Series, ndarray, Arrow array. None and NaN
                count as empty texts.
            batch_size: number of texts to encode at a time; it changes the memory use, not the result.
            trees: a bracketed binary tree for each text, None for a text without one; see ``paraembed.text.trees``.

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
        embedded = self.embed(texts, batch_size, trees)
        warn_of_unread(embedded, self.max_tokens)
        vectors: npt.NDArray[np.float32] = embedded.vectors[0] if isinstance(texts, str) else embedded.vectors
        return vectors

    def embed(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        trees: Texts | None = None,
        *,
        lock: ComputeLock = NO_LOCK,
    ) -> Embedded:
        """Encode n texts; return vectors and counts.

        If compiled loops do the sums, they use as many threads as PyTorch would.

        Args:
            texts: string array [n], in which null counts as empty, or other texts as ``encode`` takes them.
            batch_size: number of texts to encode at a time.
            trees: string array [n], null for a text without a tree; see ``paraembed.text.trees``.
            lock: held while vectors are computed; see ``TextEncoder``.

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
        if parses is not None and not self.composition.reads_trees:
            raise ValueError(
                f"trees were given, but the encoder {self.config.name} does not read trees; leave them out"
            )
        if parses is not None and len(parses) != len(strings):
            raise ValueError(
                f"{len(parses)} trees were given for {len(strings)} texts; give one tree, or None, for each text"
            )
        if self.identity:
            require_device(self.device)
            with lock:
                self.to(self.device, getattr(torch, self.precision))
        counts = np.empty((2, len(strings)), np.int32)
        embedded = Embedded(np.empty((len(strings), self.width), np.float32), *counts)
        size, threads = batch_size, 1
        if self._adds_words:
            size, threads = min(batch_size, _ADDED_AT_ONCE), torch.get_num_threads()
        spans = [(start, min(start + size, len(strings))) for start in range(0, len(strings), size)]

        def embed_span(span: tuple[int, int]) -> tuple[int, int]:
            return self._embed_span(strings, parses, *span, embedded, lock)

        if min(threads, len(spans)) < 2:
            unread = [embed_span(span) for span in spans]
        else:
            with ThreadPoolExecutor(min(threads, len(spans))) as pool:
                unread = list(pool.map(embed_span, spans))
        return replace(
            embedded, num_cut=sum(cut for cut, _ in unread), num_without_tree=sum(none for _, none in unread)
        )

    @torch.inference_mode()
    def _embed_span(
        self,
        texts: pa.Array,
        trees: pa.Array | None,
        start: int,
        stop: int,
        embedded: Embedded,
        lock: ComputeLock,
    ) -> tuple[int, int]:
        """Write vectors and counts of some texts; return how many were truncated and how many had no tree."""
        block = texts[start:stop]
        of_texts = pa.nulls(len(block), pa.string()) if trees is None else trees[start:stop]
        if stop - start > 1 and block.nbytes + of_texts.nbytes > _BYTES_AT_ONCE:
            middle = (start + stop) // 2
            first = self._embed_span(texts, trees, start, middle, embedded, lock)
            second = self._embed_span(texts, trees, middle, stop, embedded, lock)
            return first[0] + second[0], first[1] + second[1]
        num_without_tree = 0
        if self.composition.reads_trees:
            tokens, of_texts = tokenize(as_strings(block), self.tokenizer), as_strings(of_texts)
            read = fitting_trees(of_texts, tokens, start)
            ids, num_without_tree = word_ids(tokens.flat, self.vocabulary), read.num_missing
            ragged = Ragged(ids, tokens.offsets, read.merges)
        else:
            ragged = self._token_ids.tokens(block)
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
        return 0 if self.max_tokens is None else int((lengths > self.max_tokens).sum()), num_without_tree

    @property
    def _has_types(self) -> bool:
        """Whether OOV tokens have vectors of their own."""
        return self.oov in {"hashed", "pieces"}

    @cached_property
    def _token_ids(self) -> TokenIds:
        return TokenIds(self.vocabulary, self.tokenizer, hashes_unknown=self._has_types)

    def _number_types(self, texts: pa.StringArray, ragged: Ragged, unknown: npt.NDArray[np.int64]) -> Floats:
        """Replace the ids of the OOV tokens, which are at ``unknown``, with -1 - u for type u. Return the vectors of
        the types [U, D]: those that ``pieces`` gives them as texts, with the length of <unk>.
        """
        if not len(unknown):
            return NO_TYPES
        rows = np.unique(np.searchsorted(ragged.offsets, unknown, side="right") - 1)
        tokens = tokenize(as_strings(texts.take(pa.array(rows))), self.tokenizer).flat  # in the order of the ids
        types = tokens.filter(pa.array(ragged.take(rows).ids < 0)).dictionary_encode()
        ragged.ids[unknown] = -1 - types.indices.to_numpy()
        vectors_UD = self._pieces[0].embed(types.dictionary).vectors
        return normalized(vectors_UD) * np.float32(self._oov_length or 0)

    @property
    def _oov_length(self) -> float | None:
        """Length of the vectors of OOV tokens; None if they do not have vectors of their own."""
        return float(torch.linalg.vector_norm(self.matrix[self._unknown].float())) if self._has_types else None

    @cached_property
    def _unknown(self) -> int:
        return unknown_row(self.vocabulary)

    @property
    def _adds_words(self) -> bool:
        """Whether compiled loops, not PyTorch, compute the vectors."""
        matrix = self.matrix
        return (
            COMPILED
            and self.composition.adds is not None
            and (matrix.device.type, matrix.dtype) == ("cpu", torch.float32)
        )

    def _write_vectors(self, texts: Ragged, vectors: Floats, types_UD: Floats) -> None:
        """Write the vectors [n, H] of n non-empty texts; ``types_UD`` are the vectors of OOV types."""
        texts = self.with_boundaries(texts if self.max_tokens is None else texts.cut(self.max_tokens))
        limit = self.composition.tokens_at_once
        if self._adds_words:
            is_mean, length = self.composition.adds == "mean", self._oov_length
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


def _check_pieces(oov: Oov, pieces: Encoder | None, width: int) -> None:
    """Raise ValueError unless an encoder of OOV tokens is given where it is needed, and fits the width of the words."""
    if (oov == "pieces") != (pieces is not None):
        raise ValueError(f"`oov` is {oov}, but `pieces` is {'given' if pieces else 'missing'}; set both, or neither")
    if pieces is None:
        return
    if pieces.composition.adds != "mean" or pieces.width != width or pieces.tokenizer not in OF_PIECES:
        raise ValueError(
            f"the encoder of pieces is {pieces.config.name} of width {pieces.width} with the tokenizer "
            f"{pieces.tokenizer}; give one that is avg, has the width of the words, {width}, and tokenizes into word "
            "pieces or subwords"
        )


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
