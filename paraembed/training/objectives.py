"""Terms of the training objectives, and the phrases of the data for contrasts and false-negative filtering.

Texts of pair i are rows 2i and 2i + 1. The similarity s of an objective is the dot product of the given vectors. For
``unit`` vectors it is the cosine (Wieting 2016, 2017), for others the plain dot product (Wieting 2015).

Repetitions of a phrase count once. A phrase is identified by a 64-bit hash of its word ids. The probability of a
collision among the 18M phrases of PPDB XXL is 1e-5.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.recipe import Recipe
from paraembed.text.hashing import mixed
from paraembed.text.ragged import Ragged, joined

SMALLEST_NORM = 1e-8
"""Minimum divisor of a vector, so that a zero vector has cosine 0 and a finite gradient."""


def step_draws(seed: int, step: int, rank: int) -> np.random.Generator:
    """Return the generator of a worker's draws in a step."""
    return np.random.default_rng((seed, step, rank, 1))  # 1 keeps these draws apart from the order of an epoch


def unit(vectors_NH: Tensor) -> Tensor:
    """Return the vectors scaled to length 1; a zero vector stays zero."""
    return F.normalize(vectors_NH, dim=1, eps=SMALLEST_NORM)


def positive(vectors_NH: Tensor) -> Tensor:
    """Return the similarity s(x1, x2) of each pair, [B, 1]."""
    return (vectors_NH[0::2] * vectors_NH[1::2]).sum(dim=1, keepdim=True)


def margin_terms(vectors_NH: Tensor, pool_PH: Tensor, negatives_N: Tensor, margin: float) -> Tensor:
    """Return the hinge terms of the margin loss [B, 2] (Wieting 2015 eq. 1, Wieting 2016 eq. 11, Wieting 2017 eq. 2).

    The terms of each pair are max(0, δ - s(x1, x2) + s(x1, t1)) and max(0, δ - s(x1, x2) + s(x2, t2)). A text whose
    negative is -1 has no candidate, and its term is 0.
    """
    negative_N = (vectors_NH * F.embedding(negatives_N.clamp(min=0), pool_PH)).sum(dim=1)
    terms = F.relu(margin - positive(vectors_NH) + negative_N.view(-1, 2))
    return terms * (negatives_N >= 0).view(-1, 2)


def squared_l2_terms(vectors_NH: Tensor) -> Tensor:
    """Return ‖g(x1) - g(x2)‖² of each pair, [B, 1] (Wieting 2015 §4.1, "simpler objective")."""
    return (vectors_NH[0::2] - vectors_NH[1::2]).square().sum(dim=1, keepdim=True)


def contrastive_terms(recipe: Recipe, vectors_NH: Tensor, contrast_CH: Tensor, drawn_BK: Tensor) -> Tensor:
    """Return the terms of a loss with k contrast phrases a pair, which ``drawn_BK`` names among the batch's distinct
    ones.

    Contrastive max-margin (Zhou 2017 §2.4), [B, k]: max(0, δ - s(p1, p2) + s(p1, c_i)) for each contrast phrase.
    Negative sampling (Mikolov et al. 2013), [B, 1 + k]: -log σ(s(p1, p2)), and -log σ(-s(p1, c_i)) for each.
    """
    positive_B1, contrast_BK = positive(vectors_NH), (vectors_NH[0::2] @ contrast_CH.T).gather(1, drawn_BK)
    if recipe.objective == "negative_sampling":
        return F.softplus(torch.cat([-positive_B1, contrast_BK], dim=1))
    return F.relu(recipe.margin - positive_B1 + contrast_BK)


_BLOCK_TEXTS = 1 << 18  # hashed at a time, to bound memory

Keys = npt.NDArray[np.uint64]


def phrase_keys(texts: Ragged, *, block: int = _BLOCK_TEXTS) -> Keys:
    """Return a hash of the word ids of each text, uint64 [n]; no text may be empty."""
    keys = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), block):
        stop = min(start + block, len(texts))
        keys[start:stop] = _block_keys(texts.slice(start, stop))
    return keys


def _block_keys(texts: Ragged) -> Keys:
    powers = np.cumprod(np.full(int(texts.lengths.max()), 0x9E3779B97F4A7C15, np.uint64))  # wraps, as a hash may
    places = np.arange(len(texts.ids)) - np.repeat(texts.offsets[:-1], texts.lengths)
    terms = mixed(texts.ids.astype(np.uint64) + np.uint64(1)) * powers[places]
    return mixed(np.add.reduceat(terms, texts.offsets[:-1]))


class ContrastPhrases:
    """Sampler of contrast phrases from all phrases of the data (Zhou 2017 §2.4)."""

    def __init__(self, pairs: Ragged, count: int) -> None:
        """Prepare to draw k = ``count`` phrases per pair from the 2n texts of the data.

        Raises:
            ValueError: the data have fewer than three distinct phrases.
        """
        self.pairs, self.count = pairs, count
        self._keys, self._first = np.unique(phrase_keys(pairs), return_index=True)
        if len(self._keys) < 3:
            raise ValueError(
                f"the pairs have only {len(self._keys)} distinct phrases; contrast phrases need at least 3"
            )

    def draw(self, pairs: Ragged, generator: np.random.Generator) -> tuple[npt.NDArray[np.int64], Tensor]:
        """Draw k phrases for each of B pairs, uniformly from the distinct phrases outside of the pair.

        Return the numbers of the C drawn texts in the data [C], and the indices of the phrases of each pair [B, k].
        """
        keys = self._keys
        own = np.sort(np.searchsorted(keys, phrase_keys(pairs)).reshape(-1, 2), axis=1)
        low, high = own[:, :1], own[:, 1:]
        drawn = generator.integers(0, len(keys) - 1 - (low != high), (len(own), self.count))
        drawn += drawn >= low
        drawn += (drawn >= high) & (low != high)
        types, place = np.unique(drawn, return_inverse=True)
        return self._first[types], torch.from_numpy(place.reshape(drawn.shape))


def with_contrast(
    phrases: ContrastPhrases, parts: Sequence[Ragged], rank: int, generator: np.random.Generator, seed: int, step: int
) -> tuple[list[Ragged], Tensor]:
    """Return the texts of each worker followed by their contrast phrases, and the indices of a worker's own, [B, k].

    Every worker draws the phrases of all, since the draws are f(seed, step, worker), so that none are sent.
    """
    drawn = [
        phrases.draw(texts, generator if worker == rank else step_draws(seed, step, worker))
        for worker, texts in enumerate(parts)
    ]
    read = [joined(texts, phrases.pairs.take(numbers)) for texts, (numbers, _) in zip(parts, drawn, strict=True)]
    return read, drawn[rank][1]


@dataclass(frozen=True)
class PairedPhrases:
    """Paraphrases of each phrase in the data, which must not be its negatives ("constraints", Wieting 2015 §4.1).

    Phrase i of the ascending keys [U] is paired with the keys ``paired[offsets[i]:offsets[i + 1]]``.
    """

    keys: Keys
    offsets: npt.NDArray[np.int64]
    paired: Keys

    @classmethod
    def of(cls, pairs: Ragged, lemma: Callable[[int], int | None] = lambda _: None) -> "PairedPhrases":
        """Return the paraphrases in 2n texts.

        ``lemma`` maps the row of a word to that of its lemma, or None; the lemmas of paired words are paired, too.
        """
        keys = phrase_keys(pairs).reshape(-1, 2)
        anchors, paired = keys.T.reshape(-1), keys[:, ::-1].T.reshape(-1)
        words = np.unique(pairs.ids[pairs.offsets[:-1][pairs.lengths == 1]])
        lemmas = [(word, row) for word in words for row in [lemma(int(word))] if row is not None and row != word]
        if lemmas:
            ends, columns = np.arange(len(lemmas) + 1), zip(*lemmas, strict=True)
            of_word, of_lemma = (phrase_keys(Ragged(np.array(column, np.int32), ends)) for column in columns)
            order = np.argsort(of_word)
            place = np.searchsorted(of_word[order], paired).clip(max=len(order) - 1)
            has_lemma = of_word[order][place] == paired
            anchors = np.concatenate([anchors, anchors[has_lemma]])
            paired = np.concatenate([paired, of_lemma[order][place[has_lemma]]])
        order = np.argsort(anchors, kind="stable")
        distinct_anchors, starts = np.unique(anchors[order], return_index=True)
        return cls(distinct_anchors, np.append(starts, len(anchors)), paired[order])

    def among(self, anchors: Keys, pool: Keys) -> npt.NDArray[np.bool_]:
        """Return whether each of N anchors is paired with each of P phrases, bool [N, P]."""
        distinct, column = np.unique(pool, return_inverse=True)
        place = np.searchsorted(self.keys, anchors).clip(max=len(self.keys) - 1)
        counts = np.where(self.keys[place] == anchors, self.offsets[place + 1] - self.offsets[place], 0)
        row = np.repeat(np.arange(len(anchors)), counts)
        place = np.arange(counts.sum()) + np.repeat(self.offsets[place] - np.cumsum(counts) + counts, counts)
        paired = self.paired[place]
        place = np.searchsorted(distinct, paired).clip(max=len(distinct) - 1)
        hit = distinct[place] == paired
        mask = np.zeros((len(anchors), len(distinct)), np.bool_)
        mask[row[hit], place[hit]] = True
        among: npt.NDArray[np.bool_] = mask[:, column]
        return among
