import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.pairs.filters import (
    BOTH_SINGLE_WORDS,
    BRACKET,
    DIGIT,
    EQUAL_TEXTS,
    MOST_TOKENS,
    NO_SCORE,
    NOT_LETTERS,
    NOT_SINGLE_WORDS,
    ONE_EDIT_APART,
    below_score,
    effective_size_below,
    first_failures,
    one_edit_apart,
    out_of_vocabulary,
    overlap_from,
    too_long,
    word_overlap,
)
from paraembed.pairs.settings import FilterOptions, ShardSettings


def table(*pairs, scores=None):
    return pa.table(
        {
            "first": pa.array([pair[0] for pair in pairs], pa.string()),
            "second": pa.array([pair[1] for pair in pairs], pa.string()),
            "score": pa.array(scores or [None] * len(pairs), pa.float32()),
        }
    )


# Each rule with pairs that fail it, by either text where one is enough, and pairs that only just do not.
CASES = [
    (EQUAL_TEXTS, [("a b", "a b")], [("a b", "b a")]),
    (BOTH_SINGLE_WORDS, [("car", "auto")], [("a car", "auto"), ("car", "an auto"), ("a car", "an auto")]),
    (NOT_SINGLE_WORDS, [("a car", "auto"), ("car", "an auto"), ("a car", "an auto")], [("car", "auto")]),
    (DIGIT, [("3", "three"), ("three", "x3y"), ("٣", "three")], [("three", "iii"), ("½", "half")]),
    (NOT_LETTERS, [("it 's", "it is"), ("up", "u.s."), ("b2b", "trade")], [("café au lait", "coffee"), ("雪", "snow")]),
    (BRACKET, [("( a )", "b"), ("a", "b ["), ("a {", "b"), ("-lrb- a", "b"), ("a", "b -rsb-")], [("lrb a", "b -- c")]),
    (ONE_EDIT_APART, [("big job", "big jobs"), ("big job", "big mob"), ("a", "a")], [("big job", "bag mob")]),
    (too_long(2), [("a b c", "a"), ("a", "a b c")], [("a b", "a b")]),
    (effective_size_below(2), [("ab c", "d ef"), ("a b c", "d")], [("ab cd", "e"), ("é", "雪a ée")]),
    (overlap_from(0.5), [("one two", "one xyz abc"), ("a", "a")], [("one two tri", "one xyz abcd")]),
    (out_of_vocabulary(pa.array(["a", "b"])), [("a", "b c"), ("A", "b"), ("ab", "a")], [("a b", "b a a")]),
]


@pytest.mark.parametrize(("rule", "failing", "passing"), CASES, ids=lambda case: getattr(case, "reason", ""))
def test_a_rule_refuses_these_and_not_those(rule, failing, passing):
    failed = rule.failed(table(*failing, *passing))
    assert failed.type == pa.bool_()
    assert failed.to_pylist() == [True] * len(failing) + [False] * len(passing)
    assert len(rule.failed(table())) == 0


def test_a_missing_score_is_another_reason_than_a_low_one():
    rows = table(("a", "b"), ("a", "c"), ("a", "d"), scores=[1.5, None, 1.0])
    assert first_failures(rows, [NO_SCORE, below_score(1.5)]).to_pylist() == [None, "no score", "score too low"]


TEXT = st.lists(st.sampled_from(["a", "bc", "(", "3", "é"]), min_size=1, max_size=4).map(" ".join)


@given(pairs=st.lists(st.tuples(TEXT, TEXT), max_size=20), cut=st.integers(0, 20))
def test_the_first_rule_that_a_row_fails_is_its_reason_in_any_block(pairs, cut):
    rules = [EQUAL_TEXTS, DIGIT, BRACKET, too_long(2), out_of_vocabulary(pa.array(["a", "bc"]))]
    rows = table(*pairs)
    reasons = first_failures(rows, rules).to_pylist()
    each = [[bool(failed) for failed in rule.failed(rows).to_pylist()] for rule in rules]
    assert reasons == [
        next((rule.reason for rule, failed in zip(rules, each, strict=True) if failed[row]), None)
        for row in range(len(pairs))
    ]
    parts = [first_failures(part, rules).to_pylist() for part in (rows.slice(0, cut), rows.slice(cut))]
    assert parts[0] + parts[1] == reasons
    chunks = pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])
    assert first_failures(chunks, rules).to_pylist() == reasons


WRONG = [json.loads(line) for line in Path(__file__).with_name("settings.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "values", "message"), WRONG)
def test_settings_that_are_not_allowed(kind, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        {"FilterOptions": FilterOptions, "ShardSettings": ShardSettings}[kind](**values)


WORD = st.text("abé雪", max_size=5)
PHRASE = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=5).map(" ".join)


def levenshtein(first, second):
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def overlap(first, second):
    def share(tokens, others):
        return sum(any(levenshtein(one, other) <= 1 for other in others) for one in tokens) / len(tokens)

    one, other = first.split(" "), second.split(" ")
    if len(one) == len(other):
        return max(share(one, other), share(other, one))
    return share(one, other) if len(one) < len(other) else share(other, one)


@given(pairs=st.lists(st.tuples(WORD, WORD), max_size=20), start=st.integers(0, 3))
def test_one_edit_apart_is_levenshtein(pairs, start):
    first, second = (pa.array([pair[side] for pair in pairs], pa.string()).slice(start) for side in (0, 1))
    assert one_edit_apart(first, second).tolist() == [levenshtein(*pair) <= 1 for pair in pairs[start:]]


@given(pairs=st.lists(st.tuples(PHRASE, PHRASE), max_size=12), at_a_time=st.integers(1, 30))
def test_word_overlap_is_that_of_loops_and_of_the_swap(pairs, at_a_time):
    first, second = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    scores = word_overlap(first, second, at_a_time=at_a_time)
    np.testing.assert_array_equal(scores, word_overlap(second, first, at_a_time=at_a_time))
    np.testing.assert_allclose(scores, [overlap(*pair) for pair in pairs], rtol=1e-12)


def test_texts_that_are_no_phrases_have_no_overlap():
    long = " ".join(["a"] * (MOST_TOKENS + 1))
    scores = word_overlap(pa.array([long, "a b", long[2:]]), pa.array(["a", long, "a"]))
    assert np.isnan(scores).tolist() == [True, True, False]
