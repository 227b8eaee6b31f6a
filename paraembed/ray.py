"""Pairs and embeddings in pipelines of Ray Data: ``read_pairs`` and ``Embed``; importing this module imports Ray."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import ray.data

from paraembed.embedding.columns import finish, output_fields
from paraembed.embedding.settings import Settings, check_dim
from paraembed.encoders.protocol import check_finite, text_array
from paraembed.io.places import to_place
from paraembed.loading import open_encoder
from paraembed.pairs.formats import Reading, Source, spans_of
from paraembed.pairs.formats import read_pairs as read_blocks
from paraembed.pairs.schema import PAIRS
from paraembed.pairs.source_parts import read_heads
from paraembed.process import one_thread
from paraembed.settings import DEFAULT_INFERENCE, Inference
from paraembed.tracking.fetch import fetch_encoder

_READING, _SETTINGS = Reading(), Settings()
_Task = tuple[Source, str, tuple[int, int] | None]
_COLUMNS = pa.schema([PAIRS.field(name) for name in PAIRS.names if name != "rank"])


def read_pairs(paths: str | Path | Sequence[str | Path], reading: Reading = _READING) -> ray.data.Dataset:
    """Read pair files of every format that ``jobs/shard.py`` reads, a task for each file or 256 MB of plain lines.

    Rows that cannot be read are left out. Unlike ``shard``, it neither lowercases nor tokenizes the texts, filters
    pairs or removes duplicates.

    Args:
        paths: files or URIs; with the format ``aligned``, two files for each source.
        reading: format, columns, labels and limits.

    Returns:
        Dataset of Arrow blocks with the columns ``first``, ``second`` (string), ``score`` (float32, null if missing),
        ``relation`` (string, null if missing), ``source`` (string, name of the file), ``first_tree`` and
        ``second_tree`` (string, null if missing).

    Raises:
        OSError, ValueError: a file is missing, given twice, without rows, or its format is unknown. Errors behind the
            first rows are raised when the dataset is read.

    Example:
        >>> pairs = paraembed.ray.read_pairs(["pairs.tsv", "ppdb.gz"])
        >>> scored = pairs.filter(expr=ray.data.expressions.col("score") > 0.5)
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    sources = read_heads([to_place(str(path)) for path in given], reading)
    tasks = [(source.source, source.name, span) for source in sources for span in spans_of(source.source, source.form)]
    numbers = ray.data.from_items([*range(len(tasks))], override_num_blocks=len(tasks))
    return numbers.map_batches(partial(_pairs, tasks, reading), batch_size=1, batch_format="pyarrow")


def _pairs(tasks: Sequence[_Task], reading: Reading, numbers: pa.Table) -> Iterator[pa.Table]:
    """Yield the pairs of tasks, a table for each block of a file."""
    yield _COLUMNS.empty_table()
    for number in numbers["item"].to_pylist():
        source, name, span = tasks[number]
        for block in read_blocks(source, reading, span):
            known = {**vars(block.pairs), "source": pa.array([name] * len(block), pa.string())}
            table = pa.Table.from_arrays([known[field.name].cast(field.type) for field in _COLUMNS], _COLUMNS.names)
            yield table.filter(block.pairs.refused.is_null()).cast(_COLUMNS)


class Embed:
    """Class for ``Dataset.map_batches`` whose actors load an encoder once, and embed a column of each batch.

    Args:
        encoder: name of an encoder, as ``paraembed.load`` takes it; every actor must be able to open it.
        column: column of the texts; null counts as an empty text.
        inference: device, precision, prompt.
        settings: how to finish the vectors: its fields ``dtype``, ``normalize`` and ``dim``.

    Raises:
        OSError, ValueError: the encoder cannot be opened, or has fewer than ``settings.dim`` dimensions.

    Example:
        >>> texts = ray.data.read_parquet("texts.parquet")
        >>> embed = {"encoder": "small", "column": "text"}
        >>> texts.map_batches(paraembed.ray.Embed, fn_constructor_kwargs=embed, concurrency=2, batch_format="pyarrow")
    """

    def __init__(
        self,
        encoder: str,
        column: str = "text",
        *,
        inference: Inference = DEFAULT_INFERENCE,
        settings: Settings = _SETTINGS,
    ) -> None:
        self._encoder = open_encoder(str(encoder), inference, fetch_encoder)
        check_dim(settings, self._encoder.width)
        self._column, self._settings = column, settings

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Add the columns of jobs/embed.py to a table of n rows: ``embedding`` [n, H], for int8 ``scale`` float32 [n],
        and ``n_tokens`` and ``n_unknown``, int32 [n].

        Raises:
            ValueError: the column is missing, or one of the new ones exists; TypeError: it does not contain strings.
        """
        new = output_fields(self._settings.dtype)
        if self._column not in batch.column_names or (taken := {*new} & {*batch.column_names}):
            wrong = (
                f"no column {self._column!r}" if self._column not in batch.column_names else f"already {min(taken)!r}"
            )
            raise ValueError(f"the batch has {wrong}; its columns are {', '.join(batch.column_names)}")
        with one_thread():  # an actor has one CPU
            embedded = self._encoder.embed(text_array(batch[self._column], self._column))
        check_finite(embedded.vectors)
        vectors, _ = finish(embedded.vectors, self._settings)
        columns = [vectors[0], pa.array(embedded.num_tokens), pa.array(embedded.num_unknown), *vectors[1:]]
        for name, values in zip(new, columns, strict=True):
            batch = batch.append_column(name, values)
        return batch
