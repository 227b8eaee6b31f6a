"""An encoder in the form in which it travels to other processes."""

import pickle

import numpy as np
import pytest

from paraembed import checkpoint
from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.encoders.weights import Weights

TEXTS = ["the cat sat on the mat .", "", "a zebra", "a dog ran home ."]


@pytest.mark.parametrize("name", ENCODERS)
def test_weights_that_travelled_give_the_same_bits_and_are_not_copied(tiny_words, tmp_path, name):
    made = Encoder(ENCODERS[name](), tiny_words, "ptb-v1", 3, max_tokens=5)
    checkpoint.save(made, tmp_path / "encoder", recipe={}, provenance={}, model_card="")
    loaded = checkpoint.load(tmp_path / "encoder")
    buffers = []
    sent = pickle.dumps(Weights.of(loaded), protocol=5, buffer_callback=buffers.append)  # as Ray's object store does
    shared = [bytes(buffer) for buffer in buffers]  # read-only, as there
    arrived = pickle.loads(sent, buffers=shared).encoder()
    assert np.array_equal(arrived.encode(TEXTS), loaded.encode(TEXTS))
    assert (arrived.fingerprint, arrived.tokenizer, arrived.max_tokens) == (loaded.fingerprint, "ptb-v1", 5)
    assert any(np.shares_memory(arrived.matrix.numpy(), np.frombuffer(buffer, np.uint8)) for buffer in shared if buffer)


def test_boundary_tokens_travel(tiny_words, tmp_path):
    made = Encoder(AvgConfig(), tiny_words, "space")
    assert Weights.of(made).encoder().bos_eos_tokens == made.bos_eos_tokens
