from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, ScaledAvgConfig
from paraembed.evaluation.analyses.content import CannotMakeError
from paraembed.evaluation.analyses.words import common_words, default_words, nearest, neighbors, norms
from paraembed.evaluation.candidates import Candidate
from paraembed.settings import AnalysisOptions
from paraembed.text.vocabulary import END, START, UNKNOWN, Words


def test_neighbors_of_a_hand_example():
    matrix = np.array([[2, 0], [0, 3], [1, 1], [0, 0], [-1, 0]], np.float32)
    rows, cosines = nearest(np.array([[5, 0], [0, 0]], np.float32), matrix, 3)
    assert rows[0].tolist() == [0, 2, 1]
    assert np.allclose(cosines[0], [1, 2**-0.5, 0])
    assert cosines[1].tolist() == [0, 0, 0]


def test_the_unknown_and_the_boundary_words_are_no_words():
    words = Words(pa.array([START, "cat", UNKNOWN, "dog", END]), np.arange(10, dtype=np.float32).reshape(5, 2))
    found, matrix = common_words(Encoder(AvgConfig(), words, "space"))
    assert found == ["cat", "dog"]
    assert matrix.tolist() == [[2, 3], [6, 7]]


def test_vectors_are_those_that_enter_a_text():
    words = Words(pa.array([UNKNOWN, "cat", "dog"]), np.array([[1, 1], [3, 4], [1, 0]], np.float32))
    encoder = Encoder(ScaledAvgConfig(), words, "space")
    with torch.no_grad():
        encoder.composition.scale.copy_(torch.tensor([1.0, 2.0, -3.0]))
    assert common_words(encoder)[1].tolist() == encoder.encode(["cat", "dog"]).tolist() == [[6, 8], [-3, 0]]


def test_default_words_are_the_papers_and_common_ones():
    vocabulary = [f"{letter}{other}xyz" for letter in "abcdefghij" for other in "abcdefghijklmnopqrst"]
    vocabulary[3] = "disagree"
    words = default_words(vocabulary)
    assert words[0] == "disagree"
    assert len({*words}) == 10
    assert {*words[1:]} <= {*vocabulary[100:]}
    assert default_words(["a", "2"]) == ["2"]


def _inputs(inputs, *asked):
    vocabulary = pa.array(["the", "cat", "dog", "idea", UNKNOWN])
    matrix = np.array([[0.1, 0], [3, 4], [4, 4], [-6, 8], [1, 1]], np.float32)
    candidate = Candidate("avg", "", Encoder(AvgConfig(), Words(vocabulary, matrix), "space"))
    return replace(inputs, candidates=(candidate,), options=AnalysisOptions(neighbors_of=asked))


def test_words_that_a_user_asks_for_and_norms_from_both_ends(inputs):
    (table,) = neighbors(_inputs(inputs, "Cat", "unicorn")).tables
    assert table.rows == (("cat", "dog 0.99, the 0.60, idea 0.28"), ("unicorn", "not in the vocabulary"))
    (table,) = norms(_inputs(inputs)).tables
    expected = (("idea", 10.0, "the", float(np.float32(0.1))), ("dog", 32**0.5, "cat", 5.0))
    assert [row[::2] for row in table.rows] == [row[::2] for row in expected]
    assert np.allclose([row[1::2] for row in table.rows], [row[1::2] for row in expected])


def test_a_vocabulary_of_one_word_has_no_ends(inputs):
    words = Words(pa.array([UNKNOWN, "cat"]), np.ones((2, 2), np.float32))
    candidate = Candidate("avg", "", Encoder(AvgConfig(), words, "space"))
    with pytest.raises(CannotMakeError, match="two or more words"):
        norms(replace(inputs, candidates=(candidate,)))
