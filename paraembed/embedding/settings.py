"""Settings and limits of an embedding run."""

from dataclasses import dataclass
from typing import Literal

from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.options import MOST_INT, check_fields

IdKind = Literal["row", "file-row"]
Dtype = Literal["float32", "float16", "int8"]
Compression = Literal["zstd", "snappy", "none"]
OnDuplicateId = Literal["fail", "keep"]
Identity = Literal["stamp", "sha256"]
"""How an input is recognized: by its size and times, or its ETag; or by its SHA-256, for which it is read at each
start.
"""


@dataclass(frozen=True)
class Settings:
    """Settings that decide the bytes of the output.

    Attributes:
        text_column: column with the texts, or a path in structs, such as ``doc.body``; None for text files.
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
        compact: float32 vectors in byte-stream split, which saves 9 %, but which Spark 3.5 cannot read.
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
