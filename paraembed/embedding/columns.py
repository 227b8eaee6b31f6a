"""Which columns of the inputs go where: texts, ids, trees, and what is carried to the output."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.data.parquet import READ_BYTES, unreadable
from paraembed.embedding.inputs import TEXT_FIELD, InputFile, locate
from paraembed.embedding.settings import Settings

ROW_FIELD, TREE_FIELD = "row", "tree"
OUTPUT_FIELDS = ("embedding", "n_tokens", "n_unknown")
SCALE_FIELD = "scale"
ALL = ("all",)


@contextmanager
def open_parquet(source: InputFile, in_dictionary: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Open a Parquet input; the columns ``in_dictionary``, of strings, are read as dictionary arrays.

    Raises:
        ValueError: it cannot be read; said also when a read inside of the block fails.
    """
    filesystem, path = locate(source.path)
    try:
        with (
            filesystem.open_input_file(path) as raw,
            pq.ParquetFile(raw, buffer_size=READ_BYTES, read_dictionary=list(in_dictionary)) as file,
        ):
            yield file
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # the disk's fault, not the file's
            raise
        raise unreadable(source.shown, error) from None


def columns_of(source: InputFile) -> pa.Schema:
    """The columns of an input. Other kinds than Parquet have texts alone."""
    if source.kind != "parquet":
        return pa.schema([(name, pa.string()) for name in source.columns])
    with open_parquet(source) as file:
        return file.schema_arrow


def complete_settings(settings: Settings, inputs: Sequence[InputFile], reads_trees: bool) -> Settings:
    """Settings with the columns that are meant.

    ``keep`` of ``("all",)`` becomes every column of the first input but the id column. Where no tree column is named
    and the encoder reads trees, it is ``tree``, if an input has it as text.

    Raises:
        ValueError: a tree column is named, but the encoder reads no trees; all columns of JSON lines.
    """
    if settings.tree_column is not None and not reads_trees:
        raise ValueError(f"--tree-column is {settings.tree_column!r}, but the encoder reads no trees; leave it out")
    if settings.keep == ALL:
        schema = columns_of(inputs[0])
        if inputs[0].kind == "jsonl":
            said = _said(schema, _any)
            raise ValueError(f"--keep all needs columns that the file declares; of JSON lines name them: {said}")
        settings = replace(settings, keep=tuple(name for name in schema.names if name != settings.id_column))
    if reads_trees and settings.tree_column is None and settings.text_column not in {None, TREE_FIELD}:
        schemas = map(columns_of, inputs)
        if any(TREE_FIELD in schema.names and _is_text(schema.field(TREE_FIELD).type) for schema in schemas):
            return replace(settings, tree_column=TREE_FIELD)
    return settings


def carried_fields(inputs: Sequence[InputFile], settings: Settings) -> list[pa.Field]:
    """The id field and the kept ones, with the types that they have in the inputs.

    Raises:
        ValueError: columns that do not fit the inputs, or each other.
    """
    made = (*OUTPUT_FIELDS, SCALE_FIELD) if settings.dtype == "int8" else OUTPUT_FIELDS
    names = [settings.id_field, *settings.keep]
    for name in names:
        if names.count(name) > 1 or name in made:
            raise ValueError(f"column {name!r} would stand twice in the output ({', '.join([*names, *made])})")
    if settings.id_kind == "file-row":
        if settings.id_column is not None:
            raise ValueError(f"--id-kind file-row makes ids, --id-column {settings.id_column!r} names them; give one")
        names = [file.name for file in inputs]
        if twice := [name for at, name in enumerate(names) if name in names[:at]]:
            raise ValueError(f"two inputs are called {twice[0]!r}, so their file:row ids would be; give their folder")
    fields = [_fields(file, settings) for file in inputs]
    for file, others in zip(inputs, fields, strict=True):
        for field, first in zip(others, fields[0], strict=True):
            if field != first:
                raise ValueError(
                    f"{file.shown}: column {field.name!r} is {field.type}, but {first.type} in {inputs[0].shown}; "
                    "give the files one type, or embed them apart"
                )
    return fields[0]


def _fields(source: InputFile, settings: Settings) -> list[pa.Field]:
    id_field = pa.field(settings.id_field, pa.int64() if settings.id_kind == "row" else pa.string(), nullable=False)
    if source.kind == "text":
        _check_text(source, settings)
        return [id_field, *(pa.field(name, pa.string()) for name in settings.keep)]
    schema = columns_of(source)
    if settings.text_column is None:
        raise ValueError(f"{source.shown} needs --text-column, one of: {_said(schema, _is_text)}")
    _column(source, schema, "--text-column", settings.text_column, _is_text)
    if settings.tree_column is not None:
        _column(source, schema, "--tree-column", settings.tree_column, _is_text)
    if settings.id_column is not None:
        id_field = _column(source, schema, "--id-column", settings.id_column, is_id)
    return [id_field, *(_column(source, schema, "--keep", name, _any) for name in settings.keep)]


def _check_text(source: InputFile, settings: Settings) -> None:
    columns = {"text": settings.text_column, "id": settings.id_column, "tree": settings.tree_column}
    for flag, column in ((f"--{name}-column", column) for name, column in columns.items()):
        if column is not None:
            raise ValueError(f"{flag} is {column!r}, but {source.shown} is text without columns; leave it out")
    if settings.keep not in ((), (TEXT_FIELD,)):
        raise ValueError(f"--keep is {' '.join(settings.keep)}; a text file has the column {TEXT_FIELD!r} alone")


def _column(
    source: InputFile, schema: pa.Schema, flag: str, name: str, allowed: Callable[[pa.DataType], bool]
) -> pa.Field:
    at = schema.get_field_index(name)
    if at < 0:
        raise ValueError(f"{source.shown} has no column {name!r}; {flag} can be: {_said(schema, allowed)}")
    kind = schema.field(at).type
    if not allowed(kind):
        raise ValueError(f"{source.shown}: {flag} {name!r} is {kind}; it can be: {_said(schema, allowed)}")
    return pa.field(name, kind)


def _said(schema: pa.Schema, allowed: Callable[[pa.DataType], bool]) -> str:
    return ", ".join(field.name for field in schema if allowed(field.type)) or "none of its columns"


def _any(_: pa.DataType) -> bool:
    return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or (pa.types.is_dictionary(kind) and _is_text(kind.value_type))
    )


def is_id(kind: pa.DataType) -> bool:
    """Whether a column of this type can identify rows."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))
