"""Whether the first row of delimited columns looks like names of columns, though none that this package knows.

No rule is certain: ``cat<TAB>feline`` may be a pair or two names. So a row counts as a header only if the rows after it
differ from it in kind: numbers or ids below a word, sentences below single words, or no other row of such names.
"""

import re
from collections.abc import Sequence

_NAME = re.compile(r"(?=.{1,40}$)[^\W\d_]\w*(?:[ ./-]#?\w+){0,2}")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?%?")
_MISSING = frozenset({"na", "n/a", "nan", "null", "none", "nil", "inf"})
_ID = re.compile(r"(?=\S{1,64}$)(?=.*\d)[\w.:#/-]+")
_IDENTIFIER = re.compile(r"(?=\S+$)(?:.*[^\W_]_\w.*|.*[a-z][A-Z].*)")
_NUMBERED = re.compile(r"([^\W\d_][^\d_]{2,}?)[ _.-]?#?([0-2ab])", re.IGNORECASE)
_ENDING = re.compile(r"(?:[ _.-]?#?[0-9]{1,2}|[ _.-][a-z])$")
_NUMBER_FIRST = re.compile(r"^#(\d) (\w+)$")  # "#1 String"
_MOST = 0.9  # of the rows that are compared
_FEW = 0.1
_IDS = 3  # rows
_SENTENCES = 10  # rows
_SENTENCE_WORDS = 3

_PAIR_WORDS = frozenset(
    "word words synonym synonyms antonym lemma term headword phrase paraphrase paraphrases definition".split()  # noqa: SIM905
)
"""Names that are a header even above single words."""

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


def looks_like_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is names of columns rather than a pair, judged by the rows after it.

    Args:
        first: cells of the first row.
        rows: cells of the rows after it, up to a few hundred; without any, nothing looks like a header.
    """
    cells = [_NUMBER_FIRST.sub(r"\2 \1", cell.strip().removeprefix("\ufeff").strip("\"'")) for cell in first]
    names = [cell for cell in cells if cell]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == len(cells) and any(map(str.strip, row))]
    if not names or not rows or len({*map(str.lower, names)}) < len(names) or not all(map(_NAME.fullmatch, names)):
        return False
    if any(_is_above_numbers(cell, [row[at] for row in rows]) for at, cell in enumerate(cells)):
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
        return all(word in _PAIR_WORDS for word in words) or 2 * sum(map(_has_spaces, rows)) >= len(rows)
    return _is_above_sentences(names, rows, _SENTENCE_WORDS if any(known) else _SENTENCES)


def _is_above_numbers(name: str, column: Sequence[str]) -> bool:
    """Whether a cell that is no number is above numbers, or above ids."""
    filled = [cell for cell in column if cell]
    if not filled or _NUMBER.fullmatch(name) or name.lower() in _MISSING:
        return False
    if sum(map(bool, map(_NUMBER.fullmatch, filled))) >= _MOST * len(filled):
        return True
    has_digit = any(map(str.isdigit, name))
    ids = sum(map(bool, map(_ID.fullmatch, filled)))
    return not has_digit and len(filled) >= _IDS and ids >= _MOST * len(filled)


def _is_numbered(cells: Sequence[str]) -> bool:
    """Whether cells differ in a last digit or letter only: ``texta`` and ``textb``, ``Satz 1`` and ``Satz 2``."""
    found = [match.groups() for cell in cells if (match := _NUMBERED.fullmatch(cell.lower()))]
    ends = "".join(end for _, end in found)
    return len(found) == len(cells) > 1 and len({stem for stem, _ in found}) == 1 and ends in {"01", "12", "ab"}


def _has_spaces(row: Sequence[str]) -> bool:
    return any(" " in cell for cell in row)


def _is_above_sentences(names: Sequence[str], rows: Sequence[Sequence[str]], fewest: int) -> bool:
    """Whether single words are above at least ``fewest`` rows, all of sentences."""
    if len(rows) < fewest or any(" " in name for name in names):
        return False
    return all(cell.count(" ") + 1 >= _SENTENCE_WORDS for row in rows for cell in row)
