"""Plan of an embedding run: input files split into parts by rows and bytes, so that any number of workers can resume
it.

A part has one piece of a file, or several small files. A piece is a range of whole rows: a byte range of text, JSON
lines, CSV or TSV, row groups of Parquet, record batches of Arrow, or some rows of a large one of these. Pieces of a
file that is compressed or converted (an encoding, an array of JSON) are byte ranges of that stream, which one reader
reads once, from its start. A CSV row may contain line ends, so the planner reads a CSV file once from its start; its
pieces can then be read separately. Large files of lines are planned in spans, and no piece crosses the end of a span.
"""

import hashlib
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.console import doing
from paraembed.embedding.columns import check_keys, with_common_fields
from paraembed.embedding.identity import Span, digest_of_spans, footer_digest, rows_in, spans_of
from paraembed.embedding.inputs import LOOKERS, InputFile, check_faults, fault_in, readable
from paraembed.embedding.settings import Settings
from paraembed.io.arrow import numbers_of, open_arrow, read_arrow, rows_of_batches
from paraembed.io.fingerprint import sha256_of
from paraembed.io.inflate import read_span
from paraembed.io.lines import strings_of
from paraembed.io.parquet import check_parquet, open_parquet, over_zeros
from paraembed.io.tables import Records
from paraembed.options import Count, checked
from paraembed.process import RunTasks, in_order, num_threads

MAX_PART_BYTES = 64 << 20
"""Bytes of text after which a part ends, with the record that reaches them. The reader of a compressed file passes each
part on in one piece.
"""
DATA = "data"
"""Folder of the parts, in which there is nothing else, so that every tool reads it as one table."""
IDS = "_ids"
"""Folder of the hashes of the ids, until the commit; see ``paraembed.embedding.ids``."""
LATER = frozenset({"stamp_column", "text", "chunk_tokens", "chunk_overlap", "chunk_by", "pool", "explode"})
"""Settings that outputs of earlier versions do not have."""
IN_GROUPS = {"parquet", "arrow"}  # formats in which several pieces may have rows of the same group
_Numbers = npt.NDArray[np.int64]
Cut = tuple[int, int, int, int]
"""First byte or row group of a piece, the one after its last, its number of rows, and the number of line breaks inside
of cells before it.
"""


class _Cuts(NamedTuple):
    pieces: list[Cut]
    digest: str  # of the bytes of the span
    fault: str = ""  # of the file, see ``InputFile``


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of an input."""

    file: Count  # index of the file in the plan's inputs
    start: Count  # first byte (of the decompressed text) or row group
    stop: Count  # the byte or row group after the last
    rows: Count  # rows from ``start`` to ``stop``, including rows that cannot be read
    row: Count  # number of the first row, counted over all inputs from 0
    row_in_file: Count  # number of the first row, counted in its file from 0, without the header
    line_breaks: Count = 0  # line breaks inside of the cells of a CSV file before ``start``, for line numbers


@dataclass(frozen=True, slots=True)
class Part:
    """One output file, and its rows in the inputs."""

    name: str  # name of the output file, relative to the output
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """Number of rows, including rows that cannot be read."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def file(self) -> int:
        """Index of the file of the first row."""
        return self.pieces[0].file

    @property
    def format(self) -> int:
        """Number of the output's format, 2 or 3."""
        return 3 if self.name.startswith(f"{DATA}/") else 2

    def to_json(self) -> Any:
        """Return what decides the rows of the part, as JSON values; format 2 leaves a ``line_breaks`` of 0 out."""
        if self.format > 2:
            return [asdict(piece) for piece in self.pieces]
        fields = {"name": self.name, **asdict(self.pieces[0])}
        return {name: value for name, value in fields.items() if value or name != "line_breaks"}


_FIELDS = tuple(field.name for field in fields(Piece))
PIECES_SCHEMA = pa.schema([(name, pa.int64()) for name in ("part", *_FIELDS)])
"""Columns of ``Plan.pieces``."""


class Parts(Sequence[Part]):
    """Parts of a plan, in columns: 0.1 KB a part; objects would take 0.4 KB. A slice or a mask of them is ``Parts``.

    Attributes:
        names: names of the parts, string array [n].
        pieces: columns of ``PIECES_SCHEMA``, also of parts that were left out, int64 [8, m].
        rows: number of rows of each part, int64 [n].
        files: index of the file of each part's first row, int64 [n].
    """

    def __init__(self, names: pa.StringArray, pieces: _Numbers, numbers: _Numbers | None = None) -> None:
        """``numbers`` are those of the parts in ``pieces``, int64 [n]; None: all of them."""
        self.names, self.pieces = names, pieces
        self._numbers = np.arange(len(names)) if numbers is None else numbers
        self._starts = np.append(np.flatnonzero(np.diff(pieces[0], prepend=-1)), pieces.shape[1])
        self.rows = np.add.reduceat(pieces[4], self._starts[:-1])[self._numbers]
        self.files = pieces[1, self._starts[self._numbers]]

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        """Return a part, or ``Parts``."""
        numbers = self._numbers[index]
        if numbers.ndim:
            return Parts(self.names.take(pa.array(np.arange(len(self))[index])), self.pieces, numbers)
        start, stop = self._starts[numbers : numbers + 2]
        return Part(self.names[index].as_py(), tuple(map(Piece, *self.pieces[1:, start:stop].tolist())))

    def without(self, names: pa.ChunkedArray) -> "Parts":
        """Return the parts that have other names."""
        parts: Parts = self[~pc.is_in(self.names, value_set=names).to_numpy(zero_copy_only=False)]
        return parts


NO_PARTS = Parts(strings_of([]), np.zeros((len(PIECES_SCHEMA), 0), np.int64))


@dataclass(frozen=True)
class Plan:
    """Inputs, settings and parts, in the order of the rows."""

    inputs: tuple[InputFile, ...]
    settings: Settings
    parts: Parts = NO_PARTS
    format: int = 3
    generation: int = 0  # files that were added later are a generation of their own

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return int(self.parts.rows.sum())

    def sources(self, part: Part) -> tuple[InputFile, ...]:
        """Return the input of each piece of a part."""
        return tuple(self.inputs[piece.file] for piece in part.pieces)

    @property
    def folder(self) -> str:
        """How the names of the parts begin."""
        return f"{DATA}/" if self.format > 2 else ""

    def pieces(self) -> pa.Table:
        """Return a row for each piece: ``part``, the number of its part, and the fields of ``Piece``."""
        return pa.table([*self.parts.pieces], PIECES_SCHEMA)


def settings_json(settings: Settings, format_number: int) -> dict[str, Any]:
    """Return the settings as JSON values; format 2 has no ``compact``, because all its outputs are. Those of ``LATER``
    are left out if they have their default, so that outputs of earlier versions keep their digests.
    """
    values = {name: value for name, value in asdict(settings).items() if format_number > 2 or name != "compact"}
    return {name: value for name, value in values.items() if name not in LATER or value != getattr(Settings, name)}


@dataclass(frozen=True, kw_only=True)
class _NamedPiece(Piece):
    """Part of format 2, in its plan."""

    name: str


@dataclass(frozen=True)
class _JsonPlan:
    inputs: tuple[InputFile, ...]
    settings: Settings
    parts: tuple[_NamedPiece, ...]


def plan_from_json(value: Any) -> Plan:
    """Return the plan of an output of format 2. Raise ValueError if a field is missing, unknown or of another type, a
    part has a wrong name, or the errors of ``parts_of``.
    """
    plan = checked(_JsonPlan, value, "plan")
    for number, part in enumerate(plan.parts):
        expected = numbered_name(number, len(plan.parts))
        if part.name != expected:
            raise ValueError(f"plan: part {number} has the name {part.name!r}; expected {expected}")
    columns = {name: [getattr(part, name) for part in plan.parts] for name in _FIELDS}
    pieces = pa.table({"part": range(len(plan.parts)), **columns}, schema=PIECES_SCHEMA)
    parts = parts_of(pieces, plan.inputs, 2)
    return Plan(plan.inputs, replace(plan.settings, compact=True), parts, 2)


def parts_of(pieces: pa.Table, inputs: Sequence[InputFile], format_number: int = 3, generation: int = 0) -> Parts:
    """Return the parts of a table with the schema ``PIECES_SCHEMA``. Raise ValueError if there are none, or the pieces
    are not contiguous.
    """
    if not len(pieces):
        raise ValueError("plan: it has no parts")
    part, file, start, stop, rows, row, row_in_file, _ = columns = np.stack([*map(numbers_of, pieces.columns)])
    if sum(rows.tolist()) >= 2**63:
        raise ValueError(f"plan: its parts have {sum(rows.tolist())} rows, more than 64-bit row numbers can count")
    is_new = np.diff(file, prepend=-1) != 0
    before = np.concatenate([[0], rows[:-1]])
    is_known = (file >= 0) & (file < len(inputs))
    may_share = np.array([format_number > 2 and source.kind in IN_GROUPS for source in inputs])[file * is_known]
    previous = np.concatenate([[0], stop[:-1]])
    is_right = (
        is_known
        & (np.diff(file, prepend=0) >= 0)
        & (is_new | (start == previous) | (may_share & (start == previous - 1)))
        & (row_in_file == np.where(is_new, 0, np.concatenate([[0], row_in_file[:-1]]) + before))
        & (start >= 0)
        & (start < stop)
        & (rows > 0)
        & (row == np.cumsum(rows) - rows)
        & np.isin(np.diff(part, prepend=-1), [0, 1])
    )
    is_right[0] &= part[0] == 0
    names = part_names(int(part[-1]) + 1 if is_right.all() else len(part), format_number, generation)
    if not is_right.all():
        raise ValueError(f"{names[int(np.argmin(is_right))]} does not start where the previous part ends")
    return Parts(strings_of(names), columns)


def part_name(number: int, generation: int = 0) -> str:
    """Return the file name of part ``number`` (from 0), relative to the output: generation and number."""
    return f"{DATA}/part-{generation:03d}-{number:06d}.parquet"


def numbered_name(number: int, count: int) -> str:
    """Return the file name of part ``number`` (from 0) of ``count`` parts of mined pairs."""
    return f"part-{number:05d}-of-{count:05d}.parquet"


def part_names(count: int, format_number: int, generation: int = 0) -> list[str]:
    """Return the file names of all parts of a generation; in format 2 they contain ``count``."""
    if format_number == 2:
        return [numbered_name(number, count) for number in range(count)]
    return [part_name(number, generation) for number in range(count)]


def inputs_identity(inputs: tuple[InputFile, ...], settings: Settings) -> list[dict[str, Any]]:
    """Return what decides the output: sizes of the inputs, in order, their digests, or else their stamps, and their
    names if ids contain them.

    For CSV this includes the limits that affect the rejected lines, if they differ from the default; for columns of
    Hive folders their values; for files that are left out only the size.
    """
    named, carried = settings.id_kind == "file-row", {settings.id_column, *settings.keep}
    return [
        {"size": file.size, "kind": file.kind, "is_left_out": True}
        if file.fault
        else {"size": file.size, "kind": file.kind}
        | ({"sha256": file.sha256} if file.sha256 else {"stamp": file.stamp})
        | ({"name": file.name} if named else {})
        | file.how_read()
        | {f"{name}=": value for name, value in file.partitions.items() if name in carried}
        for file in inputs
    ]


class NoRowsError(ValueError):
    """Error for inputs of which none has a row."""


def make_plan(
    inputs: tuple[InputFile, ...],
    settings: Settings,
    run: RunTasks | None = None,
    max_bad_files: int = 0,
    *,
    generation: int = 0,
    columns: pa.Schema | None = None,
) -> Plan:
    """Return the plan of ``Planner``, with its arguments and errors; ``run``, by default threads, reads the spans. The
    plan is the same with any.
    """
    return Planner(inputs, settings, max_bad_files, generation=generation, columns=columns).make(run)


class Planner:
    """Splits inputs into parts of about ``settings.part_rows`` rows; a part of text also ends where it reaches
    ``MAX_PART_BYTES`` or a span ends. Small files share a part. Files with a fault, also those found while reading,
    have no parts. One thread makes the plan, once; meanwhile another may ask for the parts of the files that have been
    read. ``columns`` are those of an output to which ``generation`` is added. Raise ValueError if the settings do not
    fit the inputs.
    """

    def __init__(
        self,
        inputs: tuple[InputFile, ...],
        settings: Settings,
        max_bad_files: int = 0,
        *,
        generation: int = 0,
        columns: pa.Schema | None = None,
    ) -> None:
        common = iter(with_common_fields(readable(inputs), settings, columns))
        self._inputs = tuple(file if file.fault else next(common) for file in inputs)
        if inputs[0].kind == "jsonl":
            check_keys(readable(self._inputs), settings, skip_bad=max_bad_files > 0)
        self._settings, self._max_bad_files, self._generation = settings, max_bad_files, generation
        files = ((number, source) for number, source in enumerate(self._inputs) if not source.fault)
        self._spans = [span for number, source in files for span in spans_of(number, source)]
        self._num_spans = Counter(span.file for span in self._spans)
        self._cuts = list[_Numbers]()  # of the spans that have been read, int64 [m, 4]
        self._files = [*self._inputs]  # with digests, and faults, of those that have been read
        self._is_stopped = Event()

    def make(self, run: RunTasks | None = None) -> Plan:
        """Return the plan. Raise ValueError if a row is too long, or more than ``max_bad_files`` files cannot be read;
        CancelledError after ``stop``.
        """
        to_read = [(self._inputs[span.file], span.bytes) for span in self._spans]
        cut, digests = partial(_cuts_or_fault if self._max_bad_files else _cuts, self._settings), list[str]()
        threads = LOOKERS if "://" in self._inputs[0].path else num_threads()
        # Without ``closing``, the threads would read all spans after ``stop`` or an error.
        with ThreadPoolExecutor(threads) as pool, closing(in_order(run or pool.map, cut, to_read)) as read:
            for number, (span, of_span) in enumerate(zip(self._spans, read, strict=True), 1):
                if self._is_stopped.is_set():
                    raise CancelledError
                file = self._files[span.file]
                digests.append(of_span.digest)
                if number == len(self._spans) or self._spans[number].file != span.file:
                    file = replace(file, sha256=file.sha256 or digest_of_spans(digests))
                    digests = []
                self._files[span.file] = replace(file, fault=file.fault or of_span.fault)
                self._cuts.append(np.array(of_span.pieces, np.int64).reshape(-1, 4))
                doing(f"planning: {number:,} of {len(self._spans):,} inputs or parts of inputs are read")
        check_faults(self._files, self._max_bad_files)
        plan = self._plan(len(self._spans))
        if not plan.parts:
            raise NoRowsError(f"{readable(self._files)[0].shown} has no rows; there is nothing to embed")
        return plan

    @property
    def num_read(self) -> int:
        """Number of spans that have been read."""
        return len(self._cuts)

    def stop(self) -> None:
        """Stop ``make`` in another thread, after the spans that are being read."""
        self._is_stopped.set()

    def plan_so_far(self) -> Plan:
        """Return the plan of the first files, all of whose spans have been read, without a last part that may get more
        files: the beginning of the plan that ``make`` returns.
        """
        count = len(self._cuts)
        while 0 < count < len(self._spans) and self._spans[count - 1].file == self._spans[count].file:
            count -= 1
        plan = self._plan(count)
        if not plan.parts or count == len(self._spans):
            return plan
        last = plan.parts[-1].pieces[-1].file
        is_small = self._num_spans[last] == 1 and (plan.parts.pieces[1] == last).sum() == 1
        return replace(plan, parts=plan.parts[: len(plan.parts) - is_small])

    def _plan(self, count: int) -> Plan:
        """Return the plan of the first ``count`` spans, which may have no rows."""
        files = tuple(
            replace(file, sha256=before.sha256) if file.fault else file
            for file, before in zip(self._files, self._inputs, strict=True)
        )
        read = zip(self._spans[:count], self._cuts[:count], strict=True)
        cuts = [(span, cuts_N4) for span, cuts_N4 in read if len(cuts_N4) and not files[span.file].fault]
        if not cuts:
            return Plan(files, self._settings, generation=self._generation)
        pieces = _joined(self._inputs, self._settings, self._num_spans, cuts)
        names = part_names(int(pieces[0, -1]) + 1, 3, self._generation)
        return Plan(files, self._settings, Parts(strings_of(names), pieces), generation=self._generation)


def _joined(
    inputs: Sequence[InputFile], settings: Settings, num_spans: Mapping[int, int], cuts: Sequence[tuple[Span, _Numbers]]
) -> _Numbers:
    """Return ``PIECES_SCHEMA``'s columns [8, n] of cuts [m, 4]; ``num_spans`` are those of each file."""
    parts, last = list[_Numbers](), -1
    rows_in_last = bytes_in_last = math.inf  # if it takes no more files
    for span, cuts_N4 in cuts:
        start, stop, rows, _ = cuts_N4[0].tolist()
        size = max(stop - start, inputs[span.file].size)  # of the text of a stream, or the file of row groups
        rows_in_last, bytes_in_last = rows_in_last + rows, bytes_in_last + size
        is_small = num_spans[span.file] == 1 and len(cuts_N4) == 1
        if not is_small or rows_in_last > settings.part_rows or bytes_in_last > MAX_PART_BYTES:
            last += 1
            rows_in_last, bytes_in_last = (rows, size) if is_small else (math.inf, math.inf)
        parts.append(np.arange(last, last + len(cuts_N4)))
        last += len(cuts_N4) - 1
    file = np.repeat([span.file for span, _ in cuts], [len(cuts_N4) for _, cuts_N4 in cuts])
    start_N, stop_N, rows_N, line_breaks_N = np.concatenate([cuts_N4 for _, cuts_N4 in cuts]).T
    row_N = np.cumsum(rows_N) - rows_N
    row_in_file_N = row_N - np.maximum.accumulate(np.where(np.diff(file, prepend=-1), row_N, 0))
    return np.stack([np.concatenate(parts), file, start_N, stop_N, rows_N, row_N, row_in_file_N, line_breaks_N])


def _cuts_or_fault(settings: Settings, span: tuple[InputFile, tuple[int, int] | None]) -> _Cuts:
    """Return the pieces of a span, or why its file cannot be read: all needed columns of tables are read, too."""
    source, _ = span
    try:
        if source.kind == "parquet":
            with open_parquet(source.place, state=source.state) as file:
                columns = [name for name in _needed(settings) if name.partition(".")[0] in file.schema_arrow.names]
                for _ in file.iter_batches(columns=columns):
                    pass
        elif source.kind == "arrow":
            with open_arrow(source.place) as arrow:
                columns = [name for name in _needed(settings) if name.partition(".")[0] in arrow.schema.names]
            for _ in read_arrow(source.place, columns, range(sys.maxsize)):
                pass
        return _cuts(settings, span)
    except (OSError, ValueError) as error:
        return _Cuts([], "", fault_in(error))


def _cuts(settings: Settings, span: tuple[InputFile, tuple[int, int] | None]) -> _Cuts:
    """Return the pieces of a span, and the digest of its bytes; of Parquet, that of the footer."""
    source, of_bytes = span
    if source.kind == "parquet":
        return _Cuts(list(_cut_groups(source, settings)), source.sha256 or footer_digest(source))
    if source.kind == "arrow":
        return _Cuts(list(_cut_groups(source, settings)), source.sha256 or sha256_of(source.place))
    if source.is_stream:
        return _Cuts(list(_cut_records(source, settings, source.cut_records(), 0)), sha256_of(source.place))
    digest, (start, stop) = hashlib.sha256(), rows_in(source, of_bytes) if of_bytes else (0, source.size)
    blocks = read_span(source.place, (start, stop), source.block_bytes)

    def hashed(blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            digest.update(block)
            yield block

    blocks = blocks if source.sha256 else hashed(blocks)
    return _Cuts(list(_cut_records(source, settings, source.cut_records(blocks, start), start)), digest.hexdigest())


def _cut_records(source: InputFile, settings: Settings, blocks: Iterable[Records], first: int) -> Iterator[Cut]:
    """Yield pieces of records that start at byte ``first``, without the header."""
    header = (1 + source.has_sep_line) * (source.kind in {"csv", "tsv"}) * (first == 0)  # lines to skip
    start = read = first  # the first byte of the open piece, and of the block
    rows = 0  # in the open piece
    breaks = before = int(source.has_sep_line)  # line breaks in rows before the block, before the open piece
    for records in blocks:
        ends, done = records.ends + read, 0
        read += len(records.data)
        if header:
            done = min(header, len(ends))
            start, header = int(ends[done - 1]), header - done
            before += int(records.breaks[:done].sum())
        while done < len(ends):
            by_bytes = int(np.searchsorted(ends[done:], start + MAX_PART_BYTES)) + 1
            taken = min(settings.part_rows - rows, by_bytes)
            if done + taken > len(ends):
                rows += len(ends) - done
                break
            done += taken
            yield start, int(ends[done - 1]), rows + taken, before
            start, rows, before = int(ends[done - 1]), 0, breaks + int(records.breaks[:done].sum(dtype=np.int64))
        breaks += int(records.breaks.sum(dtype=np.int64))
    if rows:
        yield start, read, rows, before


def _needed(settings: Settings) -> list[str]:
    """Return the columns of a table that the settings need."""
    named = *settings.text_columns, settings.id_column, settings.tree_column, *settings.kept_columns
    return [name for name in named if name is not None]


def _cut_groups(source: InputFile, settings: Settings) -> Iterator[Cut]:
    """Yield ranges of row groups with at most ``settings.part_rows`` rows; a larger group is cut."""
    columns = _needed(settings)
    if source.kind == "arrow":
        groups = rows_of_batches(source.place, columns, source.limits.max_inflation)
    else:
        with open_parquet(source.place, state=source.state) as file:
            check_parquet(over_zeros(file.metadata, source.size), columns, source.shown, source.limits)
            groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    start = rows = 0
    for group, more in enumerate(groups):
        if more > settings.part_rows:
            if rows:
                yield start, group, rows, 0
            count = -(-more // settings.part_rows)
            ends = [more * number // count for number in range(count + 1)]
            yield from ((group, group + 1, stop - first, 0) for first, stop in pairwise(ends))
            start, rows = group + 1, 0
            continue
        if rows and rows + more > settings.part_rows:
            yield start, group, rows, 0
            start, rows = group, 0
        rows += more
    if rows:
        yield start, len(groups), rows, 0
