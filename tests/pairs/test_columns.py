"""First rows that look like headers, and first rows that are pairs."""

import gzip
import random
from pathlib import Path

import pytest

from paraembed.pairs.columns import looks_like_header
from paraembed.pairs.formats import Reading, read_pairs
from paraembed.pairs.sample import write_sample

TRAIN = Path(__file__).parents[3] / "shared" / "data" / "train"
WORDS = [["dog", "canine"], ["car", "auto"], ["big", "large"]]
SENTENCES = [
    ["The cat sat down.", "A cat sat."],
    ["It rains a lot.", "Much rain here."],
    ["Go home now!", "Leave now, go!"],
]


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (["id", "body"], [["1", "hello there"], ["2", "you"]]),
        (["docid", "utterance"], [["d1", "hey you"], ["d2", "hi"], ["d3", "ja"]]),
        (["", "sentence_a", "sentence_b"], [["0", "a", "b"]]),
        (["text_a", "text_b"], WORDS),
        (["phraseA", "phraseB"], WORDS),
        (["Satz 1", "Satz 2"], WORDS),
        (["word", "synonym"], WORDS),
        (["original", "simplified"], SENTENCES),
        (["\ufeffQ1", "Q2"], SENTENCES),
        (['\ufeff"docid"', '"title"'], SENTENCES),
        (["#1 String", "#2 String"], SENTENCES),
        (["review", "sentiment"], [[first, "good"] for first, _ in SENTENCES]),
        (["foo", "title"], SENTENCES),
        (["deutsch", "anders"], SENTENCES * 4),
    ],
)
def test_headers(first, rows):
    assert looks_like_header(first, rows)


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (["cat", "feline"], WORDS),
        (["cat", "feline"], [["big dog", "large hound"], *WORDS]),
        (["cat", "feline"], SENTENCES),
        (["title", "name"], WORDS),
        (["mp3", "music"], WORDS),
        (["one 0", "uno 0"], [[f"one {row}", f"uno {row}"] for row in range(1, 9)]),
        (["10/17/01", "17/10/2001"], [["102,70", "102.70"]]),
        (["Hello there.", "Hi!"], SENTENCES * 4),
        (["cat", "feline", "NA"], [["dog", "canine", "0.5"]]),
        (["same", "same"], [["1", "2"]]),
        (["id", "body"], []),
    ],
)
def test_pairs(first, rows):
    assert not looks_like_header(first, rows)


@pytest.fixture(params=["generated", "published"])
def pair_files(request, tmp_path):
    """Files of pairs: the published ones, or generated ones of phrases, sentences and scored sentences."""
    if request.param == "published":
        if not TRAIN.is_dir():
            pytest.skip("no real pair data here")
        return sorted(TRAIN.glob("*/*.gz"))
    files = write_sample(tmp_path / "sample", lines=3_000, sentences=0, test_pairs=3_000, pairs=3_000)
    with gzip.open(files.ppdb_2, "rt", encoding="utf-8") as file:
        phrases = "".join("\t".join(line.split(" ||| ")[1:3]) + "\n" for line in file)
    _, _, scored = files.test_pairs.read_text().partition("\n")
    for name, text in (("phrases", phrases), ("sentences", files.pairs.read_text()), ("scored", scored)):
        (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return sorted(tmp_path.glob("*.gz"))


def test_rows_of_pair_files_are_pairs(pair_files):
    draw = random.Random(1)
    refused = tried = 0
    for path in pair_files:
        separator = "\t" if ".tsv" in path.name else " "
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            rows = [line.split(separator)[:2] for line, _ in zip(file, range(5_000), strict=False)]
        rows = [row for row in rows if len(row) == 2]
        if len(rows) < 100 or ("wikisplit" in path.name and separator == " "):
            continue
        assert not looks_like_header(rows[0], rows[1:101]), path
        for _ in range(50 if len(pair_files) > 3 else 350):
            tried += 1
            refused += looks_like_header(draw.choice(rows), draw.sample(rows, 100))
    assert tried > 1000
    assert refused <= tried // 1000


@pytest.mark.parametrize(("name", "comma"), [("p.tsv", "\t"), ("p.csv", ",")])
def test_an_unknown_header_is_refused_unless_the_flags_say_what_it_is(tmp_path, name, comma):
    path = tmp_path / name
    path.write_text("".join(f"{first}{comma}{second}\n" for first, second in [("id", "body"), (1, "a b"), (2, "c")]))

    def rows(**flags):
        blocks = [*read_pairs(path, Reading(**flags))]
        return [
            pair
            for block in blocks
            for pair in zip(*(c.to_pylist() for c in (block.pairs.first, block.pairs.second)), strict=True)
        ]

    with pytest.raises(ValueError, match=r"id, body; .*`columns` first second; .*`no_header`"):
        rows()
    assert rows(no_header=True) == [("id", "body"), ("1", "a b"), ("2", "c")]
    assert rows(columns=("first", "second")) == [("1", "a b"), ("2", "c")]
    block = next(read_pairs(path, Reading(columns=("second", "first"))))
    assert block.columns == {"second": "'id'", "first": "'body'"}
    path.write_text(f"source{comma}target\ncat{comma}feline\n")
    assert rows() == [("cat", "feline")]
    assert rows(no_header=True) == [("source", "target"), ("cat", "feline")]


def test_quotes_behind_a_byte_order_mark_open_cells(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('\ufeff"source","target"\n"big, red",large\n', encoding="utf-8")
    block = next(read_pairs(path))
    assert block.pairs.first.to_pylist() == ["big, red"]
    path.write_text('\ufeff"big, red",large\n', encoding="utf-8")
    assert next(read_pairs(path)).pairs.first.to_pylist() == ["big, red"]
