"""Encoders ``proj`` and ``dan``: a linear map, or dense layers, on the mean of the word vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.averages import Avg
from paraembed.encoders.composition import Composition, drawn
from paraembed.encoders.configs import DanConfig, ProjConfig


class Proj(Composition):
    """g(x) = W_p·avg(x) + b (Wieting 2016 eq. 2), with the initial W_p of ``torch.nn.Linear`` and b = 0."""

    def __init__(self, config: ProjConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = config.width or dimension
        self.mean = Avg(config, dimension, generator)
        self.weight = drawn(generator, dimension**-0.5, self.width, dimension)
        self.bias = nn.Parameter(torch.zeros(self.width))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Return the projected means [N, H]."""
        return F.linear(self.mean(rows_RD, ids_T, offsets_N1), self.weight, self.bias)


class Dan(Composition):
    """g(x) = f(W_L … f(W_1·avg(x) + b_1) … + b_L), the deep averaging network (Iyyer 2015; Wieting 2016).

    Initial values as in the released code: W_1 ~ N(0, 0.1²), Glorot-uniform weights in the other layers, b = 0.
    """

    def __init__(self, config: DanConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        width = self.width = config.width or dimension
        self.mean = Avg(config, dimension, generator)
        self.activation = config.activation
        bound = (3 / width) ** 0.5  # √(6 / (H + H))
        self.weights = nn.ParameterList([torch.empty(width, dimension).normal_(0, 0.1, generator=generator)])
        for _ in range(config.layers - 1):
            self.weights.append(drawn(generator, bound, width, width))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(config.layers))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Return the vectors [N, H]."""
        activate = torch.tanh if self.activation == "tanh" else torch.relu
        vectors_NH: Tensor = self.mean(rows_RD, ids_T, offsets_N1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            vectors_NH = activate(F.linear(vectors_NH, weight, bias))
        return vectors_NH
