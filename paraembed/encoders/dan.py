"""``dan``: the deep averaging network, dense layers on the mean of the word vectors (Iyyer 2015; Wieting 2016)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.avg import Avg
from paraembed.encoders.base import Composition, drawn
from paraembed.encoders.configs import DanConfig


def build(config: DanConfig, dimension: int, generator: torch.Generator) -> "Dan":
    """Return the composition for word vectors of width ``dimension``."""
    return Dan(dimension, config, generator)


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
