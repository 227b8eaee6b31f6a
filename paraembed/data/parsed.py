"""Rows of a pair file once they are parsed: pairs, or the reason why a row is none."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


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
    """

    first: pa.StringArray
    second: pa.StringArray
    score: pa.FloatArray
    relation: pa.StringArray
    first_tree: pa.StringArray
    second_tree: pa.StringArray
    refused: pa.StringArray


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        form: format of the file: ppdb, tsv or csv.
        first_row: number of the first row (line) in the file, from 0.
        raw: binary array [n], the rows as they came, to show what was refused.
        pairs: the rows, parsed.
    """

    form: str
    first_row: int
    raw: pa.BinaryArray
    pairs: ParsedPairs


def refuse(tests: Sequence[tuple[pa.BooleanArray, str]]) -> pa.StringArray:
    """The first reason whose test [n] is true, null where none is."""
    reason = pa.nulls(len(tests[0][0]), pa.string())
    for failed, name in reversed(tests):
        reason = pc.if_else(pc.fill_null(failed, True), name, reason)
    return reason
