import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.recipe import Recipe
from paraembed.settings import MIN_COVERAGE
from paraembed.text.vocabulary import END, START
from paraembed.training.inputs import check_coverage, encoder_for, untrained_encoder

PLAIN = Recipe()


@pytest.mark.parametrize("has_ends", [True, False])
def test_boundary_words_take_the_files_vectors_or_random_ones(tmp_path, has_ends):
    pq.write_table(pa.table({"first": ["a b"], "second": ["b"]}), tmp_path / "pairs.parquet")
    ends = "<s> 7 8\n</S> 9 10\n" if has_ends else ""
    (tmp_path / "words.txt").write_text(f"a 1 2\n{ends}b 3 4\n")
    shards = {"shards": [{"name": "pairs.parquet"}]}
    recipe = Recipe(bos_eos_tokens="both", max_tokens=9)
    encoder, _ = untrained_encoder(tmp_path / "words.txt", tmp_path, shards, recipe)
    assert (encoder.bos_eos_tokens, encoder.max_tokens) == ("both", 9)
    rows = {word: encoder.matrix[row].tolist() for row, word in enumerate(encoder.vocabulary.to_pylist())}
    assert ([rows[START], rows[END]] == [[7, 8], [9, 10]]) == has_ends
    a, both = encoder.encode(["a"])[0], np.array([rows[START], [1, 2], rows[END]])
    np.testing.assert_allclose(a, both.mean(axis=0), rtol=1e-6)


def coverage(folder, counts, recipe=PLAIN):
    """Coverage of counted words by a file that has vectors for "a" and "b"."""
    (folder / "words.txt").write_text("a 1 2\nb 3 4\n")
    arrays = [pa.array(counts), pa.array(counts.values())]
    return encoder_for(folder / "words.txt", pa.StructArray.from_arrays(arrays, ["values", "counts"]), recipe)[1]


@pytest.mark.parametrize(
    ("counts", "least", "ends"),
    [
        ({"a": 50, "x": 50}, MIN_COVERAGE, "trains"),
        ({"a": 49, "x": 51}, MIN_COVERAGE, "warns"),
        ({"a": 20, "x": 80}, MIN_COVERAGE, "warns"),
        ({"a": 19, "x": 81}, MIN_COVERAGE, "stops"),
        ({"x": 9}, MIN_COVERAGE, "stops"),
        ({"x": 9}, 0.0, "warns"),
        ({"a": 99, "x": 1}, 1.0, "stops"),
        ({"A": 99, "x": 1}, MIN_COVERAGE, "stops"),
    ],
)
def test_words_that_cover_too_little_warn_or_stop(tmp_path, caplog, counts, least, ends):
    found = coverage(tmp_path, counts)
    with caplog.at_level(logging.WARNING):
        if ends == "stops":
            with pytest.raises(ValueError, match=r"'x'.*`min_coverage`"):
                check_coverage(found, least, "words.txt", "the pairs")
        else:
            check_coverage(found, least, "words.txt", "the pairs")
    assert ("'x' (" in caplog.text) == (ends == "warns")


def test_ten_missing_words_are_named_the_most_frequent_first(tmp_path):
    found = coverage(tmp_path, {"b": 5, **{f"x{number:02}": number for number in range(1, 31)}, "y" * 99: 1000})
    assert found.missing == (("y" * 99, 1000), *((f"x{number}", number) for number in range(30, 21, -1)))
    with pytest.raises(ValueError, match=f"'{'y' * 30}' \\(1,000\\)"):
        check_coverage(found, MIN_COVERAGE, "words.txt", "the pairs")


def test_random_vectors_that_the_user_asked_for_count_but_are_warned_of(tmp_path, caplog):
    counts, recipe = {"x": 90, "y": 4}, Recipe(new_words="random")
    found = coverage(tmp_path, counts, recipe)
    assert (found.covered, found.with_vector, found.num_random) == (0, 90 / 94, 1)
    check_coverage(found, MIN_COVERAGE, "words.txt", "the pairs")
    assert "1 words got a random vector" in caplog.text
    rare = coverage(tmp_path, counts, replace(recipe, new_words_min_count=91))
    with pytest.raises(ValueError, match="`min_coverage`"):
        check_coverage(rare, MIN_COVERAGE, "words.txt", "the pairs")
