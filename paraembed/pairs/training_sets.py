"""Training sets of the four papers, by name: filters of rows, and treatment of duplicates.

``row_rules`` builds the filters once; ``judge_rows`` applies them to each block of rows. Sizes, splits and samples,
which need all rows at once, are in ``paraembed.pairs.selection``. Duplicates, in either order ("redundant" in P15,
"unique" in P16), are dropped by the sharding, unless the set keeps them.
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
    """Training set of a paper.

    Attributes:
        source: section of the paper.
        made_from: input that the paper used.
        num_pairs: number of pairs of the paper.
        rules: filters, in this order; a filter that needs the vocabulary is a function of it.
        bigrams: rows become bigram pairs of this kind, and the filters apply to these.
        effective_sizes: select equally many pairs of each of these effective sizes; the last includes larger ones.
        size: default number of pairs to select; None: all.
        is_split: pairs are split into train, dev and test.
        keeps_equal_texts: two equal texts are a pair.
        keeps_duplicates: duplicates are kept.
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
        """Whether a filter needs the vocabulary."""
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
    """Return the training set of this name.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in TRAINING_SETS:
        raise ValueError(f"unknown training set {name!r}; allowed: {', '.join(get_args(SetName))}")
    return TRAINING_SETS[name]


def set_of(options: FilterOptions) -> TrainingSet:
    """Return the training set that options name; by default a set of all rows."""
    if options.training_set is None:
        return TrainingSet("", "", 0)
    return find_training_set(options.training_set)


@dataclass(frozen=True)
class RowRules:
    """Filters of rows.

    Attributes:
        filters: filters of the original rows, in this order.
        bigrams: rows that pass become bigram pairs of this kind; None: they stay unchanged.
        bigram_filters: filters of these bigram pairs.
    """

    filters: tuple[RowFilter, ...]
    bigrams: BigramKind | None = None
    bigram_filters: tuple[RowFilter, ...] = ()


def row_rules(options: FilterOptions, vocabulary: pa.StringArray | None = None) -> RowRules:
    """Return the filters of the options (equal texts, score, length), then those of the training set.

    Args:
        options: training set and limits.
        vocabulary: string array [V] of lower-case words; some sets need it.

    Raises:
        ValueError: the set needs a vocabulary and none is given.
    """
    chosen = set_of(options)
    if chosen.needs_vocabulary and vocabulary is None:
        raise ValueError(f"`training_set` {options.training_set} needs a vocabulary; give word vectors with `words`")
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
    """Apply filters to rows.

    Args:
        table: n rows of schema ``PAIRS``, tokenized; for bigrams also ``first_pos``, ``second_pos``, ``alignment``.
        rules: filters of ``row_rules``.

    Returns:
        The rows [n], which differ from ``table`` only for bigrams; and the reason to reject a row, string [n], null if
        it passes.

    Raises:
        ValueError: a column that bigrams need is missing.
    """
    refused = first_failures(table, rules.filters)
    if rules.bigrams is None:
        return table, refused
    table, without_bigram = extract_bigrams(table, rules.bigrams, rules.bigram_filters)
    return table, pc.coalesce(refused, without_bigram)
