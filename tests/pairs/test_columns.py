"""First rows that look like headers, and first rows that are pairs."""

import gzip
import json
import random
from pathlib import Path

import pytest

from paraembed.pairs.columns import looks_like_header
from paraembed.pairs.formats import Reading, read_pairs
from paraembed.pairs.sample import write_sample

TRAIN = Path(__file__).parents[3] / "shared" / "data" / "train"
FIRST_ROWS = [json.loads(line) for line in Path(__file__).with_name("first_rows.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("is_header", "first", "rows"), FIRST_ROWS, ids=range(len(FIRST_ROWS)))
def test_first_rows_that_are_headers_and_those_that_are_pairs(is_header, first, rows):
    assert looks_like_header(first, rows) == is_header


@pytest.fixture(params=["generated", "published"])
def pair_files(request, tmp_path):
    """Files of pairs: the published ones, or generated ones of phrases, sentences and scored sentences."""
    if request.param == "published":
        if not TRAIN.is_dir():
            pytest.skip("no real pair data here")
        return sorted(TRAIN.glob("*/*.gz"))
    files = write_sample(tmp_path / "sample", lines=1_000, sentences=0, test_pairs=1_000, pairs=1_000)
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


def test_columns_that_flags_name_are_shown_with_what_the_first_row_has(tmp_path):
    (tmp_path / "p.tsv").write_text("id\tbody\n1\ta b\n")
    block = next(read_pairs(tmp_path / "p.tsv", Reading(columns=("second", "first"))))
    assert block.columns == {"second": "'id'", "first": "'body'"}
