"""What the best trial is chosen by: the space's metric, or another one, and the data that it needs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraembed.evaluation.choose import read_choose
from paraembed.evaluation.selection import Metric, chosen_metric
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import read_pairs_files, read_suites
from paraembed.papers.results import PAPERS_STS
from tune_spaces.space import Selection

_SPREAD = {"papers-22": ("sts", "sick", "pit2015")}  # means over the sets of several suites


def selection_by(metric: str) -> Selection:
    """The selection by a metric that the user names; of ``pairs/NAME/…`` the file is NAME.tsv.

    Raises:
        ValueError: ``pairs`` without a name.
    """
    suite, *parts = metric.split("/")
    if suite == "pairs" and len(parts) < 2:
        raise ValueError(f"`metric` {metric}: expected pairs/NAME/pearson, where `data` holds NAME.tsv")
    files = (f"{parts[0]}.tsv",) if suite == "pairs" else ()
    return Selection(_SPREAD.get(suite, (suite,)), ((1, metric),), "the metric asked for", files)


def gold_selection(selection: Selection, task: str | None) -> Selection:
    """Return the selection of a task with labeled examples: ``dev/pearson`` for similarity, else ``dev/accuracy``."""
    if task in {None, "similarity"}:
        return selection
    return replace(selection, metric=((1, "dev/accuracy"),))


def read_selection(selection: Selection, data: Path | None) -> tuple[Suite, ...]:
    """The sets that the metric is about.

    Raises:
        ValueError: no folder is given, or the metric is of no suite.
        FileNotFoundError: the folder does not hold what the metric needs; the message names it.
    """
    names = [name for _, name in selection.metric]
    if data is None:
        raise ValueError(
            f"the best trial is chosen by {', '.join(names)} ({selection.split}): give the folder of that data with "
            "`data`"
        )
    if selection.suites == ("pairs",):
        suites: tuple[Suite, ...] = (read_pairs_files([data / file for file in selection.files]),)
    elif selection.suites == ("choose",):
        (folder,) = selection.files or ("test",)
        suites = (read_choose(data / folder),)
    else:
        suites = read_suites(selection.suites, data)
    suites = tuple(needed(suite, selection.metric) for suite in suites)
    for name in names:
        try:
            chosen_metric(name, suites)
        except ValueError as error:
            allowed = str(error).partition("allowed: ")[2]
            raise FileNotFoundError(
                f"{data} holds nothing that gives {name}{_files_of(name, data)}; what is there gives {allowed}"
            ) from None
    return suites


def _files_of(metric: str, data: Path) -> str:
    suite, year = (*metric.split("/"), "", "")[:2]
    if suite != "sts" or year not in PAPERS_STS:
        return ""
    return f"; expected {data / 'sts' / year}/<set>.tsv with the sets {', '.join(PAPERS_STS[year])}"


def needed(suite: Suite, metric: Metric) -> Suite:
    """The groups of a suite, or the sets of a group without a name, that a metric is about; else the whole suite."""
    names = [name for _, name in metric]

    def is_named(part: str) -> bool:
        return any(name.startswith(f"{suite.name}/{part}/") for name in names)

    groups = []
    for group in suite.groups:
        if not group.name:
            sets = tuple(part for part in group.sets if is_named(part.name))
            groups += [replace(group, sets=sets)] if sets else []
        elif is_named(group.name):
            groups.append(group)
    covered = all(any(name.startswith(f"{suite.name}/{part}/") for part in _parts(groups)) for name in names)
    if not covered:
        return suite
    years = tuple(f"STS {group.name} " for group in groups)
    notes = tuple(note for note in suite.notes if not note.startswith("STS ") or note.startswith(years))
    return replace(suite, groups=tuple(groups), notes=notes)


def _parts(groups: Sequence[Any]) -> list[str]:
    return [name for group in groups for name in ([group.name] if group.name else [part.name for part in group.sets])]
