"""Models of other libraries score as our own encoder of the same vectors does."""

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import Candidate, named
from paraembed.evaluation.evaluate import EvaluationRequest, find_candidates
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.io.lines import read_lines
from paraembed.settings import Inference, is_peer
from paraembed.text import vocabulary
from paraembed.text.vocabulary import Words
from tests.encoders.models import MATRIX, WORDS, save_tiny


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
def test_a_model_scores_as_our_encoder_of_its_vectors(tmp_path, kind):
    first = pa.array(["the cat", "dog on", "the mat", "cat"])
    pairs = ScoredPairs("test", np.array([4.0, 1, 3, 0]), first, pa.array(["cat", "the mat", "mat", "dog"]))
    ours = Encoder(AvgConfig(), Words(pa.array(WORDS), MATRIX.copy()), "space")
    candidate = named(save_tiny(kind, tmp_path / "model"))
    report = compare([candidate, Candidate("ours", "", ours)], [Suite("pairs", (Group("", (pairs,)),))], resamples=10)
    theirs, own = (column.scores[0] for column in report.columns)
    assert theirs.pearson == pytest.approx(own.pearson, abs=1e-6)
    assert theirs.num_tokens == own.num_tokens == 12


@pytest.mark.filterwarnings("default")
def test_encoders_are_scored_with_the_settings_of_embedding(tmp_path, tiny_encoder_folder):
    names = (str(tiny_encoder_folder), save_tiny("onnx", tmp_path / "model"))
    how = Inference(prompt="dog ", precision="bfloat16")
    with pytest.raises(ValueError, match="`precision`"):
        find_candidates(EvaluationRequest(names, inference=how), None)
    own, other = find_candidates(EvaluationRequest(names, inference=Inference(prompt="dog ")), None)
    assert own.encoder.identity == {}
    assert np.allclose(other.encoder.embed(pa.array(["the cat"])).vectors, MATRIX[[2, 5, 1]].mean(axis=0), atol=1e-6)
    assert other.description == "model, a model of onnxruntime, prompt 'dog '".replace("model", names[1][5:], 1)
    (coarse,) = find_candidates(EvaluationRequest(names[:1], inference=Inference(precision="bfloat16")), None)
    assert coarse.encoder.identity["precision"] == "bfloat16"
    assert coarse.description.endswith("precision 'bfloat16'")
    with pytest.raises(ValueError, match="`prompt` only applies"):
        find_candidates(EvaluationRequest(names[:1], inference=how), None)


def test_prefixes():
    names = ("st:a", "m2v:a/b", "onnx:a", "encoder", "c:/x", "st")
    assert [is_peer(name) for name in names] == [True, True, True, False, False, False]


def test_word_vectors_are_read_once(tmp_path, monkeypatch):
    (tmp_path / "vectors").write_text("cat 1 2\ndog 3 4\n")
    (tmp_path / "counts").write_text("cat 3\ndog 1\n")
    files = []
    monkeypatch.setattr(vocabulary, "read_lines", lambda path: files.append(path) or read_lines(path))
    names = ("sif", "inverse-frequency")
    request = EvaluationRequest(words=tmp_path / "vectors", counts=tmp_path / "counts", baselines=names)
    assert [candidate.label for candidate in find_candidates(request, None)] == ["untrained", *names]
    assert files == [tmp_path / "vectors"]
