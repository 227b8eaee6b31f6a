"""One supervised step: regularise, encode, head, objective; ``Update`` then moves the parameters.

Every draw is f(seed, step, worker), so that a resumed run draws what an unbroken one would have drawn.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from paraembed.compiled import COMPILED
from paraembed.ragged import Ragged
from paraembed.supervised.examples import ExampleBatch, ExampleIds, epoch_batches
from paraembed.supervised.model import Supervised
from paraembed.supervised.recipe import SupervisedRecipe, check_recipe
from paraembed.training.regularise import dropped, scrambled_texts
from paraembed.training.update import Update

_STEP_DRAWS = 3  # apart from the draws of an epoch's order


class SupervisedStep:
    """The step of a recipe on an encoder and its head.

    Attributes:
        update: owns the optimisers' state.
        skipped_pairs: none; every example has a label.
    """

    skipped_pairs = 0

    def __init__(self, model: Supervised, recipe: SupervisedRecipe, rank: int = 0, world: int = 1) -> None:
        """Take what is trained, how, the number of this worker, and how many there are.

        Raises:
            ValueError: the recipe cannot be used for the task, or leaves nothing to train.
        """
        check_recipe(recipe, model.kind.task)
        self.model, self.recipe, self.rank, self.world = model, recipe, rank, world
        is_pairs = model.kind.task != "sentiment"
        self._read_by = recipe if is_pairs else replace(recipe, scramble_form="each")
        matrix = model.matrix
        compiled = COMPILED and matrix.device.type == "cpu" and matrix.dtype == torch.float32
        self.update = Update(
            model.encoder, recipe, world, compiled, head=[*model.head.parameters()], head_penalty=recipe.head_penalty
        )

    def batches(
        self,
        pairs: ExampleIds,
        epoch: int,
        first_pair: int = 0,
        first_step: int = 1,  # noqa: ARG002 - as a step on pairs has it
    ) -> Iterator[ExampleBatch]:
        """This worker's batches of an epoch; ``first_pair`` examples of it are done already."""
        return epoch_batches(
            pairs,
            epoch=epoch,
            seed=self.recipe.seed,
            batch_size=self.recipe.batch_size,
            rank=self.rank,
            world=self.world,
            first=first_pair,
        )

    def __call__(self, batch: ExampleBatch, step: int) -> Tensor:
        """Train on a batch.

        Args:
            batch: the next one.
            step: counts from 1 over the whole run.

        Returns:
            [2] on the encoder's device: this worker's share of the mean loss (the objective alone, without
            penalties), and of the share of right answers.
        """
        device = self.model.matrix.device
        generator = np.random.default_rng((self.recipe.seed, step, self.rank, _STEP_DRAWS))
        targets_N = batch.targets.to(device)
        result = torch.zeros(2, device=device)
        if len(targets_N):
            outputs_NK = self._outputs(batch.texts, len(targets_N), generator)
            loss = self.model.losses(outputs_NK, targets_N).sum() / batch.total
            loss.backward()  # type: ignore[no-untyped-call]
            right = self.model.num_right(outputs_NK.detach(), targets_N) / batch.total
            result = torch.stack([loss.detach(), right])
        else:
            self.update.begin(batch.texts.ids)
        self.update.apply(step)
        return result

    def _outputs(self, texts: Ragged, num_examples: int, generator: np.random.Generator) -> Tensor:
        encoder, recipe = self.model.encoder, self._read_by
        texts = encoder.with_boundaries(texts)
        rows_RD, ids = self.update.begin(texts.ids)
        read, ids_T = scrambled_texts(recipe, texts, rows_RD, ids, generator)
        with torch.set_grad_enabled(recipe.mode != "features"):
            vectors_NH = encoder.compose(*dropped(recipe, rows_RD, ids_T, generator), read)
        vectors_NMH = vectors_NH.reshape(num_examples, -1, encoder.width)
        if recipe.head_dropout:
            drawn = torch.Generator(vectors_NMH.device).manual_seed(int(generator.integers(2**63)))
            kept = torch.empty_like(vectors_NMH).bernoulli_(1 - recipe.head_dropout, generator=drawn)
            vectors_NMH = vectors_NMH * kept.div_(1 - recipe.head_dropout)
        outputs_NK: Tensor = self.model.head(vectors_NMH)
        return outputs_NK

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs besides the model's parameters, as named tensors."""
        return self.update.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what ``state`` returned."""
        self.update.load_state(tensors)
