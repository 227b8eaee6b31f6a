"""What a search space is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal


@dataclass(frozen=True)
class Selection:
    """What the best trial is chosen by.

    Attributes:
        suites: names of the suites; ``pairs``: the files of scored pairs named in ``files``; ``choose``: the held-out
            pair shards in the folder named there. None of a space for labeled examples.
        metric: weights and names of their metrics; the weighted sum is maximized.
        split: description of that data.
        files: names in the data folder, for ``pairs`` and ``choose``.
    """

    suites: tuple[str, ...]
    metric: tuple[tuple[float, str], ...]
    split: str
    files: tuple[str, ...] = ()


DEV_PEARSON = Selection((), ((1, "dev/pearson"),), "the task's dev set; of classes their accuracy")
"""What the settings of a head were chosen by."""


@dataclass(frozen=True)
class Space:
    """What was searched: every combination of the axes' values.

    A value of an axis sets the recipe's field of that name (``encoder.layers``: an option of the encoder), or, where it
    is a mapping, the fields it names. The axis ``share`` is not of the recipe: the share of the pairs, 0 to 1.

    Attributes:
        source: paper, section, table.
        base: recipe of ``paraembed.papers`` that the axes change; for labeled examples one of ``SUPERVISED_RECIPES``.
        axes: field → values, or a name of its own → mappings.
        selection: how the best was chosen.
        tuning_data: which pairs the trials were trained on.
        tuning_pairs: how many of them were sampled; None: all.
        tuning_epochs: passes over them.
        final_data: which pairs the winner was trained on.
        final_epochs: passes over them.
        fixed: fields that differ from ``base`` throughout.
        best: recipes of ``paraembed.papers`` that were found best in this space.
        job: the job that trains a trial: on paraphrase pairs, or on labeled examples.
    """

    source: str
    base: str
    axes: Mapping[str, tuple[Any, ...]]
    selection: Selection
    tuning_data: str
    tuning_pairs: int | None
    tuning_epochs: int
    final_data: str
    final_epochs: int
    fixed: Mapping[str, Any] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    job: Literal["train", "finetune"] = "train"

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return prod(len(values) for values in self.axes.values())

    def choices(self, number: int) -> dict[str, int]:
        """Which value of each axis combination ``number`` has, from 0; the last axis changes fastest."""
        chosen = {}
        for name in reversed([*self.axes]):
            number, chosen[name] = divmod(number, len(self.axes[name]))
        return {name: chosen[name] for name in self.axes}

    def fields(self, choices: Mapping[str, int]) -> dict[str, Any]:
        """The fields that a combination sets, ``fixed`` ones included."""
        values = dict(self.fixed)
        for name, choice in choices.items():
            value = self.axes[name][choice]
            values |= value if isinstance(value, Mapping) else {name: value}
        return values
