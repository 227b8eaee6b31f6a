r"""Bracketed binary trees over the tokens of texts, as constituency parsers write them.

A tree is labelled, ``(NP (DT the) (NN cat))``, or not, ``((the black) cat)``; a text of one word may be the bare word.
``(x y)`` can be a label with its word, or two words. Where a whole tree reads both ways, it is without labels if that
makes as many leaves as the text has tokens, else labelled.

* A node has two children. A node with one (a preterminal, a unary chain, an outer pair of brackets) is taken for its
  child. Labels are dropped.
* Leaves are lower-cased, as every input is, and must be the text's tokens. On either side the spellings of parsers
  count as what they stand for: ``-LRB- -RRB- -LSB- -RSB- -LCB- -RCB-`` as brackets, ``\/`` and ``\*`` as ``/`` and
  ``*``, backquotes, ``''`` and curly quotes as straight quotes. Round brackets in words must be escaped so.

Everything runs as NumPy and Arrow over whole arrays, so that no tree is too deep.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.ragged import Ragged
from paraembed.text import Tokens

FAULTS = (
    None,
    "tree with unbalanced brackets",
    "tree with more than one root",
    "tree with an empty node",
    "tree with a label without a child",
    "tree with a node of more than two children",
    "tree whose leaves are not the tokens",
)
"""What can be wrong with a tree."""

_UNBALANCED, _ROOTS, _EMPTY, _LABEL_ALONE, _NOT_BINARY, _OTHER_LEAVES = range(1, len(FAULTS))
_SPACE, _WORD, _OPEN, _CLOSE = range(4)
_KINDS = np.full(256, _WORD, np.uint8)
_KINDS[list(b" \t\n\v\f\r")] = _SPACE
_KINDS[ord("(")], _KINDS[ord(")")] = _OPEN, _CLOSE
_STANDS_FOR = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lsb-": "[",
    "-rsb-": "]",
    "-lcb-": "{",
    "-rcb-": "}",
    "``": '"',
    "''": '"',
    "`": "'",
}
_CHUNK_BYTES = 1 << 20  # of trees at a time: their brackets and words take about 40 times as much
_SHOWN = 80  # characters of a text or tree in a message


class TreeError(ValueError):
    """A tree that does not fit its text.

    Attributes:
        text: number of the text.
        fault: what is wrong, in words.
    """

    def __init__(self, text: int, fault: str) -> None:
        super().__init__(text, fault)
        self.text, self.fault = text, fault

    def __str__(self) -> str:
        return f"text {self.text}: {self.fault}"


@dataclass(frozen=True)
class Parsed:
    """n trees by themselves.

    Attributes:
        leaves: their words, lower-cased; none for a tree that is refused.
        merges: int32, one a leaf, as in ``Ragged``.
        faults: int64 [n], what is wrong with a tree: a place in ``FAULTS``, 0 where nothing is.
    """

    leaves: Tokens
    merges: npt.NDArray[np.int32]
    faults: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trees:
    """Trees of n texts with T tokens.

    Attributes:
        merges: int32 [T], as in ``Ragged``; a text without a tree, or with one that is refused, has the
            right-branching one.
        refused: string array [n]: what is wrong with a tree; null where nothing is.
        num_missing: texts of three tokens or more that came without a tree. One or two tokens have one tree only.
    """

    merges: npt.NDArray[np.int32]
    refused: pa.StringArray
    num_missing: int


def read_trees(trees: pa.StringArray, tokens: Tokens) -> Trees:
    """The trees of n texts.

    Args:
        trees: string array [n]; null or blank where a text has none.
        tokens: of the texts.
    """
    texts = Ragged(np.arange(len(tokens.flat), dtype=np.int32), tokens.offsets)
    merges = texts.right_branching().merges
    assert merges is not None
    faults = np.zeros(len(trees), np.int64)
    given = np.flatnonzero(pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(trees, "")), ""))
    for some in _chunks(trees, given):
        their = texts.take(some)
        parsed = parse_trees(trees.take(pa.array(some)), their.lengths)
        wrong = np.where(parsed.faults == 0, _OTHER_LEAVES * _differ(parsed.leaves, tokens, their), parsed.faults)
        leaf_is_good = np.repeat(wrong == 0, np.diff(parsed.leaves.offsets))
        merges[their.ids[np.repeat(wrong == 0, their.lengths)]] = parsed.merges[leaf_is_good]
        faults[some] = wrong
    num_missing = int((texts.lengths > 2).sum() - (texts.lengths[given] > 2).sum())
    return Trees(merges, pa.array(FAULTS, pa.string()).take(pa.array(faults)), num_missing)


def fitting_trees(trees: pa.StringArray, tokens: Tokens, first: int = 0) -> Trees:
    """As ``read_trees``, where every tree must be good.

    Raises:
        TreeError: one is not; texts are counted from ``first``.
    """
    read = read_trees(trees, tokens)
    at = pc.index(pc.is_valid(read.refused), True).as_py()
    if at < 0:
        return read
    fault, tree = read.refused[at].as_py(), trees.slice(at, 1)
    start, stop = map(int, tokens.offsets[at : at + 2])
    if fault == FAULTS[_OTHER_LEAVES]:
        leaves = parse_trees(tree, np.array([stop - start])).leaves.flat
        found, wanted = _from_first_difference(leaves, tokens.flat[start:stop])
        fault = f"the leaves of its tree are {found}, its tokens {wanted}"
    else:
        fault = f"{fault}: {_shown(tree[0].as_py())}"
    raise TreeError(first + at, f"{fault}; give the binary tree of its tokens, or none")


def parse_trees(trees: pa.StringArray, num_tokens: npt.NDArray[np.int64]) -> Parsed:
    """Leaves and structure of n trees; see the top of this file for what a tree is.

    Args:
        trees: string array [n], no null.
        num_tokens: int64 [n], tokens of their texts: what decides where a tree reads both ways.
    """
    faults = _UNBALANCED * _unbalanced(trees)
    balanced = np.flatnonzero(faults == 0)
    octets, offsets = _octets(trees.take(pa.array(balanced)))
    begins, ends = _word_borders(_KINDS[octets] == _WORD, offsets)
    marks = _marks(octets, offsets, begins)
    faults[balanced], labelled = _read_marks(marks, num_tokens[balanced])

    is_good, has_label = (faults[balanced] == 0)[marks.text], labelled[marks.text]
    is_label = marks.is_word & has_label & np.concatenate(([False], marks.is_open[:-1]))
    is_leaf = marks.is_word & is_good & ~is_label
    num_children = marks.num_parts - (has_label & marks.word_first)
    joins = marks.is_close & is_good & (num_children[marks.node] == 2)
    merges = np.bincount((np.cumsum(is_leaf) - 1)[joins], minlength=np.count_nonzero(is_leaf)).astype(np.int32)

    num_leaves = np.zeros(len(trees), np.int64)
    num_leaves[balanced] = np.bincount(marks.text[is_leaf], minlength=len(balanced))
    chosen = is_leaf[marks.is_word]
    leaves = pc.utf8_lower(_strings(octets, np.flatnonzero(begins)[chosen], np.flatnonzero(ends)[chosen] + 1))
    return Parsed(Tokens(leaves, np.concatenate(([0], np.cumsum(num_leaves)))), merges, faults)


@dataclass(frozen=True)
class _Marks:
    """E marks of n balanced trees, in their order: every bracket, and the first octet of every word.

    Attributes:
        num_texts: n.
        text: int64 [E], number of the tree.
        level: int64 [E], brackets around a mark; a bracket is not around itself.
        node: int64 [E], the opening bracket around a mark, and of a closing bracket its own; any where there is none.
        num_parts: int64 [E], words and nodes right inside an opening bracket; 0 elsewhere.
        word_first: bool [E], whether a word follows.
    """

    num_texts: int
    is_word: npt.NDArray[np.bool_]
    is_open: npt.NDArray[np.bool_]
    is_close: npt.NDArray[np.bool_]
    text: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    num_parts: npt.NDArray[np.int64]
    word_first: npt.NDArray[np.bool_]


def _marks(octets: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], begins: npt.NDArray[np.bool_]) -> _Marks:
    kinds = _KINDS[octets]
    at = np.flatnonzero(begins | (kinds >= _OPEN))
    count = len(at)
    is_word, is_open, is_close = (kinds[at] == kind for kind in (_WORD, _OPEN, _CLOSE))
    level = np.cumsum(is_open) - np.cumsum(is_close) - is_open
    # The bracket around a mark is the last before it that was opened one level up. All brackets of a tree are closed
    # before the next tree, so it is of the same tree.
    opened = np.flatnonzero(is_open)
    opened = opened[np.argsort(level[opened], kind="stable")]
    wanted = (level - ~is_close) * count + np.arange(count)
    node = np.concatenate((opened, [0]))[np.searchsorted(level[opened] * count + opened, wanted) - 1]
    return _Marks(
        num_texts=len(offsets) - 1,
        is_word=is_word,
        is_open=is_open,
        is_close=is_close,
        text=np.repeat(np.arange(len(offsets) - 1), np.diff(np.searchsorted(at, offsets))),
        level=level,
        node=node,
        num_parts=np.bincount(node[~is_close & (level > 0)], minlength=count),
        word_first=np.concatenate((is_word[1:], [False]))[:count],
    )


def _read_marks(
    marks: _Marks, num_tokens: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """What is wrong with each tree (a place in ``FAULTS``), and whether it is labelled."""

    def count(chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return np.bincount(marks.text[chosen], minlength=marks.num_texts)

    parts, word_first = marks.num_parts, marks.word_first
    plain = count(marks.is_open & (parts > 2)) == 0
    unlike_labelled = np.where(word_first, (parts < 2) | (parts > 3), parts > 1)
    labelled = (count(marks.is_open & unlike_labelled) == 0) & ~(plain & (count(marks.is_word) == num_tokens))
    without_label = count(marks.is_open & ~word_first & (parts > 1)) > 0
    label_alone = count(marks.is_open & word_first & (parts == 1)) > 0
    fault = np.select(
        [
            count((marks.level == 0) & ~marks.is_close) > 1,
            count(marks.is_open & (parts == 0)) > 0,
            plain | labelled,
            label_alone & ~without_label,
        ],
        [_ROOTS, _EMPTY, 0, _LABEL_ALONE],
        _NOT_BINARY,
    )
    return fault, labelled


def _chunks(trees: pa.StringArray, given: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers ``given`` in runs of about ``_CHUNK_BYTES`` of trees."""
    ends = np.cumsum(pc.binary_length(trees.take(pa.array(given))).to_numpy(), dtype=np.int64)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1] if len(ends) else 0, _CHUNK_BYTES))
    for start, stop in itertools.pairwise(np.unique([*cuts, len(given)])):
        yield given[start:stop]


def _octets(texts: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The octets of n strings, and where each begins and ends among them [n + 1]."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def _unbalanced(trees: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Whether brackets of a tree are not closed, or not opened, bool [n]."""
    octets, offsets = _octets(trees)
    kinds = _KINDS[octets]
    depth = np.concatenate(([0], np.cumsum((kinds == _OPEN).astype(np.int8) - (kinds == _CLOSE), dtype=np.int64)))
    lowest = np.minimum.reduceat(depth, offsets[:-1]) if len(trees) else depth[:0]
    wrong: npt.NDArray[np.bool_] = (depth[offsets[1:]] != depth[offsets[:-1]]) | (lowest < depth[offsets[:-1]])
    return wrong


def _word_borders(
    inside: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Where words begin, and where their last octets are; strings that follow one another share none.

    Args:
        inside: whether an octet is one of a word.
        offsets: where the strings begin and end.
    """
    begins, ends = inside.copy(), inside.copy()
    begins[1:] &= ~inside[:-1]
    ends[:-1] &= ~inside[1:]
    filled = offsets[1:] > offsets[:-1]
    firsts, lasts = offsets[:-1][filled], offsets[1:][filled] - 1
    begins[firsts], ends[lasts] = inside[firsts], inside[lasts]
    return begins, ends


def _strings(
    octets: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> pa.StringArray:
    """Pieces of UTF-8 as strings."""
    offsets = np.concatenate(([0], np.cumsum(stops - starts)))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], stops - starts)
    buffers = pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(octets[places])
    return pa.StringArray.from_buffers(len(starts), *buffers)


def _differ(leaves: Tokens, tokens: Tokens, texts: Ragged) -> npt.NDArray[np.bool_]:
    """Whether the leaves of a tree are other words than the tokens ``texts.ids`` of its text, bool [n]."""
    num_leaves, num_tokens = np.diff(leaves.offsets), texts.lengths
    differ: npt.NDArray[np.bool_] = num_leaves != num_tokens
    found = leaves.flat.filter(pa.array(np.repeat(~differ, num_leaves)))
    wanted = tokens.flat.take(pa.array(texts.ids[np.repeat(~differ, num_tokens)]))
    unequal = np.flatnonzero(pc.not_equal(found, wanted))
    if len(unequal):
        spelt = (_plain_spelling(words.take(pa.array(unequal))) for words in (found, wanted))
        unequal = unequal[np.flatnonzero(pc.not_equal(*spelt))]
        owner = np.repeat(np.flatnonzero(~differ), num_tokens[~differ])
        differ[owner[unequal]] = True
    return differ


def _plain_spelling(words: pa.StringArray) -> pa.StringArray:
    for pattern, stands_for in (("[‘’]", "'"), ("[“”]", '"'), (r"\\([/*])", r"\1")):
        words = pc.replace_substring_regex(words, pattern, stands_for)
    known = pc.index_in(words, value_set=pa.array(_STANDS_FOR))
    return pc.coalesce(pa.array(_STANDS_FOR.values()).take(known), words)


def _from_first_difference(leaves: pa.StringArray, tokens: pa.StringArray) -> tuple[str, str]:
    """Both texts, from a little before where they differ."""
    pairs = zip(*(_plain_spelling(words).to_pylist() for words in (leaves, tokens)), strict=False)
    start = max(0, sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)) - 3)
    before = "… " if start else ""
    return _shown(before + " ".join(leaves[start:].to_pylist())), _shown(before + " ".join(tokens[start:].to_pylist()))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
