"""One training step: regularise, encode, choose negatives, objective; ``Update`` then moves the parameters.

Every draw is f(seed, step, worker), so that a resumed run draws what an unbroken one would have drawn.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.negatives import Negatives
from paraembed.training.objectives import contrastive_terms, margin_terms, squared_l2_terms, unit
from paraembed.training.pairs import Batch
from paraembed.training.phrases import ContrastPhrases
from paraembed.training.regularise import drop, scrambled
from paraembed.training.update import Update

_STEP_DRAWS = 1  # the last number of a step's seed; the order of an epoch is drawn from (seed, epoch)


class Step:
    """The step of a recipe on an encoder.

    Attributes:
        update: owns the optimisers' state.
        skipped_pairs: pairs left alone in a batch, for which no negative exists.
    """

    def __init__(self, encoder: Encoder, recipe: Recipe, pairs: Ragged, rank: int = 0, world: int = 1) -> None:
        """Prepare.

        Args:
            encoder: what is trained.
            recipe: how.
            pairs: all pairs of the data, from which contrast phrases and constraints come.
            rank: number of this worker.
            world: how many workers.

        Raises:
            ValueError: the recipe leaves nothing to train, or needs more phrases than there are.
        """
        self.encoder, self.recipe, self.rank, self.world = encoder, recipe, rank, world
        self.device = encoder.matrix.device
        self.update = Update(encoder, recipe, world)
        self.skipped_pairs = 0
        self._negatives = Negatives(recipe, encoder, pairs, world) if recipe.objective == "margin" else None
        self._contrast = ContrastPhrases(pairs, recipe.contrast_phrases) if recipe.objective == "contrastive" else None

    def __call__(self, batch: Batch, step: int) -> Tensor:
        """Train on a batch.

        Args:
            batch: this worker's share of the step.
            step: counts from 1 over the whole run.

        Returns:
            [2] on the encoder's device: this worker's share of the mean loss (the objective alone, without
            penalties), and of the share of its terms that are above zero.
        """
        if self.recipe.objective == "margin" and batch.total == 1:  # no negative exists: nothing moves
            self.skipped_pairs += len(batch.texts) // 2
            return torch.zeros(2, device=self.device)
        generator = np.random.default_rng((self.recipe.seed, step, self.rank, _STEP_DRAWS))
        terms = torch.zeros(0, 1, device=self.device)
        if self._contrast is not None:
            terms = self._contrastive(self._contrast, batch.texts, generator)
        elif self._negatives is not None:
            terms = self._margin(self._negatives, batch, generator)
        else:
            terms = squared_l2_terms(self._encoded(batch.texts, generator)[0])
        loss = terms.sum() / batch.total
        if loss.requires_grad:  # a share without pairs has no graph
            loss.backward()  # type: ignore[no-untyped-call]
        self.update.apply(step)
        return torch.stack([loss.detach(), (terms.detach() > 0).sum() / (batch.total * terms.shape[1])])

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs besides the encoder's parameters, as named tensors."""
        return self.update.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what ``state`` returned."""
        self.update.load_state(tensors)

    def _margin(self, negatives: Negatives, batch: Batch, generator: np.random.Generator) -> Tensor:
        vectors_NH, chosen_by_NH = self._encoded(batch.texts, generator)
        if self.recipe.similarity == "cosine":
            vectors_NH, chosen_by_NH = unit(vectors_NH), unit(chosen_by_NH)
        if not len(batch.texts) and not negatives.gather:
            return vectors_NH.new_zeros(0, 2)
        pool_PH, negatives_N = negatives(vectors_NH, chosen_by_NH, batch.texts, generator)
        return margin_terms(vectors_NH, pool_PH, negatives_N, self.recipe.margin)

    def _contrastive(self, phrases: ContrastPhrases, texts: Ragged, generator: np.random.Generator) -> Tensor:
        contrast = phrases.draw(texts, generator)
        vectors_MH, _ = self._encoded(_joined(texts, contrast.texts), generator, len(texts))
        if self.recipe.similarity == "cosine":
            vectors_MH = unit(vectors_MH)
        pairs_NH, contrast_CH = vectors_MH[: len(texts)], vectors_MH[len(texts) :]
        return contrastive_terms(pairs_NH, contrast_CH, contrast.drawn.to(self.device), self.recipe.margin)

    def _encoded(
        self, texts: Ragged, generator: np.random.Generator, num_scrambled: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Embeddings for the objective [N, H], and without gradient those that negatives are chosen by [N, H].

        Negatives are chosen without dropout (released code), and before scrambling where the recipe says so. Only
        the first ``num_scrambled`` texts are scrambled; None: all.
        """
        recipe, encoder = self.recipe, self.encoder
        if len(texts):
            texts = encoder.with_boundaries(texts)
        rows_RD, ids = self.update.begin(texts.ids)
        if not len(texts):
            nothing = torch.zeros(0, encoder.width, device=self.device, requires_grad=True)
            return nothing, nothing.detach()
        shuffled = ids
        if recipe.scramble:
            pairs = texts.slice(0, len(texts) if num_scrambled is None else num_scrambled)
            shuffled = np.concatenate([self._scrambled(pairs, ids, generator), ids[len(pairs.ids) :]])
        ids_T = torch.from_numpy(shuffled).to(self.device)
        if recipe.dropout or recipe.word_dropout:
            drawn = torch.Generator(self.device).manual_seed(int(generator.integers(2**63)))
            dropped = drop(rows_RD, ids_T, recipe.dropout, recipe.word_dropout, drawn)
            vectors_NH = encoder.compose(*dropped, texts)
        else:
            vectors_NH = encoder.compose(rows_RD, ids_T, texts)
            if not recipe.scramble or recipe.scramble_time == "before":
                return vectors_NH, vectors_NH.detach()
        if recipe.objective != "margin":
            return vectors_NH, vectors_NH.detach()
        if recipe.scramble_time == "after":
            ids_T = torch.from_numpy(ids).to(self.device)
        with torch.no_grad():
            return vectors_NH, encoder.compose(rows_RD.detach(), ids_T, texts)

    def _scrambled(
        self, texts: Ragged, ids: npt.NDArray[np.int32], generator: np.random.Generator
    ) -> npt.NDArray[np.int32]:
        recipe = self.recipe
        places = scrambled(
            texts,
            generator,
            rate=recipe.scramble,
            form=recipe.scramble_form,
            swaps=recipe.scramble_swaps,
            keep_first=recipe.boundary_tokens in {"start", "both"},
            keep_last=recipe.boundary_tokens in {"end", "both"},
        )
        return ids[places]


def _joined(one: Ragged, other: Ragged) -> Ragged:
    """The texts of both, one after the other."""
    merges = None
    if one.merges is not None and other.merges is not None:
        merges = np.concatenate([one.merges, other.merges])
    offsets = np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]])
    return Ragged(np.concatenate([one.ids, other.ids]), offsets, merges)
