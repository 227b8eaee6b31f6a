"""Pairs with named columns: Parquet files, and lines of JSON objects (JSONL)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.escape import listed
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.lines import INVALID_UTF8, TOO_LONG, Lines, invalid_rows
from paraembed.io.parquet import open_parquet, read_batches
from paraembed.io.places import Place
from paraembed.pairs.delimited import ROLE_NAMES, Role, assemble, say_the_pair
from paraembed.pairs.parsed import Block, TextRows
from paraembed.pairs.settings import Role

_BLOCK_ROWS = 65_536
_BLOCK_BYTES = 8 << 20
_NAMES = "first, source, sentence1, text1, phrase and second, target, sentence2, text2, paraphrase"


def read_parquet(place: Place, columns: Sequence[Role] = (), limits: ReadLimits = DEFAULT_LIMITS) -> Iterator[Block]:
    """Pairs of a Parquet file.

    Args:
        place: the file.
        columns: what its columns are, in order; empty: what their names say (``paraembed.pairs.delimited.ROLE_NAMES``).
        limits: what is read at most; a row with a longer text is refused.

    Raises:
        ValueError: no whole Parquet file, columns that are not said, or a file that inflates beyond the limits.
    """
    with open_parquet(place) as file:
        roles = _names_of_roles(place, file.schema_arrow.names, columns)
    names, row = _shown(roles), 0
    for batch in read_batches(place, list(roles.values()), _BLOCK_ROWS, _BLOCK_BYTES, limits=limits):
        try:  # not ``safe``: bytes that are no UTF-8 are for the rows below
            cells: dict[Role, pa.StringArray] = {
                role: batch[name].cast(pa.string(), safe=False) for role, name in roles.items()
            }
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"{place}: {listed([str(error)])}; expected columns of texts and numbers") from None
        too_long = reduce(pc.or_, (_longer(cell, limits.max_line_bytes) for cell in cells.values()))
        raw, not_utf8 = TextRows(*cells.values()), pa.array(_not_utf8(list(cells.values()), len(batch)))
        if not_utf8.true_count:
            cells = {role: pc.if_else(not_utf8, pa.scalar(None, pa.string()), cell) for role, cell in cells.items()}
        tests = [(too_long, TOO_LONG), (not_utf8, INVALID_UTF8), _no_text(cells)]
        yield Block("parquet", row, raw, assemble(_without_nulls(cells), tests), columns=names)
        row += len(batch)


def _not_utf8(columns: Sequence[pa.StringArray], size: int) -> npt.NDArray[np.bool_]:
    """Whether a row of string columns [n] holds bytes that are not UTF-8."""

    def is_valid(start: int, stop: int) -> bool:
        try:
            for column in columns:
                column.slice(start, stop - start).validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    return invalid_rows(size, is_valid)


def _longer(cells: pa.StringArray, most: int) -> pa.BooleanArray:
    return pc.fill_null(pc.greater(pc.binary_length(cells), most), False)


def read_jsonl(place: Place, blocks: Iterator[Lines], columns: Sequence[Role] = ()) -> Iterator[Block]:
    """Pairs of lines that are JSON objects. Python's json reads them, 0.4M lines/s.

    Args:
        place: the file.
        blocks: its lines.
        columns: what the keys of its first object are, in order; empty: what the names of keys say.

    Raises:
        ValueError: keys that are not said.
    """
    roles: dict[Role, str] = {}
    for lines in blocks:
        rows = [_object(text) for text in lines.text.to_pylist()]
        objects = [row for row in rows if row is not None]
        if objects and columns and not roles:
            roles = _names_of_roles(place, list(objects[0]), columns)
        elif objects and not columns:  # a later block may have keys that the first has not
            names = sorted({name for row in objects for name in row})
            roles = {**_known(names), **roles} if roles else _names_of_roles(place, names, ())
        cells: dict[Role, pa.StringArray] = {
            role: pa.array([None if row is None else _cell(row.get(name)) for row in rows], pa.string())
            for role, name in roles.items()
        }
        none = pa.nulls(len(rows), pa.string())
        cells = {"first": none, "second": none, **cells}
        tests = [*lines.tests(), (pa.array([row is None for row in rows], pa.bool_()), "no JSON object")]
        pairs = assemble(_without_nulls(cells), [*tests, _no_text(cells)])
        yield Block("jsonl", lines.first, lines, pairs, columns=_shown(roles))


def _names_of_roles(place: Place, names: Sequence[str], columns: Sequence[Role]) -> dict[Role, str]:
    """The name of the column of each role.

    Raises:
        ValueError: not every column is said, or the names do not say the pair.
    """
    found: Sequence[Role] = columns or [ROLE_NAMES.get(name.lower(), "ignore") for name in names]
    if columns and len(columns) != len(names):
        raise ValueError(
            f"{place} has {len(names)} columns: {listed(names)}; `columns` says what {len(columns)} are: "
            f"{listed(columns)}; give one for each, in order, ignore for those that are not needed"
        )
    if not say_the_pair(found):
        raise ValueError(
            f"{place} has columns {listed(names)}; two are needed, named such as {_NAMES}: "
            "say with `columns` what they are, in order, for example: `columns` first second ignore"
        )
    roles: dict[Role, str] = {role: name for role, name in zip(found, names, strict=True) if role != "ignore"}
    if twice := sorted({name for name in roles.values() if names.count(name) > 1}):
        raise ValueError(f"{place} has columns {listed(names)}; {listed(twice)} stands twice, rename one")
    return roles


def _shown(roles: Mapping[Role, str]) -> dict[str, str]:
    return {role: repr(name[:60]) for role, name in roles.items()}


def _known(names: Sequence[str]) -> dict[Role, str]:
    return {role: name for name in names if (role := ROLE_NAMES.get(name.lower(), "ignore")) != "ignore"}


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _cell(value: object) -> str | None:
    """A value as text; None for one that is neither text nor number, or cannot be written as UTF-8."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value if not char.isascii()):
        return None
    return value


def _no_text(cells: dict[Role, pa.StringArray]) -> tuple[pa.BooleanArray, str]:
    return pc.or_(pc.is_null(cells["first"]), pc.is_null(cells["second"])), "too few fields"


def _without_nulls(cells: dict[Role, pa.StringArray]) -> dict[Role, pa.StringArray]:
    return {role: pc.fill_null(column, "") for role, column in cells.items()}
