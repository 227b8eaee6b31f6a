"""Arrow schemas: the contracts between the jobs."""

from collections.abc import Sequence

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
"""One row a pair: a pair shard, as jobs/shard.py writes and jobs/train.py reads. Older shards have no trees."""


def embeddings_schema(
    id_field: pa.Field, kept_fields: Sequence[pa.Field], width: int, dtype: str = "float32"
) -> pa.Schema:
    """One row a text: an embeddings file, as jobs/embed.py writes.

    Args:
        id_field: what identifies a row.
        kept_fields: columns carried from the input.
        width: length d of a vector.
        dtype: ``float32``, ``float16``, or ``int8``, which brings a column ``scale``: vector = scale · embedding.
    """
    number = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[dtype]
    scale = [pa.field("scale", pa.float32(), nullable=False)] if dtype == "int8" else []
    return pa.schema(
        [
            id_field,
            *kept_fields,
            pa.field("embedding", pa.list_(number, width), nullable=False),  # zeros for a text without tokens
            *scale,
            pa.field("n_tokens", pa.int32(), nullable=False),
            pa.field("n_unknown", pa.int32(), nullable=False),  # tokens that are not in the vocabulary
        ]
    )
