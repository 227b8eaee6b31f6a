"""Check the fields of a frozen dataclass that a user fills in: recipes and encoders."""

import dataclasses
from typing import Any, Literal, get_args, get_origin


def check_fields(options: Any, ranges: dict[str, tuple[float, float]], of: str = "") -> None:
    """Check every field against its type and its range.

    Args:
        options: a dataclass whose fields are str, int, float, bool, a Literal, or one of these or None.
        ranges: smallest and largest value of numbers, both allowed, by field.
        of: what the fields belong to, for the message.

    Raises:
        ValueError: a value that is not allowed; names field, value and what is allowed.
    """
    prefix = f"{of}: " if of else ""
    for one in dataclasses.fields(options):
        value = getattr(options, one.name)
        _check_type(prefix + one.name, value, one.type)
        low, high = ranges.get(one.name, (None, None))
        if value is not None and low is not None and not low <= value <= high:
            raise ValueError(f"{prefix}{one.name} is {value}; allowed: {low:g} to {high:g}")


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise ValueError unless a value is of a field's type; JSON's 1 is good for 1.0."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{name} is {value!r}; allowed: {', '.join(map(str, get_args(kind)))}")
        return
    kinds = get_args(kind) or (kind,)
    if dataclasses.is_dataclass(kinds[0]):
        fits = isinstance(value, kinds)
    else:
        exact = type(value) in kinds  # not isinstance: True is an int
        fits = exact or (float in kinds and type(value) is int)
    if not fits:
        names = " or ".join("none" if one is type(None) else one.__name__ for one in kinds)
        raise ValueError(f"{name} is {value!r}; expected {names}")
