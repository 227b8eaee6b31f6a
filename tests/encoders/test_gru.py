"""``gru`` against ``torch.nn.GRU``, where both are the same function; ``test_encoders`` has the loop."""

from itertools import pairwise

import pytest
import torch

from paraembed.encoders.configs import GruConfig

OFFSETS = torch.tensor([0, 4, 5, 12, 19, 20])


def made(width, *, bias):
    gru = GruConfig(bias, width).build(6, torch.Generator().manual_seed(1)).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return gru


def ids_and_rows(num_rows):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(num_rows, 6, generator=generator, dtype=torch.float64)
    return torch.randint(0, num_rows, (20,), generator=generator, dtype=torch.int32), rows


@pytest.mark.parametrize("offsets", [[0, 3, 4, 8, 10], [0, 1, 2], [0, 10]])
def test_every_entry_of_the_gradient(offsets):
    gru = made(3, bias=True)
    ids, rows = ids_and_rows(4)
    rows.requires_grad_()
    at = torch.tensor(offsets)
    assert torch.autograd.gradcheck(lambda rows, *_: gru(rows, ids[: offsets[-1]], at), (rows, *gru.parameters()))


def torchs(gru):
    """The same weights in ``torch.nn.GRU``; its z is our 1 - z, and it stacks r, z, n."""
    other = torch.nn.GRU(6, gru.width, bias=False, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in (("weight_ih_l0", gru.input_weight), ("weight_hh_l0", gru.state_weight)):
            z, r, candidate = weight.chunk(3)
            getattr(other, name).copy_(torch.cat([r, -z, candidate]))
    return other


def test_the_reset_gate_acts_before_the_weight():
    """torch lets it act behind U: the same function only where U is diagonal."""
    gru = made(5, bias=False)
    ids, rows = ids_and_rows(9)

    def by_torch():
        return torch.stack([torchs(gru)(rows[ids[a:b]])[1][0] for a, b in pairwise(OFFSETS.tolist())])

    assert (gru(rows, ids, OFFSETS) - by_torch()).abs().max() > 0.01
    with torch.no_grad():
        candidate = gru.state_weight[2 * 5 :]
        candidate.copy_(candidate.diag().diag())
    torch.testing.assert_close(gru(rows, ids, OFFSETS), by_torch())
