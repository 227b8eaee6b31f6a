"""Scan texts for tokens and look them up in the vocabulary, in loops over bytes compiled by numba; see ``tokens``.

Each text is first copied to a line buffer, in lower case, with straight quotes, spaces for control characters, and
spaces around every non-ASCII symbol. Its tokens are ranges of this buffer, in which every non-ASCII byte is part of a
word.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled, inlined
from paraembed.text.oov import GOLDEN, oov_code

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Points = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int32]
Eights = npt.NDArray[np.uint64]
Strings = tuple[Octets, Places]
"""Bytes of strings, and the start of each."""
Line = tuple[Octets, Octets, Eights, Eights]
"""Line buffer: its bytes and their kinds, and of both the eight that start at each byte, as numbers."""
Words = tuple[Eights, Places, Eights]
"""Words in a hash table, see ``tokens``: bytes, starts and slots."""

SPACE, MARK, LETTER, NUMBER, SYMBOL = range(5)
"""Kinds of characters. A symbol is a token by itself. In the line buffer, only letters and numbers have bit 1."""
PADDING = 8  # bytes behind a line or a word, for the loops look ahead
_NONE = -1

_BLANK, _HASH, _QUOTE, _COMMA, _DASH, _DOT, _SLASH, _COLON, _AT, _UNDERSCORE, _BACKTICK = b" #',-./:@_`"
_ZERO, _NINE, _A, _D, _E, _H, _L, _M, _N, _P, _R, _S, _T, _V, _W, _Z = b"09adehlmnprstvwz"
_ALL_BITS, _LOW_HALF, _HALF = np.uint64(2**64 - 1), np.uint64(2**32 - 1), np.uint64(32)
_ONE, _BIT_0, _BIT_1 = np.uint64(1), np.uint64(0x0101010101010101), np.uint64(0x0202020202020202)
signed: Any = np.int64  # numba takes a signed and an unsigned number for a fraction


@compiled
def scan(
    texts: Strings, lookup: tuple[Points, Octets], buffer: Line, words: Words, unknown: int, ids: Ids, offsets: Places
) -> int:
    """Write ``ids`` and ``offsets``; return the number of the first text with invalid UTF-8 or an unknown character.

    If all texts are valid, return the number of texts. ``unknown`` is the id of OOV tokens; if it is negative, they get
    their ``oov_code``.
    """
    octets, places = texts
    lower, kind_of = lookup
    line, kinds, line_eights, kind_eights = buffer
    word_eights, word_places, slots = words
    count = 0
    for text in range(len(places) - 1):
        filled = _copy(octets, places[text], places[text + 1], lower, kind_of, line, kinds)
        if filled < 0:
            return text
        pos = 0
        while pos < filled:
            # Most tokens are words of up to seven bytes with a space behind them.
            is_short, letters, length = short_word(kind_eights[pos])
            if is_short and kinds[pos + length] == SPACE:
                if length:
                    row = row_of(slots, short_slot(line_eights[pos] & letters, length, slots), unknown)
                    ids[count] = row if row >= 0 else oov_code(line, pos, pos + length)
                    count += 1
                pos += length + 1
                continue
            stop = _token_stop(line, kinds, pos)
            first = _clitics(line, kinds, pos, stop)
            while pos < stop:
                slot = slot_of_word(line_eights, pos, first, word_eights, word_places, slots)
                row = row_of(slots, slot, unknown)
                ids[count] = row if row >= 0 else oov_code(line, pos, first)
                count += 1
                pos, first = first, _behind_clitic(line, first)
        offsets[text + 1] = count
    return len(places) - 1


@inlined
def short_word(kinds: np.uint64) -> tuple[bool, np.uint64, int]:
    """Return whether eight bytes start with a word of at most seven, the bits of its bytes, and their number.

    Without a loop or a branch on the length, this takes a third less time. Letters and numbers have bit 1.
    """
    others = ~kinds & _BIT_1
    first_other = others & (~others + _ONE)
    letters = (first_other >> _ONE) - _ONE
    return others != 0, letters, signed((letters & _BIT_0) * _BIT_0 >> np.uint64(56))


@compiled
def _copy(octets: Octets, pos: int, stop: int, lower: Points, kind_of: Octets, line: Octets, kinds: Octets) -> int:
    """Copy a text to the line buffer, with the kind of each byte; return the length of the line, or -1."""
    filled = 0
    while pos < stop:
        point = signed(octets[pos])
        size = size_of(point)
        if size > 1:
            point = decoded(octets, pos, size, stop)
            if point < 0 or point >= len(lower):
                return -1
        pos += size
        kind, point = kind_of[point], signed(lower[point])
        if point < 0x80:
            line[filled], kinds[filled] = _BLANK if kind == SPACE else point, kind
            filled += 1
            continue
        if kind == SPACE:
            line[filled], kinds[filled] = _BLANK, SPACE
            filled += 1
        elif kind == SYMBOL:
            line[filled], kinds[filled] = _BLANK, SPACE
            filled = put(point, LETTER, line, kinds, filled + 1)
            line[filled], kinds[filled] = _BLANK, SPACE
            filled += 1
        else:
            filled = put(point, kind, line, kinds, _split_quote(line, kinds, filled))
    return padded(line, kinds, filled)


@inlined
def padded(line: Octets, kinds: Octets, filled: int) -> int:
    """Write the padding behind a line of ``filled`` bytes; return their number."""
    for place in range(filled, filled + PADDING):
        line[place], kinds[place] = _BLANK, SPACE
    return filled


@inlined
def size_of(octet: int) -> int:
    """Return the bytes of the character that begins with this one."""
    return 1 if octet < 0x80 else 2 if octet < 0xE0 else 3 if octet < 0xF0 else 4


@inlined
def decoded(octets: Octets, pos: int, size: int, stop: int) -> int:
    """Return the code point of the multi-byte character that begins at ``pos``; -1 if it is not UTF-8, or not whole."""
    if pos + size > stop:
        return -1
    point = signed(octets[pos]) & 0x7F >> size
    for place in range(pos + 1, pos + size):
        if octets[place] & 0xC0 != 0x80:
            return -1
        point = point << 6 | octets[place] & 0x3F
    is_long = point >= (0x80 if size == 2 else 0x800 if size == 3 else 0x10000)  # else it takes fewer bytes
    is_whole = point >> 11 != 0x1B  # of two surrogates
    return point if octets[pos] >= 0xC0 and octets[pos] < 0xF8 and is_long and is_whole else -1


@compiled
def put(point: int, kind: int, line: Octets, kinds: Octets, filled: int) -> int:
    """Write a non-ASCII character as UTF-8; return the position after it."""
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for place in range(filled + size - 1, filled, -1):
        line[place], kinds[place] = 0x80 | point & 0x3F, kind
        point >>= 6
    line[filled], kinds[filled] = 0xF00 >> size & 0xFF | point, kind
    return filled + size


@compiled
def _split_quote(line: Octets, kinds: Octets, filled: int) -> int:
    """Insert a space after a quote that looks like the start of a clitic: "'d" of "'début'"."""
    for length in (2, 3):
        quote = filled - length
        if quote >= 0 and kinds[quote] == MARK and _behind_clitic(line, quote) == filled:
            if quote > 0 and kinds[quote - 1] >= LETTER:
                return filled
            for place in range(filled, quote + 1, -1):
                line[place], kinds[place] = line[place - 1], kinds[place - 1]
            line[quote + 1], kinds[quote + 1] = _BLANK, SPACE
            return filled + 1
    return filled


@inlined
def _behind_clitic(line: Octets, pos: int) -> int:
    """Return the end of the clitic that starts at ``pos``; ``pos`` if there is no clitic."""
    first, second, third = line[pos], line[pos + 1], line[pos + 2]
    if first == _QUOTE:
        if second in (_S, _D, _M):
            return pos + 2
        if ((second in (_R, _V)) and third == _E) or (second == _L and third == _L):
            return pos + 3
    return pos + 3 if first == _N and second == _QUOTE and third == _T else pos


@inlined
def _clitics(line: Octets, kinds: Octets, pos: int, stop: int) -> int:
    """Return the start of the clitics at the end of the token ``pos`` … ``stop`` - 1; ``stop`` without clitics."""
    first = begin = stop
    while (kinds[begin - 2] == MARK or kinds[begin - 3] == MARK) and begin - pos > 2:
        if _behind_clitic(line, begin - 2) == begin:
            begin -= 2
        elif _behind_clitic(line, begin - 3) == begin:
            begin -= 3
        else:
            break
        if begin > pos and kinds[begin - 1] >= LETTER:
            first = begin
    return first


@compiled
def _token_stop(line: Octets, kinds: Octets, pos: int) -> int:
    """Return the end of the token that starts at ``pos``, including its clitics."""
    if kinds[pos] == MARK:
        return _mark_stop(line, kinds, pos)
    stop = behind_word(kinds, pos)
    mark = line[stop]
    if kinds[stop] == SPACE:
        return stop
    if mark in (_DASH, _QUOTE):
        while (line[stop] == _DASH or line[stop] == _QUOTE) and kinds[stop + 1] >= LETTER:
            stop = behind_word(kinds, stop + 1)
        return stop
    # Other letters after a mark can start anywhere in the word; the word before the mark is a token then.
    begin, end = stop, _NONE
    if mark == _DOT and stop - pos > 2 and line[stop - 1] == line[stop - 2] == line[stop - 3] == _W:
        begin, end = stop - 3, _url_stop(line, kinds, stop + 1)
    elif mark == _COLON and line[stop + 1] == line[stop + 2] == _SLASH and _scheme(line, pos, stop) < stop:
        begin, end = _scheme(line, pos, stop), _url_stop(line, kinds, stop + 3)
    elif mark == _DOT and _A <= line[stop - 1] <= _Z and (stop < 2 or not _is_ascii_word(line[stop - 2])):
        begin, end = stop - 1, _abbreviation_stop(line, stop + 1)
    if end == _NONE:
        begin, end = _number(line, kinds, pos, stop)
    return end if begin == pos else begin


@inlined
def behind_word(kinds: Octets, pos: int) -> int:
    """Return the position after the letters and numbers from ``pos`` on."""
    while kinds[pos] >= LETTER:
        pos += 1
    return pos


@inlined
def _is_ascii_word(octet: int) -> bool:
    return _A <= octet <= _Z or _ZERO <= octet <= _NINE or octet == _UNDERSCORE


@compiled
def _mark_stop(line: Octets, kinds: Octets, pos: int) -> int:
    mark = line[pos]
    if mark in (_HASH, _AT):
        return behind_word(kinds, pos + 1)
    if mark == _QUOTE:
        stop = _behind_clitic(line, pos)
        if stop > pos and not _is_ascii_word(line[stop]):
            return stop
    if (mark in (_QUOTE, _BACKTICK)) and line[pos + 1] == mark:
        return pos + 2
    pos += 1
    while (mark in (_DOT, _DASH)) and line[pos] == mark:
        pos += 1
    return pos


@compiled
def _scheme(line: Octets, pos: int, stop: int) -> int:
    """Return the start of "http" or "https" at the end of ``pos`` … ``stop`` - 1; ``stop`` if it is not there."""
    begin = stop - 5 if line[stop - 1] == _S else stop - 4
    is_http = begin >= pos and line[begin] == _H and line[begin + 1] == line[begin + 2] == _T and line[begin + 3] == _P
    return begin if is_http else stop


@compiled
def _url_stop(line: Octets, kinds: Octets, pos: int) -> int:
    """Return the position after the last slash, letter or number before a space; ``_NONE`` without one."""
    stop = _NONE
    while kinds[pos] != SPACE:
        if kinds[pos] >= LETTER or line[pos] == _SLASH:
            stop = pos + 1
        pos += 1
    return stop


@compiled
def _abbreviation_stop(line: Octets, pos: int) -> int:
    """Return the position after an abbreviation of letters that are each followed by a dot; ``_NONE`` without one."""
    stop = _NONE
    while True:
        if line[pos] >= 0x80:
            pos += 1
            while line[pos] & 0xC0 == 0x80:
                pos += 1
        elif _A <= line[pos] <= _Z:
            pos += 1
        else:
            return stop
        if line[pos] != _DOT:
            return stop
        pos += 1
        stop = pos


@compiled
def _number(line: Octets, kinds: Octets, pos: int, stop: int) -> tuple[int, int]:
    """Return start and end of the number, including inner marks, at the end of the word ``pos`` … ``stop`` - 1."""
    begin, end = stop, stop
    while begin > pos and kinds[begin - 1] == NUMBER:
        begin -= 1
    if begin == stop:
        return pos, stop
    while (line[end] == _DOT or line[end] == _COMMA or line[end] == _COLON or line[end] == _SLASH) and kinds[
        end + 1
    ] == NUMBER:
        end += 1
        while kinds[end] == NUMBER:
            end += 1
    return (pos, stop) if end == stop else (begin, end)


@inlined
def row_of(slots: Eights, slot: int, unknown: int) -> int:
    """Return the vocabulary row that a slot holds."""
    row: int = signed(slots[slot, 1] & _LOW_HALF) - 1
    return row if row >= 0 else unknown


@inlined
def _code(eight: np.uint64, before: np.uint64) -> np.uint64:
    return (eight ^ eight >> _HALF ^ before) * GOLDEN  # the upper half of a product holds what all lower bits say


@inlined
def _first_slot(code: np.uint64, slots: Eights) -> int:
    slot: int = signed(code >> _HALF) & len(slots) - 1
    return slot


@inlined
def short_slot(head: np.uint64, length: int, slots: Eights) -> int:
    """Return the slot of the word ``head``, at most eight bytes long, or the free slot for it."""
    slot = _first_slot(_code(head, np.uint64(length)), slots)
    while slots[slot, 1] != 0 and (slots[slot, 0] != head or slots[slot, 1] >> _HALF != np.uint64(length)):
        slot = slot + 1 & len(slots) - 1
    return slot


@compiled
def slot_of_word(eights: Eights, pos: int, stop: int, word_eights: Eights, word_places: Places, slots: Eights) -> int:
    """Return the slot of the word ``pos`` … ``stop`` - 1, or the free slot for it."""
    length = stop - pos
    head = _eight(eights, pos, stop)
    if length <= 8:
        return short_slot(head, length, slots)
    code = _code(head, np.uint64(length))
    for place in range(pos + 8, stop - 8, 8):
        code = _code(eights[place], code)
    slot = _first_slot(_code(eights[stop - 8], code), slots)
    while slots[slot, 1] != 0:
        if slots[slot, 0] == head and slots[slot, 1] >> _HALF == np.uint64(length):
            word, place = word_places[row_of(slots, slot, 0)], 8
            end = word + length
            while place < length and _eight(eights, pos + place, stop) == _eight(word_eights, word + place, end):
                place += 8
            if place >= length:
                return slot
        slot = slot + 1 & len(slots) - 1
    return slot


@inlined
def _eight(eights: Eights, pos: int, stop: int) -> np.uint64:
    """Return at most eight bytes ``pos`` … ``stop`` - 1 as a number."""
    eight: np.uint64 = eights[pos] & _ALL_BITS >> np.uint64(8 * max(0, 8 - (stop - pos)))
    return eight


@compiled
def fill_slots(eights: Eights, places: Places, slots: Eights) -> None:
    """Insert words into empty slots; of equal words the first is kept."""
    for row in range(len(places) - 1):
        slot = slot_of_word(eights, places[row], places[row + 1], eights, places, slots)
        if slots[slot, 1] == 0:
            slots[slot, 0] = _eight(eights, places[row], places[row + 1])
            slots[slot, 1] = np.uint64(places[row + 1] - places[row]) << _HALF | np.uint64(row + 1)
