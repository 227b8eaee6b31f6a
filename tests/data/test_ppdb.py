import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.data.ppdb import looks_like_ppdb, parse_ppdb

V2 = "[NNS] ||| audits ||| the auditing ||| PPDB2.0Score=4.69265 PPDB1.0Score=17.5 MVLSASim=NA ||| 0-1 ||| Equivalence"
V1 = "[NP] ||| a good deal ||| much ||| Abstract=0 Adjacent=0 CharCountDiff=-5 ||| 0-0 1-0"


def test_lines_of_both_versions() -> None:
    pairs = parse_ppdb(pa.array([V2, V1]))
    assert pairs.first.to_pylist() == ["audits", "a good deal"]
    assert pairs.second.to_pylist() == ["the auditing", "much"]
    assert pairs.score.to_pylist() == [pytest.approx(4.69265), None]
    assert pairs.relation.to_pylist() == ["Equivalence", None]
    assert pairs.refused.null_count == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (None, "invalid UTF-8"),
        ("", "empty line"),
        ("   ", "empty line"),
        ("[NP] ||| a ||| b", "too few fields"),
        ("no pair at all", "too few fields"),
        (V2 + " ||| more", "too many fields"),
        ("[S] ||| [NP,1] 's ||| of [NP,1] ||| Abstract=0 ||| 0-0", "non-terminal"),
    ],
)
def test_what_is_refused_is_named(line: str | None, reason: str) -> None:
    assert parse_ppdb(pa.array([V2, line, V1], pa.string())).refused.to_pylist() == [None, reason, None]


@pytest.mark.parametrize("value", ["NA", "", "x1", "1.2.3"])
def test_a_score_that_is_no_number_is_null(value: str) -> None:
    pairs = parse_ppdb(pa.array([V2.replace("4.69265", value)]))
    assert pairs.score.to_pylist() == [None]
    assert pairs.refused.to_pylist() == [None]


@given(st.lists(st.none() | st.text() | st.lists(st.text(max_size=5), max_size=8).map(" ||| ".join)))
def test_any_text_gives_one_row_a_line(rows: list[str | None]) -> None:
    lines = pa.array(rows, pa.string())
    pairs = parse_ppdb(lines)
    for column in (pairs.first, pairs.second, pairs.score, pairs.relation, pairs.refused):
        assert len(column) == len(rows)
    for row, refused in zip(rows, pairs.refused.to_pylist(), strict=True):
        if refused is None:
            assert row is not None
            assert 4 <= len(row.split(" ||| ")) <= 6


def test_detection() -> None:
    assert looks_like_ppdb(V1)
    assert looks_like_ppdb(V2)
    assert not looks_like_ppdb("a\tb")
    assert not looks_like_ppdb("audits ||| auditing")
