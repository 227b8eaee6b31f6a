"""One supervised step: examples as word ids, regularize, encode, head, objective; ``Update`` updates the parameters.

Every draw is f(seed, step, worker), so a resumed run draws the same numbers as an uninterrupted one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from paraembed.recipe import SupervisedRecipe, check_recipe
from paraembed.supervised.model import Supervised
from paraembed.supervised.tasks import Examples, is_filled
from paraembed.text import TreeError
from paraembed.text.bigrams import Bigrams
from paraembed.text.ragged import Ragged, joined
from paraembed.text.tokenize import Tokens
from paraembed.text.tokens import tokens_of
from paraembed.text.trees import fitting_trees
from paraembed.text.vocabulary import word_ids
from paraembed.training.base_step import TrainingStep
from paraembed.training.fast import step_kind
from paraembed.training.pairs import Batch, epoch_order, step_bounds, whole_steps
from paraembed.training.regularize import dropped, scrambled_texts
from paraembed.training.update import Update

_CHUNK_EXAMPLES = 8_192  # brought into epoch order at a time
_STEP_DRAWS = 3  # apart from the draws of an epoch's order
_TARGET_EPS = {"paper": 0.0, "released": 1e-6}  # added to each target distribution


@dataclass(frozen=True)
class ExampleIds:
    """n examples of M texts each; the texts of an example are adjacent."""

    texts: Ragged  # n · M texts, none of them empty
    targets: Tensor  # targets for the model's ``losses``, [n, …]
    num_dropped: int = 0  # number of examples that were left out, because one of their texts has no token

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class ExampleBatch(Batch):
    """Part of a step that one worker computes: its texts, and the targets for the model's ``losses`` [n, …]."""

    targets: Tensor = field(kw_only=True)


def example_ids(model: Supervised, examples: Examples) -> ExampleIds:
    """Return examples as the model's encoder reads them.

    Raises:
        ValueError: a tree does not fit its text.
    """
    encoder, num_texts = model.encoder, len(examples.texts)
    tokens = tokens_of(pa.concat_arrays(examples.texts), encoder.tokenizer, encoder.vocabulary)
    merges = None
    if encoder.composition.reads_trees:
        merges = tree_merges(examples, tokens, encoder.tokenizer)
    sides = Ragged(word_ids(tokens.flat, encoder.vocabulary), tokens.offsets, merges)
    if encoder.has_bigrams:
        sides = Bigrams(encoder.vocabulary)(sides)
    kept = np.flatnonzero(is_filled(tokens, num_texts))
    texts = sides.take((kept[:, None] + np.arange(num_texts) * len(examples)).reshape(-1))
    targets = model.targets(examples.labels[kept])
    return ExampleIds(
        texts if encoder.max_tokens is None else texts.cut(encoder.max_tokens), targets, len(examples) - len(kept)
    )


def tree_merges(examples: Examples, tokens: Tokens, tokenizer: str) -> npt.NDArray[np.int32]:
    """Return the trees of the examples as ``merges`` of ``Ragged``; a text without a tree gets the right-branching one.

    The tokens are those of the first texts of all examples, then of the second ones, and so on.

    Raises:
        ValueError: a tree does not fit its text.
    """
    trees = examples.trees or [pa.nulls(len(examples), pa.string())] * len(examples.texts)
    try:
        return fitting_trees(pa.concat_arrays(trees), tokens).merges
    except TreeError as error:
        hint = "" if tokenizer == "space" else "; trees need tokens split at spaces: set `tokenizer` to space"
        raise ValueError(f"training set, {error}{hint}") from None


class SupervisedStep(TrainingStep):
    """Training step of a recipe for an encoder and its head.

    Attributes:
        update: holds the optimizers' state.
        skipped_pairs: always 0, since every example has a label.
    """

    recipe: SupervisedRecipe
    skipped_pairs = 0

    def __init__(self, model: Supervised, recipe: SupervisedRecipe, rank: int = 0, world: int = 1) -> None:
        """Prepare the step for a model, a recipe, the number of this worker, and the number of workers.

        Raises:
            ValueError: the recipe cannot be used for the task, or trains no parameters.
        """
        check_recipe(recipe, model.kind.task)
        self.model, self.recipe, self.rank, self.world = model, recipe, rank, world
        is_pairs = model.kind.task != "sentiment"
        self._read_by = recipe if is_pairs else replace(recipe, scramble_form="each")
        config, matrix = model.encoder.config, model.matrix
        compiled = step_kind(config, recipe, matrix.device.type, world, dtype=matrix.dtype) == "compiled"
        self.update = Update(
            model.encoder, recipe, world, compiled, head=[*model.head.parameters()], head_l2=recipe.head_l2
        )

    def batches(self, pairs: ExampleIds, epoch: int, first_pair: int = 0) -> Iterator[ExampleBatch]:
        """Yield this worker's batches of an epoch, whose order is f(seed, epoch) as for pairs
        (``training.pairs.epoch_batches``); ``first_pair`` examples are already finished, over all workers.
        """
        batch_size, rank, world = self.recipe.batch_size, self.rank, self.world
        order = epoch_order(len(pairs), epoch, self.recipe.seed)
        num_texts = len(pairs.texts) // max(1, len(pairs))
        for places_SB in whole_steps(len(pairs), batch_size * world, first_pair, _CHUNK_EXAMPLES):
            total = places_SB.shape[1]
            bounds = step_bounds(total, world)
            for chosen in order[places_SB]:
                texts = pairs.texts.take((num_texts * chosen[:, None] + np.arange(num_texts)).reshape(-1))
                parts = tuple(texts.slice(num_texts * start, num_texts * stop) for start, stop in pairwise(bounds))
                own = torch.from_numpy(chosen[bounds[rank] : bounds[rank + 1]])
                yield ExampleBatch(parts, total, rank, targets=pairs.targets[own])

    def __call__(self, batch: ExampleBatch, step: int) -> Tensor:
        """Train on the next batch, at a step counted from 1 over the run.

        Return [2] on the encoder's device: this worker's part of the mean loss (without penalties), and of the fraction
        of right answers.
        """
        device = self.model.matrix.device
        generator = np.random.default_rng((self.recipe.seed, step, self.rank, _STEP_DRAWS))
        targets_N = batch.targets.to(device)
        result = torch.zeros(2, device=device)
        step_ids = self.model.encoder.with_boundaries(joined(*batch.parts)).ids if self.world > 1 else None
        if len(targets_N):
            outputs_NK = self._outputs(batch.texts, step_ids, len(targets_N), generator)
            loss = self.model.losses(outputs_NK, targets_N, _TARGET_EPS[self.recipe.target_form]).sum() / batch.total
            loss.backward()  # type: ignore[no-untyped-call]
            right = self.model.num_right(outputs_NK.detach(), targets_N) / batch.total
            result = torch.stack([loss.detach(), right])
        else:
            self.update.begin(batch.texts.ids, step_ids)
        self.update.apply(step)
        return result

    def _outputs(
        self, texts: Ragged, step_ids: npt.NDArray[np.int32] | None, num_examples: int, generator: np.random.Generator
    ) -> Tensor:
        encoder, recipe = self.model.encoder, self._read_by
        texts = encoder.with_boundaries(texts)
        rows_RD, ids = self.update.begin(texts.ids, step_ids)
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
