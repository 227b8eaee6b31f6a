"""Columns of inputs and output: texts, ids, trees, columns copied to the output, the output's schema and vectors."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.embedding.inputs import InputFile
from paraembed.embedding.settings import Settings
from paraembed.encoders.tables import normalized, to_int8
from paraembed.io import tables
from paraembed.io.arrow import open_arrow
from paraembed.io.escape import listed
from paraembed.io.parquet import open_parquet
from paraembed.io.tables import json_object

TREE_FIELD = "tree"
ALL = ("all",)
_LARGEST_FLOAT16 = 65_504.0


def output_fields(dtype: str) -> list[str]:
    """Return the columns that an embedding adds to those of the input."""
    return ["embedding", "n_tokens", "n_unknown", *(["scale"] if dtype == "int8" else [])]


def columns_of(source: InputFile) -> pa.Schema:
    """Return the columns of an input, and those of its Hive folders that it does not have, which are strings."""
    schema = own_columns(source)
    return pa.schema(
        [*schema, *(pa.field(name, pa.string()) for name in source.partitions if name not in schema.names)]
    )


def own_columns(source: InputFile) -> pa.Schema:
    """Return the columns in an input file; all columns are strings unless it is Parquet or Arrow."""
    if source.kind == "arrow":
        with open_arrow(source.place) as reader:
            return reader.schema
    if source.kind != "parquet":
        return pa.schema([(name, pa.string()) for name in source.columns if name or source.columns.count(name) == 1])
    with open_parquet(source.place, state=source.state) as file:
        return file.schema_arrow


def complete_settings(settings: Settings, inputs: Sequence[InputFile], reads_trees: bool) -> Settings:
    """Return settings with ``keep`` and ``tree_column`` resolved to columns of the inputs.

    ``keep`` of ``("all",)`` becomes every column of the first input except the id column; for JSON lines it is a
    ValueError. If no tree column is set and the encoder reads trees, the tree column is ``tree``, if an input has it as
    text. A tree column for an encoder that does not read trees is a ValueError.
    """
    if settings.tree_column is not None and not reads_trees:
        raise ValueError(
            f"`tree_column` is {settings.tree_column!r}, but the encoder does not read trees; leave it out"
        )
    if settings.keep == ALL:
        schema = columns_of(inputs[0])
        if inputs[0].kind == "jsonl":
            known = _names(schema, _any)
            raise ValueError(f"`keep` is all, but columns of JSON lines must be listed: {known}")
        settings = replace(settings, keep=tuple(name for name in schema.names if name != settings.id_column))
    is_open = reads_trees and settings.tree_column is None and settings.text_column not in {None, TREE_FIELD}
    if is_open and any(map(_has_trees, inputs)):
        return replace(settings, tree_column=TREE_FIELD)
    return settings


def check_columns(inputs: Sequence[InputFile], settings: Settings) -> None:
    """Raise ValueError if the first input lacks a column of the settings; a plan checks all inputs, but needs the
    encoder.
    """
    first = inputs[:1]
    carried_fields(first, complete_settings(settings, first, reads_trees=settings.tree_column is not None))


def _has_trees(source: InputFile) -> bool:
    """Return whether an input has a text column with the usual name for trees."""
    schema = columns_of(source)
    if TREE_FIELD in schema.names:
        return is_text(schema.field(TREE_FIELD).type)
    return source.kind == "jsonl" and bool(keys_found(source, [TREE_FIELD]))


def carried_fields(inputs: Sequence[InputFile], settings: Settings) -> list[pa.Field]:
    """Return the id field and the kept fields, with their types in the inputs. Raise ValueError if a column is missing,
    has a wrong type, or would appear twice in the output.
    """
    names = [settings.id_field, *settings.keep, *output_fields(settings.dtype)]
    if repeated := _repeated(names):
        raise ValueError(f"column {repeated!r} would appear twice in the output ({listed(names)}); leave one out")
    if settings.id_kind == "file-row":
        if settings.id_column is not None:
            raise ValueError(f"`id_kind` is file-row and `id_column` is {settings.id_column!r}; give only one of them")
        if repeated := _repeated([file.name for file in inputs]):
            raise ValueError(
                f"two inputs are called {repeated!r}, so their file:row ids would be equal; give their common folder "
                "as input"
            )
    fields = [_fields(file, settings) for file in inputs]
    for file, others in zip(inputs, fields, strict=True):
        for field, first in zip(others, fields[0], strict=True):
            if field != first:
                raise ValueError(
                    f"{file.shown}: column {field.name!r} is {field.type}, but {first.type} in {inputs[0].shown}; "
                    "convert one of the files, or embed them separately"
                )
    return fields[0]


def _repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs twice, or None."""
    counts = Counter(names)
    return next((name for name, count in counts.items() if count > 1), None)


def _fields(source: InputFile, settings: Settings) -> list[pa.Field]:
    id_field = pa.field(settings.id_field, pa.int64() if settings.id_kind == "row" else pa.string(), nullable=False)
    if source.kind == "text":
        _check_text(source, settings)
        return [id_field, *(pa.field(name, pa.string()) for name in settings.keep)]
    schema, own = columns_of(source), own_columns(source)
    if settings.text_column is None:
        raise ValueError(f"{source.shown} needs `text_column`; allowed: {_names(own, is_text)}")
    if source.kind == "jsonl":  # keys are read from all rows, see ``check_keys``
        id_field = pa.field(settings.id_column, pa.string()) if settings.id_column is not None else id_field
        return [id_field, *(pa.field(name, pa.string()) for name in settings.keep)]
    _column(source, own, "`text_column`", settings.text_column, is_text)
    if settings.tree_column is not None:
        _column(source, own, "`tree_column`", settings.tree_column, is_text)
    if settings.id_column is not None:
        id_field = _column(source, schema, "`id_column`", settings.id_column, is_id)
    return [id_field, *(_column(source, schema, "`keep`", name, _any) for name in settings.keep)]


def _check_text(source: InputFile, settings: Settings) -> None:
    columns = {"text": settings.text_column, "id": settings.id_column, "tree": settings.tree_column}
    for option, column in ((f"`{name}_column`", column) for name, column in columns.items()):
        if column is not None:
            raise ValueError(f"{option} is {column!r}, but {source.shown} is text without columns; leave it out")
    schema = columns_of(source)
    if not {*settings.keep} <= {*schema.names}:
        known = _names(schema, _any)
        raise ValueError(f"`keep` is {listed(settings.keep)}, but {source.shown} is text; it can be: {known}")


def _column(
    source: InputFile, schema: pa.Schema, option: str, name: str, allowed: Callable[[pa.DataType], bool]
) -> pa.Field:
    index = schema.get_field_index(name)
    if index < 0:
        raise ValueError(f"{source.shown} has no column {name!r}; {option} can be: {_names(schema, allowed)}")
    kind = schema.field(index).type
    kind = pa.string() if pa.types.is_string_view(kind) else kind  # see ``rows._mended``
    if not allowed(kind):
        raise ValueError(f"{source.shown}: {option} {name!r} is {kind}; it can be: {_names(schema, allowed)}")
    return pa.field(name, kind)


def _names(schema: pa.Schema, allowed: Callable[[pa.DataType], bool]) -> str:
    return listed([field.name for field in schema if allowed(field.type)]) or "none of its columns"


def check_keys(inputs: Sequence[InputFile], settings: Settings) -> None:
    """Raise ValueError if no row of JSON lines has a key that the settings name: the text key in each file, another one
    in any file. Rows are read until all keys are found.
    """
    named = [("`tree_column`", settings.tree_column), ("`id_column`", settings.id_column)]
    named += [("`keep`", name) for name in settings.keep]
    options = {name: option for option, name in named if name is not None}
    missing = options.keys() - {key for file in inputs for key in (*file.columns, *file.partitions)}
    for file in inputs:
        text = {settings.text_column or ""} - {*file.columns}
        present = keys_found(file, text | missing)
        if text - present:
            raise _no_key(file, "`text_column`", *text)
        missing -= present
    for name in sorted(missing):
        raise _no_key(inputs[0], options[name], name)


def _no_key(file: InputFile, option: str, key: str) -> ValueError:
    known = listed(file.columns) or "none of the keys of its first rows"
    return ValueError(f"{file.shown} has no column {key!r}; {option} can be: {known}")


def keys_found(source: InputFile, keys: Collection[str]) -> set[str]:
    """Return which of the keys occur in a JSON lines file; it is read until all are found."""
    forms = [b"\\", *(json.dumps(key, ensure_ascii=False).encode("utf-8", "replace") for key in keys)]
    missing = set(keys)
    if not missing:
        return set()
    for records in source.cut_records():
        if not any(form in records.data for form in forms):  # a key is written as it is, or with a backslash
            continue
        for start, stop in pairwise([0, *records.ends.tolist()]):
            line = records.data[start:stop]
            if any(form in line for form in forms):
                value = json_object(line.removeprefix(tables.BYTE_ORDER_MARK).decode("utf-8", "replace"))
                missing -= set(value if isinstance(value, dict) else ())
                if not missing:
                    return set(keys)
    return set(keys) - missing


def _any(_: pa.DataType) -> bool:
    return True


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains texts."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or (pa.types.is_dictionary(kind) and is_text(kind.value_type))
    )


def is_id(kind: pa.DataType) -> bool:
    """Return whether a column of this type can identify rows."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def embeddings_schema(
    id_field: pa.Field, kept_fields: Sequence[pa.Field], width: int, dtype: str = "float32"
) -> pa.Schema:
    """Return the schema of an embeddings file that jobs/embed.py writes, with vectors of length ``width``; one row per
    text. int8 adds a column ``scale``: vector = scale · embedding.
    """
    number = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[dtype]
    scale = [pa.field("scale", pa.float32(), nullable=False)] if dtype == "int8" else []
    return pa.schema(
        [
            id_field,
            *kept_fields,
            pa.field("embedding", pa.list_(number, width), nullable=False),  # zeros for a text without tokens
            *scale,
            pa.field("n_tokens", pa.int32(), nullable=False),
            pa.field("n_unknown", pa.int32(), nullable=False),  # tokens that are not in the vocabulary
        ]
    )


def finish(vectors_NH: npt.NDArray[np.float32], settings: Settings) -> tuple[list[pa.Array], int]:
    """Truncate, normalize and convert vectors [n, H], each row by itself. Return the columns ``embedding`` [n, width]
    and, for int8, ``scale`` float32 [n]; and the number of rows with a number outside of the float16 range, which is
    clipped.
    """
    vectors = vectors_NH[:, : settings.dim]
    if settings.normalize:
        vectors = normalized(vectors)
    if settings.dtype == "float32":
        return [_vectors_column(vectors)], 0
    if settings.dtype == "float16":
        clipped = (np.abs(vectors) > _LARGEST_FLOAT16).any(axis=1)
        halves = np.clip(vectors, -_LARGEST_FLOAT16, _LARGEST_FLOAT16).astype(np.float16)
        return [_vectors_column(halves)], int(clipped.sum())
    steps, scale = to_int8(vectors)
    return [_vectors_column(steps), pa.array(scale)], 0


def _vectors_column(numbers: npt.NDArray[np.float32 | np.float16 | np.int8]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(numbers).reshape(-1)), numbers.shape[1])
