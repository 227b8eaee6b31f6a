"""Texts to tokens, batches, and vectors: what the encoders of transformers have in common."""

import json
import logging
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from paraembed.compiled import compiled
from paraembed.encoders.foreign.base import ForeignEncoder, Ids, Matrix, token_counts, tokenized
from paraembed.encoders.foreign.configuration import BATCH_TOKENS
from paraembed.encoders.foreign.files import ModelError, ModelFiles
from paraembed.encoders.protocol import ComputeLock, Embedded, OnRows
from paraembed.settings import Inference
from paraembed.text import WORDPIECE
from paraembed.text.ragged import Ragged
from paraembed.text.tokens import TokenIds
from paraembed.text.wordpiece import uncased_vocabulary

_COMPARED_TEXTS = 10_000  # of a process, whose ids are compared with those of the library
_PLANE = range(0x20, 0xD800)  # characters that are compared when a model is opened, in 50 ms
_LINE = 64  # of these characters in a text

Padded = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

log = logging.getLogger(__name__)


class ModelTokens:
    """Function that maps a string array [n] without null to the ids of its tokens, without special ones, as a tokenizer
    of the library ``tokenizers`` does.

    Compiled loops return the ids of uncased BERT in 2 µs a text, the library in 45. They are compared with the
    library's, of most characters when a model is opened, and of the first texts of a process; if an id differs, the
    library returns all further ids. Threads may call it at the same time.
    """

    def __init__(self, tokenizer: Any, *, compiles: bool = True) -> None:
        self._library, self._compiled, self._left = tokenizer, None, _COMPARED_TEXTS
        self._lock = Lock()
        if not compiles or getattr(tokenizer, "encode_special_tokens", False):  # then the text [CLS] is no token
            return
        with suppress(ValueError):  # not the tokenizer of uncased BERT
            self._compiled = TokenIds(uncased_vocabulary(json.loads(tokenizer.to_str())), WORDPIECE)
        if self._compiled is not None:
            lines = ("x".join(map(chr, _PLANE[start : start + _LINE])) for start in range(0, len(_PLANE), _LINE))
            self._compare(pa.array([*lines, "e\u0301\u0327 [CLS] [MASK]x " + "long" * 26]))

    def __call__(self, texts: pa.StringArray) -> Ragged:
        """Return the ids."""
        if self._left > 0:
            with self._lock:
                first = texts.slice(0, self._left)
                self._left -= len(first)
                self._compare(first)
        in_use = self._compiled  # another thread may set it to None
        return tokenized(self._library, texts.to_pylist()) if in_use is None else in_use.tokens(texts)

    def _compare(self, texts: pa.StringArray) -> None:
        if (compiled := self._compiled) is None:
            return
        ids, expected = compiled.tokens(texts), tokenized(self._library, texts.to_pylist())
        if not (np.array_equal(ids.ids, expected.ids) and np.array_equal(ids.offsets, expected.offsets)):
            log.warning(
                "the model's tokenizer returns other ids than that of BERT; the slower one of the model is used"
            )
            self._compiled = None


@dataclass(frozen=True)
class Batch:
    """Some rows of n texts, with the tokens of all of them: ``rows`` int64 [b]."""

    texts: pa.StringArray
    ids: Ragged
    rows: Rows

    @property
    def own_texts(self) -> pa.StringArray:
        """Texts of the batch."""
        return self.texts.take(pa.array(self.rows))

    def lengths(self, most: int | None, num_special: int) -> Rows:
        """Return the tokens of each text of the batch, ``most`` at most, with special ones, int64 [b]."""
        lengths = self.ids.offsets[self.rows + 1] - self.ids.offsets[self.rows]
        return (lengths if most is None else np.minimum(lengths, most)) + num_special


def special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that a tokenizer of the library ``tokenizers`` adds before and after a text."""
    bare, whole = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    start = next(start for start in range(len(whole) + 1) if whole[start : start + len(bare)] == bare)
    return whole[:start], whole[start + len(bare) :]


def padded(
    batch: Batch, most: int | None, before: Sequence[int], after: Sequence[int], pad: int, *, left: bool = False
) -> dict[str, Padded]:
    """Return the inputs of a transformer for b texts, int64 [b, L]: ``input_ids``, the first ``most`` tokens of each
    text between special tokens, padded at the end (with ``left`` at the start); ``attention_mask``, 1 for tokens and 0
    for padding; ``token_type_ids``, zeros.
    """
    lengths = batch.lengths(most, len(before) + len(after))
    width = int(lengths.max())
    padding, places = width - lengths, np.arange(width)
    mask = (places >= padding[:, None] if left else places < lengths[:, None]).astype(np.int64)
    input_ids = np.full(mask.shape, pad, np.int64)
    starts = width * np.arange(len(lengths)) + (padding if left else 0)
    _fill(batch, most, before, after, starts, input_ids)
    return {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}


def packed(batch: Batch, most: int | None, before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    """Return the inputs of a transformer for b texts of T tokens, one after the other without padding, int64 [1, T]:
    ``input_ids``, ``token_type_ids``, ``position_ids`` (from 0 in each text), ``seq_idx`` (int32, the number of the
    text); ``cu_seq_lens_q`` and ``_k``, the start of each text and the end, int32 [b + 1]; ``max_length_q`` and ``_k``.
    """
    lengths = batch.lengths(most, len(before) + len(after))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    input_ids = np.empty((1, starts[-1]), np.int64)
    _fill(batch, most, before, after, starts[:-1], input_ids)
    places, numbers = np.arange(starts[-1]), np.repeat(np.arange(len(lengths)), lengths)
    ends, longest = starts.astype(np.int32), int(lengths.max())
    return {
        "input_ids": input_ids,
        "token_type_ids": np.zeros_like(input_ids),
        "position_ids": (places - starts[numbers])[None],
        "seq_idx": numbers.astype(np.int32)[None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def _fill(
    batch: Batch, most: int | None, before: Sequence[int], after: Sequence[int], starts: Rows, input_ids: Padded
) -> None:
    """Write the tokens of the texts of a batch from ``starts`` on."""
    special = np.array(before, np.int64), np.array(after, np.int64)
    limit = np.iinfo(np.int64).max if most is None else most
    _copy(batch.ids.ids, batch.ids.offsets, batch.rows, limit, *special, starts, input_ids.reshape(-1))


@compiled
def _copy(
    ids: Ids, offsets: Rows, rows: Rows, most: int, before: Padded, after: Padded, starts: Rows, flat: Padded
) -> None:
    for number in range(len(rows)):
        place = starts[number]
        for token in before:
            flat[place] = token
            place += 1
        first = offsets[rows[number]]
        for source in range(first, first + min(most, offsets[rows[number] + 1] - first)):
            flat[place] = ids[source]
            place += 1
        for token in after:
            flat[place] = token
            place += 1


class InBatches(ForeignEncoder):
    """Model that computes batches of texts of similar length, as many as fit a token budget.

    A batch is prepared while a GPU computes the one before it, or a batch of another thread.
    """

    encodes_once = True
    packs = False
    """Whether batches have no padding; see ``paraembed.encoders.foreign.packing``."""
    _prompt = ""

    def __init__(self, files: ModelFiles, inference: Inference, width: int, max_tokens: int | None) -> None:
        budget = inference.batch_tokens or BATCH_TOKENS["cpu" if inference.device == "cpu" else "cuda"]
        super().__init__(files, replace(inference, batch_tokens=budget), width, max_tokens)
        self._budget = budget

    @abstractmethod
    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n], without special ones and prompt; threads may call it at the same
        time.
        """

    @property
    @abstractmethod
    def _unknown(self) -> int | None:
        """Id of the out-of-vocabulary token; None without one."""

    @property
    @abstractmethod
    def _num_special(self) -> int:
        """Number of special tokens that are added to each text."""

    @property
    def _overhead(self) -> int:
        """Number of tokens of the prompt and of special tokens that are added to each text."""
        return self._num_special + (len(self.token_ids(pa.array([self._prompt])).ids) if self._prompt else 0)

    def _prepare(self) -> None:
        """Move the model to its device, before the first batch."""

    @abstractmethod
    def _features(self, batch: Batch) -> Any:
        """Return what ``_forward`` reads of a batch of texts; several threads may call it."""

    @abstractmethod
    def _forward(self, features: Any) -> Any:
        """Return the output of the model, which a GPU may still compute."""

    @abstractmethod
    def _vectors(self, output: Any) -> Matrix:
        """Return the vectors [b, H] of an output, when it is computed."""

    def _compute(self, texts: Sequence[str]) -> Matrix:
        """Return vectors [n, H] of one batch."""
        strings = pa.array(texts, pa.string())
        batch = Batch(strings, self.token_ids(strings), np.arange(len(texts)))
        return self._vectors(self._forward(self._features(batch)))

    def _prompted(self, batch: Batch) -> Batch:
        """Return a batch with the prompt before each text."""
        if not self._prompt:
            return batch
        texts = batch.own_texts
        prompt, nothing = (pa.scalar(value, texts.type) for value in (self._prompt, ""))
        texts = pc.binary_join_element_wise(prompt, texts, nothing)
        return Batch(texts, self.token_ids(texts), np.arange(len(texts)))

    def _computed(self, texts: pa.StringArray, lock: ComputeLock, on_rows: OnRows) -> Embedded:
        with lock:
            self._prepare()
        ids = self.token_ids(texts)
        counts, unknown = token_counts(ids, self._unknown)
        read = counts if self.max_tokens is None else np.minimum(counts, self.max_tokens)
        lengths = (read + self._overhead).astype(np.int64)
        filled = np.flatnonzero(counts)
        order = filled[np.argsort(-lengths[filled], kind="stable")]
        sums = np.concatenate([[0], np.cumsum(lengths[order])])
        vectors, start = np.zeros((len(texts), self.width), np.float32), 0
        computing: list[tuple[Rows, Any]] = []
        while start < len(order):
            budget = self._budget
            stop = start + budget // int(lengths[order[start]])
            if self.packs:
                stop = int(np.searchsorted(sums, sums[start] + budget, side="right")) - 1
            rows = order[start : max(start + 1, stop)]
            try:
                features = self._features(Batch(texts, ids, rows))
                with lock:
                    computing.append((rows, self._forward(features)))
                start += len(rows)
            except torch.OutOfMemoryError as error:
                self._halve(len(rows), budget, error)
            if len(computing) > 1:
                self._take(*computing[0], vectors)
                on_rows(len(computing.pop(0)[0]))
        for rows, output in computing:
            self._take(rows, output, vectors)
        on_rows(len(texts) - len(order) + sum(len(rows) for rows, _ in computing))
        return Embedded(vectors, counts, unknown, counts > read)

    def _take(self, rows: Rows, output: Any, vectors: Matrix) -> None:
        """Write the vectors of a batch to their rows; a model may not return any other number of vectors."""
        of_batch = self._vectors(output)
        if of_batch.shape != (len(rows), self.width):
            raise ModelError(
                f"it returned an array of the shape {list(of_batch.shape)} for {len(rows)} texts; expected "
                f"{[len(rows), self.width]}"
            )
        vectors[rows] = of_batch

    def _halve(self, num_texts: int, budget: int, error: RuntimeError) -> None:
        """Continue with half the budget, or less if another thread lowered it; raise ValueError for a single text."""
        if num_texts == 1:
            raise ValueError(
                f"the GPU has too little free memory for one text ({str(error).splitlines()[0][:200]}); free some "
                "memory, or use a smaller model"
            ) from None
        if budget == self._budget == self.inference.batch_tokens:
            log.warning(
                "the GPU has too little free memory for %d tokens; continuing with smaller batches, see `batch_tokens`",
                self._budget,
            )
        self._budget = min(self._budget, budget // 2)
        torch.cuda.empty_cache()
