"""The README of a model folder, and the rows of its table of scores."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from paraembed.checked import checked
from paraembed.encoders import encoder_name
from paraembed.escape import markdown, markdown_row
from paraembed.supervised.model import Supervised
from paraembed.supervised.recipe import SupervisedRecipe
from paraembed.supervised.scores import SavedScores, TaskScores
from paraembed.supervised.tasks import Task

HEAD = ("part", "measure", "ours × 100", "95 %", "coverage", "published")
"""Of ``score_rows``."""


def score_rows(
    scores: Mapping[str, TaskScores], published: Mapping[str, Sequence[tuple[str, float]]]
) -> list[list[str]]:
    """A row a part and measure; the papers' values, by measure, stand beside the test part's."""
    rows = []
    for part, one in scores.items():
        for name, value in one.values.items():
            low_high = one.intervals.get(name)
            between = "" if low_high is None else f"{100 * low_high[0]:.1f}–{100 * low_high[1]:.1f}"
            beside = published.get(name, ()) if part == "test" else ()
            told = "; ".join(f"{label} {theirs:g}" for label, theirs in beside)
            rows.append([part, name, f"{100 * value:.2f}", between, f"{one.coverage:.1%}", told])
    return rows


class _Scored(TypedDict):
    """What ``saved_rows`` reads of a model's provenance."""

    scores: dict[str, SavedScores]
    published: dict[str, dict[str, float]]


def saved_rows(provenance: Mapping[str, Any], where: str) -> list[list[str]]:
    """The rows of a model that was scored before, from its folder's provenance.

    Args:
        provenance: of the model.
        where: its folder, for messages.

    Raises:
        ValueError: the provenance holds no scores.
    """
    saved = checked(_Scored, provenance, f"{where}/config.json: provenance")
    scores = {part: TaskScores.from_dict(values) for part, values in saved["scores"].items()}
    return score_rows(scores, {measure: [*rows.items()] for measure, rows in saved["published"].items()})


def model_card(
    name: str, recipe: SupervisedRecipe, model: Supervised, task: Task, rows: Sequence[Sequence[str]], picture: str
) -> str:
    """README of a model folder: what it is, how to use it, its scores, what it was trained by.

    Args:
        name: of the recipe.
        recipe: what was done.
        model: the result.
        task: what it was trained on.
        rows: of ``score_rows``.
        picture: file of the curves.
    """
    one = {
        "sentiment": '["a warm , funny film"]',
        "similarity": '["a man plays a guitar"], ["a man is playing music"]',
        "entailment": '["a man plays a guitar"], ["a man is playing music"]',
    }.get(task.name)
    usage = f"model.predict({one})" if one else 'model.encoder.encode(["air current", "wind"])'
    table = "\n".join(map(markdown_row, (HEAD, ["---"] * len(HEAD), *rows)))
    settings = "\n".join(markdown_row((key, str(value))) for key, value in recipe.to_dict().items())
    notes = "".join(f"* {markdown(note)}\n" for note in task.notes)
    sizes = ", ".join(f"{part} {len(getattr(task, part)):,}" for part in ("train", "dev", "test"))
    return f"""# {task.name} on {task.data_set}: {encoder_name(model.encoder.config)} ({markdown(name)}, {recipe.mode})

A paraphrastic encoder with a supervised head, trained by paraembed ({sizes} examples). The model of the highest score
on the development part was kept; the test part was scored once.

```python
from paraembed.supervised.model import load

model = load("this folder")
{usage}
```

`encoder/` is an encoder folder for every other job.

{table}

{notes}
| recipe | |
|---|---|
{settings}

![Loss, share of right answers and scores]({picture})
"""
