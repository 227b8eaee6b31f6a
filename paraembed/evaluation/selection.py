"""What an encoder is scored by, to select the best one: metrics of some suites."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from paraembed.encoders import Embedded
from paraembed.encoders.protocol import Embeds
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Suite
from paraembed.io.escape import listed
from paraembed.io.fingerprint import digest_of


def metrics_of(encoder: Embeds, suites: Sequence[Suite]) -> dict[str, float]:
    """Every score of an encoder, without intervals, by the names of ``Report.metrics``.

    Texts that the encoder cuts or has no trees of are not warned of: that would be said again at every evaluation.

    Raises:
        ValueError: a score is not defined; the message names the set.
    """
    return compare([Candidate("encoder", "", _Silent(encoder))], suites, resamples=0).metrics()


Metric = Sequence[tuple[float, str]]
"""Weights and names; their weighted sum is maximized."""


@dataclass(frozen=True)
class SuiteScorer:
    """Scores an encoder on suites.

    Attributes:
        suites: what on.
        metric: what is maximized.
    """

    suites: tuple[Suite, ...]
    metric: tuple[tuple[float, str], ...]
    keeps_best: ClassVar[bool] = False

    def __call__(self, encoder: Embeds, /) -> tuple[float, dict[str, float]]:
        """Return the score, and the metrics of all sets.

        Raises:
            ValueError: a correlation that is not defined, or a metric that the suites do not give.
        """
        metrics = metrics_of(encoder, self.suites)
        missing = [name for _, name in self.metric if name not in metrics]
        if missing:
            raise ValueError(f"{missing[0]} is not among the scores: {listed(metrics, 50)}")
        return sum(weight * metrics[name] for weight, name in self.metric), metrics


def chosen_metric(name: str | None, suites: Sequence[Suite]) -> str:
    """The metric that selects: ``name``, else the first suite's mean, or its first score where it has no mean.

    Raises:
        ValueError: the suites give no such score, with those they give; or a set has no score whatever the encoder.
    """
    allowed = list(metrics_of(_Random(), suites))
    first = [score for score in allowed if score.startswith(f"{suites[0].name}/")]
    if name is None:
        mean = f"{suites[0].name}/mean"
        return mean if mean in allowed else first[0]
    if name not in allowed:
        raise ValueError(f"`select` {name}: the sets give no such score; allowed: {listed(allowed, 50)}")
    return name


def suites_digest(suites: Sequence[Suite]) -> str:
    """Digest of everything that a score on the suites depends on, besides the encoder."""
    return digest_of([[suite.name, suite.group_is, suite.measure, as_json(suite.groups)] for suite in suites])


@dataclass(frozen=True)
class _Silent:
    """An encoder that embeds, and does nothing else."""

    encoder: Embeds

    def embed(self, texts: pa.StringArray) -> Embedded:
        return self.encoder.embed(texts)


class _Random:
    """A vector a text, drawn: scores that mean nothing, under the names that every encoder's have."""

    def embed(self, texts: pa.StringArray) -> Embedded:
        vectors = np.random.default_rng(0).standard_normal((len(texts), 4), np.float32)
        return Embedded(vectors, np.ones(len(texts), np.int32), np.zeros(len(texts), np.int32))


def as_json(value: Any) -> Any:
    """A dataclass of texts and numbers, such as a set, as JSON."""
    if is_dataclass(value):
        return [as_json(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, pa.Array):
        return value.to_pylist()
    return value.tolist() if isinstance(value, np.ndarray) else value
