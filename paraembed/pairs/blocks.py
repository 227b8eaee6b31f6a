"""Parsed rows of a pair file: pairs, or the reason why a row is rejected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.pairs.settings import Role


@dataclass(frozen=True)
class ParsedPairs:
    """n parsed rows; the texts are not tokenized yet."""

    first: pa.StringArray  # string array [n]
    second: pa.StringArray  # string array [n]
    score: pa.FloatArray  # float32 array [n], null if missing
    relation: pa.StringArray  # string array [n], null if missing
    first_tree: pa.StringArray  # string array [n], null if missing
    second_tree: pa.StringArray  # string array [n], null if missing
    refused: pa.StringArray  # string array [n], reason to reject the row; null for a pair
    extra: dict[str, pa.Array] = field(default_factory=dict)  # further columns [n] by name, such as features of PPDB


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file."""

    form: str  # format of the file: ppdb, tsv, csv, words, aligned, parquet or jsonl
    first_row: int  # number of the first row in the file, from 0
    raw: Callable[[int], bytes]  # returns an original row, to show it if it is rejected
    pairs: ParsedPairs
    # Int64 [n], number of the line of each row, from 0; None if every row is one line.
    lines: npt.NDArray[np.int64] | None = None
    # Role → name of the column, or its number if the file has no header.
    columns: Mapping[str, str] = field(default_factory=dict)
    sizes: Sequence[int] = ()  # numbers of rows of the blocks that were joined to this one; default: it is one

    def __len__(self) -> int:
        return len(self.pairs.refused)

    def line_of(self, row: int) -> int:
        """Return the line number of a row, from 1."""
        return 1 + (self.first_row + row if self.lines is None else int(self.lines[row]))


def joined_cells(*columns: pa.StringArray) -> Callable[[int], bytes]:
    """Return a function of the row number that joins the cells of string columns [n], perhaps not UTF-8, by tabs."""
    binary = [column.cast(pa.binary()) for column in columns]
    return lambda row: b"\t".join(column[row].as_py() or b"" for column in binary)


def refuse(tests: Sequence[tuple[pa.BooleanArray, str]]) -> pa.StringArray:
    """Return the reason of the first test [n] that is true or null; null if all tests are false."""
    reason = pa.nulls(len(tests[0][0]), pa.string())
    for failed, name in reversed(tests):
        if failed.null_count or failed.true_count:  # most tests fail in no row of a block
            reason = pc.if_else(pc.fill_null(failed, True), name, reason)
    return reason


def is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    """Return whether each text [n] consists of white space only."""
    return pc.equal(pc.binary_length(pc.utf8_trim_whitespace(texts)), 0)


def filled(texts: pa.StringArray) -> pa.StringArray:
    """Return texts [n] without white space at the ends; null for empty texts."""
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(pc.binary_length(trimmed), 0), pa.scalar(None, pa.string()), trimmed)


def assemble(cells: Mapping[Role, pa.StringArray], tests: Sequence[tuple[pa.BooleanArray, str]]) -> ParsedPairs:
    """Assemble parsed rows [n] from cells [n], empty or null if missing.

    The tests that reject a row are applied before those for missing texts and wrong scores.
    """
    tests = [*tests, (pc.or_(pc.is_null(cells["first"]), pc.is_null(cells["second"])), "too few fields")]
    cells = {role: pc.fill_null(column, "") for role, column in cells.items()}
    none = pa.nulls(len(cells["first"]), pa.string())
    score = none.cast(pa.float32())
    if "score" in cells:
        trimmed = pc.utf8_trim_whitespace(cells["score"])
        score = numbers_of(trimmed)
        tests.append((pc.and_(pc.is_null(score), pc.not_equal(trimmed, "")), "score is no number"))
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


def numbers_of(cells: pa.StringArray) -> pa.FloatArray:
    """Parse cells [n] such as ``-0.5`` or ``1e-3`` as numbers; null if a cell is no number or not finite."""
    is_number = pc.match_substring_regex(cells, r"^[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$")
    if is_number.false_count:  # in PPDB, all scores are numbers
        cells = pc.if_else(is_number, cells, pa.scalar(None, pa.string()))
    numbers = cells.cast(pa.float32())
    return pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float32()))
