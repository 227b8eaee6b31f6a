"""``scaled_avg``: the mean of the word vectors, each times its word's own number (Wieting 2016 §6, footnote 24)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.base import Composition
from paraembed.encoders.configs import ScaledAvgConfig


def build(_config: ScaledAvgConfig, dimension: int, _generator: torch.Generator) -> "ScaledAvg":
    """Return the composition for word vectors of width ``dimension``."""
    return ScaledAvg(dimension)


class ScaledAvg(Composition):
    """g(x) = (1/n) Σ_t a[x_t]·W_w[x_t], with a = 1, which is ``avg``, before training.

    The paper learns ``scale`` [V] alone, with the word vectors fixed: ``train_words`` off.
    """

    reads_words = True

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.width = dimension
        self.for_vocabulary(1)

    def for_vocabulary(self, num_words: int) -> None:
        """Give each of so many words the scale 1."""
        self.scale = nn.Parameter(torch.ones(num_words))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, words_T: Tensor) -> Tensor:  # type: ignore[override]
        """Means of the scaled vectors [N, D]."""
        lengths_N = offsets_N1.diff().to(rows_RD)
        scale_T = F.embedding(words_T, self.scale[:, None])[:, 0]  # a GPU adds up its gradient in a fixed order
        sums_ND = F.embedding_bag(
            ids_T, rows_RD, offsets_N1.to(ids_T), mode="sum", per_sample_weights=scale_T, include_last_offset=True
        )
        return sums_ND / lengths_N[:, None]
