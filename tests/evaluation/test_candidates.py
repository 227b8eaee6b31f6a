"""Models of other libraries score as our own encoder of the same vectors does."""

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import Candidate, foreign
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import is_peer
from paraembed.text.vocabulary import Words
from tests.encoders.models import MATRIX, WORDS, save_tiny


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
def test_a_model_scores_as_our_encoder_of_its_vectors(tmp_path, kind):
    first = pa.array(["the cat", "dog on", "the mat", "cat"])
    pairs = ScoredPairs("test", np.array([4.0, 1, 3, 0]), first, pa.array(["cat", "the mat", "mat", "dog"]))
    ours = Encoder(AvgConfig(), Words(pa.array(WORDS), MATRIX.copy()), "space")
    candidate = foreign(save_tiny(kind, tmp_path / "model"))
    report = compare([candidate, Candidate("ours", "", ours)], [Suite("pairs", (Group("", (pairs,)),))], resamples=10)
    theirs, own = (column.scores[0] for column in report.columns)
    assert theirs.pearson == pytest.approx(own.pearson, abs=1e-6)
    assert theirs.num_tokens == own.num_tokens == 12


def test_prefixes():
    names = ("st:a", "m2v:a/b", "onnx:a", "encoder", "c:/x", "st")
    assert [is_peer(name) for name in names] == [True, True, True, False, False, False]
