"""Columns of inputs and output: texts, ids, trees, columns copied to the output, the output's schema and vectors."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.console import say
from paraembed.embedding.inputs import LOOKERS, InputFile
from paraembed.embedding.settings import CHUNK_TEXTS, Settings
from paraembed.encoders.tables import normalized, to_int8
from paraembed.io import tables
from paraembed.io.arrow import open_arrow
from paraembed.io.escape import listed
from paraembed.io.parquet import nested_field, open_parquet
from paraembed.io.tables import json_field, json_object
from paraembed.process import in_threads

TREE_FIELD = "tree"
CHUNK_FIELDS = tuple(pa.field(name, pa.int32(), nullable=False) for name in ("chunk", "start", "end"))
"""Columns of chunks, after the id: number in the row, first character of its text and the one after the last."""
ALL = ("all",)
_ORDERED = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))  # types of stamps in strings
_LARGEST_FLOAT16 = 65_504.0


def output_fields(dtype: str) -> list[str]:
    """Return the columns that an embedding adds to those of the input."""
    return ["embedding", "n_tokens", "n_unknown", *(["scale"] if dtype == "int8" else [])]


def columns_of(source: InputFile) -> pa.Schema:
    """Return the columns of an input, and those of its Hive folders that it does not have, which are strings."""
    return _with_partitions(source, own_columns(source))


def _with_partitions(source: InputFile, schema: pa.Schema) -> pa.Schema:
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

    ``keep`` of ``("all",)`` becomes every column of any input except the id column; for JSON lines it is a ValueError.
    The stamp column is always kept.
    If no tree column is set and the encoder reads trees, the tree column is ``tree``, if an input has it as text. A
    tree column for an encoder that does not read trees is a ValueError.
    """
    if settings.tree_column is not None and not reads_trees:
        raise ValueError(
            f"`tree_column` is {settings.tree_column!r}, but the encoder does not read trees; leave it out"
        )
    if tuple(settings.keep) == ALL:
        if inputs[0].kind == "jsonl":
            known = _names(columns_of(inputs[0]), _any)
            raise ValueError(f"`keep` is all, but columns of JSON lines must be listed: {known}")
        with ThreadPoolExecutor(LOOKERS) as pool:
            names = dict.fromkeys(name for schema in pool.map(columns_of, inputs) for name in schema.names)
        replaced = [name for name in CHUNK_TEXTS if name in names and name != settings.text_column]
        if settings.has_chunks and replaced and inputs[0].kind != "text":
            raise ValueError(
                f"`keep` is all, but with chunks {replaced[0]!r} is not that column of the input; list the columns, or "
                "rename this one"
            )
        settings = replace(settings, keep=tuple(name for name in names if name != settings.id_column))
    if settings.stamp_column is not None and settings.stamp_column not in settings.keep:
        settings = replace(settings, keep=(*settings.keep, settings.stamp_column))
    is_open = reads_trees and settings.tree_column is None and settings.text_column not in {None, TREE_FIELD}
    if is_open and any(map(_has_trees, inputs)):
        return replace(settings, tree_column=TREE_FIELD)
    return settings


def check_columns(inputs: Sequence[InputFile], settings: Settings) -> None:
    """Raise ValueError if the first input lacks a column of the settings; a plan checks all inputs, but needs the
    encoder.
    """
    first = inputs[:1]
    reads_trees = settings.tree_column is not None
    try:
        carried_fields(first, complete_settings(settings, first, reads_trees))
    except ValueError:
        if len(inputs) == 1:
            raise
        carried_fields(inputs, complete_settings(settings, inputs, reads_trees))  # others may have the column


def _has_trees(source: InputFile) -> bool:
    """Return whether an input has a text column with the usual name for trees."""
    schema = columns_of(source)
    if TREE_FIELD in schema.names:
        return is_text(schema.field(TREE_FIELD).type)
    return source.kind == "jsonl" and bool(keys_found(source, [TREE_FIELD]))


def carried_fields(inputs: Sequence[InputFile], settings: Settings) -> list[pa.Field]:
    """Return the id field and the kept fields, each with the common type of the inputs (``_common``). Raise ValueError
    if a column is missing, has a wrong type, or would appear twice in the output; a kept column may be missing in some
    inputs.
    """
    if len(inputs) == 1 and inputs[0].carried:
        return list(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(inputs[0].carried))))
    common, _ = _common_fields(inputs, settings)
    return common


def _check_names(inputs: Sequence[InputFile], settings: Settings) -> None:
    """Raise ValueError if a column or an id would appear twice in the output."""
    of_chunks = [field.name for field in CHUNK_FIELDS if settings.has_chunks]
    names = [settings.id_field, *of_chunks, *settings.keep, *output_fields(settings.dtype)]
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


def _common_fields(
    inputs: Sequence[InputFile], settings: Settings
) -> tuple[list[pa.Field], list[list[pa.Field | None]]]:
    """Return the common fields, and the fields of each input; the errors are those of ``carried_fields``."""
    _check_names(inputs, settings)
    own = in_threads(lambda file: _fields(file, settings, may_lack=len(inputs) > 1), inputs, LOOKERS)
    for name, of_files in zip([settings.id_field, *settings.keep], zip(*own, strict=True), strict=True):
        if all(field is None for field in of_files):
            _column(inputs[0], columns_of(inputs[0]), "`keep`", name, _any)  # raises
    return [_common(inputs, of_files) for of_files in zip(*own, strict=True)], own


def with_common_fields(
    inputs: Sequence[InputFile], settings: Settings, columns: pa.Schema | None = None
) -> tuple[InputFile, ...]:
    """Return the inputs, with ``carried`` if the columns to carry differ between them, or from those of an output to
    which they are added; say so. The errors are those of ``carried_fields``, and a ValueError if the output needs a
    column that an input lacks.
    """
    common, fields = _common_fields(inputs, settings)
    if columns is not None:
        common = [columns.field(field.name) for field in common]
        for file, own in zip(inputs, fields, strict=True):
            for field, own_field in zip(common, own, strict=True):
                _check_fits(file, field, own_field)
    carried = base64.b64encode(pa.schema(common).serialize()).decode()
    differ = dict[str, str]()
    files = list[InputFile]()
    for file, own in zip(inputs, fields, strict=True):
        is_common = True
        for field, own_field in zip(common, own, strict=True):
            if own_field is None or own_field != field:
                is_common = False
                was = "missing" if own_field is None else own_field.type
                differ.setdefault(field.name, f"{field.name} is {field.type} ({was} in {file.name})")
        files.append(file if is_common else replace(file, carried=carried))
    if differ:
        say(f"columns differ between the inputs; in the output {listed([*differ.values()])}")
    return tuple(files)


def _check_fits(file: InputFile, field: pa.Field, own: pa.Field | None) -> None:
    """Raise ValueError if a column does not fit that of an output; integers are checked when converted."""
    if not field.nullable and (own is None or own.nullable):
        raise ValueError(f"{file.shown}: column {field.name!r} may be null, but is not in the output")
    if own is None or (pa.types.is_integer(own.type) and pa.types.is_integer(field.type)):
        return
    kinds = [_plain(kind) for kind in (field.type, _common((file, file), (field, own)).type)]
    if str(kinds[0]).removeprefix("large_") != str(kinds[1]).removeprefix("large_"):
        raise ValueError(
            f"{file.shown}: column {field.name!r} is {own.type}, but {field.type} in the output; convert it"
        )


def _common(inputs: Sequence[InputFile], of_files: Sequence[pa.Field | None]) -> pa.Field:
    """Return the common field of a column; raise ValueError if two types of the files have none."""
    known = [(field, file) for field, file in zip(of_files, inputs, strict=True) if field is not None]
    first = {field.type: (field, file) for field, file in reversed(known)}
    common, _ = known[0]
    if len(first) > 1:
        plain = {kind: field.with_type(_plain(kind)) for kind, (field, _) in first.items()}
        common = plain[common.type]
        for kind, (_, file) in first.items():
            try:
                schemas = [pa.schema([common]), pa.schema([plain[kind]])]
                common = pa.unify_schemas(schemas, promote_options="permissive").field(0)
            except (pa.ArrowTypeError, pa.ArrowInvalid):
                raise ValueError(
                    f"{file.shown}: column {common.name!r} is {kind}, but {known[0][0].type} in {known[0][1].shown}; "
                    "convert one of the files, or embed them separately"
                ) from None
    return common.with_nullable(common.nullable or len(known) < len(inputs))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values, and string for views of strings; else the type."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.string() if pa.types.is_string_view(kind) else kind


def _repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs twice, or None."""
    counts = Counter(names)
    return next((name for name, count in counts.items() if count > 1), None)


def _fields(source: InputFile, settings: Settings, *, may_lack: bool) -> list[pa.Field | None]:
    """Return the id field and the kept fields of an input; None for a kept column that it lacks."""
    id_field = pa.field(settings.id_field, pa.int64() if settings.id_kind == "row" else pa.string(), nullable=False)
    if source.kind == "text":
        _check_text(source, settings)
        return [id_field, *(pa.field(name, pa.string()) for name in settings.keep)]
    own = own_columns(source)
    schema = _with_partitions(source, own)
    if not settings.text_columns:
        raise ValueError(f"{source.shown} needs `text_column`; allowed: {_names(own, is_text)}")
    if source.kind == "jsonl":  # keys are read from all rows, see ``check_keys``
        id_field = pa.field(settings.id_column, pa.string()) if settings.id_column is not None else id_field
        return [id_field, *(pa.field(name, pa.string()) for name in settings.keep)]
    for name in settings.text_columns:
        _column(source, schema, _text_option(settings), name, is_texts if settings.explode else is_text)
    if settings.tree_column is not None:
        _column(source, own, "`tree_column`", settings.tree_column, is_text)
    if settings.id_column is not None:
        id_field = _column(source, schema, "`id_column`", settings.id_column, is_id)
    if settings.stamp_column is not None and has_field(schema, settings.stamp_column):
        _column(source, schema, "`stamp_column`", settings.stamp_column, is_stamp)
    of_input = dict[str, pa.Field | None]()
    for name in settings.kept_columns:
        is_lacking = may_lack and not has_field(schema, name)
        of_input[name] = None if is_lacking else _column(source, schema, "`keep`", name, _any)
    return [id_field, *(of_input.get(name, pa.field(name, pa.string())) for name in settings.keep)]


def _text_option(settings: Settings) -> str:
    if settings.explode:
        return "with `explode`, `text_column`"
    return "`text_column`" if settings.text is None else "`text`"


def _check_text(source: InputFile, settings: Settings) -> None:
    columns = {"text": settings.text_column, "id": settings.id_column, "tree": settings.tree_column}
    options = {"`text`": settings.text} | {f"`{name}_column`": column for name, column in columns.items()}
    options["`explode`"] = "true" if settings.explode else None
    for option, column in options.items():
        if column is not None:
            raise ValueError(f"{option} is {column!r}, but {source.shown} is text without columns; leave it out")
    schema = columns_of(source)
    if not {*settings.kept_columns} <= {*schema.names}:
        known = _names(schema, _any)
        raise ValueError(f"`keep` is {listed(settings.keep)}, but {source.shown} is text; it can be: {known}")


def _column(
    source: InputFile, schema: pa.Schema, option: str, name: str, allowed: Callable[[pa.DataType], bool]
) -> pa.Field:
    if not has_field(schema, name):
        raise ValueError(f"{source.shown} has no column {name!r}; {option} can be: {_names(schema, allowed)}")
    field = nested_field(schema, name)
    kind = _plain(field.type) if allowed is is_id or pa.types.is_string_view(field.type) else field.type
    if not allowed(kind):
        remedy = ", or leave out `explode`" if allowed is is_texts else ""
        raise ValueError(f"{source.shown}: {option} {name!r} is {kind}; it can be: {_names(schema, allowed)}{remedy}")
    return pa.field(name, kind)


def has_field(schema: pa.Schema, name: str) -> bool:
    """Return whether a schema has a column, or a field of a struct with this path."""
    return name in schema.names or ("." in name and any(field.name == name for field in _below(schema)))


def _names(schema: pa.Schema, allowed: Callable[[pa.DataType], bool]) -> str:
    fields = schema if allowed is _any else _below(schema)
    return listed([field.name for field in fields if allowed(field.type)]) or "none of its columns"


def _below(fields: Iterable[pa.Field], path: str = "") -> Iterator[pa.Field]:
    """Yield the fields and those in structs, by their paths."""
    for field in fields:
        yield field.with_name(f"{path}{field.name}")
        if pa.types.is_struct(field.type):
            yield from _below(field.type, f"{path}{field.name}.")


def check_keys(inputs: Sequence[InputFile], settings: Settings, *, skip_bad: bool = False) -> None:
    """Raise ValueError if no row of JSON lines has a key that the settings name: one of texts in each file, any other
    in some file. Rows are read until all keys are found; with ``skip_bad``, files that cannot be read are left to the
    plan.
    """
    named = [("`tree_column`", settings.tree_column), ("`id_column`", settings.id_column)]
    if any(file.columns for file in inputs):  # else they have no rows, or all are rejected
        named += [(_text_option(settings), name) for name in settings.text_columns]
    named += [("`keep`", name) for name in settings.kept_columns]
    options = {name: option for option, name in named if name is not None}
    missing = options.keys() - {key for file in inputs for key in (*file.columns, *file.partitions)}
    for file in inputs:
        texts = {*settings.text_columns}
        try:
            present = keys_found(file, missing if texts & {*file.columns} else texts | missing)
        except (OSError, ValueError):
            if skip_bad:
                continue
            raise
        if not texts & {*file.columns, *present} and file.columns:
            raise _no_key(file, _text_option(settings), settings.text_columns[0])
        missing -= present
    for name in sorted(missing):
        raise _no_key(inputs[0], options[name], name)


def _no_key(file: InputFile, option: str, key: str) -> ValueError:
    known = listed(file.columns) or "none of the keys of its first rows"
    return ValueError(f"{file.shown} has no column {key!r}; {option} can be: {known}")


def keys_found(source: InputFile, keys: Collection[str]) -> set[str]:
    """Return which of the keys occur in a JSON lines file; it is read until all are found."""
    names = {name for key in keys for name in (key, key.split(".")[0])}
    forms = [b"\\", *(json.dumps(name, ensure_ascii=False).encode("utf-8", "replace") for name in names)]
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
                missing -= {
                    key for key in missing if isinstance(value, dict) and json_field(value, key, ALL) is not ALL
                }
                if not missing:
                    return set(keys)
    return set(keys) - missing


def _any(_: pa.DataType) -> bool:
    return True


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains texts: strings, bytes that are UTF-8, or lists of these."""
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_text(kind.value_type)
    names = "string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null"
    return str(kind) in names


def is_texts(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains lists of texts."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return pa.types.is_null(kind) or (is_list and is_text(kind.value_type))


def is_id(kind: pa.DataType) -> bool:
    """Return whether a column of this type can identify rows: integers, also as float, strings, times, decimals, bytes
    of fixed length, UUIDs, and dictionaries of these.
    """
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else _plain(kind)
    of = pa.types
    tests = (of.is_integer, of.is_string, of.is_large_string, of.is_floating, of.is_decimal, of.is_fixed_size_binary)
    return any(test(kind) for test in (*tests, of.is_timestamp, of.is_date, of.is_time))


def is_stamp(kind: pa.DataType) -> bool:
    """Return whether the values of a column of this type can be ordered as versions: numbers, times, strings."""
    kind, of = _plain(kind), pa.types
    tests = (of.is_integer, of.is_float32, of.is_float64, of.is_decimal, of.is_string, of.is_large_string)
    return any(test(kind) for test in (*tests, of.is_timestamp, of.is_date, of.is_time))


def ordered_stamps(stamps: Any, name: str) -> Any:
    """Return an array of stamps [n] as values that can be ordered: strings as numbers or times; raise ValueError if
    they are neither, or not all of one kind.
    """
    kind = stamps.type.value_type if pa.types.is_dictionary(stamps.type) else stamps.type
    stamps = stamps.cast(kind)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return stamps
    stamps = pc.if_else(pc.equal(stamps, ""), pa.scalar(None, kind), stamps)  # of CSV
    for target in _ORDERED:
        if (ordered := _as_type(stamps, target)) is not None:
            return ordered
    values = pc.unique(stamps.drop_null()).to_pylist()
    odd = [value for value in values if all(_as_type(pa.array([value]), target) is None for target in _ORDERED)]
    raise ValueError(
        f"`stamp_column` {name!r}: {f'{odd[0][:60]!r} is neither a number nor a time' if odd else 'mixed strings'}; "
        "strings must all be numbers, or all times such as 2026-11-27T12:00:00, all with or all without an offset"
    )


def _as_type(values: Any, kind: pa.DataType) -> Any:
    """Return an array of strings as another type, or None if some are not of it."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None


def embeddings_schema(
    id_field: pa.Field, kept_fields: Sequence[pa.Field], width: int, dtype: str = "float32", format_number: int = 3
) -> pa.Schema:
    """Return the schema of an embeddings file that jobs/embed.py writes, with vectors of length ``width``; one row per
    text. int8 adds a column ``scale``: vector = scale · embedding. The numbers are not null, as ClickHouse's functions
    of vectors need it; format 2 does not say so.
    """
    scale = [pa.field("scale", pa.float32(), nullable=False)] if dtype == "int8" else []
    return pa.schema(
        [
            id_field,
            *kept_fields,
            # zeros for a text without tokens
            pa.field("embedding", _vectors_type(width, dtype, format_number), nullable=False),
            *scale,
            pa.field("n_tokens", pa.int32(), nullable=False),
            pa.field("n_unknown", pa.int32(), nullable=False),  # tokens that are not in the vocabulary
        ]
    )


def _vectors_type(width: int, dtype: str, format_number: int) -> pa.FixedSizeListType:
    number = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[dtype]
    element = number if format_number == 2 else pa.field("element", number, nullable=False)
    return pa.list_(element, width)


def finish(
    vectors_NH: npt.NDArray[np.float32], settings: Settings, format_number: int = 3
) -> tuple[list[pa.Array], int]:
    """Truncate, normalize and convert vectors [n, H], each row by itself. Return the columns ``embedding`` [n, width]
    and, for int8, ``scale`` float32 [n]; and the number of rows with a number outside of the float16 range, which is
    clipped.
    """
    vectors = vectors_NH[:, : settings.dim]
    if settings.normalize:
        vectors = normalized(vectors)
    kind = _vectors_type(vectors.shape[1], settings.dtype, format_number)
    if settings.dtype == "float32":
        return [_vectors_column(vectors, kind)], 0
    if settings.dtype == "float16":
        clipped = (np.abs(vectors) > _LARGEST_FLOAT16).any(axis=1)
        halves = np.clip(vectors, -_LARGEST_FLOAT16, _LARGEST_FLOAT16).astype(np.float16)
        return [_vectors_column(halves, kind)], int(clipped.sum())
    steps, scale = to_int8(vectors)
    return [_vectors_column(steps, kind), pa.array(scale)], 0


def _vectors_column(
    numbers: npt.NDArray[np.float32 | np.float16 | np.int8], kind: pa.FixedSizeListType
) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(numbers).reshape(-1)), type=kind)
