"""Binary trees as nested pairs, and the recursive encoder on them, a node at a time in float64."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Vector = npt.NDArray[np.float64]


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


def vector_of(encoder, tree):
    """Vector of a tree over word ids."""
    if not isinstance(tree, tuple):
        return encoder.matrix.detach().double().numpy()[tree]
    return _join(encoder, *(vector_of(encoder, child) for child in tree))


def oracle_recursive(encoder, ids):
    """Vector of a text without a parse, from its end: the right-branching tree."""
    vector, *before = (vector_of(encoder, word) for word in reversed(ids))
    for word in before:
        vector = _join(encoder, word, vector)
    return vector


def _join(encoder, left, right):
    weight, bias = (encoder.state_dict()[f"composition.{name}"].double().numpy() for name in ("weight", "bias"))
    width = len(left)
    inner = [sum(row[k] * left[k] + row[width + k] * right[k] for k in range(width)) for row in weight]
    return np.tanh(np.array(inner) + bias)


ORACLES = {"recursive": oracle_recursive}
