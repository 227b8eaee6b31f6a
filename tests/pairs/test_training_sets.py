"""Each training set against lines made by hand: every line says what becomes of it, and with that which rule it tests.

``redundant`` are rows that stay but repeat an earlier pair: the sharding drops them.
"""

from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.pairs.filters import ONE_EDIT_APART, effective_size
from paraembed.pairs.settings import FilterOptions, SetName
from paraembed.pairs.training_sets import TRAINING_SETS, extract_bigrams, judge_rows, row_rules
from paraembed.text.hashing import pair_keys
from paraembed.text.vocabulary import UNKNOWN

ICLR2016 = """
the car | the automobile | kept
car | the automobile | kept
the car | automobile | kept
the automobile | the car | redundant
automobile | the car | redundant
the car | the automobile | redundant
car | automobile | both single words
automobile | car | both single words
3 | three | both single words
well-known | famous | both single words
the car | the car | equal texts
car | car | equal texts
in 1999 | during 1999 | kept
it 's | it is | kept
( see | -lrb- see | kept
my car | my cars | kept
zzyzx road | the road to zzyzx | kept
a | a b | kept
a b | a | redundant
café au lait | coffee with milk | kept
"""

WORDS = """
car | automobile | kept
automobile | car | redundant
car | automobile | redundant
car | auto | kept
auto | automobile | kept
automobile | auto | redundant
car | cars | kept
well-known | famous | kept
famous | well-known | redundant
the car | automobile | not single words
car | the automobile | not single words
the 3 | three | not single words
3 | three | digit
three | 3rd | digit
b2b | trade | digit
٣ | three | digit
zzyzx7 | three | digit
zzyzx | road | out of vocabulary
road | zzyzx | out of vocabulary
zzyzx | xyzzy | out of vocabulary
car | uuunkkk | out of vocabulary
road | street | kept
street | road | redundant
( | -lrb- | kept
road | road | equal texts
"""

PHRASES = """
the old man walks | an elderly person strolls | kept 4
an elderly person strolls | the old man walks | redundant
very large house | huge building here | kept 3
huge building here | very large house | redundant
very large houses | enormous dwelling place | kept 3
large house there | huge old building | kept 3
we went home | our trip ended | kept 3
we went home early | our trip ended | kept 4
we went home early today | our trip ended | kept 5
the old man walks away today | elderly person strolls | kept 6
a we went home | our trip ended | kept 3
we went home | a i our trip ended | kept 3
ballistic missiles today | of ballistic missiles | word overlap
my dad had | my father had | word overlap
my father had | my dad had | word overlap
very large house | very big houses | word overlap
the house here | the building there now | word overlap
the house here | the dwelling place now | kept 4
the house here now | the building there now | word overlap
very large | huge building | effective size too low
very large a | huge building i | effective size too low
house | building | effective size too low
a i a i | i a i a | effective size too low
very large zzyzx | huge building here | out of vocabulary
very large house | huge zzyzx here | out of vocabulary
zzyzx | zzyzx xyzzy | out of vocabulary
very large house | very large house | equal texts
large house | huge old building | kept 3
huge | the old house | kept 3
an old man | a huge house | kept 3
huge huge huge | the the the | kept 3
"""

PGRU2017 = """
the car | the automobile | kept
the automobile | the car | redundant
the automobile | car | kept
the car | automobile | kept
car | automobile | both single words
car | zzyzx | both single words
3 | three | both single words
the car | the car | equal texts
car | car | equal texts
the 3 | the three | not letters
the three | the 3rd | not letters
it 's | it is | not letters
well-known car | famous car | not letters
the car , | the automobile | not letters
the u.s. | the automobile | not letters
( car | the automobile | not letters
the zzyzx 3 | the car | not letters
the zzyzx | the car | out of vocabulary
the car | the zzyzx | out of vocabulary
the zzyzx | the xyzzy | out of vocabulary
famous car | the car | kept
the car | famous car | redundant
famous car | famous automobile | kept
café car | famous car | kept
the car car | the car | kept
"""

SIMPWIKI = """
the car is an automobile . | a car is an automobile . | kept
the car is an automobile . | a car is an automobile . | kept
a car is an automobile . | the car is an automobile . | kept
it was in 1999 . | it was in 1999 . | kept
it was in 1999 . | it was in 1999 . | kept
car | car | kept
car | automobile | kept
automobile | car | kept
zzyzx lies in california . | zzyzx is in california . | kept
lrb see below rrb | see below | kept
see below | lrb see below rrb | kept
it 's | it is | kept
3 | three | kept
a | b | kept
b | a | kept
a b c d e f g h i j | a | kept
in 1999 , he left the town . | he left the town in 1999 . | kept
he left the town in 1999 . | he left the town in 1999 . | kept
he went away . | he went away . | kept
he went away . | he left . | kept
"""

KNOWN = """
the a an i my of we our car cars automobile auto well-known famous road street ( -lrb- [ three trade café old man walks
elderly person strolls very large house houses huge building here enormous dwelling place there went home trip ended
early today away ballistic missiles dad father had big now easy simple hard job jobs task town hall city achieve reached
goal aim
"""
VOCABULARY = KNOWN.split()

TEXT_SETS = {
    "iclr2016": ICLR2016,
    "tacl2015/words": WORDS,
    "tacl2015/phrases": PHRASES,
    "pgru2017": PGRU2017,
    "acl2017/simpwiki": SIMPWIKI,
    "acl2017/ppdb-matched": ICLR2016,
}

# phrase | paraphrase | alignment | what becomes of it: the bigrams of the rows that give a pair
JN = """
easy/JJ job/NN | simple/JJ task/NN | 0-0 1-1 | easy job = simple task
easy/JJ job | simple/JJ task/NN | 0-0 1-1 | no part-of-speech tag for each token
simple/JJ task/NN | easy/JJ job/NN | 0-0 1-1 | redundant
the/DT easy/JJ job/NN | a/DT simple/JJ task/NN | 0-0 1-1 2-2 | redundant
easy/JJ jobs/NNS | simple/JJ task/NN | 0-0 1-1 | easy jobs = simple task
easier/JJR job/NN | simple/JJ task/NN | 0-0 1-1 | out of vocabulary
easy/JJ job/NN | simple/JJ zzyzx/NN | 0-0 1-1 | out of vocabulary
zzyzx/DT easy/JJ job/NN | hard/JJ task/NN | 1-0 2-1 | easy job = hard task
easy/JJ (/NN | simple/JJ task/NN | 0-0 1-1 | bracket
easy/JJ job/NN | -lrb-/JJ task/NN | 0-0 1-1 | bracket
(/DT easy/JJ job/NN | huge/JJ task/NN | 1-0 2-1 | easy job = huge task
easy/JJ job/NN | easy/JJ jobs/NNS | 0-0 1-1 | at most one edit apart
the/DT easy/JJ job/NN | a/DT easy/JJ job/NN | 1-1 2-2 | at most one edit apart
easy/JJ job/NN | easy/JJ job/NN | 0-0 1-1 | equal texts
easy/JJ job/NN old/JJ man/NN | easy/JJ job/NN elderly/JJ person/NN | 0-0 1-1 2-2 3-3 | old man = elderly person
easy/JJ the/DT job/NN | simple/JJ task/NN | 0-0 2-1 | no aligned jn bigram
easy/JJ job/NN | simple/JJ the/DT task/NN | 0-0 1-2 | no aligned jn bigram
easy/JJ job/NN | simple/JJ task/NN | 0-0 | no aligned jn bigram
easy/JJ job/NN | simple/JJ task/NN | 0-1 1-0 | no aligned jn bigram
easy/RB job/NN | simple/JJ task/NN | 0-0 1-1 | no aligned jn bigram
town/NN hall/NN | city/NN hall/NN | 0-0 1-1 | no aligned jn bigram
easy/JJ job/VB | simple/JJ task/NN | 0-0 1-1 | no aligned jn bigram
easy/JJ job/NN | simple/JJ task/NN | 0-0 1-2 | no alignment that fits
easy/JJ job/NN | simple/JJ task/NN | | no alignment that fits
"""

NN = """
town/NN hall/NN | city/NN house/NN | 0-0 1-1 | town hall = city house
town/NN hall | city/NN house/NN | 0-0 1-1 | no part-of-speech tag for each token
city/NN house/NN | town/NN hall/NN | 0-0 1-1 | redundant
the/DT town/NN hall/NN | city/NN house/NN | 1-0 2-1 | redundant
town/NNP houses/NNS | city/NNP hall/NNP | 0-0 1-1 | town houses = city hall
town/NN hall/NN | city/NN hall/NN | 0-0 1-1 | town hall = city hall
town/NN hall/NN trip/NN | city/NN house/NN home/NN | 0-0 1-1 2-2 | redundant
town/NN hall/NN trip/NN | town/NN hall/NN home/NN | 0-0 1-1 2-2 | hall trip = hall home
town/NN halls/NNS | city/NN house/NN | 0-0 1-1 | out of vocabulary
town/NN hall/NN | zzyzx/NN house/NN | 0-0 1-1 | out of vocabulary
town/NN [/NN | city/NN house/NN | 0-0 1-1 | bracket
town/NN house/NN | town/NN houses/NNS | 0-0 1-1 | at most one edit apart
a/DT town/NN hall/NN | the/DT town/NN hall/NN | 0-0 1-1 2-2 | at most one edit apart
town/NN hall/NN | town/NN hall/NN | 0-0 1-1 | equal texts
easy/JJ job/NN | simple/JJ task/NN | 0-0 1-1 | no aligned nn bigram
town/NN of/IN hall/NN | city/NN house/NN | 0-0 2-1 | no aligned nn bigram
town/NN hall/NN | city/NN house/NN | 1-1 | no aligned nn bigram
town/NN hall/NN | house/NN city/NN | 0-1 1-0 | no aligned nn bigram
town/NN | city/NN | 0-0 | no aligned nn bigram
town/NN hall/NN | city/NN house/NN | 0-0 1_1 | no alignment that fits
town/NN hall/NN | city/NN house/NN house/NN | 0-0 3-1 | no alignment that fits
"""

VN = """
achieve/VB goal/NN | reached/VBD aim/NN | 0-0 1-1 | achieve goal = reached aim
achieve goal/NN | reached/VBD aim/NN | 0-0 1-1 | no part-of-speech tag for each token
reached/VBD the/DT aim/NN | achieve/VB goal/NN | 0-0 2-1 | redundant
achieve/VB the/DT goal/NN | achieve/VB an/DT aim/NN | 0-0 1-1 2-2 | achieve goal = achieve aim
achieve/VB a/DT big/JJ goal/NN now/RB | achieve/VB task/NN | 0-0 3-1 | achieve goal = achieve task
we/PRP reached/VBD home/NN | we/PRP achieve/VB our/PRP$ goal/NN | 0-0 1-1 2-3 | reached home = achieve goal
achieve/VB zzyzx/NN | achieve/VB aim/NN | 0-0 1-1 | out of vocabulary
attain/VB goal/NN | achieve/VB aim/NN | 0-0 1-1 | out of vocabulary
achieve/VB zzyzx/JJ goal/NN | reached/VBD task/NN | 0-0 2-1 | achieve goal = reached task
achieve/VB (/NN | reached/VBD aim/NN | 0-0 1-1 | bracket
achieve/VB job/NN | achieve/VB the/DT jobs/NNS | 0-0 1-2 | at most one edit apart
achieve/VB the/DT goal/NN | achieve/VB a/DT goal/NN | 0-0 1-1 2-2 | at most one edit apart
achieve/VB goal/NN | achieve/VB goal/NN | 0-0 1-1 | equal texts
goal/NN achieve/VB | aim/NN reached/VBD | 0-0 1-1 | no aligned vn bigram
achieve/VB goal/NN | reached/VBD aim/NN | 0-0 | no aligned vn bigram
achieve/VB goal/NN | reached/VBD aim/NN | 1-1 | no aligned vn bigram
achieve/VB goal/NN task/NN | reached/VBD job/NN aim/NN | 0-0 1-2 2-1 | no aligned vn bigram
achieve/NN goal/NN | reached/VBD aim/NN | 0-0 1-1 | no aligned vn bigram
easy/JJ job/NN | simple/JJ task/NN | 0-0 1-1 | no aligned vn bigram
achieve/VB goal/NN | reached/VBD aim/NN | 0 | no alignment that fits
achieve/VB goal/NN | reached/VBD | 0-0 1-1 | no alignment that fits
"""

BIGRAM_SETS = {"tacl2015/bigrams-jn": JN, "tacl2015/bigrams-nn": NN, "tacl2015/bigrams-vn": VN}


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


@pytest.mark.parametrize("name", TEXT_SETS)
def test_a_training_set_takes_these_lines(name):
    lines = lines_of(TEXT_SETS[name])
    assert 20 <= len(lines) <= 40
    assert outcomes(name, text_table(lines)) == [(first, second, what.rstrip(" 3456")) for first, second, what in lines]


def test_phrases_have_these_effective_sizes():
    lines = [line for line in lines_of(PHRASES) if line[2].startswith("kept")]
    assert effective_size(text_table(lines)).to_pylist() == [int(what.split()[1]) for _, _, what in lines]


@pytest.mark.parametrize("name", BIGRAM_SETS)
def test_a_bigram_set_takes_these_lines(name):
    lines = lines_of(BIGRAM_SETS[name])
    assert 20 <= len(lines) <= 40
    found = outcomes(name, tagged_table(lines))
    for (*_, what), (first, second, reason) in zip(lines, found, strict=True):
        assert what == (f"{first} = {second}" if reason == "kept" else reason)


@pytest.mark.parametrize("name", get_args(SetName))
def test_every_rule_fires_in_the_example(name):
    lines = lines_of((TEXT_SETS | BIGRAM_SETS)[name])
    rules = row_rules(options_for(name), pa.array(VOCABULARY))
    reasons = {rule.reason for rule in (*rules.filters, *rules.bigram_filters)}
    assert reasons <= {line[-1] for line in lines} | {"redundant"}


def test_the_names_are_those_that_can_be_given():
    assert tuple(TRAINING_SETS) == get_args(SetName)
    assert {*TEXT_SETS, *BIGRAM_SETS} == {*TRAINING_SETS}


@pytest.mark.parametrize("name", get_args(SetName))
def test_a_set_of_known_words_needs_a_vocabulary(name):
    if name.startswith("tacl2015") or name == "pgru2017":
        with pytest.raises(ValueError, match=f"{name} needs a vocabulary; .*`words`"):
            row_rules(options_for(name))
    else:
        row_rules(options_for(name))


def test_limits_come_before_the_rules_of_the_set():
    options = FilterOptions(training_set="iclr2016", min_score=2.0, max_length=3)
    filters = row_rules(options).filters
    assert [rule.reason for rule in filters] == [
        "equal texts",
        "no score",
        "score too low",
        "too many tokens",
        "both single words",
    ]
    assert [rule.reason for rule in row_rules(FilterOptions()).filters] == ["equal texts"]


@given(data=st.data())
def test_outcomes_do_not_depend_on_blocks(data):
    name = data.draw(st.sampled_from(get_args(SetName)))
    lines = data.draw(st.permutations(lines_of((TEXT_SETS | BIGRAM_SETS)[name])))
    table = tagged_table(lines) if name in BIGRAM_SETS else text_table(lines)
    cut = data.draw(st.integers(0, len(lines)))
    rules = row_rules(options_for(name), pa.array(VOCABULARY))
    whole, reasons = judge_rows(table, rules)
    parts = [judge_rows(part, rules) for part in (table.slice(0, cut), table.slice(cut))]
    assert pa.concat_tables([part for part, _ in parts]).to_pylist() == whole.to_pylist()
    assert [reason for _, part in parts for reason in part.to_pylist()] == reasons.to_pylist()


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
