"""Check values against type hints: JSON from files, and fields of dataclasses that a user sets.

Hints are frozen dataclasses (an instance is built), typed dictionaries (further keys are allowed), ``list``, ``tuple``,
``dict[str, …]``, ``Literal``, unions, ``Any`` and plain types. Types are exact: True is not an int, but an int is
accepted as a float. Integers have at most 64 bits and floats are finite, unless ``Annotated`` gives a ``Range``.
"""

import dataclasses
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

MOST_BYTES = 64 << 20
"""Default maximum size of a JSON file in bytes."""
_MOST_NESTED = 100  # what reads JSON calls itself once or twice a level, and Python ends it at 1,000 calls
_SHOWN = 80  # characters of a value in a message

Kind = TypeVar("Kind")
Reader = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Range:
    """Smallest and largest allowed number, both included; NaN is allowed if ``nan`` is set."""

    low: float
    high: float
    nan: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.nan and value != value)  # noqa: PLR0124 - NaN


MOST_INT = 2**63 - 1
"""Largest integer that has 64 bits."""
_INT64 = Range(-MOST_INT - 1, MOST_INT)
_FINITE = Range(-sys.float_info.max, sys.float_info.max)
_SPANS = {_INT64: "64-bit integers", _FINITE: "finite numbers"}
Count = Annotated[int, Range(0, MOST_INT)]
AnyFloat = Annotated[float, Range(-math.inf, math.inf, nan=True)]
"""Float that may be infinite or NaN, such as a loss."""


class MismatchError(ValueError):
    """Error for a value of a wrong type or out of range; ``path`` has the keys and positions to it, innermost first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []

    def located(self) -> str:
        """Return the message with the path of the value: ``parts[3].rows is -1; allowed: …``."""
        path = "".join(reversed(self.path)).removeprefix(".")
        return f"{path or 'the value'}{self}"


class _WrongTypeError(MismatchError):
    def __init__(self, value: Any, expected: str) -> None:
        super().__init__(f" is {_shown(value)}; expected {expected}")


def json_value(data: bytes, where: str, kind: Any = Any, most_bytes: int = MOST_BYTES) -> Any:
    """Parse JSON text (UTF-8, UTF-16 or UTF-32) of a file ``where`` and check the value against a type hint.

    Raises:
        ValueError: the text is not JSON, too long or nested too deeply, an object repeats a key, a string has half of a
            surrogate pair, or the value has a wrong type.
    """
    if len(data) > most_bytes:
        raise ValueError(f"{where} is larger than the limit of {most_bytes >> 20} MiB for this kind of file")
    try:
        text = data.decode(json.detect_encoding(data))
        value = json.loads(text, object_pairs_hook=_without_repeated_keys)
        if re.search(r"\\u[dD][89a-fA-F]", text):
            json.dumps(value, ensure_ascii=False).encode()
        _check_depth(value)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply; allowed: {_MOST_NESTED} levels") from None
    except UnicodeEncodeError:
        raise ValueError(
            f"{where} contains half of a surrogate pair (\\ud800 to \\udfff), which is not a valid character"
        ) from None
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    return checked(kind, value, where)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"an object has the key {_shown(repeated)} more than once")
    return values


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MOST_NESTED + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def checked(kind: type[Kind], value: Any, where: str) -> Kind:
    """Check parsed JSON of a file ``where`` against a type hint, and return it as a value of this type.

    Raises:
        ValueError: the value or a nested one has a wrong type; the message names its path and what is allowed.
    """
    try:
        result: Kind = _reader(cast("Any", kind))(value)
    except MismatchError as error:
        raise ValueError(f"{where}: {error.located()}") from None
    return result


def check_fields(options: Any, ranges: Mapping[str, tuple[float, float]], of: str = "") -> None:
    """Check the type of every field of a dataclass, and the numbers against their smallest and largest allowed value.

    Raises:
        ValueError: a value is not allowed; the message names field, value and what is allowed, and begins with ``of``,
            the name of the object that has the fields, unless they are parameters.
    """
    for name, read in _readers_of_fields(cast("Any", type(options)), tuple(ranges.items())):
        try:
            read(getattr(options, name))
        except MismatchError as error:
            error.path.append(name if of else f"`{name}`")
            raise ValueError(f"{of}: {error.located()}" if of else error.located()) from None


@cache
def _readers_of_fields(kind: Any, ranges: tuple[tuple[str, tuple[float, float]], ...]) -> list[tuple[str, Reader]]:
    limits = {name: Range(*span) for name, span in ranges}
    fields = dataclasses.fields(kind)
    return [(field.name, _reader(cast("Any", field.type), limits.get(field.name))) for field in fields]


@cache
def _reader(hint: Any, limits: Range | None = None) -> Reader:
    """Return a function that checks a value against a type hint and returns it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Annotated, NotRequired}:
        reader = _reader(*arguments)
    elif origin in {Union, UnionType}:
        reader = _union(hint, limits)
    elif origin in {list, tuple}:
        reader = _sequence(origin, arguments)
    elif origin is dict:
        reader = _mapping(_reader(arguments[1]))
    elif is_typeddict(hint):
        reader = _typed_dict(hint)
    elif dataclasses.is_dataclass(hint):
        reader = _dataclass(hint)
    else:
        reader = _plain(hint, limits)
    return reader


def _plain(hint: Any, limits: Range | None) -> Reader:
    if hint is Any:
        return lambda value: value
    if get_origin(hint) is Literal:
        allowed = get_args(hint)

        def read_choice(value: Any) -> Any:
            if not any(type(value) is type(choice) and value == choice for choice in allowed):
                raise MismatchError(f" is {_shown(value)}; allowed: {', '.join(map(str, allowed))}")
            return value

        return read_choice
    if limits is None:
        limits = {int: _INT64, float: _FINITE}.get(hint)

    def read(value: Any) -> Any:
        if type(value) is not hint and not (hint is float and type(value) is int):
            raise _WrongTypeError(value, _name(hint))
        if limits is not None and type(value) in {int, float} and value not in limits:
            raise MismatchError(f" is {_shown(value)}; allowed: {_span(limits)}")
        return value

    return read


def _union(hint: Any, limits: Range | None) -> Reader:
    members = [_reader(member, limits) for member in get_args(hint) if member is not NoneType]
    allows_none = NoneType in get_args(hint)

    def read(value: Any) -> Any:
        if value is None and allows_none:
            return None
        for member in members:
            try:
                return member(value)
            except _WrongTypeError as error:
                if error.path:
                    raise
        raise _WrongTypeError(value, _name(hint))

    return read


def _sequence(kind: Any, arguments: tuple[Any, ...]) -> Reader:
    fixed = kind is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis)
    readers = [_reader(argument) for argument in arguments if argument is not Ellipsis]

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _WrongTypeError(value, "list")
        if fixed and len(value) != len(readers):
            raise MismatchError(f" has {len(value)} values; expected {len(readers)}")
        values, position = [], 0
        try:
            for position, item in enumerate(value):
                values.append(readers[position if fixed else 0](item))
        except MismatchError as error:
            error.path.append(f"[{position}]")
            raise
        return kind(values)

    return read


def _mapping(reader: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        _require_object(value, {})
        return _items(value, dict.fromkeys(value, reader))

    return read


def _typed_dict(kind: Any) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    fields = {name: _reader(hint) for name, hint in hints.items()}
    required = {name: hints[name] for name in kind.__required_keys__}

    def read(value: Any) -> dict[str, Any]:
        _require_object(value, required)
        return dict(value) | _items({name: value[name] for name in fields if name in value}, fields)

    return read


def _dataclass(kind: Any) -> Reader:
    """Return the reader of a dataclass; files lack fields with ``compare=False``, which belong to the process."""
    hints = get_type_hints(kind, include_extras=True)
    saved = [field for field in dataclasses.fields(kind) if field.compare]
    fields = {field.name: _reader(hints[field.name]) for field in saved}
    missing = dataclasses.MISSING
    required = {
        field.name: hints[field.name]
        for field in saved
        if field.default is missing and field.default_factory is missing
    }

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        _require_object(value, required)
        if unknown := [name for name in value if name not in fields]:
            raise MismatchError(f" has the unknown field {_shown(unknown[0])}; allowed: {', '.join(fields)}")
        try:
            return kind(**_items(value, fields))
        except MismatchError:
            raise
        except ValueError as error:
            raise MismatchError(f": {error}") from None

    return read


def _require_object(value: Any, required: Mapping[str, Any]) -> None:
    if not isinstance(value, dict):
        raise _WrongTypeError(value, "object")
    for name, hint in required.items():
        if name not in value:
            error = MismatchError(f" is missing; expected {_name(hint)}")
            error.path.append(f".{name}")
            raise error


def _items(value: dict[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    read_items, name = {}, ""
    try:
        for name, item in value.items():
            read_items[name] = readers[name](item)
    except MismatchError as error:
        error.path.append(f".{name}" if re.fullmatch(r"[\w-]{1,80}", name) else f"[{_shown(name)}]")
        raise
    return read_items


def _name(hint: Any) -> str:
    """Return the name of a type for messages."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is NoneType:
        return "none"
    if origin is Annotated:
        return _name(arguments[0])
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin in {Union, UnionType}:
        return " or ".join(map(_name, arguments))
    if origin is dict or is_typeddict(hint):
        return "object"
    return str(getattr(origin or hint, "__name__", hint))


def _span(limits: Range) -> str:
    if limits in _SPANS:
        return _SPANS[limits]
    low, high = (f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in (limits.low, limits.high))
    return f"at least {low}" if limits.high in {MOST_INT, math.inf} else f"{low} to {high}"


def _shown(value: Any) -> str:
    """Return a value for messages, truncated."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
