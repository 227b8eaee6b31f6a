import pyarrow as pa
import pytest

from paraembed.pairs.filters import BRACKET, ONE_EDIT_APART
from paraembed.pairs.training_sets import extract_bigrams

TAGS = {"easy": "JJ", "simple": "JJ", "hard": "JJR", "job": "NN", "task": "NN", "jobs": "NNS", "town": "NN"}
TAGS |= {"hall": "NN", "city": "NNP", "achieve": "VB", "reached": "VBD", "goal": "NN", "aim": "NN", "the": "DT"}


def tagged(*rows):
    first, second, alignment = (pa.array(list(column), pa.string()) for column in zip(*rows, strict=True))
    tags = [
        pa.array([" ".join(TAGS.get(token, "XX") for token in text.split()) for text in texts.to_pylist()])
        for texts in (first, second)
    ]
    trees = pa.array(["( a b )"] * len(rows))
    names = ["first", "second", "alignment", "first_pos", "second_pos", "first_tree"]
    return pa.Table.from_arrays([first, second, alignment, *tags, trees], names)


@pytest.mark.parametrize(
    ("kind", "row", "bigrams"),
    [
        ("jn", ("easy job", "simple task", "0-0 1-1"), ("easy job", "simple task")),
        ("jn", ("the easy jobs", "hard task", "1-0 2-1"), ("easy jobs", "hard task")),
        ("jn", ("easy the job", "simple task", "0-0 2-1"), None),  # not adjacent
        ("jn", ("easy job", "simple task", "0-0 1-0"), None),  # job has no counterpart
        ("jn", ("easy job", "task simple", "0-1 1-0"), None),  # another order
        ("jn", ("town job", "city task", "0-0 1-1"), None),
        ("nn", ("the town hall", "city hall", "1-0 2-1"), ("town hall", "city hall")),
        ("nn", ("easy hall", "city hall", "0-0 1-1"), None),
        ("vn", ("achieve the goal", "reached easy aim", "0-0 2-2"), ("achieve goal", "reached aim")),
        ("vn", ("goal achieve", "aim achieve", "0-0 1-1"), None),  # no noun behind the verb
        ("vn", ("achieve goal task", "achieve job aim", "0-0 1-2 2-1"), None),  # the closest nouns are not aligned
        # the leftmost that no rule refuses
        ("jn", ("easy job simple task", "easy job hard hall", "0-0 1-1 2-2 3-3"), ("simple task", "hard hall")),
    ],
)
def test_bigrams_of_a_phrase_pair(kind, row, bigrams):
    # Rows before and behind it: places are those of the row, not of the block.
    other = ("the", "the", "0-0")
    result, refused = extract_bigrams(tagged(other, row, other), kind, [ONE_EDIT_APART])
    none = f"no aligned {kind} bigram"
    assert refused.to_pylist() == [none, None if bigrams else none, none]
    texts = (result["first"][1].as_py(), result["second"][1].as_py())
    assert texts == (bigrams or row[:2])
    assert result["first_tree"].null_count == 3


def test_why_a_row_gives_no_bigram():
    table = tagged(
        ("easy job", "simple task", None),
        ("easy job", "simple task", ""),
        ("easy job", "simple task", "0-0 1:1"),
        ("easy job", "simple task", "0-0 1-2"),
        ("easy job", "easy jobs", "0-0 1-1"),
        ("easy job", "simple task", "0-0 1-1"),
    )
    for name, tags in (("first_pos", "JJ"), ("second_pos", None)):
        changed = table.set_column(
            table.column_names.index(name), name, pa.array([*table[name].to_pylist()[:5], tags], pa.string())
        )
        _, refused = extract_bigrams(changed, "jn", [BRACKET, ONE_EDIT_APART])
        assert refused.to_pylist() == [
            *["no alignment that fits"] * 4,
            "at most one edit apart",
            "no part-of-speech tag for each token",
        ]


def test_bigrams_need_tags_and_alignment():
    with pytest.raises(ValueError, match="bigrams need the columns first_pos, second_pos, alignment: tag the phrases"):
        extract_bigrams(pa.table({"first": ["easy job"], "second": ["simple task"]}), "jn", [])


def test_a_block_without_rows():
    table, refused = extract_bigrams(tagged(("the", "the", "0-0")).slice(1), "vn", [ONE_EDIT_APART])
    assert len(table) == len(refused) == 0
