"""The margin step of encoders that add up word vectors, in PyTorch operators whose shapes do not depend on the data.

So nothing is asked of a GPU within a step, and the whole step can be recorded as one CUDA graph a shape: at batch 100
its some sixty kernels take microseconds each, less than to launch them. Sums over tokens go by sorted segments
(``embedding_bag``), not by atomic additions, so that equal runs give equal bits.

Computes what ``Step`` does by autograd, to 1e-6; on a CPU, too, where tests compare them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders import Encoder
from paraembed.encoders.avg import Avg
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.additive import is_additive
from paraembed.training.device_pairs import DeviceBatch, DevicePairs
from paraembed.training.objectives import SMALLEST_NORM
from paraembed.training.optim import ADAGRAD_EPS, ADAM_BETAS, ADAM_EPS

_WARM_UP = 3  # steps of a shape before it is recorded; what libraries allocate at first use must not be in a graph


def fits_device_step(encoder: Encoder, recipe: Recipe, world: int) -> bool:
    """Whether ``DeviceStep`` can take the steps of a recipe on an encoder."""
    return (
        is_additive(encoder, recipe)
        and encoder.matrix.dtype == torch.float32
        and world == 1
        and recipe.negatives == "max"
        and recipe.mega_batches == 1
        and recipe.equal_negatives != "excluded"
        and recipe.paired_negatives == "allowed"
    )


@dataclass(frozen=True)
class _Recorded:
    graph: "torch.cuda.CUDAGraph"
    inputs: tuple[Tensor, Tensor, Tensor]


class DeviceStep:
    """The step of a recipe that ``fits_device_step``, with the interface of ``Step``.

    Attributes:
        skipped_pairs: pairs left alone in a batch, for which no negative exists.
    """

    def __init__(self, encoder: Encoder, recipe: Recipe, pairs: Ragged) -> None:
        """Copy the pairs to the encoder's device."""
        self.recipe, self.rank, self.world = recipe, 0, 1
        self.skipped_pairs = 0
        self._pairs = DevicePairs(encoder.with_boundaries(pairs), encoder.matrix.device)
        self.matrix = encoder.matrix.detach()
        self.mean, self.unit = isinstance(encoder.composition, Avg), recipe.similarity == "cosine"
        factor = 2.0 if recipe.penalty_form == "paper" else 1.0
        self._pull = factor * recipe.word_penalty
        self._initial = self.matrix.clone() if self._pull else None
        names = {"adam": ("mean", "square"), "adagrad": ("sum",), "sgd": ()}[recipe.optimiser]
        self._state = {f"rows.{name}": torch.zeros_like(self.matrix) for name in names}
        self._result = torch.zeros(2, device=self.matrix.device)
        self._number = torch.zeros((), dtype=torch.float64, device=self.matrix.device)
        self._memory = torch.cuda.graph_pool_handle() if self.matrix.device.type == "cuda" else None  # of all shapes
        self._recorded: dict[tuple[int, int], _Recorded] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def batches(self, pairs: Ragged, epoch: int, first_pair: int = 0, first_step: int = 1) -> Iterator[DeviceBatch]:  # noqa: ARG002 - the interface of Step
        """The batches of an epoch of the pairs that are on the device; see ``Step.batches``."""
        recipe = self.recipe
        return self._pairs.epoch(epoch=epoch, seed=recipe.seed, batch_size=recipe.batch_size, first_pair=first_pair)

    def state(self) -> dict[str, Tensor]:
        """The optimiser's state, as named tensors: those of ``Step``."""
        return self._state

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what ``state`` returned."""
        for name, tensor in self._state.items():
            tensor.copy_(tensors[name])

    @torch.no_grad()
    def __call__(self, batch: DeviceBatch, step: int) -> Tensor:
        """Train on a batch of ``batches``; ``step`` counts from 1 over the run. Returns as ``Step`` does."""
        if batch.total == 1:  # no negative exists: nothing moves
            self.skipped_pairs += 1
            return torch.zeros_like(self._result)
        self._number.fill_(step)
        inputs = batch.ids_T, batch.text_T, batch.lengths_N
        shape = len(batch.ids_T), len(batch.lengths_N)
        num_seen = self._seen[shape] = self._seen.get(shape, 0) + 1
        if self.matrix.device.type != "cuda" or num_seen <= _WARM_UP:
            self._train(*inputs)
            return self._result.clone()
        if shape not in self._recorded:
            self._recorded[shape] = self._record(inputs)
        recorded = self._recorded[shape]
        for buffer, tensor in zip(recorded.inputs, inputs, strict=True):
            buffer.copy_(tensor)
        recorded.graph.replay()
        return self._result.clone()

    def _record(self, inputs: tuple[Tensor, Tensor, Tensor]) -> _Recorded:
        """The step for inputs of a shape; recording runs nothing."""
        ids_T, text_T, lengths_N = (tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            self._train(ids_T, text_T, lengths_N)
        return _Recorded(graph, (ids_T, text_T, lengths_N))

    def _train(self, ids_T: Tensor, text_T: Tensor, lengths_N: Tensor) -> None:
        vectors_ND, norms_N1 = self._vectors(ids_T, lengths_N)
        negatives_N = self._negatives(vectors_ND)
        grad_ND = self._margin_gradient(vectors_ND, negatives_N)
        if self.unit:
            along_N1 = (grad_ND * vectors_ND).sum(dim=1, keepdim=True) * (norms_N1 > SMALLEST_NORM)
            grad_ND = (grad_ND - along_N1 * vectors_ND) / norms_N1.clamp(min=SMALLEST_NORM)
        if self.mean:
            grad_ND = grad_ND / lengths_N[:, None]
        self._move(*self._by_row(ids_T, text_T, grad_ND))

    def _vectors(self, ids_T: Tensor, lengths_N: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of the texts as they are compared [N, D], and their lengths before they were scaled [N, 1]."""
        offsets_N1 = F.pad(lengths_N.long().cumsum(0), (1, 0))  # the last bag is the padding
        vectors_ND = F.embedding_bag(ids_T, self.matrix, offsets_N1, mode="sum")[:-1]
        if self.mean:
            vectors_ND = vectors_ND / lengths_N[:, None]
        norms_N1 = vectors_ND.norm(dim=1, keepdim=True)
        return (vectors_ND / norms_N1.clamp(min=SMALLEST_NORM) if self.unit else vectors_ND), norms_N1

    def _negatives(self, vectors_ND: Tensor) -> Tensor:
        similarity_NN = vectors_ND @ vectors_ND.T
        pairs = len(vectors_ND) // 2
        sides = similarity_NN.view(pairs, 2, pairs, 2)
        sides.diagonal(dim1=0, dim2=2).fill_(-torch.inf)
        if self.recipe.pool == "same_side":
            sides[:, 0, :, 1] = -torch.inf
            sides[:, 1, :, 0] = -torch.inf
        return similarity_NN.argmax(dim=1)

    def _margin_gradient(self, vectors_ND: Tensor, negatives_N: Tensor) -> Tensor:
        """Gradient of the mean loss by the vectors; the loss and the active share go to ``_result``."""
        pairs = len(vectors_ND) // 2
        partners_ND = vectors_ND.view(pairs, 2, -1).flip(1).reshape(len(vectors_ND), -1)
        apart_ND = vectors_ND[negatives_N] - partners_ND
        terms_N1 = F.relu(self.recipe.margin + (vectors_ND * apart_ND).sum(dim=1, keepdim=True))
        active_N1 = (terms_N1 > 0).to(vectors_ND)
        self._result.copy_(torch.stack([terms_N1.sum() / pairs, active_N1.mean()]))
        share_ND = vectors_ND * active_N1 / pairs
        # Row n of the matrix product sums the texts whose negative n is, in a fixed order.
        chosen_NN = vectors_ND.new_zeros(len(vectors_ND), len(vectors_ND)).scatter_(1, negatives_N[:, None], 1.0)
        grad_ND = apart_ND * active_N1 / pairs + chosen_NN.T @ share_ND
        return grad_ND - share_ND.view(pairs, 2, -1).flip(1).reshape(len(vectors_ND), -1)

    def _by_row(self, ids_T: Tensor, text_T: Tensor, grad_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distinct rows [T], whether each is one [T, 1] (the rest is padding), their gradients [T, D]."""
        num_tokens, num_rows = len(ids_T), len(self.matrix)
        # Padding is put behind all words; so its one segment is the last, and its gradient is that of no text.
        sorted_T, order_T = torch.where(text_T < len(grad_ND), ids_T, num_rows).sort(stable=True)
        is_first_T = F.pad(sorted_T[1:] != sorted_T[:-1], (1, 0), value=True)
        places_T = torch.arange(num_tokens, device=ids_T.device)
        starts_T = torch.searchsorted(is_first_T.cumsum(0) - 1, places_T)  # num_tokens behind the last segment
        padded_ND = F.pad(grad_ND, (0, 0, 0, 1))
        grad_TD = F.embedding_bag(text_T[order_T], padded_ND, starts_T, mode="sum")
        rows_T = sorted_T[starts_T.clamp(max=num_tokens - 1)]
        is_row_T = (starts_T < num_tokens) & (rows_T < num_rows)
        # Padding stands for row after row, and adds zero to it: all on one row would wait for each other.
        return torch.where(is_row_T, rows_T, places_T % num_rows), is_row_T[:, None], grad_TD

    def _move(self, rows_T: Tensor, is_row_T1: Tensor, grad_TD: Tensor) -> None:
        recipe, matrix = self.recipe, self.matrix
        if self._initial is not None:
            grad_TD = grad_TD + self._pull * (matrix[rows_T] - self._initial[rows_T]) * is_row_T1
        if recipe.clip is not None:
            grad_TD = grad_TD * (recipe.clip / grad_TD.norm().clamp(min=1e-30)).clamp(max=1.0)
        update: Callable[[Tensor, Tensor, Tensor], Tensor] = {
            "adam": self._adam,
            "adagrad": self._adagrad,
            "sgd": self._sgd,
        }[recipe.optimiser]
        matrix.index_add_(0, rows_T, update(rows_T, is_row_T1, grad_TD))

    def _adam(self, rows_T: Tensor, is_row_T1: Tensor, grad_TD: Tensor) -> Tensor:
        beta1, beta2 = ADAM_BETAS
        mean_VD, square_VD = self._state["rows.mean"], self._state["rows.square"]
        mean_TD, square_TD = mean_VD[rows_T], square_VD[rows_T]
        by_mean_TD = (1 - beta1) * (grad_TD - mean_TD) * is_row_T1
        by_square_TD = (1 - beta2) * (grad_TD * grad_TD - square_TD) * is_row_T1
        mean_VD.index_add_(0, rows_T, by_mean_TD)
        square_VD.index_add_(0, rows_T, by_square_TD)
        size = self.recipe.learning_rate / (1 - beta1**self._number)
        root_TD = (square_TD + by_square_TD).sqrt() * ((1 - beta2**self._number) ** -0.5).float() + ADAM_EPS
        return -size.float() * (mean_TD + by_mean_TD) / root_TD * is_row_T1

    def _adagrad(self, rows_T: Tensor, is_row_T1: Tensor, grad_TD: Tensor) -> Tensor:
        by_sum_TD = grad_TD * grad_TD * is_row_T1
        self._state["rows.sum"].index_add_(0, rows_T, by_sum_TD)
        total_TD = self._state["rows.sum"][rows_T]
        return -self.recipe.learning_rate * grad_TD / (total_TD.sqrt() + ADAGRAD_EPS) * is_row_T1

    def _sgd(self, rows_T: Tensor, is_row_T1: Tensor, grad_TD: Tensor) -> Tensor:  # noqa: ARG002 - one signature for all
        return -self.recipe.learning_rate * grad_TD * is_row_T1
