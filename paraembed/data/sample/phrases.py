"""Pairs of phrases that mean the same, in random order, none twice and none of a combination held out for testing.

A pair of a pattern is a number: its digits say which concept and which two of its words fill each slot, and which two
ways of saying it are taken. The numbers are walked through in a keyed permutation, so nothing needs to be remembered.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paraembed.data.sample.alignment import Alignment, align
from paraembed.data.sample.held_out import is_held_out, mix
from paraembed.data.sample.lexicon import BY_KIND, CONCEPTS, Pattern

BLOCK_LINES = 16_384
"""Pairs made at a time: bounds the memory (about 60 MB) whatever the size."""

_WORDS = np.array([word for concept in CONCEPTS for word in concept.words], dtype=object)
_NUM_TOKENS = np.array([len(word.split()) for word in _WORDS])
_FIRST_WORD = np.cumsum([0, *(len(concept.words) for concept in CONCEPTS)])


class Pairs(NamedTuple):
    """N pairs as columns; a tag is the left-hand side under which PPDB would list the pair."""

    tags: list[str]
    first: list[str]
    second: list[str]
    alignments: list[Alignment]


def draw_pairs(patterns: Sequence[Pattern], count: int, seed: Sequence[int]) -> Iterator[Pairs]:
    """Yield ``count`` pairs, a block at a time; in every block each pattern has its share.

    Raises:
        ValueError: the patterns give fewer pairs.
    """
    streams = [_Stream(pattern, [*seed, index]) for index, pattern in enumerate(patterns)]
    quotas = _quotas(streams, count)
    rng = np.random.default_rng(seed)
    num_blocks = math.ceil(count / BLOCK_LINES)
    for block in range(num_blocks):
        taken = [
            stream.take(quota * (block + 1) // num_blocks - quota * block // num_blocks)
            for stream, quota in zip(streams, quotas, strict=True)
        ]
        tags, first, second, alignments = (list(chain.from_iterable(parts)) for parts in zip(*taken, strict=True))
        order = rng.permutation(len(tags)).tolist()
        yield Pairs(*([column[place] for place in order] for column in (tags, first, second, alignments)))


class _Stream:
    """The pairs of one pattern until all are given out."""

    def __init__(self, pattern: Pattern, seed: Sequence[int]) -> None:
        self.pattern = pattern
        self.choices = [_choices(kind, ordered=slot == 0) for slot, kind in enumerate(pattern.slots)]
        self.bases = (*map(len, self.choices), len(pattern.variants), len(pattern.variants))
        self.size = math.prod(self.bases)
        self.room = int(self.size * 0.8) if pattern.core else self.size  # 1 in 8 is held out; 1 in 5 is the safe side
        self.half_bits = max(1, math.ceil(math.log2(self.size) / 2))
        self.keys = np.random.default_rng(seed).integers(2**63, size=4, dtype=np.uint64)
        self.done = 0  # this many numbers below 4 ** half_bits are walked through
        self.waiting = np.empty(0, dtype=np.int64)

    def take(self, count: int) -> Pairs:
        """The next ``count`` pairs."""
        numbers_N = self._numbers(count)
        *digits, way_N, other_way_N = np.unravel_index(numbers_N, self.bases, order="F")
        ways_2N = np.stack([way_N, other_way_N])
        words_2NS = np.stack([choice[digit, 1:].T for choice, digit in zip(self.choices, digits, strict=True)], axis=-1)
        turned_N = mix(numbers_N.astype(np.uint64)) % np.uint64(2) == 1
        ways_2N[:, turned_N] = ways_2N[::-1, turned_N]
        words_2NS[:, turned_N] = words_2NS[::-1, turned_N]
        first, second = (
            list(map(str.format, [self.pattern.variants[way] for way in ways], *words))
            for ways, words in zip(ways_2N.tolist(), _WORDS[np.swapaxes(words_2NS, 1, 2)].tolist(), strict=True)
        )
        return Pairs([self.pattern.tag] * count, first, second, self._alignments(ways_2N, words_2NS))

    def _alignments(self, ways_2N: npt.NDArray[np.int64], words_2NS: npt.NDArray[np.int64]) -> list[Alignment]:
        """Align each pair; pairs of the same templates and phrase lengths share one alignment."""
        lengths_2NS = _NUM_TOKENS[words_2NS]
        columns = [*ways_2N, *np.concatenate(lengths_2NS, axis=-1).T]
        keys_N = np.ravel_multi_index(columns, [4] * len(columns))  # at most 3 ways and 3 tokens
        _, rows, place_N = np.unique(keys_N, return_index=True, return_inverse=True)
        found = [
            align(
                *(self.pattern.variants[way] for way in ways_2N[:, row]),
                *map(tuple, lengths_2NS[:, row].tolist()),
            )
            for row in rows
        ]
        return [found[place] for place in place_N.tolist()]

    def _numbers(self, count: int) -> npt.NDArray[np.int64]:
        end = 4**self.half_bits
        while (missing := count - len(self.waiting)) > 0:
            assert self.done < end, "asked for more pairs than there is room for"
            stop = min(end, self.done + missing * end * 5 // (self.size * 4) + 64)
            numbers = self._permuted(np.arange(self.done, stop, dtype=np.uint64))
            numbers_N = numbers[numbers < self.size].astype(np.int64)
            self.done = stop
            if self.pattern.core:
                digits = np.unravel_index(numbers_N, self.bases, order="F")[: self.pattern.core]
                core = [choice[digit, 0] for choice, digit in zip(self.choices, digits, strict=False)]
                numbers_N = numbers_N[~is_held_out(np.stack(core, axis=-1))]
            self.waiting = np.concatenate([self.waiting, numbers_N])
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def _permuted(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """A Feistel network with 4 rounds: a permutation of the numbers below 4 ** half_bits."""
        bits = np.uint64(self.half_bits)
        mask = (np.uint64(1) << bits) - np.uint64(1)
        left, right = numbers >> bits, numbers & mask
        for key in self.keys:
            left, right = right, left ^ (mix(right ^ key) & mask)
        return (left << bits) | right


def _choices(kind: str, *, ordered: bool) -> npt.NDArray[np.int64]:
    """All (concept, a word for it, a word for it) of a word class, [P, 3].

    With ``ordered``, only those whose first word comes before the second. Taken for the first slot, that leaves exactly
    one of a pair and its swap.
    """
    rows = [
        (concept, first, second)
        for concept in BY_KIND[kind]
        for first in range(_FIRST_WORD[concept], _FIRST_WORD[concept + 1])
        for second in range(_FIRST_WORD[concept], _FIRST_WORD[concept + 1])
        if first < second or not ordered
    ]
    return np.array(rows, dtype=np.int64)


def _quotas(streams: Sequence[_Stream], count: int) -> list[int]:
    """Share ``count`` out by the patterns' shares; what a small pattern has no room for goes to the others."""
    room = sum(stream.room for stream in streams)
    if count > room:
        raise ValueError(f"{count:,} is more than the {room:,} different pairs the lexicon gives; ask for fewer lines")
    quotas = [0] * len(streams)
    while (left := count - sum(quotas)) > 0:
        total = sum(one.pattern.share for one, quota in zip(streams, quotas, strict=True) if quota < one.room)
        for index, stream in enumerate(streams):
            wish = math.ceil(left * stream.pattern.share / total)
            quotas[index] += min(wish, stream.room - quotas[index], count - sum(quotas))
    return quotas
