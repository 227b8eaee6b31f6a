"""Generated pairs of phrases with one meaning, and the lines of the PPDB formats that hold them.

A pair of a pattern is a number: its digits say which concept and which two of its words fill each slot, and which two
templates hold them. The numbers are walked through in a keyed permutation, so none comes twice and none is remembered.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paraembed.pairs.sample_lexicon import CONCEPTS, PATTERNS, Pattern

BLOCK_LINES = 16_384  # pairs made at a time: bounds the memory (about 60 MB) whatever the size
_WORDS = np.array([word for concept in CONCEPTS for word in concept.words], dtype=object)
_NUM_TOKENS = np.array([len(word.split()) for word in _WORDS])
_FIRST_WORD = np.cumsum([0, *(len(concept.words) for concept in CONCEPTS)]).tolist()
_POOL_SIZE = 4_096  # different draws of features
_RELATIONS = ["Equivalence", "ForwardEntailment", "ReverseEntailment", "OtherRelated", "Independent", "Exclusion"]
# The features of a line in their order, besides PPDB2.0Score. One of the two entailments is left out of each line.
_FEATURES = {
    "1.0": "Abstract Adjacent CharCountDiff CharLogCR ContainsX GlueRule Identity Lex(e|f) Lex(f|e) Lexical LogCount "
    "Monotonic PhrasePenalty RarityPenalty SourceTerminalsButNoTarget SourceWords TargetTerminalsButNoSource "
    "TargetWords UnalignedSource UnalignedTarget WordCountDiff WordLenDiff WordLogCR p(LHS|e) p(LHS|f) p(e|LHS) p(e|f) "
    "p(e|f,LHS) p(f|LHS) p(f|e) p(f|e,LHS) AGigaSim GoogleNgramSim",
    "2.0": "PPDB1.0Score -logp(LHS|e1) -logp(LHS|e2) -logp(e1|LHS) -logp(e1|e2) -logp(e1|e2,LHS) -logp(e2|LHS) "
    "-logp(e2|e1) -logp(e2|e1,LHS) AGigaSim Abstract Adjacent CharCountDiff CharLogCR ContainsX Equivalence Exclusion "
    "GlueRule GoogleNgramSim Identity Independent Lex(e1|e2) Lex(e2|e1) Lexical LogCount MVLSASim Monotonic "
    "OtherRelated PhrasePenalty RarityPenalty ForwardEntailment ReverseEntailment SourceTerminalsButNoTarget "
    "SourceWords TargetComplexity TargetFormality TargetTerminalsButNoSource TargetWords UnalignedSource "
    "UnalignedTarget WordCountDiff WordLenDiff WordLogCR",
}


class Pair(NamedTuple):
    """Pair, its left-hand side in PPDB, and the links ``0-0 1-1 …`` between its tokens."""

    tag: str
    first: str
    second: str
    links: str


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    from paraembed.pairs.hashing import mixed  # noqa: PLC0415 - compiled: its imports take a second

    return mixed(numbers)


def is_held_out(concepts_N3: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which combinations of three concepts, in any order, are held out, bool [N]: one in eight, by hash."""
    return np.asarray(_mixed(_mixed(concepts_N3.astype(np.uint64)).sum(axis=-1, dtype=np.uint64)) % np.uint64(8) == 0)


def draw_pairs(patterns: Sequence[Pattern], count: int, seed: Sequence[int]) -> Iterator[list[Pair]]:
    """Yield ``count`` different pairs in random order, in blocks; each pattern has its share of every block."""
    streams = [_Stream(pattern, [*seed, index]) for index, pattern in enumerate(patterns)]
    total = sum(pattern.share for pattern in patterns)
    quotas = [min(stream.room, count * stream.pattern.share // total) for stream in streams]
    largest = int(np.argmax([stream.room for stream in streams]))
    quotas[largest] += count - sum(quotas)
    if quotas[largest] > streams[largest].room:
        raise ValueError(f"{count:,} is more than the lexicon's number of different pairs; give fewer lines")
    rng = np.random.default_rng(seed)
    num_blocks = math.ceil(count / BLOCK_LINES)
    for block in range(num_blocks):
        sizes = [quota * (block + 1) // num_blocks - quota * block // num_blocks for quota in quotas]
        pairs = [pair for stream, size in zip(streams, sizes, strict=True) for pair in stream.take(size)]
        yield [pairs[place] for place in rng.permutation(len(pairs)).tolist()]


class _Stream:
    """Distinct pairs of one pattern, without combinations that are held out for testing."""

    def __init__(self, pattern: Pattern, seed: Sequence[int]) -> None:
        self.pattern = pattern
        # In the first slot only words in order: that leaves one of a pair and its swap.
        self.choices = [_choices(kind, ordered=slot == 0) for slot, kind in enumerate(pattern.slots)]
        self.bases = (*map(len, self.choices), len(pattern.templates), len(pattern.templates))
        self.size = math.prod(self.bases)
        self.room = int(self.size * 0.8) if pattern.tag == "[S]" else self.size  # 1 in 8 is held out
        self.numbers = self._numbers(np.random.default_rng(seed).integers(2**63, size=4, dtype=np.uint64))

    def take(self, count: int) -> list[Pair]:
        """Return the next ``count`` pairs."""
        numbers_N = np.fromiter(islice(self.numbers, count), np.int64, count)
        *digits, way_N, other_way_N = np.unravel_index(numbers_N, self.bases, order="F")
        ways_2N = np.stack([way_N, other_way_N])
        words_2NS = np.stack([choice[digit, 1:].T for choice, digit in zip(self.choices, digits, strict=True)], axis=-1)
        turned_N = _mixed(numbers_N.astype(np.uint64)) % np.uint64(2) == 1
        ways_2N[:, turned_N], words_2NS[:, turned_N] = ways_2N[::-1, turned_N], words_2NS[::-1, turned_N]
        ways = [[self.pattern.templates[way] for way in ways_N] for ways_N in ways_2N.tolist()]
        first, second = (map(str.format, ways[side], *_WORDS[words_2NS[side]].T) for side in (0, 1))
        lengths = (map(tuple, sides.tolist()) for sides in _NUM_TOKENS[words_2NS])
        return list(map(Pair, [self.pattern.tag] * count, first, second, map(_align, *ways, *lengths)))

    def _numbers(self, keys: npt.NDArray[np.uint64]) -> Iterator[int]:
        """Return the numbers of the pairs, permuted by a Feistel network with 4 rounds."""
        half_bits = max(1, math.ceil(math.log2(self.size) / 2))
        bits, mask = np.uint64(half_bits), np.uint64(2**half_bits - 1)
        for start in range(0, 4**half_bits, BLOCK_LINES):
            numbers = np.arange(start, min(start + BLOCK_LINES, 4**half_bits), dtype=np.uint64)
            left, right = numbers >> bits, numbers & mask
            for key in keys:
                left, right = right, left ^ (_mixed(right ^ key) & mask)
            numbers_N = ((left << bits) | right).astype(np.int64)
            numbers_N = numbers_N[numbers_N < self.size]
            if self.pattern.tag == "[S]":
                digits = np.unravel_index(numbers_N, self.bases, order="F")
                concepts = [choice[digit, 0] for choice, digit in zip(self.choices[:3], digits, strict=False)]
                numbers_N = numbers_N[~is_held_out(np.stack(concepts, axis=-1))]
            yield from numbers_N.tolist()


def _choices(kind: str, *, ordered: bool) -> npt.NDArray[np.int64]:
    """Return all (concept, synonym, synonym) of a word class, [P, 3]; ``ordered``: only synonyms in ascending order."""
    numbers = [number for number, concept in enumerate(CONCEPTS) if concept.kind == kind]
    words = {number: range(_FIRST_WORD[number], _FIRST_WORD[number + 1]) for number in numbers}
    rows = [(number, a, b) for number, own in words.items() for a in own for b in own if a < b or not ordered]
    return np.array(rows, dtype=np.int64)


@lru_cache(maxsize=1 << 16)  # a sample has far fewer different alignments than lines
def _align(first: str, second: str, lengths: Sequence[int], other_lengths: Sequence[int]) -> str:
    """Return links from the tokens of each slot of a template to those of the same slot of another."""
    slots, others = (
        [piece for piece in template.split() for _ in range(widths[int(piece[1])] if piece[0] == "{" else 1)]
        for template, widths in ((first, lengths), (second, other_lengths))
    )
    links = [
        (i, j) for i, slot in enumerate(slots) for j, other in enumerate(others) if slot == other and slot[0] == "{"
    ]
    return " ".join(f"{start}-{end}" for start, end in links)


def ppdb_lines(version: str, count: int, seed: int, broken: float) -> Iterator[str]:
    """Yield the lines of a file in blocks, by falling score; versions 1.0 and 2.0 have the same pairs."""
    rng = np.random.default_rng([seed, 2])
    pool = [_draw_features(rng, version) for _ in range(_POOL_SIZE)]
    done = 0
    for pairs in draw_pairs(PATTERNS, count, [seed, 0]):
        rank = np.arange(done, done + len(pairs)) / count
        scores = (4.7 - 3.7 * rank**0.7).tolist()
        features = rng.integers(_POOL_SIZE, size=len(pairs)).tolist()
        # Relations get worse down the file: a quarter of the place among them is chance, the rest is the rank.
        places = ((0.75 * rank + 0.25 * rng.random(len(pairs))) * len(_RELATIONS)).astype(np.int64).tolist()
        lines = []
        for (tag, first, second, links), score, draw, place in zip(pairs, scores, features, places, strict=True):
            runs = (f"PPDB2.0Score={score:.5f} ", f" ||| {_RELATIONS[place]}") if version == "2.0" else ("", "")
            lines.append(f"{tag} ||| {first} ||| {second} ||| {runs[0]}{pool[draw]} ||| {links}{runs[1]}")
        for row in range(len(lines)):
            spoilt = int((done + row) * broken)  # lines before this one
            if int((done + row + 1) * broken) > spoilt:  # its neighbor is not, as the fraction is at most 1/2
                lines[row] = _spoil(lines[row], lines[row - 1 if row else min(1, len(lines) - 1)], spoilt)
        done += len(lines)
        yield "\n".join([*lines, ""])


def _draw_features(rng: np.random.Generator, version: str) -> str:
    """Draw features: random numbers under the names of PPDB, not in their distributions."""
    left_out = rng.choice(["ForwardEntailment", "ReverseEntailment"])
    names = [name for name in _FEATURES[version].split() if name != left_out]
    values = [f"{value:.5f}" if value > 0 else "0" for value in rng.uniform(-4, 13, size=len(names)).tolist()]
    features = dict(zip(names, values, strict=True))
    if "MVLSASim" in features and rng.random() < 0.6:
        features["MVLSASim"] = "NA"
    return " ".join(f"{name}={value}" for name, value in features.items())


def _spoil(line: str, neighbor: str, kind: int) -> str:
    """Return the fields of a line, spoiled in one of six ways."""
    tag, first, second, *rest = line.split(" ||| ")
    other_tag, other_first, other_second, *other_rest = neighbor.split(" ||| ")
    ways = [
        [tag, first],
        [tag, first, "", *rest],
        [tag, f"{first}\udcff", second, *rest],  # written as the byte FF, which is not UTF-8
        [tag, first, first, *rest],
        [other_tag, other_first, other_second, *other_rest],  # a duplicate
        [other_tag, other_second, other_first, *other_rest],  # the pair swapped
    ]
    return " ||| ".join(ways[kind % len(ways)])
