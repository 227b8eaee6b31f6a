"""Supervised tasks by name, and how the data folder holds them."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from paraembed.supervised.parts import DataSet, Examples, Task, TaskName
from paraembed.supervised.tasks_pairs import read_sick, read_sts
from paraembed.supervised.tasks_phrases import read_semeval2013, read_turney
from paraembed.supervised.tasks_sentiment import read_sst

__all__ = ["DATA_SETS", "DataSet", "Examples", "Task", "TaskName", "read_task"]

DATA_SETS: Mapping[str, tuple[DataSet, ...]] = {
    "similarity": ("sick", "sts"),
    "entailment": ("sick",),
    "sentiment": ("sst",),
    "semeval2013": ("semeval2013",),
    "turney": ("turney",),
}
"""Task → its data sets; the first is the one that is taken where none is named."""


def read_task(name: str, data_set: str | None, data: Path, seed: int) -> Task:
    """Read a task from the data folder.

    Args:
        name: one of ``TaskName``.
        data_set: one of the task's in ``DATA_SETS``; None: its first.
        data: folder with ``sick/``, ``sst/``, ``sts/``, ``phrase/``.
        seed: of the splits that are drawn here (sts, semeval2013, turney); others are published.

    Raises:
        FileNotFoundError: a file is missing; it is named, and the task.
        ValueError: an unknown task or set; a file that cannot be read, with the line.
    """
    if name not in get_args(TaskName):
        raise ValueError(f"unknown task {name!r}; allowed: {', '.join(get_args(TaskName))}")
    allowed = DATA_SETS[name]
    chosen = allowed[0] if data_set is None else data_set
    if chosen not in allowed:
        raise ValueError(f"the task {name!r} has no data set {chosen!r}; allowed: {', '.join(allowed)}")
    if seed < 0:
        raise ValueError(f"seed is {seed}; allowed: a whole number from 0")
    if name == "sentiment":
        return read_sst(data)
    if name == "semeval2013":
        return read_semeval2013(data, seed)
    if name == "turney":
        return read_turney(data, seed)
    return read_sts(data, seed) if chosen == "sts" else read_sick(data, name)
