"""Definition of a search space."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal


@dataclass(frozen=True)
class Selection:
    """How the best trial is selected.

    Attributes:
        suites: names of the suites; ``pairs``: the files of scored pairs named in ``files``; ``choose``: the held-out
            pair shards in the folder named there. Empty for a space of labeled examples.
        metric: weights and names of metrics; the weighted sum is maximized.
        split: description of that data.
        files: names in the data folder, for ``pairs`` and ``choose``.
    """

    suites: tuple[str, ...]
    metric: tuple[tuple[float, str], ...]
    split: str
    files: tuple[str, ...] = ()


DEV_PEARSON = Selection((), ((1, "dev/pearson"),), "the task's dev set; of classes their accuracy")
"""Selection of the settings of a head."""


@dataclass(frozen=True)
class Space:
    """Search space: every combination of the axes' values.

    A value of an axis sets the recipe field of the same name (``encoder.layers``: an option of the encoder) or, if the
    value is a mapping, the fields in it. The axis ``share``, the fraction of the pairs from 0 to 1, is not a recipe
    field.

    Attributes:
        source: paper, section, table.
        base: recipe of ``paraembed.papers`` that the axes change; for labeled examples one of ``SUPERVISED_RECIPES``.
        axes: field → values, or any other name → mappings.
        selection: how the best trial is selected.
        tuning_data: training pairs of the trials.
        tuning_epochs: epochs of the trials.
        final_epochs: epochs of the best recipe.
        final_data: training pairs of the best recipe.
        tuning_pairs: number of pairs to sample; None: all.
        fixed: fields that differ from ``base`` in all trials.
        best: recipes of ``paraembed.papers`` with the best settings of this space.
        job: job that trains a trial: on paraphrase pairs, or on labeled examples.
    """

    source: str
    base: str
    axes: Mapping[str, tuple[Any, ...]]
    selection: Selection
    tuning_data: str
    tuning_epochs: int
    final_epochs: int
    final_data: str = "the same data"
    tuning_pairs: int | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    job: Literal["train", "finetune"] = "train"

    @property
    def size(self) -> int:
        """Number of combinations."""
        return prod(len(values) for values in self.axes.values())

    def choices(self, number: int) -> dict[str, int]:
        """Return the index of each axis' value in combination ``number``, from 0; the last axis changes fastest."""
        chosen = {}
        for name in reversed([*self.axes]):
            number, chosen[name] = divmod(number, len(self.axes[name]))
        return {name: chosen[name] for name in self.axes}

    def settings(self, axis: str) -> list[Mapping[str, Any]]:
        """Return the fields that each value of an axis sets."""
        return [value if isinstance(value, Mapping) else {axis: value} for value in self.axes[axis]]

    def fields(self, choices: Mapping[str, int]) -> dict[str, Any]:
        """Return the fields that a combination sets, including ``fixed``."""
        values = dict(self.fixed)
        for name, choice in choices.items():
            values |= self.settings(name)[choice]
        return values
