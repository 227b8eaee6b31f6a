"""Faster versions of ``training.step.Step`` that compute the same result, and the choice among them."""

from typing import TYPE_CHECKING, Literal

from paraembed.encoders.configs import AvgConfig, EncoderConfig, SumConfig
from paraembed.recipe import BaseRecipe, Recipe

if TYPE_CHECKING:
    import torch

StepKind = Literal["plain", "compiled", "additive", "shared", "graphs"]


def step_kind(
    config: EncoderConfig, recipe: BaseRecipe, device: str, world: int, *, dtype: "torch.dtype | None" = None
) -> StepKind:
    """Return the fastest kind of step for an encoder, a recipe, a device (cpu or cuda) and a type of word vectors,
    by default float32.

    - plain: PyTorch's operators. Also on a GPU if negatives get new dropout masks, because the host must then know
      their texts.
    - compiled: the same, but on a CPU compiled loops read and update the rows of the word matrix.
    - additive: the whole step in compiled loops on a CPU, for bag-of-words encoders; each of several workers computes
      the whole step.
    - shared: like additive, but workers on one machine each compute a part of the step, on a shared word matrix.
    - graphs: on GPUs, recorded as CUDA graphs, without waiting for the GPU.
    """
    on_pairs = recipe if isinstance(recipe, Recipe) else None
    is_single = on_pairs is not None and not on_pairs.pools_batches
    if dtype is not None and str(dtype) != "torch.float32":
        return "plain"
    if device == "cuda":
        has_new_masks = on_pairs is None or (on_pairs.objective == "margin" and on_pairs.negative_dropout == "fresh")
        return "plain" if has_new_masks else "graphs"
    if device != "cpu":
        return "plain"
    if on_pairs is None or not is_additive(config, on_pairs) or (world > 1 and not is_single):
        return "compiled"
    is_own_pool = on_pairs.negative_pool_workers == "own"
    return "shared" if world > 1 and is_own_pool and recipe.clip is None else "additive"


def is_additive(config: EncoderConfig, recipe: Recipe) -> bool:
    """Return whether one gradient per text suffices: texts are sums of word vectors, and no token is changed."""
    return (
        isinstance(config, AvgConfig | SumConfig)
        and recipe.objective == "margin"
        and recipe.train_words
        and recipe.update == "sparse"
        and not (recipe.dropout or recipe.word_dropout or recipe.scramble)
    )
