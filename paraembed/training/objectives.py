"""Training objectives."""

from torch import Tensor
from torch.nn import functional as F

_SMALLEST_NORM = 1e-8  # a zero vector keeps cosine 0 and a finite gradient


def unit(vectors_NH: Tensor) -> Tensor:
    """Vectors scaled to length 1; zero stays zero."""
    return F.normalize(vectors_NH, dim=1, eps=_SMALLEST_NORM)


def margin_terms(unit_NH: Tensor, negatives_N: Tensor, margin: float) -> Tensor:
    """Hinge terms of the margin loss (Wieting 2016 eq. 11, Wieting 2017 eq. 2).

    max(0, δ - cos(x1, x2) + cos(x1, t1)) and max(0, δ - cos(x1, x2) + cos(x2, t2)) of each pair.

    Args:
        unit_NH: embeddings of length 1; the texts of pair i at rows 2i and 2i + 1.
        negatives_N: row of each text's negative.
        margin: δ.

    Returns:
        [B, 2]; the loss is their sum divided by the number of pairs.
    """
    positive_B1 = (unit_NH[0::2] * unit_NH[1::2]).sum(dim=1, keepdim=True)
    negative_N = (unit_NH * unit_NH[negatives_N]).sum(dim=1)
    return F.relu(margin - positive_B1 + negative_N.view(-1, 2))
