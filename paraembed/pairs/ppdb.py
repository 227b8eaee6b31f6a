"""Parse PPDB lines into pairs, or the reason why a line is rejected.

A line is ``[LHS] ||| phrase ||| paraphrase ||| feature=value … ||| alignment [||| entailment]``; PPDB 1.0 has no
entailment field, 2.0 adds it and the feature ``PPDB2.0Score``.

Nine tenths of a line are features. The parser therefore only finds the borders of the fields in the bytes of a block,
and copies the wanted fields. In loops compiled by numba, the C library's ``memchr`` jumps from border to border, over
30 bytes per nanosecond.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.compiled import compiled
from paraembed.io.lines import Lines, Octets, Positions, strings_at
from paraembed.pairs.blocks import ParsedPairs, filled, is_blank, numbers_of, refuse
from paraembed.text.ragged import string_bytes

SCORE = "PPDB2.0Score"
BORDER = b" ||| "
MOST_FIELDS = 6
MOST_DIGITS = 31
"""Maximum characters of a feature's value; a longer value does not count as a number."""

_SPACE, _BAR = b" |"
_NON_TERMINAL = r"\[[^\s\]]+,\d+\]"


class _Memchr:
    """``memchr`` of the C library, for compiled loops."""

    @property
    def _numba_type_(self) -> Any:
        from numba import types  # noqa: PLC0415 - as for ``compiled``

        signature: Any = types.intp
        return types.ExternalFunction("memchr", signature(types.intp, types.intc, types.uintp))


_memchr: Any = _Memchr()


@dataclass(frozen=True, kw_only=True)
class PpdbPairs(ParsedPairs):
    """Parsed lines of PPDB."""

    # The versions, ``1.0`` or ``2.0``, of the lines with 4 to 6 fields; 2.0 has a sixth field, entailment.
    versions: frozenset[str]


def looks_like_ppdb(line: str) -> bool:
    """Return whether a line looks like a PPDB line."""
    return line.startswith("[") and line.count(BORDER.decode()) >= 3


def parse_ppdb(
    lines: Lines, features: Sequence[str] = (), *, alignment: bool = False, non_terminals: bool = False
) -> PpdbPairs:
    """Parse n lines of PPDB 1.0 or 2.0; the score is PPDB2.0Score, null if it is not a number, the relation the
    entailment.

    Rejected, in this order: lines that are too long or not UTF-8, empty lines, fewer than 4 fields, more than 6 fields,
    and, unless ``non_terminals`` is set, syntactic rules with non-terminals such as ``[NP,1]``. The named features, of
    which ``NA`` or a missing one is null, and the alignment become further columns.
    """
    borders_N6, count = np.empty((len(lines), MOST_FIELDS), np.int64), np.empty(len(lines), np.int64)
    _find_borders(lines.octets, lines.starts, lines.ends, borders_N6, count)
    count += 1
    good = (count >= 4) & (count <= 6) & ~lines.not_utf8.to_numpy(zero_copy_only=False)
    if lines.first_is_cut:
        good[0] = False

    def field(number: int) -> tuple[Positions, Positions]:
        """Return start and end of field ``number`` > 0 of each line; both are 0 for a missing field."""
        has = good & (count > number)
        starts = np.where(has, borders_N6[:, number - 1] + len(BORDER), 0)
        return starts, np.where(has, np.where(count - 1 > number, borders_N6[:, number], lines.ends), 0)

    first, second, relation = (strings_at(lines.octets, *field(number)) for number in (1, 2, 5))
    numbers = {name: _numbers(lines, *field(3), name) for name in dict.fromkeys((SCORE, *features))}
    extra: dict[str, pa.Array] = {name: numbers[name] for name in features}
    if alignment:
        extra["alignment"] = strings_at(lines.octets, *field(4))
    return PpdbPairs(
        first=first,
        second=second,
        score=numbers[SCORE],
        relation=filled(relation),
        first_tree=(none := pa.nulls(len(lines), pa.string())),
        second_tree=none,
        refused=refuse(
            [
                *lines.tests(),
                (_is_blank(lines, count), "empty line"),
                (pa.array(count < 4), "too few fields"),
                (pa.array(count > 6), "too many fields"),
                *([] if non_terminals else [(_has_non_terminal(first, second), "non-terminal")]),
            ]
        ),
        extra=extra,
        versions=frozenset(np.where(np.unique(count[good] > 5), "2.0", "1.0").tolist()),
    )


def _numbers(lines: Lines, starts: Positions, ends: Positions, name: str) -> pa.FloatArray:
    """Return the values of a feature [n] from lists ``name=value …``; null if missing, ``NA`` or not finite."""
    values = np.zeros((2, len(starts)), np.int64)
    _find_numbers(lines.octets, starts, ends, np.frombuffer(f"{name}=".encode(), np.uint8), values[0], values[1])
    return numbers_of(strings_at(lines.octets, *values))


def _is_blank(lines: Lines, count: Positions) -> pa.BooleanArray:
    """Return whether lines [n] consist of white space only; such lines have no field borders."""
    blank = np.zeros(len(lines), bool)
    rows = np.flatnonzero((count == 1) & ~lines.not_utf8.to_numpy(zero_copy_only=False))
    texts = strings_at(lines.octets, lines.starts[rows], lines.ends[rows])
    blank[rows] = is_blank(texts).to_numpy(zero_copy_only=False)
    return pa.array(blank)


def _has_non_terminal(first: pa.StringArray, second: pa.StringArray) -> pa.BooleanArray:
    if not any((string_bytes(texts)[0] == ord("[")).any() for texts in (first, second)):
        return pa.array(np.zeros(len(first), bool))
    return pc.or_(*(pc.match_substring_regex(text, _NON_TERMINAL) for text in (first, second)))


@compiled
def _find_borders(octets: Octets, starts: Positions, ends: Positions, borders_N6: Positions, counts: Positions) -> None:
    """Write the first borders `` ||| `` of each line, from left to right, without overlaps, and their number."""
    base = octets.ctypes.data
    for row in range(len(starts)):
        begin, end, count = starts[row], ends[row], 0
        place = begin + 1  # a border begins with a space
        while place + 3 < end and count < borders_N6.shape[1]:
            address = _memchr(base + place, _BAR, end - place)
            if address == 0:
                break
            place = address - base
            is_border = (
                place + 3 < end
                and octets[place - 1] == _SPACE
                and octets[place + 1] == _BAR
                and octets[place + 2] == _BAR
                and octets[place + 3] == _SPACE
            )
            if is_border:
                borders_N6[row, count] = place - 1
                count += 1
                place += 5  # the space of the next border comes after this border's
            else:
                place += 1
        counts[row] = count


@compiled
def _find_numbers(
    octets: Octets, starts: Positions, ends: Positions, sought: Octets, from_: Positions, to: Positions
) -> None:
    """Write where the value behind the first ``sought`` of each list is; nothing if the value is too long."""
    base = octets.ctypes.data
    for row in range(len(starts)):
        cell, end = starts[row], ends[row]
        while cell + len(sought) <= end:
            same = 0
            while same < len(sought) and octets[cell + same] == sought[same]:
                same += 1
            space = _memchr(base + cell, _SPACE, end - cell)
            behind = space - base if space else end
            if same == len(sought):
                value = cell + same
                if behind - value <= MOST_DIGITS:
                    from_[row], to[row] = value, behind
                break
            cell = behind + 1
