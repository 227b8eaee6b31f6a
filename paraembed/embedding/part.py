"""Embed one part: read its rows, encode them, write one Parquet file that appears whole or not at all."""

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding.columns import carried_fields, embeddings_schema
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.plan import Part, inputs_identity
from paraembed.embedding.rows import NO_MULTI_LINE, MultiLine, Rows, read_part
from paraembed.embedding.settings import Settings, check_dim
from paraembed.embedding.store import Store, write_json
from paraembed.embedding.vectors import finish
from paraembed.encoders import Encoder
from paraembed.io.fingerprint import digest_of
from paraembed.text.trees import TreeError

REPORTS, REJECTED = "_reports", "_rejected"
ROW_GROUP_BYTES = 32 << 20  # of vectors; a part is written a row group at a time
_SPOOLED_BYTES = 1 << 20  # of rejected rows, in memory


@dataclass(frozen=True)
class PartReport:
    """What was written for a part.

    Attributes:
        name: file name.
        rows: rows in it.
        n_tokens: tokens of all rows.
        n_unknown: those that are not in the vocabulary.
        n_cut: rows of more tokens than the encoder reads.
        n_without_tree: rows of three tokens or more without a tree, where the encoder reads trees.
        sha256: of the file.
        seconds: reading, encoding and writing.
        n_rejected: rows that could not be read; ``rows`` and these are the rows of the plan.
        rejected_sha256: of the file in ``_rejected`` that names them; empty where there is none.
        n_replaced: rows with bytes that were not UTF-8, which became U+FFFD.
        n_null_ids: rows whose id is null.
        null_id: where the first of them is, in words.
        n_clipped: rows with a number that float16 does not reach.
        stamp: of the file, where the store has such a thing; see ``Store``.
        size: of the file, in bytes.
        made_of: digest of everything that the file's bytes depend on; see ``made_of``.
        n_multi_line: rows of CSV with line breaks inside of their cells.
        n_line_breaks: line breaks inside of these; the lines of a CSV file are those of its header, the rows and
            rejected rows of its parts, and these.
        longest_lines: lines of the longest of these rows.
        longest_first: number of its first line in the input file, from 1.
    """

    name: str
    rows: int
    n_tokens: int
    n_unknown: int
    n_cut: int
    n_without_tree: int
    sha256: str
    seconds: float
    n_rejected: int = 0
    rejected_sha256: str = ""
    n_replaced: int = 0
    n_null_ids: int = 0
    null_id: str = ""
    n_clipped: int = 0
    stamp: str = ""
    size: int = -1
    made_of: str = ""
    n_multi_line: int = 0
    n_line_breaks: int = 0
    longest_lines: int = 0
    longest_first: int = 0


def made_of(encoder: str, tokenizer: str, source: InputFile, part: Part, settings: Settings) -> str:
    """Digest of everything that the bytes of a part depend on; ``encoder`` is its fingerprint."""
    return digest_of([encoder, tokenizer, inputs_identity((source,), settings), part.to_json(), asdict(settings)])


@dataclass
class _Found:
    """What the rows of a part come to: counts by the names of ``PartReport``, and the rejected rows as JSON lines."""

    rejected: IO[bytes]
    counts: Counter[str] = field(default_factory=Counter)
    null_id: str = ""
    multi_line: MultiLine = NO_MULTI_LINE


def rejected_name(part: str) -> str:
    """Where the rejected rows of a part are, in the output folder."""
    return f"{REJECTED}/{Path(part).stem}.jsonl"


def embed_part(
    encoder: Encoder,
    source: InputFile,
    part: Part,
    settings: Settings,
    store: Store,
    *,
    data: bytes | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> PartReport:
    """Embed a part into ``store`` and write its report beside it; the same bytes every time.

    Rows that cannot be read go to ``_rejected/<part>.jsonl``, as ``{"source", "row", "reason"}`` with the row counted
    from 0 in its file; those of CSV also with ``line``, the number of their one line, from 1. That file is there before
    the part, and the part before its report: a report means both.

    Memory, beside the encoder: what ``paraembed.embedding.rows`` says, tokens of a batch (about 10 times its text),
    12 · H bytes a row of a batch, and twice the 32 MB of a row group; nothing grows with the part. Measured with H =
    300, 19 words a text and batches of 32,768: 270 to 370 MB (152 MB of them Arrow's), between 0.2M and 0.6M rows a
    part 10 % apart as the allocators' reserves fill up, and no more after 1.8M rows.

    Args:
        encoder: makes the vectors, H numbers wide.
        source: the part's input file.
        part: which rows.
        settings: columns and sizes.
        store: the output; the report goes to its ``_reports``.
        data: the part's text, where ``source`` is a chain (see ``stream_parts``).
        row_group_bytes: bytes of vectors in a row group.

    Raises:
        ValueError: a tree that does not fit its text, a text that is too long, an input that is not what the plan says,
            ``settings.dim`` above H.
    """
    started = time.perf_counter()
    check_dim(settings, encoder.width)
    schema = _schema(encoder, source, settings)
    rejected_sha256, size = "", 0
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as rejected:
        found = _Found(rejected)

        def write(file: BinaryIO) -> None:
            group_rows = max(1024, row_group_bytes // (4 * encoder.width))
            with pq.ParquetWriter(file, schema, **layout(schema, settings)) as writer:
                rows = read_part(source, part, settings, data)
                for table in _tables(_batches(encoder, rows, schema, source, settings, found), group_rows):
                    writer.write_table(table, row_group_size=table.num_rows)
            nonlocal rejected_sha256, size
            size = file.tell()
            count = found.counts["rows"] + found.counts["n_rejected"]
            if count != part.rows:
                raise ValueError(f"{source.shown} changed: {part.name} has {count} rows of {part.rows}; start over")
            if found.counts["n_rejected"]:
                rejected_sha256 = _write_rejected(rejected, store, part.name)

        digest = store.write(part.name, write)
    counts = {name: found.counts[name] for name in PartReport.__annotations__ if name == "rows" or name[:2] == "n_"}
    seconds = round(time.perf_counter() - started, 3)
    report = PartReport(
        name=part.name,
        sha256=digest,
        seconds=seconds,
        rejected_sha256=rejected_sha256,
        null_id=found.null_id,
        longest_lines=found.multi_line.longest,
        longest_first=found.multi_line.line,
        stamp=store.stamp(part.name),
        size=size,
        made_of=made_of(encoder.fingerprint, encoder.tokenizer, source, part, settings),
        **counts,
    )
    write_json(store, f"{REPORTS}/{part.name}.json", asdict(report))
    return report


def _write_rejected(rejected: IO[bytes], store: Store, part: str) -> str:
    store.make_folder(REJECTED)
    rejected.seek(0)
    return store.write(rejected_name(part), lambda file: shutil.copyfileobj(rejected, file))


def embedded(
    encoder: Encoder, source: InputFile, part: Part, settings: Settings, *, data: bytes | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows that ``embed_part`` writes, at most ``settings.batch_size`` at a time; see there."""
    check_dim(settings, encoder.width)
    rows, schema = read_part(source, part, settings, data), _schema(encoder, source, settings)
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as rejected:
        yield from _batches(encoder, rows, schema, source, settings, _Found(rejected))


def _schema(encoder: Encoder, source: InputFile, settings: Settings) -> pa.Schema:
    id_field, *kept_fields = carried_fields([source], settings)
    return embeddings_schema(id_field, kept_fields, settings.dim or encoder.width, settings.dtype)


def _batches(
    encoder: Encoder, rows: Iterator[Rows], schema: pa.Schema, source: InputFile, settings: Settings, found: _Found
) -> Iterator[pa.RecordBatch]:
    """Rows of the output; what they hold is added to ``found``."""
    for some in rows:
        for rejected in some.rejected:
            values = {"source": source.name, "row": rejected.row, "reason": rejected.reason}
            values |= {} if rejected.line is None else {"line": rejected.line}
            found.rejected.write(f"{json.dumps(values, ensure_ascii=False)}\n".encode("utf-8", "replace"))
        try:
            made = encoder.embed(some.texts, max(1, len(some.texts)), some.trees)
        except TreeError as error:
            raise ValueError(f"{source.shown}, row {some.at[error.text] + 1}: {error.fault}") from None
        _check_finite(made.vectors[:, : settings.dim], some.at, source)
        finished = finish(made.vectors, settings)
        ids = some.carried[0]
        if ids.null_count and not found.null_id:
            found.null_id = f"{source.shown}, row {some.at[pc.index(ids.is_null(), True).as_py()] + 1}"
        found.counts.update(
            rows=len(some.texts),
            n_tokens=int(made.num_tokens.sum(dtype="int64")),
            n_unknown=int(made.num_unknown.sum(dtype="int64")),
            n_cut=made.num_cut,
            n_without_tree=made.num_without_tree,
            n_rejected=len(some.rejected),
            n_replaced=some.num_replaced,
            n_null_ids=ids.null_count,
            n_clipped=finished.num_clipped,
            n_multi_line=some.multi_line.rows,
            n_line_breaks=some.multi_line.breaks,
        )
        found.multi_line = found.multi_line.and_then(some.multi_line)
        counts = [pa.array(made.num_tokens), pa.array(made.num_unknown)]
        if len(some.texts):
            yield pa.RecordBatch.from_arrays([*some.carried, *finished.columns, *counts], schema=schema)


def _check_finite(vectors_NH: npt.NDArray[np.float32], at_N: npt.NDArray[np.int64], source: InputFile) -> None:
    """Raise ValueError for a vector with NaN or infinity; ``at_N`` are the rows' numbers in their file."""
    if not vectors_NH.size or (np.isfinite(vectors_NH.min()) and np.isfinite(vectors_NH.max())):
        return  # NaN is the least and the greatest; two passes without a copy
    row = at_N[np.flatnonzero(~np.isfinite(vectors_NH).all(axis=1))[0]]
    raise ValueError(
        f"{source.shown}, row {row + 1}: the encoder made a vector with NaN or infinity; use another encoder, or train "
        "this one again with a lower learning rate"
    )


def _tables(batches: Iterator[pa.RecordBatch], group_rows: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= group_rows:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def layout(schema: pa.Schema, settings: Settings) -> dict[str, Any]:
    """How the columns lie in the file: options of ``pyarrow.parquet.ParquetWriter``.

    Vectors with their bytes split by place (mantissa, exponent) take 16 % less than plain, 9 % less than zstd alone,
    at the speed of zstd alone (50k x 300 random normals). float16 lies plain: DuckDB 2.0 cannot read it split. int8 is
    stored as int32 in Parquet; a dictionary of its 255 values makes that a byte a number again.
    """
    others = [name for name in schema.names if name != "embedding"]
    numbers = ["embedding.list.element"]
    dictionary = [name for name in others if name not in {schema.names[0], "scale"}]
    return {
        "compression": settings.compression,
        "use_dictionary": dictionary + numbers if settings.dtype == "int8" else dictionary,
        "use_byte_stream_split": numbers if settings.dtype == "float32" else [],
        "write_statistics": others,
    }
