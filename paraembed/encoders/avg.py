"""``avg``: the mean of the word vectors (Wieting 2016 eq. 1, "paragram-phrase"; Wieting 2017 AVG)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.base import Composition


@dataclass(frozen=True)
class AvgConfig:
    """Mean of the word vectors; no options."""

    def build(self, dimension: int, generator: torch.Generator) -> "Avg":  # noqa: ARG002 - nothing is drawn
        """The composition for word vectors of width ``dimension``."""
        return Avg(dimension)


class Avg(Composition):
    """g(x) = (1/n) Σ_t W_w[x_t]."""

    adds = "mean"

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.width = dimension

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Mean vectors [N, D]."""
        return F.embedding_bag(ids_T, rows_RD, offsets_N1.to(ids_T), mode="mean", include_last_offset=True)
