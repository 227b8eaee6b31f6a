"""Choose negatives from the mini-batch (Wieting 2015 §4.1, Wieting 2016 §3.1.1, released code).

Texts of pair i are rows 2i and 2i + 1. The embeddings of the step are reused instead of computed again.

A mega-batch pools M mini-batches for negative mining (Wieting and Gimpel 2018). Before the first of the M batches, the
texts of all of them are embedded once and each text gets a negative. The M batches are then trained one after the other
with these negatives. A batch of 100 thus gets negatives as hard as those of a batch of 100 M, with the memory of a
batch of 100. The cost is embedding every text two more times: once for the choice, and once as a negative.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.encoders.packed import to_device
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged, joined
from paraembed.training.exchange import all_gather, gather
from paraembed.training.objectives import Keys, PairedPhrases, phrase_keys, positive, unit
from paraembed.training.pairs import Batch

Pool = Literal["both_sides", "same_side"]
Rule = Literal["max", "mix", "rand", "min_violation"]

_ROWS_AT_ONCE = 2048  # of the similarity matrix: 60 batches of 100 pairs would make one of 0.6 GB
_TEXTS_AT_ONCE = 1024  # embedded without gradient
_NO = -torch.inf


@torch.no_grad()
def candidate_similarity(
    vectors_NH: Tensor, pool_PH: Tensor, pool: Pool, *, first: int = 0, excluded_NP: Tensor | None = None
) -> Tensor:
    """Return the similarity of each text to each text of the pool; -inf if the pool's text is not a candidate.

    The pairs are the rows from ``first`` on of the pool. Candidates are both texts of every other pair, or only the
    text on the same side, without those of ``excluded_NP``.
    """
    num_texts, num_pool = len(vectors_NH), len(pool_PH)
    similarity_NP = vectors_NH @ pool_PH.T
    own = similarity_NP[:, first : first + num_texts].view(num_texts // 2, 2, num_texts // 2, 2)
    own.diagonal(dim1=0, dim2=2).fill_(_NO)
    if pool == "same_side":
        sides = similarity_NP.view(num_texts // 2, 2, num_pool // 2, 2)
        sides[:, 0, :, 1] = _NO
        sides[:, 1, :, 0] = _NO
    if excluded_NP is not None:
        similarity_NP.masked_fill_(excluded_NP, _NO)
    return similarity_NP


@torch.no_grad()
def choose(
    rule: Rule, similarity_NP: Tensor, positive_B1: Tensor | None, margin: float, draws_2N: Tensor | None = None
) -> Tensor:
    """Return the negative of each text: its row in the pool, int64 [N]; ties go to the lowest row; -1 without a
    candidate.

    Args:
        rule: max: the most similar candidate. rand: a random candidate. mix: max with probability ½, else rand, drawn
            for each text. min_violation: the least similar candidate whose hinge term is above zero; the most similar
            one if no term is above zero.
        similarity_NP: from ``candidate_similarity``.
        positive_B1: for min_violation, similarity of the texts of each pair.
        margin: δ.
        draws_2N: for rand and mix, [2, N] uniform numbers in [0, 1): the first selects the candidate, the second
            decides between max and rand.
    """
    if not len(similarity_NP):  # a worker's share of a last step may be empty
        return torch.zeros(0, dtype=torch.int64, device=similarity_NP.device)
    most_similar_N = _most_similar(similarity_NP)
    if rule == "max":
        return most_similar_N
    if rule == "min_violation":
        assert positive_B1 is not None
        threshold_N1 = (positive_B1 - margin).repeat_interleave(2, dim=0)
        violating_NP = torch.where(similarity_NP > threshold_N1, similarity_NP, torch.inf)
        least = violating_NP.min(dim=1)
        return torch.where(least.values == torch.inf, most_similar_N, least.indices)
    assert draws_2N is not None
    random_N = _random_candidates(similarity_NP != _NO, draws_2N[0])
    return random_N if rule == "rand" else torch.where(draws_2N[1] < 0.5, most_similar_N, random_N)


def _most_similar(similarity_NP: Tensor) -> Tensor:
    """Return the row of the most similar candidate, -1 without a candidate."""
    if (
        similarity_NP.device.type == "cpu" and similarity_NP.dtype != torch.bfloat16
    ):  # 7 µs for 200 x 200, and torch's max takes 40
        similarity = similarity_NP.numpy()
        best_N = similarity.argmax(axis=1)
        return torch.from_numpy(np.where(similarity[np.arange(len(best_N)), best_N] == _NO, -1, best_N))
    best = similarity_NP.max(dim=1)
    return torch.where(best.values == _NO, -1, best.indices)


def _random_candidates(allowed_NP: Tensor, draws_N: Tensor) -> Tensor:
    """Return the ⌊u · number of candidates⌋-th candidate of each text, -1 without a candidate."""
    before_NP = allowed_NP.cumsum(dim=1)
    wanted_N = (draws_N * before_NP[:, -1]).long() + 1
    chosen_N = (before_NP >= wanted_N[:, None]).int().argmax(dim=1)
    return torch.where(before_NP[:, -1] > 0, chosen_N, -1)


class Negatives:
    """Choice of negatives by the rules of a recipe."""

    def __init__(self, recipe: Recipe, encoder: Encoder, pairs: Ragged, world: int) -> None:
        self.recipe = recipe
        self.gather = recipe.negative_pool_workers == "all" and world > 1
        self.world, self.device = world, encoder.matrix.device
        is_word = encoder.config.name == "word"
        self.excludes_equal = recipe.equal_negatives == "excluded" or (recipe.equal_negatives == "auto" and is_word)
        self.paired = PairedPhrases.of(pairs, _lemma_of(encoder)) if recipe.paired_negatives == "excluded" else None
        self.excludes = self.excludes_equal or self.paired is not None

    def __call__(
        self,
        vectors_NH: Tensor,
        selected_NH: Tensor | None,
        parts: Sequence[Ragged],
        rank: int,
        generator: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings of the candidates [P, H], and the row of each text's negative among them [N].

        Negatives are selected by ``selected_NH``, or by ``vectors_NH`` if that is None; ``parts`` are the texts of each
        worker.
        """
        own_NH, most = vectors_NH.detach() if selected_NH is None else selected_NH, max(map(len, parts))
        pool_PH, candidates_PH = vectors_NH, own_NH
        if self.gather:
            pool_PH, candidates_PH = gathered_pool(vectors_NH, selected_NH, most, self.world)
        excluded_NP = self.excluded_by(parts, rank)
        return pool_PH, self.choose(own_NH, candidates_PH, rank * most * self.gather, excluded_NP, generator)

    def excluded_by(self, parts: Sequence[Ragged], rank: int) -> Tensor | None:
        """Return which candidates are excluded for each text of a worker, bool [N, P]; None if none are.

        The pool is that of this worker or, if workers gather theirs, of all parts, each padded to the longest.
        """
        parts, rank = (parts, rank) if self.gather else ([parts[rank]], 0)
        most = max(map(len, parts))
        is_padding_P = np.concatenate([np.arange(most) >= len(part) for part in parts])
        if not self.excludes:
            if not is_padding_P.any():
                return None
            return to_device(np.tile(is_padding_P, (len(parts[rank]), 1)), self.device)
        keys = [phrase_keys(part) for part in parts]
        pool = np.zeros(len(is_padding_P), np.uint64)
        pool[~is_padding_P] = np.concatenate(keys)
        return to_device(self._excluded(keys[rank], pool) | is_padding_P, self.device)

    def excluded_among(self, texts: Ragged, pool: Ragged) -> Tensor | None:
        """Return which texts of a pool are excluded for each text, bool [N, P]; None if none are."""
        if not self.excludes:
            return None
        keys = phrase_keys(texts)
        return to_device(self._excluded(keys, keys if pool is texts else phrase_keys(pool)), self.device)

    def draws(self, num_texts: int, generator: np.random.Generator) -> Tensor:
        """Return uniform random numbers for the rules rand and mix, float64 [2, N]; see ``choose``."""
        return to_device(generator.random((2, num_texts)), self.device)

    def choose(
        self,
        vectors_NH: Tensor,
        pool_PH: Tensor,
        first: int,
        excluded_NP: Tensor | None,
        generator: np.random.Generator,
    ) -> Tensor:
        """Return the negative of each text of B pairs: its row in the pool, -1 for none, int64 [N]; the pairs are the
        rows from ``first`` on of the pool.
        """
        recipe = self.recipe
        similarity_NP = candidate_similarity(
            vectors_NH, pool_PH, recipe.negative_pool, first=first, excluded_NP=excluded_NP
        )
        draws_2N = self.draws(len(vectors_NH), generator) if recipe.negatives in {"rand", "mix"} else None
        positive_B1 = positive(vectors_NH) if recipe.negatives == "min_violation" else None
        return choose(recipe.negatives, similarity_NP, positive_B1, recipe.margin, draws_2N)

    def _excluded(self, keys: Keys, pool: Keys) -> npt.NDArray[np.bool_]:
        excluded: npt.NDArray[np.bool_] = (
            keys[:, None] == pool if self.excludes_equal else np.zeros((len(keys), len(pool)), np.bool_)
        )
        if self.paired is not None:
            excluded |= self.paired.among(keys, pool)
        return excluded


def gathered_pool(vectors_NH: Tensor, selected_NH: Tensor | None, num_rows: int, world: int) -> tuple[Tensor, Tensor]:
    """Return the vectors of all workers' texts [world · num_rows, H], and those to select negatives by (no gradient).

    Arguments are those of ``Negatives.__call__`` and ``exchange.gather``; both are sent together.
    """
    if selected_NH is None:
        pool_PH = gather(vectors_NH, num_rows, world)
        return pool_PH, pool_PH.detach()
    both_P = gather(torch.cat([vectors_NH, selected_NH.detach()], dim=1), num_rows, world)
    pool_PH, selected_PH = both_P.chunk(2, dim=1)
    return pool_PH, selected_PH.detach()


def _lemma_of(encoder: Encoder) -> Callable[[int], int | None]:
    """Return a map from the row of a word to the row of its English lemma; None if the lemma has no row."""
    from simplemma import lemmatize  # noqa: PLC0415 - only this option needs it

    words = encoder.vocabulary.to_pylist()
    rows = {word: row for row, word in enumerate(words)}
    return lambda row: rows.get(lemmatize(words[row], "en"))


def mega_batches(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Yield the same batches; the first of each mega-batch of ``size`` batches also holds the texts of all, and a run
    may end only after the last.
    """
    while group := list(islice(batches, size)):
        for number, batch in enumerate(group):
            ahead = (joined(*parts) for parts in zip(*(member.parts for member in group), strict=True))
            yield replace(batch, ahead=tuple(ahead) if number == 0 else (), may_pause=number == len(group) - 1)


@torch.no_grad()
def compared_vectors(encoder: Encoder, recipe: Recipe, texts: Ragged) -> Tensor:
    """Return the embeddings [N, H] that the objective compares, without gradient and without regularization."""
    if not len(texts):
        return torch.zeros(0, encoder.width, device=encoder.matrix.device)
    starts = range(0, len(texts), _TEXTS_AT_ONCE)
    blocks = (texts.slice(start, min(start + _TEXTS_AT_ONCE, len(texts))) for start in starts)
    vectors_NH = torch.cat([encoder(encoder.with_boundaries(block)) for block in blocks])
    return unit(vectors_NH) if recipe.similarity == "cosine" else vectors_NH


class MegaNegatives:
    """Negatives of a mega-batch, returned batch by batch."""

    def __init__(self, negatives: Negatives, encoder: Encoder, rank: int) -> None:
        self.negatives, self.encoder, self.rank = negatives, encoder, rank
        self._ahead: tuple[Ragged, ...] = ()
        self._chosen: list[npt.NDArray[np.int64]] = []
        self._done: list[int] = []

    def is_alone(self, batch: Batch) -> bool:
        """Return whether the mega-batch consists of this batch only."""
        return bool(batch.ahead) and len(batch.ahead[self.rank]) == len(batch.texts)

    def __call__(self, batch: Batch, generator: np.random.Generator) -> tuple[Sequence[Ragged], npt.NDArray[np.int64]]:
        """Return the texts of each worker's part of a batch, followed by their negatives, and the row of the negative
        of each of this worker's texts among them.

        A row of -1 means no negative. Batches come in the order of ``mega_batches``. Workers send what they chose once
        per mega-batch, 8 bytes a text.
        """
        if batch.ahead:
            self._ahead, self._done = batch.ahead, [0] * len(batch.ahead)
            vectors_GH = compared_vectors(self.encoder, self.negatives.recipe, batch.ahead[self.rank])
            chosen_G = self._choose(batch.ahead[self.rank], vectors_GH, generator)
            counts = [len(texts) for texts in batch.ahead]
            parts = all_gather(chosen_G, counts) if len(counts) > 1 else [chosen_G]
            self._chosen = [part.cpu().numpy() for part in parts]
        firsts = self._done
        self._done = [first + len(texts) for first, texts in zip(firsts, batch.parts, strict=True)]
        read, own_N = [], np.zeros(0, np.int64)
        for worker, texts in enumerate(batch.parts):
            chosen_N = self._chosen[worker][firsts[worker] : self._done[worker]]
            read.append(joined(texts, self._ahead[worker].take(np.maximum(chosen_N, 0))))
            if worker == self.rank:
                own_N = np.where(chosen_N < 0, -1, len(texts) + np.arange(len(texts)))
        return read, own_N

    @torch.no_grad()
    def _choose(self, texts: Ragged, vectors_GH: Tensor, generator: np.random.Generator) -> Tensor:
        chosen = []
        for first in range(0, len(texts), _ROWS_AT_ONCE):
            block = slice(first, min(first + _ROWS_AT_ONCE, len(texts)))
            excluded_NP = self.negatives.excluded_among(texts.slice(block.start, block.stop), texts)
            chosen.append(self.negatives.choose(vectors_GH[block], vectors_GH, first, excluded_NP, generator))
        return torch.cat(chosen) if chosen else torch.zeros(0, dtype=torch.int64, device=vectors_GH.device)
