"""The layout without padding, against loops over texts."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders.packed import pack

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.booleans())
def test_slots_are_those_of_a_loop(lengths, backward):
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    texts = sorted(range(len(lengths)), key=lambda text: -lengths[text])  # stable: ties in the order given
    expected, sizes = [], []
    for step in range(max(lengths)):
        at_work = [text for text in texts if lengths[text] > step]
        sizes.append(len(at_work))
        expected += [int(offsets[text + 1]) - 1 - step if backward else int(offsets[text]) + step for text in at_work]
    packed = pack(offsets, CPU, backward=backward)
    assert packed.sizes == tuple(sizes)
    assert packed.tokens.tolist() == expected
    assert packed.slots[packed.tokens].tolist() == list(range(len(expected)))
    read_last = [int(start if backward else stop - 1) for start, stop in pairwise(offsets)]
    assert packed.tokens[packed.last].tolist() == read_last
