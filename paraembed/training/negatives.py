"""Choose negatives from the mini-batch (Wieting 2016 §3.2, released code).

Texts of pair i stand at rows 2i and 2i + 1; the embeddings of the step are reused, not computed again.
"""

from typing import Literal

import torch
from torch import Tensor

Pool = Literal["both_sides", "same_side"]


@torch.no_grad()
def most_similar(unit_NH: Tensor, pool: Pool) -> Tensor:
    """MAX: for each text the most similar text of another pair.

    Args:
        unit_NH: embeddings of length 1, N = 2B texts of B ≥ 2 pairs.
        pool: candidates are both texts of every other pair (2(B-1) of them), or only the one on the same side.

    Returns:
        Row of the negative of each text, int64 [N]; ties go to the lowest row.
    """
    num_pairs = len(unit_NH) // 2
    similarity = (unit_NH @ unit_NH.T).view(num_pairs, 2, num_pairs, 2)
    similarity.diagonal(dim1=0, dim2=2).fill_(-torch.inf)
    if pool == "same_side":
        similarity[:, 0, :, 1] = -torch.inf
        similarity[:, 1, :, 0] = -torch.inf
    return similarity.view(2 * num_pairs, 2 * num_pairs).argmax(dim=1)
