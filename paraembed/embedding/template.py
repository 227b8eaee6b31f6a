"""Text of a row from several columns: a format string such as ``{title}. {body}``."""

import re
from functools import cache
from string import Formatter
from typing import NamedTuple

# Between two columns: brackets and tags that close the first value, the separator, and the label of the second value.
_BETWEEN = re.compile(r"((?:[)\]}»”]|</\w+>)*)((?:[^\w(\[{«“<]|<(?!\w))*)(.*)", re.DOTALL)


class Field(NamedTuple):
    """A column of a template, and the text around its value: a separator if another value precedes, what is before it,
    and what is behind it.
    """

    column: str
    around: tuple[str, str, str]


@cache
def fields_of(template: str) -> tuple[Field, ...]:
    """Return the columns of a template in their order. Raise ValueError if it has none or is malformed."""
    literals, columns = [""], list[str]()
    try:
        for literal, column, form, conversion in Formatter().parse(template):
            literals[-1] += literal
            if column is not None:
                if not column:
                    raise ValueError("a brace has no column")
                if form or conversion:
                    raise ValueError(f"column {column!r} has a format or a conversion, {form or conversion!r}")
                columns.append(column)
                literals.append("")
    except ValueError as error:
        raise ValueError(
            f"`text` is {template!r} ({error}); give columns in braces, such as '{{title}}. {{body}}', and {{{{ for a "
            "brace"
        ) from None
    if not columns:
        raise ValueError(f"`text` is {template!r}, which has no column; give columns in braces, such as '{{title}}'")
    between = [_BETWEEN.fullmatch(literal) for literal in literals[1:-1]]
    groups = [("", "", literals[0]), *(match.groups() for match in between if match), (literals[-1], "", "")]
    return tuple(
        Field(column, (separator, before, after))
        for (_, separator, before), column, (after, _, _) in zip(groups, columns, groups[1:], strict=False)
    )
