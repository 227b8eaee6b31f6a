"""Texts of a student: distinct, none of an evaluation set; units with their counts and ids."""

import gzip
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.distillation.settings import TeachSettings
from paraembed.distillation.texts import (
    IDS,
    OFFSETS,
    VOCABULARY,
    Pieces,
    keys_of,
    left_out,
    read_texts,
    write_texts,
    write_units,
    written_texts,
)
from paraembed.text import WORDPIECE
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import UNKNOWN
from tests.embedding.without_ray import list_inputs


def kept(folder):
    return [text for block in written_texts(folder) for text in block.to_pylist()]


def test_texts_of_evaluation_sets_are_left_out_whatever_their_case_and_marks(tmp_path):
    (tmp_path / "a.tsv").write_text("score\ts1\ts2\n5\tA dog, runs!\tDer Hund läuft.\n")
    (tmp_path / "c.csv").write_text('s1,s2\n"Yes, it is","no"\n')
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("...\nthe END\nThe cat doesn't.\nYes -LRB- it 's -RRB-\n")
    evaluation = left_out(sorted(path for path in tmp_path.iterdir()))
    texts = ["a dog runs", "A  DOG -- runs", "der hund lauft", "der hund läuft", "yes it is", "the 'end'", "?!"]
    texts += ["a dog", "yes it's", "the cat does n't"]
    folder = tmp_path / "out"
    folder.mkdir()
    counts = write_texts([pa.array(texts), pa.array(["", None, "a dog", " a dog "])], evaluation, folder)
    assert kept(folder) == ["der hund lauft", "?!", "a dog"]
    assert counts == {"read": 12, "kept": 3, "left_out": 7, "repeated": 2}


@given(blocks=st.lists(st.lists(st.none() | st.sampled_from(["a", "A", "b c", "B-C", " ", "é", "x"]), max_size=8)))
def test_each_text_once_in_order(blocks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "set.txt").write_text("b c\n")
    texts = [text.strip() for block in blocks for text in block if text is not None and text.strip()]
    expected = [text for text in dict.fromkeys(texts) if re.sub(r"\W+", "", text.lower()) != "bc"]
    arrays = [pa.array(block, pa.string()) for block in blocks]
    if not expected:
        with pytest.raises(ValueError, match="no text is left"):
            write_texts(arrays, left_out([folder / "set.txt"]), folder)
        return
    counts = write_texts(arrays, left_out([folder / "set.txt"]), folder)
    assert kept(folder) == expected
    assert (counts["read"], counts["kept"]) == (len(texts), len(expected))


def test_columns_and_compressed_files(tmp_path):
    pq.write_table(pa.table({"first": ["a", "b"], "n": [1, 2], "second": ["c", None]}), tmp_path / "p.parquet")
    found = pa.concat_arrays(read_texts(list_inputs([tmp_path / "p.parquet"]), ("first", "second")))
    assert sorted(filter(None, found.to_pylist())) == ["a", "b", "c"]
    with gzip.open(tmp_path / "t.txt.gz", "wt") as file:
        file.write("x y\nz\n")
    assert pa.concat_arrays(read_texts(list_inputs([tmp_path / "t.txt.gz"]), ())).to_pylist() == ["x y", "z"]


def test_units_have_the_counts_and_ids_of_the_texts(tmp_path):
    texts = ["the cat's mat", "The cat ...", "a cat", "unaffable unaffable cats", "..."]
    write_texts([pa.array(texts)], left_out([]), tmp_path)
    words = tmp_path / "words"
    words.mkdir()
    found = write_units(tmp_path, None, TeachSettings(min_count=2, max_words=3), words)
    table = pq.read_table(words / VOCABULARY).to_pydict()
    assert list(zip(table["unit"], table["count"], strict=True)) == [("cat", 3), ("...", 2), ("the", 2), (UNKNOWN, 6)]
    assert table["text"] == ["cat", "...", "the", ""]
    assert found == {"units": 4, "tokens": 13, "unknown_tokens": 6}
    ids, offsets = np.load(words / IDS), np.load(words / OFFSETS)
    assert ids[offsets[1] : offsets[2]].tolist() == [2, 0, 1]
    pieces = tmp_path / "pieces"
    pieces.mkdir()
    vocabulary = pa.array(["cat", UNKNOWN, "##s", "un", "##affable", "[CLS]"])
    alone = ["cat", "", "s", "un", "affable", "[CLS]"]
    of_teacher = Pieces(WORDPIECE, vocabulary, alone, np.arange(6, dtype=np.int32))
    write_units(tmp_path, of_teacher, TeachSettings(), pieces)
    table = pq.read_table(pieces / VOCABULARY).to_pydict()
    assert table["text"] == alone
    ids = np.load(pieces / IDS).tolist()
    assert Counter(ids) == Counter({1: 12, 0: 4, 2: 1, 3: 2, 4: 2})
    assert table["count"] == [Counter(ids)[row] for row in range(6)]


@pytest.mark.parametrize(("form", "counts"), [("nfkc", [4]), ("nfc", [3, 1, 1]), ("none", [2, 1, 1, 1])])
def test_words_of_texts_that_look_the_same_are_one_unit(form, counts, tmp_path):
    write_texts([pa.array(["cafés", "cafe\u0301s", "Cafés", "ｃaf\u00e9\u200bs"])], left_out([]), tmp_path)
    words = tmp_path / "words"
    words.mkdir()
    write_units(tmp_path, None, TeachSettings(min_count=1, normalize=form), words)
    table = pq.read_table(words / VOCABULARY).to_pydict()
    assert table["count"][:-1] == counts


MARKS = [
    *("don't", "DOESN’T", "Cannot", "it's", "we'RE", "``", "''", "“", '"', "(", "-LRB-", "-", "a-rsb-b", "["),
    *("o'clock", "wouldn't've", "1,650", "u.s.", "#tag", "http://a.b/c", "漢字", "İ", "ﬁ", "é", "\xad", "\u200d"),
    *("\ufe0f", " ", "'m"),
]


@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=12))
def test_a_tokenizer_does_not_hide_a_text(parts):
    texts = pa.array(["".join(parts), " ".join(parts)])
    assert keys_of(tokenize(texts, "ptb-v1").joined()).equals(keys_of(texts))


def test_settings_are_checked(tmp_path):
    for wrong in ({"min_count": 0}, {"l2": 0.0}, {"smoothing": float("inf")}, {"dim": 0}, {"units": "letters"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TeachSettings(**wrong)
    write_texts([pa.array(["a b"])], left_out([]), tmp_path)
    with pytest.raises(ValueError, match="no word occurs `min_count` = 9 times"):
        write_units(tmp_path, None, TeachSettings(min_count=9), tmp_path)
