"""Encoders with bigrams: their vectors are added, and everything else counts tokens alone."""

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, DanConfig, GranConfig, SumConfig
from paraembed.encoders.tables import of_mean_length
from paraembed.evaluation.analyses.words import common_words
from paraembed.export.folder import write_folder
from paraembed.export.smaller import averaged, pruned, token_counts, write_smaller
from paraembed.export.word2vec import words_of, write_word2vec
from paraembed.recipe import Recipe
from paraembed.settings import Smaller
from paraembed.text.vocabulary import UNKNOWN, Words, read_words
from paraembed.training.initial import estimate
from paraembed.training.pairs import pairs_to_ids

WORDS = [UNKNOWN, "cat", "dog", "naps", "cat\tnaps", "dog\tcat"]
MATRIX = np.random.default_rng(0).standard_normal((len(WORDS), 6), dtype=np.float32)
TEXTS = ["cat naps", "dog cat naps", "cat bird naps", "", "naps cat"]
IDS = [[1, 3, 4], [2, 1, 3, 5, 4], [1, 0, 3], [], [3, 1]]


def encoder_with(config=None, **options):
    words = Words(pa.array(WORDS), MATRIX.copy())
    return Encoder(config or AvgConfig(), words, "ptb-v1", **options).requires_grad_(False).eval()


def means(ids):
    return np.array([MATRIX[of_text].mean(axis=0) if of_text else np.zeros(6) for of_text in ids])


@pytest.mark.parametrize("config", [AvgConfig(), SumConfig()])
def test_vectors_of_bigrams_are_added_and_only_tokens_are_counted(config, tmp_path):
    encoder = encoder_with(config)
    lengths = np.array([[len(of_text)] for of_text in IDS])
    expected = means(IDS) * (lengths if config.name == "sum" else 1)
    checkpoint.save(encoder, tmp_path / "encoder", recipe={}, provenance={}, model_card="")
    for read in (encoder, checkpoint.load(tmp_path / "encoder"), encoder.packed().encoder()):
        embedded = read.embed(pa.array(TEXTS))
        np.testing.assert_allclose(embedded.vectors, expected, atol=1e-6)
        assert embedded.num_tokens.tolist() == [2, 3, 3, 0, 2]
        assert embedded.num_unknown.tolist() == [0, 0, 1, 0, 0]


def test_dropped_tokens_leave_no_bigram_behind():
    vectors = encoder_with(oov="drop").embed(pa.array(TEXTS)).vectors
    np.testing.assert_allclose(vectors, means([*IDS[:2], [1, 3], *IDS[3:]]), atol=1e-6)


@pytest.mark.parametrize("tokenizer", ["space", "ptb-v1"])
def test_pairs_are_trained_with_their_bigrams(tokenizer):
    pairs = pa.table({"first": ["cat naps", "dog cat naps"], "second": ["cat bird naps", "naps cat"]})
    texts = pairs_to_ids([pairs], pa.array(WORDS), tokenizer=tokenizer)
    found = [texts.ids[start:stop].tolist() for start, stop in zip(texts.offsets, texts.offsets[1:], strict=False)]
    assert found == [IDS[0], IDS[2], IDS[1], IDS[4]]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"config": GranConfig()}, "gran"), ({"config": DanConfig()}, "dan"), ({"max_tokens": 9}, "9")],
)
def test_encoders_that_do_not_add_up_are_refused(options, named):
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        encoder_with(**options)


def test_smaller_encoders_keep_frequent_bigrams_and_averages_have_vectors_of_mean_length_1():
    counts = token_counts(encoder_with(), lambda: iter([pa.array(TEXTS)]))
    assert counts.tolist() == [1, 4, 1, 4, 2, 1]
    assert pruned(encoder_with(), counts, 3).vocabulary.to_pylist() == [UNKNOWN, "cat", "naps", "cat\tnaps"]
    lengths = np.linalg.norm(averaged([encoder_with(), encoder_with()], ["a", "b"]).matrix.numpy(), axis=1)
    assert lengths.mean() == pytest.approx(1)
    np.testing.assert_allclose(of_mean_length(MATRIX) / MATRIX, lengths[0] / np.linalg.norm(MATRIX[0]))


def test_fractions_of_smaller_encoders_are_those_of_tokens(tmp_path):
    checkpoint.save(encoder_with(), tmp_path / "encoder", recipe={}, provenance={}, model_card="")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    _, measures = write_smaller([tmp_path / "encoder"], tmp_path / "out", Smaller(max_words=3), tmp_path / "texts.txt")
    assert measures == {"oov_before": 1 / 10, "oov": 2 / 10, "more_tokens": 0}


def test_memory_of_a_training_counts_a_bigram_for_each_token(tmp_path):
    checkpoint.save(encoder_with(), tmp_path / "encoder", recipe={}, provenance={}, model_card="")
    found, without = (estimate(words, Recipe(), 50, 10, 1).pairs for words in (tmp_path / "encoder", MATRIX.shape))
    assert found - without == 4 * 50


def test_common_words_are_no_bigrams():
    assert common_words(encoder_with())[0] == ["cat", "dog", "naps"]


def test_word2vec_keeps_bigrams_and_no_other_format_takes_them(tmp_path):
    write_word2vec(words_of(encoder_with()), tmp_path / "words.txt")
    read = read_words(tmp_path / "words.txt")
    assert read.vocabulary.to_pylist() == WORDS
    np.testing.assert_allclose(read.matrix, MATRIX, rtol=1e-6)
    for to in ("sentence-transformers", "model2vec", "onnx"):
        with pytest.raises(ValueError, match="word2vec"):
            write_folder(encoder_with(), to, tmp_path / "out")
    assert not (tmp_path / "out").exists()
