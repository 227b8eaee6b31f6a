"""Two files whose lines belong together, as SimpWiki is distributed: line i of both makes a pair.

A line may begin with columns (SimpWiki 2.0: article, paragraph); the text is what stands behind its last tab.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.data.lines import Lines, read_lines
from paraembed.data.parsed import Block, ParsedPairs, TextRows, is_blank, refuse
from paraembed.files import Place


def read_aligned(first: Place, second: Place, limits: ReadLimits = DEFAULT_LIMITS) -> Iterator[Block]:
    """Pairs of the lines of two files.

    Raises:
        OSError, ValueError: as ``read_lines``; or one file has more lines.
    """
    sides = [read_lines(place, limits=limits) for place in (first, second)]
    held: list[pa.Table | None] = [None, None]
    row = 0
    while True:
        for number, side in enumerate(sides):
            if not held[number] and (lines := next(side, None)) is not None:
                held[number] = _texts(lines)
        one, other = held
        if not one or not other:
            break
        size = min(len(one), len(other))
        yield _block(row, one.slice(0, size).combine_chunks(), other.slice(0, size).combine_chunks())
        row += size
        held = [one.slice(size), other.slice(size)]
    if one or other:
        longer, shorter = (first, second) if one else (second, first)
        raise ValueError(f"{shorter} has {row:,} lines, {longer} has more; aligned files have a line for each line")


def _texts(lines: Lines) -> pa.Table:
    """Columns text [n], and refused [n]."""
    refused = refuse(lines.tests())
    text = pc.replace_substring_regex(pc.fill_null(lines.text, ""), r"^.*\t", "")
    return pa.table({"text": text, "refused": refused})


def _block(row: int, one: pa.Table, other: pa.Table) -> Block:
    first, second = (table["text"].combine_chunks() for table in (one, other))
    empty = refuse([(pc.and_(is_blank(first), is_blank(second)), "empty line")])
    refused = pc.coalesce(*(table["refused"].combine_chunks() for table in (one, other)), empty)
    none = pa.nulls(len(one), pa.string())
    pairs = ParsedPairs(first, second, pa.nulls(len(one), pa.float32()), none, none, none, refused)
    return Block("aligned", row, TextRows(first, second), pairs)
