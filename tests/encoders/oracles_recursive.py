"""Binary trees as nested pairs."""

import numpy as np
from hypothesis import strategies as st

from paraembed.text.ragged import Ragged


def trees_over(leaves, max_leaves=12):
    """A leaf, or a pair of trees."""
    return st.recursive(leaves, lambda child: st.tuples(child, child), max_leaves=max_leaves)


def leaves_of(tree):
    return [leaf for child in tree for leaf in leaves_of(child)] if isinstance(tree, tuple) else [tree]


def merges_of(tree):
    """How many nodes close behind each leaf."""
    if not isinstance(tree, tuple):
        return [0]
    left, right = map(merges_of, tree)
    return [*left, *right[:-1], right[-1] + 1]


def tree_of(leaves, merges):
    """The tree that merges describe, by shift and reduce; fails unless they describe one."""
    stack = []
    for leaf, joins in zip(leaves, merges, strict=True):
        stack.append(leaf)
        assert joins >= 0
        for _ in range(joins):
            right, left = stack.pop(), stack.pop()
            stack.append((left, right))
    (tree,) = stack
    return tree


def right_branching(leaves):
    return leaves[0] if len(leaves) == 1 else (leaves[0], right_branching(leaves[1:]))


def ragged(trees, *, with_trees=True):
    """Texts of trees; None is a text without tokens."""
    ids = [[] if tree is None else leaves_of(tree) for tree in trees]
    merges = [merge for tree in trees if tree is not None for merge in merges_of(tree)]
    flat = np.array([leaf for leaves in ids for leaf in leaves], np.int32)
    return Ragged(flat, np.cumsum([0, *map(len, ids)]), np.array(merges, np.int32) if with_trees else None)
