"""Rows of a pair file once they are parsed: pairs, or the reason why a row is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.pairs.settings import Role


@dataclass(frozen=True)
class ParsedPairs:
    """n lines or rows, parsed; the texts are as they came.

    Attributes:
        first: string array [n].
        second: string array [n].
        score: float32 array [n], null where there is none.
        relation: string array [n], null where there is none.
        first_tree: string array [n], null where there is none.
        second_tree: string array [n], null where there is none.
        refused: string array [n]: why the row is no pair; null where it is one.
        extra: further columns [n] by name, such as the features of PPDB that were asked for.
    """

    first: pa.StringArray
    second: pa.StringArray
    score: pa.FloatArray
    relation: pa.StringArray
    first_tree: pa.StringArray
    second_tree: pa.StringArray
    refused: pa.StringArray
    extra: dict[str, pa.Array] = field(default_factory=dict)


class Rows(Protocol):
    """n rows of a file, as bytes."""

    def __len__(self) -> int:
        """How many."""

    def __getitem__(self, row: int, /) -> bytes:
        """One of them."""


class TextRows:
    """Rows [n] that came as columns of texts, each column a string array [n], which need not be valid UTF-8."""

    def __init__(self, *columns: pa.StringArray) -> None:
        self._columns = [column.cast(pa.binary()) for column in columns]

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, row: int, /) -> bytes:
        return b"\t".join(column[row].as_py() or b"" for column in self._columns)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        form: format of the file: ppdb, tsv, csv, words, aligned, parquet or jsonl.
        first_row: number of the first row in the file, from 0.
        raw: the rows as they came, to show what was refused.
        pairs: the rows, parsed.
        lines: int64 [n], number of the line that each row comes from, from 0; None where the rows are the lines.
        columns: what was read as what: by role the name of a column, or its number where the file has no header.
    """

    form: str
    first_row: int
    raw: Rows
    pairs: ParsedPairs
    lines: npt.NDArray[np.int64] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def line_of(self, row: int) -> int:
        """The number of the line that a row comes from, from 1, for people."""
        return 1 + (self.first_row + row if self.lines is None else int(self.lines[row]))


def refuse(tests: Sequence[tuple[pa.BooleanArray, str]]) -> pa.StringArray:
    """The first reason whose test [n] is true (or null), null where none is."""
    reason = pa.nulls(len(tests[0][0]), pa.string())
    for failed, name in reversed(tests):
        if failed.null_count or failed.true_count:  # most tests fail in no row of a block
            reason = pc.if_else(pc.fill_null(failed, True), name, reason)
    return reason


def is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    """Texts [n] of white space alone."""
    return pc.equal(pc.binary_length(pc.utf8_trim_whitespace(texts)), 0)


def filled(texts: pa.StringArray) -> pa.StringArray:
    """Texts [n] without the white space around them, null for an empty one."""
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(pc.binary_length(trimmed), 0), pa.scalar(None, pa.string()), trimmed)


def contains_byte(texts: pa.StringArray, character: str) -> bool:
    """Whether an ASCII character stands in any of the texts; they are no slice of a larger array."""
    data = texts.buffers()[2]
    return data is not None and bool((np.frombuffer(data, np.uint8) == ord(character)).any())


def assemble(cells: Mapping[Role, pa.StringArray], tests: Sequence[tuple[pa.BooleanArray, str]]) -> ParsedPairs:
    """Rows [n] of cells, empty or null where there is none.

    Args:
        cells: columns [n].
        tests: what refuses a row, before a text that is null or a score that is no number does.
    """
    tests = [*tests, (pc.or_(pc.is_null(cells["first"]), pc.is_null(cells["second"])), "too few fields")]
    cells = {role: pc.fill_null(column, "") for role, column in cells.items()}
    none = pa.nulls(len(cells["first"]), pa.string())
    score = none.cast(pa.float32())
    if "score" in cells:
        score, wrong = _numbers(cells["score"])
        tests.append((wrong, "score is no number"))
    return ParsedPairs(
        first=cells["first"],
        second=cells["second"],
        score=score,
        relation=cells.get("relation", none),
        first_tree=filled(cells.get("first_tree", none)),
        second_tree=filled(cells.get("second_tree", none)),
        refused=refuse(tests),
        extra={name: cells[name] for name in ("first_pos", "second_pos", "alignment") if name in cells},
    )


def _numbers(cells: pa.StringArray) -> tuple[pa.FloatArray, pa.BooleanArray]:
    """Numbers of cells [n], null for an empty one, and where a cell is neither."""
    trimmed = pc.utf8_trim_whitespace(cells)
    number = pc.match_substring_regex(trimmed, r"^[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$")
    wrong = pc.and_not(pc.invert(number), pc.equal(trimmed, ""))
    values = pc.if_else(number, trimmed, pa.scalar(None, pa.string())).cast(pa.float32())
    return values, pc.or_(wrong, pc.fill_null(pc.invert(pc.is_finite(values)), False))
