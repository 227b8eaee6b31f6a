"""Mega-batches: negatives chosen from several batches at once (Wieting and Gimpel 2018, "mega-batching").

Before the first of M batches the texts of all of them are embedded once and each gets its negative from them; the M
batches then train one after the other, each with the negatives that were chosen. So a batch of 100 gets negatives as
hard as one of 100 M would, at the memory of 100 and at the price of embedding every text twice more: once to choose,
once as a negative.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged, joined
from paraembed.training.negatives import Negatives
from paraembed.training.pairs import Batch

_ROWS_AT_ONCE = 2048  # of the similarity matrix: 60 batches of 100 pairs would make one of 0.6 GB


def mega_size(recipe: Recipe, step: int) -> int:
    """Batches of the mega-batch that begins with a step (from 1): one more every ``mega_anneal`` steps, up to all."""
    if not recipe.mega_anneal:
        return recipe.mega_batches
    return min(recipe.mega_batches, 1 + (step - 1) // recipe.mega_anneal)


def mega_batches(batches: Iterator[Batch], recipe: Recipe, first_step: int) -> Iterator[Batch]:
    """The same batches; the first of each mega-batch brings the texts of all, and only the last may be a run's last.

    Args:
        batches: of an epoch.
        recipe: how many make a mega-batch.
        first_step: of the run, from 1, that the first batch is.
    """
    step = first_step
    while group := list(islice(batches, mega_size(recipe, step))):
        for number, batch in enumerate(group):
            ahead = joined(*(one.texts for one in group)) if number == 0 else None
            yield replace(batch, ahead=ahead, may_pause=number == len(group) - 1)
        step += len(group)


class MegaNegatives:
    """The negatives of a mega-batch, handed out batch by batch."""

    def __init__(self, negatives: Negatives) -> None:
        self.negatives = negatives
        self._texts, self._done = Ragged(np.zeros(0, np.int32), np.zeros(1, np.int64)), 0
        self._chosen_G = np.zeros(0, np.int64)

    def is_alone(self, batch: Batch) -> bool:
        """Whether the batch is all of its mega-batch."""
        return batch.ahead is not None and len(batch.ahead) == len(batch.texts)

    def __call__(
        self, batch: Batch, vectors_of: Callable[[Ragged], Tensor], generator: np.random.Generator
    ) -> tuple[Ragged, npt.NDArray[np.int64]]:
        """The texts of a batch and its negatives, one behind the other, and the row of each text's negative among them.

        -1 stands for a text without a negative. Batches come in the order of ``mega_batches``; ``vectors_of`` embeds
        texts as the objective compares them, without gradient.
        """
        if batch.ahead is not None:
            self._texts, self._done = batch.ahead, 0
            self._chosen_G = self._choose(batch.ahead, vectors_of(batch.ahead), generator)
        num_texts = len(batch.texts)
        chosen_N = self._chosen_G[self._done : self._done + num_texts]
        self._done += num_texts
        texts = joined(batch.texts, self._texts.take(np.maximum(chosen_N, 0)))
        return texts, np.where(chosen_N < 0, -1, num_texts + np.arange(num_texts))

    @torch.no_grad()
    def _choose(self, texts: Ragged, vectors_GH: Tensor, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        chosen = []
        for first in range(0, len(texts), _ROWS_AT_ONCE):
            some = slice(first, min(first + _ROWS_AT_ONCE, len(texts)))
            own = texts.slice(some.start, some.stop)
            chosen.append(self.negatives.choose(vectors_GH[some], vectors_GH, own, texts, first, generator))
        joined_G: npt.NDArray[np.int64] = torch.cat(chosen).cpu().numpy() if chosen else np.zeros(0, np.int64)
        return joined_G
