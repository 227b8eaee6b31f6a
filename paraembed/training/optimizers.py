"""Optimisers for some rows of a matrix, or for all of it: state and update only where a batch has a gradient.

AdaGrad on touched rows equals the dense one, whose update is zero elsewhere. Adam differs: untouched rows keep their
moments and their place, where dense Adam lets moments decay and moves the row on; this is "lazy" Adam, as in
``torch.optim.SparseAdam``. Bias correction counts the run's steps.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from paraembed.training.fast.kernels import adagrad_rows, adam_rows

ADAM_BETAS, ADAM_EPS, ADAGRAD_EPS = (0.9, 0.999), 1e-8, 1e-10  # torch.optim's defaults

Bias = tuple[float, float] | tuple[Tensor, Tensor]
"""Adam's 1 - β1^step and (1 - β2^step)^-½; as tensors where a recorded step must find new ones."""


def bias_of(step: int) -> tuple[float, float]:
    """Adam's bias correction at a step, from 1."""
    return 1 - ADAM_BETAS[0] ** step, (1 - ADAM_BETAS[1] ** step) ** -0.5


class RowOptimiser(Protocol):
    """Moves rows of one matrix; ``state`` holds its tensors by name."""

    state: dict[str, Tensor]

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:
        """Move rows along their gradient.

        Args:
            matrix_VD: changed; the same at every call.
            rows_R: integers; a row may come several times if its gradient is the same every time: it moves once.
                None: all rows, of a tensor of any shape.
            grad_RD: gradients.
            bias: of the step.
        """


class RowAdam:
    """Adam on rows (Kingma and Ba 2015, lazy)."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> None:
        self.learning_rate, self.compiled = learning_rate, compiled
        self.state = {"mean": _zeros_like(matrix_VD), "square": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:
        """See ``RowOptimiser``."""
        beta1, beta2 = ADAM_BETAS
        size, root_factor = self.learning_rate / bias[0], bias[1]
        moved = matrix_VD, self.state["mean"], self.state["square"]
        if self.compiled and rows_R is not None:
            keep, take = (np.float32(beta1), np.float32(beta2)), (np.float32(1 - beta1), np.float32(1 - beta2))
            sizes = np.float32(size), np.float32(root_factor), np.float32(ADAM_EPS)
            matrix, mean, square, rows, grad = (one.numpy() for one in (*moved, rows_R, grad_RD))
            adam_rows(matrix, mean, square, rows, grad, keep, take, *sizes)
            return
        matrix_RD, mean_RD, square_RD = taken = _taken(moved, rows_R)
        mean_RD.lerp_(grad_RD, 1 - beta1)
        square_RD.mul_(beta2).addcmul_(grad_RD, grad_RD, value=1 - beta2)
        root_RD = square_RD.sqrt().mul_(root_factor).add_(ADAM_EPS)
        matrix_RD.sub_(torch.div(mean_RD, root_RD, out=root_RD).mul_(size))
        _put_back(moved, rows_R, taken)


class RowAdaGrad:
    """AdaGrad on rows (Duchi et al. 2011)."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> None:
        self.learning_rate, self.compiled = learning_rate, compiled
        self.state = {"sum": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimiser``."""
        moved = matrix_VD, self.state["sum"]
        if self.compiled and rows_R is not None:
            factors = np.float32(self.learning_rate), np.float32(ADAGRAD_EPS)
            matrix, total, rows, grad = (one.numpy() for one in (*moved, rows_R, grad_RD))
            adagrad_rows(matrix, total, rows, grad, *factors)
            return
        matrix_RD, total_RD = taken = _taken(moved, rows_R)
        total_RD.addcmul_(grad_RD, grad_RD)
        matrix_RD.addcdiv_(grad_RD, total_RD.sqrt().add_(ADAGRAD_EPS), value=-self.learning_rate)
        _put_back(moved, rows_R, taken)


class RowSgd:
    """Plain SGD on rows, which equals the dense one."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> None:  # noqa: ARG002 - one signature for all
        self.learning_rate = learning_rate
        self.state: dict[str, Tensor] = {}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimiser``."""
        (matrix_RD,) = taken = _taken((matrix_VD,), rows_R)
        matrix_RD.sub_(grad_RD, alpha=self.learning_rate)
        _put_back((matrix_VD,), rows_R, taken)


def _taken(matrices: tuple[Tensor, ...], rows_R: Tensor | None) -> tuple[Tensor, ...]:
    """Copies of the rows, or the matrices themselves where all rows are meant."""
    return matrices if rows_R is None else tuple(one.index_select(0, rows_R) for one in matrices)


def _put_back(matrices: tuple[Tensor, ...], rows_R: Tensor | None, taken: tuple[Tensor, ...]) -> None:
    if rows_R is not None:
        for matrix, rows in zip(matrices, taken, strict=True):
            matrix.index_copy_(0, rows_R.long(), rows)


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
