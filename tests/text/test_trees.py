import copy
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.text import TreeError
from paraembed.text.tokenize import tokenize
from paraembed.text.trees import FAULTS, fitting_trees, parse_trees, read_trees
from tests.encoders.oracles_recursive import leaves_of, merges_of, right_branching, tree_of, trees_over

CASES = [json.loads(line) for line in Path(__file__).with_name("trees.jsonl").read_text("utf-8").splitlines()]
WORD = st.sampled_from(["a", "b", "c", "'s", "é"])
TREE = trees_over(WORD)


def tokens_of(texts):
    return tokenize(pa.array(texts, pa.string()), "space")


def read(trees, texts):
    return read_trees(pa.array(trees, pa.string()), tokens_of(texts))


def plain(tree):
    return f"({plain(tree[0])} {plain(tree[1])})" if isinstance(tree, tuple) else tree


def labeled(tree, draw):
    """A labeled tree, with unary chains, and white space where it may stand."""
    inside = " ".join(labeled(child, draw) for child in tree) if isinstance(tree, tuple) else tree
    text = f"(X {inside})"
    for _ in range(draw(st.integers(0, 2))):
        text = draw(st.sampled_from(["(NP {})", "(2 {} )", "( VP\n{})"])).format(text)
    return text


@given(st.lists(TREE, min_size=1, max_size=8), st.data())
def test_trees_of_either_form_and_none_at_all(trees, data):
    forms = {"plain": plain, "labeled": lambda tree: labeled(tree, data.draw), "none": lambda _: None}
    chosen = data.draw(st.lists(st.sampled_from(list(forms)), min_size=len(trees), max_size=len(trees)))
    given_trees = [forms[form](tree) for form, tree in zip(chosen, trees, strict=True)]
    texts = [" ".join(leaves_of(tree)) for tree in trees]
    found = read(given_trees, texts)
    expected = [
        right_branching(leaves_of(tree)) if form == "none" else tree for form, tree in zip(chosen, trees, strict=True)
    ]
    assert found.merges.tolist() == [merge for tree in expected for merge in merges_of(tree)]
    assert found.merges.dtype == np.int32
    assert found.refused.null_count == len(trees)
    assert found.is_missing.sum() == sum(
        form == "none" and len(leaves_of(tree)) > 2 for form, tree in zip(chosen, trees, strict=True)
    )


def nested(text):
    """What brackets hold, as lists; None where they are not balanced."""
    stack = [[]]
    for mark in re.findall(r"[()]|[^()\s]+", text):
        if mark == "(":
            stack.append([])
        elif mark == ")":
            if len(stack) == 1:
                return None
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(mark)
    return stack[0] if len(stack) == 1 else None


def binary(item, with_labels):
    """The tree of one reading; ValueError where it does not read so."""
    if isinstance(item, str):
        return item
    children = item[1:] if with_labels and isinstance(item[0], str) else item
    if not 1 <= len(children) <= (1 if with_labels and children is item else 2):
        raise ValueError
    made = [binary(child, with_labels) for child in children]
    return made[0] if len(made) == 1 else tuple(made)


def oracle(text, num_tokens):
    """The tree of a text, None where it is refused: one mark and one node at a time."""
    roots = nested(text)
    if roots is None or len(roots) != 1 or "[]" in str(roots):
        return None
    readings = []
    for with_labels in (False, True):
        try:
            readings.append(binary(roots[0], with_labels))
        except ValueError:
            readings.append(None)
    if None not in readings:
        return readings[0] if len(leaves_of(readings[0])) == num_tokens else readings[1]
    return readings[0] or readings[1]


@given(st.lists(st.text("()ab \n", min_size=1, max_size=14).filter(str.strip), max_size=12), st.data())
def test_garbage_is_refused_as_a_loop_over_marks_refuses_it(trees, data):
    num_tokens = [data.draw(st.integers(1, 4)) for _ in trees]
    parsed = parse_trees(pa.array(trees, pa.string()), np.array(num_tokens, np.int64))
    expected = [oracle(tree, count) for tree, count in zip(trees, num_tokens, strict=True)]
    assert (parsed.faults == 0).tolist() == [tree is not None for tree in expected]
    good = [tree for tree in expected if tree is not None]
    assert parsed.leaves.flat.to_pylist() == [leaf for tree in good for leaf in leaves_of(tree)]
    assert parsed.merges.tolist() == [merge for tree in good for merge in merges_of(tree)]
    assert np.diff(parsed.leaves.offsets).tolist() == [len(leaves_of(tree)) if tree else 0 for tree in expected]
    texts = [" ".join("ab"[: count % 3] or "a") for count in num_tokens]
    found = read(list(trees), texts)
    offsets = tokens_of(texts).offsets
    for start, stop in pairwise(offsets):
        tree_of(range(stop - start), found.merges[start:stop].tolist())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['tree']} of {case['text']}")
def test_cases(case):
    """Trees of either form, with labels or two leaves, as the text decides; spellings of parsers; what is no tree."""
    found = read(["(x y)", case["tree"], "((x y) z)"], ["x y", case["text"], "x y z"])
    assert found.merges.tolist() == [0, 1, *case["merges"], 0, 1, 1]
    assert found.refused.to_pylist() == [None, FAULTS[case["fault"]] if "fault" in case else None, None]


def test_no_tree_is_too_deep():
    depth = 10 * sys.getrecursionlimit()
    text = " ".join(f"w{number}" for number in range(depth + 1))
    left = "(" * depth + "w0" + "".join(f" w{number})" for number in range(1, depth + 1))
    right = "".join(f"(X (Y w{number}) " for number in range(depth)) + f"(Y w{depth})" + ")" * depth
    found = read([left, right, "(" * depth, "(X " * depth + "w0" + ")" * depth], [text, text, "a", "w0"])
    assert found.merges.tolist() == [0, *[1] * depth, *[0] * depth, depth, 0, 0]
    assert found.refused.to_pylist() == [None, None, FAULTS[1], None]


def test_a_slice_of_an_array_is_read_from_its_start():
    trees, texts = pa.array(["(a b", "((a b) c)", None, "(b a)"]), ["x", "a b c", "a b c", "b a"]
    found = read_trees(trees.slice(1), tokens_of(texts[1:]))
    assert found.merges.tolist() == [0, 1, 1, 0, 0, 2, 0, 1]
    assert (found.refused.null_count, found.is_missing.sum()) == (3, 1)
    nothing = read_trees(trees.slice(0, 0), tokens_of([]))
    assert (len(nothing.merges), len(nothing.refused), nothing.is_missing.sum()) == (0, 0, 0)


def test_a_tree_that_does_not_fit_is_named_with_both_sides():
    trees = pa.array([None, "((a b) c)", "(-LRB- (b (c (d (e (f (g h)))))))", "(a"])
    tokens = tokens_of(["a", "a b c", "( b c d e x g h", "a"])
    with pytest.raises(TreeError) as caught:
        fitting_trees(trees, tokens, first=100)
    assert (caught.value.text, str(caught.value)) == (
        102,
        "text 102: the leaves of its tree are '… c d e f g h', but its tokens are '… c d e x g h'; "
        "give the binary tree of its tokens, or leave the tree empty",
    )
    again = copy.copy(caught.value)  # rebuilt from its arguments, as on its way out of a worker
    assert str(again) == str(caught.value)
    with pytest.raises(ValueError, match=r"text 1: .*unbalanced brackets: '\(a';"):
        fitting_trees(trees.slice(3), tokens_of(["a"]), first=1)
    good = fitting_trees(trees.slice(0, 2), tokens_of(["a", "a b c"]))
    assert (good.merges.tolist(), good.is_missing.sum()) == ([0, 0, 1, 1], 0)
