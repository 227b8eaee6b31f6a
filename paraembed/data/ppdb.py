"""PPDB lines → pairs, or the reason why a line is refused.

A line is ``[LHS] ||| phrase ||| paraphrase ||| feature=value … ||| alignment [||| entailment]``; PPDB 1.0 has no
entailment field, 2.0 adds it and the feature ``PPDB2.0Score``.
"""

import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.parsed import ParsedPairs, refuse

_FIELDS = " ||| "


def looks_like_ppdb(line: str) -> bool:
    """Whether a line has the shape of a PPDB line."""
    return line.startswith("[") and line.count(_FIELDS) >= 3


def parse_ppdb(lines: pa.StringArray) -> ParsedPairs:
    """Parse n lines of PPDB 1.0 or 2.0.

    Refused, in this order: invalid UTF-8 (null), empty lines, fewer than 4 fields, more than 6, and syntactic rules
    with non-terminals such as ``[NP,1]``.

    Args:
        lines: string array [n]; null stands for a line that is not UTF-8.

    Returns:
        n rows; score is PPDB2.0Score where it is a number, relation is the entailment.
    """
    text = pc.fill_null(lines, "")
    fields = pc.split_pattern(text, _FIELDS)
    count = pc.list_value_length(fields)
    # Rows with another number of fields are refused below; padding lets one expression read all of them.
    padded = pc.split_pattern(pc.binary_join_element_wise(text, _FIELDS * 6, ""), _FIELDS)
    first, second, features, entailment = (pc.list_element(padded, at) for at in (1, 2, 3, 5))
    reason = refuse(
        [
            (pc.is_null(lines), "invalid UTF-8"),
            (pc.equal(pc.binary_length(pc.utf8_trim_whitespace(text)), 0), "empty line"),
            (pc.less(count, 4), "too few fields"),
            (pc.greater(count, 6), "too many fields"),
            (
                pc.match_substring_regex(pc.binary_join_element_wise(first, second, " "), r"\[[^\s\]]+,\d+\]"),
                "non-terminal",
            ),
        ]
    )
    found = pc.extract_regex(
        features, r"(?:^|\s)PPDB2\.0Score=(?P<score>[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?:\s|$)"
    )
    score = pc.struct_field(found, "score").cast(pa.float32())
    relation = pc.utf8_trim_whitespace(entailment)
    relation = pc.if_else(pc.equal(relation, ""), pa.scalar(None, pa.string()), relation)
    none = pa.nulls(len(lines), pa.string())
    return ParsedPairs(first, second, score, relation, none, none, reason)
