"""Embed parts in a worker process: read the rows of a part, encode them, and write a Parquet file atomically."""

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from socket import gethostname
from threading import Lock
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding.cache import Cache
from paraembed.embedding.chunks import MeanPool, cut
from paraembed.embedding.columns import CHUNK_FIELDS, carried_fields, embeddings_schema, finish, ordered_stamps
from paraembed.embedding.ids import file_of, hashes_name, hashes_of
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.plan import IDS, Part, Piece, Plan, inputs_identity, settings_json
from paraembed.embedding.repeated import DistinctTexts
from paraembed.embedding.rows import InputRows, read_piece, read_stream
from paraembed.embedding.settings import Settings, check_dim
from paraembed.encoders.protocol import (
    NO_LOCK,
    ComputeLock,
    Embedded,
    NotFiniteError,
    OnRows,
    PackedEncoder,
    TextEncoder,
    check_finite,
    no_progress,
)
from paraembed.io.fingerprint import digest_of
from paraembed.io.parquet import cuts
from paraembed.io.places import to_place
from paraembed.io.store import Store, open_store, write_json
from paraembed.process import use_one_thread
from paraembed.text import TreeError

REPORTS, REJECTED = "_reports", "_rejected"
BAD_FILES = f"{REJECTED}/files.jsonl"
"""Input files that were left out, each with its reason."""
ROW_GROUP_BYTES = 32 << 20
"""Bytes of vectors per row group; a part is written one row group at a time."""
_CHUNKS_BYTES = 4 * ROW_GROUP_BYTES  # of a row group with chunks, which may repeat a whole document
CACHE_FILE_BYTES = 64 << 20
"""Bytes of new vectors after which a file is added to the cache; and at the end of a part."""
_SPOOLED_BYTES = 1 << 20  # of rejected rows, in memory
FOOTER = "paraembed"
"""Key of the report in the footer of a part."""
_NOT_IN_FOOTER = {"name", "sha256", "seconds", "stamp", "size", "n_cached"}
LATER_COUNTS = ("n_further_chunks", "n_repeated", "n_cached")
"""Fields of a report that files of earlier versions do not have; they are left out if they are 0."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """Report of a part."""

    name: str  # file name
    rows: int  # rows of the file
    n_tokens: int  # tokens of all rows
    n_unknown: int  # out-of-vocabulary tokens
    n_cut: int  # rows that were truncated to the encoder's maximum number of tokens
    n_without_tree: int  # rows of three or more tokens without a tree, if the encoder reads trees
    sha256: str  # digest of the file
    seconds: float  # time to read, encode and write
    n_rejected: int = 0  # rows that could not be read; together with ``rows``, these are the rows of the plan
    rejected_sha256: str = ""  # digest of the file in ``_rejected`` that lists them; empty without rejected rows
    n_replaced: int = 0  # rows with bytes that were not UTF-8 and became U+FFFD
    n_null_ids: int = 0  # rows whose id is null
    null_id: str = ""  # the first row whose id is null: FILE:ROW, see ``shown_row``
    n_clipped: int = 0  # rows with a number outside of the float16 range
    stamp: str = ""  # stamp of the file, if the store has stamps; see ``Remote.stamp``
    size: int = -1  # bytes of the file
    made_of: str = ""  # digest of everything that decides the file's bytes; see ``part_digest``
    n_multi_line: int = 0  # CSV rows with line breaks inside of their cells
    n_line_breaks: int = 0  # inside of cells; 1 (header) + rows + rejected rows + these are the lines of a file
    longest_lines: int = 0  # lines of the longest of these rows
    longest_first: int = 0  # number of its first line in the input file, from 1
    longest_file: int = 0  # index of this file in the plan
    n_further_chunks: int = 0  # rows of the file that are not the first chunk of a row of the plan
    n_repeated: int = 0  # rows that took the vector of an equal text of the part
    n_cached: int = 0  # texts that took the vector of an earlier run; see ``paraembed.embedding.cache``
    n_only_unknown: int = 0  # rows that have tokens, all of them out of vocabulary
    only_unknown: tuple[str, ...] = ()  # the first three of these rows: FILE:ROW, see ``shown_row``

    @property
    def planned_rows(self) -> int:
        """Rows of the plan: those of the file without further chunks, and rejected ones."""
        return self.rows - self.n_further_chunks + self.n_rejected

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {name: value for name, value in asdict(self).items() if value or name not in LATER_COUNTS}


def part_digest(
    encoder: str,
    identity: Mapping[str, Any],
    tokenizer: str,
    sources: Sequence[InputFile],
    part: Part,
    settings: Settings,
) -> str:
    """Return the digest of everything that decides the bytes of a part; ``encoder`` is a fingerprint."""
    decides = [encoder, tokenizer, inputs_identity(tuple(sources), settings), part.to_json()]
    decides.append(settings_json(settings, part.format))
    return digest_of([*decides, identity] if identity else decides)


def shown_row(plan: Plan, row: str) -> str:
    """Return the file and the number of a row, from 1, for messages. ``row`` has the index of the file, as names do not
    decide the bytes of a part; in reports of format 2, it is the message.
    """
    file, colon, number = row.partition(":")
    return f"{plan.inputs[int(file)].name}, row {int(number):,}" if colon and row.replace(":", "").isdecimal() else row


def rejected_name(part: str) -> str:
    """Return the path of a part's rejected rows, relative to the output."""
    return f"{REJECTED}/{Path(part).stem}.jsonl"


def report_name(part: str) -> str:
    """Return the path of a part's report, relative to the output."""
    return f"{REPORTS}/{Path(part).name}.json"


def embed_part(
    encoder: TextEncoder,
    sources: Sequence[InputFile],
    part: Part,
    settings: Settings,
    store: Store,
    *,
    data: bytes | None = None,
    lock: ComputeLock = NO_LOCK,
    on_rows: OnRows = no_progress,
    cache: Cache | None = None,
) -> PartReport:
    """Embed a part into ``store``; every call writes the same bytes. ``sources`` are the inputs of its pieces; ``data``
    is the text of a part of a stream, see ``read_piece``; ``lock`` is held while the encoder computes, a lock if other
    threads embed parts with the same encoder; ``on_rows`` is called with the number of rows that were encoded since its
    last call; ``cache`` has vectors of earlier runs, and gets those of new texts.

    Rows that cannot be read go to ``_rejected/<part>.jsonl``, as ``{"source", "row", "reason"}`` with the row counted
    from 0 in its file; for CSV also with ``line``, the line number from 1. This file is written before the part, whose
    footer has the report, so a part implies that both are complete. In format 2, the report is a file in ``_reports``.
    The hashes of ids that are read from a column (8 bytes a row) are written last.

    Memory, in addition to the encoder: the blocks of ``paraembed.embedding.rows``, the tokens of a batch (about 10
    times the size of its text), 12 · H bytes per row of a batch, and twice the bytes of a row group; it does not depend
    on the size of the part. Measured with H = 300, 19 words per text and batches of 32,768: 270 to 370 MB (152 MB of
    them in Arrow).

    Raise ValueError if a tree does not fit its text, a text is too long, the input differs from the plan, or
    ``settings.dim`` is above H.
    """
    started = time.perf_counter()
    made_of = part_digest(encoder.fingerprint, encoder.identity, encoder.tokenizer, sources, part, settings)
    report = PartReport(part.name, 0, 0, 0, 0, 0, "", 0.0, made_of=made_of)
    size, texts = 0, DistinctTexts(encoder, cache)
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as rejected:
        rows = _PartRows(texts, sources, part, settings, rejected, data, lock, on_rows, is_new=True)

        def write(file: BinaryIO) -> None:
            group_rows = max(1024, ROW_GROUP_BYTES // (4 * encoder.width))
            options = layout(rows.schema, settings) | {"write_page_checksum": part.format > 2}
            most_bytes = _CHUNKS_BYTES if settings.has_chunks else sys.maxsize
            with pq.ParquetWriter(file, rows.schema, **options) as writer:
                for table in tables_of(rows.batches(), group_rows, most_bytes):
                    writer.write_table(table, row_group_size=table.num_rows)
                    if texts.cached is not None:
                        texts.cached.write(CACHE_FILE_BYTES)
                if texts.cached is not None:
                    texts.cached.write()
                nonlocal report, size
                report = replace(report, **rows.firsts, **dict[str, Any](rows.counts))
                if report.n_rejected:
                    store.make_folder(REJECTED)
                    rejected.seek(0)
                    digest = store.write(rejected_name(part.name), partial(shutil.copyfileobj, rejected))
                    report = replace(report, rejected_sha256=digest)
                if part.format > 2:
                    writer.add_key_value_metadata({FOOTER: json.dumps(in_footer(report), sort_keys=True)})
            size = file.tell()

        digest = store.write(part.name, write)
    if settings.id_column is not None:
        store.make_folder(IDS)
        store.write(hashes_name(part.name, digest), lambda file: file.write(file_of(rows.hashes)))
    seconds = round(time.perf_counter() - started, 3)
    report = replace(report, sha256=digest, seconds=seconds, stamp=store.stamp(part.name), size=size)
    if part.format == 2:
        write_json(store, report_name(part.name), report.to_json())
    return report


def in_footer(report: PartReport) -> dict[str, Any]:
    """Return the fields of a report for the footer of its part: no times, so that equal parts have equal bytes."""
    return {name: value for name, value in report.to_json().items() if name not in _NOT_IN_FOOTER}


def embedded(
    encoder: TextEncoder,
    sources: Sequence[InputFile],
    part: Part,
    settings: Settings,
    texts: DistinctTexts | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that ``embed_part`` would write, at most ``settings.batch_size`` at a time; nothing is written."""
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as rejected:
        yield from _PartRows(texts or DistinctTexts(encoder), sources, part, settings, rejected).batches()


@dataclass
class _PartRows:
    """Embed the rows of a part, and count them under the names of ``PartReport``."""

    texts: DistinctTexts
    sources: Sequence[InputFile]
    part: Part
    settings: Settings
    rejected: IO[bytes]
    data: bytes | None = None
    lock: ComputeLock = NO_LOCK
    on_rows: OnRows = no_progress
    is_new: bool = False  # else stamps are not checked, which earlier versions did not do
    counts: Counter[str] = field(default_factory=Counter)
    firsts: dict[str, Any] = field(default_factory=dict)
    hashes: list[Any] = field(default_factory=list)  # of the ids, if they are read from a column

    def __post_init__(self) -> None:
        width, settings = self.texts.encoder.width, self.settings
        check_dim(settings, width)
        id_field, *kept = carried_fields([self.sources[0]], settings)
        kept = [*CHUNK_FIELDS, *kept] if settings.has_chunks else kept
        self.schema = embeddings_schema(id_field, kept, settings.dim or width, settings.dtype, self.part.format)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raise ValueError if a piece has another number of rows than planned."""
        planned = 0
        for source, piece in zip(self.sources, self.part.pieces, strict=True):
            for block in read_piece(source, piece, self.settings, self.data):
                self._count(block, source, piece.file)
                for encoded, columns, row_numbers in self._encoded(block, source):
                    with _errors_of(source, row_numbers):
                        check_finite(encoded.vectors[:, : self.settings.dim])
                    batch = self._finished(encoded, columns, row_numbers, piece.file)
                    if self.is_new and self.settings.stamp_column is not None:
                        _check_stamps(
                            batch[self.settings.stamp_column], row_numbers, self.settings.stamp_column, source
                        )
                    yield batch
            planned += piece.rows
            rows = self.counts["rows"] - self.counts["n_further_chunks"] + self.counts["n_rejected"]
            if rows != planned:
                count = rows - planned + piece.rows
                raise ValueError(
                    f"{source.shown} has changed: {self.part.name} has {count} of its rows instead of {piece.rows}; "
                    "start over"
                )
        self.counts.update(n_repeated=self.texts.num_repeated, n_cached=self.texts.num_cached)

    def _count(self, block: InputRows, source: InputFile, file: int) -> None:
        """Count rows of the input, and list the rejected ones; ``file`` is the index of the source in the plan."""
        for rejected in block.rejected:
            values = {"source": source.name, "row": rejected.row, "reason": rejected.reason}
            values |= {} if rejected.line is None else {"line": rejected.line}
            self.rejected.write(f"{json.dumps(values, ensure_ascii=False)}\n".encode("utf-8", "replace"))
        ids = block.carried[0]
        if self.settings.id_column is not None:
            self.hashes.append(hashes_of(ids))
        if ids.null_count and "null_id" not in self.firsts:
            self.firsts["null_id"] = f"{file}:{block.row_numbers[pc.index(ids.is_null(), True).as_py()] + 1}"
        first_lines, num_lines = block.lines.T
        longest = int(num_lines.max(initial=1))
        if longest > max(1, self.firsts.get("longest_lines", 0)):  # of equally long rows, the first one is kept
            first = int(first_lines[num_lines.argmax()])
            self.firsts |= {"longest_lines": longest, "longest_first": first, "longest_file": file}
        self.counts.update(
            n_rejected=len(block.rejected),
            n_replaced=block.num_replaced,
            n_null_ids=ids.null_count,
            n_multi_line=int((num_lines > 1).sum()),
            n_line_breaks=int((num_lines - 1).sum()),
        )

    def _finished(
        self, encoded: Embedded, columns: list[pa.Array], row_numbers: npt.NDArray[np.int64], file: int
    ) -> pa.RecordBatch:
        """Return rows of the output, and count them."""
        vectors, num_clipped = finish(encoded.vectors, self.settings, self.part.format)
        is_unknown = (encoded.num_tokens > 0) & (encoded.num_unknown == encoded.num_tokens)
        if is_unknown.any():
            unknown = (f"{file}:{row + 1}" for row in row_numbers[is_unknown][:3].tolist())
            self.firsts["only_unknown"] = (*self.firsts.get("only_unknown", ()), *unknown)[:3]
        self.counts.update(
            rows=len(row_numbers),
            n_tokens=int(encoded.num_tokens.sum(dtype="int64")),
            n_unknown=int(encoded.num_unknown.sum(dtype="int64")),
            n_only_unknown=int(is_unknown.sum()),
            n_cut=encoded.num_cut,
            n_without_tree=encoded.num_without_tree,
            n_clipped=num_clipped,
        )
        if self.settings.has_chunks:
            self.counts["n_further_chunks"] += pc.sum(pc.greater(columns[1], 0)).as_py()
        counts = [pa.array(encoded.num_tokens), pa.array(encoded.num_unknown)]
        return pa.RecordBatch.from_arrays([*columns, *vectors, *counts], schema=self.schema)

    def _encoded(
        self, block: InputRows, source: InputFile
    ) -> Iterator[tuple[Embedded, list[pa.Array], npt.NDArray[np.int64]]]:
        """Yield vectors, the columns before them, and the numbers of the rows, which chunks repeat."""
        texts, numbers, settings = block.texts, block.row_numbers, self.settings
        if not len(texts):
            return
        if not settings.splits:
            with _errors_of(source, numbers):
                encoded = self.texts.embed(texts, block.trees, self.lock, self.on_rows)
            yield encoded, block.carried, numbers
            return
        chunks = cut(self.texts.encoder, texts, settings, block.elements)
        on_chunks = chunks.progress(self.on_rows, len(texts))
        pool = None if settings.has_chunks else MeanPool(len(texts), self.texts.encoder.width)
        ends = np.cumsum(chunks.sizes(block.carried, settings))
        for start, stop in cuts(ends, source.block_bytes, settings.batch_size):
            rows = chunks.rows[start:stop]
            with _errors_of(source, numbers[rows]):
                known = chunks.known(start, stop)
                encoded = self.texts.embed(chunks.read(start, stop), None, self.lock, on_chunks, known)
            if pool is None:
                yield encoded, chunks.columns(start, stop, block.carried, settings), numbers[rows]
            else:
                pool.add(rows, encoded)
        if pool is not None:
            yield pool.embedded(), block.carried, numbers


def _check_stamps(stamps: pa.Array, row_numbers: npt.NDArray[np.int64], name: str, source: InputFile) -> None:
    """Raise ValueError if the stamps of a block cannot be ordered, for when an id of them occurs again."""
    try:
        ordered_stamps(stamps, name)
    except ValueError as error:
        first, last = row_numbers[0] + 1, row_numbers[-1] + 1
        raise ValueError(f"{source.shown}, rows {first:,} to {last:,}: {error}") from None


@contextmanager
def _errors_of(source: InputFile, row_numbers: npt.NDArray[np.int64]) -> Iterator[None]:
    """Raise ValueError with the row of a text that cannot be encoded."""
    try:
        yield
    except (TreeError, NotFiniteError) as error:
        raise ValueError(f"{source.shown}, row {row_numbers[error.text] + 1}: {error.fault}") from None


def tables_of(batches: Iterator[pa.RecordBatch], group_rows: int, most_bytes: int = sys.maxsize) -> Iterator[pa.Table]:
    """Yield tables of at least ``group_rows`` rows or more than ``most_bytes``, the last one of fewer."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= group_rows or sum(batch.nbytes for batch in waiting) > most_bytes:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def layout(schema: pa.Schema, settings: Settings) -> dict[str, Any]:
    """Return the column options of ``pyarrow.parquet.ParquetWriter``.

    Byte-stream split of float32 vectors saves 16 % over plain and 9 % over zstd alone, at the speed of zstd alone (50k
    x 300 random normals), but Spark 3.5 and fastparquet cannot read it. float16 uses plain encoding, because DuckDB 2.0
    cannot read it with byte-stream split. Parquet stores int8 as int32, but with a dictionary of the 255 values each
    number takes only one byte.
    """
    others = [name for name in schema.names if name != "embedding"]
    numbers = ["embedding.list.element"]
    dictionary = [name for name in others if name not in {schema.names[0], "scale"}]
    return {
        "compression": settings.compression,
        "use_dictionary": dictionary + numbers if settings.dtype == "int8" else dictionary,
        "use_byte_stream_split": numbers if settings.compact and settings.dtype == "float32" else [],
        "write_statistics": others,
    }


@dataclass(frozen=True)
class Done:
    """Result of a worker for one part."""

    report: PartReport  # report of the part
    peak_memory: int  # peak memory of the worker's process in bytes, including shared pages


class PartWorker:
    """Worker that embeds parts on one thread of PyTorch. Calls may overlap, but they encode one at a time.

    This class is not in the module that starts the Ray actors, so that the actors import neither MLflow nor more of
    Ray. This halves the start time of a worker.
    """

    def __init__(self) -> None:
        self._loading, self._lock = Lock(), Lock()
        self._rows: dict[str, int] = {}  # part that is not finished → its encoded rows
        self._encoder: TextEncoder | None = None
        self._store: Store | None = None

    def ready(self, packed: PackedEncoder, address: Callable[[], str] = gethostname) -> str:
        """Load the encoder; return the process and the machine, whose name or address is ``address()``."""
        with self._loading:
            if self._encoder is None:
                use_one_thread()
                self._encoder = packed.encoder()
        return f"process {os.getpid()} of {address()}"

    def embed(
        self,
        packed: PackedEncoder,
        sources: Sequence[InputFile],
        part: Part,
        settings: Settings,
        out: str,
        text: Callable[[], bytes | None] | None,
        cache: Cache | None = None,
    ) -> Done:
        """Embed one part; see ``embed_part``. ``text`` returns the text of a part that another worker reads."""
        self.ready(packed)
        assert self._encoder is not None
        if self._store is None or self._store.place != out:
            self._store = open_store(to_place(out))

        def count(rows: int) -> None:
            self._rows[part.name] = self._rows.get(part.name, 0) + rows

        options: dict[str, Any] = {"data": text and text(), "lock": self._lock, "on_rows": count, "cache": cache}
        try:
            return Done(embed_part(self._encoder, sources, part, settings, self._store, **options), peak_memory())
        finally:
            self._rows.pop(part.name, None)

    def read(self, source: InputFile, piece: Piece) -> bytes:
        """Return the text of a piece of a stream; see ``read_stream``."""
        return read_stream(source, piece)

    def rows_begun(self) -> int:
        """Return how many rows are encoded of parts that are not finished."""
        return sum(list(self._rows.values()))


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
