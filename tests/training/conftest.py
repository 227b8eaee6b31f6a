"""Small trainings: an encoder over 42 words and pairs that share words."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import Encoder
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from paraembed.training.base_step import BaseStep


class Killed(BaseException):
    """Stands for a SIGKILL: nothing is saved on the way out."""


@contextmanager
def killed_before(step):
    """The training in the block is killed before this step."""
    original = BaseStep.__call__

    def killing(self, batch, number):
        if number == step:
            raise Killed
        return original(self, batch, number)

    with patch.object(BaseStep, "__call__", killing), pytest.raises(Killed):
        yield


def make_pairs():
    """1,030 pairs: the second text is the first with one word replaced, twice as long."""
    generator = np.random.default_rng(5)
    first = generator.integers(1, 40, (1030, 3), dtype=np.int32)
    second = np.repeat(first, 2, axis=1)
    second[:, 0] = generator.integers(1, 40, 1030)
    ids = np.concatenate([first, second], axis=1).reshape(-1)
    return Ragged(ids, np.concatenate(([0], np.cumsum(np.tile([3, 6], 1030)))))


def encoder_of(recipe):
    """An encoder over 42 words; equal at every call."""
    matrix = np.random.default_rng(1).standard_normal((42, 8), dtype=np.float32)
    words = Words(pa.array([UNKNOWN, *(f"w{number}" for number in range(39)), START, END]), matrix)
    return Encoder(recipe.encoder, words, "space", recipe.seed, bos_eos_tokens=recipe.bos_eos_tokens)


def same_bits(model, *others):
    """Whether models have the same parameters, to the bit."""
    ends = [other.state_dict() for other in others]
    return all(torch.equal(tensor, end[name]) for end in ends for name, tensor in model.state_dict().items())


@pytest.fixture
def pairs():
    """Those of ``make_pairs``."""
    return make_pairs()
