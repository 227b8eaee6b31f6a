"""Word-vector files: what is read, what is refused, what stands for unknown words."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.text.vocabulary import (
    UNKNOWN,
    Words,
    add_random_words,
    load_vocabulary,
    read_words,
    save_vocabulary,
    word_ids,
)

ROWS = ["the 1 2 3", "cat 4 5 6", "sat -0.5 1e-3 7.25"]


def written(folder, rows, name="vectors.txt"):
    path = folder / name
    data = rows if isinstance(rows, bytes) else "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


READ = [json.loads(line) for line in Path(__file__).with_name("vectors.jsonl").read_text().splitlines()]
"""Files, most words, and what is read: vocabulary, matrix, and what is logged."""


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
@pytest.mark.parametrize("case", READ, ids=lambda case: case["case"])
def test_files(tmp_path, caplog, case, name):
    caplog.set_level("INFO")
    words = read_words(written(tmp_path, case["text"].encode("utf-8", "surrogateescape"), name), case["most"])
    assert words.vocabulary.to_pylist() == case["vocabulary"]
    assert words.unknown == case["vocabulary"].index(UNKNOWN)
    assert words.matrix.dtype == np.float32
    np.testing.assert_allclose(words.matrix, case["matrix"], rtol=1e-6)
    assert case.get("logged", "") in caplog.text
    assert bool(caplog.text) == ("logged" in case)


def test_more_rows_than_a_block(tmp_path):
    matrix = np.random.default_rng(0).standard_normal((12_000, 40), dtype=np.float32)
    rows = [f"w{at} {' '.join(map(repr, row))}" for at, row in enumerate(matrix.tolist())]
    words = read_words(written(tmp_path, rows))
    np.testing.assert_array_equal(words.matrix[:-1], matrix)
    np.testing.assert_allclose(words.matrix[-1], matrix.mean(axis=0), atol=1e-7)
    path = written(tmp_path, [*rows[:11_900], *(["bad"] * 12), *rows[11_900:]])
    np.testing.assert_array_equal(read_words(path).matrix, words.matrix)
    for share in (0, 0.0005):
        with pytest.raises(ValueError, match=r"line 11901: .* 12 of 12,012 rows"):
            read_words(path, max_bad_words=share)
    with pytest.raises(ValueError, match=r"line 11901: .* 13 of 12,013 rows"):
        read_words(written(tmp_path, [*rows[:11_900], *(["bad"] * 13), *rows[11_900:]]))


FAULTY = [json.loads(line) for line in Path(__file__).with_name("faulty_vectors.jsonl").read_text().splitlines()]
"""Name, bytes as Latin-1, and what the message must contain."""
REFUSED = {name: (text.encode("latin-1"), message) for name, text, message in FAULTY} | {
    "too long a line": (b"the 1 2 3\n" + b"x" * (65 << 20) + b" 1 2 3\n", "line 2: longer than 67,108,864 bytes;")
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_a_faulty_file_is_refused_with_its_line(tmp_path, data, message):
    path = written(tmp_path, data)
    with pytest.raises(ValueError, match=message) as error:
        read_words(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cut_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"max_words is 0;.* at least 1"):
        read_words(written(tmp_path, ROWS), max_words=0)


def test_word_ids_send_unknown_tokens_to_the_unknown_row():
    vocabulary = pa.array(["the", UNKNOWN, "cat"])
    ids = word_ids(pa.array(["cat", "dog", "the", UNKNOWN, "The"]), vocabulary)
    assert ids.dtype == np.int32
    assert ids.tolist() == [2, 1, 0, 1, 1]
    assert word_ids(pa.array([], pa.string()), vocabulary).tolist() == []


def test_random_words_follow_the_seed_and_the_scale(tmp_path):
    words = read_words(written(tmp_path, ROWS))
    unseen = pa.array([f"new{at}" for at in range(2_000)])
    more = add_random_words(words, unseen, seed=3)
    assert more.vocabulary.to_pylist() == words.vocabulary.to_pylist() + unseen.to_pylist()
    assert more.matrix.dtype == np.float32
    np.testing.assert_array_equal(more.matrix[:4], words.matrix)
    np.testing.assert_array_equal(more.matrix, add_random_words(words, unseen, seed=3).matrix)
    assert not np.array_equal(more.matrix, add_random_words(words, unseen, seed=4).matrix)
    drawn = more.matrix[4:]
    assert np.sqrt((drawn**2).mean()) == pytest.approx(np.sqrt((words.matrix**2).mean()), rel=0.05)
    assert abs(drawn.mean()) < 0.2


@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")), unique=True))
def test_a_vocabulary_comes_back_as_it_was_saved(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    save_vocabulary(pa.array(words, pa.string()), path)
    assert load_vocabulary(path).to_pylist() == words


@pytest.mark.parametrize("matrix", [np.ones((1, 3), np.float32), np.ones(2, np.float32), np.ones((2, 3))])
def test_a_matrix_that_does_not_fit_the_vocabulary_is_refused(matrix):
    with pytest.raises(ValueError, match=r"matrix is .*\]; expected float32 \[2, d\]"):
        Words(pa.array(["a", UNKNOWN]), matrix)
