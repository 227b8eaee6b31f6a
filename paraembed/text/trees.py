r"""Bracketed binary trees over the tokens of texts, in the format of constituency parsers.

A tree is labeled, ``(NP (DT the) (NN cat))``, or unlabeled, ``((the black) cat)``; the tree of a single word may be the
word alone. ``(x y)`` can be a label with its word, or two words. A tree that can be read both ways is unlabeled if this
gives as many leaves as the text has tokens, and labeled otherwise.

* A node has two children. A node with one child (a preterminal, a unary chain, outer brackets) is replaced by its
  child. Labels are dropped.
* Leaves are lower-cased and must equal the text's tokens. In leaves and tokens, the escapes of parsers are equal to
  their characters: ``-LRB- -RRB- -LSB- -RSB- -LCB- -RCB-`` to brackets, ``\/`` and ``\*`` to ``/`` and ``*``,
  backquotes, ``''`` and curly quotes to straight quotes. Round brackets inside of a word must be escaped this way.

One compiled loop over the bytes reads all trees, including those of the Stanford Sentiment Treebank. It uses an
explicit stack, so trees may have any depth.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.compiled import compiled
from paraembed.io.lines import strings_at
from paraembed.text import TreeError
from paraembed.text.ragged import Ragged, string_bytes
from paraembed.text.tokenize import Tokens

FAULTS = (
    None,
    "tree with unbalanced brackets",
    "tree with more than one root",
    "tree with an empty node",
    "tree with a label without a child",
    "tree with a node of more than two children",
    "tree whose leaves are not the tokens",
)
"""Reasons to reject a tree, by number."""

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
_SHOWN = 80  # characters of a text or tree in a message


@dataclass(frozen=True)
class Parsed:
    """n parsed trees with L leaves and C nodes; a rejected tree has none."""

    words: pa.StringArray  # string array [L], the leaves as written
    leaf_offsets: npt.NDArray[np.int64]  # int64 [n + 1], first leaf of each tree
    merges: npt.NDArray[np.int32]  # int32 [L], see ``Ragged``
    # Int64 [C, 6], children before their parent: start and stop of the node's brackets, start and stop of its label (-1
    # without), in bytes from the start of the tree; then its first leaf and the leaf after its last, counted from the
    # first leaf of the tree.
    nodes: npt.NDArray[np.int64]
    node_offsets: npt.NDArray[np.int64]  # int64 [n + 1], first node of each tree
    faults: npt.NDArray[np.int64]  # int64 [n], index of the fault in ``FAULTS``, 0 for a valid tree

    @property
    def leaves(self) -> Tokens:
        """Return the leaves as lower-cased tokens."""
        return Tokens(pc.utf8_lower(self.words), self.leaf_offsets)


@dataclass(frozen=True)
class Trees:
    """Trees of n texts with T tokens."""

    merges: npt.NDArray[np.int32]  # int32 [T], see ``Ragged``; a text without a valid tree has the right-branching one
    refused: pa.StringArray  # string array [n], fault of a rejected tree; null for a valid one
    is_missing: npt.NDArray[np.bool_]  # [n], of texts of three tokens or more; one or two tokens have only one tree


def read_trees(trees: pa.StringArray, tokens: Tokens) -> Trees:
    """Read the trees [n] of the texts of these tokens; null or blank for a text without a tree."""
    texts = Ragged(np.arange(len(tokens.flat), dtype=np.int32), tokens.offsets)
    merges = texts.right_branching().merges
    assert merges is not None
    faults = np.zeros(len(trees), np.int64)
    given = np.flatnonzero(pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(trees, "")), ""))
    their = texts.take(given)
    parsed = parse_trees(trees.take(pa.array(given)), their.lengths)
    wrong = np.where(parsed.faults == 0, _OTHER_LEAVES * _differ(parsed.leaves, tokens, their), parsed.faults)
    leaf_is_good = np.repeat(wrong == 0, np.diff(parsed.leaf_offsets))
    merges[their.ids[np.repeat(wrong == 0, their.lengths)]] = parsed.merges[leaf_is_good]
    faults[given] = wrong
    is_missing = texts.lengths > 2
    is_missing[given] = False
    return Trees(merges, pa.array(FAULTS, pa.string()).take(pa.array(faults)), is_missing)


def fitting_trees(trees: pa.StringArray, tokens: Tokens, first: int = 0) -> Trees:
    """Read the trees of n texts; raise TreeError, which counts texts from ``first``, if one is invalid."""
    read = read_trees(trees, tokens)
    row = pc.index(pc.is_valid(read.refused), True).as_py()
    if row < 0:
        return read
    fault, tree = read.refused[row].as_py(), trees.slice(row, 1)
    start, stop = map(int, tokens.offsets[row : row + 2])
    if fault == FAULTS[_OTHER_LEAVES]:
        leaves = parse_trees(tree, np.array([stop - start])).leaves.flat
        shown_leaves, shown_tokens = _from_first_difference(leaves, tokens.flat[start:stop])
        fault = f"the leaves of its tree are {shown_leaves}, but its tokens are {shown_tokens}"
    else:
        fault = f"{fault}: {_shown(tree[0].as_py())}"
    raise TreeError(first + row, f"{fault}; give the binary tree of its tokens, or leave the tree empty")


def parse_trees(trees: pa.StringArray, num_tokens: npt.NDArray[np.int64]) -> Parsed:
    """Parse n trees, none of them null, into leaves, nodes and structure.

    The numbers of tokens of the texts decide whether an ambiguous tree is labeled; -1: it is.
    """
    octets, offsets = string_bytes(trees)
    faults, num_leaves, num_nodes = (np.zeros(len(trees), np.int64) for _ in range(3))
    labeled = np.zeros(len(trees), np.bool_)
    most_deep = int(np.diff(offsets).max(initial=0)) + 1
    _check(octets, offsets, num_tokens, np.zeros((most_deep, 2), np.int32), faults, labeled, num_leaves, num_nodes)
    leaf_offsets, node_offsets = (np.concatenate(([0], np.cumsum(counts))) for counts in (num_leaves, num_nodes))
    words = np.zeros((leaf_offsets[-1], 2), np.int64)
    merges = np.zeros(leaf_offsets[-1], np.int32)
    nodes = np.zeros((node_offsets[-1], 6), np.int64)
    stack = np.zeros((most_deep, 5), np.int64)
    _read(octets, offsets, faults, labeled, stack, leaf_offsets, words, merges, node_offsets, nodes)
    return Parsed(strings_at(octets, *words.T), leaf_offsets, merges, nodes, node_offsets, faults)


@compiled
def _check(
    octets: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    num_tokens: npt.NDArray[np.int64],
    stack: npt.NDArray[np.int32],  # of a node: words and nodes right inside it, whether the first of them is a word
    faults: npt.NDArray[np.int64],
    labeled: npt.NDArray[np.bool_],
    num_leaves: npt.NDArray[np.int64],
    num_nodes: npt.NDArray[np.int64],
) -> None:
    """Write for each tree its fault, whether it is labeled, and its numbers of leaves and nodes."""
    for text in range(len(faults)):
        depth = roots = words = nodes = labels = num_empty = num_not_plain = num_label_alone = num_several = (
            num_wide
        ) = 0
        before = _SPACE
        for pos in range(offsets[text], offsets[text + 1]):
            kind = _KINDS[octets[pos]]
            if kind == _CLOSE:
                depth -= 1
                if depth < 0:
                    break
                parts, word_first = stack[depth]
                nodes += 1
                labels += word_first
                num_empty += parts == 0
                num_not_plain += parts > 2
                num_label_alone += word_first and parts == 1  # a label without a child
                num_several += not word_first and parts > 1  # children without a label
                num_wide += word_first and parts > 3  # more than two children behind a label
            elif kind == _OPEN or (kind == _WORD and before != _WORD):
                words += kind == _WORD
                roots += depth == 0
                if depth > 0:
                    stack[depth - 1, 1] |= kind == _WORD and stack[depth - 1, 0] == 0
                    stack[depth - 1, 0] += 1
                if kind == _OPEN:
                    stack[depth] = 0
                    depth += 1
            before = kind
        fits_labels = num_label_alone + num_several + num_wide == 0
        other = _LABEL_ALONE if num_label_alone > 0 and num_several == 0 else _NOT_BINARY
        for wrong, fault in (
            (num_not_plain > 0 and not fits_labels, other),
            (num_empty > 0, _EMPTY),
            (roots > 1, _ROOTS),
            (depth != 0, _UNBALANCED),
        ):
            faults[text] = fault if wrong else faults[text]
        if faults[text] == 0:
            labeled[text] = fits_labels and (num_not_plain > 0 or words != num_tokens[text])
            num_leaves[text] = words - labels if labeled[text] else words
            num_nodes[text] = nodes


@compiled
def _read(
    octets: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    faults: npt.NDArray[np.int64],
    labeled: npt.NDArray[np.bool_],
    stack: npt.NDArray[np.int64],  # of a node: its start, its label's start and stop, its first leaf, its children
    leaf_offsets: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
    merges: npt.NDArray[np.int32],
    node_offsets: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
) -> None:
    """Write leaves, merges and nodes of the valid trees."""
    for text in range(len(faults)):
        if faults[text] != 0:
            continue
        start, stop = offsets[text], offsets[text + 1]
        depth, leaf, node = 0, leaf_offsets[text], node_offsets[text]
        before, pos = _SPACE, start
        while pos < stop:
            kind, end = _KINDS[octets[pos]], pos + 1
            if kind == _WORD:
                while end < stop and _KINDS[octets[end]] == _WORD:
                    end += 1
                if labeled[text] and before == _OPEN:
                    stack[depth, 1], stack[depth, 2] = pos - start, end - start
                else:
                    words[leaf, 0], words[leaf, 1] = pos, end
                    leaf += 1
                    stack[depth, 4] += 1
            elif kind == _OPEN:
                stack[depth, 4] += 1
                depth += 1
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = pos - start, -1, -1
                stack[depth, 3], stack[depth, 4] = leaf - leaf_offsets[text], 0
            elif kind == _CLOSE:
                merges[leaf - 1] += stack[depth, 4] == 2
                nodes[node, 0], nodes[node, 1] = stack[depth, 0], end - start
                nodes[node, 2], nodes[node, 3] = stack[depth, 1], stack[depth, 2]
                nodes[node, 4], nodes[node, 5] = stack[depth, 3], leaf - leaf_offsets[text]
                node += 1
                depth -= 1
            if kind != _SPACE:
                before = kind
            pos = end


def _differ(leaves: Tokens, tokens: Tokens, texts: Ragged) -> npt.NDArray[np.bool_]:
    """Return whether the leaves of each tree differ from the tokens ``texts.ids`` of its text, bool [n]."""
    num_leaves, num_tokens = np.diff(leaves.offsets), texts.lengths
    differ: npt.NDArray[np.bool_] = num_leaves != num_tokens
    of_trees = leaves.flat.filter(pa.array(np.repeat(~differ, num_leaves)))
    of_texts = tokens.flat.take(pa.array(texts.ids[np.repeat(~differ, num_tokens)]))
    unequal = np.flatnonzero(pc.not_equal(of_trees, of_texts))
    if len(unequal):
        spelt = (_plain_spelling(words.take(pa.array(unequal))) for words in (of_trees, of_texts))
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
    """Return leaves and tokens as text, from three tokens before the first difference on."""
    pairs = zip(*(_plain_spelling(words).to_pylist() for words in (leaves, tokens)), strict=False)
    start = max(0, sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)) - 3)
    before = "… " if start else ""
    return _shown(before + " ".join(leaves[start:].to_pylist())), _shown(before + " ".join(tokens[start:].to_pylist()))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
