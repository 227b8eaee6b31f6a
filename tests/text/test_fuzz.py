"""Fuzzing of files of words and word vectors, of bracketed trees, and of texts for WordPiece."""

import gzip
import re
import shutil

import numpy as np
import pyarrow as pa

from paraembed import checkpoint
from paraembed.text import WORDPIECE
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds
from paraembed.text.trees import FAULTS, read_trees
from paraembed.text.vocabulary import UNKNOWN, read_words
from tests.encoders.oracles_recursive import leaves_of, merges_of
from tests.fuzz import mutated, run, sign_files
from tests.text.pieces import Texts, ids_of, library, rows_of

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


WORDS = ["cat", "naïve", "-LRB-", "``", "\\/", "“", "a", "0.5", "don", "'t", "😀"]
Tree = str | tuple["Tree", "Tree"]


def drawn(draw, leaves):
    if leaves == 1:
        return draw.choice(WORDS)
    left = draw.choice((1, leaves - 1, draw.randint(1, leaves - 1)))
    return drawn(draw, left), drawn(draw, leaves - left)


def written(tree, draw, label):
    """As parsers write it, with labels (``2`` as in SST) or without."""
    if isinstance(tree, str):
        return f"({label} {tree})" if label else tree
    inner = " ".join(written(part, draw, label) for part in tree)
    return f"({label}{' ' if label else ''}{inner})"


def test_trees():
    def case(draw):
        trees = [drawn(draw, draw.randint(1, 8)) for _ in range(draw.randint(1, 4))]
        texts = [" ".join(leaves_of(tree)) for tree in trees]
        tokens = tokenize(pa.array(texts), "space")
        whole = [written(tree, draw, draw.choice(("", "NP", "2"))) for tree in trees]
        changed = draw.random() < 0.7
        given = [
            mutated(text.encode(), draw, (b"(", b")", b"((", b"))", b" ", b"()", b"\n")).decode("utf-8", "replace")
            if changed
            else text
            for text in whole
        ]
        found = read_trees(
            pa.array([draw.choice((text, text, text, None)) if changed else text for text in given]), tokens
        )
        assert len(found.refused) == len(trees)
        assert {*found.refused.to_pylist()} <= {*FAULTS}
        assert len(found.merges) == len(tokens.flat)
        assert found.merges.sum() == len(tokens.flat) - len(trees)
        if changed:
            return "refused by reason" if found.refused.null_count < len(trees) else "changed"
        assert found.refused.null_count == len(trees), found.refused.to_pylist()
        assert found.merges.tolist() == [number for tree in trees for number in merges_of(tree)]
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused by reason"]) > 0, ends


def test_ids_are_those_of_the_library():
    tokenizer, vocabulary = library()
    texts, ids = Texts(vocabulary), TokenIds(vocabulary, WORDPIECE)

    def case(rng):
        made = [texts.text(rng) for _ in range(20)]
        assert rows_of(ids(pa.array(made))) == ids_of(tokenizer, made)
        return "equal"

    assert run(case)["equal"]
