"""Roles of the columns of a pair file, from the setting ``columns``, the column names, or the number of columns.

A first row of known names (``source,target``; ``score``, ``sentence1``, ``sentence2``; …) is a header. Other words in
the first row are ambiguous: ``cat``, ``feline`` may be a pair or two column names. Such a row is considered a header
only if the rows below it are of another kind: numbers or ids below a word, sentences below single words, or no other
row with such names. In this case the file is rejected unless ``columns`` gives the roles.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from paraembed.io.escape import listed
from paraembed.io.places import Place
from paraembed.pairs.settings import Role

ROLE_NAMES: dict[str, Role] = {
    **dict.fromkeys(("first", "source", "src", "text1", "sentence1", "question1", "phrase1", "phrase"), "first"),
    **dict.fromkeys(("second", "target", "tgt", "text2", "sentence2", "question2", "phrase2", "paraphrase"), "second"),
    **dict.fromkeys(("premise", "#1 string", "anchor"), "first"),  # NLI, MRPC, sentence-transformers
    **dict.fromkeys(("hypothesis", "#2 string", "positive"), "second"),
    **dict.fromkeys(("score", "similarity"), "score"),
    **dict.fromkeys(("relation", "label", "entailment", "is_duplicate", "gold_label", "quality"), "relation"),
    **dict.fromkeys(("first_tree", "tree1", "parse1"), "first_tree"),
    **dict.fromkeys(("second_tree", "tree2", "parse2"), "second_tree"),
    **dict.fromkeys(("first_pos", "pos1"), "first_pos"),
    **dict.fromkeys(("second_pos", "pos2"), "second_pos"),
    "alignment": "alignment",
    **dict.fromkeys(("id", "qid1", "qid2", "#1 id", "#2 id", "genre", "split", "negative"), "ignore"),
}
HEADER_ROWS, _HEADER_CHARACTERS = 100, 1 << 20  # to compare with the first row
_EXAMPLES = "first, source, sentence1, text1, phrase and second, target, sentence2, text2, paraphrase"
_NAME = re.compile(r"(?=.{1,40}$)[^\W\d_]\w*(?:[ ./-]#?\w+){0,2}")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?%?")
_MISSING = frozenset({"na", "n/a", "nan", "null", "none", "nil", "inf"})
_ID = re.compile(r"(?=\S{1,64}$)(?=.*\d)[\w.:#/-]+")
_IDENTIFIER = re.compile(r"(?=\S+$)(?:.*[^\W_]_\w.*|.*[a-z][A-Z].*)")
_NUMBERED = re.compile(r"([^\W\d_][^\d_]{2,}?)[ _.-]?#?([0-2ab])", re.IGNORECASE)
_ENDING = re.compile(r"(?:[ _.-]?#?[0-9]{1,2}|[ _.-][a-z])$")
_NUMBER_FIRST = re.compile(r"^#(\d) (\w+)$")  # "#1 String"
_MOST = 0.9  # of the compared rows
_FEW = 0.1
_IDS = 3  # rows
_SENTENCES = 10  # rows
_SENTENCE_WORDS = 3

_PAIR_WORDS = frozenset(
    "word words synonym synonyms antonym lemma term headword phrase paraphrase paraphrases definition".split()  # noqa: SIM905
)
"""Names that indicate a header even above single words."""

_WORDS = _PAIR_WORDS | frozenset(
    """
    a abstract after anchor annotator answer answers author b before body caption captions category class comment
    complex confidence content contents context corpus count data dataset date desc description doc document domain
    emotion english example field fold freq frequency genre gloss gold group headline hyp hypothesis id idx index input
    inputs intent key lang language left lhs line link meaning message msg name neg negative new no normal num number
    old orig original originals output outputs pair pairs paragraph part passage polarity pos positive post prem premise
    prob q query question questions rank rating ref reference references refs reply response review rhs right row s
    score scores second sent sentence sentences sentiment set sim similarity simple simplification simplified source
    split src subject summary t tag tags target text texts tgt time timestamp title token tokens topic translated
    translation tweet type url user utterance value weight x y year
    """.split()  # noqa: SIM905 - a hundred and fifty lines otherwise
)


class Columns(NamedTuple):
    """Column roles of a file in order, whether the first row is a header, and the column name of each role."""

    roles: Sequence[Role]
    header: bool
    names: Mapping[str, str]


def head_rows(rows: Iterator[list[str]]) -> list[list[str]]:
    """Return the first rows of a file, or fewer if they are long."""
    head, size = list[list[str]](), 0
    for row in rows:
        head.append(row)
        size += sum(map(len, row))
        if len(head) > HEADER_ROWS or size > _HEADER_CHARACTERS:
            break
    return head


def columns_of(
    path: Place, first: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[Role], no_header: bool
) -> Columns:
    """Return the roles of the columns: from the setting ``columns``, from a header, or from the number of columns.

    The rows after the first one are compared with it to recognize a header; with ``no_header`` it is a pair. Raise
    ValueError if the columns of the two texts are unknown, or the first row looks like a header with unknown names.
    """
    known = [ROLE_NAMES.get(cell.strip().lstrip("\ufeff").lower()) for cell in first]
    header = not no_header and None not in known
    if columns:
        header = header or (not no_header and looks_like_header(first, rows))
        return Columns(columns, header, _named(columns, first if header else ()))
    if header:
        roles = [name for name in known if name is not None]
        if not say_the_pair(roles):
            raise ValueError(f"{path} has columns {listed(first)}; set the roles first and second with `columns`")
        return Columns(roles, True, _named(roles, first))
    if not no_header and looks_like_header(first, rows):
        raise ValueError(
            f"{path} begins with a row that looks like a header with unknown names, {listed(first)}; name the "
            f"columns with `columns`, for example: `columns` {_example(known)}; if this row is a pair, set `no_header`"
        )
    if len(first) != 2:
        raise ValueError(
            f"{path} has {len(first):,} columns and no header; name them with `columns`, for example: `columns` first "
            "second score"
        )
    return Columns(("first", "second"), False, _named(("first", "second"), ()))


def _example(known: Sequence[Role | None]) -> str:
    """Return roles of columns: the known ones, so that labels and scores are read, and the texts for others."""
    missing: list[Role] = [role for role in ("first", "second") if role not in known]
    free = {None} if known.count(None) >= len(missing) else {None, "ignore"}
    texts = iter(missing)
    roles = [next(texts, "ignore") if role is None or role in free else role for role in known]
    return " ".join([*roles[:6], *("…" for _ in roles[6:7])])


def _named(roles: Sequence[Role], header: Sequence[str]) -> dict[str, str]:
    """Return each role with the name of its column, or with the column number if there is no header."""
    names = [repr(cell.strip()[:60]) for cell in header]
    names += [f"column {number}" for number in range(len(header) + 1, len(roles) + 1)]
    return {role: name for role, name in zip(roles, names, strict=False) if role != "ignore"}


def say_the_pair(roles: Sequence[Role]) -> bool:
    """Return whether the roles contain both texts once, and no tree twice."""
    return roles.count("first") == roles.count("second") == 1 >= max(map(roles.count, ("first_tree", "second_tree")))


def names_of_roles(place: Place, names: Sequence[str], columns: Sequence[Role]) -> dict[Role, str]:
    """Return the name of the column of each role; raise ValueError unless the roles fit and contain both texts."""
    known = [ROLE_NAMES.get(name.lower()) for name in names]
    ordered: Sequence[Role] = columns or [role or "ignore" for role in known]
    if columns and len(columns) != len(names):
        raise ValueError(
            f"{place} has {len(names)} columns: {listed(names)}; `columns` has {len(columns)}: {listed(columns)}; "
            "give one role for each column, in order, and ignore for columns that are not needed"
        )
    if not say_the_pair(ordered):
        raise ValueError(
            f"{place} has columns {listed(names)}; two of them must have names such as {_EXAMPLES}; otherwise give "
            f"their roles in order with `columns`, for example: `columns` {_example(known)}"
        )
    roles: dict[Role, str] = {role: name for role, name in zip(ordered, names, strict=True) if role != "ignore"}
    if twice := sorted({name for name in roles.values() if names.count(name) > 1}):
        raise ValueError(f"{place} has columns {listed(names)}; {listed(twice)} occurs twice: rename one of them")
    return roles


def shown_names(roles: Mapping[Role, str]) -> dict[str, str]:
    """Return the name of the column of each role, for messages."""
    return {role: repr(name[:60]) for role, name in roles.items()}


def known_names(names: Sequence[str]) -> dict[Role, str]:
    """Return the known names among ``names``, by role."""
    return {role: name for name in names if (role := ROLE_NAMES.get(name.lower(), "ignore")) != "ignore"}


def looks_like_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row looks like column names, compared with the rows after it (False without these)."""
    cells = [_NUMBER_FIRST.sub(r"\2 \1", cell.strip().removeprefix("\ufeff").strip("\"'")) for cell in first]
    names = [cell for cell in cells if cell]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == len(cells) and any(map(str.strip, row))]
    if not names or not rows or len({*map(str.lower, names)}) < len(names) or not all(map(_NAME.fullmatch, names)):
        return False
    if any(_is_above_numbers(cell, [row[number] for row in rows]) for number, cell in enumerate(cells)):
        return True
    words = [_ENDING.sub("", name.lower()) for name in names]
    known = [word in _WORDS for word in words]
    if all(is_known or _IDENTIFIER.fullmatch(name) for is_known, name in zip(known, names, strict=True)):
        alike = sum(all(_IDENTIFIER.fullmatch(cell) for cell in row if cell) for row in rows)
        if len(names) > 1 and not all(known) and alike <= _FEW * len(rows):
            return True
    if _is_numbered(names) and sum(_is_numbered(row) for row in rows) <= _FEW * len(rows):
        return True
    if all(known):
        return all(word in _PAIR_WORDS for word in words) or 2 * sum(
            any(" " in cell for cell in row) for row in rows
        ) >= len(rows)
    return _is_above_sentences(names, rows, _SENTENCE_WORDS if any(known) else _SENTENCES)


def _is_above_numbers(name: str, column: Sequence[str]) -> bool:
    """Return whether a cell that is not a number is followed by numbers or ids in its column."""
    filled = [cell for cell in column if cell]
    if not filled or _NUMBER.fullmatch(name) or name.lower() in _MISSING:
        return False
    if sum(map(bool, map(_NUMBER.fullmatch, filled))) >= _MOST * len(filled):
        return True
    has_digit = any(map(str.isdigit, name))
    ids = sum(map(bool, map(_ID.fullmatch, filled)))
    return not has_digit and len(filled) >= _IDS and ids >= _MOST * len(filled)


def _is_numbered(cells: Sequence[str]) -> bool:
    """Return whether cells differ only in a last digit or letter: ``texta``, ``textb`` or ``Satz 1``, ``Satz 2``."""
    numbered = [match.groups() for cell in cells if (match := _NUMBERED.fullmatch(cell.lower()))]
    ends = "".join(end for _, end in numbered)
    return len(numbered) == len(cells) > 1 and len({stem for stem, _ in numbered}) == 1 and ends in {"01", "12", "ab"}


def _is_above_sentences(names: Sequence[str], rows: Sequence[Sequence[str]], fewest: int) -> bool:
    """Return whether single words are followed by at least ``fewest`` rows that are all sentences."""
    if len(rows) < fewest or any(" " in name for name in names):
        return False
    return all(cell.count(" ") + 1 >= _SENTENCE_WORDS for row in rows for cell in row)
