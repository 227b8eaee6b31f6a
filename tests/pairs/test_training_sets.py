"""Each training set against lines made by hand: every line says what becomes of it, and with that which rule it tests.

``redundant`` are rows that stay but repeat an earlier pair: the sharding drops them.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

from paraembed.pairs.filters import ONE_EDIT_APART, effective_size
from paraembed.pairs.settings import FilterOptions, SetName
from paraembed.pairs.training_sets import TRAINING_SETS, extract_bigrams, judge_rows, row_rules
from paraembed.text.hashing import pair_keys
from paraembed.text.vocabulary import UNKNOWN

# A section for each set, and one of the words that its vocabulary has.
SECTIONS = Path(__file__).with_name("training_sets.txt").read_text(encoding="utf-8").strip().split("\n\n")[1:]
SECTIONS = {name: text for name, _, text in (section.partition("\n") for section in SECTIONS)}
VOCABULARY = SECTIONS.pop("known words").split()
SAME_RULES = {"acl2017/ppdb-matched": "iclr2016", "tacl2015/annotated": "tacl2015/phrases"}
SETS = SECTIONS | {name: SECTIONS[other] for name, other in SAME_RULES.items()}


def lines_of(example):
    return [[field.strip() for field in line.split("|")] for line in example.strip().split("\n")]


def text_table(lines):
    return pa.table({"first": [line[0] for line in lines], "second": [line[1] for line in lines]})


def tagged_table(lines):
    columns = {}
    for name, at in (("first", 0), ("second", 1)):
        tokens = [[token.rsplit("/", 1) for token in line[at].split()] for line in lines]
        columns[name] = [" ".join(token[0] for token in text) for text in tokens]
        columns[f"{name}_pos"] = [" ".join(token[1] for token in text if len(token) == 2) for text in tokens]
    return pa.table({**columns, "alignment": [line[2] for line in lines]})


def options_for(name):
    return FilterOptions(training_set=name, match_tokens_of="shards" if name == "acl2017/ppdb-matched" else None)


def outcomes(name, table):
    """Both texts of each row and what becomes of it; pairs that repeat an earlier one are redundant."""
    rows, refused = judge_rows(table, row_rules(options_for(name), pa.array([*VOCABULARY, UNKNOWN])))
    seen = set()
    results = []
    texts = zip(rows["first"].to_pylist(), rows["second"].to_pylist(), strict=True)
    for pair, reason, key in zip(texts, refused.to_pylist(), pair_keys(rows).tolist(), strict=True):
        repeats = key in seen and not TRAINING_SETS[name].keeps_duplicates
        results.append((*pair, reason or ("redundant" if repeats else "kept")))
        seen |= set() if reason else {key}
    return results


def example_of(name):
    lines = lines_of(SETS[name])
    return lines, (tagged_table if "bigrams" in name else text_table)(lines)


@pytest.mark.parametrize("name", get_args(SetName))
def test_a_training_set_takes_these_lines(name):
    lines, table = example_of(name)
    assert 20 <= len(lines) <= 40
    table = pa.concat_tables([table[:1], table]).combine_chunks()[1:]  # whose offsets do not begin at 0
    for (*_, what), (first, second, reason) in zip(lines, outcomes(name, table), strict=True):
        kept = f"{first} = {second}" if "bigrams" in name else "kept"
        assert what.rstrip(" 3456") == (kept if reason == "kept" else reason)
    rules = row_rules(options_for(name), pa.array(VOCABULARY))
    reasons = {rule.reason for rule in (*rules.filters, *rules.bigram_filters)}
    assert reasons <= {line[-1] for line in lines} | {"redundant"}, "a rule of which the lines have no example"


def test_phrases_have_these_effective_sizes():
    lines = [line for line in lines_of(SETS["tacl2015/phrases"]) if line[2].startswith("kept")]
    assert effective_size(text_table(lines)).to_pylist() == [int(what.split()[1]) for _, _, what in lines]


@pytest.mark.parametrize("name", get_args(SetName))
def test_a_set_of_known_words_needs_a_vocabulary(name):
    assert name in TRAINING_SETS
    needs = name.startswith("tacl2015") or name == "pgru2017"
    with pytest.raises(ValueError, match=f"{name} needs a vocabulary; .*`words`") if needs else nullcontext():
        row_rules(options_for(name))


def test_limits_come_before_the_rules_of_the_set():
    for options, reasons in (
        ({}, "equal texts"),
        (
            {"training_set": "iclr2016", "min_score": 2.0, "max_length": 3},
            "equal texts, no score, score too low, too many tokens, both single words",
        ),
    ):
        assert ", ".join(rule.reason for rule in row_rules(FilterOptions(**options)).filters) == reasons


def test_bigrams_have_no_trees_and_other_rows_keep_their_texts():
    columns = {"first": ["the", "the easy job", "the", "the"], "second": ["a", "simple task", "a", "a job"]}
    columns |= {"alignment": ["0-0", "1-0 2-1", None, "0-0"], "first_pos": ["DT", "DT JJ NN", "DT", "DT"]}
    columns |= {"second_pos": ["DT", "JJ NN", "DT", None], "first_tree": ["the", "(the (easy job))", None, "the"]}
    table = pa.table(columns)
    result, refused = extract_bigrams(table, "jn", [ONE_EDIT_APART])
    faults = ["no aligned jn bigram", None, "no alignment that fits", "no part-of-speech tag for each token"]
    assert refused.to_pylist() == faults
    assert result["first"].to_pylist() == ["the", "easy job", "the", "the"]
    assert result["second"].to_pylist() == columns["second"]
    assert result["first_tree"].null_count == 4
    nothing, refused = extract_bigrams(table.slice(4), "vn", [ONE_EDIT_APART])
    assert len(nothing) == len(refused) == 0


def test_bigrams_need_tags_and_alignment():
    with pytest.raises(ValueError, match=r"bigrams need .*first_pos, second_pos, alignment;"):
        extract_bigrams(pa.table({"first": ["easy job"], "second": ["simple task"]}), "jn", [])
