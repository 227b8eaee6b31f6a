"""Cut texts into sentences, blocks of Markdown or words, in loops over bytes compiled by numba.

A piece begins where a sentence, block or word begins, and ends where the next one begins, so the white space between
two pieces belongs to the first, and the pieces of a text are the whole text. Rules, not statistics: they know English
abbreviations and the sentence ends of most scripts. ``docs/chunks.md`` has their measured errors.
"""

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled, inlined
from paraembed.text.scan import Octets, Places, decoded, signed

_TITLES = (
    "mr mrs ms messrs dr drs prof st gen col capt lt cpl sgt cmdr adm maj rev hon sen sens rep reps gov pres mme mmes "
    "mlle fr mt ft supt atty jas wm chas thos vs v viz cf eg ie al eds trans approx ca dept univ"
)
"""Abbreviations that do not end a sentence."""
_NUMBERED = (
    "no nos fig figs ref refs vol vols pp p ch chap sec art eq ed jan feb mar apr jun jul aug sept sep oct nov dec"
)
"""Abbreviations and words that do not end a sentence if a number follows."""
_ENDS = "jr sr inc ltd co corp bros etc esq ave blvd rd"
"""Abbreviations that may end a sentence: it ends if one of ``_STARTERS`` follows."""
_STARTERS = (
    "the a an he she it they we you i in on at but and this that these those his her their its my our if when while as "
    "there what who where why how after before then so yet for by to from with not all some one most many such"
)


def _words(text: str) -> npt.NDArray[np.uint64]:
    """Return words of at most eight letters as numbers, ascending."""
    return np.unique([np.uint64(int.from_bytes(word.encode(), "big")) for word in text.split()])


_OF_TITLES, _OF_NUMBERED, _OF_ENDS, _OF_STARTERS = map(_words, (_TITLES, _NUMBERED, _ENDS, _STARTERS))
_TAB, _LINE_FEED, _RETURN, _BLANK, _DOT, _BRACKET, _HASH, _BACKTICK, _TILDE = b"\t\n\r .(#`~"
_MAY_END = np.zeros(256, np.bool_)  # first bytes of line feeds and of the marks in ``_ending``
_MAY_END[[*b"\n.!?\xd8\xdb\xe0\xe2\xe3\xef"]] = True
_NO, _ASCII, _CJK = 0, 1, 2  # whether a character ends a sentence: no; before white space; anywhere


@inlined
def _is_space(octet: int) -> bool:
    return octet == _BLANK or _TAB <= octet <= _RETURN


@inlined
def _behind_space(octets: Octets, pos: int, stop: int) -> int:
    while pos < stop and _is_space(octets[pos]):
        pos += 1
    return pos


@inlined
def _size(octet: int) -> int:
    """Return the bytes of the character that begins with this one."""
    return 1 if octet < 0xC0 else 2 if octet < 0xE0 else 3 if octet < 0xF0 else 4


@inlined
def _point(octets: Octets, pos: int, stop: int) -> int:
    """Return the character at ``pos``; 0 at the end of the text."""
    if pos >= stop:
        return 0
    size = _size(octets[pos])
    return signed(octets[pos]) if size == 1 else decoded(octets, pos, size, stop)


@inlined
def _ending(point: int) -> int:
    if point in (0x2E, 0x21, 0x3F, 0x2026, 0x61F, 0x6D4, 0x964, 0x965):  # . ! ? … ؟ ۔ । ॥
        return _ASCII
    return _CJK if point in (0x3002, 0xFF01, 0xFF1F, 0xFF61) else _NO  # 。 ！ ？ ｡


@inlined
def _is_closer(point: int) -> bool:
    return point in (0x22, 0x27, 0x29, 0x5D, 0x7D, 0x2019, 0x201D, 0xBB, 0x203A, 0x2A, 0x5F)  # " ' ) ] } ’ ” » › * _


@inlined
def _is_opener(point: int) -> bool:
    return point in (0x22, 0x27, 0x28, 0x5B, 0x7B, 0x2018, 0x201C, 0xAB, 0x2039, 0xBF, 0xA1, 0x2A, 0x5F, 0x60)


@inlined
def _is_lower(point: int) -> bool:
    if point < 0x80:
        return 0x61 <= point <= 0x7A
    return 0xDF <= point <= 0xFF or 0x3B1 <= point <= 0x3C9 or 0x430 <= point <= 0x45F


@inlined
def _is_letter(octet: int) -> bool:
    return 0x41 <= octet & 0xDF <= 0x5A


@inlined
def _is_number(octet: int) -> bool:
    return 0x30 <= octet <= 0x39


@compiled
def _is_in(words: npt.NDArray[np.uint64], octets: Octets, start: int, stop: int) -> bool:
    """Return whether the ASCII word ``start`` … ``stop`` - 1, in lower case, is one of the words."""
    if stop - start > 8 or stop <= start:
        return False
    code = np.uint64(0)
    for pos in range(start, stop):
        code = code << np.uint64(8) | np.uint64(octets[pos] | 0x20)
    place = np.searchsorted(words, code)
    return bool(place < len(words) and words[place] == code)


@compiled
def _behind_sentence(octets: Octets, first: int, pos: int, stop: int) -> int:
    """Return where the next sentence begins if one, from ``first``, ends with the mark at ``pos``; else 0."""
    mark, point, kind, count = pos, _point(octets, pos, stop), _ASCII, 0
    while _ending(point):
        kind, pos, count = max(kind, _ending(point)), pos + _size(octets[pos]), count + 1
        point = _point(octets, pos, stop)
    if kind == _CJK:
        while point in (0x300D, 0x300F, 0xFF09, 0x3011, 0x3009, 0x300B):  # 」 』 ） 】 〉 》
            pos += 3
            point = _point(octets, pos, stop)
        return _behind_space(octets, pos, stop)
    while _is_closer(point):
        pos += _size(octets[pos])
        point = _point(octets, pos, stop)
    if pos < stop and not _is_space(octets[pos]):
        return 0
    following = pos = _behind_space(octets, pos, stop)
    while following < stop and _is_opener(_point(octets, following, stop)):
        following += _size(octets[following])
    point = _point(octets, following, stop)
    if _is_lower(point) or _ending(point):  # also ". . ."
        return 0
    if octets[mark] != _DOT or count > 1 or pos == stop:
        return pos
    return pos if _ends_at_dot(octets, first, mark, pos, following, stop) else 0


@compiled
def _ends_at_dot(octets: Octets, first: int, dot: int, behind: int, following: int, stop: int) -> bool:
    """Return whether a sentence ends with a dot, which may be that of an abbreviation or a number. ``behind`` is the
    next character that is no white space, ``following`` the next that is no opening quote or bracket either.
    """
    begin = dot
    while begin > first and (_is_letter(octets[begin - 1]) or octets[begin - 1] == _DOT):
        begin -= 1
    after = following
    while after < stop and _is_letter(octets[after]):
        after += 1
    if begin == dot:  # "1. The first": a number is that of an item of a list
        number = dot
        while number > first and _is_number(octets[number - 1]):
            number -= 1
        return number == dot or number > first
    if begin - first > 1 and octets[begin - 1] >= 0x80 and 0xC2 < octets[begin - 2] < 0xE0:  # behind é, as in "Rostóv."
        return True
    is_name = dot - begin == 1 and 0x41 <= octets[begin] <= 0x5A  # an initial
    has_dots = False
    for pos in range(begin, dot):
        has_dots |= octets[pos] == _DOT
    if is_name or has_dots or _is_in(_OF_ENDS, octets, begin, dot):
        is_quote = following > behind and octets[behind] != _BRACKET  # “So do I.” “And I.”
        return is_quote or (after - following > 1 and _is_in(_OF_STARTERS, octets, following, after))
    if _is_in(_OF_NUMBERED, octets, begin, dot):
        return following == stop or not _is_number(octets[following])
    return not _is_in(_OF_TITLES, octets, begin, dot)


@compiled
def _behind_blank(octets: Octets, pos: int, stop: int) -> int:
    """Return the position after a blank line and the white space behind it if one begins at a line feed; else 0."""
    lines = 0
    while pos < stop and _is_space(octets[pos]):
        lines += octets[pos] == _LINE_FEED
        pos += 1
    return pos if lines > 1 else 0


@compiled
def sentences(octets: Octets, starts: Places, stops: Places, cuts: Places, breaks: Octets) -> int:
    """Write the starts of the sentences, but for the first, of texts ``starts`` … ``stops`` - 1 to ``cuts``; return
    their number. A blank line ends a sentence, too. ``breaks`` are 1 where no piece may be joined to the one before it.
    """
    count = 0
    for text in range(len(starts)):
        first, pos, stop = starts[text], starts[text], stops[text]
        while pos < stop:
            if not _MAY_END[octets[pos]]:
                pos += 1
                continue
            behind, marks = 0, pos
            if octets[pos] == _LINE_FEED:
                behind = _behind_blank(octets, pos, stop)
            else:
                while _ending(_point(octets, marks, stop)):
                    marks += _size(octets[marks])
                if marks > pos:
                    behind = _behind_sentence(octets, first, pos, stop)
            if 0 < behind < stop:
                cuts[count], breaks[count] = behind, 0
                first, count = behind, count + 1
            pos = behind or max(marks, pos + 1)  # no sentence ends at a later mark of a run, which can be long
    return count


@compiled
def words(octets: Octets, starts: Places, stops: Places, cuts: Places, breaks: Octets) -> int:
    """Write the starts of the words between white space; see ``sentences``."""
    count = 0
    for text in range(len(starts)):
        for pos in range(starts[text] + 1, stops[text]):
            if _is_space(octets[pos - 1]) and not _is_space(octets[pos]):
                cuts[count], breaks[count] = pos, 0
                count += 1
    return count


@compiled
def halves(octets: Octets, starts: Places, stops: Places, cuts: Places, breaks: Octets) -> int:
    """Write the character in the middle of each text of two or more; see ``sentences``. No other piece joins the second
    half, because its tokens are not those of the whole.
    """
    count = 0
    for text in range(len(starts)):
        middle = (starts[text] + stops[text]) // 2
        while middle < stops[text] and octets[middle] & 0xC0 == 0x80:
            middle += 1
        if middle == stops[text]:
            middle = (starts[text] + stops[text]) // 2
            while octets[middle] & 0xC0 == 0x80:
                middle -= 1
        if middle > starts[text]:
            cuts[count], breaks[count] = middle, 1
            count += 1
    return count


@compiled
def blocks(octets: Octets, starts: Places, stops: Places, cuts: Places, breaks: Octets) -> int:
    """Write the starts of the headings, paragraphs, items of lists and fenced code of Markdown; see ``sentences``. No
    heading joins what is before it.
    """
    count = 0
    for text in range(len(starts)):
        line, stop, fence, size = starts[text], stops[text], 0, 0
        is_open = False  # whether the line before belongs to a paragraph or item that this one may continue
        while line < stop:
            pos = end = line
            while end < stop and octets[end] != _LINE_FEED:
                end += 1
            while pos < end and _is_space(octets[pos]):
                pos += 1
            mark, last = octets[pos] if pos < end else _BLANK, pos
            while last < end and octets[last] == mark:
                last += 1
            is_fence = mark in (_BACKTICK, _TILDE) and last - pos > 2
            is_heading = mark == _HASH and last - pos < 7 and (last == end or _is_space(octets[last]))
            if fence:
                is_end = is_fence and mark == fence and last - pos >= size
                fence = 0 if is_end else fence
            elif pos < end:
                if line > starts[text] and (is_fence or is_heading or not is_open or _is_item(octets, pos, end)):
                    cuts[count], breaks[count] = line, is_heading
                    count += 1
                fence, size = (mark if is_fence else 0), last - pos
            is_open = fence > 0 or (pos < end and not is_fence and not is_heading)
            line = end + 1
    return count


@compiled
def _is_item(octets: Octets, pos: int, end: int) -> bool:
    """Return whether an item of a list begins at ``pos``."""
    first = pos
    while pos < end and _is_number(octets[pos]):
        pos += 1
    if pos + 1 >= end or not _is_space(octets[pos + 1]):
        return False
    return octets[pos] in (_DOT, 0x29) if pos > first else octets[pos] in (0x2A, 0x2B, 0x2D)  # 1. 1) * + -


@compiled
def characters(octets: Octets, places: Places, counts: Places) -> None:
    """Write the number of characters before each of the places, which ascend, to ``counts``."""
    pos = count = 0
    for number in range(len(places)):
        while pos < places[number]:
            count += octets[pos] & 0xC0 != 0x80
            pos += 1
        counts[number] = count


@compiled
def pack(
    sizes: Places,
    pieces: Places,
    breaks: Octets,
    limits: Places,
    overlap: int,
    firsts: Places,
    lasts: Places,
    rows: Places,
) -> int:
    """Pack the pieces of each text, ``pieces[text]`` … ``pieces[text + 1]`` - 1, into chunks of at most
    ``limits[text]`` tokens, or of one piece that has more; return the number of chunks. ``sizes`` are the tokens of the
    pieces.

    Write the first piece of each chunk, the piece after its last, and its text. A chunk begins with pieces from the end
    of the one before it, of at most ``overlap`` tokens, but for the first of that chunk, and leaves room for one more.
    """
    count = 0
    for text in range(len(pieces) - 1):
        piece, stop, first, limit = pieces[text], pieces[text + 1], pieces[text], limits[text]
        while True:
            total, end = 0, piece
            for shared in range(first, piece):
                total += sizes[shared]
            while end < stop and (end == piece or (total + sizes[end] <= limit and not breaks[end])):
                total += sizes[end]
                end += 1
            firsts[count], lasts[count], rows[count] = first, end, text
            count += 1
            if end == stop:
                break
            before, piece, first, shared_size = first, end, end, 0
            while overlap and not breaks[end] and first - 1 > before:  # without overlap, no piece of 0 tokens either
                shared_size += sizes[first - 1]
                if shared_size > overlap or shared_size + sizes[end] > limit:
                    break
                first -= 1
    return count
