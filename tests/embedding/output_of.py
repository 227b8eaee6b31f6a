"""A finished output of embeddings with given vectors: each row is a text of a single word that has that vector."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.embedding.output import VectorBlock
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.embedding.without_ray import build


def encoder_of(vectors, folder):
    """Save an encoder in which the vector of the word ``w3`` is the row 3 of ``vectors``."""
    words = [UNKNOWN, *(f"w{number}" for number in range(len(vectors)))]
    matrix = np.vstack([np.full((1, vectors.shape[1]), 7), vectors]).astype(np.float32)
    checkpoint.save(
        Encoder(AvgConfig(), Words(pa.array(words), matrix), "space"), folder, recipe={}, provenance={}, model_card=""
    )
    return folder


def output_of(encoder, words, out, **settings):
    """Embed the words with these numbers, a row each; the columns ``text`` and ``number`` are carried."""
    table = out.with_name(f"{out.name}.parquet")
    texts = [f"w{word}" if word is not None else "" for word in words]
    pq.write_table(pa.table({"text": texts, "number": list(range(len(words)))}), table, row_group_size=3)
    options = {"text_column": "text", "keep": ("text", "number"), "part_rows": 7, **settings}
    build(encoder, table, Settings(**options), out)
    return out


class InMemory:
    """What ``search`` and ``mine`` use of a finished output, of vectors in memory in blocks of some rows.

    Ids that are given count as ids of the input.
    """

    encoder, id_column = "", "id"

    def __init__(self, vectors, group_rows=4, ids=None):
        self.vectors, self.group_rows = np.asarray(vectors, np.float32), group_rows
        self.rows, self.width = self.vectors.shape
        self.starts = np.array([*range(0, self.rows, 3), self.rows])
        self.has_input_ids, self.ids = ids is not None, ids

    def take(self, numbers, columns):
        return pa.table({name: pa.array(self.ids).take(pa.array(numbers)) for name in columns})

    def blocks(self, start=0, stop=None):
        stop = self.rows if stop is None else stop
        for first in range(start - start % self.group_rows, stop, self.group_rows):
            begin, end = max(first, start), min(first + self.group_rows, stop)
            yield VectorBlock(begin, self.vectors[begin:end])


def cosine(left, right):
    """The cosine in Python's numbers, rounded once to float32; None if a vector is zero."""
    left, right = left.tolist(), right.tolist()
    lengths = [sum(number * number for number in vector) ** 0.5 for vector in (left, right)]
    if not all(lengths):
        return None
    return np.float32(sum(a * b for a, b in zip(left, right, strict=True)) / lengths[0] / lengths[1])
