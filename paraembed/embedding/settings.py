"""Settings and limits of an embedding run."""

from dataclasses import dataclass
from typing import Literal

from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.options import MOST_INT, check_fields

IdKind = Literal["row", "file-row"]
Dtype = Literal["float32", "float16", "int8"]
Compression = Literal["zstd", "snappy", "none"]
OnDuplicateId = Literal["fail", "keep"]


@dataclass(frozen=True)
class Settings:
    """Settings that decide the bytes of the output."""

    text_column: str | None = None
    """Column with the texts; required for all formats except .txt."""
    id_column: str | None = None
    """Column that identifies a row; default: ids are generated, see `id_kind`."""
    keep: tuple[str, ...] = ()
    """Columns to copy to the output; all: every column (for .jsonl, list each key); 'text' for .txt. Parquet columns
    keep their type, others are strings; a JSON value that is not a string is copied as JSON.
    """
    part_rows: int = 100_000
    """Maximum rows per output file; files with long texts have fewer, and Parquet inputs are split only between row
    groups.
    """
    batch_size: int = 32_768
    """Number of rows to encode at a time. Vectors of avg, sum and word are bit-identical for every value; those of
    other encoders can differ by about 1e-6, because the order of sums changes.
    """
    tree_column: str | None = None
    """Column with binary trees of the texts, for encoders that read trees; default: 'tree' if it exists."""
    id_kind: IdKind = "row"
    """Form of generated ids: row number over all files, from 0 (row), or file and row number, such as 'a.txt:17', which
    does not change if files are added (file-row).
    """
    dtype: Dtype = "float32"
    """Type of the embedding values; float16 clips to ±65504; int8 adds a column 'scale': vector = scale * embedding."""
    normalize: bool = False
    """Divide each embedding by its Euclidean length; zero vectors stay zero."""
    dim: int | None = None
    """Truncate embeddings to the first N dimensions, before normalization; default: all. No encoder here is trained for
    this: for avg it equals an encoder of word vectors truncated to N.
    """
    compression: Compression = "zstd"
    """Compression of the Parquet files."""

    def __post_init__(self) -> None:
        check_fields(self, dict.fromkeys(("part_rows", "batch_size", "dim"), (1, MOST_INT)))

    @property
    def id_field(self) -> str:
        """Name of the id column in the output."""
        return self.id_column if self.id_column is not None else "row" if self.id_kind == "row" else "id"


@dataclass(frozen=True)
class Limits:
    """Limits that stop a run; they do not change the bytes of the output.

    Attributes:
        max_rejected: maximum number of rejected rows; default: no limit.
        on_duplicate_id: if an id is null or repeated, ``fail``, or ``keep`` the row and count it.
        reading: limits on reading an input file.
    """

    max_rejected: int | None = None
    on_duplicate_id: OnDuplicateId = "fail"
    reading: TableLimits = DEFAULT_TABLE_LIMITS


DEFAULT_LIMITS = Limits()


def check_dim(settings: Settings, width: int) -> None:
    """Raise ValueError if ``settings.dim`` is above the width of the vectors."""
    if settings.dim is not None and settings.dim > width:
        raise ValueError(f"`dim` is {settings.dim}, but the vectors have {width} dimensions; give at most {width}")
