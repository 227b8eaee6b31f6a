"""The user's own spaces, the selection of the best trial, and the points of a sweep over labeled examples, given task
and pretrained encoder.
"""

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from paraembed.aliases import current_names
from paraembed.console import say
from paraembed.evaluation.choose import read_choose
from paraembed.evaluation.selection import Metric, chosen_metric
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import read_pairs_files, read_suites
from paraembed.io.fingerprint import read_json
from paraembed.io.places import open_regular
from paraembed.options import MOST_INT, Range, checked
from paraembed.papers.results import PAPERS_STS
from paraembed.papers.supervised import SUPERVISED_RECIPES
from paraembed.recipe import SupervisedRecipe, check_recipe, idle_fields
from paraembed.settings import MAX_BAD_WORDS, MIN_COVERAGE
from paraembed.supervised.labels import Labels, read_labels
from paraembed.tuning.points import Points
from tune_spaces.space import DEV_PEARSON, Selection, Space

_MOST_BYTES = 1 << 20  # of a file with a space
_SPREAD = {"papers-22": ("sts", "sick", "pit2015")}  # means over the sets of several suites


@dataclass(frozen=True)
class _OwnSpace:
    """Keys of a file with a space, see ``Space``; ``metric`` is the score to maximize."""

    base: str
    axes: dict[str, tuple[Any, ...]]
    epochs: Annotated[int, Range(1, MOST_INT)]
    metric: str | None = None
    sample: Annotated[int, Range(1, MOST_INT)] | None = None
    fixed: dict[str, Any] = field(default_factory=dict)


def read_space(path: Path) -> Space:
    """Read a space from a .toml or .json file; its keys are described in docs/tune.md.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not TOML or JSON, or a key is missing, unknown or not allowed.
    """
    if path.suffix == ".json":
        own = read_json(path, _OwnSpace, _MOST_BYTES)
    else:
        try:
            with open_regular(path) as file:
                own = checked(_OwnSpace, tomllib.loads(file.read(_MOST_BYTES).decode()), str(path))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
    empty = [axis for axis, values in own.axes.items() if not values]
    if empty or not own.axes:
        name = f"axes.{empty[0]}" if empty else "axes"
        raise ValueError(f"{path}: {name} is empty; give at least one value to try, such as margin = [0.4, 0.6]")
    is_gold = own.base in SUPERVISED_RECIPES
    if is_gold != (own.metric is None):
        what = "is selected by its task's dev set; leave metric out" if is_gold else "needs a metric, such as sts/mean"
        raise ValueError(f"{path}: a space with base {own.base} {what}")
    return Space(
        source=str(path),
        base=own.base,
        axes=own.axes,
        selection=DEV_PEARSON if own.metric is None else selection_by(own.metric),
        tuning_data="the pairs given",
        tuning_epochs=own.epochs,
        tuning_pairs=own.sample,
        final_epochs=own.epochs,
        fixed=own.fixed,
        job="finetune" if is_gold else "train",
    )


def selection_by(metric: str) -> Selection:
    """Return the selection by a metric that the user names; for ``pairs/NAME/…`` the file is NAME.tsv.

    Raises:
        ValueError: the metric is ``pairs`` without a file name.
    """
    suite, *parts = metric.split("/")
    if suite == "pairs" and len(parts) < 2:
        raise ValueError(f"`metric` is {metric}; expected pairs/NAME/pearson, where `data` contains NAME.tsv")
    files = (f"{parts[0]}.tsv",) if suite == "pairs" else ()
    return Selection(_SPREAD.get(suite, (suite,)), ((1, metric),), "your metric", files)


def gold_selection(selection: Selection, task: str | None) -> Selection:
    """Return the selection of a task with labeled examples: ``dev/pearson`` for similarity, else ``dev/accuracy``."""
    if task in {None, "similarity"}:
        return selection
    return replace(selection, metric=((1, "dev/accuracy"),))


def read_selection(selection: Selection, data: Path | None) -> tuple[Suite, ...]:
    """Read the sets of the metric.

    Raises:
        ValueError: no folder is given, or no suite has the metric.
        FileNotFoundError: the folder lacks a file that the metric needs; the message names it.
    """
    names = [name for _, name in selection.metric]
    if data is None:
        raise ValueError(
            f"the best trial is selected by {', '.join(names)} ({selection.split}); give the folder of that data "
            "with `data`"
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
                f"{data} has no files for {name}{_files_of(name, data)}; the files there give {allowed}"
            ) from None
    return suites


def _files_of(metric: str, data: Path) -> str:
    suite, year = (*metric.split("/"), "", "")[:2]
    if suite != "sts" or year not in PAPERS_STS:
        return ""
    return f"; expected {data / 'sts' / year}/<set>.tsv with the sets {', '.join(PAPERS_STS[year])}"


def needed(suite: Suite, metric: Metric) -> Suite:
    """Return only the groups of a suite, or the sets of a group without a name, that a metric needs; else the whole
    suite.
    """

    def named_in(part: str) -> set[str]:
        return {name for _, name in metric if name.startswith(f"{suite.name}/{part}/")}

    groups, covered = [], set[str]()
    for group in suite.groups:
        sets = tuple(part for part in group.sets if named_in(group.name or part.name))
        groups += [replace(group, sets=sets)] if sets else []
        covered.update(*(named_in(group.name or part.name) for part in sets))
    if len(covered) < len(metric):
        return suite
    years = tuple(f"STS {group.name} " for group in groups)
    notes = tuple(note for note in suite.notes if not note.startswith("STS ") or note.startswith(years))
    return replace(suite, groups=tuple(groups), notes=notes)


_OF_ALL = ("mode", "seed")  # which inputs, and how they are split: trials share them
_OF_PRETRAINED = ("encoder", "tokenizer", "bos_eos_tokens", "max_tokens")


def without_idle_axes(points: Points, task: str) -> Points:
    """Return the points without the axes that have no effect for a task, which would repeat the same trial."""
    space = points.space
    recipes: Any = (points.at(space.choices(number)).recipe for number in range(space.size))
    idle = set.intersection(*(set(idle_fields(recipe, task)) for recipe in recipes))
    dropped = [name for name in space.axes if set().union(*space.settings(name)) <= idle]
    if not dropped:
        return points
    say(f"not searched, because it has no effect for the task {task}: {', '.join(dropped)}")
    axes = {name: values for name, values in space.axes.items() if name not in dropped}
    return replace(points, space=replace(space, axes=axes))


def read_labels_for(
    points: Points,
    task: str,
    data_set: str | None,
    folder: Path,
    words: Path | None,
    pretrained: Path | None,
    *,
    min_coverage: float = MIN_COVERAGE,
    max_bad_words: float = MAX_BAD_WORDS,
) -> tuple[Labels, Points]:
    """Read the data that trials share, and fix the fields that a pretrained encoder determines. Arguments as in
    ``read_labels``.

    Raises:
        OSError, ValueError: a file is missing, the space's mode needs another kind of start, the space or ``fixed``
            sets a field that the pretrained encoder determines, or a recipe of the space cannot be trained on the task.
    """
    for name in _OF_ALL:
        if len({getattr(point.recipe, name) for point in points.differing_in({name})}) > 1:
            raise ValueError(
                f"the space {points.name} searches {name}, but all trials share the data that it decides; fix it"
            )
    searched = (point.recipe for point in points.differing_in({"scramble", "head_layer", "batch_size"}))
    recipes = [recipe for recipe in searched if isinstance(recipe, SupervisedRecipe)]
    try:
        for recipe in recipes:
            check_recipe(recipe, task)
    except ValueError as error:
        raise ValueError(f"the space {points.name}: {error}") from None
    largest = max(recipes, key=lambda recipe: recipe.batch_size)
    otherwise = "give another encoder, or use another space"
    labels = read_labels(
        largest,
        task,
        data_set,
        folder,
        words=words,
        pretrained=pretrained,
        otherwise=otherwise,
        min_coverage=min_coverage,
        max_bad_words=max_bad_words,
    )
    if labels.pretrained is not None:
        points = _with_what_it_decides(points, labels.recipe)
    return labels, points


def _with_what_it_decides(points: Points, recipe: SupervisedRecipe) -> Points:
    for name in (*points.columns(), *points.space.fixed, *points.fixed):
        if name.split(".")[0] in _OF_PRETRAINED:
            raise ValueError(
                f"{name} is determined by the encoder at `pretrained`; neither the space nor `fixed` can change it"
            )
    decided = current_names(recipe.to_dict())
    return replace(points, fixed={**points.fixed, **{name: decided[name] for name in _OF_PRETRAINED}})
