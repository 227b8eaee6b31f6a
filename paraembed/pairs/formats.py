"""Read pair files of every format, block by block; rejected rows keep their reason."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.convert import array_lines, read_utf8
from paraembed.io.escape import listed
from paraembed.io.inflate import BLOCK_BYTES, Span, ahead, cut_at_lines, is_compressed
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.lines import INVALID_UTF8, TOO_LONG, Lines, invalid_rows, joined_lines, read_lines
from paraembed.io.parquet import is_parquet, open_parquet, read_batches
from paraembed.io.places import Place, name_of, require_file, size_of
from paraembed.io.tables import SEP_LINE, Records, TableFormat, check_delimiter, json_object, read_records
from paraembed.pairs.blocks import Block, assemble, is_blank, joined_cells, refuse
from paraembed.pairs.columns import (
    HEADER_ROWS,
    columns_of,
    head_rows,
    known_names,
    names_of_roles,
    say_the_pair,
    shown_names,
)
from paraembed.pairs.labels import LabelRule
from paraembed.pairs.ppdb import looks_like_ppdb, parse_ppdb
from paraembed.pairs.settings import Format, Role

Source = Place | tuple[Place, Place]
"""One file, or two files of format ``aligned``, whose lines correspond."""

SPAN_BYTES = 256 << 20
"""Bytes of a plain file that one task parses."""
_BATCH_ROWS = 65_536  # of Parquet
_SHOWN_BYTES = 4096  # of a rejected row of CSV
_FEW_LINES = 100


@dataclass(frozen=True)
class Reading:
    """How to read pair files."""

    # Format; ``auto`` detects it from the file name (``.csv``, ``.jsonl``), the first bytes and the first line.
    form: Format = "auto"
    # Roles of the columns of a TSV, CSV, Parquet or JSONL file, in order; default: from their names. TSV or CSV without
    # a header has two columns, first and second.
    columns: Sequence[Role] = ()
    features: Sequence[str] = ()  # features of PPDB that become columns
    alignment: bool = False  # whether the alignment of PPDB becomes a column
    non_terminals: bool = False  # whether rules of PPDB with non-terminals are kept as pairs
    no_header: bool = False  # whether the first row of TSV or CSV is a pair even if it looks like a header
    limits: ReadLimits = DEFAULT_LIMITS
    block_bytes: int = BLOCK_BYTES  # bytes to read at a time
    labels: LabelRule = field(default_factory=LabelRule)


def sources_of(inputs: Sequence[Place], form: Format) -> list[Source]:
    """Group inputs into sources: one file each, or two files each if the format is ``aligned``."""
    if form != "aligned":
        return list(inputs)
    if len(inputs) % 2:
        raise ValueError(f"`format` aligned needs an even number of input files, got {len(inputs)}")
    return list(zip(inputs[::2], inputs[1::2], strict=True))


def spans_of(source: Source, form: str, *, span_bytes: int = SPAN_BYTES) -> list[Span] | list[None]:
    """Return the parts in which a source is parsed: spans of plain PPDB lines and TSV, otherwise the whole file (None).

    A compressed stream can only be read from its start. A thread decompresses it, others parse its blocks
    (``unparsed_blocks``): of PPDB, 1.2 and 2.2 µs of processor time per line.
    """
    if isinstance(source, tuple) or form not in {"ppdb", "tsv"}:
        return [None]
    if size_of(source) <= span_bytes or is_compressed(source):
        return [None]
    return cut_at_lines(source, span_bytes)


def read_pairs(source: Source, reading: Reading = Reading(), span: Span | None = None) -> Iterator[Block]:
    """Read a pair file, plain or compressed (``paraembed.io.inflate.read_blocks``).

    Args:
        source: the file, or two aligned files.
        reading: how to read it.
        span: one of ``spans_of``, whose rows are numbered from its first row; default: the whole source.

    Yields:
        Blocks in the order of the file, with every line or row except the header.

    Raises:
        FileNotFoundError, IsADirectoryError: the file is missing or a folder.
        ValueError: the file is empty or binary, its compressed stream is damaged, or its format, columns or labels are
            unknown.

    Example:
        >>> for block in read_pairs(Path("pairs.tsv")):
        ...     print(block.form, block.pairs.first.to_pylist(), block.pairs.second.to_pylist())
        tsv ['the cat sat', 'a dog ran'] ['a cat sat', 'the dog ran']
    """
    for parse in unparsed_blocks(source, reading, span):
        yield parse()


def unparsed_blocks(source: Source, reading: Reading, span: Span | None = None) -> Iterator[Callable[[], Block]]:
    """Yield, for each block of ``read_pairs``, the function that returns it.

    The functions may be called in several threads: parsing PPDB and TSV, and looking up labels, hold the interpreter
    lock for a small part of their time. Blocks of other formats are parsed before they are yielded.
    """
    for parse in _read_blocks(source, reading, span):
        yield partial(_labeled, parse, reading.labels, str(source))


def _labeled(parse: Callable[[], Block], labels: LabelRule, where: str) -> Block:
    return labels.filter(parse(), where)


def _parsed(blocks: Iterator[Block]) -> Iterator[Callable[[], Block]]:
    for block in blocks:
        yield partial(lambda parsed: parsed, block)


def _read_blocks(source: Source, reading: Reading, span: Span | None) -> Iterator[Callable[[], Block]]:
    columns = reading.columns
    if columns and not say_the_pair(columns):
        raise ValueError(
            f"`columns` is {', '.join(columns)}; it must contain first and second once each, and no tree twice"
        )
    if isinstance(source, tuple):
        reading.limits.check_kind("aligned", str(source[0]))
        yield from _parsed(_read_aligned(*source, reading))
        return
    place: Place = source
    require_file(place)
    if reading.form == "parquet" or (reading.form == "auto" and is_parquet(place)):
        reading.limits.check_kind("parquet", str(place))
        yield from _parsed(_read_parquet(place, reading))
        return
    options: dict[str, Any] = {"limits": reading.limits, "block_bytes": reading.block_bytes}
    blocks = read_lines(place, **options)
    head = next(blocks)
    line = next((text for text in head.text.slice(0, 100).to_pylist() if text and text.strip()), "")
    if not line and pc.any(head.too_long.slice(0, 100)).as_py() and reading.form == "auto":
        raise ValueError(
            f"{place}: its first lines are longer than `max_line_bytes`, {reading.limits.max_line_bytes:,} bytes; "
            "give a larger `max_line_bytes`, or set `format`"
        )
    if not line and pc.any(head.not_utf8.slice(0, 100)).as_py() and reading.form == "auto":
        raise ValueError(f"{place}: its first lines are not UTF-8; give their `encoding`, for example cp1252")
    form = detect_format(place, line) if reading.form == "auto" else reading.form
    reading.limits.check_kind(form, str(place))
    heads = [head, *itertools.islice(blocks, 1 if len(head) < _FEW_LINES else 0)]  # a last line may be a block
    lines = read_lines(place, span, **options) if span else itertools.chain(heads, blocks)
    match form:
        case "csv":
            yield from _parsed(_read_csv(place, reading))
        case "tsv":
            yield from _read_tsv(place, heads, lines, reading, from_start=span is None or span[0] == 0)
        case "words":
            yield from _parsed(_read_word_list(lines))
        case "jsonl":
            objects = _array_lines(place, reading) if line.startswith("[") else lines
            yield from _parsed(_read_jsonl(place, objects, columns))
        case _:
            yield from (partial(_ppdb_block, pieces, reading) for pieces in _pieces(lines, reading.block_bytes))


def _pieces(blocks: Iterator[Lines], size: int) -> Iterator[list[Lines]]:
    """Yield blocks that may be joined to larger ones of up to ``size`` bytes."""
    pieces, num_bytes = list[Lines](), 0
    for lines in blocks:
        num_bytes += len(lines.data)
        if pieces and (num_bytes > size or lines.first_is_cut):
            yield pieces
            pieces, num_bytes = [], len(lines.data)
        pieces.append(lines)
    if pieces:
        yield pieces


def _ppdb_block(pieces: Sequence[Lines], reading: Reading) -> Block:
    # A block takes 0.9 ms, however small, mostly with the interpreter lock: decompressed ones of 1 to 2 MB are joined.
    lines = joined_lines(pieces)
    pairs = parse_ppdb(lines, reading.features, alignment=reading.alignment, non_terminals=reading.non_terminals)
    return Block("ppdb", lines.first, lines.__getitem__, pairs, sizes=[len(piece) for piece in pieces])


def detect_format(place: Place, line: str) -> Literal["ppdb", "tsv", "csv", "jsonl"]:
    """Return the format of a file, from its name and first non-empty line; raise ValueError if it is not recognized."""
    if looks_like_ppdb(line):
        return "ppdb"
    name = name_of(place).lower()
    if re.search(r"\.(jsonl|ndjson|json)(\.|$)", name):
        return "jsonl"
    if ".csv" in name:
        return "csv"
    if "\t" in line:
        return "tsv"
    raise ValueError(
        f"{place} begins with {line[:60]!r}, which is neither a PPDB line nor columns separated by tabs; set "
        "`format` to ppdb, tsv, csv, or words (each line is a word and its paraphrases)"
    )


def _read_word_list(blocks: Iterator[Lines]) -> Iterator[Block]:
    """Yield pairs of a line's first word with each other word, the form of retrofitting; no pair: a rejected row."""
    row = 0
    for lines in blocks:
        text = pc.fill_null(lines.text, "")
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text))
        offsets = words.offsets.to_numpy().astype(np.int64)
        counts = np.diff(offsets)
        num_rows = np.maximum(counts - 1, 1)
        line = np.repeat(np.arange(len(lines)), num_rows)
        place = np.arange(len(line)) - np.repeat(np.cumsum(num_rows) - num_rows, num_rows) + 1
        heads, flat = offsets[line], words.flatten()
        first = flat.take(pa.array(heads - offsets[0]))
        second = flat.take(pa.array(heads - offsets[0] + np.minimum(place, counts[line] - 1)))
        tests = [(test.take(pa.array(line)), name) for test, name in (*lines.tests(), (is_blank(text), "empty line"))]
        tests.append((pa.array(counts[line] < 2), "too few fields"))
        pairs = assemble({"first": first, "second": second}, tests)
        yield Block("words", row, joined_cells(first, second), pairs, lines.first + line)
        row += len(line)


def _read_aligned(first: Place, second: Place, reading: Reading) -> Iterator[Block]:
    """Yield pairs of corresponding lines; the text follows the last tab (SimpWiki 2.0: article, paragraph, text)."""
    sides = [_aligned_texts(place, reading) for place in (first, second)]
    waiting: list[pa.RecordBatch | None] = [None, None]
    row = 0
    while True:
        waiting = [batch or next(side, None) for batch, side in zip(waiting, sides, strict=True)]
        left, right = waiting
        if not left or not right:
            break
        size = min(len(left), len(right))
        texts, refused = ([batch[name].slice(0, size) for batch in (left, right)] for name in ("text", "refused"))
        tests = [(pc.and_(*map(is_blank, texts)), "empty line")]
        pairs = assemble({"first": texts[0], "second": texts[1]}, tests)
        pairs = replace(pairs, refused=pc.coalesce(*refused, pairs.refused))
        yield Block("aligned", row, joined_cells(*texts), pairs)
        row += size
        waiting = [left.slice(size), right.slice(size)]
    if left or right:
        longer, shorter = (first, second) if left else (second, first)
        raise ValueError(
            f"{shorter} has {row:,} lines, but {longer} has more; aligned files must have the same number of lines"
        )


def _aligned_texts(place: Place, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the texts of a file and the reasons to reject them, as columns text [n] and refused [n]."""
    for lines in read_lines(place, limits=reading.limits, block_bytes=reading.block_bytes):
        text = pc.replace_substring_regex(pc.fill_null(lines.text, ""), r"^.*\t", "")
        yield pa.record_batch({"text": text, "refused": refuse(lines.tests())})


def _read_tsv(
    path: Place, heads: Sequence[Lines], blocks: Iterator[Lines], reading: Reading, *, from_start: bool
) -> Iterator[Callable[[], Block]]:
    """Read pairs from lines without quoting; a header is looked for in ``heads``, the first blocks of the file."""
    texts = (head[row].decode("utf-8", "replace") for head in heads for row in range(len(head)))
    first, *rows = head_rows(text.split("\t") for text in texts)
    roles, header, names = columns_of(path, first, rows, reading.columns, reading.no_header)
    for block in blocks:
        if header and from_start and block.first == 0:
            block = block.without_first()  # noqa: PLW2901 - the header is no row
        yield partial(_tsv_block, block, roles, names)


def _tsv_block(lines: Lines, roles: Sequence[Role], names: Mapping[str, str]) -> Block:
    text = pc.fill_null(lines.text, "")
    counts = pc.list_value_length(pc.split_pattern(text, "\t"))
    padded = pc.split_pattern(pc.binary_join_element_wise(text, "\t" * len(roles), ""), "\t")
    cells = {role: pc.list_element(padded, index) for index, role in enumerate(roles)}
    tests = [*lines.tests(), (is_blank(text), "empty line"), *_count_tests(counts, len(roles))]
    return Block("tsv", lines.first, lines.__getitem__, assemble(cells, tests), columns=names)


def _read_csv(path: Place, reading: Reading) -> Iterator[Block]:
    """Yield pairs from rows with quoting; line breaks in a field are rejected: two stray quotes would join lines."""
    limits = reading.limits
    pieces = ahead(read_utf8(path, reading.block_bytes, limits.codec, limits.max_inflation))
    beginning = next(pieces, b"")
    sep = SEP_LINE.match(beginning) if limits.delimiter is None else None
    delimiter = sep[1].decode() if sep else limits.delimiter or ","
    if limits.csv_delimiter is None and not sep:  # before rows of another delimiter are said to have wrong quotes
        first_line = beginning.partition(b"\n")[0].decode("utf-8", "replace")
        check_delimiter(first_line.rstrip("\r").split(","), beginning, str(path))
    table = TableFormat(0, 1000, True, False, delimiter, limits.csv_escape, limits.csv_skip_blanks)
    pieces = itertools.chain([beginning[sep.end() if sep else 0 :]], pieces)
    blocks = read_records(pieces, "csv", str(path), limits.max_line_bytes, table)
    heads = list[Records]()
    while sum(map(len, heads)) <= HEADER_ROWS and (block := next(blocks, None)) is not None:
        heads.append(block)
    first, *rows = head_rows(head.row(index) for head in heads for index in range(len(head))) or [[]]
    roles, header, names = columns_of(path, first, rows, reading.columns, reading.no_header)
    places: dict[Role, str] = {role: str(index) for index, role in enumerate(roles) if role != "ignore"}
    number = above = int(sep is not None)
    for block in itertools.chain(heads, blocks):
        if header and number == above:
            block, number = block.without_first(), above + 1  # noqa: PLW2901 - the header is no row
        not_utf8, (starts, stops) = block.not_utf8(), block.bounds
        is_read = (block.cells == len(roles)) & ~not_utf8
        columns = block.columns([str(index) for index in range(len(roles))], [*places.values()], is_read)
        index = pa.array(np.cumsum(is_read) - 1, mask=~is_read)  # of each row in ``columns``
        cells = {role: columns[place].cast(pa.string()).take(index) for role, place in places.items()}
        tests = [
            (pa.array(not_utf8), INVALID_UTF8),
            (pa.array(starts == stops), "empty line"),
            (pa.array(block.breaks > 0), "line break in a field"),
            *_count_tests(pa.array(block.cells), len(roles)),
        ]
        if len(block):
            yield Block("csv", number, partial(_unquoted, block), assemble(cells, tests), columns=names)
        number += len(block)


def _unquoted(records: Records, row: int) -> bytes:
    return ",".join(records.row(row, _SHOWN_BYTES)).encode("utf-8", "surrogateescape")


def _count_tests(counts: pa.Int32Array, expected: int) -> list[tuple[pa.BooleanArray, str]]:
    return [(pc.less(counts, expected), "too few fields"), (pc.greater(counts, expected), "too many fields")]


def _read_parquet(place: Place, reading: Reading) -> Iterator[Block]:
    """Yield pairs of a Parquet file, by column names; a row with a text that is too long is rejected."""
    most = reading.limits.max_line_bytes
    with open_parquet(place) as file:
        roles = names_of_roles(place, file.schema_arrow.names, reading.columns)
    row = 0
    for batch in read_batches(place, list(roles.values()), _BATCH_ROWS, reading.block_bytes, limits=reading.limits):
        try:  # not ``safe``: rows with bytes that are not UTF-8 are rejected below
            cells: dict[Role, pa.StringArray] = {
                role: batch[name].cast(pa.string(), safe=False) for role, name in roles.items()
            }
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"{place}: {listed([str(error)])}; the columns must contain texts and numbers") from None
        longer = (pc.fill_null(pc.greater(pc.binary_length(cell), most), False) for cell in cells.values())
        raw, not_utf8 = joined_cells(*cells.values()), _not_utf8([*cells.values()])
        if not_utf8.true_count:
            cells = {role: pc.if_else(not_utf8, pa.scalar(None, pa.string()), cell) for role, cell in cells.items()}
        tests = [(reduce(pc.or_, longer), TOO_LONG), (not_utf8, INVALID_UTF8)]
        yield Block("parquet", row, raw, assemble(cells, tests), columns=shown_names(roles))
        row += len(batch)


def _not_utf8(columns: Sequence[pa.StringArray]) -> pa.BooleanArray:
    """Return whether each row of string columns [n] has bytes that are not UTF-8."""

    def is_valid(start: int, stop: int) -> bool:
        try:
            for column in columns:
                column.slice(start, stop - start).validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    return pa.array(invalid_rows(len(columns[0]), is_valid))


def _read_jsonl(place: Place, blocks: Iterator[Lines], columns: Sequence[Role]) -> Iterator[Block]:
    """Yield pairs from lines of JSON; ``columns`` are the roles of the first object's keys. 0.4M lines/s."""
    roles: dict[Role, str] = {}
    for lines in blocks:
        rows = [json_object(text or "") for text in lines.text.to_pylist()]
        objects = [row for row in rows if isinstance(row, dict)]
        if objects and columns and not roles:
            roles = names_of_roles(place, list(objects[0]), columns)
        elif objects and not columns:  # a later block may have keys that the first has not
            names = sorted({name for row in objects for name in row})
            roles = {**known_names(names), **roles} if roles else names_of_roles(place, names, ())
        none = pa.nulls(len(rows), pa.string())
        cells: dict[Role, pa.StringArray] = {"first": none, "second": none}
        for role, name in roles.items():
            values = [_cell(row.get(name), role) if isinstance(row, dict) else None for row in rows]
            cells[role] = pa.array(values, none.type)
        tests = [*lines.tests(), (pa.array([isinstance(row, str) for row in rows], pa.bool_()), "no JSON object")]
        yield Block("jsonl", lines.first, lines.__getitem__, assemble(cells, tests), columns=shown_names(roles))


def _array_lines(place: Place, reading: Reading) -> Iterator[Lines]:
    """Yield the elements of a JSON array, one per line."""
    limits, number = reading.limits, 0
    pieces = read_utf8(place, reading.block_bytes, limits.codec, limits.max_inflation)
    for data in filter(None, array_lines(pieces, str(place), limits.max_line_bytes)):
        yield (lines := Lines.of(data, number, limits=limits))
        number += len(lines)


def _cell(value: object, role: Role) -> str | None:
    """Return a value as text; None if it is neither text, number nor boolean label, or cannot be encoded as UTF-8."""
    if isinstance(value, int | float) and (role == "relation" or not isinstance(value, bool)):
        return repr(value)
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value if not char.isascii()):
        return None
    return value
