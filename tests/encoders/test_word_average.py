"""The mean and the sum of word vectors without PyTorch: the same bits as with it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint, load
from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.word_average import WordAverage
from paraembed.settings import SHIPPED_FOLDER, Inference
from paraembed.text.vocabulary import END, START, UNKNOWN, Words

WORDS = ["a", "b", "c", "c a", UNKNOWN, START, END]
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
    words = WORDS if most is None else [word for word in WORDS if " " not in word]  # bigrams have no maximum
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
