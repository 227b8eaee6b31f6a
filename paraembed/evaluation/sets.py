"""Evaluation data: three kinds of sets, groups of sets, and suites of groups."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Measure = Literal["pearson", "spearman", "accuracy"]


@dataclass(frozen=True)
class ScoredPairs:
    """n pairs of sentences with their gold scores.

    Attributes:
        name: name of the set.
        scores: float64 [n], finite; the scale is the file's own.
        first: string array [n].
        second: string array [n].
    """

    name: str
    scores: npt.NDArray[np.float64]
    first: pa.StringArray
    second: pa.StringArray

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Texts of both sides."""
        return self.first, self.second

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class ThresholdPairs:
    """Pairs with the same meaning (1) or not (0); the threshold of the cosine is chosen on ``train``.

    Attributes:
        name: name of the set.
        train: pairs whose scores are the labels 0 and 1, to choose the threshold.
        test: pairs on which the accuracy is measured.
    """

    name: str
    train: ScoredPairs
    test: ScoredPairs

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Texts of the set, possibly repeated."""
        return self.train.texts + self.test.texts

    def __len__(self) -> int:
        return len(self.test)


@dataclass(frozen=True)
class Choices:
    """n questions with k options; an option is a pair of texts, and option 0 is the right one.

    Attributes:
        name: name of the set.
        distinct: distinct texts, string array [T].
        first: int32 [n, k], row of each option's first text.
        second: int32 [n, k], row of each option's second text.
    """

    name: str
    distinct: pa.StringArray
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Distinct texts of the set."""
        return (self.distinct,)

    def __len__(self) -> int:
        return len(self.first)


AnySet = ScoredPairs | ThresholdPairs | Choices


@dataclass(frozen=True)
class Group:
    """Sets that share a mean, such as a year of STS; a group without a name has no mean.

    Attributes:
        name: name of the group.
        sets: sets of the group.
        has_mean: whether the group has a mean and is included in the means of the suite.
    """

    name: str
    sets: tuple[AnySet, ...]
    has_mean: bool = True


@dataclass(frozen=True)
class Suite:
    """Groups of sets.

    Attributes:
        name: prefix of the names of its scores.
        groups: groups of the suite.
        group_is: what a group is called in the mean over groups.
        measure: the measure that papers print.
        notes: notes for readers of the scores: missing sets, files that differ from the known ones.
    """

    name: str
    groups: tuple[Group, ...]
    group_is: str = "group"
    measure: Measure = "pearson"
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[pa.StringArray]:
        """Return the texts of its sets, possibly repeated."""
        return [texts for group in self.groups for questions in group.sets for texts in questions.texts]
