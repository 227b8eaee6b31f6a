"""The training sets of the four papers, by name: which rows each takes, and what is done with equal ones.

``row_rules`` makes the rules once; ``judge_rows`` applies them to each block of rows. What needs all rows at once,
sizes, splits and samples, is ``paraembed.pairs.selection``. Pairs that repeat each other, in either order ("redundant"
in P15, "unique" in P16), are for the sharding to drop, unless the set says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa
import pyarrow.compute as pc

from paraembed.pairs.bigrams import BigramKind, extract_bigrams
from paraembed.pairs.filters import (
    BOTH_SINGLE_WORDS,
    BRACKET,
    DIGIT,
    EQUAL_TEXTS,
    NOT_LETTERS,
    NOT_SINGLE_WORDS,
    ONE_EDIT_APART,
    RowFilter,
    below_score,
    effective_size_below,
    first_failures,
    no_score,
    out_of_vocabulary,
    overlap_from,
    too_long,
)
from paraembed.pairs.settings import FilterOptions, SetName


@dataclass(frozen=True)
class TrainingSet:
    """A training set of a paper.

    Attributes:
        source: where the paper says it.
        made_from: the input that the paper used.
        num_pairs: how many pairs the paper got.
        rules: what refuses a row, in this order; a function of the vocabulary where that is needed.
        bigrams: rows become bigram pairs of this kind, and the rules are about these.
        effective_sizes: as many pairs of each of these effective sizes; the last stands for all from there.
        size: how many pairs are selected, unless the options say; None: all.
        is_split: pairs are split into train, dev and test.
        keeps_equal_texts: a text with itself is a pair.
        keeps_duplicates: pairs may recur.
    """

    source: str
    made_from: str
    num_pairs: int
    rules: tuple[RowFilter | Callable[[pa.StringArray], RowFilter], ...] = ()
    bigrams: BigramKind | None = None
    effective_sizes: tuple[int, ...] = ()
    size: int | None = None
    is_split: bool = False
    keeps_equal_texts: bool = False
    keeps_duplicates: bool = False

    @property
    def needs_vocabulary(self) -> bool:
        """Whether a rule asks which words have vectors."""
        return any(not isinstance(rule, RowFilter) for rule in self.rules)


def _bigram_set(kind: BigramKind, num_pairs: int) -> TrainingSet:
    return TrainingSet(
        "P15 §6.3",
        "PPDB 1.0 XL, tagged",
        num_pairs,
        rules=(out_of_vocabulary, BRACKET, ONE_EDIT_APART),
        bigrams=kind,
    )


TRAINING_SETS: dict[str, TrainingSet] = {
    "iclr2016": TrainingSet("P16 §4.3", "PPDB 1.0 XL phrasal", 3_033_753, rules=(BOTH_SINGLE_WORDS,)),
    "tacl2015/words": TrainingSet(
        "P15 §5.2",
        "PPDB 1.0 XL lexical; vectors of the 100,000 most frequent words",
        112_894,
        rules=(NOT_SINGLE_WORDS, DIGIT, out_of_vocabulary),
    ),
    "tacl2015/bigrams-jn": _bigram_set("jn", 133_997),
    "tacl2015/bigrams-nn": _bigram_set("nn", 35_601),
    "tacl2015/bigrams-vn": _bigram_set("vn", 62_640),
    "tacl2015/phrases": TrainingSet(
        "P15 §6.4",
        "PPDB 1.0 XL",
        60_000,
        rules=(out_of_vocabulary, effective_size_below(3), overlap_from(0.5)),
        effective_sizes=(3, 4, 5),
        size=60_000,
    ),
    "pgru2017": TrainingSet(
        "Z17 §2.1, §3.1",
        "PPDB 1.0 S",
        406_170,
        rules=(BOTH_SINGLE_WORDS, NOT_LETTERS, out_of_vocabulary),
        is_split=True,
    ),
    "acl2017/simpwiki": TrainingSet(
        "P17 §4.1", "SimpWiki 2.0, all aligned sentences", 167_689, keeps_equal_texts=True, keeps_duplicates=True
    ),
    "acl2017/ppdb-matched": TrainingSet("P17 §4.1", "PPDB 1.0 XL phrasal", 1_341_188, rules=(BOTH_SINGLE_WORDS,)),
}


def find_training_set(name: str) -> TrainingSet:
    """The training set of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in TRAINING_SETS:
        raise ValueError(f"unknown training set {name!r}; allowed: {', '.join(get_args(SetName))}")
    return TRAINING_SETS[name]


def set_of(options: FilterOptions) -> TrainingSet:
    """The training set that options name; where they name none, one that takes every row."""
    if options.training_set is None:
        return TrainingSet("", "", 0)
    return find_training_set(options.training_set)


@dataclass(frozen=True)
class RowRules:
    """What is asked of each row.

    Attributes:
        filters: of the rows as they come, in this order.
        bigrams: rows that stay become bigram pairs of this kind; None: they stay as they are.
        bigram_filters: of these bigram pairs.
    """

    filters: tuple[RowFilter, ...]
    bigrams: BigramKind | None = None
    bigram_filters: tuple[RowFilter, ...] = ()


def row_rules(options: FilterOptions, vocabulary: pa.StringArray | None = None) -> RowRules:
    """The rules of a training set, behind those of the options: equal texts, score, length.

    Args:
        options: which set, and limits.
        vocabulary: string array [V] of lower-case words; some sets need it.

    Raises:
        ValueError: the set needs a vocabulary and there is none.
    """
    chosen = set_of(options)
    if chosen.needs_vocabulary and vocabulary is None:
        raise ValueError(f"{options.training_set} keeps pairs of known words only; give word vectors with `words`")
    filters = [] if chosen.keeps_equal_texts else [EQUAL_TEXTS]
    if options.min_score is not None:
        filters += [no_score(), below_score(options.min_score)]
    if options.max_length is not None:
        filters.append(too_long(options.max_length))
    rules = tuple(rule if isinstance(rule, RowFilter) else rule(vocabulary) for rule in chosen.rules)
    if chosen.bigrams is None:
        return RowRules((*filters, *rules))
    return RowRules(tuple(filters), chosen.bigrams, rules)


def judge_rows(table: pa.Table, rules: RowRules) -> tuple[pa.Table, pa.StringArray]:
    """Apply rules to rows.

    Args:
        table: n rows of schema ``PAIRS``, tokenized; for bigrams also ``first_pos``, ``second_pos``, ``alignment``.
        rules: of ``row_rules``.

    Returns:
        The rows [n], which differ from ``table`` for bigrams only; and why a row is refused, string [n], null where
        it stays.

    Raises:
        ValueError: bigrams are asked for and a column is missing.
    """
    refused = first_failures(table, rules.filters)
    if rules.bigrams is None:
        return table, refused
    table, without_bigram = extract_bigrams(table, rules.bigrams, rules.bigram_filters)
    return table, pc.coalesce(refused, without_bigram)
