"""Forms of optimizers of rows, where float32 would hide a difference from ``tests/parity``."""

import numpy as np
import pytest
import torch

from paraembed.training.update import RowAdaGrad, RowAdam, bias_of

FORMS = {  # of the first two steps with a gradient
    "lasagne": lambda grad: sum(grad / np.sqrt(number * grad**2 + 1e-6) for number in (1, 2)),
    "matlab": lambda grad: sum(grad / (np.sqrt(number) * grad + 1e-4) for number in (1, 2)),
    "torch": lambda grad: sum(grad / (np.sqrt(number) * grad + 1e-10) for number in (1, 2)),
    "paper": lambda grad: 2 * grad / (grad + 1e-8),
    "released": lambda grad: sum(grad / (grad + 1e-8 / np.sqrt(1 - 0.999**number)) for number in (1, 2)),
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_forms_differ_where_gradients_are_as_small_as_epsilon(form, compiled):
    """At word gradients of 5e-5 the first step of torch's AdaGrad is 20 times that of Lasagne's."""
    kind, grad = (RowAdam, 1e-8) if form in {"paper", "released"} else (RowAdaGrad, 5e-5)
    matrix, rows = torch.zeros(3, 2), torch.arange(3)
    optimizer = kind(matrix, 0.1, compiled, form)
    for step in (1, 2):
        optimizer.update(matrix, rows, torch.full((3, 2), grad), bias_of(step))
    assert matrix.numpy() == pytest.approx(-0.1 * FORMS[form](grad), rel=1e-4)
