import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.text.ragged import joined, string_bytes
from tests.encoders.oracles_recursive import leaves_of, ragged, right_branching, tree_of, trees_over
from tests.text.pieces import rows_of

TREE = trees_over(st.integers(0, 9))
TREES = st.lists(st.none() | TREE, min_size=1, max_size=5)  # None: a text without tokens


def trees_of(texts):
    """The trees again; fails where merges are none."""
    assert texts.merges is not None
    assert (texts.offsets.dtype, texts.ids.dtype, texts.merges.dtype) == (np.int64, np.int32, np.int32)
    bounds = list(zip(texts.offsets, texts.offsets[1:], strict=False))
    return [
        tree_of(texts.ids[start:stop].tolist(), texts.merges[start:stop].tolist()) if stop > start else None
        for start, stop in bounds
    ]


def pruned(tree, kept):
    """The tree of the first ``kept`` leaves: a node without its right child is its left child."""
    num_left = len(leaves_of(tree[0])) if isinstance(tree, tuple) else 0
    if not isinstance(tree, tuple) or kept >= len(leaves_of(tree)):
        return tree
    return pruned(tree[0], kept) if kept <= num_left else (tree[0], pruned(tree[1], kept - num_left))


@given(TREES, st.data())
def test_slice_and_take_are_those_of_lists(trees, data):
    start = data.draw(st.integers(0, len(trees)))
    stop = data.draw(st.integers(start, len(trees)))
    assert ragged(trees).lengths.tolist() == [0 if tree is None else len(leaves_of(tree)) for tree in trees]
    assert trees_of(ragged(trees).slice(start, stop)) == trees[start:stop]
    chosen = data.draw(st.lists(st.integers(0, len(trees) - 1), max_size=12))
    taken = ragged(trees).take(np.array(chosen, np.int64))
    assert trees_of(taken) == [trees[at] for at in chosen]
    assert trees_of(taken.slice(0, len(chosen) // 2)) == trees_of(taken)[: len(chosen) // 2]


@given(st.lists(TREES, min_size=1, max_size=4))
def test_joined_are_those_of_lists(parts):
    whole = joined(*map(ragged, parts))
    assert trees_of(whole) == [tree for part in parts for tree in part]
    assert whole.nbytes == sum(array.nbytes for array in (whole.ids, whole.offsets, whole.merges))
    bare = joined(*map(ragged, parts[:-1]), ragged(parts[-1], with_trees=False))
    assert (rows_of(bare), bare.merges) == (rows_of(whole), None)


@given(TREES, st.data())
def test_pairs_are_texts_side_by_side(trees, data):
    chosen = data.draw(st.lists(st.integers(0, len(trees) - 1), max_size=6))
    taken = ragged([tree for tree in trees for _ in range(2)][: 2 * len(trees)]).take_pairs(np.array(chosen, np.int64))
    assert trees_of(taken) == [trees[at] for at in chosen for _ in range(2)]


@given(TREES, st.integers(0, 5), st.integers(1, 4))
def test_texts_that_are_longer(trees, tokens, block):
    assert ragged(trees).num_longer(tokens, block=block) == sum(len(row) > tokens for row in rows_of(ragged(trees)))


@given(TREES, st.integers(1, 8))
def test_a_cut_keeps_the_first_tokens_and_their_tree(trees, most):
    cut = ragged(trees).cut(most)
    assert trees_of(cut) == [None if tree is None else pruned(tree, most) for tree in trees]
    assert rows_of(cut) == [row[:most] for row in rows_of(ragged(trees))]
    bare = ragged(trees, with_trees=False)
    assert (rows_of(bare.cut(most)), bare.cut(most).merges) == (rows_of(cut), None)
    assert (bare.cut(most) is bare) == (bare.num_longer(most) == 0)


@pytest.mark.parametrize(("start", "end"), [(None, None), (11, None), (None, 12), (11, 12)])
@given(st.lists(TREE, min_size=1, max_size=8))
def test_the_start_joins_the_text_and_the_end_what_that_makes(start, end, trees):
    def expected(tree):
        tree = tree if start is None else (start, tree)
        return tree if end is None else (tree, end)

    made = ragged(trees).with_ends(start, end)
    assert trees_of(made) == [expected(tree) for tree in trees]
    bare = ragged(trees, with_trees=False).with_ends(start, end)
    assert (rows_of(bare), bare.merges) == (rows_of(made), None)


@given(TREES)
def test_right_branching(trees):
    expected = [None if tree is None else right_branching(leaves_of(tree)) for tree in trees]
    assert trees_of(ragged(trees, with_trees=False).right_branching()) == expected
    assert trees_of(ragged(trees).right_branching()) == expected


@pytest.mark.parametrize("offsets", [[0, 3, 1, 4], [0, 9, 4], [0, -1, 4]])
def test_strings_with_offsets_outside_of_their_bytes_are_an_error(offsets):
    """As files of Arrow can have: Arrow compares only the first and last offset with the bytes."""
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abcd")]
    with pytest.raises(ValueError, match="offsets outside"):
        string_bytes(pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers))
