"""Bigrams: pairs of adjacent tokens that have a row of the vocabulary, and so a vector, of their own.

An average has the same vector for "dog bites man" and "man bites dog", and "hot dog" is what "hot" and "dog" are. The
vector of a frequent bigram is added to those of its tokens, and corrects their sum. Its entry in the vocabulary is the
two tokens with a tab between them; tokens that contain a tab, which some tokenizers have, are in no bigram.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.compiled import compiled
from paraembed.text.ragged import Ragged

TAB = "\t"

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_MIX, _SHIFT = 0x1E3779B97F4A7C15, 20  # the middle bits of a product depend on all bits of the key


def is_bigram(vocabulary: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return which entries of a vocabulary are bigrams, [V]."""
    matches: npt.NDArray[np.bool_] = _are_bigrams(vocabulary).to_numpy(zero_copy_only=False)
    return matches


def has_bigrams(vocabulary: pa.StringArray) -> bool:
    """Return whether a vocabulary has bigrams."""
    return bool(pc.any(_are_bigrams(vocabulary)).as_py())


def _are_bigrams(vocabulary: pa.StringArray) -> pa.BooleanArray:
    return pc.match_substring_regex(vocabulary, "^[^\t]+\t[^\t]+$")


class Bigrams:
    """Function that adds the rows of their bigrams to texts, after the rows of their tokens.

    A bigram of a token without a row, and an OOV token with a negative id, are in no text.

    Args:
        vocabulary: string array [V].
    """

    def __init__(self, vocabulary: pa.StringArray) -> None:
        rows = np.flatnonzero(is_bigram(vocabulary))
        halves = pc.split_pattern(vocabulary.take(pa.array(rows)), TAB)
        first, second = (
            pc.index_in(pc.list_element(halves, side), value_set=vocabulary).fill_null(-1).to_numpy() for side in (0, 1)
        )
        is_known = (first >= 0) & (second >= 0)
        keys = first[is_known].astype(np.int64) * len(vocabulary) + second[is_known]
        self._size = len(vocabulary)
        # An open hash table of at least twice as many slots; -1 is a free one.
        self._keys = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int64)
        self._rows = np.zeros(len(self._keys), np.int32)
        _fill(keys, rows[is_known].astype(np.int32), self._keys, self._rows)

    def __call__(self, texts: Ragged) -> Ragged:
        """Return n texts of word ids with their bigrams; both have the ids of tokens alone, and neither has trees."""
        ids, offsets = np.empty(2 * len(texts.ids), np.int32), np.zeros(len(texts) + 1, np.int64)
        _add(texts.ids, texts.offsets, self._size, self._keys, self._rows, ids, offsets)
        return Ragged(ids[: offsets[-1]].copy(), offsets)


@compiled
def _slot(key: int, keys_S: Longs) -> int:
    """Return the slot of a key, or the free slot where it belongs."""
    last = len(keys_S) - 1
    slot = ((key * _MIX) >> _SHIFT) & last
    while keys_S[slot] not in (key, -1):
        slot = (slot + 1) & last
    return slot


@compiled
def _fill(keys: Longs, rows: Ids, keys_S: Longs, rows_S: Ids) -> None:
    """Insert bigrams into free slots."""
    for number in range(len(keys)):
        slot = _slot(keys[number], keys_S)
        keys_S[slot], rows_S[slot] = keys[number], rows[number]


@compiled
def _add(ids: Ids, offsets: Longs, size: int, keys_S: Longs, rows_S: Ids, out: Ids, out_offsets: Longs) -> None:
    """Copy the ids of each text, and add the rows of its bigrams."""
    end = 0
    for text in range(len(offsets) - 1):
        start, stop = offsets[text], offsets[text + 1]
        for place in range(start, stop):
            out[end] = ids[place]
            end += 1
        for place in range(start + 1, stop):
            first, second = np.int64(ids[place - 1]), np.int64(ids[place])
            if first >= 0 and second >= 0:
                key = first * size + second
                slot = _slot(int(key), keys_S)
                if keys_S[slot] == key:
                    out[end] = rows_S[slot]
                    end += 1
        out_offsets[text + 1] = end
