"""Generated words, texts and pairs: words drawn from Zipf's law, lengths from Poisson's. Not PPDB, and not language."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.ragged import Ragged
from paraembed.words import UNKNOWN, Words

ZIPF = 1.07
"""Exponent that gives about 1,200 distinct words of 40,000 among 3,000 tokens."""
_BLOCK_TEXTS = 1 << 20  # drawn at a time: the numbers behind a draw take six times the memory of its ids


def word_chances(num_words: int, exponent: float = ZIPF) -> npt.NDArray[np.float64]:
    """How likely each word is, by rank, [num_words]."""
    weights: npt.NDArray[np.float64] = np.arange(1, num_words + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    return weights


def draw_words(num_words: int, width: int, seed: int) -> Words:
    """Words with random vectors of a usual scale; the first is the unknown word."""
    matrix = np.random.default_rng(seed).standard_normal((num_words, width), dtype=np.float32)
    matrix *= np.float32(0.1)
    return Words(pa.array([UNKNOWN, *(f"w{number}" for number in range(1, num_words))]), matrix)


def draw_texts(num_texts: int, mean_tokens: float, chances: npt.NDArray[np.float64], *seed: int) -> Ragged:
    """Texts of one word or more.

    Args:
        num_texts: how many.
        mean_tokens: of the Poisson distribution that lengths come from.
        chances: how likely each word is.
        seed: decides them.
    """
    drawn = np.random.default_rng(seed)
    offsets = np.zeros(num_texts + 1, np.int64)
    np.cumsum(np.maximum(drawn.poisson(mean_tokens, num_texts), 1), out=offsets[1:])
    ids = np.empty(offsets[-1], np.int32)
    bounds = np.cumsum(chances)
    bounds[-1] = 1.0  # the sum of roundings may end below it
    for start in range(0, num_texts, _BLOCK_TEXTS):
        first, last = offsets[start], offsets[min(start + _BLOCK_TEXTS, num_texts)]
        ids[first:last] = np.searchsorted(bounds, drawn.random(last - first), side="right")
    return Ragged(ids, offsets)
