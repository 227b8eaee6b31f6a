"""Encoder ``recursive``: one layer, applied from the leaves of a binary tree to its root (Wieting 2015 §4)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from paraembed.encoders.composition import Composition, drawn
from paraembed.encoders.configs import RecursiveConfig
from paraembed.encoders.packed import in_float32, to_device


class Recursive(Composition):
    """g(p) = tanh(W [g(c1); g(c2)] + b) for a node p with the children c1, c2; W_w[word] for a leaf.

    A text of one word is its word vector. The initial W [D, 2 · D] is uniform within ±√(2 / D) (Glorot), and b = 0; the
    paper does not give initial values.
    """

    reads_trees = True
    tokens_at_once = 16_384

    def __init__(self, _config: RecursiveConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = dimension
        bound = (6 / (3 * dimension)) ** 0.5
        self.weight = drawn(generator, bound, dimension, 2 * dimension)
        self.bias = nn.Parameter(torch.zeros(dimension))

    def forward(  # type: ignore[override]  # it reads trees
        self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, merges_T: Tensor
    ) -> Tensor:
        """Return the vectors of the roots [N, D]; ``merges_T``, int32 on the CPU, holds trees as in ``Ragged``."""
        tree = arrange(merges_T.numpy(), len(offsets_N1) - 1)
        leaves_TD = F.embedding(ids_T, rows_RD)
        return in_float32(_Roots, leaves_TD, self.weight, self.bias, tree)


@dataclass(frozen=True)
class Arrangement:
    """Nodes of N trees with T leaves: the leaves, then the I = T - N inner nodes, lower levels first.

    Level l holds the nodes of height l, so all children of a level precede it.
    """

    children: npt.NDArray[np.int64]  # int64 [I, 2], the left and right child of each inner node
    levels: list[int]  # start of each level, then the end of the last; the first start is T
    roots: npt.NDArray[np.int64]  # int64 [N]


def arrange(merges: npt.NDArray[np.int32], num_texts: int) -> Arrangement:
    """Number the nodes of the trees of N texts by height.

    In each round, all adjacent nodes that can be joined are joined, and form the next level. A node can be joined as
    soon as both of its children exist and are adjacent.
    """
    waiting = merges.copy()  # of each subtree, the joins that are still to come behind it
    nodes = np.arange(len(merges))
    levels, children = [len(merges)], []
    while True:
        right = np.flatnonzero((waiting[1:] > 0) & (waiting[:-1] == 0)) + 1
        if not len(right):
            break
        children.append(np.stack([nodes[right - 1], nodes[right]], axis=1))
        levels.append(levels[-1] + len(right))
        nodes[right] = np.arange(levels[-2], levels[-1])
        waiting[right] -= 1
        stays = np.ones(len(nodes), bool)
        stays[right - 1] = False
        nodes, waiting = nodes[stays], waiting[stays]
    assert len(nodes) + waiting.sum() == num_texts, "merges describe no binary trees over these texts"
    return Arrangement(np.concatenate([np.zeros((0, 2), np.int64), *children]), levels, nodes)


class _Roots(torch.autograd.Function):
    """Map leaves [T, D] to roots [N, D], with one matrix product per level, forward and backward."""

    @staticmethod
    def forward(ctx: Any, leaves_TD: Tensor, weight_DE: Tensor, bias_D: Tensor, tree: Arrangement, _: bool) -> Tensor:
        device, (num_leaves, width) = leaves_TD.device, leaves_TD.shape
        children, roots = (to_device(places, device) for places in (tree.children.reshape(-1), tree.roots))
        states_SD = leaves_TD.new_empty(tree.levels[-1], width)
        states_SD[:num_leaves] = leaves_TD
        for start, stop in pairwise(tree.levels):
            below = children[2 * (start - num_leaves) : 2 * (stop - num_leaves)]
            pairs_LE = states_SD.index_select(0, below).view(-1, 2 * width)
            level_LD = states_SD[start:stop]
            torch.addmm(bias_D, pairs_LE, weight_DE.t(), out=level_LD).tanh_()
        ctx.save_for_backward(states_SD, weight_DE, children, roots)
        ctx.levels = tree.levels
        return states_SD.index_select(0, roots)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor | None, ...]:
        states_SD, weight_DE, children, roots = ctx.saved_tensors
        num_leaves, width = ctx.levels[0], states_SD.shape[1]
        # Every node is a root or the child of one node: each row is written once.
        grad_SD = torch.empty_like(states_SD).index_copy_(0, roots, grad_ND)
        for start, stop in reversed(list(pairwise(ctx.levels))):
            below = children[2 * (start - num_leaves) : 2 * (stop - num_leaves)]
            level_LD = grad_SD[start:stop]  # becomes the gradient before tanh
            level_LD.addcmul_(level_LD * states_SD[start:stop], states_SD[start:stop], value=-1)
            grad_SD.index_copy_(0, below, (level_LD @ weight_DE).view(-1, width))
        inner_ID = grad_SD[num_leaves:]
        grad_weight = inner_ID.t() @ states_SD.index_select(0, children).view(-1, 2 * width)
        return grad_SD[:num_leaves], grad_weight, inner_ID.sum(0), None, None
