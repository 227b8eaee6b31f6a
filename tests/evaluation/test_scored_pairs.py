"""Scored pairs: what is read, and the line that is named where it cannot be."""

import gzip

import numpy as np
import pytest

from paraembed.evaluation.suites import read_scored_pairs

ROWS = b'4.5\tA cat sat.\tThe cat sat.\n0\tIt\'s 5 o\'clock\t"No" quoting, "here\n'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("set.tsv", ROWS),
        ("set.tsv", b"score\tsentence1\tsentence2\n" + ROWS),
        ("set.tsv", b"\xef\xbb\xbfScore\tSentence1\tSentence2\r\n" + ROWS.replace(b"\n", b"\r\n")),
        ("set.tsv", ROWS.removesuffix(b"\n")),
        ("set.tsv.gz", gzip.compress(ROWS)),
        ("set", ROWS),
    ],
    ids=["no header", "header", "BOM and CRLF", "no last line feed", "gzip", "no suffix"],
)
def test_pairs_are_read(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    pairs = read_scored_pairs(tmp_path / name)
    assert pairs.name == "set"
    assert pairs.scores.dtype == np.float64
    assert pairs.scores.tolist() == [4.5, 0]
    assert pairs.first.to_pylist() == ["A cat sat.", "It's 5 o'clock"]
    assert pairs.second.to_pylist() == ["The cat sat.", '"No" quoting, "here']


def test_text_is_kept_as_it_is(tmp_path):
    texts = ["", " ", "中文", "é\u2028x", "a\x85b\x12c", "\ufeff", "score", "😀" * 1000]
    (tmp_path / "set.tsv").write_bytes("".join(f"1e-1\t{text}\t{text}!\n" for text in texts).encode())
    pairs = read_scored_pairs(tmp_path / "set.tsv")
    assert pairs.first.to_pylist() == texts
    assert pairs.second.to_pylist() == [f"{text}!" for text in texts]


REFUSED = {
    "empty file": (b"", "is empty"),
    "header only": (b"score\tsentence1\tsentence2\n", "holds no rows; expected 3 .score, first sentence"),
    "binary file": (b"PAR1\x00\x00\x15\n", "is a binary file"),
    "two columns": (ROWS + b"one\ttwo\n", "line 3: 2 columns; expected 3"),
    "four columns": (b"1\ta\tb\tc\n", "line 1: 4 columns"),
    "empty line": (ROWS + b"\n" + ROWS, "line 3: an empty line"),
    "score last": (b"a\tb\t1\n", "line 1: the score is 'a', not a finite number"),
    "other header": (b"sentence1\tsentence2\tscore\n" + ROWS, "line 1: the score is 'sentence1'"),
    "header again": (b"score\tsentence1\tsentence2\n" * 2, "line 2: the score is 'score'"),
    "no score": (ROWS + b"\ta\tb\n", "line 3: the score is '', not"),
    "NaN": (b"nan\ta\tb\n", "line 1: the score is 'nan', not a finite number"),
    "not UTF-8": (ROWS + "1\té\tb\n".encode("latin-1"), "line 3: not UTF-8"),
    "UTF-16": ("1\ta\tb\n".encode("utf-16"), "is a binary file"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_a_faulty_file_is_refused_with_its_line(tmp_path, data, message):
    path = tmp_path / "set.tsv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        read_scored_pairs(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; expected a file"):
        read_scored_pairs(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none\.tsv does not exist"):
        read_scored_pairs(tmp_path / "none.tsv")
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress(ROWS)[:-9])
    with pytest.raises(ValueError, match=r"cut\.tsv\.gz is not a whole gzip file"):
        read_scored_pairs(tmp_path / "cut.tsv.gz")
