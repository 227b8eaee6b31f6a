"""Second half of a training step: from gradients to new parameters, with optimizers for some rows or all rows of a
matrix.

Row-sparse: the distinct rows of W_w in the batch are the leaf of the autograd graph, and only these rows are updated,
so the cost of a step depends on the batch, not on the vocabulary. λ_w then acts on these rows only. Dense: every row
has a gradient (λ_w pulls all of them) and the optimizer updates all of W_w.

Row-sparse AdaGrad equals dense AdaGrad, whose update of the other rows is zero. Adam differs: untouched rows keep their
moments and their value, whereas dense Adam lets their moments decay and still moves them. This is "lazy" Adam, as in
``torch.optim.SparseAdam``. Bias correction counts the steps of the run.

Data-parallel: every worker knows the rows of all workers, so one all-reduce sums the gradients of these rows and those
of W_c.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from paraembed.encoders import Encoder
from paraembed.encoders.packed import to_device
from paraembed.recipe import BaseRecipe
from paraembed.training.exchange import sum_over_workers
from paraembed.training.fast.kernels import adagrad_rows, adam_rows, pull_rows

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
ADAGRAD_EPS = {"lasagne": (1e-6, 0.0), "matlab": (0.0, 1e-4), "torch": (0.0, 1e-10)}
"""Form of AdaGrad → (ε added to Σg² under the root, ε added to the root)."""

Bias = tuple[float, float] | Tensor
"""Adam's 1 - β1^step and (1 - β2^step)^-½; as a tensor, which a recorded CUDA graph reads, that of ``device_bias``."""


def bias_of(step: int) -> tuple[float, float]:
    """Return Adam's bias correction at a step, from 1."""
    return 1 - ADAM_BETAS[0] ** step, (1 - ADAM_BETAS[1] ** step) ** -0.5


def device_bias(step: int) -> tuple[float, float, float]:
    """Return Adam's bias correction as terms of the divisor of the mean: ε of the form paper, ε of the form released,
    and the factor of √v.
    """
    first, root_factor = bias_of(step)
    return ADAM_EPS * first, ADAM_EPS * first * root_factor, first * root_factor


class RowOptimizer(Protocol):
    """Optimizer of the rows of one matrix; ``state`` holds its tensors by name."""

    state: dict[str, Tensor]

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:
        """Update rows of a matrix, the same one in every call, in place; None: all rows, of a tensor of any shape.

        A row may be repeated if its gradient is repeated, too: it is updated once.
        """


class RowAdam:
    """Adam on rows (Kingma and Ba 2015), lazy.

    ``paper``: η m̂/(√v̂ + ε), algorithm 1 of the paper. ``released``: η √(1-β2^t)/(1-β1^t) · m/(√v + ε), as in Lasagne.
    """

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False, form: str = "paper") -> None:
        self.learning_rate, self.compiled, self.is_released = learning_rate, compiled, form == "released"
        self.state = {"mean": _zeros_like(matrix_VD), "square": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:
        """Update rows; see ``RowOptimizer``."""
        (beta1, beta2), moved = ADAM_BETAS, (matrix_VD, self.state["mean"], self.state["square"])
        if not isinstance(bias, Tensor):
            size, root_factor = self.learning_rate / bias[0], bias[1]
            if self.is_released:
                size, root_factor = size / root_factor, 1.0
            if self.compiled and rows_R is not None:
                keep, take = (np.float32(beta1), np.float32(beta2)), (np.float32(1 - beta1), np.float32(1 - beta2))
                sizes = np.float32(size), np.float32(root_factor), np.float32(ADAM_EPS)
                matrix, mean, square, rows, grad = (tensor.numpy() for tensor in (*moved, rows_R, grad_RD))
                adam_rows(matrix, mean, square, rows, grad, keep, take, *sizes)
                return
        matrix_RD, mean_RD, square_RD = taken = _taken(moved, rows_R)
        mean_RD.lerp_(grad_RD, 1 - beta1)
        square_RD.mul_(beta2).addcmul_(grad_RD, grad_RD, value=1 - beta2)
        root_RD = square_RD.sqrt()
        if isinstance(bias, Tensor):  # fewer kernels
            torch.addcmul(bias[int(self.is_released)], root_RD, bias[2], out=root_RD)
            matrix_RD.addcdiv_(mean_RD, root_RD, value=-self.learning_rate)
        else:
            root_RD.mul_(root_factor).add_(ADAM_EPS)
            matrix_RD.sub_(torch.div(mean_RD, root_RD, out=root_RD).mul_(size))
        _put_back(moved, rows_R, taken)


class RowAdaGrad:
    """AdaGrad on rows (Duchi et al. 2011): η g/(√(Σg² + ε_in) + ε_out), with the two ε of its form."""

    def __init__(self, matrix_VD: Tensor, learning_rate: float, compiled: bool = False, form: str = "lasagne") -> None:
        self.learning_rate, self.compiled = learning_rate, compiled
        self.eps = ADAGRAD_EPS[form]
        self.state = {"sum": _zeros_like(matrix_VD)}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:  # noqa: ARG002 - one signature for all
        """Update rows; see ``RowOptimizer``."""
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
    """Plain SGD on rows, which equals dense SGD."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.state: dict[str, Tensor] = {}

    def update(self, matrix_VD: Tensor, rows_R: Tensor | None, grad_RD: Tensor, bias: Bias) -> None:  # noqa: ARG002 - one signature for all
        """Update rows; see ``RowOptimizer``."""
        (matrix_RD,) = taken = _taken((matrix_VD,), rows_R)
        matrix_RD.sub_(grad_RD, alpha=self.learning_rate)
        _put_back((matrix_VD,), rows_R, taken)


def _taken(matrices: tuple[Tensor, ...], rows_R: Tensor | None) -> tuple[Tensor, ...]:
    """Return copies of the rows, or the matrices themselves if all rows are selected."""
    return matrices if rows_R is None else tuple(matrix.index_select(0, rows_R) for matrix in matrices)


def _put_back(matrices: tuple[Tensor, ...], rows_R: Tensor | None, taken: tuple[Tensor, ...]) -> None:
    if rows_R is not None:
        for matrix, rows in zip(matrices, taken, strict=True):
            matrix.index_copy_(0, rows_R.long(), rows)


def _zeros_like(matrix_VD: Tensor) -> Tensor:
    """Return zeros; on a CPU, NumPy allocates them on huge pages, which makes access to random rows 5-15 % faster."""
    if matrix_VD.device.type == "cpu" and matrix_VD.dtype == torch.float32:
        return torch.from_numpy(np.zeros(tuple(matrix_VD.shape), np.float32))
    return torch.zeros_like(matrix_VD)


def optimizer_of(recipe: BaseRecipe, matrix_VD: Tensor, learning_rate: float, compiled: bool = False) -> RowOptimizer:
    """Return the recipe's optimizer for a matrix, with its state initialized to zero."""
    if recipe.optimizer == "adam":
        return RowAdam(matrix_VD, learning_rate, compiled, recipe.adam_form)
    if recipe.optimizer == "adagrad":
        return RowAdaGrad(matrix_VD, learning_rate, compiled, recipe.adagrad_form)
    return RowSgd(learning_rate)


_CLIP_EPS = 1e-7  # of the released code's clipping, Lasagne's


class Update:
    """Update of the parameters of an encoder and its head by a recipe; it holds the optimizers' state."""

    def __init__(
        self,
        encoder: Encoder,
        recipe: BaseRecipe,
        world: int,
        compiled: bool = False,
        *,
        head: Sequence[nn.Parameter] = (),
        head_l2: float = 0.0,
    ) -> None:
        """Prepare the update; with ``compiled``, compiled loops update the rows.

        ``head`` are further parameters, which are updated like the composition, with λ_s ``head_l2``.

        Raises:
            ValueError: the recipe trains no parameters.
        """
        self.encoder, self.recipe, self.world, self.compiled = encoder, recipe, world, compiled
        self.matrix = encoder.matrix.detach()
        composition = list(encoder.composition.parameters()) if recipe.train_composition else []
        self.composition = [*composition, *head]
        if not recipe.train_words and not self.composition:
            raise ValueError(
                f"train_words is off, but the encoder {encoder.config.name} has no other parameters to "
                "train; set train_words"
            )
        factor = 2.0 if recipe.l2_form == "paper" else 1.0
        self._word_pull = factor * recipe.word_l2
        self._pulls = [factor * recipe.encoder_l2] * len(composition) + [factor * head_l2] * len(head)
        self._initial = self.matrix.clone() if self._word_pull and recipe.train_words else None
        target = torch.clone if recipe.pulls_to_initial else torch.zeros_like
        self._targets = [target(parameter.detach()) for parameter in composition]
        self._targets += [torch.zeros_like(parameter) for parameter in head]
        self._seen = np.zeros(len(self.matrix), np.int32)
        self._leaf_RD, self._rows_R = self.matrix, torch.zeros(0)
        self._places_R = self._rows_R
        self._has_dense_words = recipe.train_words and recipe.update == "dense"
        rate = recipe.learning_rate
        encoder_rate = recipe.encoder_learning_rate or rate
        self._dense = [optimizer_of(recipe, self.matrix, rate)] if self._has_dense_words else []
        self._dense += [optimizer_of(recipe, parameter.detach(), encoder_rate) for parameter in self.composition]
        has_rows = recipe.train_words and not self._has_dense_words
        self._rows = optimizer_of(recipe, self.matrix, rate, compiled) if has_rows else None
        gates = encoder.composition.gates() if recipe.clip_form == "gate" and composition else []
        self._gates = [*gates, *[1] * (len(head) + recipe.train_words)]  # of the gradients in ``_clip``

    @property
    def words(self) -> list[Tensor]:
        """Return the word matrix and, if λ_w pulls towards it, the untrained matrix."""
        return [self.matrix] if self._initial is None else [self.matrix, self._initial]

    def move_to(self, words: list[Tensor], moments: list[Tensor]) -> None:
        """Continue with ``words`` and their optimizer state in other memory, which holds the same values."""
        assert self._rows is not None
        self.encoder.matrix.data = words[0]
        self.matrix = self._leaf_RD = self.encoder.matrix.detach()
        self._initial = None if self._initial is None else words[1]
        self._rows.state = dict(zip(self._rows.state, moments, strict=True))

    def begin(
        self, ids: npt.NDArray[np.int32], step_ids: npt.NDArray[np.int32] | None = None
    ) -> tuple[Tensor, npt.NDArray[np.int32]]:
        """Return the word vectors of a step as a leaf of its graph [R, D], and the position of each id among them,
        int32 [T].

        ``step_ids`` are the ids of the texts of all workers, in one order on every worker; None: this is the only
        worker.
        """
        if self._has_dense_words:
            self._leaf_RD = self.encoder.matrix
            return self._leaf_RD, ids
        rows, local = distinct(ids, self._seen)
        self._rows_R = torch.from_numpy(rows).to(self.matrix.device, torch.int64)
        self._leaf_RD = self.matrix.index_select(0, self._rows_R).requires_grad_(self._rows is not None)
        if step_ids is not None:
            all_rows, _ = distinct(step_ids, self._seen)
            self._seen[all_rows] = np.arange(len(all_rows))
            self._places_R = to_device(self._seen[rows].astype(np.int64), self.matrix.device)
            self._rows_R = to_device(all_rows.astype(np.int64), self.matrix.device)
        return self._leaf_RD, local

    @torch.no_grad()
    def apply(self, step: int) -> None:
        """Update the parameters with the gradients of the backward pass, summed over the workers; ``step`` counts from
        1.
        """
        leaf_RD = self._leaf_RD
        grad_RD = torch.zeros_like(leaf_RD) if leaf_RD.grad is None else leaf_RD.grad
        if self.world > 1 and self._rows is not None:
            grad_RD = grad_RD.new_zeros(len(self._rows_R), grad_RD.shape[1]).index_copy_(0, self._places_R, grad_RD)
        if self.world > 1:
            words = [grad_RD] if self.recipe.train_words else []
            grad_RD = next(iter(self.sum_over_workers(words)), grad_RD)
        self.move(self._rows_R, grad_RD, bias_of(step))

    @torch.no_grad()
    def sum_over_workers(self, words: Sequence[Tensor] = ()) -> list[Tensor]:
        """Sum the gradients of the parameters other than W_w over the workers, and return the sums of ``words``."""
        grads = [self._own_grad(parameter) for parameter in self.composition]
        if not (words or grads):
            return []
        sums = sum_over_workers([*words, *grads])
        for parameter, grad in zip(self.composition, sums[len(words) :], strict=True):
            parameter.grad = grad
        return sums[: len(words)]

    @torch.no_grad()
    def move(self, rows_R: Tensor, grad_RD: Tensor, bias: Bias, counted_R1: Tensor | None = None) -> None:
        """Add the gradients of the penalties, clip, and update.

        The gradients of the rows of W_w (of every row if the update is dense) are those of the objective over all
        workers, and are changed in place; those of the other parameters are in their ``grad``. ``counted_R1`` is zero
        for a repeated row, which does not count for the norm; None: the rows are distinct.
        """
        grads = [self._own_grad(parameter) for parameter in self.composition]
        for parameter, grad, pull, target in zip(self.composition, grads, self._pulls, self._targets, strict=True):
            if pull:
                grad.add_(parameter - target, alpha=pull)
        if self._initial is not None:
            self._pull_back(self._initial, rows_R, grad_RD)
        self._clip([*grads, grad_RD] if self.recipe.train_words else grads, counted_R1)
        if self._rows is not None:
            self._rows.update(self.matrix, rows_R, grad_RD, bias)
        moved = [parameter.detach() for parameter in self.composition]
        if self._has_dense_words:
            moved, grads = [self.matrix, *moved], [grad_RD, *grads]
        for tensor, grad, optimizer in zip(moved, grads, self._dense, strict=True):
            optimizer.update(tensor, None, grad, bias)
        for parameter in (self.encoder.matrix, *self.composition):
            parameter.grad = None

    def _pull_back(self, initial_VD: Tensor, rows_R: Tensor, grad_RD: Tensor) -> None:
        if self._has_dense_words:
            grad_RD.add_(self.matrix - initial_VD, alpha=self._word_pull)
        elif self.compiled:
            matrices = self.matrix.numpy(), initial_VD.numpy()
            pull_rows(*matrices, rows_R.numpy(), np.float32(self._word_pull), grad_RD.numpy())
        else:
            away_RD = self.matrix.index_select(0, rows_R) - initial_VD.index_select(0, rows_R)
            grad_RD.add_(away_RD, alpha=self._word_pull)

    @staticmethod
    def _own_grad(parameter: nn.Parameter) -> Tensor:
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    def _clip(self, grads: list[Tensor], counted_R1: Tensor | None) -> None:
        """Scale gradients to a norm of at most ``clip``: per parameter, per gate, or all by one factor."""
        clip, form = self.recipe.clip, self.recipe.clip_form
        if clip is None:
            return
        measured = grads if counted_R1 is None else [*grads[:-1], grads[-1] * counted_R1]
        if form == "gate":
            grads = [gate for grad, gates in zip(grads, self._gates, strict=True) for gate in grad.chunk(gates)]
            measured = [gate for grad, gates in zip(measured, self._gates, strict=True) for gate in grad.chunk(gates)]
        norms = torch.stack([grad.norm() for grad in measured])
        if form == "gate":
            factors = norms.clamp(max=clip) / (norms + _CLIP_EPS)
        else:
            norms = norms.norm().expand(len(grads)) if form == "global" else norms
            factors = (clip / norms.clamp(min=1e-30)).clamp(max=1.0)
        for grad, factor in zip(grads, factors, strict=True):
            grad.mul_(factor)

    def state(self) -> dict[str, Tensor]:
        """Return the optimizers' state as named tensors."""
        tensors = {f"rows.{name}": tensor for name, tensor in self._rows.state.items()} if self._rows else {}
        for number, optimizer in enumerate(self._dense):
            tensors |= {f"dense.{number}.{name}": tensor for name, tensor in optimizer.state.items()}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that ``state`` returned."""
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])


def distinct(
    ids: npt.NDArray[np.int32], seen: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the distinct ids, rows [R], and the position of each id among them, local [T], so that ``rows[local] ==
    ids``.

    ``seen`` is scratch memory, int32 [V] with any content; it avoids the sort of ``np.unique``.
    """
    places = np.arange(len(ids), dtype=np.int32)
    seen[ids] = places
    last = seen[ids]  # position of each id's last occurrence
    chosen = last == places
    number = np.cumsum(chosen, dtype=np.int32) - 1
    return ids[chosen], number[last]
