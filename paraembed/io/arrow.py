"""Read record batches of Arrow IPC files and streams: ``.arrow``, Feather, data sets that Hugging Face saved."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs

from paraembed.io.inflate import check_inflation
from paraembed.io.parquet import flat, nested_field
from paraembed.io.places import Place, locate, require_file, shown

_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_OCTETS = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


@contextmanager
def open_arrow(
    place: Place, columns: Sequence[str] = ()
) -> Iterator[pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader]:
    """Open an Arrow file or stream, to read all columns or some. Raise ValueError if it cannot be opened, or a read
    inside of the block fails.
    """
    require_file(place)
    filesystem, path = locate(str(place))
    is_local = isinstance(filesystem, pa.fs.LocalFileSystem)
    try:
        with pa.memory_map(path) if is_local else filesystem.open_input_file(path) as raw:
            head = raw.read(len(_FILE))
            if head.startswith(_FEATHER_1):
                raise ValueError(f"{shown(place)} is Feather version 1; write it again, as version 2")
            opened = pa.ipc.open_file if head == _FILE else pa.ipc.open_stream
            raw.seek(0)
            reader = opened(raw)
            if columns:
                names = dict.fromkeys(name if name in reader.schema.names else name.split(".")[0] for name in columns)
                fields = [reader.schema.get_field_index(name) for name in names if name in reader.schema.names]
                raw.seek(0)
                reader = opened(raw, options=pa.ipc.IpcReadOptions(included_fields=fields))
            yield reader
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # an error of the disk, not of the file
            raise
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{shown(place)} is not a complete Arrow file ({reason}); write it again") from None


def _batches(
    reader: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader, start: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the batches from ``start``; a local stream is mapped into memory, so that earlier ones are not read."""
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from map(reader.get_batch, range(start, reader.num_record_batches))
        return
    for number, batch in enumerate(reader):
        if number >= start:
            yield batch


def rows_of_batches(place: Place, columns: Sequence[str], max_inflation: int, stop: int | None = None) -> list[int]:
    """Return the number of rows of each batch, or of those before ``stop``; raise the errors of ``open_arrow`` and
    ``check_inflation``.
    """
    rows = list[int]()
    with open_arrow(place, columns) as reader:
        for batch in islice(_batches(reader), stop):
            rows.append(len(batch))
            check_inflation(place, batch.get_total_buffer_size(), max_inflation)  # ``nbytes`` trusts damaged offsets
    return rows


def read_arrow(place: Place, columns: Sequence[str], batches: range) -> Iterator[pa.RecordBatch]:
    """Yield columns of some batches. Strings may be invalid UTF-8; raise ValueError if a batch is damaged."""
    with open_arrow(place, columns) as reader:
        for _, batch in zip(batches, _batches(reader, batches.start), strict=False):
            for column in batch.columns:
                column.view(_octets(column.type)).validate(full=True)
            yield flat(batch, [nested_field(batch.schema, name) for name in columns])


def _octets(kind: pa.DataType) -> pa.DataType:
    """Return a type with bytes in place of strings, also inside of lists and structs."""
    of = pa.types
    if of.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _octets(kind.value_type), kind.ordered)
    if of.is_struct(kind):
        return pa.struct([field.with_type(_octets(field.type)) for field in kind])
    for is_kind, make in ((of.is_list, pa.list_), (of.is_large_list, pa.large_list)):
        if is_kind(kind):
            return make(kind.value_field.with_type(_octets(kind.value_type)))
    return _OCTETS.get(kind, kind)


def numbers_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a column of int64 or float64 without nulls; ``to_numpy`` of a column imports pandas, 0.2 s."""
    kind = np.float64 if pa.types.is_floating(column.type) else np.int64
    arrays = (np.frombuffer(chunk.buffers()[1], kind)[chunk.offset :][: len(chunk)] for chunk in column.chunks)
    return np.concatenate([np.zeros(0, kind), *arrays])
