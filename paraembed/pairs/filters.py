"""Filters of pairs, each with the reason under which rejected rows are counted.

A filter reads tokenized rows (schema ``PAIRS``: lower-case tokens, one space between) and returns which of them fail.
Filters work on whole Arrow arrays. Their cost is stated if it is more than 0.2 µs per row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.inflate import BLOCK_BYTES
from paraembed.io.lines import read_lines
from paraembed.pairs.edits import one_edit_apart, split_tokens, word_overlap
from paraembed.pairs.hashing import text_column


@dataclass(frozen=True)
class RowFilter:
    """Filter of rows.

    Attributes:
        reason: reason under which a rejected row is counted.
        failed: table [n] → bool [n] without nulls, True for a row to reject.
    """

    reason: str
    failed: Callable[[pa.Table], pa.BooleanArray]


def first_failures(table: pa.Table, filters: Sequence[RowFilter]) -> pa.StringArray:
    """Return the reason of the first filter that a row fails, string [n], null for a row that passes.

    A filter reads only the rows that passed the filters before it.
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
    """Return a test of rows: whether one of the two texts fails a test of texts."""
    return lambda table: pc.or_(test(text_column(table, "first")), test(text_column(table, "second")))


def _both(test: Callable[[pa.StringArray], pa.BooleanArray]) -> Callable[[pa.Table], pa.BooleanArray]:
    return lambda table: pc.and_(test(text_column(table, "first")), test(text_column(table, "second")))


def num_tokens(texts: pa.StringArray) -> pa.Int32Array:
    """Return the number of tokens of each text [n]."""
    return pc.add(pc.count_substring(texts, " "), 1)


def effective_size(table: pa.Table) -> pa.Int64Array:
    """Return the effective size of each pair [n]: tokens of over one character, the higher number of both texts.

    P15 §3.1.
    """
    return pc.max_element_wise(*(_num_long_tokens(text_column(table, name)) for name in ("first", "second")))


def _num_long_tokens(texts: pa.StringArray) -> pa.Int64Array:
    tokens = split_tokens(texts)
    long = pc.greater(pc.utf8_length(tokens.flat), 1).to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(long)))
    return pa.array(before[tokens.offsets[1:]] - before[tokens.offsets[:-1]])


def _is_single(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.invert(pc.match_substring(texts, " "))


EQUAL_TEXTS = RowFilter(
    "equal texts", lambda table: pc.equal(text_column(table, "first"), text_column(table, "second"))
)
BOTH_SINGLE_WORDS = RowFilter("both single words", _both(_is_single))
NOT_SINGLE_WORDS = RowFilter("not single words", _either(lambda texts: pc.match_substring(texts, " ")))
DIGIT = RowFilter("digit", _either(lambda texts: pc.match_substring_regex(texts, r"\p{Nd}")))
NOT_LETTERS = RowFilter("not letters", _either(lambda texts: pc.match_substring_regex(texts, r"[^\pL ]")))
BRACKET = RowFilter("bracket", _either(lambda texts: pc.match_substring_regex(texts, r"[()\[\]{}]|-[lr][rsc]b-")))
"""Plain brackets, and those of PPDB's Penn Treebank tokens: ``-lrb-``."""
ONE_EDIT_APART = RowFilter(
    "at most one edit apart",
    lambda table: pa.array(one_edit_apart(text_column(table, "first"), text_column(table, "second"))),
)


def no_score() -> RowFilter:
    """Filter of rows without a score."""
    return RowFilter("no score", lambda table: pc.is_null(table["score"].combine_chunks()))


def below_score(least: float) -> RowFilter:
    """Filter of rows with a lower score; rows without a score pass."""
    return RowFilter(
        "score too low", lambda table: pc.fill_null(pc.less(table["score"].combine_chunks(), least), False)
    )


def too_long(most: int) -> RowFilter:
    """Filter of rows with a text of more tokens."""
    return RowFilter("too many tokens", _either(lambda texts: pc.greater(num_tokens(texts), most)))


def effective_size_below(least: int) -> RowFilter:
    """Filter of rows of a lower effective size (P15 §3.1); 0.5 µs per row."""
    return RowFilter("effective size too low", lambda table: pc.less(effective_size(table), least))


def overlap_from(limit: float) -> RowFilter:
    """Filter of rows with a word overlap of ``limit`` or more (P15 §3.1), or too long for a phrase; 6 µs per row."""

    def failed(table: pa.Table) -> pa.BooleanArray:
        score = word_overlap(text_column(table, "first"), text_column(table, "second"))
        return pa.array(~(score < limit))

    return RowFilter("word overlap", failed)


def out_of_vocabulary(vocabulary: pa.StringArray) -> RowFilter:
    """Filter of rows with a token that is not in the vocabulary [V].

    The vocabulary becomes a set once: Arrow's ``is_in`` would hash it again for every block of rows.
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
    """Return the distinct first words of all lines, lower-cased, in the order of the file.

    Args:
        path: word-vector text file, plain or compressed, with or without a header; or one word per line.
        max_words: return only the first N words (files are ordered by frequency).
        block_bytes: bytes to read at a time.

    Raises:
        FileNotFoundError, IsADirectoryError: the file is missing or a folder.
        ValueError: ``max_words`` is not positive; or as ``read_lines``.
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"`max_words` is {max_words}; it must be at least 1, or left out for all words")
    words, waiting, num_waiting = pa.array([], pa.string()), list[pa.StringArray](), 0
    for lines in read_lines(path, block_bytes=block_bytes):
        text = lines.text
        if lines.first == 0 and pc.match_substring_regex(text[0], r"^\d+ \d+ *$").as_py():
            text = text.slice(1)
        here = pc.utf8_lower(pc.list_element(pc.split_pattern(text.drop_null(), " ", max_splits=1), 0))
        waiting.append(here)
        num_waiting += len(here)
        if num_waiting > len(words) or (max_words is not None and len(words) + num_waiting >= max_words):
            # Only when as many new words as old ones are waiting: merging after each block would be quadratic.
            words, waiting, num_waiting = pc.unique(pa.concat_arrays([words, *waiting])), [], 0
        if max_words is not None and len(words) >= max_words:
            return words.slice(0, max_words)
    return pc.unique(pa.concat_arrays([words, *waiting]))
