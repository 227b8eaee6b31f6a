"""Optimizers of rows, where rounding would hide a difference from ``tests/parity``."""

import numpy as np
import pytest
import torch

from paraembed.training.update import RowAdaGrad, RowAdam, RowSgd, bias_of


def draws(steps):
    generator = torch.Generator().manual_seed(3)
    made = []
    for _ in range(steps):
        rows = torch.randperm(6, generator=generator)[:3]
        made.append((rows, torch.randn(3, 2, generator=generator)))
    return made


@pytest.mark.parametrize("kind", [RowAdam, RowAdaGrad, lambda _, rate: RowSgd(rate)], ids=["adam", "adagrad", "sgd"])
def test_a_row_that_comes_again_moves_once(kind):
    once, again = torch.ones(6, 2), torch.ones(6, 2)
    one, other = kind(once, 0.1), kind(again, 0.1)
    for step, (rows, grad) in enumerate(draws(5), 1):
        one.update(once, rows, grad, bias_of(step))
        tensors = torch.tensor(bias_of(step)[0]), torch.tensor(bias_of(step)[1])
        other.update(again, torch.cat([rows, rows[1:]]), torch.cat([grad, grad[1:]]), tensors)
    torch.testing.assert_close(once, again, rtol=0, atol=1e-6)
    assert all(torch.allclose(one.state[name], other.state[name], rtol=0, atol=1e-7) for name in one.state)


FORMS = {
    "lasagne": lambda total, grad: grad / np.sqrt(total + 1e-6),
    "matlab": lambda total, grad: grad / (np.sqrt(total) + 1e-4),
    "torch": lambda total, grad: grad / (np.sqrt(total) + 1e-10),
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_the_forms_of_adagrad_differ_where_gradients_are_small(form, compiled):
    """At word gradients of 5e-5 the first step of torch's form is 20 times that of Lasagne's."""
    matrix, grad = torch.zeros(3, 2), torch.full((3, 2), 5e-5)
    optimizer, rows = RowAdaGrad(matrix, 0.1, compiled, form), torch.arange(3)
    place, total = 0.0, 0.0
    for step in (1, 2):
        optimizer.update(matrix, rows, grad, bias_of(step))
        total += 5e-5**2
        place -= 0.1 * FORMS[form](total, 5e-5)
        assert matrix.numpy() == pytest.approx(place, rel=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("form", "moved"), [("paper", 0.5), ("released", 1e-8 / (1e-8 + 1e-8 / np.sqrt(1e-3)))])
def test_the_forms_of_adam_differ_where_gradients_are_as_small_as_epsilon(form, moved, compiled):
    matrix, rows = torch.zeros(3, 2), torch.arange(3)
    RowAdam(matrix, 0.1, compiled, form).update(matrix, rows, torch.full((3, 2), 1e-8), bias_of(1))
    assert matrix.numpy() == pytest.approx(-0.1 * moved, rel=1e-4)
