"""Weighted averages: the weights by hand, and that a vector depends on its text alone; models of other libraries."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation import baselines
from paraembed.evaluation.baselines import BASELINES, Sources, WordOverlap, baseline, read_counts
from paraembed.evaluation.evaluate import EvaluationRequest, find_candidates
from paraembed.io.lines import read_lines
from paraembed.settings import Inference
from paraembed.text import vocabulary
from paraembed.text.vocabulary import UNKNOWN, Words, read_words
from tests.encoders.models import MATRIX, save_tiny

COUNTS = {"the": 700, "a": 200, "cat": 60, "dog": 30, "zebra": 10}
CORPUS = ["the cat sat", "a dog ran home", "", "the dog sat on the mat .", "cat , dog"]
TEXTS = ["the cat", "dog", "", "zebra ran", "the cat sat on a mat"]


@pytest.fixture(scope="module")
def sources(tiny_words, tmp_path_factory):
    """The twelve words as a file, counts of five, five texts, and an encoder of other vectors of ten of the words."""
    folder = tmp_path_factory.mktemp("sources")
    rows = zip(tiny_words.vocabulary.to_pylist(), tiny_words.matrix.tolist(), strict=True)
    (folder / "words").write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows))
    (folder / "counts").write_text("".join(f"{word} {count}\n" for word, count in COUNTS.items()))
    (folder / "corpus").write_text("".join(f"{text}\n" for text in CORPUS))
    trained = Words(tiny_words.vocabulary.slice(0, 10), np.random.default_rng(7).standard_normal((10, 3), np.float32))
    checkpoint.save(Encoder(AvgConfig(), trained, "space"), folder / "trained", recipe={}, provenance={}, model_card="")
    return Sources(folder / "words", folder / "counts", folder / "corpus", folder / "trained", tokenizer="space")


def weight_by_hand(name, word, sources):
    if name == "l1":
        assert sources.trained is not None
        trained = checkpoint.load(sources.trained)
        row = trained.vocabulary.to_pylist().index(word if word in trained.vocabulary.to_pylist()[:10] else UNKNOWN)
        return float(sum(abs(value) for value in trained.matrix[row].tolist()))
    count, total = COUNTS.get(word, 0), 1000
    rare = COUNTS["zebra"] if word == UNKNOWN else max(count, 1)  # the one counted word without a vector
    return {"avg": 1.0, "sif": 1e-3 / (1e-3 + count / total), "inverse-frequency": total / rare}[name]


def by_hand(name, text, sources):
    words = read_words(sources.words)
    known = words.vocabulary.to_pylist()
    vectors = []
    for token in text.split():
        word = token if token in known else UNKNOWN
        vectors.append(weight_by_hand(name, word, sources) * words.matrix[known.index(word)].astype(np.float64))
    return np.mean(vectors, axis=0) if vectors else np.zeros(4)


@pytest.mark.parametrize("name", ["avg", "sif", "inverse-frequency", "l1"])
def test_vectors_are_weighted_means(name, sources):
    vectors = baseline(name, sources).encoder.encode(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, by_hand(name, text, sources), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("removed", [1, 2])
def test_common_components_are_those_of_the_corpus_and_are_gone(sources, removed, monkeypatch):
    """From each text, whatever texts are encoded with it; they are fitted on batches of the corpus."""
    monkeypatch.setattr(baselines, "BATCH_SIZE", 2)
    some = Sources(**{**vars(sources), "removed": removed})
    made = baseline("sif-common", some)
    corpus = np.stack([by_hand("sif", text, sources) for text in CORPUS])
    common = np.linalg.svd(corpus)[2][:removed]
    vectors = zip(TEXTS, made.encoder.encode(TEXTS), made.encoder.encode(TEXTS[::-1], 2)[::-1], strict=True)
    for text, vector, of_two in vectors:
        whole = by_hand("sif", text, sources)
        np.testing.assert_allclose(vector, whole - common.T @ (common @ whole), rtol=0, atol=1e-5)
        np.testing.assert_allclose(common @ vector, 0, atol=1e-5)
        np.testing.assert_allclose(vector, of_two, rtol=0, atol=1e-6)
    share = np.square(corpus @ common.T).sum() / np.square(corpus).sum()
    assert f"{share:.0%} of the squared length of the texts of corpus" in made.description


def test_they_are_candidates_for_a_report(sources):
    candidates = [baseline(name, sources) for name in BASELINES]
    assert [one.label for one in candidates] == list(BASELINES)
    assert all(one.is_baseline and one.kind == "" for one in candidates)
    described = {one.label: one.description for one in candidates}["inverse-frequency"]
    assert "counted words without a vector, 1.0% of the counts, are one; 7 words count 1" in described


@given(words=st.lists(st.sampled_from(["a", "A", "b", "7", "42", "é"]), min_size=1), order=st.sampled_from([1, -1]))
def test_counts_add_up_in_either_order_of_the_columns(words, order, tmp_path_factory):
    path, counted = tmp_path_factory.mktemp("counts") / "counts", Counter(words)
    rows = [(word, str(count))[::order] for word, count in counted.items()]
    path.write_text("".join("  " * (order < 0) + f"{first} {second}\n" for first, second in rows))
    if order < 0 and all(word.isdigit() for word in counted):
        return  # which column has the counts cannot be seen
    found, total = read_counts(path, pa.array(["a", "42"]))
    assert (found.tolist(), total) == ([counted["a"] + counted["A"], counted["42"]], len(words))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 3\ncat\n", r"counts, line 2: 'cat'; expected 'word count'"),
        ("the x\ncat y\n", r"neither its first nor its second column contains only whole numbers"),
        ("the 0\n", "all counts are 0"),
        ("the 3\ncat -1\n", "neither its first"),
    ],
)
def test_bad_counts_are_refused(text, message, tmp_path):
    (tmp_path / "counts").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_counts(tmp_path / "counts", pa.array(["the"]))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sif-common", {"counts": None, "corpus": None}, r"sif-common needs .* set `counts` and `corpus`"),
        ("l1", {"trained": None}, "l1 needs more files than word vectors; set `trained`"),
        ("sif-common", {"removed": 4}, r"removed is 4, but vectors have only 4 dimensions; allowed: 1 to 3"),
        ("sif", {"removed": 0}, "removed is 0; at least 1 component"),
        ("sif", {"smoothing": 0.0}, r"smoothing is 0\.0; it must be above 0"),
    ],
)
def test_what_is_missing_or_not_allowed_is_said(name, changes, message, sources):
    with pytest.raises(ValueError, match=message):
        baseline(name, Sources(**{**vars(sources), **changes}))


@pytest.mark.parametrize(
    ("one", "other", "share", "of_lemmas"),
    [
        ("my dad had", "my father had", 2 / 3, None),
        ("the cats sat", "cats", 1, None),
        ("the the cat", "the dog ran on", 2 / 3, None),  # of the shorter one's words, repeated ones too
        ("a a b", "a c d", 2 / 3, None),  # as long as each other: 2/3 and 1/3
        ("", "a", 0, 0),
        ("A", "a", 1, 1),
        ("two cats", "the cat sat", 0, 1 / 2),
    ],
)
def test_overlap_by_hand(one, other, share, of_lemmas):
    for lemmatized, expected in ((False, share), (True, of_lemmas)):
        if expected is not None:
            both_ways = WordOverlap(lemmatized=lemmatized).similarity(pa.array([one, other]), pa.array([other, one]))
            assert both_ways.tolist() == pytest.approx([expected] * 2)


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


def test_word_vectors_are_read_once(tmp_path, monkeypatch):
    (tmp_path / "vectors").write_text("cat 1 2\ndog 3 4\n")
    (tmp_path / "counts").write_text("cat 3\ndog 1\n")
    files = []
    monkeypatch.setattr(vocabulary, "read_lines", lambda path: files.append(path) or read_lines(path))
    names = ("sif", "inverse-frequency")
    request = EvaluationRequest(words=tmp_path / "vectors", counts=tmp_path / "counts", baselines=names)
    assert [candidate.label for candidate in find_candidates(request, None)] == ["untrained", *names]
    assert files == [tmp_path / "vectors"]
