"""``avg``: the mean of the word vectors (Wieting 2016 eq. 1, "paragram-phrase"; Wieting 2017 AVG)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.base import Composition
from paraembed.encoders.configs import AvgConfig


def build(_config: AvgConfig, dimension: int, _generator: torch.Generator) -> "Avg":
    """Return the composition for word vectors of width ``dimension``."""
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
