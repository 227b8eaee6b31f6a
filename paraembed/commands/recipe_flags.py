"""Flags of a recipe: their groups in --help, and their defaults, which --recipe and --encoder select."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

from paraembed.commands.job import flag_value
from paraembed.console import say
from paraembed.encoders import ENCODERS, check_options, config_from_dict
from paraembed.papers import RECIPES, as_released
from paraembed.papers.supervised import SUPERVISED_RECIPES
from paraembed.recipe import AnyRecipe, BaseRecipe

RECIPE_GROUPS = {
    "data": "tokenizer max_tokens max_words new_words new_words_min_count min_coverage max_bad_words pairs_memory_gb "
    "seed",
    "model": "bos_eos_tokens train_words init mode head_layer head_width",
    "optimization": "as_released batch_size optimizer adam_form adagrad_form learning_rate encoder_learning_rate clip "
    "clip_form objective loss_form target_form similarity margin contrast_phrases update precision",
    "negatives": "negatives negative_pool negative_pool_workers negative_dropout mega_batch_size "
    "equal_negatives paired_negatives",
    "regularization": "word_l2 encoder_l2 encoder_l2_target l2_form head_l2 dropout word_dropout head_dropout scramble "
    "scramble_form scramble_swaps scramble_time",
    "checkpoints": "checkpoint_minutes checkpoint_steps keep_checkpoints",
    "evaluation": "evaluate_pairs eval_every select patience",
    "output": "register license",
    "resources": "gpus profile",
}
"""Groups of the flags of a training."""
AS_RELEASED = "--as-released"
NO_RECIPES: Mapping[str, BaseRecipe] = {}


def list_recipes(recipes: Mapping[str, BaseRecipe], own: Mapping[str, BaseRecipe] = NO_RECIPES) -> list[str]:
    """Return the lines of --list: recipes with encoder and source, then encoders, what they compute, and source."""
    width = max(map(len, recipes))
    lines = [f"  {name:<{width}}  {recipe.encoder.name:<12} {source(name)}" for name, recipe in recipes.items()]
    lines += [
        f"  {name:<{width}}  {recipe.encoder.name:<12} the encoder {name}, trained further"
        for name, recipe in own.items()
    ]
    papers: dict[str, str] = {}
    for name, recipe in [*RECIPES.items(), *SUPERVISED_RECIPES.items()]:
        papers.setdefault(recipe.encoder.name, source(name))
    texts = {name: inspect.cleandoc(config.__doc__ or "").partition("\n")[0] for name, config in ENCODERS.items()}
    encoders = [f"  {name:<12} {text.replace('`', '')} {papers.get(name, '')}".rstrip() for name, text in texts.items()]
    return ["recipes (--recipe)", *lines, "", "encoders (--encoder)", *encoders]


def source(recipe: str) -> str:
    """Return authors and year of a recipe's paper, from the first line of its module."""
    module = import_module(f"paraembed.papers.{recipe.partition('/')[0]}")
    return (module.__doc__ or "").partition(', "')[0]


def recipe_flags(
    arguments: Sequence[str], default: str, find: Callable[[str], AnyRecipe]
) -> tuple[str, str | None, AnyRecipe]:
    """Return the name of the recipe, the encoder that --encoder names or None, and the recipe with this encoder, in
    the released code's forms with --as-released. Its values are the defaults of the flags. Raise ValueError for an
    unknown recipe, encoder or option of the encoder, and for a recipe without released code.
    """
    name = flag_value(arguments, "--recipe") or default
    settings = find(name)
    encoder = flag_value(arguments, "--encoder")
    if encoder is not None:
        settings = replace(settings, encoder=config_from_dict({"name": encoder}))
    if AS_RELEASED in arguments:
        settings = as_released(name, settings)
    prefix = "--encoder."
    options = [argument.removeprefix(prefix).split("=")[0] for argument in arguments if argument.startswith(prefix)]
    check_options(settings.encoder.name, [name.removeprefix("no-").replace("-", "_") for name in options])
    return name, encoder, settings


def changed_fields(recipe: BaseRecipe, base: BaseRecipe) -> tuple[str, ...]:
    """Return the names of the fields that differ."""
    names = [field.name for field in dataclasses.fields(recipe)]
    return tuple(name for name in names if getattr(recipe, name) != getattr(base, name))


def say_idle(idle: Iterable[str], changed: Sequence[str]) -> None:
    """Print which of the changed fields have no effect."""
    names = [name for name in idle if name in changed]
    if names:
        say(f"these settings have no effect, given the others: {', '.join(names)}")
