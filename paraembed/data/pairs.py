"""Pair files of any format → pairs, block by block; what is refused is named, never dropped silently."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from paraembed.data.delimited import Role, read_csv, read_tsv, say_the_pair
from paraembed.data.lines import read_lines
from paraembed.data.parsed import Block
from paraembed.data.ppdb import looks_like_ppdb, parse_ppdb

Format = Literal["auto", "ppdb", "tsv", "csv"]


def read_pairs(path: Path, form: Format = "auto", columns: Sequence[Role] = ()) -> Iterator[Block]:
    """Read a pair file.

    Args:
        path: the file, plain or ``.gz``.
        form: its format; ``auto`` decides by the name (``.csv``) and the first line.
        columns: what the columns of a TSV or CSV file are, in order; empty: by the names in its first row, else two
            columns, first and second.

    Yields:
        Blocks in the file's order; every line or row of the file is in one of them, the header excepted.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: empty or binary file, broken gzip, no known format, columns that are not said.
    """
    if columns and not say_the_pair(columns):
        raise ValueError(f"columns are {', '.join(columns)}; they must name first and second once each, no tree twice")
    blocks = read_lines(path)
    head = next(blocks)
    line = next((text for text in head.text.slice(0, 100).to_pylist() if text and text.strip()), "")
    form = detect_format(path, line) if form == "auto" else form
    if form == "csv":
        yield from read_csv(path, columns)
    elif form == "tsv":
        yield from read_tsv(path, itertools.chain([head], blocks), columns)
    else:
        for block in itertools.chain([head], blocks):
            yield Block("ppdb", block.first, block.raw, parse_ppdb(block.text))


def detect_format(path: Path, line: str) -> Literal["ppdb", "tsv", "csv"]:
    """The format of a file, by its name and its first line that is not empty.

    Raises:
        ValueError: none that is known.
    """
    if looks_like_ppdb(line):
        return "ppdb"
    if ".csv" in path.suffixes:
        return "csv"
    if "\t" in line:
        return "tsv"
    raise ValueError(
        f"{path} begins with {line[:60]!r}: neither a PPDB line nor columns with a tab between; "
        "give --format ppdb, tsv or csv"
    )
