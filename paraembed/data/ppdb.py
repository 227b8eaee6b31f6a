"""PPDB lines → pairs, or the reason why a line is refused.

A line is ``[LHS] ||| phrase ||| paraphrase ||| feature=value … ||| alignment [||| entailment]``; PPDB 1.0 has no
entailment field, 2.0 adds it and the feature ``PPDB2.0Score``.

Nine tenths of a line are features. So the borders of the fields are looked up in the bytes of a block, and only what is
asked for is copied out of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.lines import Lines, Octets, Positions
from paraembed.data.parsed import ParsedPairs, contains_byte, filled, is_blank, refuse

SCORE = "PPDB2.0Score"
_BORDER = b" ||| "
_MOST_DIGITS = 31  # of a feature's value; a longer one is no number
_FEW_DIGITS = 9  # almost all values have no more
_NUMBER = r"^[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$"
_NON_TERMINAL = r"\[[^\s\]]+,\d+\]"


@dataclass(frozen=True, kw_only=True)
class PpdbPairs(ParsedPairs):
    """Lines of PPDB, parsed.

    Attributes:
        versions: which of ``1.0`` and ``2.0`` the lines of 4 to 6 fields are; 2.0 has the sixth, entailment.
    """

    versions: frozenset[str]


def looks_like_ppdb(line: str) -> bool:
    """Whether a line has the shape of a PPDB line."""
    return line.startswith("[") and line.count(_BORDER.decode()) >= 3


def parse_ppdb(
    lines: Lines, features: Sequence[str] = (), *, alignment: bool = False, non_terminals: bool = False
) -> PpdbPairs:
    """Parse n lines of PPDB 1.0 or 2.0.

    Refused, in this order: lines that are too long or no UTF-8, empty lines, fewer than 4 fields, more than 6, and
    syntactic rules with non-terminals such as ``[NP,1]``.

    Args:
        lines: of a PPDB file.
        features: names of features that become columns; ``NA``, or a feature that a line does not have, is null.
        alignment: whether the alignment becomes a column ``alignment``.
        non_terminals: whether rules with non-terminals are pairs.

    Returns:
        n rows; score is PPDB2.0Score where it is a number, relation is the entailment.
    """
    borders = _borders(lines.octets)
    before = np.searchsorted(borders, lines.starts)
    count = np.searchsorted(borders, lines.ends) - before + 1
    good = (count >= 4) & (count <= 6) & ~lines.not_utf8.to_numpy(zero_copy_only=False)
    if lines.first_is_cut:
        good[0] = False
    ends_of_fields = np.concatenate((borders, np.zeros(6, np.int64)))  # of lines that are refused, more is looked up

    def field(number: int) -> tuple[Positions, Positions]:
        """Where field ``number`` > 0 of each line starts and ends; nothing where it has none."""
        has = good & (count > number)
        starts = np.where(has, ends_of_fields[before + number - 1] + len(_BORDER), 0)
        return starts, np.where(has, np.where(count - 1 > number, ends_of_fields[before + number], lines.ends), 0)

    first, second, relation = (lines.take(*field(number)) for number in (1, 2, 5))
    values = _Features(lines, *field(3))
    numbers = {name: values.column(name) for name in dict.fromkeys((SCORE, *features))}
    extra: dict[str, pa.Array] = {name: numbers[name] for name in features}
    if alignment:
        extra["alignment"] = lines.take(*field(4))
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


def _borders(octets: Octets) -> Positions:
    """Where `` ||| `` stands, from left to right, none over another."""
    bars = np.flatnonzero(octets == ord("|"))
    at: Positions = bars[:-2][bars[2:] - bars[:-2] == 2]
    at = at[at > 0]
    at = at[(octets[at - 1] == ord(" ")) & (octets[at + 3] == ord(" "))] - 1  # data ends with a line feed
    overlaps = np.diff(at, prepend=-len(_BORDER)) < len(_BORDER)
    if overlaps.any():  # `` ||| ||| ||| ``: every other one of a run counts
        places = np.arange(len(at))
        run = np.maximum.accumulate(np.where(overlaps, 0, places))
        at = at[(places - run) % 2 == 0]
    return at


class _Features:
    """The features of n lines, ``name=value`` separated by spaces.

    Args:
        lines: n lines.
        starts: int64 [n], where the features start.
        ends: int64 [n].
    """

    def __init__(self, lines: Lines, starts: Positions, ends: Positions) -> None:
        self._lines, self._starts, self._ends = lines, starts, ends
        self._signs: Positions | None = None

    def column(self, name: str) -> pa.FloatArray:
        """The numbers of a feature [n]; null where it is missing, ``NA`` or no number."""
        sought = np.frombuffer(f"{name}=".encode(), np.uint8)
        octets, starts = self._lines.octets, self._starts
        # PPDB2.0Score comes first in its lines.
        at = np.where(self._begin_with(sought), starts, -1)
        others = np.flatnonzero((at < 0) & (self._ends > starts))
        if len(others) and sought.tobytes() in self._lines.data:
            found = np.append(self._find(sought), len(octets))
            nearest = found[np.searchsorted(found, starts[others])]
            at[others] = np.where(nearest < self._ends[others], nearest, -1)
        has = np.flatnonzero(at >= 0)
        values = at[has] + len(sought)
        texts = self._lines.take(values, values + self._lengths(values, self._ends[has], _FEW_DIGITS))
        is_number = pc.match_substring_regex(texts, _NUMBER)
        numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.float32())
        if len(has) == len(starts):
            return numbers
        places = np.full(len(starts), -1)
        places[has] = np.arange(len(has))
        return numbers.take(pa.array(places, mask=places < 0))

    def _lengths(self, values: Positions, ends: Positions, most: int) -> Positions:
        """Bytes of values before the next space or the end; 0 for one that is longer than ``_MOST_DIGITS``."""
        octets = self._lines.octets
        window = values[:, None] + np.arange(most + 1)
        is_end = octets[np.minimum(window, len(octets) - 1)] == ord(" ")
        is_end |= window >= ends[:, None]
        lengths: Positions = is_end.argmax(axis=1)
        longer = np.flatnonzero(~is_end[np.arange(len(values)), lengths])
        if len(longer):
            lengths[longer] = 0 if most == _MOST_DIGITS else self._lengths(values[longer], ends[longer], _MOST_DIGITS)
        return lengths

    def _begin_with(self, sought: Octets) -> npt.NDArray[np.bool_]:
        fits = self._ends - self._starts >= len(sought)
        octets = self._lines.octets
        for place, octet in enumerate(sought):
            fits[fits] = octets[self._starts[fits] + place] == octet
        return fits

    def _find(self, sought: Octets) -> Positions:
        """Where ``name=`` stands behind a space."""
        octets = self._lines.octets
        if self._signs is None:
            self._signs = np.flatnonzero(octets == ord("="))
        at = self._signs[self._signs >= len(sought)]
        for back, octet in enumerate(reversed([ord(" "), *sought[:-1].tolist()]), start=1):
            at = at[octets[at - back] == octet]
        return at - len(sought) + 1


def _is_blank(lines: Lines, count: Positions) -> pa.BooleanArray:
    """Lines [n] of white space alone; none of them has a border."""
    blank = np.zeros(len(lines), bool)
    rows = np.flatnonzero((count == 1) & ~lines.not_utf8.to_numpy(zero_copy_only=False))
    blank[rows] = is_blank(lines.take(lines.starts[rows], lines.ends[rows])).to_numpy(zero_copy_only=False)
    return pa.array(blank)


def _has_non_terminal(first: pa.StringArray, second: pa.StringArray) -> pa.BooleanArray:
    if not (contains_byte(first, "[") or contains_byte(second, "[")):
        return pa.array(np.zeros(len(first), bool))
    return pc.or_(*(pc.match_substring_regex(text, _NON_TERMINAL) for text in (first, second)))
