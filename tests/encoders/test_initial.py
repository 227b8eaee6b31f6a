"""Initial values of the released code: FACTS §7, "Initial values"."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import ENCODERS, Encoder
from paraembed.text.vocabulary import UNKNOWN, Words

OF_RELEASED = {"proj", "rnn", "lstm", "lstm_avg", "bilstm", "bilstm_avg", "bigran", "gran_nogate"} | {
    "gran",
    *(f"gran{number}" for number in range(2, 6)),
}


def encoder_of(name, init):
    words = Words(pa.array([UNKNOWN, "a", "b"]), np.ones((3, 30), np.float32))
    return Encoder(ENCODERS[name](), words, "space", 3, init=init)


@pytest.mark.parametrize("name", ENCODERS)
def test_released_values_differ_where_that_code_draws_others(name):
    ours, released = (encoder_of(name, init).state_dict() for init in ("ours", "released"))
    differ = {key for key, tensor in ours.items() if not torch.equal(tensor, released[key])}
    assert ENCODERS[name].has_released_init == (name in OF_RELEASED) == bool(differ)
    assert not any(key.endswith("bias") for key in differ)


def test_released_values_have_their_spread():
    lstm = encoder_of("lstm", "released").state_dict()
    for name in ("input_weight", "state_weight", "peepholes"):
        assert float(lstm[f"composition.reader.{name}"].std()) == pytest.approx(0.1, rel=0.2)
    rnn, proj = (encoder_of(name, "released").state_dict() for name in ("rnn", "proj"))
    assert float(rnn["composition.state_weight"].abs().max()) == pytest.approx(0.01, rel=0.05)
    assert float(proj["composition.weight"].abs().max()) == pytest.approx((6 / 60) ** 0.5, rel=0.05)
