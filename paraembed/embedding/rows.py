"""Read the rows of a piece of an input: texts, ids and columns to copy; rejected rows keep their reason.

Bytes that are not UTF-8 become U+FFFD, and the row is embedded. These rows are rejected: a line that is not a JSON
object, or in which the text is missing or not a string; a CSV or TSV row whose number of cells differs from the header;
a CSV line with wrong quoting (``paraembed.io.tables``). A null text (JSON, Parquet) counts as empty, and its vector is
zeros. Keys of JSON lines are read from all rows; a missing key is null.

Memory: about ``block_bytes`` of text at a time (or one text of up to ``max_line_bytes``), some copies of it during
parsing, and the next block; never a whole part. Parquet is read in batches of rows of about ``block_bytes``, estimated
from the average row size in a row group (``paraembed.io.parquet``).
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.embedding.columns import carried_fields, has_field, own_columns
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.plan import Part, Parts, Piece, Plan
from paraembed.embedding.settings import CHUNK_TEXTS, Settings
from paraembed.embedding.template import fields_of
from paraembed.io.arrow import read_arrow, rows_of_batches
from paraembed.io.inflate import read_span
from paraembed.io.limits import MOST_LINE_BYTES
from paraembed.io.parquet import cuts, open_parquet, read_batches
from paraembed.io.tables import Records, json_field, json_object


class Rejected(NamedTuple):
    """A row that cannot be read: its number in the file, from 0; the reason; for CSV its line, from 1.

    A rejected CSV row is a single line; the rows before it may have several lines.
    """

    row: int
    reason: str
    line: int | None = None


_MISSING = object()
_LISTS = pa.large_list(pa.large_string())
_JsonCells = Callable[[str], list[str | None] | str]
_READERS = 4  # workers that may read the same stream, each all of it: it is read 50 times as fast as it is embedded
_begun: dict[tuple[Any, ...], tuple[int, pa.RecordBatch, Iterator[pa.RecordBatch]]] = {}
_streams: dict[tuple[str, str], "_Stream"] = {}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class InputRows:
    """n rows of an input."""

    carried: list[pa.Array]  # the id column and the columns to copy, arrays [n]
    texts: pa.StringArray  # string array [n]
    trees: pa.StringArray | None  # string array [n], null for a text without a tree; None if no text has one
    row_numbers: npt.NDArray[np.int64]  # int64 [n], numbers of the rows in their file, from 0
    rejected: list[Rejected]  # rejected rows before or between them
    num_replaced: int  # rows with bytes that were not UTF-8
    # Array int64 [n, 2] for CSV: number of a row's first line in the file, from 1, and of its lines; else [0, 2].
    lines: npt.NDArray[np.int64]
    elements: pa.LargeListArray | None = None  # with ``explode``, the strings of which the texts consist, [n]


@dataclass
class _Block:
    """Rows before they are split into batches: the wanted columns by name; other fields as in ``InputRows``."""

    columns: dict[str, pa.Array]
    row_numbers: npt.NDArray[np.int64]
    rejected: list[Rejected] = field(default_factory=list)
    num_replaced: int = 0
    lines: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    elements: pa.LargeListArray | None = None


def stream_parts(plan: Plan, parts: Iterable[Part]) -> Iterator[tuple[tuple[InputFile, ...], Part, bytes | None]]:
    """Yield parts of a plan, in order, each with its inputs, and with its text if it is one of several of a stream:
    such a file is read once, as its parts are asked for; a stream with one part is read by its worker.
    """
    for number, of_file in groupby(parts, key=lambda part: part.file):
        source, first_parts = plan.inputs[number], list(islice(of_file, 2))
        if source.is_stream and len(first_parts) > 1:
            stream = _Stream(source)
            for part in chain(first_parts, of_file):
                yield (source,), part, stream.read(part.pieces[0].start, part.pieces[0].stop)
        else:
            yield from ((plan.sources(part), part, None) for part in chain(first_parts, of_file))


def streams_of_workers(plan: Plan, todo: Parts, workers: int) -> dict[int, deque[Part]]:
    """Return the parts of compressed or converted inputs that workers read themselves, by input: one at a time each,
    from its start. Without enough of them, one worker reads one after the other, and all workers embed its parts.
    """
    streams: dict[int, deque[Part]] = {}
    is_stream = np.array([file.is_stream for file in plan.inputs])
    for part in todo[is_stream[todo.files]]:
        if len(part.pieces) == 1:
            streams.setdefault(part.file, deque()).append(part)
    return streams if _READERS * len(streams) >= workers else {}


class _Stream:
    """A stream that is read from its start: each time bytes that begin at or after those of the last time."""

    def __init__(self, source: InputFile) -> None:
        self._blocks = source.blocks()
        self.first, self._block = 0, b""  # the first byte of the block

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop`` - 1."""
        pieces = [self._block[max(0, start - self.first) : stop - self.first]]
        while self.first + len(self._block) < stop and (following := next(self._blocks, None)):
            self.first, self._block = self.first + len(self._block), following
            pieces.append(self._block[max(0, start - self.first) : max(0, stop - self.first)])
        return b"".join(pieces)


def read_stream(source: InputFile, piece: Piece) -> bytes:
    """Return the text of a piece of a stream. The next call for a later piece continues where this one stopped."""
    key = source.path, source.state
    stream = _streams.pop(key, None)
    if stream is None or stream.first > piece.start:
        stream = _Stream(source)
    data = stream.read(piece.start, piece.stop)
    _streams.clear()
    _streams[key] = stream
    return data


def read_part(
    sources: Sequence[InputFile], part: Part, settings: Settings, data: bytes | None = None
) -> Iterator[InputRows]:
    """Yield the rows of a part, whose pieces have these sources; see ``read_piece``."""
    for source, piece in zip(sources, part.pieces, strict=True):
        yield from read_piece(source, piece, settings, data)


def read_piece(source: InputFile, piece: Piece, settings: Settings, data: bytes | None = None) -> Iterator[InputRows]:
    """Yield the rows of a piece, at most ``settings.batch_size`` and about ``source.block_bytes`` of text at a time.
    ``data`` is the text of the piece of a stream, from ``stream_parts``; None: read the file from its start.
    """
    text_columns = settings.text_columns or source.columns[:1]
    kept = ([settings.id_column] if settings.id_column is not None else []) + list(settings.kept_columns)
    of_tree = [] if settings.tree_column is None else [settings.tree_column]
    wanted = list(dict.fromkeys([*text_columns, *of_tree, *kept]))
    of_path = source.partitions.keys() & wanted
    own = own_columns(source) if of_path or source.carried else pa.schema([])  # of the footer, for Parquet
    of_path = of_path - {*own.names}
    lacking = {name for name in kept if source.carried and not has_field(own, name)} - of_path
    wanted = [name for name in wanted if name not in of_path | lacking]
    fields = carried_fields([source], settings)[settings.id_column is None :]
    if source.kind in {"parquet", "arrow"}:
        blocks = _read_columns(source, piece, wanted, settings.batch_size)
    else:
        num_texts = sum(name in wanted for name in text_columns)
        cells = partial(_json_cells, wanted=wanted, num_texts=num_texts, explode=settings.explode)
        blocks = _read_text(source, piece, wanted, cells, data)
    for block in blocks:
        for name in of_path:
            block.columns[name] = pa.repeat(pa.scalar(source.partitions[name], pa.string()), len(block.row_numbers))
        for name in lacking:
            block.columns[name] = pa.nulls(len(block.row_numbers))
        strings = _strings(block, text_columns, settings)
        carried = [_converted(block.columns[field.name], field, source) for field in fields]
        if settings.id_column is not None and pa.types.is_floating(fields[0].type):
            _check_whole(carried[0], block.row_numbers, settings.id_column, source)
        if settings.id_column is None:
            carried.insert(0, _made_ids(source, piece, settings, block.row_numbers))
        ends = _ends(strings, source)
        for start, stop in [*cuts(ends, source.block_bytes, settings.batch_size)] or [(0, 0)] * bool(block.rejected):
            of_rows = {name: column.slice(start, stop - start).cast(pa.string()) for name, column in strings.items()}
            others = (block.rejected, block.num_replaced) if start == 0 else ([], 0)
            columns = [column.slice(start, stop - start) for column in carried]
            numbers, lines = block.row_numbers[start:stop], block.lines[start:stop]
            elements = None if block.elements is None else block.elements.slice(start, stop - start)
            yield InputRows(columns, of_rows["text"], of_rows.get("tree"), numbers, *others, lines, elements)


def _strings(block: _Block, text_columns: Sequence[str], settings: Settings) -> dict[str, pa.LargeStringArray]:
    """Return the texts and trees of a block, [n] each; with chunks, add the texts to its columns."""
    texts, replaced = dict[str, pa.LargeStringArray](), np.zeros(len(block.row_numbers), bool)
    for name in text_columns:
        if settings.explode:
            block.elements, changed = _as_lists(block.columns[name])
            texts[name] = _joined(block.elements)
        else:
            texts[name], changed = _as_text(block.columns[name])
        replaced |= changed
    strings = {"text": texts[text_columns[0]] if settings.text is None else _filled(settings.text, texts)}
    block.num_replaced += int(replaced.sum())
    if settings.tree_column is not None:
        strings["tree"], replaced = _as_text(block.columns[settings.tree_column])
        block.num_replaced += int(replaced.sum())
    if settings.has_chunks:
        block.columns |= {name: strings["text"] for name in CHUNK_TEXTS if name in settings.keep}
    return strings


def _filled(template: str, columns: Mapping[str, pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return the texts [n] of a template, null without any value. A value that is null or empty is left out with the
    text around it: the separator before it, or behind it if no other precedes, and its brackets and label.
    """
    text = None
    for part in fields_of(template):
        separator, before, after, empty = (pa.scalar(s, pa.large_string()) for s in (*part.around, ""))
        values = columns[part.column]
        values = pc.if_else(pc.equal(pc.binary_length(values), 0), None, values)
        values = pc.binary_join_element_wise(before, values, after, empty)
        both = None if text is None else pc.binary_join_element_wise(text, values, separator)
        text = values if text is None else pc.coalesce(both, text, values)
    return text


def _converted(column: pa.Array, field: pa.Field, source: InputFile) -> pa.Array:
    """Return a column with the type of the output, which other inputs may decide."""
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{source.shown}: column {field.name!r} is {column.type} and cannot become {field.type}, as other inputs "
            f"have it ({reason}); convert one of the files, or embed them separately"
        ) from None


def _check_whole(ids: pa.Array, row_numbers: npt.NDArray[np.int64], name: str, source: InputFile) -> None:
    """Raise ValueError if a float id is not a whole number below 2^63."""
    values = ids.cast(pa.float64()).fill_null(0).to_numpy()
    wrong = np.flatnonzero((np.trunc(values) != values) | ~(np.abs(values) < 2.0**63))
    if len(wrong):
        raise ValueError(
            f"{source.shown}, row {row_numbers[wrong[0]] + 1}: {name!r} is {values[wrong[0]]}; ids of type "
            f"{ids.type} must be whole numbers"
        )


def _as_text(column: pa.Array) -> tuple[pa.LargeStringArray, npt.NDArray[np.bool_]]:
    """Return texts [n], lists joined by spaces; and which had bytes that were not UTF-8, bool [n]."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lists, replaced = _as_lists(column)
        return _joined(lists), replaced
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _decoded(column.cast(pa.large_binary()))
    return column.cast(pa.large_string()), np.zeros(len(column), bool)


def _as_lists(column: pa.Array) -> tuple[pa.LargeListArray, npt.NDArray[np.bool_]]:
    """Return lists of texts [n], a null among them empty; and which had bytes that were not UTF-8, bool [n]."""
    if pa.types.is_string(column.type):  # of JSON, see ``_json_cells``
        column = pa.array([None if text is None else json.loads(text) for text in column.to_pylist()], _LISTS)
    elif pa.types.is_null(column.type):
        column = column.cast(_LISTS)
    items = column.flatten()
    is_string = pa.types.is_string(items.type) or pa.types.is_large_string(items.type)
    values, replaced = _as_text(items.cast(pa.large_binary()) if is_string else items)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    lists = pa.LargeListArray.from_arrays(pa.array(ends), values.fill_null(""), mask=column.is_null())
    counts = np.concatenate(([0], np.cumsum(replaced)))[ends]
    return lists, np.diff(counts) > 0


def _joined(lists: pa.LargeListArray) -> pa.LargeStringArray:
    """Return the elements of each list [n] as one text, with spaces between."""
    return pc.binary_join(lists, pa.scalar(" ", pa.large_string()))


def _made_ids(source: InputFile, piece: Piece, settings: Settings, row_numbers: npt.NDArray[np.int64]) -> pa.Array:
    if settings.id_kind == "row":
        return pa.array(row_numbers + (piece.row - piece.row_in_file))
    return pc.binary_join_element_wise(source.name, pa.array(row_numbers).cast(pa.string()), ":")


def _read_text(
    source: InputFile, piece: Piece, wanted: list[str], cells: _JsonCells, data: bytes | None
) -> Iterator[_Block]:
    size = source.block_bytes
    if data is None and source.is_stream:
        data = read_stream(source, piece)
    if data is None:
        pieces = read_span(source.place, (piece.start, piece.stop), size)
    else:
        pieces = (data[start : start + size] for start in range(0, len(data), size))
    done, breaks = piece.row_in_file, piece.line_breaks
    for records in source.cut_records(pieces, piece.start):
        rows = np.arange(done, done + len(records.ends))
        match source.kind:
            case "text":
                texts, changed = _decoded(_lines(records.data[records.start :]))
                yield _Block({wanted[0]: texts}, rows, num_replaced=int(changed.sum()))
            case "jsonl":
                yield _json_block(records, rows, wanted, cells)
            case _:
                yield _csv_block(records, rows, 2 + done + breaks, wanted, source)  # line 1 is the header
                breaks += int(records.breaks.sum(dtype=np.int64))
        done += len(rows)


def _lines(data: bytes) -> pa.BinaryArray:
    """Return lines without their line ends."""
    lines = pc.split_pattern(pa.array([data.removesuffix(b"\n")], pa.binary()), "\n").flatten()
    return pc.replace_substring_regex(lines, rb"\r\z", b"") if b"\r" in data else lines


def _decoded(values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Decode values [n] to strings, with U+FFFD for bytes that are not UTF-8; also return which changed, bool [n]."""
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    strings, octets = (pa.large_string(), pa.large_binary()) if large else (pa.string(), pa.binary())
    raw = values.cast(octets)
    try:
        return raw.cast(strings), np.zeros(len(values), bool)
    except pa.ArrowInvalid:
        mended = [None if value is None else value.decode("utf-8", "replace") for value in raw.to_pylist()]
    array = pa.array(mended, strings)
    changed = pc.fill_null(pc.not_equal(array.cast(octets), raw), False)
    return array, changed.to_numpy(zero_copy_only=False)


def _json_block(records: Records, row_numbers: npt.NDArray[np.int64], wanted: list[str], parse: _JsonCells) -> _Block:
    """Parse JSON lines with Python's json, which can report the faulty line; pyarrow cannot."""
    lines, changed = _decoded(_lines(records.data[records.start :]))
    cells: list[list[str | None]] = []
    rejected: list[Rejected] = []
    good = np.zeros(len(row_numbers), bool)
    for number, line in enumerate(lines.to_pylist()):
        row = parse(line)
        if isinstance(row, str):
            rejected.append(Rejected(int(row_numbers[number]), row))
        else:
            good[number] = True
            cells.append(row)
    columns = {name: pa.array([row[place] for row in cells], pa.string()) for place, name in enumerate(wanted)}
    return _Block(columns, row_numbers[good], rejected, int(changed[good].sum()))


def _json_cells(line: str, wanted: list[str], num_texts: int, *, explode: bool) -> list[str | None] | str:
    """Return the wanted values, those of the text first; or the reason to reject the line. With ``explode``, the text
    is a list of strings.
    """
    value = json_object(line)
    if isinstance(value, str):
        return value
    texts = {name: json_field(value, name, _MISSING) for name in wanted[:num_texts]}
    if texts and all(text is _MISSING for text in texts.values()):
        return f"no {' or '.join(map(repr, texts))}"
    for name, text in texts.items():
        is_list = explode and isinstance(text, list) and all(isinstance(element, str | None) for element in text)
        if text is not _MISSING and not (text is None or is_list or (isinstance(text, str) and not explode)):
            return f"{name!r} is no {'list of strings' if explode else 'string'}"
    try:
        return [_json_cell(json_field(value, name)) for name in wanted]
    except RecursionError:  # a depth that was just read
        return "no JSON"


def _json_cell(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _csv_block(
    records: Records, row_numbers: npt.NDArray[np.int64], line: int, wanted: list[str], source: InputFile
) -> _Block:
    """Parse rows of CSV or TSV; ``line`` is the number of the first row's first line, from 1."""
    first_lines = line + np.arange(len(row_numbers)) + np.cumsum(records.breaks) - records.breaks
    is_kept = records.faults == 0
    rejected = [
        Rejected(int(row_numbers[row]), records.fault(row), int(first_lines[row]) if source.kind == "csv" else None)
        for row in np.flatnonzero(~is_kept).tolist()
    ]
    columns = records.columns(source.columns, wanted)
    replaced = np.zeros(np.count_nonzero(is_kept), bool)
    for name, column in columns.items():
        columns[name], changed = _decoded(column)
        replaced |= changed
    lines = np.stack([first_lines, records.breaks + 1], axis=1)[is_kept]
    return _Block(columns, row_numbers[is_kept], rejected, int(replaced.sum()), lines)


def _read_columns(source: InputFile, piece: Piece, wanted: list[str], batch_size: int) -> Iterator[_Block]:
    done, stop = piece.row_in_file, piece.row_in_file + piece.rows
    for first, batch in _batches_from(source, piece, wanted, batch_size):
        columns: dict[str, pa.Array] = {}
        rows = batch.slice(max(0, done - first), stop - max(first, done))
        replaced = np.zeros(len(rows), bool)
        for name in wanted:
            columns[name], changed = _mended(rows[name])
            replaced |= changed
        if len(rows):
            yield _Block(columns, np.arange(done, done + len(rows)), num_replaced=int(replaced.sum()))
        done += len(rows)
        if done == stop:
            return
    raise ValueError(
        f"{source.shown}: row groups {piece.start} to {piece.stop - 1} have {done - piece.row_in_file:,} rows, but the "
        f"footer says {piece.rows:,}, so the file is damaged; download or write it again"
    )


def _batches_from(
    source: InputFile, piece: Piece, wanted: list[str], batch_size: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of the row groups (or record batches of Arrow) of a part, each with the number of its first row in
    the file.

    Parts of one row group have the same batches, from its start. The next part continues where this process stopped
    reading, so that n parts of a row group decode it once, not n / 2 times.
    """
    of_one = piece.stop - piece.start == 1
    key = source.path, source.state, piece.start, tuple(wanted), batch_size, source.block_bytes
    first, batch, batches = _begun.pop(key, (0, None, None)) if of_one else (0, None, None)
    if batches is None or first > piece.row_in_file:
        options: dict[str, Any] = {"limits": source.limits, "state": source.state}
        groups, first, batch = range(piece.start, piece.stop), piece.row_in_file, None
        if source.kind == "arrow":
            batches = read_arrow(source.place, wanted, groups)
            batch = next(batches, None) if of_one else None
            of_one = batch is not None and len(batch) > piece.rows
            if of_one:
                first = sum(rows_of_batches(source.place, wanted, source.limits.max_inflation, piece.start))
        else:
            batches = read_batches(source.place, wanted, batch_size, source.block_bytes, groups, **options)
            if of_one:  # else the part begins with its row group
                with open_parquet(source.place, state=source.state) as file:
                    first = sum(file.metadata.row_group(group).num_rows for group in range(piece.start))
    while batch is not None or (batch := next(batches, None)) is not None:
        if of_one and piece.row_in_file + piece.rows <= first + len(batch):
            _begun.clear()
            _begun[key] = first, batch, batches
        yield first, batch
        first, batch = first + len(batch), None


def _mended(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Decode a column of texts [n] like ``_decoded``, views as strings; also return which values changed, bool [n]."""
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    kind = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    if kind not in {pa.string(), pa.large_string()}:
        return column, np.zeros(len(column), bool)
    strings, changed = _decoded(column.cast(pa.large_string()))
    return strings.cast(kind).cast(column.type) if changed.any() else column, changed


def _ends(strings: dict[str, pa.LargeStringArray], source: InputFile) -> npt.NDArray[np.int64]:
    """Return the ends of texts and trees [n], in bytes from the first; raise ValueError if one is too long."""
    ends, most = np.zeros(len(strings["text"]), np.int64), source.limits.max_line_bytes
    for name, column in strings.items():
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        if len(lengths) and lengths.max() > most:
            raise ValueError(
                f"{source.shown}: a {name} has {lengths.max():,} bytes, but the limit `max_line_bytes` is {most:,}; "
                f"give a larger limit, at most {MOST_LINE_BYTES:,}"
            )
        ends += np.cumsum(lengths, dtype=np.int64)
    return ends
