"""Pair files of any format → pairs, block by block; what is refused is named, never dropped silently."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.inflate import Span, cut_at_lines, is_compressed
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.lines import TOO_LONG, Lines, read_lines
from paraembed.io.parquet import is_parquet
from paraembed.io.places import Place, name_of, require_file, size_of
from paraembed.pairs.delimited import Role, read_csv, read_tsv, say_the_pair
from paraembed.pairs.parsed import Block, Format, ParsedPairs, TextRows, is_blank, refuse
from paraembed.pairs.ppdb import looks_like_ppdb, parse_ppdb
from paraembed.pairs.settings import Format, Role
from paraembed.pairs.tables import read_jsonl, read_parquet

Source = Place | tuple[Place, Place]
"""One file; or two whose lines belong together, of format ``aligned``."""


_SPAN_BYTES = 256 << 20
_FEW_LINES = 100


@dataclass(frozen=True)
class Reading:
    """How pair files are read.

    Attributes:
        form: their format; ``auto`` decides by the name (``.csv``, ``.jsonl``), the first bytes and the first line.
        columns: what the columns of a TSV, CSV, Parquet or JSONL file are, in order; empty: by their names, else, in
            TSV or CSV without a header, two columns, first and second.
        features: features of PPDB that become columns.
        alignment: whether the alignment of PPDB becomes a column.
        non_terminals: whether rules of PPDB with non-terminals are pairs.
        no_header: the first row of TSV or CSV is a pair, whatever it looks like.
        limits: what is read of a file at most.
    """

    form: Format = "auto"
    columns: Sequence[Role] = ()
    features: Sequence[str] = ()
    alignment: bool = False
    non_terminals: bool = False
    no_header: bool = False
    limits: ReadLimits = DEFAULT_LIMITS


def sources_of(inputs: Sequence[Place], form: Format) -> list[Source]:
    """The inputs as sources: one each, two each where the format is ``aligned``.

    Raises:
        ValueError: aligned files that do not come in twos.
    """
    if form != "aligned":
        return list(inputs)
    if len(inputs) % 2:
        raise ValueError(f"{len(inputs)} inputs of format aligned; give two files that belong together, or more twos")
    return [(inputs[at], inputs[at + 1]) for at in range(0, len(inputs), 2)]


def spans_of(source: Source, form: str) -> list[Span] | list[None]:
    """The parts that a source is read in, side by side: of plain PPDB lines and TSV, spans of 256 MB; else the whole.

    A gzip stream has one beginning: whoever wants a later part inflates all before it. Inflating is a third of the
    work (0.9 of 2.7 µs a line of PPDB) and has a thread of its own, so several files fill several workers, and of one
    file the second worker would win little.
    """
    if isinstance(source, tuple) or form not in {"ppdb", "tsv"}:
        return [None]
    if size_of(source) <= _SPAN_BYTES or is_compressed(source):
        return [None]
    return cut_at_lines(source, _SPAN_BYTES)


def read_pairs(source: Source, reading: Reading = Reading(), span: Span | None = None) -> Iterator[Block]:
    """Read a pair file, plain or compressed (``paraembed.io.inflate.read_blocks``).

    Args:
        source: the file, or two aligned ones.
        reading: how.
        span: one of ``spans_of``, whose rows are numbered from its first; the whole source by default.

    Yields:
        Blocks in the file's order; every line or row of the file is in one of them, the header excepted.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: empty or binary file, broken compression, no known format, columns that are not said.
    """
    columns = reading.columns
    if columns and not say_the_pair(columns):
        raise ValueError(f"columns are {', '.join(columns)}; they must name first and second once each, no tree twice")
    if isinstance(source, tuple):
        yield from _read_aligned(*source, reading.limits)
        return
    place = source
    require_file(place)
    if reading.form == "parquet" or (reading.form == "auto" and is_parquet(place)):
        yield from read_parquet(place, columns, reading.limits)
        return
    blocks = read_lines(place, limits=reading.limits)
    head = next(blocks)
    line = next((text for text in head.text.slice(0, 100).to_pylist() if text and text.strip()), "")
    if not line and pc.any(head.too_long.slice(0, 100)).as_py() and reading.form == "auto":
        raise ValueError(
            f"{place}: its first lines are longer than `max_line_bytes`, {reading.limits.max_line_bytes:,} "
            "bytes; give a larger one, or say with `format` what the file is"
        )
    form = detect_format(place, line) if reading.form == "auto" else reading.form
    heads = [head, *itertools.islice(blocks, 1 if len(head) < _FEW_LINES else 0)]  # a last line may be a block
    lines = read_lines(place, span, reading.limits) if span else itertools.chain(heads, blocks)
    match form:
        case "csv":
            yield from read_csv(place, columns, reading.limits, no_header=reading.no_header)
        case "tsv":
            from_start = span is None or span[0] == 0
            yield from read_tsv(place, heads, lines, columns, from_start=from_start, no_header=reading.no_header)
        case "words":
            yield from _read_word_list(lines)
        case "jsonl":
            yield from read_jsonl(place, lines, columns)
        case _:
            for block in lines:
                pairs = parse_ppdb(
                    block, reading.features, alignment=reading.alignment, non_terminals=reading.non_terminals
                )
                yield Block("ppdb", block.first, block, pairs)


def detect_format(place: Place, line: str) -> Literal["ppdb", "tsv", "csv", "jsonl"]:
    """The format of a file, by its name and its first line that is not empty.

    Raises:
        ValueError: none that is known.
    """
    if looks_like_ppdb(line):
        return "ppdb"
    name = name_of(place).lower()
    if ".jsonl" in name or ".ndjson" in name:
        return "jsonl"
    if ".csv" in name:
        return "csv"
    if "\t" in line:
        return "tsv"
    raise ValueError(
        f"{place} begins with {line[:60]!r}: neither a PPDB line nor columns with a tab between; "
        "give `format` ppdb, tsv, csv, or words for a word and its paraphrases on each line"
    )


def _read_word_list(blocks: Iterator[Lines]) -> Iterator[Block]:
    """Pairs of the first word of each line with each other word of it, as lists for retrofitting have them.

    A line of one word is refused, as is one that cannot be read; each counts as one row.
    """
    row = 0
    for lines in blocks:
        text = pc.fill_null(lines.text, "")
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text))
        offsets = words.offsets.to_numpy().astype(np.int64)
        counts = np.diff(offsets)
        num_rows = np.maximum(counts - 1, 1)
        line = np.repeat(np.arange(len(lines)), num_rows)
        place = np.arange(len(line)) - np.repeat(np.cumsum(num_rows) - num_rows, num_rows) + 1
        heads, flat = offsets[line], words.flatten()
        first = flat.take(pa.array(heads - offsets[0]))
        second = flat.take(pa.array(heads - offsets[0] + np.minimum(place, counts[line] - 1)))
        alone = pa.array(counts[line] < 2)
        tests = [(test.take(pa.array(line)), name) for test, name in (*lines.tests(), (is_blank(text), "empty line"))]
        none = pa.nulls(len(line), pa.string())
        refused = refuse([*tests, (alone, "too few fields")])
        score = pa.nulls(len(line), pa.float32())
        yield Block(
            "words", row, TextRows(first, second), ParsedPairs(first, second, score, none, none, none, refused),
            lines.first + line,
        )  # fmt: skip
        row += len(line)


def _read_aligned(first: Place, second: Place, limits: ReadLimits) -> Iterator[Block]:
    """Pairs of the lines of two files, as SimpWiki is distributed: line i of both makes a pair.

    A line may begin with columns (SimpWiki 2.0: article, paragraph); the text is what stands behind its last tab.
    """
    sides = [read_lines(place, limits=limits) for place in (first, second)]
    held: list[pa.Table | None] = [None, None]
    row = 0
    while True:
        for number, side in enumerate(sides):
            if not held[number] and (lines := next(side, None)) is not None:
                held[number] = _aligned_texts(lines)
        one, other = held
        if not one or not other:
            break
        size = min(len(one), len(other))
        yield _aligned_block(row, one.slice(0, size).combine_chunks(), other.slice(0, size).combine_chunks())
        row += size
        held = [one.slice(size), other.slice(size)]
    if one or other:
        longer, shorter = (first, second) if one else (second, first)
        raise ValueError(f"{shorter} has {row:,} lines, {longer} has more; aligned files have a line for each line")


def _aligned_texts(lines: Lines) -> pa.Table:
    """Columns text [n], and refused [n]."""
    refused = refuse(lines.tests())
    text = pc.replace_substring_regex(pc.fill_null(lines.text, ""), r"^.*\t", "")
    return pa.table({"text": text, "refused": refused})


def _aligned_block(row: int, one: pa.Table, other: pa.Table) -> Block:
    first, second = (table["text"].combine_chunks() for table in (one, other))
    empty = refuse([(pc.and_(is_blank(first), is_blank(second)), "empty line")])
    refused = pc.coalesce(*(table["refused"].combine_chunks() for table in (one, other)), empty)
    none = pa.nulls(len(one), pa.string())
    pairs = ParsedPairs(first, second, pa.nulls(len(one), pa.float32()), none, none, none, refused)
    return Block("aligned", row, TextRows(first, second), pairs)
