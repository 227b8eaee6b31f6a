"""Supervised tasks with train, dev and test examples, and the drawing of splits."""

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
from paraembed.text.tokenize import Tokens

Rows = npt.NDArray[np.int64]
Split = dict[str, dict[str, list[int]]]
"""File → split → numbers of its examples, from 0, ascending."""
SPLIT = "split.json"


@dataclass(frozen=True)
class Examples:
    """n examples of M texts."""

    texts: tuple[pa.StringArray, ...]  # M string arrays [n] of raw text
    # Float64 [n]: the gold score, or the number of the class; for choices 0, the right option.
    labels: npt.NDArray[np.float64]
    # M string arrays [n] of bracketed trees for ``paraembed.text.trees``, if the data have them.
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
        """Concatenate examples with the same number of texts and without trees."""
        texts = tuple(pa.concat_arrays(side) for side in zip(*(part.texts for part in parts), strict=True))
        return cls(texts, np.concatenate([part.labels for part in parts]))


@dataclass(frozen=True)
class Task:
    """Examples of a task in three splits."""

    name: TaskName
    data_set: DataSet
    train: Examples  # examples to train on
    dev: Examples  # examples to select the best checkpoint by
    test: Examples  # examples to score once
    # Names of the classes; the integer scores, lowest first, for similarity; empty for choices.
    classes: tuple[str, ...] = ()
    # Notes for readers of the scores: missing sets, files that differ from the known ones, unpublished splits.
    notes: tuple[str, ...] = ()
    split: Split | None = None  # for a split drawn here, its examples, which are saved next to the result
    # For semeval2013, the labeled pairs from which ``train`` is built. The similarity threshold is chosen on them for
    # dev, and on them and dev for test, whose pairs have the same form.
    threshold: Examples | None = None

    @property
    def low(self) -> int:
        """Lowest score for similarity, else 0."""
        return int(self.classes[0]) if self.name == "similarity" else 0

    @property
    def measure(self) -> Literal["pearson", "accuracy"]:
        """The measure that the papers print."""
        return "pearson" if self.name == "similarity" else "accuracy"


def drawn_parts(num: int, shares: tuple[float, ...], name: str, seed: int) -> tuple[Rows, ...]:
    """Split the numbers below ``num`` randomly into disjoint parts, each ascending: a fraction of them for every part
    except the last, rounded down, and the rest. The draw depends only on ``num``, the name of the data and the seed.
    """
    digest = np.frombuffer(hashlib.sha256(name.encode()).digest(), np.uint32)
    order = np.random.default_rng([seed, *digest.tolist()]).permutation(num)
    ends = np.cumsum([int(share * num + 1e-9) for share in shares])  # 0.1 · 30 is below 3 in floats
    return tuple(np.sort(part) for part in np.split(order, ends))


def write_split(task: Task, folder: Path) -> list[Path]:
    """Write the split of a task that was drawn here; return its path, or nothing for a published split."""
    if task.split is None:
        return []
    write_json(folder / SPLIT, task.split)
    return [folder / SPLIT]


def is_filled(tokens: Tokens, num_texts: int) -> npt.NDArray[np.bool_]:
    """Return which examples have a token in each of their texts, [n]; tokens of the first texts of all examples come
    first.
    """
    filled: npt.NDArray[np.bool_] = np.logical_and.reduce((np.diff(tokens.offsets) > 0).reshape(num_texts, -1))
    return filled
