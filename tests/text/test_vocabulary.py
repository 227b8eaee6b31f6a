"""Word vectors of text files, binary files and static models: what is read, refused, and stands for unknown words."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.export.folder import write_folder
from paraembed.text.vocabulary import UNKNOWN, Words, add_random_words, load_vocabulary, read_words, save_vocabulary
from paraembed.text.word_formats import BadRows, binary_blocks, stated_shape

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


WORDS = ["the", "cät", "New_York", "中"]
MATRIX = np.random.default_rng(0).standard_normal((4, 3), np.float32)


def binary(words=WORDS, matrix=MATRIX, feed=b"\n", header=None):
    rows = [word.encode() + b" " + row.astype("<f4").tobytes() + feed for word, row in zip(words, matrix, strict=True)]
    return (header or f"{len(words)} {matrix.shape[1]}\n".encode()) + b"".join(rows)


@pytest.mark.parametrize("feed", [b"", b"\n"])
@pytest.mark.parametrize("at_once", [15, 16, 40, len(binary(feed=b"")), 1 << 24])
def test_binary_files(feed, at_once, tmp_path):
    (tmp_path / "v.bin").write_bytes(binary(feed=feed))
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(binary(feed=feed)))
    for name in ("v.bin", "v.bin.gz"):
        rows, vectors = zip(
            *binary_blocks(tmp_path / name, BadRows(tmp_path / name, 0), block_bytes=at_once), strict=True
        )
        assert [word for block in rows for word in block] == WORDS
        np.testing.assert_array_equal(np.concatenate(vectors), MATRIX)
        assert stated_shape(tmp_path / name) == MATRIX.shape
        words = read_words(tmp_path / name, 3)
        assert words.vocabulary.to_pylist() == ["the", "cät", "new_york", UNKNOWN]
        np.testing.assert_array_equal(words.matrix, MATRIX)  # the fourth row is the mean of those that were cut


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected word2vec's binary form"),
        (b"0 300\n", r"first line is b'0 300'"),
        (b"the 0.1 0.2\n", "first line is b'the 0.1 0.2'"),
        (binary()[:-3], r"row 4 of 4 is truncated"),
        (binary() + b"more", r"longer than the 4 rows"),
        (binary(header=b"9 3\n"), r"row 5 of 9 is truncated"),
        (binary(header=b"4 9\n"), "truncated|not UTF-8|finite"),
        (binary(["a", "b"], np.array([[1, 2], [3, np.nan]], np.float32)), "row 2: the vector of 'b' "),
        (b"1 1\n\xff\xfe " + b"\0" * 4, r"row 1: the word is b'\\xff\\xfe', which"),
    ],
)
def test_damaged_binary_files_are_refused(data, message, tmp_path):
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_words(tmp_path / "v.bin")


def test_bad_binary_rows_are_skipped(tmp_path, caplog):
    words = [b"the", b"gr\xc3", b"cat", b"nan", b"sat", b"on"]
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows[3, 1] = np.nan
    data = b"6 2\n" + b"".join(word + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows, strict=True))
    (tmp_path / "v.bin").write_bytes(data)
    read = read_words(tmp_path / "v.bin")
    assert read.vocabulary.to_pylist() == ["the", "cat", "sat", "on", UNKNOWN]
    np.testing.assert_array_equal(read.matrix[:-1], rows[[0, 2, 4, 5]])
    assert "2 of 6 rows are not word vectors and are skipped: row 2: the word" in caplog.text
    assert "row 4: the vector of 'nan'" in caplog.text
    with pytest.raises(ValueError, match=r"row 2: .* 2 of 6 rows"):
        read_words(tmp_path / "v.bin", max_bad_words=0)


def fasttext(words, rows, *, version=12, model=2, buckets=7, pruned=-1, is_quantized=False):
    """A model of fastText, as its saveModel writes it, with n-grams of 2 to 3 characters, and one label."""
    width = rows.shape[1]
    arguments = struct.pack("<12id", width, 5, 5, 1, 5, 1, 2, model, buckets, 2, 3, 100, 1e-4)
    entries = b"".join(word + b"\0" + struct.pack("<qb", 9, 0) for word in words) + b"__label__x\0" + bytes(8) + b"\1"
    dictionary = struct.pack("<3i2q", len(words) + 1, len(words), 1, 99, pruned) + entries
    head = struct.pack("<2i", 793712314, version) + arguments + dictionary
    return head + struct.pack("<?2q", is_quantized, *rows.shape) + rows.tobytes() + bytes(25)


def vector_of(word, rows, words, buckets):
    """The mean of a word's row and those of its n-grams, by characters, as the paper says."""
    text, used = f"<{word}>", [words.index(word)]
    grams = [text[i : i + n] for n in (2, 3) for i in range(len(text) - n + 1)] if word != "</s>" else []
    for gram in grams:
        code = 2166136261
        for octet in gram.encode():
            code = (code ^ (octet - 256 if octet > 127 else octet) % 2**32) * 16777619 % 2**32
        used.append(len(words) + code % buckets)
    return rows[used].mean(axis=0)


@pytest.mark.parametrize("buckets", [7, 0])
def test_models_of_fasttext(buckets, tmp_path):
    words = ["</s>", "the", "cät", "中文字", "a"]
    rows = np.random.default_rng(0).standard_normal((5 + buckets, 3), np.float32)
    path = tmp_path / "cc.bin"
    path.write_bytes(fasttext([word.encode() for word in words], rows, buckets=buckets))
    assert stated_shape(path) == (5, 3)
    read = read_words(path)
    assert read.vocabulary.to_pylist() == [*words, UNKNOWN]
    expected = [vector_of(word, rows, words, buckets) if buckets else rows[n] for n, word in enumerate(words)]
    np.testing.assert_allclose(read.matrix[:-1], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("changed", "cut", "message"),
    [
        ({"is_quantized": True}, None, "quantized"),
        ({"pruned": 3}, None, "3 pruned"),
        ({"version": 13}, None, "version 13"),
        ({}, -60, "truncated"),
        ({}, 100, "truncated"),
        ({}, 40, "0 words"),
        ({"buckets": 8}, None, "truncated"),
    ],
)
def test_other_models_of_fasttext_are_refused(changed, cut, message, tmp_path):
    rows = np.ones((9, 3), np.float32)
    (tmp_path / "cc.bin").write_bytes(fasttext([b"a", b"b"], rows, **changed)[:cut])
    with pytest.raises(ValueError, match=rf"{message}.*; use the \.vec file"):
        read_words(tmp_path / "cc.bin")


@pytest.mark.parametrize("to", ["sentence-transformers", "model2vec"])
def test_an_exported_model_has_the_words_of_its_encoder(to, tmp_path, monkeypatch):
    monkeypatch.setattr("paraembed.export.folder.check_ids", lambda *_: None)
    matrix = np.random.default_rng(1).standard_normal((4, 3), np.float32)
    words = Words(pa.array(["the", UNKNOWN, "cat", "中"]), matrix)
    write_folder(Encoder(AvgConfig(), words, "ptb-v1"), to, tmp_path / "model")
    read = read_words(tmp_path / "model" / "model.safetensors")
    assert read.vocabulary.equals(words.vocabulary)
    np.testing.assert_array_equal(read.matrix, matrix)


def test_a_quantized_vocabulary_is_unfolded(tmp_path):
    table = np.array([[1, 2], [3, 4]], np.float16)
    parts = {"mapping": np.array([1, 0, 1]), "weights": np.array([1, 2, 0.5], np.float32)}
    save_file({"embeddings": table, **parts}, tmp_path / "model.safetensors")
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1, "b": 2}, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    assert stated_shape(tmp_path / "model.safetensors") == (3, 2)
    words = read_words(tmp_path / "model.safetensors")
    assert words.vocabulary.to_pylist() == ["a", UNKNOWN, "b"]
    np.testing.assert_array_equal(words.matrix, [[3, 4], [2, 4], [1.5, 2]])


@pytest.mark.parametrize(
    ("model", "table", "message"),
    [
        ({"type": "WordPiece", "vocab": {"a": 0}}, "embeddings", r"divides words into pieces \(WordPiece\)"),
        ({"type": "WordLevel", "vocab": {"a": 1}}, "embeddings", "no vocabulary with the ids 0 to V - 1"),
        ({"type": "WordLevel", "vocab": {"a": 0, "b": 1}}, "embeddings", "has 1 rows, but tokenizer.json 2 words"),
        ({"type": "WordLevel", "vocab": {"a": 0}}, "layer.0", "only static models have word vectors"),
    ],
)
def test_models_without_word_vectors_are_refused(model, table, message, tmp_path):
    save_file({table: np.ones((1, 2), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(ValueError, match=message):
        read_words(tmp_path / "model.safetensors")
