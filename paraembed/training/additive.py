"""The margin step of encoders that add up word vectors, with its gradient in closed form and in compiled loops.

A text's vector is the mean or the sum of its words' vectors, so that all the step needs of a text is one vector and one
gradient: no row is gathered, no graph is built. Computes what ``Step`` does by autograd, to 1e-6.

Data-parallel: every worker holds all pairs and the same matrix, so vectors and gradients of a whole step cost each of
them less than to send them (2,000 texts: 3 ms against 2.4 MB). What is shared out is the choice of negatives, whose
work grows with the square of the batch; the choices are all that is exchanged, 8 bytes a text.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.encoders.avg import Avg
from paraembed.encoders.sum import Sum
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.exchange import all_gather
from paraembed.training.kernels import composed, gradient_by_token, margin_gradient, row_gradients, texts_by_row
from paraembed.training.negatives import Negatives
from paraembed.training.objectives import SMALLEST_NORM
from paraembed.training.pairs import share_bounds
from paraembed.training.update import Update

_ROWS_AT_ONCE = 1024  # 1.2 MB at width 300
_SMALLEST = np.float32(SMALLEST_NORM)


def is_additive(encoder: Encoder, recipe: Recipe) -> bool:
    """Whether ``AdditiveStep`` can take the steps of a recipe on an encoder."""
    return (
        isinstance(encoder.composition, Avg | Sum)
        and recipe.objective == "margin"
        and recipe.train_words
        and recipe.update == "sparse"
        and not (recipe.dropout or recipe.word_dropout or recipe.scramble)
    )


class AdditiveStep:
    """The step of a recipe that ``is_additive``; owns nothing but scratch memory."""

    def __init__(self, encoder: Encoder, recipe: Recipe, negatives: Negatives, update: Update, rank: int) -> None:
        self.encoder, self.recipe, self.rank = encoder, recipe, rank
        self.negatives, self.update = negatives, update
        self.mean, self.unit = isinstance(encoder.composition, Avg), recipe.similarity == "cosine"
        self._places_V = np.full(len(encoder.matrix), -1, np.int32)

    def __call__(
        self,
        texts: Ragged,
        chosen_N: npt.NDArray[np.int64] | None,
        total: int,
        step: int,
        generator: np.random.Generator,
    ) -> tuple[float, int]:
        """Train on the batch of all workers.

        Args:
            texts: of the whole step's pairs, the same on every worker; where negatives are chosen already, their texts
                stand behind them.
            chosen_N: the row of each text's negative among them; None: choose them.
            total: pairs of the step.
            step: from 1 over the run.
            generator: this worker's draws.

        Returns:
            Sum of the objective's terms of this worker's share, and how many of them are above zero.
        """
        whole = self.encoder.with_boundaries(texts)
        ids_T, offsets_N1 = whole.ids, whole.offsets
        matrix_VD = self.update.matrix.numpy()
        how = self.mean, self.unit, _SMALLEST
        vectors_NH = np.empty((len(texts), matrix_VD.shape[1]), np.float32)
        norms_N = composed(matrix_VD, ids_T, offsets_N1, *how, vectors_NH)
        bounds = share_bounds(total, self.update.world)
        if chosen_N is None:
            chosen_N = self._choose(torch.from_numpy(vectors_NH), texts, bounds, generator).numpy()
        grad_NH = np.empty_like(vectors_NH)
        counted = np.array(bounds[self.rank : self.rank + 2])
        margin, share = np.float32(self.recipe.margin), np.float32(1 / total)
        result = margin_gradient(vectors_NH, chosen_N, margin, share, counted, grad_NH)
        gradient_by_token(vectors_NH, norms_N, offsets_N1, *how, grad_NH)
        rows_T, texts_T = np.empty((2, len(ids_T)), np.int32)
        starts_T1 = np.empty(len(ids_T) + 1, np.int64)
        num_rows = texts_by_row(ids_T, offsets_N1, self._places_V, rows_T, texts_T, starts_T1)
        # Block by block, so that gradients of rows stay in the processor's cache; clipping wants all of them at once.
        at_once = _ROWS_AT_ONCE if self.recipe.clip is None else num_rows
        for first in range(0, num_rows, at_once):
            last = min(first + at_once, num_rows)
            grad_RD = np.empty((last - first, matrix_VD.shape[1]), np.float32)
            row_gradients(starts_T1[first : last + 1], texts_T, grad_NH, grad_RD)
            self.update.move(torch.from_numpy(rows_T[first:last]), torch.from_numpy(grad_RD), step)
        return result

    def _choose(self, vectors_NH: Tensor, texts: Ragged, bounds: list[int], generator: np.random.Generator) -> Tensor:
        """The negative of each text, by its row in the step, int64 [N]; each worker finds those of its share."""
        if self.update.world == 1:
            return self.negatives.choose(vectors_NH, vectors_NH, texts, texts, 0, generator)
        starts = [2 * bound for bound in bounds]
        first, last = starts[self.rank : self.rank + 2]
        own_NH, own = vectors_NH[first:last], texts.slice(first, last)
        if self.recipe.pool_workers == "all":
            chosen_N = self.negatives.choose(own_NH, vectors_NH, own, texts, first, generator)
        else:
            chosen_N = self.negatives.choose(own_NH, own_NH, own, own, 0, generator)
            chosen_N = torch.where(chosen_N < 0, chosen_N, chosen_N + first)
        counts = np.diff(starts).tolist()
        return torch.cat(all_gather(chosen_N, counts))
