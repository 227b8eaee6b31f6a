"""Word vectors that know nothing: what a method gains on the test pairs, it has learned."""

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from paraembed.data.sample.lexicon import CONCEPTS, PATTERNS, SENTENCES


def vector_lines(dimension: int, seed: int) -> Iterator[str]:
    """Yield a line a word: one Gaussian draw of expected length 1, that depends on the seed and the word alone."""
    for word in _vocabulary():
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        values = np.random.default_rng([seed, number]).standard_normal(dimension) / math.sqrt(dimension)
        yield f"{word} {' '.join(f'{value:.5f}' for value in values.tolist())}\n"


def _vocabulary() -> list[str]:
    """Every token of the lexicon, the templates and the sentences, sorted."""
    texts = [word for concept in CONCEPTS for word in concept.words]
    texts += [way for pattern in (*PATTERNS, *SENTENCES) for way in (*pattern.variants, *pattern.denials)]
    return sorted({".", ",", "and"} | {token for text in texts for token in text.split() if token[0] != "{"})
