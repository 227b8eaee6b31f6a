"""Optimizers for some rows of a matrix, or for all of it: only rows with a gradient in the batch change.

AdaGrad on touched rows equals the dense one, whose update is zero elsewhere. Adam differs: untouched rows keep their
moments and their value, where dense Adam lets moments decay and moves the row; this is "lazy" Adam, as in
``torch.optim.SparseAdam``. Bias correction counts the run's steps.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from paraembed.recipe import BaseRecipe
from paraembed.training.fast.kernels import adagrad_rows, adam_rows

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
ADAGRAD_EPS = {"lasagne": (1e-6, 0.0), "matlab": (0.0, 1e-4), "torch": (0.0, 1e-10)}
"""Form of AdaGrad → ε added to Σg² under the root, ε added to the root."""

Bias = tuple[float, float] | tuple[Tensor, Tensor]
"""Adam's 1 - β1^step and (1 - β2^step)^-½; tensors where a recorded CUDA graph reads them."""


def bias_of(step: int) -> tuple[float, float]:
    """Adam's bias correction at a step, from 1."""
    return 1 - ADAM_BETAS[0] ** step, (1 - ADAM_BETAS[1] ** step) ** -0.5


class RowOptimizer(Protocol):
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
    """Adam on rows (Kingma and Ba 2015, lazy).

    ``paper``: η m̂/(√v̂ + ε), their algorithm 1. ``released``: η √(1-β2^t)/(1-β1^t) · m/(√v + ε), as in Lasagne.
    """

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False, form: str = "paper") -> None:
        self.learning_rate, self.compiled, self.is_released = learning_rate, compiled, form == "released"
        self.state = {"mean": _zeros_like(matrix_VD), "square": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:
        """See ``RowOptimizer``."""
        beta1, beta2 = ADAM_BETAS
        size, root_factor = self.learning_rate / bias[0], bias[1]
        if self.is_released:
            size, root_factor = size / root_factor, 1.0
        moved = matrix_VD, self.state["mean"], self.state["square"]
        if self.compiled and rows_R is not None:
            keep, take = (np.float32(beta1), np.float32(beta2)), (np.float32(1 - beta1), np.float32(1 - beta2))
            sizes = np.float32(size), np.float32(root_factor), np.float32(ADAM_EPS)
            matrix, mean, square, rows, grad = (tensor.numpy() for tensor in (*moved, rows_R, grad_RD))
            adam_rows(matrix, mean, square, rows, grad, keep, take, *sizes)
            return
        matrix_RD, mean_RD, square_RD = taken = _taken(moved, rows_R)
        mean_RD.lerp_(grad_RD, 1 - beta1)
        square_RD.mul_(beta2).addcmul_(grad_RD, grad_RD, value=1 - beta2)
        root_RD = square_RD.sqrt().mul_(root_factor).add_(ADAM_EPS)
        matrix_RD.sub_(torch.div(mean_RD, root_RD, out=root_RD).mul_(size))
        _put_back(moved, rows_R, taken)


class RowAdaGrad:
    """AdaGrad on rows (Duchi et al. 2011): η g/(√(Σg² + ε_in) + ε_out), with the constants of a form."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False, form: str = "lasagne") -> None:
        self.learning_rate, self.compiled = learning_rate, compiled
        self.eps = ADAGRAD_EPS[form]
        self.state = {"sum": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimizer``."""
        moved = matrix_VD, self.state["sum"]
        if self.compiled and rows_R is not None:
            factors = np.float32(self.learning_rate), np.float32(self.eps[0]), np.float32(self.eps[1])
            matrix, total, rows, grad = (tensor.numpy() for tensor in (*moved, rows_R, grad_RD))
            adagrad_rows(matrix, total, rows, grad, *factors)
            return
        matrix_RD, total_RD = taken = _taken(moved, rows_R)
        total_RD.addcmul_(grad_RD, grad_RD)
        root_RD = total_RD.add(self.eps[0]).sqrt_().add_(self.eps[1])
        matrix_RD.addcdiv_(grad_RD, root_RD, value=-self.learning_rate)
        _put_back(moved, rows_R, taken)


class RowSgd:
    """Plain SGD on rows, which equals the dense one."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.state: dict[str, Tensor] = {}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:  # noqa: ARG002 - one signature for all
        """See ``RowOptimizer``."""
        (matrix_RD,) = taken = _taken((matrix_VD,), rows_R)
        matrix_RD.sub_(grad_RD, alpha=self.learning_rate)
        _put_back((matrix_VD,), rows_R, taken)


def _taken(matrices: tuple[Tensor, ...], rows_R: Tensor | None) -> tuple[Tensor, ...]:
    """Copies of the rows, or the matrices themselves where all rows are meant."""
    return matrices if rows_R is None else tuple(matrix.index_select(0, rows_R) for matrix in matrices)


def _put_back(matrices: tuple[Tensor, ...], rows_R: Tensor | None, taken: tuple[Tensor, ...]) -> None:
    if rows_R is not None:
        for matrix, rows in zip(matrices, taken, strict=True):
            matrix.index_copy_(0, rows_R.long(), rows)


def _zeros_like(matrix_VD: Tensor) -> Tensor:
    """Zeros; on a CPU allocated by NumPy, which asks Linux for huge pages: random rows cost 5-15 % less."""
    if matrix_VD.device.type == "cpu" and matrix_VD.dtype == torch.float32:
        return torch.from_numpy(np.zeros(tuple(matrix_VD.shape), np.float32))
    return torch.zeros_like(matrix_VD)


def optimizer_of(recipe: BaseRecipe, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> RowOptimizer:
    """Return the recipe's optimizer for a matrix, with its state at zero."""
    if recipe.optimizer == "adam":
        return RowAdam(matrix_VD, learning_rate, compiled, recipe.adam_form)
    if recipe.optimizer == "adagrad":
        return RowAdaGrad(matrix_VD, learning_rate, compiled, recipe.adagrad_form)
    return RowSgd(learning_rate)
