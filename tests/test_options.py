"""Values against types: what is built, what is refused, and where the message says that it is."""

import re
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

import pytest

from paraembed.io.fingerprint import read_json
from paraembed.options import AnyFloat, Count, check_fields, checked, json_value


@dataclass(frozen=True)
class Part:
    rows: Count
    share: float = 1.0
    place: str = field(default="", compare=False)


class File(TypedDict):
    parts: tuple[Part, ...]
    mode: NotRequired[Literal["a", "b"] | None]
    ends: NotRequired[dict[str, list[tuple[int, AnyFloat]]]]


def test_values_are_built_by_their_types():
    value = {
        "parts": [{"rows": 3}, {"rows": 0, "share": 1}],
        "mode": None,
        "ends": {"x": [[1, float("inf")]]},
        "new": 1,
    }
    made = checked(File, value, "f")
    assert made["parts"] == (Part(3), Part(0, 1))
    assert made == {**value, "parts": made["parts"], "ends": {"x": [(1, float("inf"))]}}
    assert type(made["parts"][1].share) is int  # 1 is written as 1 again


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "f: the value is []; expected object"),
        ({}, "f: parts is missing; expected tuple"),
        ({"parts": {}}, "f: parts is {}; expected list"),
        ({"parts": [{"rows": 1}, {"rows": -1}]}, "f: parts[1].rows is -1; allowed: at least 0"),
        ({"parts": [{"rows": True}]}, "f: parts[0].rows is True; expected int"),
        ({"parts": [{"rows": 2**63}]}, "f: parts[0].rows is 9223372036854775808; allowed: at least 0"),
        ({"parts": [{"rows": 1, "share": float("nan")}]}, "f: parts[0].share is nan; allowed: finite numbers"),
        ({"parts": [{"share": 1}]}, "f: parts[0].rows is missing; expected int"),
        ({"parts": [{"rows": 1, "place": "/x"}]}, "f: parts[0] has the unknown field 'place'; allowed: rows, share"),
        ({"parts": [], "mode": "c"}, "f: mode is 'c'; allowed: a, b"),
        ({"parts": [], "mode": ["a"]}, "f: mode is ['a']; allowed: a, b"),
        ({"parts": [], "ends": {"x y": [[1]]}}, "f: ends['x y'][0] has 1 values; expected 2"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_named_with_its_path(value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        checked(File, value, "f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 102 + b"]" * 102, "nested too deeply"),
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' more than once"),
        (
            b"{%s}" % b",".join(b'"%d": 0' % (number % 199_999) for number in range(200_000)),
            "the key '0' more than once",
        ),
        (b'["\\ud83d"]', "half of a surrogate pair"),
        (b'{"\\udc00": 1}', "half of a surrogate pair"),
        (b"\xff", "x.json is not JSON"),
        (b"9" * 5000, "x.json is not JSON"),
        (b"", "x.json is not JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_that_no_job_writes_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        json_value(data, "x.json")


def test_json_is_read_up_to_its_limits(tmp_path):
    assert json_value(b'\xef\xbb\xbf["\\ud83d\\ude00"]', "x.json") == ["\U0001f600"]
    assert json_value(b"[" * 101 + b"]" * 101, "x.json")
    (tmp_path / "x.json").write_bytes(b"[1, 2]")
    assert read_json(tmp_path / "x.json", list[int], 6) == [1, 2]
    with pytest.raises(ValueError, match=r"x\.json is larger than"):
        read_json(tmp_path / "x.json", list[int], 5)


def test_fields_have_types_and_ranges():
    check_fields(Part(1, 0.5), {"share": (0, 1)})
    for part, message in (
        (Part(1, 2), "of: share is 2; allowed: 0 to 1"),
        (Part(1, "x"), "of: share is 'x'; expected float"),
        (Part(-1), "of: rows is -1; allowed: at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            check_fields(part, {"share": (0, 1)}, "of")
