from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.pairs.shards import LENGTHS, WORDS, count_pairs, length_histogram, merge_counts, without_vector

TEXT = st.lists(st.sampled_from(["a", "bc", "é", "3"]), min_size=1, max_size=6).map(" ".join)


def table(pairs):
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return pa.table({"first": pa.array(first, pa.string()), "second": pa.array(second, pa.string())})


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(TEXT, TEXT), max_size=30), cuts=st.lists(st.integers(0, 30), max_size=3).map(sorted))
def test_counts_are_those_of_a_loop_for_any_blocks(pairs, cuts):
    ends = [0, *cuts, 30]
    parts = [count_pairs(table(pairs[start:stop])) for start, stop in pairwise(ends)]
    counts = merge_counts(parts)
    tokens = Counter(token for pair in pairs for text in pair for token in text.split())
    assert counts.words.to_pylist() == [
        {"word": word, "count": count} for word, count in sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    ]
    lengths = [tuple(len(text.split()) for text in pair) for pair in pairs]
    expected = {
        "first": Counter(str(first) for first, _ in lengths),
        "second": Counter(str(second) for _, second in lengths),
        "longer": Counter(str(max(pair)) for pair in lengths),
    }
    assert length_histogram(counts) == expected
    whole = merge_counts([count_pairs(table(pairs))])
    assert whole.words.equals(counts.words)
    assert whole.lengths.equals(counts.lengths)
    assert whole.lengths.schema.equals(LENGTHS)
    assert whole.words.schema.equals(WORDS)


def test_words_without_vector():
    counts = count_pairs(table([("a b b", "zz"), ("a", "zz yy")]))
    assert without_vector(counts, pa.array(["a", "b", "c"])) == {
        "words": {"all": 4, "without_vector": 2, "share": 0.5},
        "tokens": {"all": 7, "without_vector": 3, "share": pytest.approx(3 / 7)},
    }
    nothing = {"all": 0, "without_vector": 0, "share": 0.0}
    assert without_vector(merge_counts([]), pa.array(["a"])) == {"words": nothing, "tokens": nothing}


def test_the_histogram_is_in_order():
    counts = merge_counts([count_pairs(table([("a", " ".join("a" * size)) for size in (11, 2, 2, 9)]))])
    assert list(length_histogram(counts)["second"].items()) == [("2", 2), ("9", 1), ("11", 1)]
