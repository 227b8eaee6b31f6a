"""Bigrams against a plain reading: every pair of adjacent tokens with a row of its own, after the tokens."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.distillation.texts import frequent_bigrams
from paraembed.encoders.foreign.base import ragged
from paraembed.text.bigrams import TAB, Bigrams, has_bigrams, is_bigram
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import UNKNOWN

TOKENS = [UNKNOWN, "a", "b", "c", "##d", "\t"]
TEXTS = st.lists(st.lists(st.integers(-2, len(TOKENS) - 1), max_size=6), max_size=6)


@given(TEXTS, st.permutations([*TOKENS, "a\tb", "b\tb", "c\t##d", "a\tmissing", "missing\ta"]))
def test_bigrams_follow_the_tokens_of_their_text(texts, words):
    row_of = {word: row for row, word in enumerate(words)}
    texts = [[token if token < 0 else row_of[TOKENS[token]] for token in text] for text in texts]
    pairs = [[(words[a], words[b]) for a, b in pairwise(text) if min(a, b) >= 0] for text in texts]
    expected = [
        [*text, *(row_of[TAB.join(pair)] for pair in of_text if TAB.join(pair) in row_of)]
        for text, of_text in zip(texts, pairs, strict=True)
    ]
    found = Bigrams(pa.array(words))(ragged(texts))
    assert found.ids.tolist() == [row for text in expected for row in text]
    assert found.lengths.tolist() == [*map(len, expected)]


@given(TEXTS, st.integers(1, 3), st.integers(1, 9))
def test_frequent_bigrams_are_those_that_a_counter_finds(texts, least, at_once):
    texts = [[max(0, token) for token in text] for text in texts]
    counts = {}
    for text in texts:
        for first, second in pairwise(text):
            if not {0, TOKENS.index(TAB)} & {first, second}:
                counts[first, second] = counts.get((first, second), 0) + 1
    order = sorted((pair for pair in counts if counts[pair] >= least), key=lambda pair: (-counts[pair], pair))
    bigrams, numbers = frequent_bigrams(ragged(texts), pa.array(TOKENS), least, at_once)
    assert bigrams.to_pylist() == [TAB.join(TOKENS[row] for row in pair) for pair in order]
    assert numbers.tolist() == [counts[pair] for pair in order]


def test_tokens_that_contain_a_tab_are_no_bigrams():
    assert not has_bigrams(pa.array(["a b", "a_b", UNKNOWN]))
    words = ["a", "a\tb", "\t", "\t\t", "\ta", "a\t", "a\tb\tc", "\n\t\n"]
    assert pa.array(words).filter(pa.array(is_bigram(pa.array(words)))).to_pylist() == ["a\tb", "\n\t\n"]


@pytest.mark.parametrize(
    ("tokenizer", "words", "text", "ids"),
    [
        ("ptb-v1", [UNKNOWN, "a", "b", "a\tb", ",\tb"], "A b, b", [1, 2, 0, 2, 3]),
        ("wordpiece", [UNKNOWN, "a", "##b", "c", "##d", "c\t##d", "##b\tc"], "ab Cd", [1, 2, 3, 4, 6, 5]),
    ],
)
def test_texts_have_the_ids_of_their_tokens_and_then_of_their_bigrams(tokenizer, words, text, ids):
    found = TokenIds(pa.array(words), tokenizer)(pa.array(["", text, None, text]))
    assert (found.ids.tolist(), found.lengths.tolist()) == (ids * 2, [0, len(ids), 0, len(ids)])
