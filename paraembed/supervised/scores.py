"""Scores of a model on labeled examples, their table, and the README of a model folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

import numpy as np

from paraembed.evaluation.measures import Vector, best_threshold, correlations, first_place, intervals, resampled_means
from paraembed.evaluation.report import encoder_metadata, settings_of
from paraembed.io.escape import markdown, markdown_row
from paraembed.late import Late
from paraembed.options import Count, checked
from paraembed.recipe import SupervisedRecipe
from paraembed.supervised.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

    from paraembed.supervised import heads
    from paraembed.supervised.model import Supervised
else:
    heads = Late("paraembed.supervised.heads")

_CARD = Path(__file__).with_name("model_card.md")
HEAD = ("part", "measure", "ours × 100", "95 %", "coverage", "published")
"""Column names of ``score_rows``."""


Part = Literal["dev", "test"]


@dataclass(frozen=True)
class TaskScores:
    """Scores on one split of a task."""

    values: dict[str, float]  # measure → value: pearson and spearman for similarity, accuracy for classes
    examples: Count  # number of examples
    coverage: float  # fraction of the tokens that have a word vector, 0 to 1
    intervals: dict[str, tuple[float, float]]  # measure → 95 % bootstrap interval, if intervals were requested


def score(model: "Supervised", task: Task, part: Part, *, resamples: int = 0) -> TaskScores:
    """Score a model on a split of its task, with 95 % intervals from bootstrap resamples if there are any.

    Raises:
        ValueError: a correlation is undefined, or all similarities are equal.
    """
    examples = {"dev": task.dev, "test": task.test}[part]
    outputs_NK, num_tokens, num_unknown = model.read(examples)
    name = f"{task.data_set}/{task.name}/{part}"
    if task.name == "similarity":
        predicted: Vector = heads.expected_scores(outputs_NK, task.low).double().numpy()
        values, drawn = correlations(predicted, examples.labels, resamples, name)
    else:
        right = _right(model, task, part, outputs_NK)
        values, drawn = {measure: float(hits.mean()) for measure, hits in right.items()}, {}
        if resamples:
            drawn = {measure: resampled_means(hits, resamples, name) for measure, hits in right.items()}
    return TaskScores(values, len(examples), 1 - num_unknown / max(1, num_tokens), intervals(drawn))


class DevScorer:
    """Scores a model on the dev set of its task; it keeps no other split."""

    keeps_best: ClassVar[bool] = True

    def __init__(self, task: Task) -> None:
        none = np.arange(0)
        self.task = replace(task, train=task.train.take(none), test=task.test.take(none))

    def __call__(self, model: "Supervised", /) -> tuple[float, dict[str, float]]:
        """Return the score, and all measures.

        Raises:
            ValueError: a correlation is undefined.
        """
        values = score(model, self.task, "dev").values
        return values[self.task.measure], {f"dev/{name}": value for name, value in values.items()}


def score_rows(
    scores: Mapping[str, TaskScores], published: Mapping[str, Sequence[tuple[str, float]]]
) -> list[list[str]]:
    """Return a row per split and measure, with the papers' values next to the test set's."""
    rows = []
    for part, score in scores.items():
        for name, value in score.values.items():
            low_high = score.intervals.get(name)
            between = "" if low_high is None else f"{100 * low_high[0]:.1f}–{100 * low_high[1]:.1f}"
            references = published.get(name, ()) if part == "test" else ()
            published_text = "; ".join(f"{label} {theirs:g}" for label, theirs in references)
            rows.append([part, name, f"{100 * value:.2f}", between, f"{score.coverage:.1%}", published_text])
    return rows


class _Scored(TypedDict):
    """Provenance fields that ``saved_rows`` reads."""

    scores: dict[str, TaskScores]
    published: dict[str, dict[str, float]]


def saved_rows(provenance: Mapping[str, Any], where: str) -> list[list[str]]:
    """Return the table rows of a model that was already scored, from the provenance in its folder, ``where``.

    Raises:
        ValueError: the provenance has no scores.
    """
    saved = checked(_Scored, provenance, f"{where}/config.json: provenance")
    return score_rows(saved["scores"], {measure: [*rows.items()] for measure, rows in saved["published"].items()})


def model_card(
    name: str,
    recipe: SupervisedRecipe,
    model: "Supervised",
    task: Task,
    test: TaskScores,
    rows: Sequence[Sequence[str]],
    picture: str,
) -> str:
    """Return the README of a model folder: metadata for the Hugging Face hub with the scores on the test set,
    description, usage, scores (``score_rows``), recipe and training curves.
    """
    has_classes = task.name in {"sentiment", "entailment"}
    metadata = encoder_metadata(
        model.encoder,
        task.name,
        name,
        scores={f"{task.data_set}/{task.name}/test": {"measure": task.measure, **test.values}},
        task="text-classification" if has_classes else "sentence-similarity",
        datasets=[task.data_set],
    )
    figures = {
        "sentiment": '["a warm , funny film"]',
        "similarity": '["a man plays a guitar"], ["a man is playing music"]',
        "entailment": '["a man plays a guitar"], ["a man is playing music"]',
    }.get(task.name)
    settings = settings_of(recipe, model.encoder).items()
    return _CARD.read_text(encoding="utf-8").format(
        metadata=metadata,
        task=task.name,
        data_set=task.data_set,
        kind=model.encoder.config.name,
        name=markdown(name),
        mode=recipe.mode,
        sizes=", ".join(f"{part} {len(getattr(task, part)):,}" for part in ("train", "dev", "test")),
        usage=f"model.predict({figures})" if figures else 'model.encoder.encode(["air current", "wind"])',
        table="\n".join(map(markdown_row, (HEAD, ["---"] * len(HEAD), *rows))),
        notes="".join(f"* {markdown(note)}\n" for note in task.notes),
        settings="\n".join(markdown_row((key, str(value))) for key, value in settings),
        picture=picture,
    )


def _right(model: "Supervised", task: Task, part: Part, outputs_NK: "Tensor") -> dict[str, Vector]:
    """Return the correctness of each answer, 0 to 1 [n], by measure."""
    if task.name == "turney":
        both = {"accuracy": outputs_NK, "accuracy of 5": outputs_NK[:, :5]}
        return {measure: first_place(options_NK.numpy())[1] for measure, options_NK in both.items()}
    examples = {"dev": task.dev, "test": task.test}[part]
    if task.threshold is None:
        right: Vector = np.equal(outputs_NK.argmax(1).numpy(), examples.labels).astype(np.float64)
        return {"accuracy": right}
    known = [task.threshold] if part == "dev" else [task.threshold, task.dev]
    similarities = np.concatenate([_similarities(model.read(part)[0]) for part in known])
    threshold = best_threshold(similarities, np.concatenate([part.labels for part in known]))
    same = _similarities(outputs_NK) >= threshold
    return {"accuracy": np.equal(same, examples.labels > 0).astype(np.float64)}


def _similarities(outputs_NK: "Tensor") -> Vector:
    similarities: Vector = outputs_NK[:, 0].double().numpy()
    return similarities
