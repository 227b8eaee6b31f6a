"""Encoder ``irnn``: a linear recurrent network that equals the mean of the word vectors before training (Wieting
2016).
"""

import torch
from torch import Tensor, nn

from paraembed.encoders.base import Composition
from paraembed.encoders.configs import IrnnConfig
from paraembed.encoders.packed import Steps, pack, project_words
from paraembed.encoders.rnn import last_states


def build(_config: IrnnConfig, dimension: int, _generator: torch.Generator) -> "Irnn":
    """Return the composition for word vectors of width ``dimension``."""
    return Irnn(dimension)


class Irnn(Composition):
    """h_t = W_x x_t + W_h h_{t-1} + b, g(x) = h_n / n; initially W_x = W_h = I and b = 0, which equals ``avg``.

    Training pulls the weights back to these initial values (λ_c ∈ {1000, 100, 10, 1} in Wieting 2016).
    """

    is_recurrent = True
    tokens_at_once = 16_384

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.width = dimension
        self.input_weight = nn.Parameter(torch.eye(dimension))
        self.state_weight = nn.Parameter(torch.eye(dimension))
        self.bias = nn.Parameter(torch.zeros(dimension))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, steps: Steps | None = None) -> Tensor:
        """Return the last states divided by the number of tokens, [N, D]."""
        packed = pack(offsets_N1, rows_RD.device, steps=steps)
        inputs_PD = project_words(rows_RD, ids_T[packed.tokens], self.input_weight, self.bias)
        states_ND = last_states(inputs_PD, self.state_weight, packed, "identity")
        return states_ND / offsets_N1.diff().to(states_ND.device)[:, None]
