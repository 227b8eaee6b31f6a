"""The layout without padding, against loops over texts."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders.packed import pack, project_words, text_means

CPU = torch.device("cpu")
LENGTHS = [2, 3, 1, 3, 7]


def offsets_of(lengths):
    return torch.tensor([0, *np.cumsum(lengths)])


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.booleans())
def test_slots_are_those_of_a_loop(lengths, backward):
    offsets = offsets_of(lengths)
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


def test_steps_and_what_was_before():
    packed = pack(offsets_of(LENGTHS), CPU)
    places, ranks = torch.arange(16), torch.arange(5)
    steps = packed.steps(places, ranks)
    assert [slots.tolist() for slots, _ in steps] == [
        list(range(*span)) for span in pairwise(accumulate(packed.sizes, initial=0))
    ]
    assert [texts.tolist() for _, texts in steps] == [list(range(size)) for size in packed.sizes]
    later = packed.tokens[packed.sizes[0] :]
    torch.testing.assert_close(packed.before(packed.tokens), later - 1)
    assert pack(offsets_of([1, 1]), CPU).before(torch.ones(2, 3)).shape == (0, 3)


@pytest.mark.parametrize("num_rows", [3, 40])  # fewer and more than the tokens
@pytest.mark.parametrize("biased", [True, False])
def test_words_are_projected_one_by_one(num_rows, biased):
    generator = torch.Generator().manual_seed(1)
    rows, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((num_rows, 4), (5, 4), (5,))
    )
    ids = torch.randint(num_rows, (16,), generator=generator, dtype=torch.int32)
    projected = project_words(rows, ids, weight, bias if biased else None)
    assert projected.shape == (16, 5)
    for row, vector in zip(ids, projected, strict=True):
        torch.testing.assert_close(vector, weight @ rows[row] + (bias if biased else 0))
    assert torch.autograd.gradcheck(lambda *parts: project_words(parts[0], ids, *parts[1:]), (rows, weight, bias))


@pytest.mark.parametrize("backward", [False, True])
def test_means_are_those_of_each_text(backward):
    offsets = offsets_of(LENGTHS)
    vectors_TH = torch.randn(16, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    packed = pack(offsets, CPU, backward=backward)
    means = text_means(vectors_TH[packed.tokens], packed, offsets)
    expected = torch.stack([vectors_TH[start:stop].mean(0) for start, stop in pairwise(offsets)])
    torch.testing.assert_close(means, expected)
    leaf = vectors_TH.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda vectors: text_means(vectors, packed, offsets), leaf)
