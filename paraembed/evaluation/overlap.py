"""Word overlap as a baseline: share of the words of the shorter phrase that are in the longer (Wieting 2015 §6.4)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.evaluation.candidates import Candidate
from paraembed.text import tokenise


class WordOverlap:
    """Scores pairs by their common words, as they stand or by their English lemmas.

    The shorter phrase has fewer words; of two as long as each other the higher share counts, so that the score of a
    pair is that of its swap. A phrase without words has overlap 0.
    """

    def __init__(self, *, lemmatised: bool) -> None:
        self.lemmatised = lemmatised

    def similarity(self, first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.float64]:
        """Overlap of each text [n] with the one beside it, float64 [n], 0 to 1."""
        sides = [self._words(side) for side in (first, second)]
        return np.array([_overlap(one, other) for one, other in zip(*sides, strict=True)], np.float64)

    def _words(self, texts: pa.StringArray) -> list[list[str]]:
        tokens = tokenise(texts, "ptb-v1")
        flat: list[str] = tokens.flat.to_pylist()
        if self.lemmatised:
            from simplemma import lemmatize  # noqa: PLC0415 - a second to import

            lemmas = {word: lemmatize(word, lang="en").lower() for word in {*flat}}
            flat = [lemmas[word] for word in flat]
        return [flat[start:end] for start, end in pairwise(tokens.offsets.tolist())]


def overlap_candidates() -> list[Candidate]:
    """Strict and lemmatised word overlap."""
    told = "share of the words of the shorter text that are in the longer"
    return [
        Candidate("overlap", told, WordOverlap(lemmatised=False), is_baseline=True),
        Candidate("lemma overlap", f"{told}, lemmatised", WordOverlap(lemmatised=True), is_baseline=True),
    ]


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    if not one or not other:
        return 0.0
    common = {*one} & {*other}
    shares = [sum(word in common for word in words) / len(words) for words in (one, other)]
    if len(one) == len(other):
        return max(shares)
    return shares[0] if len(one) < len(other) else shares[1]
