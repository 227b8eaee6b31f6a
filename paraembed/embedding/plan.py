"""Plan of an embedding run: input files split into parts by rows and bytes, so that any number of workers can resume
it.

A part is a range of whole rows: a byte range of text, JSON lines, CSV or TSV, row groups of Parquet, record batches of
Arrow, or some rows of a large row group. The parts of a file that is compressed or converted (an encoding, an array of
JSON) are byte ranges of that stream, which one reader reads once, from its start. A CSV row may contain line ends, so
the planner reads a CSV file once from its start; its parts can then be read separately.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from paraembed.embedding.columns import check_keys, with_common_fields
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.settings import Settings
from paraembed.io.arrow import rows_of_batches
from paraembed.io.parquet import check_parquet, open_parquet
from paraembed.options import Count, checked

MAX_PART_BYTES = 64 << 20
"""Bytes of text after which a part ends, with the record that reaches them. The reader of a compressed file passes each
part on in one piece.
"""
DATA = "data"
"""Folder of the parts, in which there is nothing else, so that every tool reads it as one table."""
IDS = "_ids"
"""Folder of the hashes of the ids, until the commit; see ``paraembed.embedding.ids``."""
Cut = tuple[int, int, int, int]
"""First byte or row group of a part, the one after its last, its number of rows, and the number of line breaks inside
of cells before it.
"""


@dataclass(frozen=True)
class Part:
    """One output file, and its rows in the input."""

    name: str  # name of the output file, relative to the output
    file: Count  # index of the file in the plan's inputs
    start: Count  # first byte (of the decompressed text) or row group
    stop: Count  # the byte or row group after the last
    rows: Count  # rows from ``start`` to ``stop``, including rows that cannot be read
    row: Count  # number of the first row, counted over all inputs from 0
    row_in_file: Count  # number of the first row, counted in its file from 0, without the header
    line_breaks: Count = 0  # line breaks inside of the cells of a CSV file before ``start``, for line numbers

    @property
    def format(self) -> int:
        """Number of the output's format, 2 or 3."""
        return 3 if self.name.startswith(f"{DATA}/") else 2

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``line_breaks`` only if it is not 0."""
        return {name: value for name, value in asdict(self).items() if value or name != "line_breaks"}


@dataclass(frozen=True)
class Plan:
    """Inputs, settings and parts, in the order of the rows."""

    inputs: tuple[InputFile, ...]
    settings: Settings
    parts: tuple[Part, ...]
    format: int = 3

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(part.rows for part in self.parts)

    def table(self, out: object) -> str:
        """Return the folder of the parts in ``out``."""
        return f"{out}/{DATA}" if self.format > 2 else str(out)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, without the credentials of URIs."""
        return {
            "inputs": [file.to_json() for file in self.inputs],
            "settings": settings_json(self.settings, self.format),
            "parts": [part.to_json() for part in self.parts],
        }


def settings_json(settings: Settings, format_number: int) -> dict[str, Any]:
    """Return the settings as JSON values; format 2 has no ``compact``, because all its outputs are."""
    return {name: value for name, value in asdict(settings).items() if format_number > 2 or name != "compact"}


def plan_from_json(value: Any, format_number: int) -> Plan:
    """Return the plan that ``Plan.to_json`` wrote. Raise ValueError if a field is missing, unknown or of another type,
    a part has a wrong name, or the parts are not contiguous.
    """
    plan = replace(checked(Plan, value, "plan"), format=format_number)
    if format_number == 2:
        plan = replace(plan, settings=replace(plan.settings, compact=True))
    if not plan.parts:
        raise ValueError("plan: it has no parts")
    if plan.rows >= 2**63:
        raise ValueError(f"plan: its parts have {plan.rows} rows, more than 64-bit row numbers can count")
    before = Part("", -1, 0, 0, 0, 0, 0)
    for part, (number, expected) in zip(plan.parts, enumerate(part_names(len(plan.parts), plan.format)), strict=True):
        if part.name != expected:
            raise ValueError(f"plan: part {number} has the name {part.name!r}; expected {expected}")
        is_new = part.file != before.file
        starts = {part.start} if is_new else {before.stop}
        if not is_new and plan.format > 2 and plan.inputs[part.file].kind == "parquet":
            starts.add(before.stop - 1)  # the parts share a row group
        if not (
            before.file <= part.file < len(plan.inputs)
            and part.start in starts
            and part.row_in_file == (0 if is_new else before.row_in_file + before.rows)
            and 0 <= part.start < part.stop
            and part.rows > 0
            and part.row == before.row + before.rows
            and part.file >= 0
        ):
            raise ValueError(f"{part.name} does not start where the previous part ends")
        before = part
    return plan


def part_name(number: int) -> str:
    """Return the file name of part ``number`` (from 0), relative to the output: generation and number."""
    return f"{DATA}/part-000-{number:06d}.parquet"


def numbered_name(number: int, count: int) -> str:
    """Return the file name of part ``number`` (from 0) of ``count`` parts of mined pairs."""
    return f"part-{number:05d}-of-{count:05d}.parquet"


def part_names(count: int, format_number: int) -> list[str]:
    """Return the file names of all parts; in format 2 they contain ``count``."""
    return [part_name(number) if format_number > 2 else numbered_name(number, count) for number in range(count)]


def inputs_identity(inputs: tuple[InputFile, ...], settings: Settings) -> list[dict[str, Any]]:
    """Return what decides the output: sizes and contents of the inputs, in order, and their names if ids contain them.

    For CSV this includes the limits that affect the rejected lines, if they differ from the default; for columns of
    Hive folders their values.
    """
    named, carried = settings.id_kind == "file-row", {settings.id_column, *settings.keep}
    return [
        {"size": file.size, "sha256": file.sha256, "kind": file.kind}
        | ({"name": file.name} if named else {})
        | file.how_read()
        | {f"{name}=": value for name, value in file.partitions.items() if name in carried}
        for file in inputs
    ]


def make_plan(inputs: tuple[InputFile, ...], settings: Settings) -> Plan:
    """Split the inputs into parts of about ``settings.part_rows`` rows; a part of text also ends where it reaches
    ``MAX_PART_BYTES``. Raise ValueError if the settings do not fit the inputs, or a row is too long.
    """
    inputs = with_common_fields(inputs, settings)
    if inputs[0].kind == "jsonl":
        check_keys(inputs, settings)
    cuts = [
        (number, cut)
        for number, file in enumerate(inputs)
        for cut in (_cut_groups if file.kind in {"parquet", "arrow"} else _cut_records)(file, settings)
    ]
    if not cuts:
        raise ValueError(f"{inputs[0].shown} has no rows; there is nothing to embed")
    parts: list[Part] = []
    row = 0
    for number, (file, (start, stop, rows, line_breaks)) in enumerate(cuts):
        before = parts[-1].row_in_file + parts[-1].rows if parts and parts[-1].file == file else 0
        parts.append(Part(part_name(number), file, start, stop, rows, row, before, line_breaks))
        row += rows
    return Plan(inputs, settings, tuple(parts))


def _cut_records(source: InputFile, settings: Settings) -> Iterator[Cut]:
    """Yield parts of ``settings.part_rows`` rows, or fewer if they reach ``MAX_PART_BYTES``, without the header."""
    header = (1 + source.has_sep_line) * (source.kind in {"csv", "tsv"})  # lines to skip
    start = read = rows = 0  # bytes before the open part, bytes before the block, rows in the open part
    breaks = before = int(source.has_sep_line)  # line breaks in rows before the block, before the open part
    for records in source.cut_records():
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


def _cut_groups(source: InputFile, settings: Settings) -> Iterator[Cut]:
    """Yield ranges of row groups (or record batches of Arrow) with at most ``settings.part_rows`` rows. A larger row
    group is split into equal parts, see ``rows._batches_from``; a larger record batch is a part.
    """
    named = settings.text_column, settings.id_column, settings.tree_column, *settings.keep
    columns = [name for name in named if name is not None]
    if source.kind == "arrow":
        groups = rows_of_batches(source.place, columns, source.limits.max_inflation)
    else:
        with open_parquet(source.place, state=source.state) as file:
            check_parquet(file, columns, source.shown, source.limits)
            groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    start = rows = 0
    for group, more in enumerate(groups):
        if more > settings.part_rows and source.kind == "parquet":
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
