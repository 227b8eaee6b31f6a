"""How good a model's answers are on examples with gold labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from paraembed.evaluation import bootstrap
from paraembed.evaluation.correlation import Vector, pearson, spearman
from paraembed.evaluation.similarities import best_threshold, first_place
from paraembed.supervised.heads import expected_scores
from paraembed.supervised.model import Supervised
from paraembed.supervised.tasks import Examples, Task

RESAMPLES = 1000
"""For the intervals of the test part."""


Part = Literal["dev", "test"]


@dataclass(frozen=True)
class TaskScores:
    """Scores on one part of a task.

    Attributes:
        values: measure → value: pearson and spearman of similarity, accuracy of classes.
        intervals: measure → 95 % bootstrap interval, where one was asked for.
        num_examples: how many there are.
        num_tokens: of their texts.
        num_unknown: tokens without a word vector.
    """

    values: Mapping[str, float]
    num_examples: int
    num_tokens: int
    num_unknown: int
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """Share of the tokens that have a word vector, 0 to 1."""
        return 1 - self.num_unknown / max(1, self.num_tokens)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "values": dict(self.values),
            "intervals": {name: list(one) for name, one in self.intervals.items()},
            "examples": self.num_examples,
            "coverage": self.coverage,
        }


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
    examples = _part(task, part)
    predicted = answers(model, task, part)
    trees = examples.trees if model.encoder.composition.reads_trees else None
    name = f"{task.data_set}/{task.name}/{part}"
    drawn = dict[str, Vector]()
    if task.name == "similarity":
        values = {"pearson": pearson(predicted, examples.labels), "spearman": spearman(predicted, examples.labels)}
        if resamples:
            drawn = dict(zip(values, bootstrap.correlations(predicted, examples.labels, resamples, name), strict=True))
    else:
        values = {"accuracy": float(predicted.mean())}
        if resamples:
            drawn = {"accuracy": bootstrap.shares(predicted, resamples, name)}
    if task.name == "turney":
        values["accuracy of 5"] = float(_first_place(model.outputs(*examples.texts)[:, :5]).mean())
    found = {measure: bootstrap.interval(one) for measure, one in drawn.items()}
    embedded = model.encoder.embed(
        pa.concat_arrays(examples.texts), trees=None if trees is None else pa.concat_arrays(trees)
    )
    return TaskScores(
        values,
        len(examples),
        int(embedded.num_tokens.sum()),
        int(embedded.num_unknown.sum()),
        {measure: one for measure, one in found.items() if one is not None},
    )


def answers(model: Supervised, task: Task, part: Part) -> Vector:
    """Predicted scores [n] of similarity; of other tasks whether each answer is right, 0 to 1 [n]."""
    examples = _part(task, part)
    outputs_NK = model.outputs(*examples.texts, trees=examples.trees)
    if task.name == "similarity":
        scores: Vector = expected_scores(outputs_NK, task.low).double().numpy()
        return scores
    if task.name == "turney":
        return _first_place(outputs_NK)
    if task.threshold is None:
        hits: Vector = (outputs_NK.argmax(1) == torch.from_numpy(examples.labels)).double().numpy()
        return hits
    known = [task.threshold] if part == "dev" else [task.threshold, task.dev]
    similarities = np.concatenate([_similarities(model, one) for one in known])
    threshold = best_threshold(similarities, np.concatenate([one.labels for one in known]))
    return np.equal(_similarities(model, examples) >= threshold, examples.labels > 0).astype(np.float64)


def _part(task: Task, part: Part) -> Examples:
    return {"dev": task.dev, "test": task.test}[part]


def _similarities(model: Supervised, pairs: Examples) -> Vector:
    similarities: Vector = model.outputs(*pairs.texts)[:, 0].double().numpy()
    return similarities


def _first_place(outputs_NK: Tensor) -> Vector:
    return first_place(outputs_NK.numpy())[1]
