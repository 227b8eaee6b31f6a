"""The line formats of PPDB 1.0 and 2.0, filled with generated pairs, and lines that are spoilt on purpose."""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from paraembed.data.sample.alignment import Alignment
from paraembed.data.sample.features import POOL_SIZE, Values, draw_values, number
from paraembed.data.sample.lexicon import PATTERNS
from paraembed.data.sample.phrases import draw_pairs

BROKEN_KINDS = ("truncated", "empty side", "not UTF-8", "identical sides", "repeated", "swapped")
"""What ``broken`` puts into the lines, in turn."""


def ppdb_lines(version: str, count: int, seed: int, broken: float) -> Iterator[str]:
    """Yield the lines of a file in blocks, by falling score; both versions have the same pairs.

    Args:
        version: ``1.0`` or ``2.0``.
        count: of lines.
        seed: of every draw.
        broken: share of the lines to spoil, at most 1/2.
    """
    line = _VERSIONS[version]
    pool = draw_values(seed)
    rng = np.random.default_rng([seed, 3])
    done = 0
    for pairs in draw_pairs(PATTERNS, count, [seed, 0]):
        size = len(pairs.tags)
        rank = np.arange(done, done + size) / count
        # A quarter of the place in the pool is chance, the rest is the rank, so that relations get worse down the file.
        rows = ((0.75 * rank + 0.25 * rng.random(size)) * POOL_SIZE).astype(np.int64).tolist()
        others = rng.integers(POOL_SIZE, size=size).tolist()
        scores = (4.7 - 3.7 * rank**0.7).tolist()
        lines = [
            line(tag, first, second, alignment, score, pool[row], pool[other])
            for tag, first, second, alignment, score, row, other in zip(*pairs, scores, rows, others, strict=True)
        ]
        if broken:
            _spoil(lines, done, broken)
        done += len(lines)
        yield "\n".join([*lines, ""])
        del lines  # 15 MB, before the next ones are made


def _line_1(tag: str, first: str, second: str, links: Alignment, _score: float, one: Values, other: Values) -> str:
    words, other_words = first.count(" ") + 1, second.count(" ") + 1
    chars, lengths = _lengths(len(first), len(second), words, other_words)
    return (
        f"{tag} ||| {first} ||| {second} ||| Abstract=0 Adjacent=0 {chars} {one.contains_1} "
        f"Monotonic={links.monotonic} {one.penalties_1} SourceWords={words} TargetTerminalsButNoSource=0 "
        f"TargetWords={other_words} UnalignedSource={links.unaligned_source} "
        f"UnalignedTarget={links.unaligned_target} {lengths} {other.costs_1} ||| {links.links}"
    )


def _line_2(tag: str, first: str, second: str, links: Alignment, score: float, one: Values, other: Values) -> str:
    words, other_words = first.count(" ") + 1, second.count(" ") + 1
    chars, lengths = _lengths(len(first), len(second), words, other_words)
    return (
        f"{tag} ||| {first} ||| {second} ||| PPDB2.0Score={score:.5f} {other.scores_2} {chars} {one.contains_2} "
        f"Monotonic={links.monotonic} {one.relations_2} SourceWords={words} {one.target_2} "
        f"TargetWords={other_words} UnalignedSource={links.unaligned_source} "
        f"UnalignedTarget={links.unaligned_target} {lengths} ||| {links.links} ||| {one.relation_2}"
    )


@lru_cache(maxsize=1 << 16)  # far fewer different ones than lines
def _lengths(chars: int, other_chars: int, words: int, other_words: int) -> tuple[str, str]:
    """``CharCountDiff … CharLogCR`` and ``WordCountDiff … WordLogCR``."""
    longer = (other_chars + 1) / other_words - (chars + 1) / words  # the spaces cancel out of mean word lengths
    return (
        f"CharCountDiff={other_chars - chars} CharLogCR={number(math.log(other_chars / chars))}",
        f"WordCountDiff={other_words - words} WordLenDiff={number(longer)} "
        f"WordLogCR={number(math.log(other_words / words))}",
    )


_VERSIONS = {"1.0": _line_1, "2.0": _line_2}


def _spoil(lines: list[str], start: int, share: float) -> None:
    """Spoil every (1 / share)-th line of the file in place, in the ways of ``BROKEN_KINDS`` in turn."""
    for row in range(len(lines)):
        spoilt = int((start + row) * share)  # lines before this one
        if int((start + row + 1) * share) == spoilt:
            continue
        fields = lines[row].split(" ||| ")
        # A neighbour is never spoilt itself, as share is at most 1/2.
        neighbour = (lines[row - 1] if row else lines[min(1, len(lines) - 1)]).split(" ||| ")
        match BROKEN_KINDS[spoilt % len(BROKEN_KINDS)]:
            case "truncated":
                fields = fields[:2]
            case "empty side":
                fields[2] = ""
            case "not UTF-8":
                fields[1] += "\udcff"  # written as the byte FF
            case "identical sides":
                fields[2] = fields[1]
            case "repeated":
                fields = neighbour
            case "swapped":
                tag, first, second, features, links, *relation = neighbour
                links = " ".join("-".join(reversed(link.split("-"))) for link in links.split())
                fields = [tag, second, first, features, links, *relation]
        lines[row] = " ||| ".join(fields)
