"""``proj``: a linear map of the mean of the word vectors (Wieting 2016 eq. 2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.avg import Avg
from paraembed.encoders.base import MAX_WIDTH, Composition, drawn
from paraembed.options import check_fields


@dataclass(frozen=True)
class ProjConfig:
    """Linear map of the mean.

    Attributes:
        width: length of the text vector; the width of the word vectors when left out.
    """

    width: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an option that is not allowed."""
        check_fields(self, {"width": (1, MAX_WIDTH)}, "proj")

    def build(self, dimension: int, generator: torch.Generator) -> "Proj":
        """The composition for word vectors of width ``dimension``."""
        return Proj(dimension, dimension if self.width is None else self.width, generator)


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
