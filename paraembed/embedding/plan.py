"""Cut input files into parts: by rows and bytes alone, never by workers, so that any number of them can go on.

A part is a run of whole lines (text) or of whole row groups (Parquet). A gzipped text cannot be entered in the middle:
its parts are byte ranges of the decompressed stream, which one reader goes through once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.files import BinaryFile, open_binary, require_file, sha256_of

TEXT_FIELD, ROW_FIELD, TREE_FIELD = "text", "row", "tree"
OUTPUT_FIELDS = ("embedding", "n_tokens", "n_unknown")
BLOCK_BYTES = 8 << 20  # text read at a time
MAX_TEXT_BYTES = 64 << 20  # tokenising triples a text at most, and an Arrow string array holds less than 2 GiB
MAX_PART_BYTES = 64 << 20  # text of a part: what the reader of a gzipped file hands over in one piece
_LOOKED_AT = 64 << 10


@dataclass(frozen=True)
class InputFile:
    """An input file as it was when the plan was made.

    Attributes:
        path: absolute.
        size: bytes on disk.
        sha256: of the bytes on disk.
    """

    path: str
    size: int
    sha256: str

    @property
    def is_text(self) -> bool:
        """One text a line, else Parquet."""
        return not self.path.endswith(".parquet")

    @property
    def is_chain(self) -> bool:
        """Gzipped: readable from the start only."""
        return self.path.endswith(".gz")


@dataclass(frozen=True)
class Settings:
    """What the user chose and the output's bytes depend on.

    Attributes:
        text_column: column with the texts; None for text files.
        id_column: column that identifies a row; None numbers the rows of all files from 0 in ``row``.
        keep: columns carried to the output; for text files ``text`` or nothing.
        part_rows: rows a part.
        batch_size: rows encoded at a time; can change the last bits of a vector, through the order of sums.
        tree_column: column with the trees of the texts, null where there is none; None: no text has one.
    """

    text_column: str | None = None
    id_column: str | None = None
    keep: tuple[str, ...] = ()
    part_rows: int = 100_000
    batch_size: int = 32_768
    tree_column: str | None = None

    @property
    def id_field(self) -> str:
        """Name of the id column in the output."""
        return self.id_column or ROW_FIELD


@dataclass(frozen=True)
class Part:
    """One output file and where its rows come from.

    Attributes:
        name: of the output file.
        file: position in the plan's inputs.
        start: first byte (of the decompressed text) or row group.
        stop: the byte or row group after the last.
        rows: rows from ``start`` to ``stop``.
        row: number of the first row, counted over all inputs from 0.
        line: number of the first row in its file, from 1.
    """

    name: str
    file: int
    start: int
    stop: int
    rows: int
    row: int
    line: int


@dataclass(frozen=True)
class Plan:
    """Inputs, settings and parts, in the order of the rows."""

    inputs: tuple[InputFile, ...]
    settings: Settings
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)


def plan_from_json(value: dict[str, Any]) -> Plan:
    """The plan that ``Plan.to_json`` wrote.

    Raises:
        ValueError: a field is missing or unknown, or a part's name is not its place in the plan.
    """
    try:
        settings = Settings(**{**value["settings"], "keep": tuple(value["settings"]["keep"])})
        plan = Plan(
            tuple(InputFile(**file) for file in value["inputs"]),
            settings,
            tuple(Part(**part) for part in value["parts"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a plan of this version: {error}") from None
    for number, part in enumerate(plan.parts):
        if part.name != part_name(number, len(plan.parts)):
            raise ValueError(f"part {number} of {len(plan.parts)} is called {part.name!r}")
    return plan


def part_name(number: int, count: int) -> str:
    """File name of part ``number``, counted from 0, of ``count``."""
    return f"part-{number:05d}-of-{count:05d}.parquet"


def list_inputs(paths: Sequence[Path]) -> tuple[InputFile, ...]:
    """Look at input files: there, of one known kind, not empty, not binary.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: a file that cannot be an input, and what can.
    """
    if not paths:
        raise ValueError("no input file is given; expected one or several of .txt, .txt.gz or .parquet")
    files = []
    for path in paths:
        _check_input(path)
        files.append(InputFile(str(path.absolute()), path.stat().st_size, sha256_of(path)))
    repeated = [file.path for at, file in enumerate(files) if file.path in [other.path for other in files[:at]]]
    if repeated:
        raise ValueError(f"{repeated[0]} is given twice; give every input once")
    if len({file.is_text for file in files}) > 1:
        raise ValueError("text and Parquet inputs are mixed; embed them in two runs, each with its own --out")
    return tuple(files)


def _check_input(path: Path) -> None:
    require_file(path)
    if not path.name.endswith((".txt", ".txt.gz", ".parquet")):
        raise ValueError(f"{path}: unknown kind of file; expected .txt or .txt.gz (one text a line) or .parquet")
    with open_binary(path) as file:
        head = file.read(_LOOKED_AT)
    if not head:
        raise ValueError(f"{path} is empty; expected one text a line, or Parquet")
    if path.suffix == ".parquet":
        if not head.startswith(b"PAR1"):
            raise ValueError(f"{path} is not a Parquet file (it does not begin with PAR1); give text the suffix .txt")
    elif b"\0" in head:
        raise ValueError(f"{path} is binary (it has NUL bytes); expected UTF-8 text, one text a line")


def make_plan(inputs: tuple[InputFile, ...], settings: Settings) -> Plan:
    """Cut the inputs into parts of about ``settings.part_rows`` rows.

    Raises:
        ValueError: settings that do not fit the inputs, or a text that is too long.
    """
    for name in ("part_rows", "batch_size"):
        if getattr(settings, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {getattr(settings, name)}; it must be at least 1")
    carried_fields(inputs, settings)
    cuts = [
        (number, cut)
        for number, file in enumerate(inputs)
        for cut in (_cut_text if file.is_text else _cut_parquet)(Path(file.path), settings.part_rows)
    ]
    if not cuts:
        raise ValueError(f"{inputs[0].path} has no rows; there is nothing to embed")
    parts: list[Part] = []
    row = 0
    for at, (file, (start, stop, rows)) in enumerate(cuts):
        line = parts[-1].line + parts[-1].rows if parts and parts[-1].file == file else 1
        parts.append(Part(part_name(at, len(cuts)), file, start, stop, rows, row, line))
        row += rows
    return Plan(inputs, settings, tuple(parts))


def with_trees(settings: Settings, inputs: Sequence[InputFile], reads_trees: bool) -> Settings:
    """Settings with the tree column that is meant: where none is named, ``tree``, if a Parquet input has it as text.

    Raises:
        ValueError: a tree column is named, but the encoder reads no trees.
    """
    if not reads_trees:
        if settings.tree_column is not None:
            raise ValueError(f"--tree-column is {settings.tree_column!r}, but the encoder reads no trees; leave it out")
        return settings
    if settings.tree_column is not None or inputs[0].is_text or settings.text_column == TREE_FIELD:
        return settings
    schemas = [_schema(Path(file.path)) for file in inputs]
    if any(TREE_FIELD in schema.names and _is_text(schema.field(TREE_FIELD).type) for schema in schemas):
        return replace(settings, tree_column=TREE_FIELD)
    return settings


def line_blocks(file: IO[bytes] | BinaryFile, size: int, name: str) -> Iterator[bytes]:
    """Whole lines, about ``BLOCK_BYTES`` at a time, of the next ``size`` bytes, or fewer where the file ends.

    Raises:
        ValueError: a line that is longer than ``MAX_TEXT_BYTES``.
    """
    while size > 0:
        block = file.read(min(BLOCK_BYTES, size))
        size -= len(block)
        if not block:
            return
        if block[-1:] != b"\n" and size:
            rest = file.readline(min(size, MAX_TEXT_BYTES))
            if len(rest) == MAX_TEXT_BYTES and rest[-1:] != b"\n":
                raise ValueError(f"{name}: a line is longer than {MAX_TEXT_BYTES >> 20} MiB; expected one text a line")
            size -= len(rest)
            block += rest
        yield block


def _cut_text(path: Path, part_rows: int) -> list[tuple[int, int, int]]:
    """(start, stop, rows) of every part: ``part_rows`` lines, or fewer that reach ``MAX_PART_BYTES``."""
    cuts: list[tuple[int, int, int]] = []
    start = read = rows = 0  # bytes before the open part, bytes before the block, lines in the open part
    with open_binary(path) as file:
        for block in line_blocks(file, 1 << 62, str(path)):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + (read + 1)
            read += len(block)
            if not block.endswith(b"\n"):
                ends = np.append(ends, read)
            while len(ends):
                by_bytes = int(np.searchsorted(ends, start + MAX_PART_BYTES)) + 1
                taken = min(part_rows - rows, by_bytes)
                if taken > len(ends):
                    rows += len(ends)
                    break
                cuts.append((start, int(ends[taken - 1]), rows + taken))
                start, rows, ends = int(ends[taken - 1]), 0, ends[taken:]
    if rows:
        cuts.append((start, read, rows))
    return cuts


def _cut_parquet(path: Path, part_rows: int) -> list[tuple[int, int, int]]:
    """(start, stop, rows) of every part: row groups up to ``part_rows`` rows together, at least one."""
    footer = pq.read_metadata(path)
    cuts: list[tuple[int, int, int]] = []
    start = rows = 0
    for group in range(footer.num_row_groups):
        more = footer.row_group(group).num_rows
        if rows and rows + more > part_rows:
            cuts.append((start, group, rows))
            start, rows = group, 0
        rows += more
    if rows:
        cuts.append((start, footer.num_row_groups, rows))
    return cuts


def carried_fields(inputs: Sequence[InputFile], settings: Settings) -> list[pa.Field]:
    """The id field and the kept ones, with the types that they have in the inputs.

    Raises:
        ValueError: columns that do not fit the inputs, or each other.
    """
    names = [settings.id_field, *settings.keep]
    for name in names:
        if names.count(name) > 1 or name in OUTPUT_FIELDS:
            raise ValueError(f"column {name!r} would stand twice in the output ({', '.join([*names, *OUTPUT_FIELDS])})")
    if inputs[0].is_text:
        columns = {"text": settings.text_column, "id": settings.id_column, "tree": settings.tree_column}
        for flag, column in ((f"--{name}-column", column) for name, column in columns.items()):
            if column is not None:
                raise ValueError(f"{flag} is {column!r}, but {inputs[0].path} is text without columns; leave it out")
        if settings.keep not in ((), (TEXT_FIELD,)):
            raise ValueError(f"--keep is {' '.join(settings.keep)}; a text file has the column {TEXT_FIELD!r} alone")
        return [pa.field(ROW_FIELD, pa.int64()), *(pa.field(name, pa.string()) for name in settings.keep)]
    fields = [_parquet_fields(Path(file.path), settings) for file in inputs]
    for file, others in zip(inputs, fields, strict=True):
        for field, first in zip(others, fields[0], strict=True):
            if field != first:
                raise ValueError(
                    f"{file.path}: column {field.name!r} is {field.type}, but {first.type} in {inputs[0].path}; "
                    "give the files one type, or embed them apart"
                )
    return fields[0]


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a whole Parquet file ({str(error).splitlines()[0]}); make it again") from None


def _parquet_fields(path: Path, settings: Settings) -> list[pa.Field]:
    schema = _schema(path)
    if settings.text_column is None:
        raise ValueError(f"{path} needs --text-column, one of: {_names(schema, _is_text)}")
    _column(path, schema, "--text-column", settings.text_column, _is_text)
    if settings.tree_column is not None:
        _column(path, schema, "--tree-column", settings.tree_column, _is_text)
    fields = [pa.field(ROW_FIELD, pa.int64())]
    if settings.id_column is not None:
        fields = [_column(path, schema, "--id-column", settings.id_column, _is_id)]
    return fields + [_column(path, schema, "--keep", name, lambda _: True) for name in settings.keep]


def _column(path: Path, schema: pa.Schema, flag: str, name: str, allowed: Any) -> pa.Field:
    at = schema.get_field_index(name)
    if at < 0:
        raise ValueError(f"{path} has no column {name!r}; {flag} can be: {_names(schema, allowed)}")
    if not allowed(schema.field(at).type):
        raise ValueError(f"{path}: {flag} {name!r} is {schema.field(at).type}; it can be: {_names(schema, allowed)}")
    return pa.field(name, schema.field(at).type)


def _names(schema: pa.Schema, allowed: Any) -> str:
    return ", ".join(field.name for field in schema if allowed(field.type)) or "none of its columns"


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or (pa.types.is_dictionary(kind) and _is_text(kind.value_type))
    )


def _is_id(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))
