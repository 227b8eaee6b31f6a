r"""Rows of a TSV file (no quoting) or a CSV file (quoted where needed) → pairs, or the reason why a row is refused.

A first row made of column names (``source,target``, ``score\tsentence1\tsentence2``, …) says which column is what; a
file without one has the pair in its two columns, or ``columns`` says what they are. The trees of a pair are optional.
A first row that looks like other names (``paraembed.pairs.headers``) is refused unless ``columns`` says what they are.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.escape import listed
from paraembed.io.inflate import ahead, read_blocks
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.lines import INVALID_UTF8, Lines
from paraembed.io.places import Place
from paraembed.io.tables import BLOCK_BYTES, Records, Table, read_records
from paraembed.pairs.headers import looks_like_header
from paraembed.pairs.parsed import Block, ParsedPairs, filled, is_blank, refuse
from paraembed.pairs.settings import Role

_SHOWN_BYTES = 4096  # of a row of CSV that is refused
_HEADER_ROWS, _HEADER_CHARACTERS = 100, 1 << 20  # that are compared with the first row
ROLE_NAMES: dict[str, Role] = {
    **dict.fromkeys(("first", "source", "src", "text1", "sentence1", "question1", "phrase1", "phrase"), "first"),
    **dict.fromkeys(("second", "target", "tgt", "text2", "sentence2", "question2", "phrase2", "paraphrase"), "second"),
    **dict.fromkeys(("score", "similarity"), "score"),
    **dict.fromkeys(("relation", "label", "entailment", "is_duplicate"), "relation"),
    **dict.fromkeys(("first_tree", "tree1", "parse1"), "first_tree"),
    **dict.fromkeys(("second_tree", "tree2", "parse2"), "second_tree"),
    **dict.fromkeys(("first_pos", "pos1"), "first_pos"),
    **dict.fromkeys(("second_pos", "pos2"), "second_pos"),
    "alignment": "alignment",
    **dict.fromkeys(("id", "qid1", "qid2", "genre", "split"), "ignore"),
}


class Columns(NamedTuple):
    """What the columns of a file are: their roles, in order; whether its first row is a header; role → name."""

    roles: Sequence[Role]
    header: bool
    names: Mapping[str, str]


def read_tsv(
    path: Place,
    heads: Sequence[Lines],
    blocks: Iterator[Lines],
    columns: Sequence[Role],
    *,
    from_start: bool = True,
    no_header: bool = False,
) -> Iterator[Block]:
    """Parse lines of a TSV file, whose first one may be a header; see ``read_pairs``.

    Args:
        path: the file.
        heads: its first lines.
        blocks: the lines to parse.
        columns: roles, in order; empty: what the header says.
        from_start: whether the blocks begin with the first line of the file.
        no_header: the first line is a pair, whatever it looks like.
    """
    texts = (head[row].decode("utf-8", "replace") for head in heads for row in range(len(head)))
    first, *rows = _head_rows(text.split("\t") for text in texts)
    roles, header, names = _columns_of(path, first, rows, columns, no_header)
    for block in blocks:
        if header and from_start and block.first == 0:
            block = block.without_first()  # noqa: PLW2901 - the header is no row
        text = pc.fill_null(block.text, "")
        cells = pc.split_pattern(text, "\t")
        tests = [
            *block.tests(),
            (is_blank(text), "empty line"),
            *_count_tests(pc.list_value_length(cells), len(roles)),
        ]
        padded = pc.split_pattern(pc.binary_join_element_wise(text, "\t" * len(roles), ""), "\t")
        parsed = {role: pc.list_element(padded, at) for at, role in enumerate(roles)}
        yield Block("tsv", block.first, block, assemble(parsed, tests), columns=names)


def read_csv(
    path: Place, columns: Sequence[Role], limits: ReadLimits = DEFAULT_LIMITS, *, no_header: bool = False
) -> Iterator[Block]:
    """Parse a CSV file; see ``read_pairs``.

    A row with a line break inside of a field is refused: two stray quotes make one row of all lines between them.
    """
    pieces = ahead(read_blocks(path, BLOCK_BYTES, limits.max_inflation))
    table = Table(from_start=True, repairs=False)
    blocks = _quoted_rightly(path, read_records(pieces, "csv", str(path), limits.max_line_bytes, table))
    heads = list[Records]()
    for block in blocks:
        heads.append(block)
        if sum(map(len, heads)) > _HEADER_ROWS or len(block.data) > _HEADER_CHARACTERS:
            break
    first, *rows = _head_rows(head.row(at) for head in heads for at in range(len(head))) or [[]]
    roles, header, names = _columns_of(path, first, rows, columns, no_header)
    places: dict[Role, str] = {role: str(at) for at, role in enumerate(roles) if role != "ignore"}
    number = 0
    for block in itertools.chain(heads, blocks):
        if header and not number:
            block, number = block.without_first(), 1  # noqa: PLW2901 - the header is no row
        not_utf8, (starts, stops) = block.not_utf8(), block.bounds
        whole = (block.cells == len(roles)) & ~not_utf8
        at = pa.array(np.cumsum(whole) - 1, mask=~whole)  # of each row in ``cells``
        cells = block.columns([str(at) for at in range(len(roles))], [*places.values()], whole)
        parsed = {role: pc.fill_null(cells[place].cast(pa.string()).take(at), "") for role, place in places.items()}
        tests = [
            (pa.array(not_utf8), INVALID_UTF8),
            (pa.array(starts == stops), "empty line"),
            (pa.array(block.breaks > 0), "line break in a field"),
            *_count_tests(pa.array(block.cells), len(roles)),
        ]
        if len(block):
            yield Block("csv", number, _Unquoted(block), assemble(parsed, tests), columns=names)
        number += len(block)


class _Unquoted:
    """Rows of CSV, their cells joined by commas."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, row: int, /) -> bytes:
        return ",".join(self._records.row(row, _SHOWN_BYTES)).encode("utf-8", "surrogateescape")


def _quoted_rightly(path: Place, blocks: Iterator[Records]) -> Iterator[Records]:
    """The same blocks, up to a row whose quoting is wrong."""
    line = 1
    for block in blocks:
        if block.faults.any():
            row = int(np.flatnonzero(block.faults)[0])
            raise ValueError(
                f"{path}, line {line + block.line_of(row)}: wrong quoting ({block.fault(row)}); mend it, or give "
                "--format tsv for plain columns"
            )
        line += block.num_lines
        yield block


def _head_rows(rows: Iterator[list[str]]) -> list[list[str]]:
    """Take the first rows of a file, fewer where they are long."""
    head, size = list[list[str]](), 0
    for row in rows:
        head.append(row)
        size += sum(map(len, row))
        if len(head) > _HEADER_ROWS or size > _HEADER_CHARACTERS:
            break
    return head


def _columns_of(
    path: Place, first: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[Role], no_header: bool
) -> Columns:
    """Decide what the columns are, by the flag, by a header, or by their number.

    Args:
        path: the file, for messages.
        first: cells of its first row.
        rows: cells of the rows after it, to tell a header by.
        columns: roles that the flag gives.
        no_header: the first row is a pair.

    Raises:
        ValueError: nothing says which columns are the pair, or the first row looks like a header with unknown names.
    """
    known = [ROLE_NAMES.get(cell.strip().lstrip("\ufeff").lower()) for cell in first]
    header = not no_header and None not in known
    if columns:
        header = header or (not no_header and looks_like_header(first, rows))
        return Columns(columns, header, _named(columns, first if header else ()))
    if header:
        roles = [name for name in known if name is not None]
        if not say_the_pair(roles):
            raise ValueError(f"{path} has columns {listed(first)}; say with `columns` which are first and second")
        return Columns(roles, True, _named(roles, first))
    if not no_header and looks_like_header(first, rows):
        example = " ".join(("first", "second", *("ignore" for _ in first[2:6]), *("…" for _ in first[6:7])))
        raise ValueError(
            f"{path} begins with a row that looks like a header with unknown names, {listed(first)}; say with "
            f"`columns` what the columns are, for example: `columns` {example}; if the row is a pair, give `no_header`"
        )
    if len(first) != 2:
        raise ValueError(
            f"{path} has {len(first):,} columns and no header; say what they are with `columns`, "
            "for example: `columns` first second score"
        )
    return Columns(("first", "second"), False, _named(("first", "second"), ()))


def _named(roles: Sequence[Role], header: Sequence[str]) -> dict[str, str]:
    """Each role with the name of its column, or its number where there is no header."""
    names = [repr(cell.strip()[:60]) for cell in header] + [f"column {at + 1}" for at in range(len(header), len(roles))]
    return {role: name for role, name in zip(roles, names, strict=False) if role != "ignore"}


def say_the_pair(roles: Sequence[Role]) -> bool:
    """Whether columns name both texts once, and no tree twice."""
    return roles.count("first") == roles.count("second") == 1 >= max(map(roles.count, ("first_tree", "second_tree")))


def _count_tests(counts: pa.Int32Array, expected: int) -> list[tuple[pa.BooleanArray, str]]:
    return [(pc.less(counts, expected), "too few fields"), (pc.greater(counts, expected), "too many fields")]


def assemble(cells: dict[Role, pa.StringArray], tests: list[tuple[pa.BooleanArray, str]]) -> ParsedPairs:
    """Rows [n] of cells, empty where there is none; and what refuses them, before a score that is no number does."""
    size = len(tests[0][0])
    none = pa.nulls(size, pa.string())
    score = pa.nulls(size, pa.float32())
    if "score" in cells:
        score, wrong = _numbers(cells["score"])
        tests = [*tests, (wrong, "score is no number")]
    return ParsedPairs(
        first=cells["first"],
        second=cells["second"],
        score=score,
        relation=cells.get("relation", none),
        first_tree=filled(cells.get("first_tree", none)),
        second_tree=filled(cells.get("second_tree", none)),
        refused=refuse(tests),
        extra={name: cells[name] for name in ("first_pos", "second_pos", "alignment") if name in cells},
    )


def _numbers(cells: pa.StringArray) -> tuple[pa.FloatArray, pa.BooleanArray]:
    """Numbers of cells [n], null for an empty one, and where a cell is neither."""
    trimmed = pc.utf8_trim_whitespace(cells)
    number = pc.match_substring_regex(trimmed, r"^[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$")
    wrong = pc.and_not(pc.invert(number), pc.equal(trimmed, ""))
    values = pc.if_else(number, trimmed, pa.scalar(None, pa.string())).cast(pa.float32())
    return values, pc.or_(wrong, pc.fill_null(pc.invert(pc.is_finite(values)), False))
