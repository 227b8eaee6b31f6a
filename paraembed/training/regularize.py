"""Regularizers of Wieting 2017 §4.2: dropout, word dropout, scrambled words."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.recipe import BaseRecipe
from paraembed.text.ragged import Ragged


def drop_factors(
    recipe: BaseRecipe, num_tokens: int, generator: np.random.Generator, like_RD: Tensor
) -> tuple[Tensor, ...]:
    """Return dropout factors for the word vectors of tokens, zero to two tensors [T, D] and [T, 1]: zero for dropped
    values or words, a scale above 1 for the others.
    """
    if not (recipe.dropout or recipe.word_dropout):
        return ()
    drawn = torch.Generator(like_RD.device).manual_seed(int(generator.integers(2**63)))
    return tuple(
        like_RD.new_empty(num_tokens, size).bernoulli_(1 - share, generator=drawn).div_(1 - share)
        for share, size in ((recipe.dropout, like_RD.shape[1]), (recipe.word_dropout, 1))
        if share
    )


def drop(rows_RD: Tensor, ids_T: Tensor, factors: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the word vectors of the tokens after dropout and word dropout, a row for each token [T, D], and the
    numbers of these rows, int32 [T]; the factors are those of ``drop_factors``.
    """
    tokens_TD = F.embedding(ids_T, rows_RD)  # not index_select: on a GPU its gradient adds up in no fixed order
    for factor in factors:
        tokens_TD = tokens_TD * factor
    return tokens_TD, torch.arange(len(ids_T), dtype=torch.int32, device=ids_T.device)


def scrambled_texts(
    recipe: BaseRecipe,
    texts: Ragged,
    rows_RD: Tensor,
    ids: npt.NDArray[np.int32],
    generator: np.random.Generator,
    num_scrambled: int | None = None,
) -> tuple[Ragged, Tensor]:
    """Return the texts of a step after the recipe's word scrambling, and the rows of their tokens, int32 [T].

    The ids are the rows of the tokens in ``rows_RD``; only the first ``num_scrambled`` texts are shuffled (None: all).
    """
    if recipe.scramble:
        pairs = texts.slice(0, len(texts) if num_scrambled is None else num_scrambled)
        order = np.arange(len(ids))
        order[: len(pairs.ids)] = scrambled(recipe, pairs, generator)
        texts, ids = replace(texts, ids=texts.ids[order]), ids[order]
    return texts, torch.from_numpy(ids).to(rows_RD.device)


def dropped(
    recipe: BaseRecipe, rows_RD: Tensor, ids_T: Tensor, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return the word vectors after the recipe's dropout, and the rows of the tokens among them."""
    factors = drop_factors(recipe, len(ids_T), generator, rows_RD)
    return drop(rows_RD, ids_T, factors) if factors else (rows_RD, ids_T)


def scrambled(recipe: BaseRecipe, texts: Ragged, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return an order of the tokens in which the words of some of 2B texts are shuffled, without BOS and EOS tokens:
    token t of the result is ``texts.ids[positions[t]]``.
    """
    keep_first, keep_last = (recipe.bos_eos_tokens in {side, "both"} for side in ("start", "end"))
    if recipe.scramble_form == "pair":
        chosen = np.repeat(generator.random(len(texts) // 2) < recipe.scramble, 2)
    else:
        chosen = generator.random(len(texts)) < recipe.scramble
    if recipe.scramble_swaps is not None:
        times = np.where(chosen, generator.poisson(recipe.scramble_swaps, len(texts)), 0)
        return _swapped(texts, times, generator, keep_first, keep_last)
    text = np.repeat(np.arange(len(texts)), texts.lengths)
    key = np.where(chosen[text], generator.random(len(text)), np.arange(len(text)))
    if keep_first:
        key[texts.offsets[:-1]] = -1
    if keep_last:
        key[texts.offsets[1:] - 1] = np.inf
    return np.lexsort((key, text))


def _swapped(
    texts: Ragged, times: npt.NDArray[np.int64], generator: np.random.Generator, keep_first: bool, keep_last: bool
) -> npt.NDArray[np.int64]:
    places = np.arange(len(texts.ids))
    low, high = texts.offsets[:-1] + keep_first, texts.offsets[1:] - keep_last
    times = np.where(high - low > 1, times, 0)
    for number in range(int(times.max(initial=0))):
        swapping = times > number
        first, size = low[swapping], (high - low)[swapping]
        left = generator.integers(0, size)
        right = (left + generator.integers(1, size)) % size
        left, right = first + left, first + right
        places[left], places[right] = places[right], places[left]
    return places
