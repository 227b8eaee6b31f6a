"""Statistics of pairs: lengths, words with counts, and words without a vector.

Counts of blocks of rows are tables; ``merge_counts`` adds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.pairs.hashing import text_column

LENGTHS = pa.schema([("text", pa.string()), ("tokens", pa.int64()), ("count", pa.int64())])
WORDS = pa.schema([("word", pa.string()), ("count", pa.int64())])


@dataclass(frozen=True)
class Counts:
    """Counts over pairs.

    Attributes:
        lengths: schema ``LENGTHS``: number of pairs by tokens of ``first``, ``second``, and the ``longer`` text.
        words: schema ``WORDS``: number of tokens of both texts by word.
    """

    lengths: pa.Table
    words: pa.Table


def count_pairs(table: pa.Table) -> Counts:
    """Return the counts of n pairs, string columns ``first`` and ``second`` of one token or more, one space between.

    The rows of the counts are in no order; ``merge_counts`` sorts them.
    """
    texts = pa.concat_arrays([text_column(table, "first"), text_column(table, "second")])
    if not len(texts):
        return merge_counts([])
    tokens, lengths_2N = _tokens_with_space(texts)
    lengths = lengths_2N.reshape(2, -1)
    sides = {"first": lengths[0], "second": lengths[1], "longer": lengths.max(axis=0)}
    counts = pc.value_counts(tokens)
    # A word can have two values: with the space after it, and without at the end of a text.
    words = pa.Table.from_arrays([pc.ascii_rtrim(counts.field("values"), " "), counts.field("counts")], schema=WORDS)
    return Counts(pa.concat_tables([_histogram(name, side) for name, side in sides.items()]), _added(words))


def _tokens_with_space(texts: pa.StringArray) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
    """Return the tokens [T] of n texts, each with the space after it, and the number of tokens of each text, int64 [n].

    The tokens are slices of the texts' bytes: nothing is copied.

    Args:
        texts: string array [n], not a slice, n > 0; no text is empty or ends with a space.
    """
    starts_of_texts = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
    octets = np.frombuffer(texts.buffers()[2], np.uint8)[: starts_of_texts[-1]]
    begins = np.empty(len(octets) + 1, bool)
    np.equal(octets, ord(" "), out=begins[1:])
    begins[starts_of_texts] = True
    starts = np.flatnonzero(begins)
    last_tokens = np.flatnonzero(octets[starts[1:] - 1] != ord(" "))
    offsets = pa.py_buffer(starts.astype(np.int32))
    tokens = pa.Array.from_buffers(pa.string(), len(starts) - 1, [None, offsets, texts.buffers()[2]])
    return tokens, np.diff(last_tokens, prepend=-1)


def _histogram(name: str, lengths: npt.NDArray[np.int64]) -> pa.Table:
    counts = np.bincount(lengths)
    tokens = np.flatnonzero(counts)
    return pa.Table.from_arrays(
        [pa.repeat(name, len(tokens)), pa.array(tokens), pa.array(counts[tokens])], schema=LENGTHS
    )


def merge_counts(parts: Sequence[Counts]) -> Counts:
    """Return the sum of counts, in an order that does not depend on the parts: lengths ascending, words by count."""
    lengths = _added(pa.concat_tables([LENGTHS.empty_table(), *(part.lengths for part in parts)]))
    words = _added(pa.concat_tables([WORDS.empty_table(), *(part.words for part in parts)]))
    return Counts(
        lengths.sort_by([("text", "ascending"), ("tokens", "ascending")]),
        words.sort_by([("count", "descending"), ("word", "ascending")]),
    )


def _added(table: pa.Table) -> pa.Table:
    names = table.column_names[:-1]
    return table.group_by(names).aggregate([("count", "sum")]).rename_columns(table.column_names)


def length_histogram(counts: Counts) -> dict[str, dict[str, int]]:
    """Return the number of pairs by tokens, for JSON: {"first": {"1": 20, "2": 7}, "second": …, "longer": …}."""
    histogram: dict[str, dict[str, int]] = {"first": {}, "second": {}, "longer": {}}
    for row in counts.lengths.to_pylist():
        histogram[row["text"]][str(row["tokens"])] = row["count"]
    return histogram


def without_vector(counts: Counts, vocabulary: pa.StringArray) -> dict[str, Any]:
    """Return the number of words of the pairs that are not in the vocabulary [V] (P16 §5.1).

    Returns:
        For ``words`` (distinct) and ``tokens`` (all occurrences): all, without vector, and the fraction without.
    """
    missing = pc.invert(pc.is_in(counts.words["word"], value_set=vocabulary))
    lost = counts.words.filter(missing)
    tokens, lost_tokens = (int(pc.sum(table["count"]).as_py() or 0) for table in (counts.words, lost))
    return {
        name: {"all": total, "without_vector": few, "share": few / total if total else 0.0}
        for name, total, few in (("words", len(counts.words), len(lost)), ("tokens", tokens, lost_tokens))
    }
