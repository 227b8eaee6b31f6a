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

    Vectors of ``avg``, ``sum`` and ``word`` are bit-identical for every ``batch_size``; those of other encoders can
    differ by about 1e-6, because the order of sums changes. Columns to copy keep their type in Parquet, or get the
    common type of the files; those of CSV, TSV and JSON lines are strings, with a JSON value that is not a string as
    JSON, and a missing value as null; ``("all",)`` is every column. Generated ids are int64 (``row``) or strings
    (``file-row``). With ``int8``, the float32 ``scale`` is the row's largest absolute value / 127. No encoder here is
    trained for a smaller ``dim``: for ``avg`` it equals an encoder of word vectors truncated to it.
    """

    text_column: str | None = None
    """Column with the texts, or a path such as doc.body; all formats except .txt need it, or `text`."""
    id_column: str | None = None
    """Column that identifies a row; default: ids are generated, see `id_kind`."""
    keep: tuple[str, ...] = ()
    """Columns to copy to the output; all: every column (for .jsonl, list each key); 'text' for .txt; names of Hive
    folders such as lang=en are columns. With chunks, 'text' is that of the chunk, 'document' that of the row.
    """
    part_rows: int = 100_000
    """Maximum rows per output file; files with long texts have fewer."""
    batch_size: int = 32_768
    """Number of rows to encode at a time."""
    tree_column: str | None = None
    """Column with binary trees of the texts, for encoders that read trees; default: 'tree' if it exists."""
    id_kind: IdKind = "row"
    """Form of generated ids: row number over all files, from 0 (row); or file and row number in it, such as 'a.txt:17',
    which does not change if files are added (file-row).
    """
    dtype: Dtype = "float32"
    """Type of the embedding values: float16 clips to ±65504; int8 rounds to 127 steps, with a column 'scale': vector =
    scale * embedding.
    """
    normalize: bool = False
    """Divide each embedding by its Euclidean length; zero vectors stay zero."""
    dim: int | None = None
    """Truncate embeddings to the first N dimensions, before they are normalized; default: all."""
    compression: Compression = "zstd"
    """Compression of the Parquet files."""
    compact: bool = False
    """Write float32 values in byte-stream split: 9 % smaller, but Spark 3.5 and fastparquet cannot read it."""
    stamp_column: str | None = None
    """Column with the version of a row, a number or a time: of the rows with an id, the one with the largest value
    counts, and search, mine and load leave out the others. It is copied to the output.
    """
    text: str | None = None
    """Text from several columns, such as '{title}. {body}'; a null or empty value is left out with its separator."""
    chunk_tokens: int | None = None
    """Cut texts into chunks of at most N tokens of the encoder, a row each, with 'chunk', 'start' and 'end' (in
    characters); default: one row for each text, truncated to the encoder's maximum.
    """
    chunk_overlap: int = 0
    """Maximum number of tokens that a chunk repeats from the end of the one before it, in whole sentences."""
    chunk_by: ChunkBy = "sentence"
    """Where chunks end: at sentences, words (token), or paragraphs, list items, fenced code and headings (markdown)."""
    pool: Pool | None = None
    """One vector for each text: the mean of those of its chunks, weighted by their tokens; default: each chunk's."""
    explode: bool = False
    """Lists as texts: a row for each element, with 'chunk', 'start' and 'end'; default: the elements joined by spaces
    are one text.
    """

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
    """Limits that stop a run; they do not change the bytes of the output."""

    max_rejected: int | None = None
    """Maximum number of unreadable rows before the job fails; default: no limit, unreadable rows are listed and left
    out.
    """
    on_duplicate_id: OnDuplicateId = "fail"
    """Null or repeated ids: fail the job (fail), or keep the rows and count them (keep)."""
    max_rejected_share: float = 0.5
    """Maximum share of all rows that are unreadable, 0 to 1, before the job fails."""
    max_bad_files: int = 0
    """Maximum number of damaged, empty or unreadable input files, which are listed and left out."""
    reading: TableLimits = DEFAULT_TABLE_LIMITS
    """Limits on reading an input file."""

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
