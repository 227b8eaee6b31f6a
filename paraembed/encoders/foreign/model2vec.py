"""``m2v:`` models of model2vec: its tokenizer and its vectors, averaged by a compiled loop of this package.

If its tokenizer is that of uncased BERT, a compiled loop computes the same ids.
"""

import json
from dataclasses import replace
from importlib import import_module
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.encoders.added import add_words
from paraembed.encoders.base import Embedded
from paraembed.encoders.foreign.base import ForeignEncoder, token_counts, tokenized
from paraembed.encoders.foreign.files import ModelFiles
from paraembed.encoders.protocol import Turn
from paraembed.settings import Backend, Inference
from paraembed.text import WORDPIECE
from paraembed.text.ragged import Ragged, joined
from paraembed.text.tokens import TokenIds
from paraembed.text.wordpiece import uncased_vocabulary


class Model2VecEncoder(ForeignEncoder):
    """Static model of model2vec: the mean of the vectors of known tokens."""

    kind: ClassVar[str] = "m2v"
    settings: ClassVar[frozenset[str]] = frozenset()
    libraries = ("model2vec", "tokenizers")

    def __init__(self, files: ModelFiles, inference: Inference) -> None:
        model = import_module("model2vec").StaticModel.from_pretrained(files.folder)
        table = np.asarray(model.embedding, np.float32)
        if model.token_mapping is not None:
            table = table[model.token_mapping]
        if model.weights is not None:
            table = table * np.asarray(model.weights, np.float32)[:, None]
        self._table, self._normalizes = np.ascontiguousarray(table), bool(model.normalize)
        self._unknown = model.unk_token_id
        self._most_characters = None if model.max_length is None else model.max_length * model.median_token_length
        self._tokenizer = model.tokenizer
        self._tokenizer.no_truncation()
        try:
            vocabulary = uncased_vocabulary(json.loads(self._tokenizer.to_str()))
        except ValueError:  # not an uncased WordPiece tokenizer
            self._token_ids = None
        else:
            self._token_ids = TokenIds(vocabulary, WORDPIECE)  # 25 times as fast as the library
        used = replace(inference, device="cpu", prompt="", batch_tokens=None)
        super().__init__(files, used, table.shape[1], model.max_length)

    @classmethod
    def no_gpu(cls, backend: Backend) -> str:  # noqa: ARG003
        """Return that model2vec has no GPU code."""
        return "m2v: models compute on CPUs; leave it out"

    def _computed(self, texts: pa.StringArray, turn: Turn) -> Embedded:
        ids = self._ids(texts)
        counts, unknown = token_counts(ids, self._unknown)
        read = self._cut(texts, ids)
        num_cut = int((read.lengths < counts).sum())
        if self._unknown is not None:
            known = read.ids != self._unknown
            read = Ragged(read.ids[known], np.concatenate([[0], np.cumsum(known)])[read.offsets])
        vectors = np.empty((len(texts), self.width), np.float32)
        with turn:
            add_words(self._table, read, True, vectors)
        if self._normalizes:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + np.float32(1e-32)
        return Embedded(vectors, counts, unknown, num_cut)

    def _cut(self, texts: pa.StringArray, ids: Ragged) -> Ragged:
        """Truncate long texts like model2vec: first to a number of characters, then to ``max_tokens`` tokens."""
        if self.max_tokens is None or self._most_characters is None:
            return ids
        long = np.flatnonzero(pc.utf8_length(texts).to_numpy(zero_copy_only=False) > self._most_characters)
        if len(long):
            starts = pc.utf8_slice_codeunits(texts.take(pa.array(long)), 0, self._most_characters)
            rows = np.arange(len(texts))
            rows[long] = len(texts) + np.arange(len(long))
            ids = joined(ids, self._ids(starts)).take(rows)
        return ids.cut(self.max_tokens)

    def _ids(self, texts: pa.StringArray) -> Ragged:
        return tokenized(self._tokenizer, texts.to_pylist()) if self._token_ids is None else self._token_ids(texts)
