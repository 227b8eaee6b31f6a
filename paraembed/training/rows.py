"""One training step, row-sparse or dense.

Row-sparse: the batch's distinct rows of W_w are gathered as the leaf of the autograd graph, the encoder runs on them,
and just those rows are updated; a step costs what the batch holds, not what the vocabulary holds. λ_w then acts on
the touched rows only. Dense: every row has a gradient (λ_w pulls them all) and the optimiser moves all of W_w.

Data-parallel: each worker computes its share; (row, gradient) pairs of W_w are exchanged, the gradients of W_c summed.
"""

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paraembed.encoders import Encoder
from paraembed.recipe import Recipe
from paraembed.training.negatives import most_similar
from paraembed.training.objectives import margin_terms, unit
from paraembed.training.optim import DENSE_OPTIMISERS, ROW_OPTIMISERS
from paraembed.training.pairs import Batch


class Step:
    """The step of a recipe on an encoder; owns the optimisers' state.

    Attributes:
        skipped_pairs: pairs left alone in a batch, for which no negative exists.
    """

    def __init__(self, encoder: Encoder, recipe: Recipe, world: int = 1) -> None:
        self.encoder, self.recipe, self.world = encoder, recipe, world
        self.matrix = encoder.matrix.detach()
        self.composition = list(encoder.composition.parameters())
        self.penalty = (2.0 if recipe.penalty_form == "paper" else 1.0) * recipe.word_penalty
        self.initial = self.matrix.clone() if self.penalty else None
        self.skipped_pairs = 0
        self.sparse = recipe.update == "sparse"
        self._seen = np.zeros(len(self.matrix), np.int32)
        dense: list[nn.Parameter] = self.composition if self.sparse else [encoder.matrix, *self.composition]
        self._dense = DENSE_OPTIMISERS[recipe.optimiser](dense, lr=recipe.learning_rate) if dense else None
        self._rows = ROW_OPTIMISERS[recipe.optimiser](self.matrix, recipe.learning_rate) if self.sparse else None

    def __call__(self, batch: Batch, step: int) -> Tensor:
        """Train on a batch.

        Args:
            batch: this worker's share of the step.
            step: counts from 1 over the whole run.

        Returns:
            [2] on the encoder's device: this worker's share of the mean loss (hinge terms alone, without
            penalties), and of the mean number of active hinge terms a pair (0 to 2).
        """
        stats = torch.zeros(2, device=self.matrix.device)
        if self._rows is None:
            if len(batch.texts):
                stats = self._backward(self.encoder.matrix, batch.texts.ids, batch)
            self._update_dense()
            return stats
        rows, local = distinct(batch.texts.ids, self._seen)
        rows_R = torch.from_numpy(rows).to(self.matrix.device, torch.int64)
        leaf_RD = self.matrix.index_select(0, rows_R).requires_grad_()
        if len(batch.texts):
            stats = self._backward(leaf_RD, local, batch)
        values_RD = leaf_RD.detach()
        grad_RD = torch.zeros_like(values_RD) if leaf_RD.grad is None else leaf_RD.grad
        with torch.no_grad():
            if self.world > 1:
                rows_R, grad_RD = exchange_rows(rows_R, grad_RD, self.world)
                values_RD = self.matrix.index_select(0, rows_R)
            if self.initial is not None:
                grad_RD.add_(values_RD - self.initial.index_select(0, rows_R), alpha=self.penalty)
            self._clip(grad_RD)
            self._rows.update(self.matrix, rows_R, values_RD, grad_RD, step)
        self._update_dense()
        return stats

    def _backward(self, rows_RD: Tensor, ids: npt.NDArray[np.int32], batch: Batch) -> Tensor:
        num_pairs = len(batch.texts) // 2
        if num_pairs == 1:
            self.skipped_pairs += 1
            return torch.zeros(2, device=self.matrix.device)
        device = self.matrix.device
        vectors_NH = self.encoder.compose(rows_RD, torch.from_numpy(ids).to(device), batch.texts)
        unit_NH = unit(vectors_NH)
        terms = margin_terms(unit_NH, most_similar(unit_NH, self.recipe.pool), self.recipe.margin)
        loss = terms.sum() / batch.total
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.stack([loss.detach(), (terms.detach() > 0).sum() / batch.total])

    @torch.no_grad()
    def _update_dense(self) -> None:
        if self._dense is None:
            return
        recipe = self.recipe
        factor = (2.0 if recipe.penalty_form == "paper" else 1.0) * recipe.composition_penalty
        parameters = self._dense.param_groups[0]["params"]
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if self.world > 1:
                dist.all_reduce(parameter.grad)
            if parameter is not self.encoder.matrix:
                parameter.grad.add_(parameter, alpha=factor)
            elif self.initial is not None:
                parameter.grad.add_(parameter - self.initial, alpha=self.penalty)
            self._clip(parameter.grad)
        self._dense.step()
        self._dense.zero_grad(set_to_none=False)

    def _clip(self, grad: Tensor) -> None:
        """Scale a tensor's gradient to a norm of at most ``clip`` (each tensor on its own, as in the released code)."""
        if self.recipe.clip is not None:
            grad.mul_((self.recipe.clip / grad.norm().clamp(min=1e-30)).clamp(max=1.0))

    def state(self) -> dict[str, Tensor]:
        """The optimisers' state, as named tensors."""
        tensors = {f"rows.{name}": tensor for name, tensor in self._rows.state.items()} if self._rows else {}
        for number, entry in (self._dense.state_dict()["state"] if self._dense else {}).items():
            tensors |= {f"dense.{number}.{name}": tensor for name, tensor in entry.items()}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what ``state`` returned."""
        if self._rows:
            for name, tensor in self._rows.state.items():
                tensor.copy_(tensors[f"rows.{name}"])
        if self._dense:
            entries: dict[int, dict[str, Tensor]] = {}
            for name, tensor in tensors.items():
                part, *where = name.split(".")
                if part == "dense":
                    entries.setdefault(int(where[0]), {})[where[1]] = tensor
            self._dense.load_state_dict({**self._dense.state_dict(), "state": entries})


def distinct(
    ids: npt.NDArray[np.int32], seen: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Distinct ids and where each id is among them.

    Args:
        ids: int32 [T].
        seen: scratch, int32 [V]; its content does not matter. It spares the sort of ``np.unique``.

    Returns:
        rows [R], and local [T] with ``rows[local] == ids``.
    """
    places = np.arange(len(ids), dtype=np.int32)
    seen[ids] = places
    last = seen[ids]  # the place of each id's last occurrence stands for the id
    chosen = last == places
    number = np.cumsum(chosen, dtype=np.int32) - 1
    return ids[chosen], number[last]


def exchange_rows(rows_R: Tensor, grad_RD: Tensor, world: int) -> tuple[Tensor, Tensor]:
    """Sum row gradients over all workers.

    Args:
        rows_R: this worker's distinct rows.
        grad_RD: their gradients.
        world: how many workers.

    Returns:
        The distinct rows of all workers, ascending, and the sums; the same tensors on every worker.
    """
    count = torch.tensor([len(rows_R)], device=rows_R.device)
    counts = [torch.zeros_like(count) for _ in range(world)]
    dist.all_gather(counts, count)
    most = max(int(one) for one in counts)
    padded_rows = torch.zeros(most, dtype=rows_R.dtype, device=rows_R.device)
    padded_rows[: len(rows_R)] = rows_R
    padded_grad = torch.zeros(most, grad_RD.shape[1], device=rows_R.device)
    padded_grad[: len(rows_R)] = grad_RD
    all_rows = [torch.empty_like(padded_rows) for _ in range(world)]
    all_grads = [torch.empty_like(padded_grad) for _ in range(world)]
    dist.all_gather(all_rows, padded_rows)
    dist.all_gather(all_grads, padded_grad)
    rows = torch.cat([one[: int(n)] for one, n in zip(all_rows, counts, strict=True)])
    unique_U, place = torch.unique(rows, return_inverse=True)
    sums_UD = torch.zeros(len(unique_U), grad_RD.shape[1], device=rows_R.device)
    for one, at in zip(all_grads, place.split([int(n) for n in counts]), strict=True):
        sums_UD.index_add_(0, at, one[: len(at)])  # worker by worker, so the order of additions is fixed
    return unique_U, sums_UD
