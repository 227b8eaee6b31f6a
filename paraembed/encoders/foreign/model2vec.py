"""``m2v:`` models of model2vec: its tokenizer and its vectors, averaged by a compiled loop of this package."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from typing import ClassVar

import numpy as np

from paraembed.encoders.added import add_words
from paraembed.encoders.foreign.base import ForeignEncoder, Ids, Matrix, token_counts
from paraembed.encoders.foreign.files import ModelFiles
from paraembed.settings import Inference
from paraembed.text.ragged import Ragged


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
        used = replace(inference, device="cpu", prompt="", batch_tokens=None)
        super().__init__(files, used, table.shape[1], model.max_length)

    def _computed(self, texts: Sequence[str]) -> tuple[Matrix, Ids, Ids]:
        ids = self._ids(texts)
        counts, unknown = token_counts(ids, self._unknown)
        if self._most_characters is not None:
            self._cut(texts, ids, self._most_characters)
        known = ids if self._unknown is None else [[row for row in text if row != self._unknown] for text in ids]
        lengths = np.fromiter(map(len, known), np.int64, len(known))
        flat = np.fromiter(chain.from_iterable(known), np.int32, int(lengths.sum()))
        vectors = np.empty((len(texts), self.width), np.float32)
        add_words(self._table, Ragged(flat, np.concatenate([[0], np.cumsum(lengths)])), True, vectors)
        if self._normalizes:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + np.float32(1e-32)
        return vectors, counts, unknown

    def _cut(self, texts: Sequence[str], ids: list[list[int]], most_characters: int) -> None:
        """Truncate long texts like model2vec: first to a number of characters, then to ``max_tokens`` tokens."""
        long = [row for row, text in enumerate(texts) if len(text) > most_characters]
        for row, of_text in zip(long, self._ids([texts[row][:most_characters] for row in long]), strict=True):
            ids[row] = of_text
        for row, of_text in enumerate(ids):
            if len(of_text) > (self.max_tokens or 0):
                ids[row] = of_text[: self.max_tokens]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
