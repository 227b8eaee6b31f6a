"""Faster steps than ``training.step.Step`` in PyTorch's operators alone, which compute the same, and which one runs."""

from typing import Literal

import torch

from paraembed.compiled import COMPILED
from paraembed.encoders.configs import AvgConfig, EncoderConfig, SumConfig
from paraembed.recipe import BaseRecipe, Recipe

StepKind = Literal["plain", "compiled", "additive", "shared", "graphs"]


def step_kind(
    config: EncoderConfig,
    recipe: BaseRecipe,
    device: str,
    world: int,
    *,
    dtype: torch.dtype = torch.float32,
    is_on_disk: bool = False,
) -> StepKind:
    """Return the fastest step that trains an encoder as a recipe says.

    - plain: PyTorch's operators. On a GPU also for fresh dropout masks of negatives, whose texts the host must know.
    - compiled: the same, but rows of the word matrix move by compiled loops on a CPU.
    - additive: encoders that add up word vectors, with the margin loss, as a whole in compiled loops on a CPU; of
      several workers each computes the whole step.
    - shared: additive, and workers on one machine each compute their share of it, on one word matrix.
    - graphs: one worker on a GPU, which is never waited for.

    Args:
        config: of the encoder.
        recipe: how it is trained.
        device: cpu or cuda.
        world: how many workers.
        dtype: of the word vectors.
        is_on_disk: whether the pairs are over the memory limit.
    """
    on_pairs = recipe if isinstance(recipe, Recipe) else None
    is_single = on_pairs is not None and on_pairs.mega_batch_size == 1
    if dtype != torch.float32:
        return "plain"
    if device == "cuda":
        has_shared_masks = on_pairs is not None and on_pairs.negative_dropout == "shared"
        return "graphs" if is_single and has_shared_masks and world == 1 and not is_on_disk else "plain"
    if device != "cpu" or not COMPILED:
        return "plain"
    if on_pairs is None or not is_additive(config, on_pairs) or (world > 1 and not is_single):
        return "compiled"
    return "shared" if world > 1 and on_pairs.negative_pool_workers == "own" and recipe.clip is None else "additive"


def is_additive(config: EncoderConfig, recipe: Recipe) -> bool:
    """Return whether a step's gradient has a closed form: texts are sums of words, and no token is changed."""
    return (
        isinstance(config, AvgConfig | SumConfig)
        and recipe.objective == "margin"
        and recipe.train_words
        and recipe.update == "sparse"
        and not (recipe.dropout or recipe.word_dropout or recipe.scramble)
    )
