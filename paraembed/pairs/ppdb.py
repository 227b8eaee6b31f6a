"""PPDB lines → pairs, or the reason why a line is refused.

A line is ``[LHS] ||| phrase ||| paraphrase ||| feature=value … ||| alignment [||| entailment]``; PPDB 1.0 has no
entailment field, 2.0 adds it and the feature ``PPDB2.0Score``.

Nine tenths of a line are features. So the borders of the fields are looked up in the bytes of a block, and only what is
asked for is copied out of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.lines import Lines, Positions
from paraembed.pairs.parsed import ParsedPairs, contains_byte, filled, is_blank, refuse
from paraembed.pairs.scan import BORDER, find_borders, find_numbers, strings_at

SCORE = "PPDB2.0Score"
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
    return line.startswith("[") and line.count(BORDER.decode()) >= 3


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
    borders_N6, count = find_borders(lines.octets, lines.starts, lines.ends)
    count += 1
    good = (count >= 4) & (count <= 6) & ~lines.not_utf8.to_numpy(zero_copy_only=False)
    if lines.first_is_cut:
        good[0] = False

    def field(number: int) -> tuple[Positions, Positions]:
        """Where field ``number`` > 0 of each line starts and ends; nothing where it has none."""
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
    """The numbers of a feature [n], of lists ``name=value …``; null where it is missing, ``NA`` or no finite number."""
    starts, ends = find_numbers(lines.octets, starts, ends, name)
    texts = strings_at(lines.octets, starts, ends)
    missing = ends == starts
    texts = pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), texts) if missing.any() else texts
    numbers = texts.cast(pa.float32())
    return pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float32()))


def _is_blank(lines: Lines, count: Positions) -> pa.BooleanArray:
    """Lines [n] of white space alone; none of them has a border."""
    blank = np.zeros(len(lines), bool)
    rows = np.flatnonzero((count == 1) & ~lines.not_utf8.to_numpy(zero_copy_only=False))
    texts = strings_at(lines.octets, lines.starts[rows], lines.ends[rows])
    blank[rows] = is_blank(texts).to_numpy(zero_copy_only=False)
    return pa.array(blank)


def _has_non_terminal(first: pa.StringArray, second: pa.StringArray) -> pa.BooleanArray:
    if not (contains_byte(first, "[") or contains_byte(second, "[")):
        return pa.array(np.zeros(len(first), bool))
    return pc.or_(*(pc.match_substring_regex(text, _NON_TERMINAL) for text in (first, second)))
