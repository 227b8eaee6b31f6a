"""Schema of pair shards."""

import pyarrow as pa

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
