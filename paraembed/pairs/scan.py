"""Where the fields and values of PPDB lines stand: loops over the bytes of a block, compiled by numba.

The C library's ``memchr`` steps from border to border, over 30 bytes a nanosecond; nine tenths of a line are never
looked at by the loops.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from paraembed.compiled import compiled
from paraembed.io.lines import Octets, Positions, string_array

BORDER = b" ||| "
MOST_FIELDS = 6
MOST_DIGITS = 31
"""Of a feature's value; a longer one is no number."""

_SPACE, _BAR, _PLUS, _MINUS, _DOT, _ZERO, _NINE, _E, _SMALL_E = b" |+-.09Ee"
_signature: Any = types.intp
_memchr: Any = types.ExternalFunction("memchr", _signature(types.intp, types.intc, types.uintp))


def find_borders(octets: Octets, starts: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Where `` ||| `` stands in n lines, none over another, from left to right.

    Args:
        octets: bytes of a block.
        starts: int64 [n], where the lines start in it.
        ends: int64 [n].

    Returns:
        int64 [n, 6], the first borders of each line (what is behind its last one is not set), and int64 [n], how many
        there are, 6 for more.
    """
    borders_N6 = np.empty((len(starts), MOST_FIELDS), np.int64)
    counts = np.empty(len(starts), np.int64)
    _find_borders(octets, starts, ends, borders_N6, counts)
    return borders_N6, counts


@compiled
def _find_borders(octets: Octets, starts: Positions, ends: Positions, borders_N6: Positions, counts: Positions) -> None:
    base = octets.ctypes.data
    for row in range(len(starts)):
        begin, end, count = starts[row], ends[row], 0
        at = begin + 1  # a border begins with a space
        while at + 3 < end and count < borders_N6.shape[1]:
            found = _memchr(base + at, _BAR, end - at)
            if found == 0:
                break
            at = found - base
            is_border = (
                at + 3 < end
                and octets[at - 1] == _SPACE
                and octets[at + 1] == _BAR
                and octets[at + 2] == _BAR
                and octets[at + 3] == _SPACE
            )
            if is_border:
                borders_N6[row, count] = at - 1
                count += 1
                at += 5  # the next border's space comes behind this one's
            else:
                at += 1
        counts[row] = count


def find_numbers(octets: Octets, starts: Positions, ends: Positions, name: str) -> tuple[Positions, Positions]:
    """Where the value of a feature stands in n lists ``name=value name=value …``: the first of that name.

    Args:
        octets: bytes of a block.
        starts: int64 [n], where the lists start in it.
        ends: int64 [n].
        name: of the feature.

    Returns:
        Where the values start and end, int64 [n] each; both are equal where there is none, or it is no number of at
        most ``MOST_DIGITS`` characters.
    """
    values = np.zeros((2, len(starts)), np.int64)
    _find_numbers(octets, starts, ends, np.frombuffer(f"{name}=".encode(), np.uint8), values[0], values[1])
    return values[0], values[1]


@compiled
def _behind_sign(octets: Octets, at: int, end: int) -> int:
    return at + 1 if at < end and (octets[at] == _PLUS or octets[at] == _MINUS) else at


@compiled
def _behind_digits(octets: Octets, at: int, end: int) -> int:
    while at < end and _ZERO <= octets[at] <= _NINE:
        at += 1
    return at


@compiled
def _is_number(octets: Octets, at: int, end: int) -> bool:
    """Whether bytes are ``[-+]?digits[.digits][e[-+]?digits]``."""
    digits = _behind_sign(octets, at, end)
    at = _behind_digits(octets, digits, end)
    if at == digits:
        return False
    if at < end and octets[at] == _DOT:
        digits = at + 1
        at = _behind_digits(octets, digits, end)
        if at == digits:
            return False
    if at < end and (octets[at] == _E or octets[at] == _SMALL_E):
        digits = _behind_sign(octets, at + 1, end)
        at = _behind_digits(octets, digits, end)
        if at == digits:
            return False
    return at == end


@compiled
def _find_numbers(
    octets: Octets, starts: Positions, ends: Positions, sought: Octets, from_: Positions, to: Positions
) -> None:
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
                if behind - value <= MOST_DIGITS and _is_number(octets, value, behind):
                    from_[row], to[row] = value, behind
                break
            cell = behind + 1


def strings_at(octets: Octets, starts: Positions, ends: Positions) -> pa.StringArray:
    """The strings ``octets[starts[i]:ends[i]]``, [n]; the caller sees to it that they are UTF-8."""
    lengths = ends - starts
    gathered = np.empty(lengths.sum(), np.uint8)
    _gather(octets, starts, lengths, gathered)
    return string_array(lengths, gathered)


@compiled
def _gather(octets: Octets, starts: Positions, lengths: Positions, gathered: Octets) -> None:
    filled = 0
    for row in range(len(starts)):
        start = starts[row]
        for place in range(lengths[row]):
            gathered[filled + place] = octets[start + place]
        filled += lengths[row]
