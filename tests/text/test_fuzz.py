"""Fuzzing of files of words and word vectors, of bracketed trees, and of texts for WordPiece."""

import gzip
import re
import shutil

import numpy as np

from paraembed import checkpoint
from paraembed.text.vocabulary import UNKNOWN, read_words
from tests.fuzz import mutated, run, sign_files

MARKS = (b"\n", b"\r\n", b" ", b"\t", b"-", b"\xff", b"\0", b"\xe2\x80\xa8")
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
TAB = re.compile(rf"\t({NUMBER})\b", re.ASCII)  # before a number
TOKENS = (*MARKS, b"nan", b"inf", b"1e39", b"2 3\n", b"9 9\n")


def plain_row(line, width):
    """Word and vector of a line; None if it is no row."""
    cells = TAB.sub(r" \1", line.decode().removesuffix("\r")).rstrip(" ").split(" ")
    names, values = cells[:-width], [float(v) if re.fullmatch(NUMBER, v) else np.nan for v in cells[-width:]]
    word = " ".join(names).strip(" ")
    is_ambiguous = " " in word and re.fullmatch(NUMBER, word.split(" ")[-1])
    return None if not word or is_ambiguous or not (np.abs(values) < 3.4028235e38).all() else (word, values)


def plain_reading(data, width):
    """Words, lower-cased, and vectors, by a loop over lines; only for files that ``read_words`` takes."""
    found = {}
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if re.fullmatch(rb"[0-9]{1,100} [0-9]{1,100} *\r?", lines[0]):
        assert int(lines[0].split()[1]) == width
        lines = lines[1:]
    for line in lines:
        try:
            word, values = plain_row(line, width)
        except (UnicodeDecodeError, TypeError):  # TypeError: no row
            continue
        found.setdefault(word if word == UNKNOWN else word.lower(), values)
    return list(found), list(found.values())


def test_word_vector_files(tmp_path):
    def case(draw):
        width, count = draw.choice((1, 2, 3, 5)), draw.choice((1, 2, 4, 9))
        words = [
            draw.choice(("the", "The", "7", "a\u00a0b", "é", UNKNOWN, "n't", "w")) + str(at) for at in range(count)
        ]
        decimals = draw.choice((0, 2, 6))
        lines = [f"{word} {' '.join(f'{draw.gauss(0, 1):.{decimals}f}' for _ in range(width))}" for word in words]
        header = [f"{count + draw.choice((0, 0, 0, 1))} {width + draw.choice((0, 0, 0, -1))}"] * draw.randrange(2)
        end = draw.choice(("\n", "\n", "\r\n"))
        data = (end.join([*header, *lines]) + end * draw.choice((1, 1, 1, 0))).encode()
        if draw.randrange(2):
            data = mutated(data, draw, TOKENS)
        path = tmp_path / draw.choice(("v.txt", "v.txt.gz"))
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        if draw.randrange(20) == 0:
            path.write_bytes(mutated(path.read_bytes(), draw))
        read = read_words(path)
        if path.suffix == ".gz" or path.read_bytes() == data:
            expected, vectors = plain_reading(data, read.matrix.shape[1])
            assert read.vocabulary.to_pylist()[: len(expected)] == expected
            np.testing.assert_array_equal(read.matrix[: len(expected)], np.array(vectors, np.float32))
        assert bool(np.isfinite(read.matrix).all())
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused"]) > ends.total() / 10


def test_vocabularies_of_encoders(tmp_path, tiny_encoder_folder):
    """words.txt under digests that fit."""
    folder = tmp_path / "e"
    shutil.copytree(tiny_encoder_folder, folder)
    whole = (folder / "words.txt").read_bytes()

    def case(draw):
        data = mutated(whole, draw, TOKENS) if draw.randrange(20) else whole
        (folder / "words.txt").write_bytes(data)
        sign_files(folder)
        vocabulary = checkpoint.load(folder).vocabulary.to_pylist()
        assert len(set(vocabulary)) == 12
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused"]) > ends.total() / 100
