"""``word``: the vector of a single word (Wieting 2015 §4, "word paraphrase"): what trains PARAGRAM word vectors.

Inputs are meant to be single words; of a longer text only the first token is read.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.base import Composition


@dataclass(frozen=True)
class WordConfig:
    """The first word's vector; no options."""

    def build(self, dimension: int, generator: torch.Generator) -> "Word":  # noqa: ARG002 - nothing is drawn
        """The composition for word vectors of width ``dimension``."""
        return Word(dimension)


class Word(Composition):
    """g(x) = W_w[x_1]."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.width = dimension

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Vectors [N, D] of the first words."""
        return F.embedding(ids_T[offsets_N1[:-1].to(ids_T.device)], rows_RD)
