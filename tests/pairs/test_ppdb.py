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
    pairs = parse(V2, V1)
    assert pairs.first.to_pylist() == ["audits", "a good deal"]
    assert pairs.second.to_pylist() == ["the auditing", "much"]
    assert pairs.score.to_pylist() == [pytest.approx(4.69265), None]
    assert pairs.relation.to_pylist() == ["Equivalence", None]
    assert pairs.refused.null_count == 2
    assert pairs.versions == {"1.0", "2.0"}
    assert parse(V2, "[X] ||| cut", V2).versions == {"2.0"}
    assert parse(V1).versions == {"1.0"}
    assert parse("", V2 + " ||| more").versions == set()


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
        ("[S] ||| [NP,1] 's ||| of [NP,1] ||| Abstract=0 ||| 0-0", "non-terminal"),
    ],
)
def test_what_is_refused_is_named(line, reason):
    assert parse(V2, line, V1).refused.to_pylist() == [None, reason, None]


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NA", "", "x1", "1.2.3"])
def test_a_score_that_is_no_number_is_null(value):
    pairs = parse(V2.replace("4.69265", value))
    assert pairs.score.to_pylist() == [None]
    assert pairs.refused.to_pylist() == [None]


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
ORIGINAL_ROW = (
    "audits", "auditing", "Equivalence",
    {
        "PPDB2.0Score": 4.69265, "PPDB1.0Score": 17.51317, "-logp(LHS|e1)": 1.24587, "-logp(LHS|e2)": 7.18925,
        "-logp(e1|LHS)": 10.26294, "-logp(e1|e2)": 8.44768, "-logp(e1|e2,LHS)": 2.09186,
        "-logp(e2|LHS)": 16.82413, "-logp(e2|e1)": 9.06549, "-logp(e2|e1,LHS)": 8.65305, "AGigaSim": 0.48218,
        "Abstract": 0.0, "Adjacent": 0.0, "CharCountDiff": 2.0, "CharLogCR": 0.28768, "ContainsX": 0.0,
        "Equivalence": 0.530458, "Exclusion": 4e-06, "GlueRule": 0.0, "GoogleNgramSim": 0.00614, "Identity": 0.0,
        "Independent": 0.042972, "Lex(e1|e2)": 62.90141, "Lex(e2|e1)": 62.90141, "Lexical": 1.0, "LogCount": 0.0,
        "MVLSASim": None, "Monotonic": 1.0, "OtherRelated": 0.027701, "PhrasePenalty": 1.0,
        "RarityPenalty": 0.36788, "ReverseEntailment": 0.398865, "SourceTerminalsButNoTarget": 0.0,
        "SourceWords": 1.0, "TargetComplexity": 0.99233, "TargetFormality": 0.99701,
        "TargetTerminalsButNoSource": 0.0, "TargetWords": 1.0, "UnalignedSource": 0.0, "UnalignedTarget": 0.0,
        "WordCountDiff": 0.0, "WordLenDiff": 2.0, "WordLogCR": 0.0,
    },
)  # fmt: skip
ORIGINAL_NAMES = [*ORIGINAL_ROW[3], "ForwardEntailment"]


def check_original_row(pairs):
    """That the first pair has the cells of ``ORIGINAL_ROW``."""
    first, second, relation, values = ORIGINAL_ROW
    assert (pairs.first[0].as_py(), pairs.second[0].as_py(), pairs.relation[0].as_py()) == (first, second, relation)
    found = {name: pairs.extra[name][0].as_py() for name in ORIGINAL_NAMES}
    assert found == pytest.approx({**values, "ForwardEntailment": None})


def test_a_line_with_every_feature():
    first, second, relation, values = ORIGINAL_ROW
    cells = " ".join(f"{name}={'NA' if value is None else value}" for name, value in values.items())
    line = f"[NNS] ||| {first} ||| {second} ||| {cells} ||| 0-0 ||| {relation}"
    check_original_row(parse(line, features=ORIGINAL_NAMES))


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
    check_original_row(pairs)


def test_rules_with_non_terminals_on_request():
    line = "[S] ||| [NP,1] 's ||| of [NP,1] ||| Abstract=0 ||| 0-0"
    assert parse(line, non_terminals=True).refused.to_pylist() == [None]


def test_detection():
    assert looks_like_ppdb(V1)
    assert looks_like_ppdb(V2)
    assert not looks_like_ppdb("a\tb")
    assert not looks_like_ppdb("audits ||| auditing")
