"""Training objectives: terms a pair, whose sum divided by the number of pairs is the loss.

Texts of pair i are rows 2i and 2i + 1. The similarity s of an objective is the dot product of what it is given:
of ``unit`` vectors it is the cosine (Wieting 2016, 2017), of plain ones the dot product (Wieting 2015).
"""

from torch import Tensor
from torch.nn import functional as F

SMALLEST_NORM = 1e-8
"""Minimum divisor of a vector: a zero vector keeps cosine 0 and a finite gradient."""


def unit(vectors_NH: Tensor) -> Tensor:
    """Return the vectors scaled to length 1; zero stays zero."""
    return F.normalize(vectors_NH, dim=1, eps=SMALLEST_NORM)


def positive(vectors_NH: Tensor) -> Tensor:
    """s(x1, x2) of each pair, [B, 1]."""
    return (vectors_NH[0::2] * vectors_NH[1::2]).sum(dim=1, keepdim=True)


def margin_terms(vectors_NH: Tensor, pool_PH: Tensor, negatives_N: Tensor, margin: float) -> Tensor:
    """Hinge terms of the margin loss (Wieting 2015 eq. 1, Wieting 2016 eq. 11, Wieting 2017 eq. 2).

    max(0, δ - s(x1, x2) + s(x1, t1)) and max(0, δ - s(x1, x2) + s(x2, t2)) of each pair.

    Args:
        vectors_NH: embeddings of B pairs.
        pool_PH: embeddings of the candidates.
        negatives_N: row of each text's negative in the pool; -1 for a text without a candidate, whose term is 0.
        margin: δ.

    Returns:
        [B, 2].
    """
    negative_N = (vectors_NH * F.embedding(negatives_N.clamp(min=0), pool_PH)).sum(dim=1)
    terms = F.relu(margin - positive(vectors_NH) + negative_N.view(-1, 2))
    return terms * (negatives_N >= 0).view(-1, 2)


def squared_l2_terms(vectors_NH: Tensor) -> Tensor:
    """‖g(x1) - g(x2)‖² of each pair, [B, 1] (Wieting 2015 §4.1, "simpler objective")."""
    return (vectors_NH[0::2] - vectors_NH[1::2]).square().sum(dim=1, keepdim=True)


def contrastive_terms(vectors_NH: Tensor, contrast_CH: Tensor, drawn_BK: Tensor, margin: float) -> Tensor:
    """Terms of the contrastive max-margin loss (Zhou 2017 §2.4).

    max(0, δ - s(p1, p2) + s(p1, c_i)) for each of the k contrast phrases of a pair.

    Args:
        vectors_NH: embeddings of B pairs.
        contrast_CH: embeddings of the distinct contrast phrases of the batch.
        drawn_BK: rows of each pair's contrast phrases.
        margin: δ.

    Returns:
        [B, k].
    """
    similarity_BC = vectors_NH[0::2] @ contrast_CH.T
    return F.relu(margin - positive(vectors_NH) + similarity_BC.gather(1, drawn_BK))
