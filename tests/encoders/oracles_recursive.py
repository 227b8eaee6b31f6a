"""Binary trees as nested pairs."""

from hypothesis import strategies as st


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
