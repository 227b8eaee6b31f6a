import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paraembed.io.lines import Lines, read_lines
from paraembed.pairs.ppdb import looks_like_ppdb, parse_ppdb

V2 = "[NNS] ||| audits ||| the auditing ||| PPDB2.0Score=4.69265 PPDB1.0Score=17.5 MVLSASim=NA ||| 0-1 ||| Equivalence"
V1 = "[NP] ||| a good deal ||| much ||| Abstract=0 Adjacent=0 CharCountDiff=-5 ||| 0-0 1-0"


def parse(*lines, **options):
    rows = (line.encode() if isinstance(line, str) else line for line in lines)
    return parse_ppdb(Lines.of(b"".join(row + b"\n" for row in rows)), **options)


def test_lines_of_both_versions():
    assert parse(V2, V1).versions == {"1.0", "2.0"}
    assert parse(V2, "[X] ||| cut", V2).versions == {"2.0"}
    assert parse(V1).versions == {"1.0"}
    assert parse("", V2 + " ||| more").versions == set()
    assert [*map(looks_like_ppdb, (V1, V2, "a\tb", "audits ||| auditing"))] == [True, True, False, False]


RULE = "[S] ||| [NP,1] 's ||| of [NP,1] ||| Abstract=0 ||| 0-0"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff", "invalid UTF-8"),
        (V1.encode().replace(b"much", b"m\xfcch"), "invalid UTF-8"),
        ("", "empty line"),
        ("   ", "empty line"),
        ("[NP] ||| a ||| b", "too few fields"),
        ("no pair at all", "too few fields"),
        (V2 + " ||| more", "too many fields"),
        (RULE, "non-terminal"),
        *((V2.replace("4.69265", value), None) for value in ["1e999", "-1e999", "NA", "", "x1", "1.2.3"]),
    ],
)
def test_what_is_refused_is_named_and_a_score_that_is_no_number_is_null(line, reason):
    pairs = parse(V2, line, V1)
    assert pairs.refused.to_pylist() == [None, reason, None]
    assert pairs.score.to_pylist()[1:] == [None, None]
    assert parse(RULE, non_terminals=True).refused.to_pylist() == [None]


FIELD = st.text(max_size=5) | st.sampled_from(
    ["|||", "| ", " ||| ", "||| |||", " PPDB2.0Score=1", "a=1 ", "[X,1]", "\t"]
)
LINE = st.text() | st.lists(FIELD, max_size=8).map(" ||| ".join) | st.lists(FIELD, max_size=8).map("".join)
ROW = (LINE.map(lambda text: text.encode()) | st.binary()).filter(lambda row: b"\n" not in row)


def oracle(row):
    """A line by plain Python: refused, first, second, score, relation, feature a, alignment."""
    try:
        line = row.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return "invalid UTF-8", "", "", None, None, None, ""
    fields = line.split(" ||| ")
    if not line.strip():
        return "empty line", "", "", None, None, None, ""
    if not 4 <= len(fields) <= 6:
        return f"too {'few' if len(fields) < 4 else 'many'} fields", "", "", None, None, None, ""
    values = {}
    for cell in fields[3].split(" "):
        name, sign, value = cell.partition("=")
        if sign and name not in values:
            number = re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", value) and len(value) < 32
            parsed = float(value) if number else np.inf
            values[name] = float(np.float32(parsed)) if abs(parsed) <= np.finfo(np.float32).max else None
    rule = re.search(r"\[[^\s\]]+,[0-9]+\]", f"{fields[1]} {fields[2]}")
    relation = fields[5].strip() if len(fields) > 5 else ""
    return (
        "non-terminal" if rule else None, fields[1], fields[2], values.get("PPDB2.0Score"), relation or None,
        values.get("a"), fields[4] if len(fields) > 4 else "",
    )  # fmt: skip


@given(st.lists(ROW, min_size=1))
@example([b" ||| ||| ||| ||| ||| ||| ||| |||"])
@example([b" |||  ||| a=1 |||  ||| ", b"x ||| y ||| z ||| b=3 a=2"])
def test_any_bytes_parse_as_plain_python_says(rows):
    pairs = parse(*rows, features=["a"], alignment=True)
    columns = (
        pairs.refused, pairs.first, pairs.second, pairs.score, pairs.relation, pairs.extra["a"],
        pairs.extra["alignment"],
    )  # fmt: skip
    for row, found in zip(rows, zip(*(column.to_pylist() for column in columns), strict=True), strict=True):
        assert found == oracle(row)


ORIGINAL = Path(__file__).parents[3] / "shared/data/train/ppdb/ppdb-2.0-s.original-format.100-lines.txt.gz"
# The first of the original lines, read by eye: every feature.
ROW = json.loads(Path(__file__).with_name("ppdb_original.json").read_text())
VALUES = ROW["values"]
ORIGINAL_NAMES = [*VALUES, "ForwardEntailment"]


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original lines are not here")
def test_original_lines():
    lines = list(read_lines(ORIGINAL))
    pairs = parse_ppdb(lines[0], ORIGINAL_NAMES, alignment=True)
    assert len(lines) == 1
    assert len(pairs.first) == 100
    assert pairs.refused.null_count == 100
    assert set(pairs.extra["alignment"].to_pylist()) == {"0-0"}
    assert pairs.versions == {"2.0"}
    assert pairs.score.null_count == 0
    assert pairs.score.to_pylist() == sorted(pairs.score.to_pylist(), reverse=True)
    for name in ("first", "second", "relation"):
        assert getattr(pairs, name)[0].as_py() == ROW[name]
    found = {name: pairs.extra[name][0].as_py() for name in ORIGINAL_NAMES}
    assert found == pytest.approx({**VALUES, "ForwardEntailment": None})
