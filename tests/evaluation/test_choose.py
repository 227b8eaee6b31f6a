"""1 of k on held-out pairs: what is drawn, what is scored, what is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.choose import is_trained_on, read_choose
from paraembed.evaluation.scoring import score_suite
from paraembed.evaluation.sets import Choices, Group, Suite
from paraembed.evaluation.tables import Column, suite_tables
from paraembed.io.fingerprint import sha256_of
from paraembed.text.vocabulary import UNKNOWN, Words


@pytest.fixture
def held_out(tmp_path):
    path = tmp_path / "held-out.tsv"
    path.write_text("".join(f"w{number} x\tw{number} y\n" for number in range(12)) + "same\tsame\nno pair\n")
    return path


def questions(path, options):
    (questions,) = read_choose(path, options).groups[0].sets
    assert isinstance(questions, Choices)
    return questions


def test_what_is_drawn(held_out):
    drawn = questions(held_out, 10)
    assert drawn.first.shape == drawn.second.shape == (12, 10)
    assert len(drawn.distinct) == 24
    text = np.array(drawn.distinct.to_pylist())
    assert text[drawn.first[:, 0]].tolist() == [f"w{number} x" for number in range(12)]
    assert (drawn.first == drawn.first[:, :1]).all()
    assert text[drawn.second[:, 0]].tolist() == [f"w{number} y" for number in range(12)]
    for pair in (drawn.first, drawn.second[:, :1]):  # no contrast phrase is a text of the pair
        assert (drawn.second[:, 1:] != pair[:, :1]).all()
    many = np.concatenate([questions(held_out, 23).second[:, 1:].ravel(), drawn.second[:, 1:].ravel()])
    assert set(many) == set(range(24))
    assert (questions(held_out, 10).second == drawn.second).all()
    (note,) = read_choose(held_out, 10).notes
    assert note == "choose: 2 rows of held-out.tsv are no pairs of different texts and were left out"


def test_what_is_scored(held_out):
    # Each pair has a direction of its own, x and y hardly count: every paraphrase is the nearest text.
    names = [UNKNOWN, "x", "y", *(f"w{number}" for number in range(12))]
    matrix = np.zeros((15, 13), np.float32)
    matrix[3:, :12] = np.eye(12)
    matrix[1, 12], matrix[2, 12] = 0.1, -0.1
    encoder = Encoder(AvgConfig(), Words(pa.array(names), matrix), "space")
    (score,) = score_suite(encoder, read_choose(held_out, 10))
    assert (score.name, score.label, score.num_pairs, score.value) == ("choose/10", "choose 10", 12, 1.0)
    assert score.intervals == {"accuracy": (1.0, 1.0)}
    assert score.num_tokens == 12 * 10 * 4  # an option's two texts of two words, as often as they occur
    assert score.chance == 0.1


def test_ties_share_and_unknown_words_are_counted():
    words = Words(pa.array([UNKNOWN, "a", "b"]), np.array([[0, 1], [1, 0], [0.6, 0.8]], np.float32))
    texts = pa.array(["a", "b", "yak", "gnu"])
    # Right alone; right with another of the same unknown vector; wrong.
    second = np.array([[1, 2, 3], [2, 3, 3], [3, 1, 2], [2, 1, 1]], np.int32)
    asked = Choices("3", texts, np.array([[0] * 3, [3] * 3, [0] * 3, [0] * 3], np.int32), second)
    suite = Suite("turney", (Group("", (asked,)),), measure="accuracy")
    (score,) = score_suite(Encoder(AvgConfig(), words, "space"), suite, resamples=200)
    assert score.values == {"accuracy": pytest.approx((1 + 1 / 3) / 4), "accuracy_strict": 1 / 4}
    assert score.intervals["accuracy"][0] < score.value < score.intervals["accuracy"][1]
    # first: "gnu" thrice, "a" nine times; second: yak 4, gnu 4, b 4
    assert (score.num_tokens, score.num_unknown) == (24, 3 + 8)
    column = Column("mine", "", (score,))
    (table,) = suite_tables(
        [replace(column, label="other", scores=(replace(score, values={"accuracy": 1.0}),)), column], {}
    )
    assert table.rows[0][table.head.index("chance")] == "33.3"
    assert table.rows[0][table.head.index("mine")] == "33.3= (25.0)"  # a tie: the same resamples
    assert any(note.startswith("where a right answer shares the first place") for note in table.notes)


def test_the_shards_of_a_training_are_known_by_their_manifest(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    digest = sha256_of(tmp_path / "manifest.json")
    assert is_trained_on(tmp_path, digest)
    assert not is_trained_on(tmp_path, "")
    assert not is_trained_on(tmp_path, digest[::-1])
    assert not is_trained_on(tmp_path / "manifest.json", digest)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("pairs.tsv", "a\tb\nc\td\n", 100, r"has 4 distinct texts, but 100 choices need 101; give more held-out pairs"),
        ("pairs.tsv", "a\ta\n", 2, r"has no pairs of different texts"),
        ("pairs.csv", "a,b,c\nd,e,f\n", 2, r"3 columns .*jobs/shard\.py: .* give `held_out`"),
        ("other", "", 2, r"pairs\.tsv"),
    ],
)
def test_what_is_refused(tmp_path, name, text, options, message):
    (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_choose(tmp_path / name.replace("other", "pairs.tsv"), options)
