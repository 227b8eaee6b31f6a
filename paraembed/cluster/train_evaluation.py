"""What a training is scored on while it runs: the flags, and what a worker does about them."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paraembed.encoders import Encoder
from paraembed.evaluation.selection import chosen_metric, metrics_of, suites_digest
from paraembed.evaluation.sets import Suite
from paraembed.options import check_fields
from paraembed.tracking.runs import Run
from paraembed.training.best import Evaluated, Evaluation

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """How often the encoder is scored, and which one is kept."""

    every: float = 1.0
    """Epochs from one evaluation to the next, 0.25 for instance; the end of the training has one, too."""
    select: str | None = None
    """The encoder with the highest score of this name is the result, sts/2016/mean for instance.
    None: the mean of the first suite, or its first score."""
    patience: int | None = None
    """Stop after so many evaluations in a row that are no better than the best; none: train to the end."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        check_fields(self, {"every": (1e-6, math.inf), "patience": (1, 2**31 - 1)})


@dataclass(frozen=True)
class Evaluating:
    """What an encoder is scored on while it is trained.

    Attributes:
        suites: the sets.
        digest: of them.
        select: the metric by which an encoder is the best.
        every: epochs between evaluations.
        patience: evaluations in a row without a better one that end the training; None: none do.
    """

    suites: tuple[Suite, ...]
    digest: str
    select: str
    every: float
    patience: int | None

    @property
    def decides(self) -> dict[str, Any]:
        """What of it decides which encoder comes out."""
        return {"sets": self.digest, "select": self.select, "every": self.every, "patience": self.patience}

    def hook(self, encoder: Encoder, run: Run, show: Callable[[str], None]) -> Evaluation:
        """For the training loop: scores go to the run, and a line each to ``show``.

        Scores that are not defined (all texts have one vector) are a warning, and the training goes on.
        """

        def score(step: int) -> float:
            try:
                scores = metrics_of(encoder, self.suites)
            except ValueError as error:
                log.warning("the evaluation after step %d has no score: %s", step, error)
                return math.nan
            run.metrics(scores, step)
            return scores.get(self.select, math.nan)

        def on_score(found: Evaluated) -> None:
            show(self._line(found))
            if found.stops:
                show(f"stopping early: the last {self.patience} evaluations were no better (--patience)")

        return Evaluation(score, self.every, self.patience, {"sets": self.digest, "select": self.select}, on_score)

    def _line(self, found: Evaluated) -> str:
        score = "no score" if found.score is None else f"{self.select} {100 * found.score:.2f}"
        standing = ""
        if found.best is not None:
            best = f", the best is {100 * found.best[2]:.2f} after step {found.best[0]:,}"
            standing = best if found.since_best else ", the best so far"
        return f"evaluation after step {found.step:,}, epoch {found.epoch:.2f}: {score}{standing}"


def evaluating(suites: Sequence[Suite], selection: Selection) -> Evaluating | None:
    """What a training is scored on; None without suites.

    Raises:
        ValueError: the suites have no such score as is to select.
    """
    if not suites:
        return None
    select = chosen_metric(selection.select, suites)
    return Evaluating(tuple(suites), suites_digest(suites), select, selection.every, selection.patience)
