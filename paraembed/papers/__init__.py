"""Recipes of the papers, by name: ``<paper>/<encoder>[-<variant>]``.

What a paper does not print comes from its authors' released code on GitHub: jwieting/iclr2016, jwieting/acl2017,
jwieting/tacl2015 and jwieting/paragram-word. "FACTS" is the project's summary of the papers and that code.

All recipes update only the rows in the batch (``update="sparse"``). With Adam, and for λ_w, this differs from the
papers, which update the whole word matrix in every step: ``update="dense"``, at many times the cost. ``as_released``
sets this and whatever else the released code does in its own way.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from paraembed.aliases import did_you_mean
from paraembed.encoders.configs import Gran5Config, GranNoGateConfig
from paraembed.papers import acl2017, iclr2016, pgru2017, tacl2015
from paraembed.papers.supervised import SUPERVISED_RECIPES
from paraembed.recipe import AnyRecipe, Recipe, SupervisedRecipe, read_recipe
from paraembed.settings import is_shipped

RECIPES: dict[str, Recipe] = {**tacl2015.RECIPES, **iclr2016.RECIPES, **acl2017.RECIPES, **pgru2017.RECIPES}

DEFAULT_RECIPE = "iclr2016/avg"
# Rate and batches of a grid on 70,000 sentence pairs; docs/train.md has the scores.
OWN_RECIPES = {"small": replace(RECIPES["iclr2016/avg"], learning_rate=3e-4, batch_size=500)}
"""Recipes of no paper: ``small`` trains the encoder of that name further on other pairs."""

# FACTS §7. Halved penalties, the forms of AdaGrad and of the targets are in the recipes.
_LASAGNE: dict[str, Any] = {"adam_form": "released", "clip_form": "gate", "init": "released", "update": "dense"}
_RELEASED = {
    "tacl2015": {"update": "dense"},
    "iclr2016": _LASAGNE,
    "acl2017": {**_LASAGNE, "negative_dropout": "fresh"},
}
_NOT_RELEASED = ("tacl2015/cnn", "iclr2016/scaled-avg", "acl2017/supervised", "acl2017/universal")
# Its released code trains the projection, too, which the paper (§4.4.2) and this package freeze.
_OTHER = ("iclr2016/features-proj",)


def unnamed_recipe(words: str | Path | None) -> Recipe:
    """Return the recipe of a training that names none: ``DEFAULT_RECIPE`` for texts that are normalized first, so that
    those that look the same have equal vectors; for ``words`` of an encoder, texts are read as it does.
    """
    recipe = RECIPES[DEFAULT_RECIPE]
    is_encoder = words is not None and (is_shipped(str(words)) or Path(words).is_dir())
    return recipe if is_encoder else replace(recipe, tokenizer=f"{recipe.tokenizer}+nfkc")


def as_released(name: str, recipe: AnyRecipe) -> AnyRecipe:
    """Return a recipe of a paper in the forms of its authors' released code: Adam, clipping, initial values, dropout of
    negatives, update of all word vectors, and the last state of gran5 and gran_nogate.

    Raises:
        ValueError: the name is not that of a published recipe with released code.

    Example:
        >>> as_released("iclr2016/avg", find_recipe("iclr2016/avg")).update
        'dense'
    """
    if name not in RECIPES and name not in SUPERVISED_RECIPES:
        raise ValueError(
            f"the recipe {name!r} is not that of a paper; released forms need the name of a published recipe"
        )
    forms = _RELEASED.get(name.partition("/")[0])
    if forms is None or name.startswith((*_NOT_RELEASED, *_OTHER)):
        allowed = f"recipes of {', '.join(_RELEASED)} other than {', '.join((*_NOT_RELEASED, *_OTHER))}"
        raise ValueError(f"no released code does what the recipe {name!r} does; allowed: {allowed}")
    if isinstance(recipe.encoder, Gran5Config | GranNoGateConfig):
        forms = {**forms, "encoder": replace(recipe.encoder, state="last")}
    return replace(recipe, **forms)


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name, also one of ``OWN_RECIPES``, or from a ``.json`` file.

    Raises:
        ValueError: the name is unknown (the message lists the names), or the file is not a recipe.
        FileNotFoundError: the file does not exist.

    Example:
        >>> recipe = find_recipe("iclr2016/avg")
        >>> recipe.encoder.name, recipe.epochs, recipe.margin
        ('avg', 10, 0.4)
    """
    return _found(name, {**RECIPES, **OWN_RECIPES}, Recipe)


def find_supervised_recipe(name: str) -> SupervisedRecipe:
    """Return a supervised recipe by its name, or from a ``.json`` file; the errors are those of ``find_recipe``."""
    return _found(name, SUPERVISED_RECIPES, SupervisedRecipe)


def _found(name: str, recipes: dict[str, AnyRecipe], kind: type[AnyRecipe]) -> AnyRecipe:
    if name in recipes:
        return recipes[name]
    if name.endswith(".json"):
        return read_recipe(Path(name), kind)
    allowed = f"{', '.join(recipes)}, or the path of a .json file"
    raise ValueError(f"unknown recipe {name!r}; allowed: {allowed}{did_you_mean(name, recipes)}")
