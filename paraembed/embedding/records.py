"""Arrow files of an output: the plan, the reports of finished parts, and the manifest's list of parts.

They are no Parquet, so that readers of a folder of Parquet files do not take them for its rows.
"""

import base64
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache, partial
from itertools import islice
from typing import Any, BinaryIO, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from paraembed.embedding.inputs import LOOKERS, InputFile
from paraembed.embedding.part import LATER_COUNTS, PartReport
from paraembed.io.arrow import numbers_of
from paraembed.io.limits import TableLimits
from paraembed.io.lines import strings_of
from paraembed.io.store import Store, read_bytes
from paraembed.options import checked, json_value

INPUTS, PIECES = "_plan/inputs-000.arrow", "_plan/parts-000.arrow"
ENTRIES = "_manifest/entries-000.arrow"
"""Files of the first generation; see ``of_generation``."""
DONE = "_done"
_REPORTS_A_FILE = 1000  # after a kill, the footers of at most as many parts are read again
_MOST_BYTES = 1 << 32  # of a file: 200 bytes a part
_BATCH_ROWS = 1 << 16
_MAGIC, _END = b"ARROW1\0\0", b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow file and of its messages
_ABOUT = b"paraembed"  # key of the JSON in a schema's metadata
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_REPORT = pa.schema(
    [(name, _TYPES.get(kind, pa.list_(pa.string()))) for name, kind in get_type_hints(PartReport).items()]
)
_LISTING = pa.schema([("name", pa.string()), ("stamp", pa.string())])
_NONE = pa.Table.from_batches([], _REPORT)  # ``empty_table`` would import pandas, 0.3 s
_INPUT = pa.schema(
    [(name, pa.int64() if name == "size" else pa.string()) for name in ("path", "name", "size", "stamp", "read_as")]
)
_SHA256 = r'"sha256": "(?P<digest>[\w-]+)"'  # in ``read_as``


def of_generation(name: str, generation: int) -> str:
    """Return the name of a generation's file, from that of the first one's."""
    return name.replace("-000.", f"-{generation:03d}.")


def arrow_bytes(table: pa.Table, about: Any = None) -> bytes:
    """Return a table as an Arrow file, with a JSON value in the metadata of its schema."""
    with io.BytesIO() as file:
        _put_arrow(table, about, file)
        return file.getvalue()


def write_arrow(store: Store, name: str, table: pa.Table, about: Any = None) -> str:
    """Write a table atomically as ``arrow_bytes`` returns it; return the SHA-256 of the file, hexadecimal."""
    store.make_folder(name.partition("/")[0])
    return store.write(name, partial(_put_arrow, table, about))


def _put_arrow(table: pa.Table, about: Any, file: BinaryIO) -> None:
    table = without_zeros(table)
    if about is not None:
        table = table.replace_schema_metadata({_ABOUT: json.dumps(about, sort_keys=True)})
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, _BATCH_ROWS)


def without_zeros(table: pa.Table) -> pa.Table:
    """Return a table without columns of ``LATER_COUNTS`` that are 0, as earlier versions wrote it."""
    zeros = [name for name in LATER_COUNTS if name in table.column_names and not pc.max(table[name]).as_py()]
    return table.drop_columns(zeros)


def listing(stamps: Iterator[tuple[str, str]]) -> pa.Table:
    """Return ``Store.stamps`` as a table of names and stamps: 0.1 KB a file."""
    batches = list[pa.RecordBatch]()
    while block := [*islice(stamps, _BATCH_ROWS)]:
        batches.append(pa.RecordBatch.from_arrays([*map(strings_of, zip(*block, strict=True))], schema=_LISTING))
    return pa.Table.from_batches(batches, _LISTING)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column without nulls as a list, those of numbers thirty times as fast as ``to_pylist``."""
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    values: list[Any] = numbers_of(column).tolist() if is_number else column.to_pylist()
    return values


def read_arrow(store: Store, name: str, schema: pa.Schema | None = None) -> tuple[pa.Table, Any]:
    """Return a table and the JSON value in its metadata. Raise FileNotFoundError if the file is missing, ValueError if
    it is damaged or has other columns than ``schema``.
    """
    try:
        table = _table_in(read_bytes(store, name, _MOST_BYTES))
        table.validate(full=True)
        about = json.loads((table.schema.metadata or {}).get(_ABOUT, b"null"))
    except (pa.ArrowException, EOFError, OSError, RecursionError, ValueError) as error:
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None):
            raise
        raise ValueError(f"{store}/{name} is damaged ({str(error).splitlines()[0][:200]})") from None
    for index, later in enumerate([] if schema is None else schema.names):
        if later in LATER_COUNTS and later not in table.column_names:
            zeros = pa.py_buffer(bytes(8 * len(table)))  # not ``pa.array``, which imports pandas
            table = table.add_column(index, later, pa.Array.from_buffers(pa.int64(), len(table), [None, zeros]))
    if schema is not None and (table.schema != schema or any(map(_has_nulls, table.columns))):
        raise ValueError(f"{store}/{name} is damaged: it has the columns {', '.join(table.schema.names)[:200]}")
    return table, about


def _table_in(data: bytes) -> pa.Table:
    """Return the table of an Arrow file that is not compressed: a few bytes could become many gigabytes."""
    if not (data.startswith(_MAGIC) and data.endswith(_MAGIC.rstrip(b"\0"))):
        raise ValueError("it is no Arrow file")
    source, batches = pa.BufferReader(memoryview(data)[len(_MAGIC) :]), list[pa.RecordBatch]()
    schema = pa.ipc.read_schema(source)
    while (start := source.tell() + len(_MAGIC)) < len(data) and data[start : start + len(_END)] != _END:
        message = pa.ipc.read_message(source)
        if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("it has dictionaries, or is compressed")
        batches.append(pa.ipc.read_record_batch(message, schema))
    return pa.Table.from_batches(batches, schema)


def _is_compressed(message: bytes) -> bool:
    """Return whether a message has a field ``compression``, the fourth of its record batch (Arrow's Message.fbs)."""

    def field_of(table: int, number: int) -> int:
        """Return where a field of a Flatbuffers table is, 0 if it is not."""
        vtable = table - int.from_bytes(message[table : table + 4], "little", signed=True)
        entry = vtable + 4 + 2 * number
        size = int.from_bytes(message[vtable : vtable + 2], "little")
        offset = int.from_bytes(message[entry : entry + 2], "little") if entry < vtable + size else 0
        return table + offset if offset else 0

    header = field_of(int.from_bytes(message[:4], "little"), 2)
    batch = header + int.from_bytes(message[header : header + 4], "little")
    return bool(field_of(batch, 3))


def _has_nulls(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count or (pa.types.is_list(column.type) and pc.list_flatten(column).null_count))


def inputs_table(inputs: Iterable[InputFile]) -> pa.Table:
    """Return a row for each input: its path, name, size and stamp, and how it is read, as JSON."""
    rows = []
    for file in inputs:
        values = file.to_json()
        own = {name: values.pop(name) for name in _INPUT.names[:-1]}
        rows.append({**own, "read_as": json.dumps(values, sort_keys=True, ensure_ascii=False)})
    return pa.Table.from_pylist(rows, _INPUT)


def inputs_of(table: pa.Table) -> tuple[InputFile, ...]:
    """Return the inputs of a table; raise ValueError if a field is missing, unknown or of another type."""
    if table.schema.remove_metadata() != _INPUT or any(map(_has_nulls, table.columns)):
        raise ValueError(f"{INPUTS} has the columns {', '.join(table.schema.names)[:200]}")
    own = dict.fromkeys(_INPUT.names[:-1], "") | {"size": 0}

    # Most inputs are read alike: their other fields are checked once.
    parsed = cache(lambda text: checked(InputFile, json_value(text.encode(), INPUTS, dict[str, Any]) | own, INPUTS))
    *columns, read_as = table.columns
    texts = pc.replace_substring_regex(read_as, _SHA256, '"sha256": ""', max_replacements=1)
    digests = pc.struct_field(pc.extract_regex(read_as, _SHA256), "digest")  # null without
    names, rows = _INPUT.names[:-1], zip(*map(values_of, (*columns, texts, digests)), strict=True)
    files = tuple(
        InputFile(**vars(parsed(text)) | dict(zip(names, values, strict=True), sha256=digest or ""))
        for *values, text, digest in rows
    )
    for encoding, carried in {(file.encoding, file.carried) for file in files}:
        TableLimits(encoding=encoding)  # raises
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(carried))) if carried else None
    if any(file.kind in {"text", "csv", "tsv"} and not (file.columns or file.fault) for file in files):
        raise ValueError(f"{INPUTS} has inputs without columns")
    return files


class Reports:
    """Reports of the finished parts of a generation, in columns: 0.4 KB a part; objects would take 1 KB. New ones are
    written for later runs, to files ``_done/000-000000.arrow`` …, about a thousand each.

    ``run`` is the digest of the run; files of another run, which an object store without locks may hold, are ignored.
    An empty one is that of format 2, which has no such files.
    """

    def __init__(self, store: Store, run: str, generation: int = 0) -> None:
        self._store, self._run, self._prefix = store, run, f"{generation:03d}-"
        self._tables, self._new = [_NONE], list[PartReport]()
        names = store.names(f"{DONE}/")
        self._names = [name for name in names if re.fullmatch(rf"{self._prefix}\d{{6}}\.arrow", name)] if run else []

    def read(self) -> pa.Table:
        """Return the reports in the files, the last one of each part; a damaged file has none."""
        with ThreadPoolExecutor(LOOKERS) as pool:
            table = pa.concat_tables([_NONE, *pool.map(self._read, self._names)])
        if pc.count_distinct(table["name"]).as_py() < len(table):
            rows = {name: row for row, name in enumerate(table["name"].to_pylist())}
            table = table.take(pa.array([*rows.values()]))
        return table

    def _read(self, name: str) -> pa.Table:
        try:
            table, run = read_arrow(self._store, f"{DONE}/{name}", _REPORT)
        except (OSError, ValueError):
            return _NONE
        return table if run == self._run else _NONE

    def keep(self, table: pa.Table) -> None:
        """Take reports of the files as those of finished parts."""
        self._tables.append(table)

    def add(self, report: PartReport) -> None:
        """Add a report, and write a file if there are enough."""
        self._new.append(report)
        if len(self._new) >= _REPORTS_A_FILE:
            self.write()

    def write(self) -> None:
        """Write the reports that are in no file yet."""
        if not self._new:
            return
        table = table_of(self._new)
        if self._run:
            number = 1 + int(self._names[-1][-12:-6]) if self._names else 0
            self._names.append(f"{self._prefix}{number:06d}.arrow")
            write_arrow(self._store, f"{DONE}/{self._names[-1]}", table, self._run)
        self._tables.append(table)
        self._new = []

    @property
    def names(self) -> pa.ChunkedArray:
        """Names of the parts, in any order."""
        return pa.concat_tables([*self._tables, table_of(self._new)])["name"]

    def table(self) -> pa.Table:
        """Write the reports, and return them as a table, in the order of the parts."""
        self.write()
        if len(self._tables) == 1:
            return self._tables[0]
        table = pa.concat_tables(self._tables)
        keys = pa.table({"length": pc.binary_length(table["name"]), "name": table["name"]})
        rows = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
        waiting, columns = table.columns[::-1], list[pa.ChunkedArray]()
        self._tables = []
        del table, keys
        while waiting:  # so that only one column at a time is in memory twice
            columns.append(waiting.pop().take(rows).combine_chunks())
        self._tables = [pa.Table.from_arrays(columns, schema=_REPORT)]
        return self._tables[0]

    def sum(self, field: str) -> int:
        """Return the sum of a count."""
        return sum(values_of(self.table()[field]))

    def __iter__(self) -> Iterator[PartReport]:
        """Yield the reports in the order of the parts."""
        table = self.table()
        for start in range(0, len(table), _REPORTS_A_FILE):
            yield from reports_of(table.slice(start, _REPORTS_A_FILE))


def table_of(reports: Sequence[PartReport]) -> pa.Table:
    """Return reports as a table."""
    columns = {field.name: [getattr(report, field.name) for report in reports] for field in fields(PartReport)}
    return pa.table(columns, schema=_REPORT)


def reports_of(table: pa.Table) -> Iterator[PartReport]:
    """Yield the reports of a table; by columns, which takes a fifth of the time of rows."""
    columns = [values_of(column) for column in table.columns[:-1]]
    only_unknown = map(tuple, table.columns[-1].to_pylist())
    yield from map(PartReport, *columns, only_unknown)
