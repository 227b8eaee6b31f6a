"""``sum``: the sum of the word vectors (Wieting 2015, "+")."""

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.base import Composition
from paraembed.encoders.configs import SumConfig


def build(_config: SumConfig, dimension: int, _generator: torch.Generator) -> "Sum":
    """Return the composition for word vectors of width ``dimension``."""
    return Sum(dimension)


class Sum(Composition):
    """g(x) = Σ_t W_w[x_t]."""

    adds = "sum"

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.width = dimension

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Sums [N, D]."""
        return F.embedding_bag(ids_T, rows_RD, offsets_N1.to(ids_T), mode="sum", include_last_offset=True)
