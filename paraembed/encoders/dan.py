"""``dan``: the deep averaging network, dense layers on the mean of the word vectors (Iyyer 2015; Wieting 2016)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.avg import Avg
from paraembed.encoders.base import MAX_WIDTH, Composition, drawn
from paraembed.options import check_fields


@dataclass(frozen=True)
class DanConfig:
    """Dense layers on the mean.

    Attributes:
        layers: how many; Wieting 2016 tunes 1 or 2, the released code allows up to 4.
        activation: f of every layer.
        width: length of every layer and of the text vector; the width of the word vectors when left out.
    """

    layers: int = 1
    activation: Literal["tanh", "relu"] = "tanh"
    width: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an option that is not allowed."""
        check_fields(self, {"layers": (1, 4), "width": (1, MAX_WIDTH)}, "dan")

    def build(self, dimension: int, generator: torch.Generator) -> "Dan":
        """The composition for word vectors of width ``dimension``."""
        return Dan(dimension, self, generator)


class Dan(Composition):
    """g(x) = f(W_L … f(W_1·avg(x) + b_1) … + b_L).

    As in the released code W_1 ~ N(0, 0.1²), the further weights are Glorot's uniform ones, b = 0.
    """

    def __init__(self, dimension: int, config: DanConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.width = dimension if config.width is None else config.width
        self.mean = Avg(dimension)
        self.activation = config.activation
        width, bound = self.width, (3 / self.width) ** 0.5  # √(6 / (H + H))
        self.weights = nn.ParameterList([torch.empty(width, dimension).normal_(0, 0.1, generator=generator)])
        for _ in range(config.layers - 1):
            self.weights.append(drawn(generator, bound, width, width))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(config.layers))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Vectors [N, H]."""
        activate = torch.tanh if self.activation == "tanh" else torch.relu
        vectors_NH: Tensor = self.mean(rows_RD, ids_T, offsets_N1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            vectors_NH = activate(F.linear(vectors_NH, weight, bias))
        return vectors_NH
