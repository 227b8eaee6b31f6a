"""Evaluation data: three kinds of sets, groups of sets, and suites of groups."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Measure = Literal["pearson", "spearman", "accuracy"]


@dataclass(frozen=True)
class ScoredPairs:
    """n pairs of sentences with their gold scores."""

    name: str
    scores: npt.NDArray[np.float64]  # float64 [n], finite; the scale is the file's own
    first: pa.StringArray  # string array [n]
    second: pa.StringArray  # string array [n]
    # Float64 [n, raters], NaN if not rated; None: only means are known. No score of an encoder depends on it.
    ratings: npt.NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Texts of both sides."""
        return self.first, self.second

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class ThresholdPairs:
    """Pairs with the same meaning (1) or not (0); the threshold of the cosine is chosen on ``train``."""

    name: str
    train: ScoredPairs  # pairs whose scores are the labels 0 and 1, to choose the threshold
    test: ScoredPairs  # pairs on which the accuracy is measured

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Texts of the set, possibly repeated."""
        return self.train.texts + self.test.texts

    def __len__(self) -> int:
        return len(self.test)


@dataclass(frozen=True)
class Choices:
    """n questions with k options; an option is a pair of texts, and option 0 is the right one."""

    name: str
    distinct: pa.StringArray  # distinct texts, string array [T]
    first: npt.NDArray[np.int32]  # int32 [n, k], row of each option's first text
    second: npt.NDArray[np.int32]  # int32 [n, k], row of each option's second text

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Distinct texts of the set."""
        return (self.distinct,)

    def __len__(self) -> int:
        return len(self.first)


AnySet = ScoredPairs | ThresholdPairs | Choices


@dataclass(frozen=True)
class Group:
    """Sets that share a mean, such as a year of STS; a group without a name has no mean."""

    name: str
    sets: tuple[AnySet, ...]
    has_mean: bool = True  # whether the group has a mean and is included in the means of the suite


@dataclass(frozen=True)
class Suite:
    """Groups of sets."""

    name: str  # prefix of the names of its scores
    groups: tuple[Group, ...]
    group_is: str = "group"  # what a group is called in the mean over groups
    measure: Measure = "pearson"  # the measure that papers print
    notes: tuple[str, ...] = ()  # notes for readers of the scores: missing sets, files that differ from the known ones

    @property
    def texts(self) -> list[pa.StringArray]:
        """Return the texts of its sets, possibly repeated."""
        return [texts for group in self.groups for questions in group.sets for texts in questions.texts]
