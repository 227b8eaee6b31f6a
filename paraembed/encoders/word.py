"""``word``: the vector of a single word (Wieting 2015 §4, "word paraphrase"): what trains PARAGRAM word vectors.

Inputs are meant to be single words; of a longer text only the first token is read.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.base import Composition
from paraembed.encoders.configs import WordConfig


def build(_config: WordConfig, dimension: int, _generator: torch.Generator) -> "Word":
    """Return the composition for word vectors of width ``dimension``."""
    return Word(dimension)


class Word(Composition):
    """g(x) = W_w[x_1]."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.width = dimension

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Vectors [N, D] of the first words."""
        return F.embedding(ids_T[offsets_N1[:-1].to(ids_T.device)], rows_RD)
