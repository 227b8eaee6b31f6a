"""Models of other libraries, tiny ones made here, score as our own encoder of the same vectors does."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import Candidate, peer
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import is_peer
from paraembed.text.vocabulary import UNKNOWN, Words

WORDS = [UNKNOWN, "cat", "dog", "on", "mat", "the"]
MATRIX = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)


@pytest.fixture(params=["st", "m2v"])
def model(request, tmp_path):
    """A saved model with the words above; its address."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs pip install 'paraembed[export]'")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: row for row, word in enumerate(WORDS)}, unk_token=UNKNOWN)
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "model"
    if request.param == "st":
        library = pytest.importorskip("sentence_transformers", reason="needs pip install 'paraembed[export]'")
        modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
        static = modules.StaticEmbedding(tokenizer, embedding_weights=MATRIX)
        library.SentenceTransformer(modules=[static], device="cpu").save(str(folder))
    else:
        library = pytest.importorskip("model2vec", reason="needs pip install 'paraembed[export]'")
        library.StaticModel(vectors=MATRIX, tokenizer=tokenizer, normalize=False).save_pretrained(folder)
    return f"{request.param}:{folder}"


@pytest.mark.filterwarnings("default")
def test_a_peer_scores_as_our_encoder_of_its_vectors(model):
    first = pa.array(["the cat", "dog on", "the mat", "cat"])
    pairs = ScoredPairs("test", np.array([4.0, 1, 3, 0]), first, pa.array(["cat", "the mat", "mat", "dog"]))
    ours = Encoder(AvgConfig(), Words(pa.array(WORDS), MATRIX.copy()), "space")
    candidate = peer(model)
    assert np.allclose(candidate.encoder.embed(first).vectors, ours.embed(first).vectors, atol=1e-6)
    suite = Suite("pairs", (Group("", (pairs,)),))
    report = compare([candidate, Candidate("ours", "", ours)], [suite], resamples=10)
    theirs, own = (column.scores[0] for column in report.columns)
    assert theirs.pearson == pytest.approx(own.pearson, abs=1e-6)
    assert (theirs.num_tokens, own.num_tokens) == (0, 12)
    head = report.tables()[0].head
    assert head == ("pairs", "pairs", "model", "95 %", "Spearman", "ours", "95 %", "Spearman", "unknown %")


@pytest.mark.filterwarnings("default")
def test_weights_that_could_run_code_are_refused(model):
    prefix, _, folder = model.partition(":")
    (Path(folder) / "module").mkdir()
    (Path(folder) / "module" / "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match=r"module/pytorch_model\.bin has no safetensors next to it"):
        peer(model)
    with pytest.raises(ValueError, match=r"is not a folder; give a model's folder, or its name on the hub"):
        peer(f"{prefix}:{folder}/none")
    (Path(folder) / "module" / "pytorch_model.bin").rename(Path(folder) / "module" / "readme.txt")
    for file in Path(folder).glob("*.json"):
        file.unlink()
    with pytest.raises(ValueError, match=f"{prefix}:.* is not a model that .* can load"):
        peer(model)


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(ValueError, match=r"m2v:x needs model2vec, but model2vec is not installed; pip install 'para"):
        peer("m2v:x")


def test_prefixes():
    assert [is_peer(name) for name in ("st:a", "m2v:a/b", "encoder", "c:/x", "st")] == [True, True, False, False, False]
