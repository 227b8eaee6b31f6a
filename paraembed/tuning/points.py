"""Points of a search space with the user's fixed fields, and the recipe of each point."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from paraembed.aliases import current_names
from paraembed.papers import find_recipe, find_supervised_recipe
from paraembed.recipe import BaseRecipe, Recipe, SupervisedRecipe
from paraembed.tuning.ledger import TrialRecord
from tune_spaces.space import Space

SHARE = "share"
"""Axis that is not a field of a recipe: the fraction of the pairs that a trial is trained on."""
_NOT_FIXED = {
    "epochs": "give a trial's epochs with `epochs`",
    SHARE: "it is not a field of a recipe; set the number of pairs with `sample`",
}
_OF_THE_JOB = ("eval_every", "patience")  # of a training on labeled examples, apart from a search


@dataclass(frozen=True)
class Point:
    """Point of a space: what one trial trains."""

    choices: dict[str, int]  # axis → index of its value
    recipe: BaseRecipe  # recipe of the trial
    share: float  # fraction of the pairs, 0 to 1


@dataclass(frozen=True)
class Points:
    """The points of a space, with fields that the user fixed."""

    name: str  # name of the space
    space: Space  # the search space
    # Recipe fields that the user set to other values than the space, the same in every trial.
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> BaseRecipe:
        """Base recipe of the space."""
        return (find_recipe if self.space.job == "train" else find_supervised_recipe)(self.space.base)

    @property
    def kind(self) -> type[BaseRecipe]:
        """Class of its recipes: for training on pairs, or on labeled examples."""
        return Recipe if self.space.job == "train" else SupervisedRecipe

    def check(self) -> None:
        """Raise ValueError if a field of the space or of the user is unknown, or its value is not allowed."""
        for name, instead in _NOT_FIXED.items():
            if name in self.fixed:
                raise ValueError(f"`fixed` {name}: {instead}")
        first = dict.fromkeys(self.space.axes, 0)
        swept = dict.fromkeys([*self.space.axes, *self.columns()])
        for name in self.fixed:
            if name in swept:
                raise ValueError(
                    f"{name} is searched by the space {self.name} and cannot be fixed; the searched fields are "
                    f"{', '.join(swept)}"
                )
        for axis, values in self.space.axes.items():
            for choice in range(len(values)):
                recipe = self.at({**first, axis: choice}).recipe
                for name in _OF_THE_JOB:
                    if getattr(recipe, name, None) is not None:
                        raise ValueError(
                            f"the space {self.name}: {name} is {getattr(recipe, name)}, but trials are always scored "
                            f"on the dev set after every epoch, and `asha` stops the worst; leave {name} out"
                        )

    def at(self, choices: Mapping[str, int]) -> Point:
        """Return the point with these values.

        Raises:
            ValueError: a field is unknown or its value is not allowed; the message names the space.
        """
        values = self.base.values()
        values["epochs"] = self.space.tuning_epochs
        share, options = 1.0, dict[str, Any]()
        for name, value in current_names({**self.space.fields(choices), **self.fixed}).items():
            if name == SHARE and self.space.job == "train":
                share = float(value)
            elif name.startswith("encoder."):
                options[name.removeprefix("encoder.")] = value
            else:
                values[name] = value
        if isinstance(values["encoder"], Mapping):  # else the recipe rejects it
            values["encoder"] = {**values["encoder"], **options}
        try:
            return Point(dict(choices), self.kind.from_dict(values), share)
        except ValueError as error:
            raise ValueError(f"the space {self.name}: {error}") from None

    def check_record(self, record: TrialRecord, num_trials: int) -> None:
        """Raise ValueError if the record of a trial does not belong to a point of this space."""
        sizes = {name: len(values) for name, values in self.space.axes.items()}
        is_known = record.choices.keys() == sizes.keys() and record.number < num_trials
        if not (is_known and all(choice < sizes[name] for name, choice in record.choices.items())):
            raise ValueError(
                f"the record of trial {record.number} does not belong to the space {self.name}; remove it to run the "
                "trial again"
            )

    def differing_in(self, fields: Set[str]) -> list[Point]:
        """Return points with every combination of values that these fields have in the space, and few others."""
        axes = {
            name: values
            for name, values in self.space.axes.items()
            if any(fields & setting.keys() for setting in self.space.settings(name))
        }
        first, reduced = dict.fromkeys(self.space.axes, 0), replace(self.space, axes=axes)
        return [self.at({**first, **reduced.choices(number)}) for number in range(reduced.size)]

    def columns(self) -> list[str]:
        """Names of the fields in which points differ."""
        settings = chain.from_iterable(map(self.space.settings, self.space.axes))
        return list(dict.fromkeys(chain.from_iterable(settings)))

    def shown(self, recipe: Mapping[str, Any], share: float) -> dict[str, Any]:
        """Return the values of ``columns`` in a recipe, given as ``Recipe.to_dict``."""
        values = self.kind.from_dict(dict(recipe)).values()
        flat = {**values, SHARE: share, **{f"encoder.{name}": value for name, value in values["encoder"].items()}}
        return {name: flat[name] for name in self.columns()}
