"""Interface of a training step, and what the steps on pairs have in common.

Every draw is f(seed, step, worker), so a resumed run draws the same numbers as an uninterrupted one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.negatives import MegaNegatives, Negatives, mega_batches
from paraembed.training.objectives import ContrastPhrases, step_draws
from paraembed.training.pairs import epoch_batches
from paraembed.training.update import Update


class TrainingStep(ABC):
    """Interface of a step for the training loop; see ``BaseStep``."""

    recipe: BaseRecipe
    """Recipe of the training."""
    update: Update
    """Update of the parameters; its state is that of the step."""
    rank: int
    world: int
    skipped_pairs: int

    @abstractmethod
    def batches(self, pairs: Any, epoch: int, first_pair: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch."""

    @abstractmethod
    def __call__(self, batch: Any, step: int) -> Tensor:
        """Train on a batch."""

    def enqueue(self, batch: Any, step: int, sums: Tensor) -> None:
        """Train on a batch at the latest in the next call of ``flush``, and add the result to ``sums``, float64 [2]."""
        sums += self(batch, step)

    def flush(self) -> None:  # noqa: B027 - nothing is in a queue
        """Train on the batches that are in the queue."""


class BaseStep(TrainingStep):
    """What the training steps on pairs have in common; they compute the same result in different ways.

    Attributes:
        update: holds the optimizers' state.
        skipped_pairs: number of pairs that were alone in a batch or mega-batch and had no negative.
    """

    recipe: Recipe

    def __init__(
        self, encoder: Encoder, recipe: Recipe, pairs: Ragged, rank: int = 0, world: int = 1, *, compiled: bool = False
    ) -> None:
        """Prepare the step; ``pairs`` are all pairs of the data, for contrast phrases and false-negative filtering.

        With ``compiled``, compiled loops on the CPU update the rows of the word matrix; the result is the same to 1e-6.

        Raises:
            ValueError: the recipe trains no parameters, or needs phrases that the data do not have.
        """
        self.encoder, self.recipe, self.rank, self.world = encoder, recipe, rank, world
        self.device = encoder.matrix.device
        self._batch_size, self._worker = recipe.batch_size, {"rank": rank, "world": world}
        self.update = Update(encoder, recipe, world, compiled)
        self.skipped_pairs = 0
        self._negatives = Negatives(recipe, encoder, pairs, world) if recipe.objective == "margin" else None
        self._mega = None
        if self._negatives is not None and recipe.pools_batches:
            self._mega = MegaNegatives(self._negatives, encoder, rank)
        is_changed = recipe.dropout or recipe.word_dropout or (recipe.scramble and recipe.scramble_time == "after")
        # Whether negatives are selected by vectors without dropout and scrambling, not by those of the objective.
        self._selects_apart = bool(is_changed) and self._negatives is not None and self._mega is None
        self._contrast = ContrastPhrases(pairs, recipe.contrast_phrases) if recipe.draws_contrast else None

    def batches(self, pairs: Ragged, epoch: int, first_pair: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch (from 0), of the type that the step takes: this worker's parts of the steps.

        ``first_pair`` pairs of the epoch are already finished, over all workers.
        """
        how = {"epoch": epoch, "seed": self.recipe.seed, "first_pair": first_pair}
        batches = epoch_batches(pairs, batch_size=self._batch_size, **self._worker, **how)
        return batches if self._mega is None else mega_batches(batches, self.recipe.mega_batch_size)

    def __call__(self, batch: Any, step: int) -> Tensor:
        """Train on the next batch of ``batches``, at a step counted from 1 over the run.

        Return [2] on the encoder's device: this worker's part of the mean loss (without penalties), and of the fraction
        of the objective's terms above zero.
        """
        is_alone = batch.total == 1 and (self._mega is None or self._mega.is_alone(batch))
        if is_alone and self._negatives is not None:  # no negative exists: nothing moves
            self.skipped_pairs += 1
            return torch.zeros(2, device=self.device)
        return self._train(batch, step, step_draws(self.recipe.seed, step, self.rank))

    @abstractmethod
    def _train(self, batch: Any, step: int, generator: np.random.Generator) -> Tensor:
        """Train on a batch with at least one negative, given this worker's draws of the step; see ``__call__``."""
