"""Embed one part: read its rows, encode them, write one Parquet file that appears whole or not at all."""

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from paraembed import checkpoint
from paraembed.data.schemas import embeddings_schema
from paraembed.data.trees import TreeError
from paraembed.embedding.plan import BLOCK_BYTES, MAX_TEXT_BYTES, InputFile, Part, Settings, carried_fields, line_blocks
from paraembed.encoders import Encoder
from paraembed.files import open_binary, write_file, write_json

REPORTS = "_reports"
_ROW_GROUP_BYTES = 32 << 20  # of vectors; a part is written a row group at a time
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
    """

    name: str
    rows: int
    n_tokens: int
    n_unknown: int
    n_cut: int
    n_without_tree: int
    sha256: str
    seconds: float


@dataclass(frozen=True)
class Rows:
    """Some rows of an input.

    Attributes:
        carried: the id column and the kept ones, arrays [n].
        texts: string array [n].
        trees: string array [n], null where a text has none; None: no text has one.
        line: number of the first row in its file, from 1.
    """

    carried: list[pa.Array]
    texts: pa.StringArray
    trees: pa.StringArray | None
    line: int


class PartWorker:
    """Embeds parts, one at a time, on one thread; loads the encoder when it is first needed.

    It stands here, not with the code that runs it in Ray actors, so that these import neither MLflow nor more of Ray:
    half of a worker's start.
    """

    def __init__(self, encoder: str, fingerprint: str) -> None:
        torch.set_num_threads(1)
        pa.set_cpu_count(1)
        self._folder, self._fingerprint = encoder, fingerprint
        self._encoder: Encoder | None = None

    def ready(self) -> None:
        """Load the encoder.

        Raises:
            ValueError: the folder does not hold the encoder that the run began with.
        """
        if self._encoder is None:  # here, not in __init__: Ray hides what an actor's __init__ raises
            encoder = checkpoint.load(self._folder)
            if encoder.fingerprint != self._fingerprint:
                raise ValueError(f"{self._folder} changed while it was in use; run the same command again")
            self._encoder = encoder

    def embed(self, source: InputFile, part: Part, settings: Settings, folder: str, data: bytes | None) -> PartReport:
        """Embed one part; see ``embed_part``."""
        self.ready()
        assert self._encoder is not None
        return embed_part(self._encoder, source, part, settings, Path(folder), data=data)


def embed_part(
    encoder: Encoder, source: InputFile, part: Part, settings: Settings, folder: Path, *, data: bytes | None = None
) -> PartReport:
    """Embed a part into ``folder`` and write its report beside it; the same bytes every time.

    Args:
        encoder: makes the vectors.
        source: the part's input file.
        part: which rows.
        settings: columns and sizes.
        folder: the output folder; the report goes to its ``_reports``.
        data: the part's text, where ``source`` is gzipped (see ``stream_parts``).

    Raises:
        ValueError: bytes that are not UTF-8, an id that is null, a tree that does not fit its text, an input that is
            not what the plan says.
    """
    started = time.perf_counter()
    schema = embeddings_schema(*_split(carried_fields([source], settings)), encoder.width)
    totals = np.zeros(5, np.int64)  # rows, tokens, unknown tokens, rows that were cut, rows without a tree

    def write(file: BinaryIO) -> None:
        group_rows = max(1024, _ROW_GROUP_BYTES // (4 * encoder.width))
        with pq.ParquetWriter(file, schema, **_layout(schema)) as writer:
            rows = read_part(source, part, settings, data)
            for table in _tables(_embedded(encoder, rows, schema, source.path, totals), group_rows):
                writer.write_table(table, row_group_size=table.num_rows)
        if totals[0] != part.rows:
            raise ValueError(f"{source.path} changed: {part.name} has {totals[0]} rows of {part.rows}; start afresh")

    digest = write_file(folder / part.name, write)
    rows, n_tokens, n_unknown, n_cut, n_without_tree = map(int, totals)
    seconds = round(time.perf_counter() - started, 3)
    report = PartReport(part.name, rows, n_tokens, n_unknown, n_cut, n_without_tree, digest, seconds)
    write_json(folder / REPORTS / f"{part.name}.json", asdict(report))
    return report


def stream_parts(source: InputFile, parts: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
    """The text of some parts of a gzipped file, in their order, with one pass over it."""
    with open_binary(Path(source.path)) as file:
        for part in parts:
            file.seek(part.start)  # forward: skips what lies between, starts nothing over
            yield part, file.read(part.stop - part.start)


def read_part(source: InputFile, part: Part, settings: Settings, data: bytes | None = None) -> Iterator[Rows]:
    """The rows of a part, at most ``settings.batch_size`` and about ``BLOCK_BYTES`` of text at a time."""
    rows = _read_text(source, part, settings, data) if source.is_text else _read_parquet(source, part, settings)
    for some in rows:
        yield from _bounded(some, settings.batch_size, source.path)


def _read_text(source: InputFile, part: Part, settings: Settings, data: bytes | None) -> Iterator[Rows]:
    assert data is not None or not source.is_chain
    with io.BytesIO(data) if data is not None else Path(source.path).open("rb") as file:
        if data is None:
            file.seek(part.start)
        done = 0
        for number, block in enumerate(line_blocks(file, part.stop - part.start, source.path)):
            first = number == part.start == 0
            texts = _lines(block.removeprefix(_BYTE_ORDER_MARK) if first else block, source.path, part.line + done)
            ids = pa.array(np.arange(part.row + done, part.row + done + len(texts)))
            yield Rows([ids, *[texts] * len(settings.keep)], texts, None, part.line + done)
            done += len(texts)


def _lines(block: bytes, path: str, line: int) -> pa.StringArray:
    """The lines of a block without their ends; ``line`` is the number of the first."""
    lines = pc.split_pattern(pa.array([block.removesuffix(b"\n")], pa.binary()), "\n").flatten()
    try:
        texts = lines.cast(pa.string())
    except pa.ArrowInvalid:
        line += block.count(b"\n", 0, _first_bad_byte(block))
        raise ValueError(f"{path}, line {line}: not UTF-8; mend the line, or convert the file with iconv") from None
    return pc.replace_substring_regex(texts, r"\r\z", "") if b"\r" in block else texts


def _first_bad_byte(block: bytes) -> int:
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    raise AssertionError("Arrow and Python differ on what is UTF-8")


def _read_parquet(source: InputFile, part: Part, settings: Settings) -> Iterator[Rows]:
    wanted = [name for name in (settings.id_column, *settings.keep) if name is not None]
    assert settings.text_column is not None
    trees = [settings.tree_column] if settings.tree_column is not None else []
    columns = list(dict.fromkeys([*wanted, settings.text_column, *trees]))
    groups = range(part.start, part.stop)
    done = 0
    try:
        with pq.ParquetFile(source.path) as file:
            for batch in file.iter_batches(_read_rows(file, groups, columns), row_groups=groups, columns=columns):
                carried = [batch[name] for name in wanted]
                if settings.id_column is None:
                    carried.insert(0, pa.array(np.arange(part.row + done, part.row + done + len(batch))))
                elif carried[0].null_count:
                    row = part.line + done + pc.index(carried[0].is_null(), True).as_py()
                    raise ValueError(f"{source.path}, row {row}: {settings.id_column!r} is null; an id is needed")
                texts, *of_texts = (batch[name].cast(pa.large_string()) for name in (settings.text_column, *trees))
                yield Rows(carried, texts, of_texts[0] if of_texts else None, part.line + done)
                done += len(batch)
    except pa.ArrowException as error:
        raise ValueError(f"{source.path} cannot be read ({str(error).splitlines()[0]}); make it again") from None


def _read_rows(file: pq.ParquetFile, groups: range, columns: list[str]) -> int:
    """Rows that hold about ``BLOCK_BYTES`` of the columns, judged by the footer."""
    size = 0
    for group in map(file.metadata.row_group, groups):
        chunks = map(group.column, range(group.num_columns))
        size += sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
    rows = int(sum(file.metadata.row_group(group).num_rows for group in groups))
    return max(1, min(rows, BLOCK_BYTES * rows // max(1, size)))


def _bounded(rows: Rows, batch_size: int, path: str) -> Iterator[Rows]:
    """The same rows in slices of at most ``batch_size`` rows, and one text or ``BLOCK_BYTES``."""
    ends = np.zeros(len(rows.texts), np.int64)
    for name, strings in (("text", rows.texts), ("tree", rows.trees)):
        if strings is None:
            continue
        lengths = pc.fill_null(pc.binary_length(strings), 0).to_numpy()
        if len(lengths) and lengths.max() > MAX_TEXT_BYTES:
            raise ValueError(f"{path}: a {name} has {lengths.max()} bytes; at most {MAX_TEXT_BYTES} can be embedded")
        ends += np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + BLOCK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + batch_size)
        yield Rows(
            [column.slice(start, stop - start) for column in rows.carried],
            rows.texts.slice(start, stop - start).cast(pa.string()),
            None if rows.trees is None else rows.trees.slice(start, stop - start).cast(pa.string()),
            rows.line + start,
        )
        start = stop


def _embedded(
    encoder: Encoder, rows: Iterator[Rows], schema: pa.Schema, path: str, totals: npt.NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """Rows of the output; what they hold is added to ``totals`` [5]."""
    for some in rows:
        try:
            made = encoder.embed(some.texts, len(some.texts), some.trees)
        except TreeError as error:
            raise ValueError(f"{path}, row {some.line + error.text}: {error.fault}") from None
        totals += (
            *(len(some.texts), made.num_tokens.sum(dtype=np.int64), made.num_unknown.sum(dtype=np.int64)),
            *(made.num_cut, made.num_without_tree),
        )
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(made.vectors.reshape(-1)), encoder.width)
        counts = [pa.array(made.num_tokens), pa.array(made.num_unknown)]
        yield pa.RecordBatch.from_arrays([*some.carried, vectors, *counts], schema=schema)


def _tables(batches: Iterator[pa.RecordBatch], group_rows: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= group_rows:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _layout(schema: pa.Schema) -> dict[str, Any]:
    """How the columns lie in the file.

    Vectors with their bytes split by place (mantissa, exponent) take 16 % less than plain, 9 % less than zstd alone,
    at the speed of zstd alone (50k x 300 random normals).
    """
    others = [name for name in schema.names if name != "embedding"]
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in others if name != schema.names[0]],
        "use_byte_stream_split": ["embedding.list.element"],
        "write_statistics": others,
    }


def _split(fields: list[pa.Field]) -> tuple[pa.Field, list[pa.Field]]:
    return fields[0], fields[1:]
