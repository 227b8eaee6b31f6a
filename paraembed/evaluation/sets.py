"""What an encoder is scored on: sets of three kinds, groups of them, suites."""

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
        """Both sides."""
        return self.first, self.second

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class ThresholdPairs:
    """Pairs of the same meaning (1) or not (0): the cosine from which on it is the same is chosen on ``train``.

    Attributes:
        name: name of the set.
        train: pairs with labels for scores.
        test: what the accuracy is of.
    """

    name: str
    train: ScoredPairs
    test: ScoredPairs

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Every text of the set, some more than once."""
        return self.train.texts + self.test.texts

    def __len__(self) -> int:
        return len(self.test)


@dataclass(frozen=True)
class Choices:
    """n questions of k options; an option is a pair of texts, and option 0 the right one.

    Attributes:
        name: name of the set.
        distinct: the texts that occur, string array [T].
        first: int32 [n, k], row of an option's first text.
        second: int32 [n, k].
    """

    name: str
    distinct: pa.StringArray
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Every text of the set, once."""
        return (self.distinct,)

    def __len__(self) -> int:
        return len(self.first)


AnySet = ScoredPairs | ThresholdPairs | Choices


@dataclass(frozen=True)
class Group:
    """Sets that share a mean, such as a year of STS; a group without a name has no mean.

    Attributes:
        name: of the group.
        sets: what it holds.
        has_mean: whether it has a mean and counts in those of the suite.
    """

    name: str
    sets: tuple[AnySet, ...]
    has_mean: bool = True


@dataclass(frozen=True)
class Suite:
    """Groups of sets.

    Attributes:
        name: in front of the names of its scores.
        groups: what it holds.
        group_is: what a group is called in the mean over them.
        measure: the one that papers print for it.
        notes: what a reader of the scores must know: sets that are missing, files that are not the known ones.
    """

    name: str
    groups: tuple[Group, ...]
    group_is: str = "group"
    measure: Measure = "pearson"
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[pa.StringArray]:
        """Every text of its sets, some more than once."""
        return [texts for group in self.groups for questions in group.sets for texts in questions.texts]
