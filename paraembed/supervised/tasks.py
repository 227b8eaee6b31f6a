"""A supervised task: examples to train on, to select by, and to test on once; and how parts are drawn."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.io.atomic import write_json
from paraembed.settings import DataSet, TaskName

Rows = npt.NDArray[np.int64]
Split = dict[str, dict[str, list[int]]]
"""File → part → numbers of its examples, from 0, ascending."""
SPLIT = "split.json"


@dataclass(frozen=True)
class Examples:
    """n examples of M texts.

    Attributes:
        texts: M string arrays [n]: raw text.
        labels: float64 [n]: the gold score, or the number of the class; of choices 0, the right option.
        trees: M string arrays [n] of bracketed trees, as ``paraembed.text.trees`` reads, where the data have them.
    """

    texts: tuple[pa.StringArray, ...]
    labels: npt.NDArray[np.float64]
    trees: tuple[pa.StringArray, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Rows) -> "Examples":
        """Return the examples at ``rows``, in that order."""
        places = pa.array(rows)
        return Examples(
            tuple(side.take(places) for side in self.texts),
            self.labels[rows],
            None if self.trees is None else tuple(side.take(places) for side in self.trees),
        )

    @classmethod
    def joined(cls, parts: Sequence["Examples"]) -> "Examples":
        """One behind the other; parts of the same number of texts, and without trees."""
        texts = tuple(pa.concat_arrays(side) for side in zip(*(part.texts for part in parts), strict=True))
        return cls(texts, np.concatenate([part.labels for part in parts]))


@dataclass(frozen=True)
class Task:
    """Examples in three parts.

    Attributes:
        name: what is asked.
        data_set: of which set.
        train: to learn from.
        dev: to choose by.
        test: to report on, once.
        classes: names of the classes; of similarity the whole scores, lowest first; of choices none.
        low: lowest score of similarity, else 0.
        measure: the one that the papers print.
        notes: what a reader of the scores must know: sets that are missing, files that are not the known ones, parts
            that are not as published.
        split: where the parts were drawn here: what must be saved next to the result.
        threshold: of semeval2013, the labeled pairs behind ``train``: dev and test are pairs like them, and from
            which similarity on a pair is called the same is chosen on these for dev, on these and dev for test.
    """

    name: TaskName
    data_set: DataSet
    train: Examples
    dev: Examples
    test: Examples
    classes: tuple[str, ...]
    low: int
    measure: Literal["pearson", "accuracy"]
    notes: tuple[str, ...] = ()
    split: Split | None = None
    threshold: Examples | None = None


def drawn_parts(num: int, shares: tuple[float, ...], name: str, seed: int) -> tuple[Rows, ...]:
    """Numbers below ``num``, drawn into parts: disjoint, together all of them, each ascending.

    Args:
        num: how many there are.
        shares: of every part but the last, rounded down; the last takes the rest.
        name: of what is drawn from; the draw is a function of it, of ``num`` and of the seed alone.
        seed: a whole number from 0.
    """
    digest = np.frombuffer(hashlib.sha256(name.encode()).digest(), np.uint32)
    order = np.random.default_rng([seed, *digest.tolist()]).permutation(num)
    ends = np.cumsum([int(share * num + 1e-9) for share in shares])  # 0.1 · 30 is below 3 in floats
    return tuple(np.sort(part) for part in np.split(order, ends))


def write_split(task: Task, folder: Path) -> list[Path]:
    """Write the split of a task that was drawn here; the path, or none where the parts are published ones."""
    if task.split is None:
        return []
    write_json(folder / SPLIT, task.split)
    return [folder / SPLIT]
