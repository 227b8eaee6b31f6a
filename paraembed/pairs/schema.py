"""Schema of pair shards, and the report of an input."""

from dataclasses import dataclass, field
from typing import TypedDict

import pyarrow as pa

from paraembed.options import Count

PAIRS = pa.schema(
    [
        pa.field("first", pa.string(), nullable=False),  # tokens joined by one space, lower-case
        pa.field("second", pa.string(), nullable=False),
        pa.field("score", pa.float32()),  # null where the source has none
        pa.field("rank", pa.int64(), nullable=False),  # line or row number in the source, from 0
        pa.field("relation", pa.string()),  # entailment or label; null where the source has none
        pa.field("source", pa.string(), nullable=False),  # file name
        pa.field("first_tree", pa.string()),  # binary tree over the tokens (trees.py); null where the source has none
        pa.field("second_tree", pa.string()),
    ]
)
"""Schema of a pair shard, one row per pair; jobs/shard.py writes it, jobs/train.py reads it. Old shards lack trees."""


class Rejected(TypedDict):
    """Rejected row of an input."""

    file: str
    line: Count  # from 1
    reason: str
    text: str


@dataclass(frozen=True)
class SourceReport:
    """Report of one input file, or of a span of one."""

    read: Count  # number of rows, without a header
    parsed: Count  # number of pairs, before duplicates are removed
    refused: dict[str, Count]  # number of rejected rows by reason
    sample: list[Rejected] = field(default_factory=list)  # up to 100 for each reason
    groups: list[Count] = field(default_factory=list)  # rows of each row group of the parsed file or files
    lines: Count = 0  # number of lines; the ranks of the next span start at this number
    # Version of PPDB, ``1.0``, ``2.0`` (which adds the entailment) or ``mixed``; None for other formats.
    version: str | None = None
    labels: dict[str, Count] = field(default_factory=dict)  # number of rows of each label that is kept
