"""One training step: regularize, encode, choose negatives, compute the objective; ``Update`` then updates the
parameters.

Every draw is f(seed, step, worker), so a resumed run draws the same numbers as an uninterrupted one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged, joined
from paraembed.training.base_step import BaseStep, TrainingStep
from paraembed.training.fast import StepKind, step_kind
from paraembed.training.fast.cpu import AdditiveStep
from paraembed.training.fast.gpu import DeviceStep
from paraembed.training.negatives import Negatives
from paraembed.training.objectives import contrastive_terms, margin_terms, squared_l2_terms, unit, with_contrast
from paraembed.training.pairs import Batch
from paraembed.training.regularize import dropped, scrambled_texts

# Pairs a step and worker, of avg with 15-token texts. CPU time of two workers' step against two steps of one worker:
# with 100 pairs 3.5 against 3.3 ms, with 300 7.5 against 11.7 ms (9.9 on two machines), with 1,024 44 against 79 (51).
_WORTH_SHARING = 300


@dataclass(frozen=True)
class _Reading:
    """Texts of a step as the encoder reads them: word vectors, and the row of each token among them."""

    rows: Tensor  # word vectors [R, D]
    ids: npt.NDArray[np.int32]  # rows of the tokens before scrambling, int32 [T]
    texts: Ragged  # with BOS and EOS tokens, before scrambling
    read_ids: Tensor  # rows of the tokens after scrambling, int32 [T]
    read: Ragged  # texts after scrambling


class Step(BaseStep):
    """Training step in PyTorch; on a CPU, compiled loops may read and update the rows of the word matrix."""

    def _train(self, batch: Batch, step: int, generator: np.random.Generator) -> Tensor:
        parts, negatives_N = (batch.parts, None) if self._mega is None else self._mega(batch, generator)
        terms = self._terms(parts, negatives_N, step, generator)
        loss = terms.sum() / batch.total
        if loss.requires_grad:  # a share without pairs has no graph
            loss.backward()  # type: ignore[no-untyped-call]
        self.update.apply(step)
        return torch.stack([loss.detach(), (terms.detach() > 0).sum() / (batch.total * terms.shape[1])])

    def _terms(
        self, parts: Sequence[Ragged], chosen_N: npt.NDArray[np.int64] | None, step: int, generator: np.random.Generator
    ) -> Tensor:
        """Return the terms of the objective, [B, K]; ``parts`` also hold the texts of already chosen negatives, after
        those of the pairs.
        """
        recipe, own = self.recipe, parts[self.rank]
        num_texts, drawn_BK = len(own) if chosen_N is None else len(chosen_N), None
        if self._contrast is not None:
            parts, drawn_BK = with_contrast(self._contrast, parts, self.rank, generator, recipe.seed, step)
        reading = self._reading(parts, generator, num_texts)
        vectors_MH, chosen_by_MH = self._encoded(reading, generator)
        if recipe.objective == "squared_l2":
            return squared_l2_terms(vectors_MH)
        if recipe.similarity == "cosine":
            vectors_MH = unit(vectors_MH)
            chosen_by_MH = None if chosen_by_MH is None else unit(chosen_by_MH)
        if drawn_BK is not None:
            contrast_CH = vectors_MH[num_texts:]
            return contrastive_terms(recipe, vectors_MH[:num_texts], contrast_CH, drawn_BK.to(self.device))
        assert self._negatives is not None
        of_step = parts, reading, generator
        return self._margin_terms(self._negatives, vectors_MH, num_texts, chosen_by_MH, chosen_N, *of_step)

    def _margin_terms(
        self,
        negatives: Negatives,
        vectors_MH: Tensor,
        num_texts: int,
        chosen_by_MH: Tensor | None,
        chosen_N: npt.NDArray[np.int64] | None,
        parts: Sequence[Ragged],
        reading: _Reading,
        generator: np.random.Generator,
    ) -> Tensor:
        """Return the terms of the margin loss of the pairs, whose texts are the first ``num_texts``."""
        recipe, vectors_NH = self.recipe, vectors_MH[:num_texts]
        if not num_texts and not negatives.gather:
            return vectors_NH.new_zeros(0, 2)
        if chosen_N is not None:
            return margin_terms(vectors_NH, vectors_MH, torch.from_numpy(chosen_N).to(self.device), recipe.margin)
        pool_PH, negatives_N = negatives(vectors_NH, chosen_by_MH, parts, self.rank, generator)
        if recipe.negative_dropout == "fresh" and (recipe.dropout or recipe.word_dropout):
            pool_PH = self._encoded_again(reading, negatives_N.clamp(min=0), generator)
            negatives_N = torch.where(negatives_N < 0, -1, torch.arange(num_texts, device=self.device))
        return margin_terms(vectors_NH, pool_PH, negatives_N, recipe.margin)

    def _reading(
        self, parts: Sequence[Ragged], generator: np.random.Generator, num_scrambled: int | None = None
    ) -> _Reading:
        """Return this worker's texts as the encoder reads them, the first ``num_scrambled`` scrambled (None: all)."""
        texts, step_ids = parts[self.rank], None
        if len(texts):
            texts = self.encoder.with_boundaries(texts)
        if len(parts) > 1:
            step_ids = self.encoder.with_boundaries(joined(*parts)).ids
        rows_RD, ids = self.update.begin(texts.ids, step_ids)
        if not len(texts):
            return _Reading(rows_RD, ids, texts, torch.from_numpy(ids), texts)
        read, read_ids_T = scrambled_texts(self.recipe, texts, rows_RD, ids, generator, num_scrambled)
        return _Reading(rows_RD, ids, texts, read_ids_T, read)

    def _encoded(self, reading: _Reading, generator: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        """Return embeddings for the objective, and embeddings without gradient for negative selection, [N, H] each; the
        second is None if they are the same.

        Negatives are selected without dropout (as in the released code), and before scrambling if the recipe says so.
        """
        recipe, encoder, rows_RD = self.recipe, self.encoder, reading.rows
        if not len(reading.texts):
            nothing = torch.zeros(0, encoder.width, device=self.device, requires_grad=True)
            return nothing, nothing.detach() if self._selects_apart else None
        read, read_ids_T = reading.read, reading.read_ids
        vectors_NH = encoder.compose(*dropped(recipe, rows_RD, read_ids_T, generator), read)
        if not self._selects_apart:
            return vectors_NH, None
        if recipe.scramble_time == "after":
            read, read_ids_T = reading.texts, torch.from_numpy(reading.ids).to(self.device)
        with torch.no_grad():
            return vectors_NH, encoder.compose(rows_RD.detach(), read_ids_T, read)

    def _encoded_again(self, reading: _Reading, numbers_N: Tensor, generator: np.random.Generator) -> Tensor:
        """Encode texts of a batch again with new dropout masks; return the embeddings to compare, [N, H]."""
        numbers = numbers_N.cpu().numpy()
        ids = replace(reading.read, ids=reading.read_ids.cpu().numpy()).take(numbers).ids
        ids_T = torch.from_numpy(ids).to(self.device)
        masked = dropped(self.recipe, reading.rows, ids_T, generator)
        vectors_NH = self.encoder.compose(*masked, reading.read.take(numbers))
        return unit(vectors_NH) if self.recipe.similarity == "cosine" else vectors_NH


def step_for(encoder: Encoder, recipe: Recipe, pairs: Ragged, rank: int = 0, world: int = 1) -> TrainingStep:
    """Return the fastest step for recipe and device; arguments and errors are those of ``BaseStep``."""
    if encoder.matrix.dtype not in {torch.float32, torch.float64}:
        raise ValueError(f"word vectors of {encoder.matrix.dtype} cannot be trained; use float32 or float64")
    device, kind = encoder.matrix.device.type, _kind(encoder, recipe, world)
    if kind == "graphs":
        return DeviceStep(encoder, recipe, pairs, rank, world)
    if recipe.precision != "float32":
        where = f"on a {device.upper()}" if device == "cpu" else "with new dropout masks or float64 word vectors"
        raise ValueError(
            f"precision is {recipe.precision!r}, but a training {where} supports only float32; set precision to float32"
        )
    if kind in {"additive", "shared"}:
        return AdditiveStep(encoder, recipe, pairs, rank, world, is_shared=kind == "shared")
    return Step(encoder, recipe, pairs, rank, world, compiled=kind == "compiled")


def exchanged(encoder: Encoder, recipe: Recipe, world: int) -> str:
    """Return a description, for users, of what workers exchange in a step."""
    kind = _kind(encoder, recipe, world)
    if kind in {"additive", "shared"}:
        sent = "workers exchange the negatives they chose, 8 bytes per text; each computes all gradients"
        share = "workers on one machine share the words, and each updates a part of them; on several machines, "
        slow = f"; with a batch_size of {recipe.batch_size}, one worker may be faster than {world}"
        return (f"{share}{sent}" if kind == "shared" else sent) + slow * (recipe.batch_size < _WORTH_SHARING)
    if recipe.update == "dense" and recipe.train_words and kind != "graphs":
        return f"workers sum gradients of the whole word matrix, {encoder.matrix.nbytes / 1000000.0:,.0f} MB per step"
    summed = ["the word vectors in the step"] * recipe.train_words
    summed += ["the other parameters"] * any(True for _ in encoder.composition.parameters())
    return f"workers sum the gradients of {' and of '.join(summed)}"


def _kind(encoder: Encoder, recipe: Recipe, world: int) -> StepKind:
    matrix = encoder.matrix
    return step_kind(encoder.config, recipe, matrix.device.type, world, dtype=matrix.dtype)
