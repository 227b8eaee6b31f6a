"""Word vectors as word2vec's text: whoever reads them has the same bits."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, ScaledAvgConfig
from paraembed.export.word2vec import words_of, write_word2vec
from paraembed.recipe import Recipe
from paraembed.text.vocabulary import UNKNOWN, Words, read_words
from paraembed.training.initial import encoder_for

Matrix = npt.NDArray[np.float32]
WORD = st.text(st.characters(exclude_categories=["Cs", "Lu", "Lt"], exclude_characters=" \n\r\0"), min_size=1)


def as_gensim_reads(path):
    """What ``KeyedVectors.load_word2vec_format`` does: lines of bytes, stripped on the right, split at spaces."""
    with (gzip.open if path.suffix == ".gz" else Path.open)(path, "rb") as file:
        num_words, width = map(int, file.readline().decode().split())
        rows = [line.decode().rstrip().split(" ") for line in file]
    assert {len(row) for row in rows} == {width + 1}
    assert len(rows) == num_words
    return [row[0] for row in rows], np.array([[np.float32(value) for value in row[1:]] for row in rows], np.float32)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_same_bits_come_back(tmp_path, data):
    vocabulary = data.draw(st.lists(WORD.filter(lambda word: word.lower() == word), unique=True, max_size=6))
    vocabulary.insert(data.draw(st.integers(0, len(vocabulary))), UNKNOWN)
    shape = len(vocabulary), data.draw(st.integers(1, 4))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    words = Words(pa.array(vocabulary), data.draw(arrays.arrays(np.float32, shape, elements=finite)))
    path = tmp_path / data.draw(st.sampled_from(["v.txt", "v.txt.gz"]))
    write_word2vec(words, path, overwrite=True)
    read = read_words(path)
    assert read.vocabulary.to_pylist() == vocabulary
    np.testing.assert_array_equal(read.matrix.view(np.int32), words.matrix.view(np.int32))
    theirs, vectors = as_gensim_reads(path)
    assert theirs == vocabulary
    np.testing.assert_array_equal(vectors.view(np.int32), words.matrix.view(np.int32))


def test_any_float32_and_more_rows_than_are_written_at_a_time(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2**32, 2**21, dtype=np.uint32)
    values = bits.view(np.float32)
    matrix = np.where(np.isfinite(values), values, np.float32(1)).reshape(-1, 64)
    words = Words(pa.array([UNKNOWN, *(f"w{row}" for row in range(1, len(matrix)))]), matrix)
    digests = {write_word2vec(words, tmp_path / name) for name in ("a.txt", "b.txt")}
    assert len(digests) == 1
    np.testing.assert_array_equal(read_words(tmp_path / "a.txt").matrix.view(np.int32), matrix.view(np.int32))
    some = Words(words.vocabulary.slice(0, 9), matrix[:9])
    assert write_word2vec(some, tmp_path / "c.gz") == write_word2vec(some, tmp_path / "d.gz")  # no time, no name in it


@pytest.mark.parametrize("word", ["", "new york", "a\nb", "a\rb", "a\0b", "dog"])
def test_a_word_or_vector_that_the_format_cannot_hold_is_refused(word, tmp_path):
    vectors = [[1, 2], [3, np.nan if word == "dog" else 4], [np.inf if word == "dog" else 5, 0]]
    words = Words(pa.array(["cat", word, UNKNOWN]), np.array(vectors, np.float32))
    what = "the vector of 'dog' is not finite" if word == "dog" else "has 1 words that word2vec's text format"
    with pytest.raises(ValueError, match=what) as told:
        write_word2vec(words, tmp_path / "v.txt")
    assert repr(word) in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_training_with_boundary_words_begins_with_those_of_the_file(tmp_path):
    (tmp_path / "v.txt").write_text("</s> 1 2\ncat 3 4\n")
    counts = pc.value_counts(pa.array(["cat"]))
    recipe = Recipe(bos_eos_tokens="both")
    before, _ = encoder_for(tmp_path / "v.txt", counts, recipe)
    before.matrix.data += 1  # trained
    write_word2vec(words_of(before), tmp_path / "trained.txt")
    after, _ = encoder_for(tmp_path / "trained.txt", counts, recipe)
    np.testing.assert_array_equal(after.encode(["cat", "zebra"]), before.encode(["cat", "zebra"]))
    assert read_words(tmp_path / "trained.txt").vocabulary.to_pylist() == ["cat", UNKNOWN, "<s>", "</s>"]
    plain, _ = encoder_for(tmp_path / "v.txt", counts, Recipe())
    assert words_of(plain).vocabulary.to_pylist() == ["</s>", "cat", UNKNOWN]


def test_scales_are_in_the_vectors(tiny_words):
    scaled = Encoder(ScaledAvgConfig(), Words(tiny_words.vocabulary, tiny_words.matrix.copy()), "space")
    scaled.composition.scale.data.copy_(1 + scaled.matrix[:, 0].abs())
    mean = Encoder(AvgConfig(), words_of(scaled), "space")
    np.testing.assert_allclose(mean.encode(["the cat"]), scaled.encode(["the cat"]), rtol=0, atol=1e-6)
