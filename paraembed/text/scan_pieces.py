"""Scan texts for words and divide them into WordPieces, in loops over bytes compiled by numba; see ``wordpiece``.

As in ``scan``, each text is first copied to a line buffer, where its words are ranges of bytes. ASCII punctuation is
the only kind of word that needs no spaces around it there.
"""

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled, inlined
from paraembed.text.oov import GOLDEN
from paraembed.text.scan import (
    Eights,
    Ids,
    Line,
    Octets,
    Places,
    Points,
    Strings,
    behind_word,
    decoded,
    padded,
    put,
    row_of,
    short_slot,
    short_word,
    signed,
    size_of,
    slot_of_word,
)
from paraembed.text.wordpiece import COMBINING, DROP, EXPANDED, LETTER, MARK, MOST_CHARACTERS, SPACE, SYMBOL

Table = tuple[Eights, Places, Eights, npt.NDArray[np.uint64]]
"""Pieces in a hash table, see ``tokens``: bytes, starts, slots, and ``lengths_of``."""
Lookup = tuple[Points, Octets, tuple[Points, Places]]
"""Replacements, kinds and expansions of all characters, see ``tokens``."""

_NONE = -1
_MANY = 63  # bytes of a piece
_CODE_BITS = 14
_CODE_SHIFT, _THREE_BYTES = np.uint64(64 - _CODE_BITS), np.uint64(0xFFFFFF)
_INVALID, _UNORDERED = -1, -2
_BLANK, _BRACKET = b" ["
JOINED = 512
"""Bytes of texts that are copied together, if each but the last ends with a blank. One by one, words take twice the
time.
"""
_LAST = 1 << 62  # of a line buffer
_ONE = np.uint64(1)


@compiled
def scan_pieces(
    texts: Strings,
    lookup: Lookup,
    buffer: Line,
    pieces: tuple[Strings, Table, Table],
    unknown: int,
    ids: Ids,
    offsets: Places,
    unordered: Octets,
) -> int:
    """Write ``ids`` and ``offsets``; return the number of the first text with invalid UTF-8 or an unknown character.

    If all texts are valid, return the number of texts. ``pieces`` are the special tokens, and those that begin and that
    continue a word. A text whose accents would have to be put in order gets no ids; it is marked in ``unordered``.
    """
    line, kinds, line_eights, kind_eights = buffer
    specials, heads, tails = pieces
    text, behind, count, num_texts = 0, _behind_joined(texts, 0), 0, len(texts[1]) - 1
    alone = 0  # texts before this number are not copied together, because one of them has no ids
    while text < num_texts:
        filled = _copy(texts, text, behind, lookup, specials, line, kinds, offsets)
        if filled < 0 and behind > text + 1:
            alone, behind = behind, text + 1
            continue
        if filled == _INVALID:
            return text
        unordered[text:behind] = filled == _UNORDERED
        pos = 0
        while pos < filled:
            while pos >= offsets[text + 1]:
                text += 1
                offsets[text] = count
            is_short, letters, length = short_word(kind_eights[pos])
            if is_short:
                stop = pos + length
                row = row_of(heads[2], short_slot(line_eights[pos] & letters, length, heads[2]), _NONE)
            else:
                stop = behind_word(kinds, pos)
                row = row_of(heads[2], slot_of_word(line_eights, pos, stop, heads[0], heads[1], heads[2]), _NONE)
            if row >= 0:
                ids[count] = row
                count += 1
            elif stop > pos:
                count = _divide(line, line_eights, pos, stop, heads, tails, unknown, ids, count)
            if kinds[stop] == MARK:
                ids[count] = row_of(heads[2], short_slot(np.uint64(line[stop]), 1, heads[2]), unknown)
                count += 1
            pos = stop + 1
        offsets[text + 1 : behind + 1] = count
        text = behind
        behind = text + 1 if text < alone else _behind_joined(texts, text)
    return num_texts


@inlined
def _behind_joined(texts: Strings, text: int) -> int:
    """Return the number of the text after the last one that is copied together with ``text``, see ``JOINED``."""
    octets, places = texts
    stop, num_texts = places[text] + JOINED, len(places) - 1
    text += 1
    while text < num_texts and places[text] < places[text + 1] <= stop and octets[places[text] - 1] == _BLANK:
        text += 1
    return text


@inlined
def _divide(
    line: Octets, eights: Eights, pos: int, stop: int, heads: Table, tails: Table, unknown: int, ids: Ids, count: int
) -> int:
    """Write the rows of a word's longest pieces, from the left; it is OOV without them, or with too many characters."""
    if _too_long(line, pos, stop):
        ids[count] = unknown
        return count + 1
    done, table = count, heads
    while pos < stop:
        row, length = _longest(eights, pos, stop, table)
        if row < 0:
            ids[count] = unknown
            return count + 1
        ids[done] = row
        done += 1
        pos, table = pos + length, tails
    return done


@inlined
def _longest(eights: Eights, pos: int, stop: int, table: Table) -> tuple[int, int]:
    """Return row and bytes of the longest piece, of whole characters, that starts at ``pos``; row ``_NONE`` without."""
    word_eights, word_places, slots, lengths = table
    of_start = lengths[_start_code(eights[pos])]
    for length in range(stop - pos, 0, -1):
        if of_start >> np.uint64(min(length, _MANY)) & _ONE != 0:
            row = row_of(slots, slot_of_word(eights, pos, pos + length, word_eights, word_places, slots), _NONE)
            if row >= 0:
                return row, length
    return _NONE, 0


@inlined
def _start_code(eight: np.uint64) -> int:
    code: int = signed((eight & _THREE_BYTES) * GOLDEN >> _CODE_SHIFT)
    return code


@compiled
def lengths_of(eights: Eights, places: Places) -> Eights:
    """Return the lengths of the pieces that start with the same three bytes, uint64 [2^14], by a hash of these bytes.

    Bit n is set if a piece has n bytes; the last bit also means all greater lengths.
    """
    lengths = np.zeros(1 << _CODE_BITS, np.uint64)
    for row in range(len(places) - 1):
        length = places[row + 1] - places[row]
        bit = _ONE << np.uint64(min(length, _MANY))
        if length >= 3:
            lengths[_start_code(eights[places[row]])] |= bit
        elif length > 0:
            lengths |= bit
    return lengths


@inlined
def _too_long(line: Octets, pos: int, stop: int) -> bool:
    if stop - pos <= MOST_CHARACTERS:
        return False
    characters = 0
    for place in range(pos, stop):
        characters += line[place] & 0xC0 != 0x80
    return characters > MOST_CHARACTERS


@compiled
def _copy(
    texts: Strings, text: int, behind: int, lookup: Lookup, specials: Strings, line: Octets, kinds: Octets, ends: Places
) -> int:
    """Copy texts to the line buffer, and their ends; return its length, ``_INVALID`` or ``_UNORDERED``."""
    points, kind_of, (replacement, starts) = lookup
    octets, places = texts
    pos, filled, combining = places[text], 0, 0
    for number in range(text + 1, behind + 1):
        stop = places[number]
        while pos < stop:
            point = signed(octets[pos])
            if point < 0x80:
                length = _special(octets, pos, stop, specials) if point == _BRACKET else 0
                if length:
                    filled = _put_special(octets, pos, length, line, kinds, filled)
                    pos += length
                    combining = 0
                    continue
                kind = kind_of[point]
                if kind != DROP:
                    line[filled], kinds[filled] = points[point], kind
                    filled += 1
                    combining = 0
                pos += 1
                continue
            size = size_of(point)
            point = decoded(octets, pos, size, stop)
            if point < 0 or point >= len(points):
                return _INVALID
            pos += size
            kind = kind_of[point]
            if kind == EXPANDED:
                expansion = points[point]
                for place in range(starts[expansion], starts[expansion + 1]):
                    point = signed(replacement[place])
                    kind = SPACE if point == _BLANK else max(LETTER, kind_of[point])
                    filled, combining = _put_one(point, kind, line, kinds, filled, combining)
            else:
                filled, combining = _put_one(signed(points[point]), kind, line, kinds, filled, combining)
            if combining < 0:
                return _UNORDERED
        ends[number] = filled
    ends[behind] = _LAST
    return padded(line, kinds, filled)


@inlined
def _put_one(point: int, kind: int, line: Octets, kinds: Octets, filled: int, combining: int) -> tuple[int, int]:
    """Write a character; return the next position and the kind of an open accent, ``_NONE`` if unordered."""
    if kind == DROP:
        return filled, combining
    if kind >= COMBINING:
        if combining > signed(kind) or combining < 0:
            return filled, _NONE
        return put(point, LETTER, line, kinds, filled), signed(kind)
    if kind in (SPACE, SYMBOL):
        line[filled], kinds[filled] = _BLANK, SPACE
        filled += 1
    if kind == SYMBOL:
        filled = put(point, LETTER, line, kinds, filled)
        line[filled], kinds[filled] = _BLANK, SPACE
        filled += 1
    if kind == LETTER:
        if point < 0x80:
            line[filled], kinds[filled] = point, LETTER
            filled += 1
        else:
            filled = put(point, LETTER, line, kinds, filled)
    return filled, min(combining, 0)


@compiled
def _put_special(octets: Octets, pos: int, length: int, line: Octets, kinds: Octets, filled: int) -> int:
    """Write a special token, with spaces around it; return the position after it."""
    line[filled], kinds[filled] = _BLANK, SPACE
    for place in range(length):
        line[filled + 1 + place], kinds[filled + 1 + place] = octets[pos + place], LETTER
    line[filled + length + 1], kinds[filled + length + 1] = _BLANK, SPACE
    return filled + length + 2


@compiled
def _special(octets: Octets, pos: int, stop: int, specials: Strings) -> int:
    """Return the length of the special token that starts at ``pos``; 0 if there is none."""
    names, starts = specials
    for number in range(len(starts) - 1):
        length: int = starts[number + 1] - starts[number]
        if pos + length <= stop:
            equal = 0
            while equal < length and octets[pos + equal] == names[starts[number] + equal]:
                equal += 1
            if equal == length:
                return length
    return 0
