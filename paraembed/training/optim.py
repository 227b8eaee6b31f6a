"""Optimisers for rows of a matrix: state and update only where a batch has a gradient.

AdaGrad on touched rows equals the dense one, whose update is zero elsewhere. Adam differs: untouched rows keep their
moments and their place, where dense Adam lets moments decay and moves the row on; this is "lazy" Adam, as in
``torch.optim.SparseAdam``. Bias correction counts the run's steps.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

_ADAM_BETAS, _ADAM_EPS, _ADAGRAD_EPS = (0.9, 0.999), 1e-8, 1e-10  # torch.optim's defaults


class RowOptimiser(Protocol):
    """Moves rows of one matrix; ``state`` holds its tensors by name."""

    state: dict[str, Tensor]

    def update(self, matrix_VD: Tensor, rows_R: Tensor, values_RD: Tensor, grad_RD: Tensor, step: int) -> None:
        """Move the rows ``rows_R`` (distinct, int64) from ``values_RD`` along their gradient; steps count from 1."""


class RowAdam:
    """Adam on rows (Kingma and Ba 2015, lazy)."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.state = {"mean": torch.zeros_like(matrix_VD), "square": torch.zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor, values_RD: Tensor, grad_RD: Tensor, step: int) -> None:
        """See ``RowOptimiser``."""
        beta1, beta2 = _ADAM_BETAS
        mean = self.state["mean"].index_select(0, rows_R).lerp_(grad_RD, 1 - beta1)
        square = self.state["square"].index_select(0, rows_R).mul_(beta2).addcmul_(grad_RD, grad_RD, value=1 - beta2)
        self.state["mean"].index_copy_(0, rows_R, mean)
        self.state["square"].index_copy_(0, rows_R, square)
        root = square.sqrt_().mul_((1 - beta2**step) ** -0.5).add_(_ADAM_EPS)
        size = self.learning_rate / (1 - beta1**step)
        matrix_VD.index_copy_(0, rows_R, torch.addcdiv(values_RD, mean, root, value=-size))


class RowAdaGrad:
    """AdaGrad on rows (Duchi et al. 2011)."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.state = {"sum": torch.zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor, values_RD: Tensor, grad_RD: Tensor, step: int) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimiser``."""
        total = self.state["sum"].index_select(0, rows_R).addcmul_(grad_RD, grad_RD)
        self.state["sum"].index_copy_(0, rows_R, total)
        root = total.sqrt_().add_(_ADAGRAD_EPS)
        matrix_VD.index_copy_(0, rows_R, torch.addcdiv(values_RD, grad_RD, root, value=-self.learning_rate))


class RowSgd:
    """Plain SGD on rows, which equals the dense one."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float) -> None:  # noqa: ARG002 - one signature for all
        self.learning_rate = learning_rate
        self.state: dict[str, Tensor] = {}

    def update(self, matrix_VD: Tensor, rows_R: Tensor, values_RD: Tensor, grad_RD: Tensor, step: int) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimiser``."""
        matrix_VD.index_copy_(0, rows_R, values_RD.add(grad_RD, alpha=-self.learning_rate))


ROW_OPTIMISERS: dict[str, Callable[[Tensor, float], RowOptimiser]] = {
    "adam": RowAdam,
    "adagrad": RowAdaGrad,
    "sgd": RowSgd,
}
DENSE_OPTIMISERS = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}
