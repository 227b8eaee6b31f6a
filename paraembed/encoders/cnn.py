"""Encoder ``cnn``: maxima of unigram filters over the text (Kim 2014; Wieting 2015 §5.5), used for classification.

The paper freezes the word vectors ("static"), and applies dropout 0.5 and a softmax layer to the maxima.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.composition import Composition, drawn
from paraembed.encoders.configs import CnnConfig
from paraembed.encoders.packed import project_words


class Cnn(Composition):
    """g(x)_k = max_t ReLU(f_k · W_w[x_t] - b_k), with Glorot-uniform filters and b = 0.

    Bias and ReLU are applied after the maximum, which gives the same result. Of equal maxima, the word of the first one
    gets the gradient.
    """

    tokens_at_once = 16_384

    def __init__(self, config: CnnConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = config.filters
        self.weight = drawn(generator, (6 / (dimension + self.width)) ** 0.5, self.width, dimension)
        self.bias = nn.Parameter(torch.zeros(self.width))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Return the maxima [N, H]."""
        responses_TH = project_words(rows_RD, ids_T, self.weight)
        # A bag per text over its own slots: no two bags share one, so a GPU adds up nothing in an order of its own.
        places_T = torch.arange(len(ids_T), device=ids_T.device, dtype=offsets_N1.dtype)
        offsets = offsets_N1.to(ids_T.device)
        maxima_NH = F.embedding_bag(places_T, responses_TH, offsets, mode="max", include_last_offset=True)
        return torch.relu(maxima_NH - self.bias)
