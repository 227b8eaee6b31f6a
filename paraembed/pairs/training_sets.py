"""Training sets of the four papers, by name: filters of rows, bigrams, and treatment of duplicates.

``row_rules`` builds the filters once; ``judge_rows`` applies them to each block of rows. Sizes, splits and samples,
which need all rows at once, are in ``paraembed.pairs.selection``. Sharding drops duplicates, in either order
("redundant" in P15, "unique" in P16), unless the set keeps them.

Bigram pairs are extracted from phrase pairs with part-of-speech tags and word alignments (P15 §6.3). Adjective–noun and
noun–noun pairs are two adjacent tokens of one phrase, each aligned with its counterpart in two adjacent tokens of the
other phrase, with these parts of speech on both sides (easy job, simple task). Verb–noun pairs are aligned verbs, each
with the closest noun after it, which is taken as its object; these nouns are aligned, too (achieve goal, achieve aim).

PPDB has alignments but no tags, and this project has no tagger. The input therefore needs the columns ``first_pos`` and
``second_pos`` (Penn Treebank tags, one per token, separated by one space) and ``alignment`` (``0-0 1-2``). Each phrase
pair gives at most one bigram pair, the leftmost one that passes the rules, so the number of rows stays the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.pairs import filters
from paraembed.pairs.filters import RowFilter, first_failures, split_tokens
from paraembed.pairs.settings import FilterOptions
from paraembed.text.hashing import text_column
from paraembed.text.tokenize import Tokens

BigramKind = Literal["jn", "nn", "vn"]
_FIRST_TAGS = {"jn": "JJ", "nn": "NN", "vn": "VB"}  # and their inflections: JJR, NNS, VBD, …


def extract_bigrams(table: pa.Table, kind: BigramKind, rules: Sequence[RowFilter]) -> tuple[pa.Table, pa.StringArray]:
    """Replace the texts of each phrase pair by those of one bigram pair that passes the rules.

    Rows without a bigram pair keep their phrases; the second array [n] gives the reason, null for the others. Raise
    ValueError if ``first_pos``, ``second_pos`` or ``alignment`` is missing.
    """
    _check_columns(table)
    sides = [split_tokens(text_column(table, name)) for name in ("first", "second")]
    tags = [split_tokens(pc.fill_null(text_column(table, name), "")) for name in ("first_pos", "second_pos")]
    untagged = np.zeros(len(table), bool)
    for side, tag in zip(sides, tags, strict=True):
        untagged |= np.diff(side.offsets) != np.diff(tag.offsets)
    links_L3, unaligned = _links(text_column(table, "alignment"), sides)
    links_L3 = links_L3[~(untagged | unaligned)[links_L3[:, 0]]]
    rows_C, places_C4 = _candidates(links_L3, sides, tags, kind)
    pairs = pa.table({"first": _bigrams(sides[0], places_C4[:, :2]), "second": _bigrams(sides[1], places_C4[:, 2:])})
    reasons = first_failures(pairs, rules)
    chosen, rows = _choose(rows_C, np.asarray(reasons.is_null()))
    pairs, reasons = pairs.take(pa.array(chosen)), reasons.take(pa.array(chosen))

    faults = pa.array(["no part-of-speech tag for each token", "no alignment that fits", f"no aligned {kind} bigram"])
    refused = faults.take(pa.array(np.where(untagged, 0, np.where(unaligned, 1, 2))))
    refused = pc.replace_with_mask(refused, _mask(rows, len(table)), reasons)
    good = reasons.is_null()
    for name in ("first", "second"):
        bigrams = text_column(pairs, name).filter(good)
        mask = _mask(rows[np.asarray(good)], len(table))
        table = _with_column(table, name, pc.replace_with_mask(text_column(table, name), mask, bigrams))
    for name in {"first_tree", "second_tree"} & set(table.column_names):
        table = _with_column(table, name, pa.nulls(len(table), pa.string()))
    return table, refused


def _check_columns(table: pa.Table) -> None:
    missing = [name for name in ("first_pos", "second_pos", "alignment") if name not in table.column_names]
    if missing:
        raise ValueError(
            f"bigrams need the column{'s' * (len(missing) > 1)} {', '.join(missing)}; tag the phrases with a "
            "part-of-speech tagger and give TSV or Parquet with first, second, first_pos and second_pos (Penn "
            "Treebank tags, one per token, separated by spaces) and alignment (0-0 1-2)"
        )


def _links(alignment: pa.StringArray, sides: Sequence[Tokens]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return links (row, token of the first text, token of the second) [L, 3], and rows without a valid alignment."""
    links = split_tokens(pc.utf8_trim_whitespace(pc.fill_null(alignment, "")))
    ends = pc.extract_regex(links.flat, r"^(?P<first>\d{1,6})-(?P<second>\d{1,6})$")
    rows_L = np.repeat(np.arange(len(alignment)), np.diff(links.offsets))
    ends_L2 = np.stack(
        [
            np.asarray(pc.fill_null(pc.struct_field(ends, name).cast(pa.int64()), -1), np.int64)
            for name in ("first", "second")
        ],
        axis=1,
    )
    lengths_L2 = np.stack([np.diff(side.offsets)[rows_L] for side in sides], axis=1)
    wrong_L = ((ends_L2 < 0) | (ends_L2 >= lengths_L2)).any(axis=1)
    wrong = np.zeros(len(alignment), bool)
    wrong[rows_L[wrong_L]] = True
    return np.column_stack((rows_L, ends_L2)), wrong


def _candidates(
    links_L3: npt.NDArray[np.int64], sides: Sequence[Tokens], tags: Sequence[Tokens], kind: BigramKind
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return rows [C] and the flat indices of the four tokens [C, 4] of all candidates, leftmost first."""
    rows_L = links_L3[:, 0]
    usable_L = np.ones(len(rows_L), bool)
    places = []
    for side, tag, token_L in zip(sides, tags, (links_L3[:, 1], links_L3[:, 2]), strict=True):
        is_head_T, partner_T = _heads_and_partners(tag, kind)
        of_tag_L, of_side_L = tag.offsets[rows_L], side.offsets[rows_L]  # these differ after a row without tags
        partner_L = partner_T[of_tag_L + token_L]
        usable_L &= is_head_T[of_tag_L + token_L] & (partner_L >= 0)
        places += [of_side_L + token_L, of_side_L + partner_L - of_tag_L]
    size = len(sides[1].flat)
    linked_L = np.isin(places[1] * size + places[3], places[0] * size + places[2])
    kept = np.flatnonzero(usable_L & linked_L)
    kept = kept[np.lexsort((places[2][kept], places[0][kept]))]
    return rows_L[kept], np.stack(places, axis=1)[kept]


def _heads_and_partners(tags: Tokens, kind: BigramKind) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return whether a token can be the first of a bigram [T], and the index of its noun [T], or -1."""
    size = len(tags.flat)
    head = np.asarray(pc.starts_with(tags.flat, _FIRST_TAGS[kind]))
    noun = np.asarray(pc.starts_with(tags.flat, "NN"))
    places = np.where(noun, np.arange(size), size)
    if kind == "vn":
        places = np.minimum.accumulate(places[::-1])[::-1]
    partner = np.append(places[1:], size)
    ends = np.repeat(tags.offsets[1:], np.diff(tags.offsets))
    return head, np.where(partner < ends, partner, -1)


def _bigrams(side: Tokens, places_C2: npt.NDArray[np.int64]) -> pa.StringArray:
    tokens = [side.flat.take(pa.array(np.ascontiguousarray(places_C2[:, place]))) for place in (0, 1)]
    return pc.binary_join_element_wise(*tokens, " ")


def _choose(
    rows_C: npt.NDArray[np.int64], good_C: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each row its first good candidate, or else its first one, and the rows with candidates, ascending."""
    order = np.lexsort((~good_C, rows_C))  # stable: good ones come first, from the left
    rows, firsts = np.unique(rows_C[order], return_index=True)
    return order[firsts], rows


def _mask(rows: npt.NDArray[np.int64], size: int) -> pa.BooleanArray:
    mask = np.zeros(size, bool)
    mask[rows] = True
    return pa.array(mask)


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


@dataclass(frozen=True)
class TrainingSet:
    """Definition of a paper's training set."""

    # Filters, in order; a filter that needs the vocabulary is a function of it.
    rules: tuple[RowFilter | Callable[[pa.StringArray], RowFilter], ...] = ()
    bigrams: BigramKind | None = None  # rows become bigram pairs of this kind, which are then filtered
    # Select the same number of pairs for each of these effective sizes; the last includes larger ones.
    effective_sizes: tuple[int, ...] = ()
    size: int | None = None  # default number of pairs to select; None: all
    chunks: int = 0  # draw from this many chunks of the pairs, 0: from all at once, see ``selection._to_be_rated``
    is_split: bool = False  # pairs are split into train, dev and test
    keeps_equal_texts: bool = False  # two equal texts are a valid pair
    keeps_duplicates: bool = False


def _bigram_set(kind: BigramKind) -> TrainingSet:
    return TrainingSet(rules=(filters.out_of_vocabulary, filters.BRACKET, filters.ONE_EDIT_APART), bigrams=kind)


TRAINING_SETS: dict[str, TrainingSet] = {  # with the section and the number of pairs of the paper
    "iclr2016": TrainingSet(rules=(filters.BOTH_SINGLE_WORDS,)),  # P16 §4.2.1: 3,033,753
    "tacl2015/words": TrainingSet(  # P15 §5.2: 112,894
        rules=(filters.NOT_SINGLE_WORDS, filters.DIGIT, filters.out_of_vocabulary)
    ),
    "tacl2015/bigrams-jn": _bigram_set("jn"),  # P15 §6.3: 133,997
    "tacl2015/bigrams-nn": _bigram_set("nn"),  # P15 §6.3: 35,601
    "tacl2015/bigrams-vn": _bigram_set("vn"),  # P15 §6.3: 62,640
    "tacl2015/phrases": TrainingSet(  # P15 §6.4: 60,000
        rules=(filters.out_of_vocabulary, filters.effective_size_below(3), filters.overlap_from(0.5)),
        effective_sizes=(3, 4, 5),
        size=60_000,
    ),
    "tacl2015/annotated": TrainingSet(  # P15 §3.1: 3,000
        rules=(filters.out_of_vocabulary, filters.effective_size_below(3), filters.overlap_from(0.5)),
        effective_sizes=(3, 4, 5),
        size=3_000,
        chunks=10,
    ),
    "pgru2017": TrainingSet(  # Z17 §2.1, §3.1: 406,170
        rules=(filters.BOTH_SINGLE_WORDS, filters.NOT_LETTERS, filters.out_of_vocabulary), is_split=True
    ),
    "acl2017/simpwiki": TrainingSet(keeps_equal_texts=True, keeps_duplicates=True),  # P17 §4.1.2: 167,689
    "acl2017/ppdb-matched": TrainingSet(rules=(filters.BOTH_SINGLE_WORDS,)),  # P17 §4.1.2: 1,341,188
}


def set_of(options: FilterOptions) -> TrainingSet:
    """Return the training set that the options name; by default a set of all rows."""
    return TrainingSet() if options.training_set is None else TRAINING_SETS[options.training_set]


@dataclass(frozen=True)
class RowRules:
    """Filters of rows."""

    filters: tuple[RowFilter, ...]  # filters of the original rows, in order
    bigrams: BigramKind | None = None  # rows that pass become bigram pairs of this kind; None: they stay unchanged
    bigram_filters: tuple[RowFilter, ...] = ()  # filters of these bigram pairs


def row_rules(options: FilterOptions, vocabulary: pa.StringArray | None = None) -> RowRules:
    """Return the filters of the options (equal texts, score, length), then those of the training set.

    Raise ValueError if the set needs a vocabulary, string array [V] of lower-case words, but none is given.
    """
    chosen = set_of(options)
    if vocabulary is None and not all(isinstance(rule, RowFilter) for rule in chosen.rules):
        raise ValueError(f"`training_set` {options.training_set} needs a vocabulary; give word vectors with `words`")
    of_options = [] if chosen.keeps_equal_texts else [filters.EQUAL_TEXTS]
    if options.min_score is not None:
        of_options += [filters.NO_SCORE, filters.below_score(options.min_score)]
    if options.max_length is not None:
        of_options.append(filters.too_long(options.max_length))
    rules = tuple(rule if isinstance(rule, RowFilter) else rule(vocabulary) for rule in chosen.rules)
    if chosen.bigrams is None:
        return RowRules((*of_options, *rules))
    return RowRules(tuple(of_options), chosen.bigrams, rules)


def judge_rows(table: pa.Table, rules: RowRules) -> tuple[pa.Table, pa.StringArray]:
    """Apply the filters to n tokenized rows.

    Return the rows, which differ from ``table`` only for bigrams, and the reason to reject each row, null if it passes.
    """
    refused = first_failures(table, rules.filters)
    if rules.bigrams is None:
        return table, refused
    table, without_bigram = extract_bigrams(table, rules.bigrams, rules.bigram_filters)
    return table, pc.coalesce(refused, without_bigram)
