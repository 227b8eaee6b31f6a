"""Optimisers for rows of a matrix: state and update only where a batch has a gradient.

AdaGrad on touched rows equals the dense one, whose update is zero elsewhere. Adam differs: untouched rows keep their
moments and their place, where dense Adam lets moments decay and moves the row on; this is "lazy" Adam, as in
``torch.optim.SparseAdam``. Bias correction counts the run's steps.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from paraembed.training.kernels import adagrad_rows, adam_rows

ADAM_BETAS, ADAM_EPS, ADAGRAD_EPS = (0.9, 0.999), 1e-8, 1e-10  # torch.optim's defaults


class RowOptimiser(Protocol):
    """Moves rows of one matrix; ``state`` holds its tensors by name."""

    state: dict[str, Tensor]

    def update(self, matrix_VD: Tensor, rows_R: Tensor, grad_RD: Tensor, step: int) -> None:
        """Move the rows ``rows_R`` (distinct integers) along their gradient; steps count from 1."""


class RowAdam:
    """Adam on rows (Kingma and Ba 2015, lazy)."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> None:
        self.learning_rate, self.compiled = learning_rate, compiled
        self.state = {"mean": _zeros_like(matrix_VD), "square": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor, grad_RD: Tensor, step: int) -> None:
        """See ``RowOptimiser``."""
        beta1, beta2 = ADAM_BETAS
        size, root_factor = self.learning_rate / (1 - beta1**step), (1 - beta2**step) ** -0.5
        moments = self.state["mean"], self.state["square"]
        if self.compiled:
            first, second = (moment.numpy() for moment in moments)
            keep, take = (np.float32(beta1), np.float32(beta2)), (np.float32(1 - beta1), np.float32(1 - beta2))
            sizes = np.float32(size), np.float32(root_factor), np.float32(ADAM_EPS)
            adam_rows(matrix_VD.numpy(), first, second, rows_R.numpy(), grad_RD.numpy(), keep, take, *sizes)
            return
        mean = moments[0].index_select(0, rows_R).lerp_(grad_RD, 1 - beta1)
        square = moments[1].index_select(0, rows_R).mul_(beta2).addcmul_(grad_RD, grad_RD, value=1 - beta2)
        moments[0].index_copy_(0, rows_R, mean)
        moments[1].index_copy_(0, rows_R, square)
        root = square.sqrt_().mul_(root_factor).add_(ADAM_EPS)
        matrix_VD.index_add_(0, rows_R, mean.div_(root), alpha=-size)


class RowAdaGrad:
    """AdaGrad on rows (Duchi et al. 2011)."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> None:
        self.learning_rate, self.compiled = learning_rate, compiled
        self.state = {"sum": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor, grad_RD: Tensor, step: int) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimiser``."""
        if self.compiled:
            factors = np.float32(self.learning_rate), np.float32(ADAGRAD_EPS)
            adagrad_rows(matrix_VD.numpy(), self.state["sum"].numpy(), rows_R.numpy(), grad_RD.numpy(), *factors)
            return
        total = self.state["sum"].index_select(0, rows_R).addcmul_(grad_RD, grad_RD)
        self.state["sum"].index_copy_(0, rows_R, total)
        matrix_VD.index_add_(0, rows_R, grad_RD / total.sqrt_().add_(ADAGRAD_EPS), alpha=-self.learning_rate)


class RowSgd:
    """Plain SGD on rows, which equals the dense one."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> None:  # noqa: ARG002 - one signature for all
        self.learning_rate = learning_rate
        self.state: dict[str, Tensor] = {}

    def update(self, matrix_VD: Tensor, rows_R: Tensor, grad_RD: Tensor, step: int) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimiser``."""
        matrix_VD.index_add_(0, rows_R, grad_RD, alpha=-self.learning_rate)


def _zeros_like(matrix_VD: Tensor) -> Tensor:
    """Zeros; on a CPU allocated by NumPy, which asks Linux for huge pages: random rows cost 5-15 % less."""
    if matrix_VD.device.type == "cpu" and matrix_VD.dtype == torch.float32:
        return torch.from_numpy(np.zeros(tuple(matrix_VD.shape), np.float32))
    return torch.zeros_like(matrix_VD)


ROW_OPTIMISERS: dict[str, Callable[[Tensor, float, bool], RowOptimiser]] = {
    "adam": RowAdam,
    "adagrad": RowAdaGrad,
    "sgd": RowSgd,
}
DENSE_OPTIMISERS = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}
