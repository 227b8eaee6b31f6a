"""What the user of an embedding run chooses and the bytes of its output depend on."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits

IdKind = Literal["row", "file-row"]
Dtype = Literal["float32", "float16", "int8"]
Compression = Literal["zstd", "snappy", "none"]
OnDuplicateId = Literal["fail", "keep"]


@dataclass(frozen=True)
class Settings:
    """What the user chose and the output's bytes depend on.

    Attributes:
        text_column: column with the texts; None for text files.
        id_column: column that identifies a row; None: ids are made, see ``id_kind``.
        keep: columns carried to the output; for text files ``text`` or nothing; ``("all",)``: all of them. Parquet
            columns keep their type. Those of CSV and TSV are texts; so are those of JSON lines, in which a value that
            is no string is carried as JSON, and a missing one as null.
        part_rows: rows a part, those included that turn out unreadable.
        batch_size: rows encoded at a time. A vector of ``avg``, ``sum`` or ``word`` is the same to the last bit with
            any; of other encoders the order of sums can change by it, and the vector by about 1e-6.
        tree_column: column with the trees of the texts, null where there is none; None: no text has one.
        id_kind: without an id column, ``row``: int64 ``row``, counted from 0 over all inputs; ``file-row``: string
            ``id``, ``corpus/a.txt:17``, the row counted from 0 in its file, which stays when other files are added.
        dtype: of the vectors. ``float16`` clips values to ±65504. ``int8`` rounds to 127 steps: vector = ``scale`` ·
            ``embedding``, with a float32 column ``scale`` that is the row's largest absolute value / 127.
        normalize: divide each vector by its Euclidean length; zeros stay zeros.
        dim: keep the first ``dim`` numbers of a vector, before it is normalized; None: all. No encoder here is trained
            to put more into its first numbers: of ``avg``, this is the encoder of word vectors cut to ``dim``.
        compression: of the Parquet files.
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

    @property
    def id_field(self) -> str:
        """Name of the id column in the output."""
        return self.id_column or ("row" if self.id_kind == "row" else "id")


@dataclass(frozen=True)
class Limits:
    """What stops a run though every part can be embedded; the bytes do not depend on it.

    Attributes:
        max_rejected: most rows that may be unreadable; None: any number.
        on_duplicate_id: whether an id that is null or repeated is to ``fail`` or be kept, and counted.
        reading: what is read of an input at most.
    """

    max_rejected: int | None = None
    on_duplicate_id: OnDuplicateId = "fail"
    reading: TableLimits = DEFAULT_TABLE_LIMITS


DEFAULT_LIMITS = Limits()


def check_settings(settings: Settings) -> None:
    """Raise ValueError, with what is allowed, for a setting that has another value."""
    for name in ("part_rows", "batch_size", "dim"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"`{name}` is {value}; it must be at least 1")
    choices: dict[str, Any] = {"id_kind": IdKind, "dtype": Dtype, "compression": Compression}
    for name, allowed in choices.items():
        if getattr(settings, name) not in get_args(allowed):
            raise ValueError(f"`{name}` is {getattr(settings, name)!r}; allowed: {', '.join(get_args(allowed))}")


def check_dim(settings: Settings, width: int) -> None:
    """Raise ValueError unless vectors of ``width`` numbers can be cut as ``settings.dim`` says."""
    if settings.dim is not None and settings.dim > width:
        raise ValueError(f"`dim` is {settings.dim}, but the encoder's vectors have {width} numbers; give at most that")
