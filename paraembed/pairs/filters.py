"""Filters of pairs, each with a reason under which its rejected rows are counted.

A filter reads tokenized rows (schema ``PAIRS``: lower-case tokens, separated by one space) and returns which rows fail.
Filters work on whole Arrow arrays. A docstring gives the time of its filter if that is more than 0.2 µs per row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

from paraembed.io.inflate import BLOCK_BYTES
from paraembed.io.lines import read_lines
from paraembed.text.hashing import text_column
from paraembed.text.tokenize import Tokens
from paraembed.text.vocabulary import spaced


@dataclass(frozen=True)
class RowFilter:
    """Filter of rows."""

    reason: str  # reason under which rejected rows are counted
    failed: Callable[[pa.Table], pa.BooleanArray]  # table [n] → bool [n] without nulls, True for a row to reject


def first_failures(table: pa.Table, filters: Sequence[RowFilter]) -> pa.StringArray:
    """Return the reason of the first filter that a row fails, string [n], null for a row that passes.

    Each filter reads only the rows that passed the filters before it.
    """
    reasons = np.full(len(table), -1, np.int64)
    rows = np.arange(len(table))
    for number, rule in enumerate(filters):
        failed = np.asarray(rule.failed(table))
        if failed.any():
            reasons[rows[failed]] = number
            rows, table = rows[~failed], table.filter(pa.array(~failed))
    names = pa.array([rule.reason for rule in filters], pa.string())
    return names.take(pa.array(reasons, mask=reasons < 0))


def _either(test: Callable[[pa.StringArray], pa.BooleanArray]) -> Callable[[pa.Table], pa.BooleanArray]:
    """Return a test of rows that is true if one of the two texts fails a test of texts."""
    return lambda table: pc.or_(test(text_column(table, "first")), test(text_column(table, "second")))


def num_tokens(texts: pa.StringArray) -> pa.Int32Array:
    """Return the number of tokens of each text [n]."""
    return pc.add(pc.count_substring(texts, " "), 1)


def effective_size(table: pa.Table) -> pa.Int64Array:
    """Return the effective size of each pair [n]: its number of tokens of two or more characters, the higher of both
    texts.

    P15 §3.1.
    """
    return pc.max_element_wise(*(_num_long_tokens(text_column(table, name)) for name in ("first", "second")))


def _num_long_tokens(texts: pa.StringArray) -> pa.Int64Array:
    tokens = split_tokens(texts)
    long = pc.greater(pc.utf8_length(tokens.flat), 1).to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(long)))
    return pa.array(before[tokens.offsets[1:]] - before[tokens.offsets[:-1]])


EQUAL_TEXTS = RowFilter(
    "equal texts", lambda table: pc.equal(text_column(table, "first"), text_column(table, "second"))
)
NOT_SINGLE_WORDS = RowFilter("not single words", _either(lambda texts: pc.match_substring(texts, " ")))
BOTH_SINGLE_WORDS = RowFilter("both single words", lambda table: pc.invert(NOT_SINGLE_WORDS.failed(table)))
DIGIT = RowFilter("digit", _either(lambda texts: pc.match_substring_regex(texts, r"\p{Nd}")))
NOT_LETTERS = RowFilter("not letters", _either(lambda texts: pc.match_substring_regex(texts, r"[^\pL ]")))
BRACKET = RowFilter("bracket", _either(lambda texts: pc.match_substring_regex(texts, r"[()\[\]{}]|-[lr][rsc]b-")))
"""Plain brackets, and the bracket tokens of PPDB's Penn Treebank tokenization: ``-lrb-``."""
NO_SCORE = RowFilter("no score", lambda table: pc.is_null(table["score"].combine_chunks()))
ONE_EDIT_APART = RowFilter(
    "at most one edit apart",
    lambda table: pa.array(one_edit_apart(text_column(table, "first"), text_column(table, "second"))),
)


def below_score(least: float) -> RowFilter:
    """Return a filter that rejects rows with a lower score; rows without a score pass."""
    return RowFilter(
        "score too low", lambda table: pc.fill_null(pc.less(table["score"].combine_chunks(), least), False)
    )


def too_long(most: int) -> RowFilter:
    """Return a filter that rejects rows with a text of more than ``most`` tokens."""
    return RowFilter("too many tokens", _either(lambda texts: pc.greater(num_tokens(texts), most)))


def effective_size_below(least: int) -> RowFilter:
    """Return a filter that rejects rows with a lower effective size (P15 §3.1); 0.5 µs per row."""
    return RowFilter("effective size too low", lambda table: pc.less(effective_size(table), least))


def overlap_from(limit: float) -> RowFilter:
    """Reject rows with a word overlap of ``limit`` or more (P15 §3.1), or a text too long for a phrase; 6 µs each."""

    def failed(table: pa.Table) -> pa.BooleanArray:
        score = word_overlap(text_column(table, "first"), text_column(table, "second"))
        return pa.array(~(score < limit))

    return RowFilter("word overlap", failed)


def out_of_vocabulary(vocabulary: pa.StringArray) -> RowFilter:
    """Return a filter that rejects rows with an out-of-vocabulary token; the vocabulary is [V].

    The vocabulary is converted to a set once, because Arrow's ``is_in`` would hash it again for every block of rows.
    """
    words = frozenset(vocabulary.to_pylist())

    def failed(table: pa.Table) -> pa.BooleanArray:
        size = len(table)
        if not size:
            return pa.array([], pa.bool_())
        tokens = split_tokens(pa.concat_arrays([text_column(table, "first"), text_column(table, "second")]))
        encoded = tokens.flat.dictionary_encode()
        unknown = np.array([word not in words for word in encoded.dictionary.to_pylist()], bool)
        sides = np.logical_or.reduceat(unknown[encoded.indices.to_numpy()], tokens.offsets[:-1]).reshape(2, size)
        return pa.array(sides.any(axis=0))

    return RowFilter("out of vocabulary", failed)


def read_vocabulary(path: Path, max_words: int | None = None, *, block_bytes: int = BLOCK_BYTES) -> pa.StringArray:
    """Return the first word of every line, lower-cased and without repetitions, in the order of the file.

    The file is a word-vector text file with or without a header, or has one word per line. With ``max_words``, only the
    first N words are returned (files are ordered by frequency). Raise ValueError if N is not positive, and the errors
    of ``read_lines``.
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"`max_words` is {max_words}; it must be at least 1, or left out for all words")
    words: dict[str, None] = {}
    for lines in read_lines(path, block_bytes=block_bytes):
        text = lines.text
        if lines.first == 0 and pc.match_substring_regex(text[0], r"^\d+ \d+ *$").as_py():
            text = text.slice(1)
        here = pc.utf8_lower(pc.list_element(pc.split_pattern(spaced(text.drop_null()), " ", max_splits=1), 0))
        words.update(dict.fromkeys(here.to_pylist()))
        if max_words is not None and len(words) >= max_words:
            break
    return pa.array([*words][:max_words], pa.string())


MOST_TOKENS = 64
"""Maximum tokens of a phrase; ``word_overlap``, whose time is quadratic in the tokens, skips longer texts."""
_PAIRS_AT_A_TIME = 1 << 20


def split_tokens(texts: pa.StringArray) -> Tokens:
    """Split n tokenized texts, which have one space between tokens and none at the ends, into tokens."""
    lists = pc.split_pattern(texts, " ")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return Tokens(lists.flatten(), offsets - offsets[0])


def one_edit_apart(first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return whether the Levenshtein distance between two texts, in characters, is at most 1, bool [n]."""
    distances = cpdist(first.to_pylist(), second.to_pylist(), scorer=Levenshtein.distance, score_cutoff=1)
    return np.asarray(distances.reshape(-1) <= 1)


def word_overlap(
    first: pa.StringArray, second: pa.StringArray, *, at_a_time: int = _PAIRS_AT_A_TIME
) -> npt.NDArray[np.float64]:
    """Return the word overlap score (P15 §3.1): the fraction of the shorter text's tokens that are near a token of the
    longer text.

    Two tokens are near if their Levenshtein distance is at most 1. The shorter text is the one with fewer tokens; if
    both have the same number, the score is the higher of the two fractions, so that it does not depend on the order of
    the pair. The texts [n] are tokens with one space between; the score is float64 [n], NaN if a text has more than
    ``MOST_TOKENS`` tokens.
    """
    tokens = split_tokens(pa.concat_arrays([first, second]))
    encoded = tokens.flat.dictionary_encode()
    codes, words = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    lengths = np.diff(tokens.offsets).reshape(2, -1)
    starts = tokens.offsets[:-1].reshape(2, -1)
    short_enough = (lengths <= MOST_TOKENS).all(axis=0)
    rows = np.flatnonzero(short_enough)
    has_near = np.zeros(len(codes), bool)
    products = np.cumsum(lengths[0, rows] * lengths[1, rows])
    cuts = np.searchsorted(products, np.arange(at_a_time, products[-1] if len(rows) else 0, at_a_time))
    for part in np.split(rows, cuts):
        one_P, other_P = _token_pairs(starts[:, part], lengths[:, part])
        near_P = _near(codes[one_P], codes[other_P], words)
        has_near[one_P[near_P]] = has_near[other_P[near_P]] = True
    shared = np.add.reduceat(has_near, tokens.offsets[:-1], dtype=np.int64).reshape(2, -1) if len(first) else lengths
    return np.where(short_enough, share_of_shorter(shared, lengths), np.nan)


def share_of_shorter(shared_2N: npt.NDArray[np.int64], lengths_2N: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the fraction of the shorter text's tokens that are also in the longer text, [N]; 0 without tokens.

    If both texts have the same number of tokens, return the higher of the two fractions.
    """
    shares = shared_2N / np.maximum(lengths_2N, 1)
    fewer, more = lengths_2N[0] < lengths_2N[1], lengths_2N[0] > lengths_2N[1]
    share: npt.NDArray[np.float64] = np.where(fewer, shares[0], np.where(more, shares[1], shares.max(axis=0)))
    return share


def _token_pairs(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions [P] and [P] of all combinations of a token of the first text with one of the second."""
    products = lengths[0] * lengths[1]
    owner = np.repeat(np.arange(len(products)), products)
    place = np.arange(len(owner)) - (np.cumsum(products) - products)[owner]
    return starts[0, owner] + place // lengths[1, owner], starts[1, owner] + place % lengths[1, owner]


def _near(one_P: npt.NDArray[np.int64], other_P: npt.NDArray[np.int64], words: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return whether two words, given by their indices, are at most one edit apart; equal pairs are compared once."""
    near: npt.NDArray[np.bool_] = one_P == other_P
    lengths = pc.utf8_length(words).to_numpy()
    rows = np.flatnonzero(~near & (np.abs(lengths[one_P] - lengths[other_P]) <= 1))
    low, high = np.minimum(one_P[rows], other_P[rows]), np.maximum(one_P[rows], other_P[rows])
    unique, inverse = np.unique(low * len(words) + high, return_inverse=True)
    compared = one_edit_apart(words.take(pa.array(unique // len(words))), words.take(pa.array(unique % len(words))))
    near[rows] = compared[inverse]
    return near
