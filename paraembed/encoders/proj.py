"""``proj``: a linear map of the mean of the word vectors (Wieting 2016 eq. 2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.avg import Avg
from paraembed.encoders.base import Composition, drawn
from paraembed.encoders.configs import ProjConfig


def build(config: ProjConfig, dimension: int, generator: torch.Generator) -> "Proj":
    """Return the composition for word vectors of width ``dimension``."""
    return Proj(dimension, dimension if config.width is None else config.width, generator)


class Proj(Composition):
    """g(x) = W_p·avg(x) + b, with W_p drawn as ``torch.nn.Linear`` does, b = 0."""

    def __init__(self, dimension: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = width
        self.mean = Avg(dimension)
        bound = dimension**-0.5
        self.weight = drawn(generator, bound, width, dimension)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Projected means [N, H]."""
        return F.linear(self.mean(rows_RD, ids_T, offsets_N1), self.weight, self.bias)
