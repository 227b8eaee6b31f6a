"""Texts to word ids in one compiled pass over their bytes: ``tokenize`` and ``word_ids`` combined.

``text.tokenize`` defines the tokens. The loops of ``text.scan`` find the same tokens five times as fast, because they
create no strings. The table of single characters is computed once from the regular expressions of the definition; the
rules that combine characters into tokens are written out in the loops.
"""

from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.text import OF_PIECES, SUBWORD, WORDPIECE, check_tokenizer
from paraembed.text.bigrams import Bigrams, has_bigrams
from paraembed.text.ragged import Ragged, joined, string_bytes
from paraembed.text.scan import (
    LETTER,
    MARK,
    NUMBER,
    PADDING,
    SPACE,
    SYMBOL,
    Eights,
    Octets,
    Places,
    Points,
    Strings,
    fill_slots,
    scan,
)
from paraembed.text.scan_pieces import JOINED, Table, lengths_of, scan_pieces
from paraembed.text.subword import Subwords, SubwordTokenizer, contents_of
from paraembed.text.tokenize import NO_TEXT, QUOTES, SYMBOLS, Tokens, normalized, tokenize
from paraembed.text.vocabulary import UNKNOWN, unknown_row
from paraembed.text.wordpiece import OOV, PREFIX, WordPieces, characters, specials_of

_REACHES = (0x10000, 0x110000)
"""Sizes of the character table: the first takes 35 ms to compute, all of Unicode 250 ms."""
_GROWTH = 3
"""Most bytes that a byte of a text becomes in the line of word pieces: syllables of Hangul become three characters."""


class TokenIds:
    """Function that maps texts to the word ids of their tokens and bigrams, with the lookup tables of its vocabulary,
    string array [V].

    The tokenizer is one of ``paraembed.text.TOKENIZERS``, ``WORDPIECE``, or a ``SubwordTokenizer``. With
    ``hashes_unknown``, OOV tokens of a tokenizer of words get their negative ``oov_code``, not the row of <unk>. Raise
    ValueError if the tokenizer is unknown, or the vocabulary has no row for OOV tokens or is not a string array; and
    the errors of ``Subwords``.
    """

    def __init__(self, vocabulary: pa.StringArray, tokenizer: str, *, hashes_unknown: bool = False) -> None:
        check_tokenizer(tokenizer, of_encoder=True)
        vocabulary = vocabulary.cast(pa.string())  # what index_in, in the definition, compares tokens with
        self.vocabulary, self.tokenizer = vocabulary, tokenizer
        row = unknown_row(vocabulary)
        self._unknown = -1 if hashes_unknown else row
        if tokenizer == SUBWORD:
            self._subwords = Subwords(vocabulary, SubwordTokenizer(contents_of(tokenizer)))
        elif tokenizer == WORDPIECE:
            self._pieces = WordPieces(vocabulary)
            self._of_pieces = _piece_tables(vocabulary)
        else:
            self._of_words = _word_table(vocabulary)

    def __call__(self, texts: pa.StringArray) -> Ragged:
        """Return the rows of the tokens in the vocabulary, and then those of the bigrams; OOV tokens have the row of
        <unk>.

        The offsets of the string array [n] may have either size; null counts as empty. Raise ValueError if a text is
        not UTF-8.
        """
        return self.with_bigrams(self.tokens(texts))

    @cached_property
    def _bigrams(self) -> Bigrams | None:
        return Bigrams(self.vocabulary) if has_bigrams(self.vocabulary) else None

    def with_bigrams(self, tokens: Ragged) -> Ragged:
        """Return texts of token ids with the rows of their bigrams, see ``paraembed.text.bigrams``."""
        return tokens if self._bigrams is None else self._bigrams(tokens)

    def tokens(self, texts: pa.StringArray) -> Ragged:
        """Return the rows of the tokens alone; otherwise like a call."""
        if self.tokenizer == SUBWORD:
            return self._subwords(texts)
        if not pa.types.is_large_string(texts.type):
            texts = texts.cast(pa.string())
        rules, _, form = self.tokenizer.partition("+")
        texts = normalized(texts, form)
        strings = string_bytes(pc.fill_null(texts, "") if texts.null_count else texts)
        growth = _GROWTH if self.tokenizer == WORDPIECE else 2  # "°" of two bytes becomes " ° "
        size = growth * int(np.diff(strings[1]).max(initial=JOINED)) + 2 * PADDING
        octets, kinds = np.empty(size, np.uint8), np.empty(size, np.uint8)
        line = octets, kinds, _eights(octets), _eights(kinds)
        ids = np.empty(len(strings[0]), np.int32)  # a token has a byte at least
        offsets, unordered = np.zeros(len(texts) + 1, np.int64), np.zeros(len(texts), np.uint8)
        result, done = (self._unknown, ids, offsets), 0
        if self.tokenizer == WORDPIECE:
            done = scan_pieces(strings, _piece_characters(), line, self._of_pieces, *result, unordered)
        else:
            for reach in _REACHES:
                done = scan(strings, _characters(rules, reach), line, self._of_words, *result)
                if done == len(texts):
                    break
        if done < len(texts):
            raise ValueError(f"text {done + 1} of {len(texts)} is not UTF-8; correct its encoding")
        return self._with_unordered(texts, Ragged(ids[: offsets[-1]].copy(), offsets), unordered)

    def _with_unordered(self, texts: pa.StringArray, ragged: Ragged, unordered: Octets) -> Ragged:
        """Return the ids of all texts; the definition divides those whose accents Unicode moves."""
        parts, start = list[Ragged](), 0
        for row in np.flatnonzero(unordered).tolist():
            parts += [ragged.slice(start, row), self._pieces(texts[row : row + 1])]
            start = row + 1
        return joined(*parts, ragged.slice(start, len(ragged))) if parts else ragged


def tokens_of(texts: pa.StringArray, tokenizer: str, vocabulary: pa.StringArray | None) -> Tokens:
    """Return the tokens of a string array [n], also those that are pieces of the vocabulary."""
    if tokenizer not in OF_PIECES or vocabulary is None:
        return tokenize(as_strings(texts), tokenizer)
    ids = TokenIds(vocabulary, tokenizer).tokens(texts)
    return Tokens(vocabulary.take(pa.array(ids.ids)), ids.offsets)


def _word_table(vocabulary: pa.StringArray) -> tuple[Eights, Places, Eights]:
    """Return a vocabulary [V] as an open hash table.

    It is the B bytes of all words, uint64 [B + 2] (see ``_eights``); the start of each word, int64 [V + 1]; and the
    slots, uint64 [S, 2], with S a power of two and at least 2V. A slot holds the first eight bytes of a word, and its
    length (upper half) with its row + 1 (lower half). A free slot is zero.
    """
    octets, places = string_bytes(vocabulary)
    # One byte more, because for numba an array of one number has another type, and it would compile the loops again.
    eights = _eights(np.concatenate((octets, np.zeros(PADDING + 1, np.uint8))))
    slots = np.zeros((1 << (2 * len(vocabulary)).bit_length(), 2), np.uint64)
    fill_slots(eights, places, slots)
    return eights, places, slots


def as_strings(texts: pa.StringArray) -> pa.StringArray:
    """Return a string array [n] with 32-bit offsets; raise ValueError if the texts have 2 GiB or more in total."""
    if pa.types.is_large_string(texts.type):
        texts = pa.concat_arrays([texts])  # a slice's offsets begin anywhere; those of a copy begin at 0
    return texts.cast(pa.string())


def _eights(octets: Octets) -> Eights:
    """Return, as a number, the eight bytes that start at each byte, except for the last seven bytes."""
    return np.ndarray(len(octets) - 7, "<u8", octets.data, strides=(1,))


def _piece_tables(vocabulary: pa.StringArray) -> tuple[Strings, Table, Table]:
    """Return the special tokens of a vocabulary of word pieces, and tables of pieces that begin or continue a word."""
    words = [OOV if word == UNKNOWN else word for word in vocabulary.to_pylist()]
    continuing = [word.removeprefix(PREFIX) if word.startswith(PREFIX) else "" for word in words]  # "": no piece
    specials = string_bytes(pa.array(specials_of(words), pa.string()))
    heads, tails = (_word_table(pa.array(of_table, pa.string())) for of_table in (words, continuing))
    return specials, (*heads, lengths_of(*heads[:2])), (*tails, lengths_of(*tails[:2]))


@lru_cache(maxsize=1)
def _piece_characters() -> tuple[Points, Octets, tuple[Points, Places]]:
    """Return the replacements and kinds of all characters, int32 and uint8 [0x110000], for ``scan_pieces``.

    Of ``EXPANDED`` characters, the replacement is the number of an expansion; the third value holds the code points of
    the expansions and the start of each.
    """
    of_all = characters()
    points, kinds = np.arange(0x110000, dtype=np.int32), of_all.kinds.copy()
    expansions = list[str]()
    for point, text in of_all.replacements.items():
        if len(text) == 1 and of_all.kinds[ord(text)] == LETTER:
            points[point], kinds[point] = ord(text), LETTER
        else:
            points[point] = len(expansions)
            expansions.append(text)
    starts = np.concatenate(([0], np.cumsum([len(text) for text in expansions])))
    return points, kinds, (_points(pa.array(["".join(expansions)])), starts)


@lru_cache(maxsize=4)
def _characters(rules: str, reach: int) -> tuple[Points, Octets]:
    """Return the replacements of the characters below ``reach``, int32 [reach], and their kinds, uint8 [reach]."""
    points = np.arange(reach, dtype=np.int32)
    points[0xD800:0xE000] = ord(" ")  # surrogates are no characters
    every = pa.array([points.tobytes().decode("utf-32-le")])

    def are_lost(rest: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Return which lower-cased characters are missing from the result ``rest`` of an operation."""
        kept = np.zeros(reach, bool)
        kept[_points(rest)] = True
        return ~kept[lower]

    def match(pattern: str) -> npt.NDArray[np.bool_]:
        return are_lost(pc.replace_substring_regex(every, pattern, ""))

    lower = _points(pc.utf8_lower(every))
    is_space = are_lost(pc.binary_join(pc.utf8_split_whitespace(every), ""))
    kinds = np.full(reach, LETTER, np.uint8)
    changed = lower.copy()
    if rules == "space":
        kinds[is_space] = SPACE
        return changed, kinds
    kinds[(lower < 0x80) & ~match("[a-z0-9_]")] = MARK
    kinds[match(r"\pN")] = NUMBER
    kinds[match(SYMBOLS)] = SYMBOL
    for curly, straight in QUOTES:
        changed[match(curly)] = ord(straight)
        kinds[match(curly)] = MARK
    kinds[match(NO_TEXT) | is_space] = SPACE
    return changed, kinds


def character_kinds(tokenizer: str) -> Octets:
    """Return the kind of every Unicode character, one of those in ``text.scan``, uint8 [0x110000]."""
    return _characters(tokenizer.partition("+")[0], _REACHES[-1])[1]


def _points(text: pa.StringArray) -> Points:
    """Return the Unicode code points of one text."""
    return np.frombuffer(text[0].as_py().encode("utf-32-le"), np.int32)
