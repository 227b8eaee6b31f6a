"""``m2v:`` models of model2vec: its tokenizer and its vectors, averaged by a compiled loop of this package."""

from dataclasses import replace
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.encoders.added import add_words
from paraembed.encoders.foreign.base import ForeignEncoder, Matrix, largest_id, token_counts
from paraembed.encoders.foreign.batches import ModelTokens
from paraembed.encoders.foreign.files import ModelError, ModelFiles
from paraembed.encoders.protocol import ComputeLock, Embedded, OnRows
from paraembed.io.fingerprint import read_json
from paraembed.options import Range
from paraembed.settings import Backend, Inference
from paraembed.text.ragged import Ragged, joined


class _Config(TypedDict, total=False):
    max_length: Annotated[int, Range(1, 1 << 24)] | None
    normalize: bool | None


class Model2VecEncoder(ForeignEncoder):
    """Static model of model2vec: the mean of the vectors of known tokens."""

    kind: ClassVar[str] = "m2v"
    settings: ClassVar[frozenset[str]] = frozenset()
    libraries = ("model2vec", "tokenizers")

    def __init__(self, files: ModelFiles, inference: Inference) -> None:
        if "config.json" in files.names:
            read_json(files.folder / "config.json", _Config)
        model = import_module("model2vec").StaticModel.from_pretrained(files.folder)
        table = _table_of(model.embedding, model.token_mapping, model.weights)
        if (largest := largest_id(model.tokenizer)) >= len(table):  # also those of the compiled tokenizer, see below
            raise ModelError(f"its tokenizer has the id {largest:,}, but there are {len(table):,} vectors of tokens")
        self._table, self._normalizes = table, bool(model.normalize)
        self._unknown = model.unk_token_id
        self._most_characters = None if model.max_length is None else model.max_length * model.median_token_length
        self._tokenizer = model.tokenizer
        self._tokenizer.no_truncation()
        self._tokens = ModelTokens(self._tokenizer)
        used = replace(inference, device="cpu", prompt="", batch_tokens=None)
        super().__init__(files, used, table.shape[1], model.max_length)

    @classmethod
    def no_gpu(cls, backend: Backend) -> str:  # noqa: ARG003
        """Return that model2vec has no GPU code."""
        return "m2v: models compute on CPUs; leave it out"

    def _computed(self, texts: pa.StringArray, lock: ComputeLock, on_rows: OnRows) -> Embedded:
        ids = self.token_ids(texts)
        counts, unknown = token_counts(ids, self._unknown)
        read = self._cut(texts, ids)
        is_cut = read.lengths < counts
        if self._unknown is not None:
            known = read.ids != self._unknown
            read = Ragged(read.ids[known], np.concatenate([[0], np.cumsum(known)])[read.offsets])
        vectors = np.empty((len(texts), self.width), np.float32)
        with lock:
            add_words(self._table, read, True, vectors)
        on_rows(len(texts))
        if self._normalizes:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + np.float32(1e-32)
        return Embedded(vectors, counts, unknown, is_cut)

    def _cut(self, texts: pa.StringArray, ids: Ragged) -> Ragged:
        """Truncate long texts like model2vec: first to a number of characters, then to ``max_tokens`` tokens."""
        if self.max_tokens is None or self._most_characters is None:
            return ids
        long = np.flatnonzero(pc.utf8_length(texts).to_numpy(zero_copy_only=False) > self._most_characters)
        if len(long):
            starts = pc.utf8_slice_codeunits(texts.take(pa.array(long)), 0, self._most_characters)
            rows = np.arange(len(texts))
            rows[long] = len(texts) + np.arange(len(long))
            ids = joined(ids, self.token_ids(starts)).take(rows)
        return ids.cut(self.max_tokens)

    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n]."""
        return self._tokens(texts)


def _table_of(vectors: Any, mapping: Any, weights: Any) -> Matrix:
    """Return the weighted vector of each token id, float32 [V, H], from arrays of any shape and type in a file."""
    table: Matrix = np.asarray(vectors, np.float32)
    if table.ndim != 2:
        raise ModelError(f"its vectors have the shape {list(table.shape)}; expected a row for each token")
    if mapping is not None:
        rows = np.asarray(mapping)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not ((rows >= 0) & (rows < len(table))).all():
            raise ModelError(f"its mapping from tokens to vectors names others than its {len(table):,} vectors")
        table = table[rows]
    if weights is not None:
        if np.shape(weights) != (len(table),):
            raise ModelError(f"it has weights of the shape {list(np.shape(weights))} for {len(table):,} tokens")
        table = table * np.asarray(weights, np.float32)[:, None]
    return np.ascontiguousarray(table)
