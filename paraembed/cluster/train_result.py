"""What a finished training has to show: which encoder is kept, its scores beside the untrained one's, the picture."""

import logging
from collections.abc import Sequence
from pathlib import Path

from paraembed import checkpoint
from paraembed.cluster.train_evaluation import Evaluating
from paraembed.console import doing
from paraembed.evaluation.candidates import Candidate, trained
from paraembed.evaluation.report import Report as Scores
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Suite
from paraembed.model_card import Selected
from paraembed.plots import ScoreChange, ScoreCurve, draw_training, shortened
from paraembed.training.state import Counters

PICTURE = "training.png"
_MOST_SCORES = 45  # lines of the picture
_LABEL = 60  # characters

log = logging.getLogger(__name__)


def selection_of(scored_on: Evaluating | None, counters: Counters) -> Selected | None:
    """Which encoder is kept, and why; None where the last step's is."""
    if scored_on is None:
        return None
    if counters.best is None:
        log.warning("no evaluation has a score: the encoder of the last step is the result")
        return None
    return Selected(scored_on.select, scored_on.every, counters.best, counters.scores)


def scores_of(work: Path, suites: Sequence[Suite]) -> Scores | None:
    """Scores of the encoder that is kept, and of the untrained one; None where one of them has no score."""
    before = Candidate("untrained", "before training", checkpoint.load(work / "untrained"), is_baseline=True)
    try:
        return compare([trained(work / "trained"), before], suites, progress=doing)
    except ValueError as error:
        log.warning("no scores of the finished encoder: %s", error)
        return None


def draw_result(
    path: Path, title: str, num_pairs: int, counters: Counters, selected: Selected | None, scores: Scores | None
) -> None:
    """Write the picture of a training on so many pairs an epoch; one that cannot be written costs a warning."""
    try:
        curve = ScoreCurve(selected.metric, counters.scores, selected.step) if selected else None
        draw_training(path, title, counters.curve, num_pairs, _changes(scores), curve)
    except (OSError, ValueError) as error:
        log.warning("the picture %s could not be written (%s); the encoder is whole", path.name, error)


def _changes(scores: Scores | None) -> list[ScoreChange]:
    if scores is None:
        return []
    after, before = (column.scores for column in scores.columns)
    lines = [pair for pair in zip(after, before, strict=True) if not pair[0].is_pooled]
    if len(lines) > _MOST_SCORES:
        lines = [pair for pair in lines if pair[0].is_mean] or lines[:_MOST_SCORES]
    return [ScoreChange(shortened(one.label, _LABEL), other.value, one.value, one.is_mean) for one, other in lines]
