"""Settings and limits of an embedding run."""

from dataclasses import dataclass
from typing import Literal

from paraembed.embedding.template import fields_of
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.options import MOST_INT, check_fields

IdKind = Literal["row", "file-row"]
Dtype = Literal["float32", "float16", "int8"]
Compression = Literal["zstd", "snappy", "none"]
ChunkBy = Literal["sentence", "token", "markdown"]
Pool = Literal["mean"]
OnDuplicateId = Literal["fail", "keep"]
Identity = Literal["stamp", "sha256"]
"""How an input is recognized: by its size and times, or its ETag; or by its SHA-256, for which it is read at each
start.
"""


CHUNK_TEXTS = ("text", "document")
"""Columns to keep that, with chunks, are the text of the chunk and the whole text of the row."""


@dataclass(frozen=True)
class Settings:
    """Settings that decide the bytes of the output.

    Attributes:
        text_column: column with the texts, or a path in structs, such as ``doc.body``; None for text files.
        text: texts from several columns, in place of ``text_column``: a format string such as ``{title}. {body}``; see
            ``paraembed.embedding.template``.
        id_column: column that identifies a row; default: ids are generated, see ``id_kind``.
        keep: columns or paths to copy to the output, or ``("all",)``; for text files ``text`` or nothing. Parquet
            columns keep their type, or get the common type of the files. Columns of CSV, TSV and JSON lines are
            strings; a JSON value that is not a string is copied as JSON, a missing value as null.
        part_rows: rows per part, including rows that cannot be read.
        batch_size: rows to encode at a time. Vectors of ``avg``, ``sum`` and ``word`` are bit-identical for every
            value; those of other encoders can differ by about 1e-6, because the order of sums changes.
        tree_column: column with the trees of the texts, null for a text without one; default: no trees.
        id_kind: generated ids. ``row``: int64 ``row``, counted from 0 over all inputs; ``file-row``: string ``id``,
            ``a.txt:17``, the row counted from 0 in its file, which does not change if files are added.
        dtype: number type of the vectors. ``float16`` clips values to ±65504. ``int8`` rounds to 127 steps: vector =
            ``scale`` · ``embedding``, with a float32 column ``scale``, the row's largest absolute value / 127.
        normalize: divide each vector by its Euclidean length; zero vectors stay zero.
        dim: truncate vectors to the first ``dim`` dimensions, before normalization; default: all. No encoder here is
            trained for this: for ``avg`` it equals an encoder of word vectors truncated to ``dim``.
        compression: compression of the Parquet files.
        chunk_tokens: cut texts into chunks of at most so many tokens of the encoder, each with its row in the output.
        chunk_overlap: most tokens at the end of a chunk that are repeated at the start of the next one.
        chunk_by: ``sentence``: whole sentences, if they are not too long; ``token``: whole words; ``markdown``: whole
            paragraphs, items of lists and fenced code, and no chunk across a heading.
        pool: ``mean``: one vector for each text, the mean of those of its chunks, weighted by their tokens.
        explode: the text column has lists, of which each element is a chunk, or is cut into chunks; default: the
            elements joined by spaces are one text.
        compact: float32 vectors in byte-stream split, which saves 9 %, but which Spark 3.5 cannot read.
        stamp_column: column with the version of a row, a number or a time: of the rows with an id, the one with the
            largest value counts, and the others are listed as superseded. It is copied to the output.
    """

    text_column: str | None = None
    id_column: str | None = None
    keep: tuple[str, ...] = ()
    part_rows: int = 100_000
    batch_size: int = 32_768
    tree_column: str | None = None
    id_kind: IdKind = "row"
    dtype: Dtype = "float32"
    normalize: bool = False
    dim: int | None = None
    compression: Compression = "zstd"
    compact: bool = False
    stamp_column: str | None = None
    text: str | None = None
    chunk_tokens: int | None = None
    chunk_overlap: int = 0
    chunk_by: ChunkBy = "sentence"
    pool: Pool | None = None
    explode: bool = False

    def __post_init__(self) -> None:
        check_fields(self, dict.fromkeys(("part_rows", "batch_size", "dim", "chunk_tokens"), (1, MOST_INT)))
        if self.stamp_column is not None and self.id_column is None:
            raise ValueError(f"`stamp_column` is {self.stamp_column!r}, but `id_column` is not given; give it, too")
        if self.text is not None and self.text_column is not None:
            raise ValueError(
                f"`text` is {self.text!r} and `text_column` is {self.text_column!r}; give only one of them"
            )
        if self.text is not None:
            fields_of(self.text)  # raises
        if self.explode and self.text is not None:
            raise ValueError(f"`explode` is for a column of lists, but `text` is {self.text!r}; give `text_column`")
        pool = None if self.explode else self.pool
        if self.chunk_tokens is None and (self.chunk_overlap, self.chunk_by, pool) != (0, "sentence", None):
            raise ValueError("`chunk_overlap`, `chunk_by` and `pool` are for chunks; give `chunk_tokens`, too")
        if self.chunk_tokens is not None and not 0 <= self.chunk_overlap < self.chunk_tokens:
            raise ValueError(f"`chunk_overlap` is {self.chunk_overlap}; allowed: 0 to {self.chunk_tokens - 1}")

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns with the texts; none for text files."""
        if self.text is not None:
            return tuple(dict.fromkeys(field.column for field in fields_of(self.text)))
        return () if self.text_column is None else (self.text_column,)

    @property
    def splits(self) -> bool:
        """Whether the texts of rows are split, into chunks or the elements of lists."""
        return self.explode or self.chunk_tokens is not None

    @property
    def has_chunks(self) -> bool:
        """Whether the rows of the output are chunks."""
        return self.splits and self.pool is None

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """Columns of the input to copy: those of ``keep``, but for ``CHUNK_TEXTS`` of chunks."""
        return tuple(name for name in self.keep if not (self.has_chunks and name in CHUNK_TEXTS))

    @property
    def id_field(self) -> str:
        """Name of the id column in the output."""
        return self.id_column if self.id_column is not None else "row" if self.id_kind == "row" else "id"


@dataclass(frozen=True)
class Limits:
    """Limits that stop a run; they do not change the bytes of the output.

    Attributes:
        max_rejected: maximum number of rejected rows; default: no limit.
        max_rejected_share: maximum share of all rows that are rejected, 0 to 1; if no row is left, a run always fails.
        on_duplicate_id: if an id is null or repeated, ``fail``, or ``keep`` the row and count it.
        reading: limits on reading an input file.
        max_bad_files: maximum number of input files that are left out, because they are damaged, empty or unreadable.
    """

    max_rejected: int | None = None
    on_duplicate_id: OnDuplicateId = "fail"
    reading: TableLimits = DEFAULT_TABLE_LIMITS
    max_rejected_share: float = 0.5
    max_bad_files: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError if a number is out of range."""
        for name in ("max_rejected", "max_bad_files"):
            if (number := getattr(self, name)) is not None and number < 0:
                raise ValueError(f"`{name}` is {number}; it must be at least 0")
        if not 0 <= self.max_rejected_share <= 1:
            raise ValueError(f"`max_rejected_share` is {self.max_rejected_share}; allowed: 0 to 1")


DEFAULT_LIMITS = Limits()


def check_dim(settings: Settings, width: int) -> None:
    """Raise ValueError if ``settings.dim`` is above the width of the vectors."""
    if settings.dim is not None and settings.dim > width:
        raise ValueError(f"`dim` is {settings.dim}, but the vectors have {width} dimensions; give at most {width}")
