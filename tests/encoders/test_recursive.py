import logging

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.configs import AvgConfig, RecursiveConfig
from paraembed.encoders.recursive import arrange
from paraembed.text import TreeError
from paraembed.text.vocabulary import Words
from tests.encoders.oracles import vector_of
from tests.encoders.oracles_recursive import leaves_of, merges_of, trees_over

WORDS = ["the", "a", "cat", "dog", "sat", "home", "."]
TREE = trees_over(st.sampled_from(WORDS), max_leaves=16)


def made(words, **options):
    encoder = Encoder(RecursiveConfig(), Words(words.vocabulary, words.matrix.copy()), "space", seed=2, **options)
    with torch.no_grad():
        encoder.composition.bias.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    return encoder


@pytest.fixture
def encoder(tiny_words):
    return made(tiny_words)


def expected(encoder, tree):
    row = encoder.vocabulary.to_pylist().index
    return vector_of(encoder, [row(word) for word in leaves_of(tree)], merges_of(tree))


def text(tree):
    return " ".join(leaves_of(tree))


def bracketed(tree):
    return "({} {})".format(*map(bracketed, tree)) if isinstance(tree, tuple) else tree


@given(trees=st.lists(TREE, min_size=1, max_size=8), batch_size=st.integers(1, 9), limit=st.sampled_from([5, 1000]))
def test_vectors_equal_a_recursion_over_nodes(tiny_words, trees, batch_size, limit):
    encoder = made(tiny_words)
    encoder.composition.tokens_at_once = limit
    vectors = encoder.encode([text(tree) for tree in trees], batch_size, [bracketed(tree) for tree in trees])
    for tree, vector in zip(trees, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(encoder, tree), rtol=0, atol=1e-5)
        np.testing.assert_allclose(vector, encoder.encode(text(tree), trees=bracketed(tree)), rtol=0, atol=1e-6)


def test_merges_that_are_no_trees_are_our_mistake():
    for merges in ([0, 0], [1, 0], [0, 2], [0, 0, 1]):
        with pytest.raises(AssertionError, match="no binary trees"):
            arrange(np.array(merges, np.int32), 1)


def test_deep_and_long_texts(encoder):
    long = "the cat " * 250
    left = "(" * 499 + "the" + " cat) the)" * 249 + " cat)"
    vectors = encoder.encode([long, long, "cat", "a dog"], trees=[None, left, None, None])
    rows = [encoder.vocabulary.to_pylist().index(word) for word in long.split()]
    np.testing.assert_allclose(vectors[0], vector_of(encoder, rows), rtol=0, atol=1e-5)
    np.testing.assert_allclose(vectors[1], vector_of(encoder, rows, [0, *[1] * 499]), rtol=0, atol=1e-5)
    np.testing.assert_allclose(vectors[2], encoder.encode("cat"), rtol=0, atol=0)
    deep = encoder.encode("the " * 10_000)
    assert np.isfinite(deep).all()


def test_a_text_without_a_parse_is_right_branching_and_that_is_said(encoder, caplog):
    texts, trees = ["the cat sat", "a dog", "home", "", "the dog sat ."], ["((the cat) sat)", None, None, None, None]
    with caplog.at_level(logging.WARNING):
        some = encoder.encode(texts, 2, trees)
        none = encoder.encode(texts, 2)
        encoder.encode(texts[:4], trees=trees[:4])
        encoder.encode(texts[0], trees="(the (cat sat))")
    assert caplog.messages == [
        f"{number} of 5 texts have no parse tree; right-branching trees are used" for number in (1, 2)
    ]
    np.testing.assert_allclose(none[4], encoder.encode(texts[4], trees="(the (dog (sat .)))"), rtol=0, atol=1e-6)
    np.testing.assert_allclose(some[1:], none[1:], rtol=0, atol=1e-6)
    np.testing.assert_allclose(none[0], encoder.encode(texts[0], trees="(the (cat sat))"), rtol=0, atol=1e-6)
    assert np.abs(some[0] - none[0]).max() > 1e-3
    for given_trees, count in ((None, 2), (pa.array(trees), 1)):
        embedded = encoder.embed(pa.array(texts), 2, given_trees)
        assert (embedded.num_without_tree, embedded.num_cut) == (count, 0)


def test_a_cut_is_said_and_prunes_the_tree(tiny_words, caplog):
    encoder = made(tiny_words, max_tokens=3)
    trees = ["(((a dog) (sat home)) .)", "((the cat) sat)"]
    with caplog.at_level(logging.WARNING):
        vectors = encoder.encode(["a dog sat home .", "the cat sat"], 1, trees)
    assert [record.args for record in caplog.records] == [(1, 2, 3)]
    np.testing.assert_allclose(vectors[0], encoder.encode("a dog sat", trees="((a dog) sat)"), rtol=0, atol=1e-6)
    embedded = encoder.embed(pa.array(["a dog sat home .", "the cat sat"]), 1)
    assert (embedded.num_cut, embedded.num_without_tree, embedded.num_tokens.tolist()) == (1, 2, [5, 3])
    caplog.clear()
    mean = Encoder(AvgConfig(), tiny_words, "space", max_tokens=1)
    with caplog.at_level(logging.WARNING):
        mean.encode(["a dog", "a"])
    assert [record.args for record in caplog.records] == [(1, 2, 1)]


@pytest.mark.parametrize(
    ("texts", "trees", "message"),
    [
        (
            "a dog",
            "(a cat)",
            "text 0: the leaves of its tree are 'a cat', but its tokens are 'a dog'; give the binary tree",
        ),
        (["a", "a dog"], ["a", "(a dog"], "text 1: tree with unbalanced brackets"),
        (["a", "b"], ["a"], "1 trees were given for 2 texts; give one tree, or None"),
        ("a", ["a"], "give one text with one tree, or equally long sequences"),
        (["a"], "a", "give one text with one tree, or equally long sequences"),
    ],
)
def test_trees_that_do_not_fit(encoder, texts, trees, message):
    with pytest.raises(ValueError, match=message):
        encoder.encode(texts, 1, trees)


def test_strings_of_either_kind_and_an_array_of_them(encoder):
    expected = encoder.encode(["the cat sat"], trees=["((the cat) sat)"])
    for kind in (pa.string(), pa.large_string()):
        np.testing.assert_array_equal(
            encoder.encode(["the cat sat"], trees=pa.array(["((the cat) sat)"], kind)), expected
        )
    with pytest.raises(TreeError, match="text 1: tree with an empty node"):
        encoder.embed(pa.array(["a", "a"]), trees=pa.array(["a", "()"], pa.large_string()))


def test_other_encoders_read_no_trees(tiny_words):
    with pytest.raises(ValueError, match="avg does not read trees"):
        Encoder(AvgConfig(), tiny_words, "space").encode("a dog", trees="(a dog)")
    for config in [*(config() for config in ENCODERS.values()), RecursiveConfig()]:
        composition = config.build(4, torch.Generator())
        assert composition.reads_trees == config.reads_trees == isinstance(config, RecursiveConfig)


def test_initial_values():
    composition = RecursiveConfig().build(50, torch.Generator().manual_seed(0))
    assert (composition.width, composition.weight.shape, composition.bias.shape) == (50, (50, 100), (50,))
    assert 0.99 * 0.2 < composition.weight.abs().max() <= 0.2
    assert not composition.bias.any()
