"""How good a model's answers are on examples with gold labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
from torch import Tensor

from paraembed.checked import Count
from paraembed.evaluation.measures import Vector, interval, pearson, resampled_correlations, resampled_means, spearman
from paraembed.evaluation.similarities import best_threshold, first_place
from paraembed.supervised.heads import expected_scores
from paraembed.supervised.model import Supervised
from paraembed.supervised.tasks import Task

RESAMPLES = 1000
"""For the intervals of the test part."""


Part = Literal["dev", "test"]


class SavedScores(TypedDict):
    """``TaskScores`` as JSON."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    examples: Count
    coverage: float


@dataclass(frozen=True)
class TaskScores:
    """Scores on one part of a task.

    Attributes:
        values: measure → value: pearson and spearman of similarity, accuracy of classes.
        intervals: measure → 95 % bootstrap interval, where one was asked for.
        num_examples: how many there are.
        coverage: share of their texts' tokens that have a word vector, 0 to 1.
    """

    values: Mapping[str, float]
    num_examples: int
    coverage: float
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The values of ``SavedScores``."""
        return {
            "values": dict(self.values),
            "intervals": {name: list(one) for name, one in self.intervals.items()},
            "examples": self.num_examples,
            "coverage": self.coverage,
        }

    @classmethod
    def from_dict(cls, saved: SavedScores) -> "TaskScores":
        """The scores that ``to_dict`` wrote."""
        return cls(saved["values"], saved["examples"], saved["coverage"], saved["intervals"])


def score(model: Supervised, task: Task, part: Part, *, resamples: int = 0) -> TaskScores:
    """Scores of a model on a part of its task.

    Args:
        model: trained on the task.
        task: what is asked.
        part: of it.
        resamples: for intervals; 0: none.

    Raises:
        ValueError: a correlation that is not defined, or similarities that are all the same.
    """
    examples = {"dev": task.dev, "test": task.test}[part]
    outputs_NK, num_tokens, num_unknown = model.read(examples)
    name = f"{task.data_set}/{task.name}/{part}"
    values, drawn = dict[str, float](), dict[str, Vector]()
    if task.name == "similarity":
        predicted: Vector = expected_scores(outputs_NK, task.low).double().numpy()
        values = {"pearson": pearson(predicted, examples.labels), "spearman": spearman(predicted, examples.labels)}
        if resamples:
            drawn = dict(zip(values, resampled_correlations(predicted, examples.labels, resamples, name), strict=True))
    else:
        for measure, right in _right(model, task, part, outputs_NK).items():
            values[measure] = float(right.mean())
            if resamples:
                drawn[measure] = resampled_means(right, resamples, name)
    found = {measure: interval(one) for measure, one in drawn.items()}
    intervals = {measure: one for measure, one in found.items() if one is not None}
    return TaskScores(values, len(examples), 1 - num_unknown / max(1, num_tokens), intervals)


def _right(model: Supervised, task: Task, part: Part, outputs_NK: Tensor) -> dict[str, Vector]:
    """By measure: whether each answer is right, 0 to 1 [n]."""
    if task.name == "turney":
        both = {"accuracy": outputs_NK, "accuracy of 5": outputs_NK[:, :5]}
        return {measure: first_place(options_NK.numpy())[1] for measure, options_NK in both.items()}
    examples = {"dev": task.dev, "test": task.test}[part]
    if task.threshold is None:
        right: Vector = np.equal(outputs_NK.argmax(1).numpy(), examples.labels).astype(np.float64)
        return {"accuracy": right}
    known = [task.threshold] if part == "dev" else [task.threshold, task.dev]
    similarities = np.concatenate([_similarities(model.read(one)[0]) for one in known])
    threshold = best_threshold(similarities, np.concatenate([one.labels for one in known]))
    same = _similarities(outputs_NK) >= threshold
    return {"accuracy": np.equal(same, examples.labels > 0).astype(np.float64)}


def _similarities(outputs_NK: Tensor) -> Vector:
    similarities: Vector = outputs_NK[:, 0].double().numpy()
    return similarities
