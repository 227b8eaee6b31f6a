"""``cnn``: unigram filters and their maxima over the text (Kim 2014; Wieting 2015 §5.5), a classifier's encoder.

The paper holds the word vectors ("static") and puts dropout 0.5 and a softmax layer on the maxima.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.base import Composition, drawn
from paraembed.encoders.configs import CnnConfig
from paraembed.encoders.packed import project_words


def build(config: CnnConfig, dimension: int, generator: torch.Generator) -> "Cnn":
    """Return the composition for word vectors of width ``dimension``."""
    return Cnn(dimension, config.filters, generator)


class Cnn(Composition):
    """g(x)_k = max_t ReLU(f_k · W_w[x_t] - b_k), with Glorot's uniform filters, b = 0.

    The bias is subtracted and the ReLU taken of the maximum, which is the same. Of equal maxima the first one's word
    gets the gradient.
    """

    tokens_at_once = 16_384

    def __init__(self, dimension: int, filters: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = filters
        self.weight = drawn(generator, (6 / (dimension + filters)) ** 0.5, filters, dimension)
        self.bias = nn.Parameter(torch.zeros(filters))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Maxima [N, H]."""
        responses_TH = project_words(rows_RD, ids_T, self.weight)
        # A bag per text over its own slots: no two bags share one, so a GPU adds up nothing in an order of its own.
        places_T = torch.arange(len(ids_T), device=ids_T.device, dtype=offsets_N1.dtype)
        offsets = offsets_N1.to(ids_T.device)
        maxima_NH = F.embedding_bag(places_T, responses_TH, offsets, mode="max", include_last_offset=True)
        return torch.relu(maxima_NH - self.bias)
