"""1 of k on held-out pairs: what is drawn, what is scored, what is refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.avg import AvgConfig
from paraembed.evaluation.choose import read_choose
from paraembed.evaluation.scoring import score_suite
from paraembed.evaluation.sets import Choices
from paraembed.words import UNKNOWN, Words


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    path = tmp_path / "held-out.tsv"
    path.write_text("".join(f"w{number} x\tw{number} y\n" for number in range(12)) + "same\tsame\nno pair\n")
    return path


def questions(path: Path, options: int) -> Choices:
    (questions,) = read_choose(path, options).groups[0].sets
    assert isinstance(questions, Choices)
    return questions


def test_what_is_drawn(held_out: Path) -> None:
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


def test_what_is_scored(held_out: Path) -> None:
    # Each pair has a direction of its own, x and y hardly count: every paraphrase is the nearest text.
    names = [UNKNOWN, "x", "y", *(f"w{number}" for number in range(12))]
    matrix = np.zeros((15, 13), np.float32)
    matrix[3:, :12] = np.eye(12)
    matrix[1, 12], matrix[2, 12] = 0.1, -0.1
    encoder = Encoder(AvgConfig(), Words(pa.array(names), matrix), "space")
    (score,) = score_suite(encoder, read_choose(held_out, 10))
    assert (score.name, score.label, score.num_pairs, score.value) == ("choose/10", "choose 10", 12, 1.0)
    assert score.intervals == {"accuracy": (1.0, 1.0)}
    assert score.num_tokens == 48


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a\tb\nc\td\n", 100, r"has 4 distinct texts; to choose from 100 takes 101: give more held-out pairs"),
        ("a\tb\nc\td\n", 1, r"--choices is 1; it must be at least 2"),
        ("a\ta\n", 2, r"holds no pairs of different texts"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, options: int, message: str) -> None:
    (tmp_path / "pairs.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_choose(tmp_path / "pairs.tsv", options)
    with pytest.raises(FileNotFoundError):
        read_choose(tmp_path / "none")
