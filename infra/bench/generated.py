"""Generated words, texts and pairs: words drawn from Zipf's law, lengths from a Poisson distribution; neither PPDB nor
real language.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.text.ragged import Ragged
from paraembed.text.tokenize import Tokens, tokenize
from paraembed.text.vocabulary import UNKNOWN, Words

ZIPF = 1.07
"""Exponent that gives about 1,200 distinct words of 40,000 among 3,000 tokens."""
_BLOCK_TEXTS = 1 << 20  # drawn at a time: the numbers behind a draw take six times the memory of its ids


def word_chances(num_words: int, exponent: float = ZIPF) -> npt.NDArray[np.float64]:
    """Return the probability of each word, by frequency rank, [num_words]."""
    weights: npt.NDArray[np.float64] = np.arange(1, num_words + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    return weights


def draw_words(num_words: int, width: int, seed: int) -> Words:
    """Return words with random vectors of a usual scale; the first is <unk>."""
    matrix = np.random.default_rng(seed).standard_normal((num_words, width), dtype=np.float32)
    matrix *= np.float32(0.1)
    return Words(pa.array([UNKNOWN, *(f"w{number}" for number in range(1, num_words))]), matrix)


def draw_texts(
    num_texts: int, mean_tokens: float, chances: npt.NDArray[np.float64], *seed: int, block_texts: int = _BLOCK_TEXTS
) -> Ragged:
    """Return texts of at least one word; lengths come from a Poisson distribution of mean ``mean_tokens``."""
    drawn = np.random.default_rng(seed)
    offsets = np.zeros(num_texts + 1, np.int64)
    np.cumsum(np.maximum(drawn.poisson(mean_tokens, num_texts), 1), out=offsets[1:])
    ids = np.empty(offsets[-1], np.int32)
    bounds = np.cumsum(chances)
    bounds[-1] = 1.0  # the sum of roundings may end below it
    for start in range(0, num_texts, block_texts):
        first, last = offsets[start], offsets[min(start + block_texts, num_texts)]
        ids[first:last] = np.searchsorted(bounds, drawn.random(last - first), side="right")
    return Ragged(ids, offsets)


def pair_texts(pairs: Ragged, words: Words) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the first and second texts of pairs, tokens joined by one space."""
    texts = Tokens(words.vocabulary.take(pa.array(pairs.ids)), pairs.offsets).joined()
    numbers = np.arange(len(pairs))
    return texts.take(pa.array(numbers[0::2])), texts.take(pa.array(numbers[1::2]))


def draw_lines(num_texts: int, mean_tokens: float, num_words: int, seed: int) -> bytes:
    """Return texts as the bytes of a file, one per line."""
    drawn = draw_texts(num_texts, mean_tokens, word_chances(num_words), seed)
    vocabulary = draw_words(num_words, 1, seed).vocabulary
    texts = Tokens(vocabulary.take(pa.array(drawn.ids)), drawn.offsets).joined()
    return "".join(f"{text}\n" for text in texts.to_pylist()).encode()


def frequent_words(lines: bytes, tokenizer: str, num_words: int, width: int, seed: int) -> Words:
    """Return <unk> and the most frequent words, with random vectors; ties keep the order of the words."""
    texts = pa.array(lines.decode("utf-8", "replace").split("\n"), pa.string())
    counted = pc.value_counts(tokenize(texts, tokenizer).flat).flatten()
    table = pa.table({"word": counted[0], "count": counted[1]})
    table = table.sort_by([("count", "descending"), ("word", "ascending")])
    frequent = table["word"].slice(0, num_words - 1).combine_chunks()
    vocabulary = pa.concat_arrays([pa.array([UNKNOWN]), frequent.cast(pa.string())])
    return Words(vocabulary, draw_words(len(vocabulary), width, seed).matrix)
