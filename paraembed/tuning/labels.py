"""Sweeps over labeled examples: what a task and a pretrained encoder decide of the points."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraembed.console import say
from paraembed.names import current_names
from paraembed.recipe import SupervisedRecipe, check_recipe, idle_fields
from paraembed.settings import MIN_COVERAGE
from paraembed.supervised.labels import Labels, read_labels
from paraembed.tuning.points import Points

_OF_ALL = ("mode", "seed")  # which inputs, and how they are split: trials share them
_OF_PRETRAINED = ("encoder", "tokenizer", "bos_eos_tokens", "max_tokens")


def without_idle_axes(points: Points, task: str) -> Points:
    """The points without the axes that decide nothing for a task: a sweep would try the same again and again."""
    space = points.space
    numbers = range(space.size)
    fields = [set(_idle_fields(points, number, task)) for number in numbers]
    idle = set.intersection(*fields)
    dropped = [name for name, values in space.axes.items() if _fields(name, values) <= idle]
    if not dropped:
        return points
    say(f"not searched, for it decides nothing for the task {task}: {', '.join(dropped)}")
    axes = {name: values for name, values in space.axes.items() if name not in dropped}
    return replace(points, space=replace(space, axes=axes))


def _idle_fields(points: Points, number: int, task: str) -> list[str]:
    recipe = points.at(points.space.choices(number)).recipe
    assert isinstance(recipe, SupervisedRecipe)
    return idle_fields(recipe, task)


def _fields(axis: str, values: Sequence[Any]) -> set[str]:
    return {name for value in values for name in (value if isinstance(value, Mapping) else (axis,))}


def read_labels_for(
    points: Points,
    task: str,
    data_set: str | None,
    folder: Path,
    words: Path | None,
    pretrained: Path | None,
    *,
    min_coverage: float = MIN_COVERAGE,
) -> tuple[Labels, Points]:
    """Read what trials share; what a pretrained encoder decides is fixed in the points. Arguments as ``read_labels``.

    Raises:
        OSError, ValueError: a file is missing, the space's mode begins with something else, the space searches, or
            ``fixed`` fixes, what the pretrained encoder decides, or a recipe of the space cannot be trained on the
            task.
    """
    for name in _OF_ALL:
        if len({getattr(point.recipe, name) for point in points.differing_in({name})}) > 1:
            raise ValueError(f"the space {points.name} searches {name}, and its trials share what that decides: fix it")
    searched = (point.recipe for point in points.differing_in({"scramble", "head_layer", "batch_size"}))
    recipes = [recipe for recipe in searched if isinstance(recipe, SupervisedRecipe)]
    try:
        for recipe in recipes:
            check_recipe(recipe, task)
    except ValueError as error:
        raise ValueError(f"the space {points.name}: {error}") from None
    largest = max(recipes, key=lambda recipe: recipe.batch_size)
    otherwise = "give another one, or take another space"
    labels = read_labels(
        *(largest, task, data_set, folder, words, pretrained), otherwise=otherwise, min_coverage=min_coverage
    )
    if labels.encoder is not None:
        points = _with_what_it_decides(points, labels.recipe)
    return labels, points


def _with_what_it_decides(points: Points, recipe: SupervisedRecipe) -> Points:
    for name in (*points.columns(), *points.space.fixed, *points.fixed):
        if name.split(".")[0] in _OF_PRETRAINED:
            raise ValueError(f"{name} is what the encoder at `pretrained` has; no space and no `fixed` can change it")
    decided = current_names(recipe.to_dict())
    return replace(points, fixed={**points.fixed, **{name: decided[name] for name in _OF_PRETRAINED}})
