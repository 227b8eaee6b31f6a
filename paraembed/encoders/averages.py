"""Bag-of-words encoders ``avg``, ``sum``, ``word`` and ``scaled_avg``: sums and means of word vectors."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.composition import Composition
from paraembed.encoders.configs import EncoderConfig
from paraembed.encoders.tables import Floats

if TYPE_CHECKING:
    from paraembed.encoders.base import Encoder


class _OfWords(Composition):
    """Composition whose text vectors are as wide as the word vectors."""

    def __init__(self, _config: EncoderConfig, dimension: int, _generator: torch.Generator) -> None:
        super().__init__()
        self.width = dimension


class Avg(_OfWords):
    """g(x) = (1/n) Σ_t W_w[x_t] (Wieting 2016 eq. 1, "paragram-phrase"; Wieting 2017 AVG)."""

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Return the mean vectors [N, D]."""
        return F.embedding_bag(ids_T, rows_RD, offsets_N1.to(ids_T), mode="mean", include_last_offset=True)


class Sum(_OfWords):
    """g(x) = Σ_t W_w[x_t] (Wieting 2015, "+")."""

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Return the sums [N, D]."""
        return F.embedding_bag(ids_T, rows_RD, offsets_N1.to(ids_T), mode="sum", include_last_offset=True)


class Word(_OfWords):
    """g(x) = W_w[x_1] (Wieting 2015 §4, "word paraphrase"), which trains PARAGRAM word vectors.

    Texts are single words; of a longer text, only the first token is used.
    """

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Return the vectors [N, D] of the first words."""
        return F.embedding(ids_T[offsets_N1[:-1].to(ids_T.device)], rows_RD)


class ScaledAvg(_OfWords):
    """g(x) = (1/n) Σ_t a[x_t]·W_w[x_t] (Wieting 2016 §6, footnote 24); a = 1 before training, which is ``avg``.

    In the paper, only ``scale`` [V] is trained, and the word vectors are frozen (set ``train_words`` to false).
    """

    reads_words = True

    def for_vocabulary(self, num_words: int) -> None:
        """Set the scale of each of ``num_words`` words to 1."""
        self.scale = nn.Parameter(torch.ones(num_words))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, words_T: Tensor) -> Tensor:  # type: ignore[override]
        """Return the means of the scaled vectors [N, D]."""
        lengths_N = offsets_N1.diff().to(rows_RD)
        scale_T = F.embedding(words_T, self.scale[:, None])[:, 0]  # a GPU adds up its gradient in a fixed order
        sums_ND = F.embedding_bag(
            ids_T, rows_RD, offsets_N1.to(ids_T), mode="sum", per_sample_weights=scale_T, include_last_offset=True
        )
        return sums_ND / lengths_N[:, None]


def vectors_of(encoder: "Encoder") -> Floats:
    """Return the effective word vectors of an encoder, [V, D]; for ``scaled_avg``, vectors times scales."""
    matrix: Floats = encoder.matrix.detach().float().cpu().numpy()
    if isinstance(encoder.composition, ScaledAvg):
        matrix = matrix * encoder.composition.scale.detach().float().cpu().numpy()[:, None]
    return matrix
