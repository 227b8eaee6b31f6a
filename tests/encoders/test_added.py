"""Means and sums of word vectors: added up in compiled loops, on several threads, with the bits of PyTorch."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint, load
from paraembed.encoders import ENCODERS, Encoder, own
from paraembed.encoders.added import add_words
from paraembed.encoders.word_average import WordAverage
from paraembed.settings import SHIPPED_FOLDER, Inference
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import END, START, UNKNOWN, Words

WORDS = [UNKNOWN, *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["avg", "sum"])
def encoder(request):
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 301), dtype=np.float32)
    return Encoder(ENCODERS[request.param](), Words(pa.array(WORDS), matrix), "ptb-v1")


def drawn_texts(num_texts):
    generator = np.random.default_rng(1)
    letters = generator.choice(np.array(["é", " ", *WORDS[1:]]), (num_texts, 12))
    texts = [" ".join(row[:length]) for row, length in zip(letters, generator.integers(0, 13, num_texts), strict=True)]
    return [*texts[:-2], None, " "]


@pytest.mark.usefixtures("_threads")
def test_the_number_of_threads_and_slices_changes_no_bit(encoder):
    texts = drawn_texts(10_000)
    made = []
    for threads, batch_size in ((1, 20_000), (3, 20_000), (2, 501)):
        torch.set_num_threads(threads)
        made.append(encoder.embed(pa.array(texts), batch_size))
        np.testing.assert_array_equal(encoder.encode(texts, batch_size), made[0].vectors)
        assert torch.get_num_threads() == threads
    for other in made[1:]:
        np.testing.assert_array_equal(other.vectors, made[0].vectors)
        np.testing.assert_array_equal(other.num_tokens, made[0].num_tokens)
        np.testing.assert_array_equal(other.num_unknown, made[0].num_unknown)
    tokens = [(text or "").split() for text in texts]
    assert made[0].num_tokens.tolist() == [len(some) for some in tokens]
    assert made[0].num_unknown.tolist() == [some.count("é") for some in tokens]


@pytest.mark.parametrize("name", ["avg", "gru", "recursive"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_many_bytes_are_encoded_in_pieces(name, kind, monkeypatch):
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 8), dtype=np.float32)
    encoder = Encoder(ENCODERS[name](), Words(pa.array(WORDS), matrix), "ptb-v1")
    texts = drawn_texts(50)
    whole = encoder.embed(pa.array(texts, kind).slice(1))
    monkeypatch.setattr(own, "_BYTES_AT_ONCE", 60)
    pieces = encoder.embed(pa.array(texts, kind).slice(1))
    np.testing.assert_allclose(pieces.vectors, whole.vectors, rtol=0, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(texts[1:]), whole.vectors, rtol=0, atol=1e-6)
    assert (pieces.num_tokens == whole.num_tokens).all()
    assert pieces.num_without_tree == whole.num_without_tree


@pytest.mark.usefixtures("_threads")
def test_what_is_no_text_is_refused_on_any_thread(encoder):
    torch.set_num_threads(2)
    with pytest.raises(TypeError, match="of type int at position 9000"):
        encoder.encode([*["a"] * 9_000, 5])


@pytest.mark.parametrize(
    ("ids", "offsets", "more"),
    [
        ([0, 3], [0, 2], ()),
        ([0, 2**31 - 1], [0, 2], ()),
        ([0, -1], [0, 2], ()),
        ([0, 1], [0, 1, 3], ()),
        ([0, 3], [0, 2], (1.0,)),
        ([0, -3], [0, 2], (1.0, np.zeros((2, 4), np.float32))),
    ],
)
def test_ids_beyond_the_vectors_are_an_error_and_not_other_memory(ids, offsets, more):
    matrix, texts = np.zeros((3, 4), np.float32), Ragged(np.array(ids, np.int32), np.array(offsets))
    with pytest.raises(ValueError, match=r"tokens and 3 vectors"):
        add_words(matrix, texts, True, np.zeros((len(texts), 4), np.float32), *more)


FEW = ["a", "b", "c", "c a", UNKNOWN, START, END]
TEXTS = st.lists(st.none() | st.text("abcd ", max_size=12), max_size=9)


@given(
    texts=TEXTS,
    name=st.sampled_from(["avg", "sum"]),
    ends=st.sampled_from(["none", "start", "end", "both"]),
    oov=st.sampled_from(["shared", "drop"]),
    most=st.none() | st.integers(1, 4),
)
@pytest.mark.hypothesis
def test_vectors_and_counts_are_those_of_pytorch(texts, name, ends, oov, most):
    words = FEW if most is None else [word for word in FEW if " " not in word]  # bigrams have no maximum
    matrix = np.random.default_rng(0).standard_normal((len(words), 19), dtype=np.float32)
    options = {"tokenizer": "space", "bos_eos_tokens": ends, "max_tokens": most, "oov": oov}
    trained = Encoder(ENCODERS[name](), Words(pa.array(words), matrix), **options)
    light = WordAverage(ENCODERS[name](), pa.array(words), matrix, **options)
    for encoder in (light, light.packed().encoder()):
        made, expected = encoder.embed(texts, 4), trained.embed(texts, 4)
        np.testing.assert_array_equal(made.vectors, expected.vectors)
        np.testing.assert_array_equal(made.num_tokens, expected.num_tokens)
        np.testing.assert_array_equal(made.num_unknown, expected.num_unknown)
        assert made.num_cut == expected.num_cut


def test_an_encoder_that_pytorch_must_compute_is_one_of_pytorch():
    light, trained = load("small"), checkpoint.load(SHIPPED_FOLDER)
    assert (type(light), type(trained)) == (WordAverage, Encoder)
    assert light.fingerprint == trained.fingerprint
    assert light.provenance == trained.provenance
    texts = ["A man isn't playing the gujarati flute.", "", "naïve café"]
    np.testing.assert_array_equal(light.encode(texts), trained.encode(texts))
    assert isinstance(load("small", Inference(precision="bfloat16")), Encoder)
    with pytest.raises(ValueError, match="not on cuda"):
        light.placed("cuda", "float32")
