"""Scores that select the best checkpoint: metrics of given suites."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from paraembed.encoders import Embedded
from paraembed.encoders.protocol import Embeds
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.measures import Vector
from paraembed.evaluation.report import compare
from paraembed.evaluation.scoring import metric_name
from paraembed.evaluation.sets import Suite
from paraembed.io.escape import listed
from paraembed.io.fingerprint import digest_of


def metrics_of(encoder: Embeds, suites: Sequence[Suite], resamples: int | None = 0) -> dict[str, float]:
    """Return every score of an encoder, without intervals, with the names of ``Report.metrics``.

    No warnings are logged about truncated texts or missing trees, since they would be repeated at every evaluation.
    Raise ValueError, with the name of the set, if a score is undefined. ``resamples``: see ``compare``.
    """
    return compare([Candidate("encoder", "", _Silent(encoder))], suites, resamples=resamples).metrics()


Metric = Sequence[tuple[float, str]]
"""Weights and names of scores; their weighted sum is maximized."""


@dataclass(frozen=True)
class SuiteScorer:
    """Scorer of an encoder on suites."""

    suites: tuple[Suite, ...]
    metric: tuple[tuple[float, str], ...]
    keeps_best: ClassVar[bool] = False

    def __call__(self, encoder: Embeds, /) -> tuple[float, dict[str, float]]:
        """Return the score, and the metrics of all sets; raise ValueError if the metric is missing or undefined."""
        metrics = metrics_of(encoder, self.suites)
        missing = [name for _, name in self.metric if name not in metrics]
        if missing:
            raise ValueError(f"{missing[0]} is not among the scores; allowed: {listed(metrics, 50)}")
        return sum(weight * metrics[name] for weight, name in self.metric), metrics

    def replicates(self, encoder: Embeds) -> Vector:
        """Return the score in each resample of the sets [R], the same resamples for every encoder; empty if the metric
        has a measure without them, such as ``accuracy_strict``.
        """
        report = compare([Candidate("encoder", "", _Silent(encoder))], self.suites)
        of_metric = {
            metric_name(score.name, measure, score): values
            for score in report.columns[0].scores
            for measure, values in score.replicates.items()
        }
        if any(name not in of_metric for _, name in self.metric):
            return np.zeros(0)
        return np.asarray(sum(weight * of_metric[name] for weight, name in self.metric))


def chosen_metric(name: str | None, suites: Sequence[Suite]) -> str:
    """Return the metric that selects the best checkpoint: ``name``, else the first suite's mean, or its first score if
    it has no mean.

    Raise ValueError if the suites do not have this score (the message lists the scores), or a set has no score for any
    encoder.
    """
    allowed = list(metrics_of(_Random(), suites, None))
    first = [score for score in allowed if score.startswith(f"{suites[0].name}/")]
    if name is None:
        mean = f"{suites[0].name}/mean"
        return mean if mean in allowed else first[0]
    if name not in allowed:
        raise ValueError(f"`select` is {name}, which is not a score of the sets; allowed: {listed(allowed, 50)}")
    return name


def suites_digest(suites: Sequence[Suite]) -> str:
    """Return a digest of everything, besides the encoder, that a score on the suites depends on."""
    return digest_of([[suite.name, suite.group_is, suite.measure, as_json(suite.groups)] for suite in suites])


@dataclass(frozen=True)
class _Silent:
    """Encoder that only embeds and logs no warnings."""

    encoder: Embeds

    def embed(self, texts: pa.StringArray) -> Embedded:
        return self.encoder.embed(texts)


class _Random:
    """Encoder with random vectors, used to find the names of the scores."""

    def embed(self, texts: pa.StringArray) -> Embedded:
        vectors = np.random.default_rng(0).standard_normal((len(texts), 4), np.float32)
        return Embedded(vectors, np.ones(len(texts), np.int32), np.zeros(len(texts), np.int32))


def as_json(value: Any) -> Any:
    """Return a dataclass of texts and numbers, such as a set, as JSON, without the fields that are not compared."""
    if is_dataclass(value):
        return [as_json(getattr(value, field.name)) for field in fields(value) if field.compare]
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, pa.Array):
        return value.to_pylist()
    return value.tolist() if isinstance(value, np.ndarray) else value
