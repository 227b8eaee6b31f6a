"""The layout in which recurrent encoders read a batch of texts: step by step, without padding.

The texts are sorted by length, the longest first; step t holds token t of every text that is long enough, in that
order, so the texts at work in a step are always the first ones. P (= T) counts the places of this layout, the slots.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Packed:
    """Where each token of a batch stands, step by step.

    Attributes:
        sizes: texts at work in each step, not increasing; their sum is P.
        tokens: place in the flat batch of the token of each slot, int64 [P].
        slots: slot of each token of the flat batch, the inverse of ``tokens``, int64 [T].
        last: slot of the token that is read last, by text, int64 [N].
    """

    sizes: tuple[int, ...]
    tokens: Tensor
    slots: Tensor
    last: Tensor

    def steps(self, *vectors: Tensor) -> list[tuple[Tensor, ...]]:
        """The part of each step: of [P, …] its slots, of [N, …] the texts at work (sorted by length)."""
        total = sum(self.sizes)
        parts = [
            one.split_with_sizes(self.sizes) if len(one) == total else [one[:size] for size in self.sizes]
            for one in vectors
        ]
        return list(zip(*parts, strict=True))

    def before(self, vectors_PH: Tensor) -> Tensor:
        """What stands before each slot in its text, for the slots of every step but the first."""
        parts = zip(vectors_PH.split_with_sizes(self.sizes), self.sizes[1:], strict=False)
        return torch.cat([vectors_PH[:0], *(step[:size] for step, size in parts)])


def pack(offsets_N1: Tensor, device: torch.device, *, backward: bool = False) -> Packed:
    """Lay out texts, none of them empty.

    Args:
        offsets_N1: where each text begins and ends, int64, on the CPU.
        device: where the words are.
        backward: read each text from its last token to its first. ``sizes`` and the order of the texts stay the same.
    """
    offsets = offsets_N1.numpy()
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    shorter = np.cumsum(np.bincount(lengths))  # by length: texts of at most that length
    sizes = len(lengths) - shorter[:-1]
    starts = np.cumsum(sizes) - sizes
    total = int(offsets[-1])
    step = np.arange(total) - np.repeat(offsets[:-1], lengths)
    if backward:
        step = np.repeat(lengths - 1, lengths) - step
    places = np.empty(2 * total + len(lengths), np.int64)
    tokens, slots, last = np.split(places, [total, 2 * total])
    slots[:] = starts[step] + np.repeat(rank, lengths)
    tokens[slots] = np.arange(total)
    last[:] = starts[lengths - 1] + rank
    there = torch.from_numpy(places).to(device)
    return Packed(tuple(sizes.tolist()), there[:total], there[total : 2 * total], there[2 * total :])


def project_words(rows_RD: Tensor, ids_P: Tensor, weight_GD: Tensor, bias_G: Tensor | None = None) -> Tensor:
    """A linear map of words, [P, G]: of the rows where they are fewer than the tokens, else of the tokens.

    Args:
        rows_RD: word vectors.
        ids_P: row of each token, in the order wanted.
        weight_GD: the map.
        bias_G: added to it.
    """
    if len(rows_RD) < len(ids_P):
        if rows_RD.data_ptr() % 64:  # a product's rounding depends on it, and a matrix from a file begins anywhere
            rows_RD = rows_RD.clone()
        return F.embedding(ids_P, F.linear(rows_RD, weight_GD, bias_G))
    return F.linear(F.embedding(ids_P, rows_RD), weight_GD, bias_G)


def text_means(states_PH: Tensor, packed: Packed, offsets_N1: Tensor) -> Tensor:
    """Mean over the tokens of each text, [N, H], of a vector a slot."""
    offsets = offsets_N1.to(states_PH.device)
    return F.embedding_bag(packed.slots, states_PH, offsets, mode="mean", include_last_offset=True)
