"""Gold labels as what a sweep's trials train on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from paraembed import checkpoint
from paraembed.cluster.finetune import (
    Finetuning,
    check_inputs,
    check_model_words,
    check_task,
    inputs_identity,
    of_prior,
    untrained_model,
    words_of,
)
from paraembed.cluster.tune_inputs import check_memory_of_trials, differing_recipes
from paraembed.console import say
from paraembed.encoders import Encoder
from paraembed.recipe import SupervisedRecipe, check_recipe, idle_fields
from paraembed.supervised.readers import read_task
from paraembed.supervised.tasks import Task
from paraembed.tuning.gold import GoldScorer, gold_inputs
from paraembed.tuning.points import Points
from paraembed.tuning.trial import Inputs, Metric, inputs_key

_TOKEN_BYTES = 5  # of text a token, about
_OF_ALL = ("mode", "seed")  # which inputs, and how they are split: trials share them
_OF_PRIOR = ("encoder", "tokeniser", "boundary_tokens", "max_tokens")


@dataclass(frozen=True)
class Gold:
    """What trials train on.

    Attributes:
        training: as ``jobs/finetune.py`` would train one of the space's points.
        task: all parts; trials are given the training part, and scored on the development part.
        prior: the trained encoder, in the modes universal and features.
    """

    training: Finetuning
    task: Task
    prior: Encoder | None

    def check(self) -> None:
        """Nothing: ``read_gold`` has looked at everything."""

    def identity(self) -> dict[str, Any]:
        """What decides a trial's result besides its recipe; digests, JSON."""
        return inputs_identity(self.training, self.task, self.prior)

    def told(self) -> dict[str, Any]:
        """What MLflow learns of it."""
        return {"task": self.task.name, "data_set": self.task.data_set}

    def scorer(self, metric: Metric) -> GoldScorer:  # noqa: ARG002 - the task's own, as of jobs/finetune.py
        """What trials are scored by."""
        return GoldScorer.of(self.task)

    def drawn(self, out: Path, seed: int, workers: int) -> "Gold":  # noqa: ARG002 - as pairs have it
        """All of it: gold labels are few."""
        return self

    def inputs(self, points: Points, workers: int, concurrent: int) -> dict[str, Inputs]:
        """What the trials share, by ``inputs_key``; arguments as of pairs.

        Raises:
            OSError, ValueError: too little memory, or the words cover too few of the training part's tokens.
        """
        recipes, train = differing_recipes(points), self.task.train
        tokens = sum(pc.sum(pc.binary_length(one)).as_py() for one in train.texts) // _TOKEN_BYTES
        words = words_of(self.training, self.prior)
        check_memory_of_trials(recipes, words, tokens, len(train), workers, concurrent)
        found = dict[str, Inputs]()
        for recipe in recipes:
            assert isinstance(recipe, SupervisedRecipe)
            if inputs_key(recipe) not in found:
                model, coverage = untrained_model(recipe, self.task, self.training.words, self.prior)
                check_model_words(coverage, self.training)
                some = gold_inputs(model, self.task, self.prior is not None)
                found[inputs_key(recipe)] = some
                if some.num_dropped:
                    say(
                        f"{some.num_dropped:,} of {len(train):,} examples have a text without a token, and are left out"
                    )
        return found


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


def read_gold(points: Points, training: Finetuning) -> tuple[Gold, Points]:
    """Read what trials on gold labels need; what a trained encoder decides is fixed in the points.

    Args:
        points: what is searched.
        training: task, data, words or prior, workers of a trial; its recipe is not looked at.

    Raises:
        OSError, ValueError: a file is missing, the space's mode begins with something else, the space searches, or
            ``--set`` fixes, what the trained encoder decides, or a recipe of the space cannot be trained on the task.
    """
    for name in _OF_ALL:
        if len({getattr(point.recipe, name) for point in points.differing_in({name})}) > 1:
            raise ValueError(f"the space {points.name} searches {name}, and its trials share what that decides: fix it")
    found = (point.recipe for point in points.differing_in({"scramble", "head_layer", "batch_size"}))
    recipes = [recipe for recipe in found if isinstance(recipe, SupervisedRecipe)]
    with _naming(points):
        for recipe in recipes:
            check_recipe(recipe, training.task)
    largest = max(recipes, key=lambda recipe: recipe.batch_size)
    training = replace(training, recipe=largest)
    check_inputs(training)
    task = read_task(training.task, training.data_set, training.data, largest.seed)
    prior = None
    if training.prior is not None:
        prior = checkpoint.load(training.prior)
        points = _with_what_it_decides(prior, points, largest)
    with _naming(points):
        check_task(training, task, prior)
    return Gold(training, task, prior), points


def _with_what_it_decides(prior: Encoder, points: Points, recipe: SupervisedRecipe) -> Points:
    for name in (*points.columns(), *points.space.fixed, *points.fixed):
        if name.split(".")[0] in _OF_PRIOR:
            raise ValueError(f"{name} is what the encoder at --prior has; no space and no --set can change it")
    with _naming(points):
        decided = of_prior(recipe, prior, otherwise="give another one, or take another space").to_dict()
    return replace(points, fixed={**points.fixed, **{name: decided[name] for name in _OF_PRIOR}})


@contextmanager
def _naming(points: Points) -> Iterator[None]:
    """Say of which space a ValueError is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"the space {points.name}: {error}") from None
