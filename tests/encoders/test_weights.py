"""An encoder in the form in which it travels to other processes."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.base import Weights
from paraembed.text.vocabulary import END, START, Words

TEXTS = ["the cat sat on the mat .", "", "a zebra", "a dog ran home ."]


@pytest.mark.parametrize("name", ENCODERS)
def test_weights_that_travelled_give_the_same_bits_and_are_not_copied(tiny_words, tmp_path, name):
    more = np.ones((2, 4), np.float32)
    words = Words(pa.array([*tiny_words.vocabulary.to_pylist(), START, END]), np.concatenate([tiny_words.matrix, more]))
    made = Encoder(ENCODERS[name](), words, "ptb-v1", 3, max_tokens=5, bos_eos_tokens="both")
    checkpoint.save(made, tmp_path / "encoder", recipe={}, provenance={}, model_card="")
    loaded = checkpoint.load(tmp_path / "encoder")
    buffers = []
    sent = pickle.dumps(Weights.of(loaded), protocol=5, buffer_callback=buffers.append)  # as Ray's object store does
    shared = [bytes(buffer) for buffer in buffers]  # read-only, as there
    arrived = pickle.loads(sent, buffers=shared).encoder()
    assert np.array_equal(arrived.encode(TEXTS), loaded.encode(TEXTS))
    fields = "fingerprint", "tokenizer", "max_tokens", "bos_eos_tokens"
    assert [getattr(arrived, field) for field in fields] == [loaded.fingerprint, "ptb-v1", 5, "both"]
    assert any(np.shares_memory(arrived.matrix.numpy(), np.frombuffer(buffer, np.uint8)) for buffer in shared if buffer)
