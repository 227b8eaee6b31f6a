"""Score an encoder on a suite: each set, and the means and pooled correlations of the groups."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paraembed.encoders.protocol import Embeds
from paraembed.evaluation.candidates import PairScorer
from paraembed.evaluation.measures import (
    Similarities,
    Vector,
    best_threshold,
    correlations,
    first_place,
    intervals,
    resampled_means,
)
from paraembed.evaluation.sets import AnySet, Choices, Group, Measure, ScoredPairs, Suite, ThresholdPairs
from paraembed.io.escape import file_stem
from paraembed.settings import RESAMPLES

_FEW_WORDS = {"words", "bigrams"}  # suites whose texts overlap or do not: as a score that is noise
_SHORT = {*_FEW_WORDS, "phrases"}  # an OOV word decides a pair's similarity; two of them make it 1
COVERED = "_covered"
"""Suffix of a measure over the pairs without an OOV word."""


@dataclass(frozen=True)
class Score:
    """One line of a report: the score of a set, a mean over several sets, or a score of their pooled pairs."""

    name: str  # name in files: ``sts/2012/MSRpar``, ``sts/2012/mean``, ``sts/2012/pooled``, ``sts/mean``
    label: str  # name for readers: ``2012 MSRpar``, ``2012 mean of 5 sets``, ``mean of 5 years``
    values: dict[str, float]  # measure → value; empty if the candidate does not score such a set
    measure: Measure  # the measure that papers print
    num_pairs: int  # number of pairs, or questions
    num_tokens: int  # number of tokens on both sides of the pairs; 0 if the encoder does not count them
    num_unknown: int  # number of these tokens that are not in the vocabulary
    # Measure → 95 % interval; empty if intervals are off or not meaningful.
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    members: tuple[str, ...] = ()  # for a mean over sets or groups, the names of their scores
    is_pooled: bool = False  # whether it is a correlation over the pooled pairs of several sets
    num_sets: int = 1
    chance: float | None = None  # expected value of random answers, for an accuracy; None for other measures
    # For graded pairs of words or phrases, the number without an OOV word; None for other sets.
    num_covered: int | None = None
    # Measure → its value in each resample, for the intervals.
    replicates: dict[str, Vector] = field(default_factory=dict, repr=False, compare=False)
    # Predicted similarities [n] of graded pairs, in order; None for other sets, and for a mean.
    predicted: Vector | None = field(default=None, repr=False, compare=False)

    @property
    def is_mean(self) -> bool:
        """Whether this is a mean over sets or groups."""
        return bool(self.members)

    @property
    def value(self) -> float:
        """The measure that papers print; NaN if it is undefined."""
        return self.values.get(self.measure, float("nan"))

    @property
    def pearson(self) -> float:
        """Pearson's correlation, or the mean of such correlations; NaN if it is undefined."""
        return self.values.get("pearson", float("nan"))

    @property
    def unknown_share(self) -> float:
        """Fraction of the tokens that are not in the vocabulary."""
        return self.num_unknown / max(self.num_tokens, 1)


def score_suite(
    encoder: Embeds | PairScorer,
    suite: Suite,
    *,
    resamples: int | None = RESAMPLES,
    on_set: Callable[[str], object] = lambda _: None,
) -> list[Score]:
    """Score each set, the mean and the pooled pairs of each group, and the means over groups and over all sets.

    Sets of a group without a name have no mean. Every distinct text is encoded once. A scorer of pairs without vectors
    scores only graded sets of phrases and sentences, and has no value where a correlation is undefined; of an encoder,
    that is a ValueError that names the set. ``on_set`` is called with the name of each set before it is scored.
    """
    scorer = _Scorer(Similarities(encoder, suite), suite, resamples, on_set)
    lines: list[Score] = []
    means: list[Score] = []
    members: list[Score] = []
    alone: list[Score] = []
    for group in suite.groups:
        scored = [scorer.line(group, questions) for questions in group.sets]
        if not (group.name and group.has_mean):
            alone += scored
            continue
        name = f"{suite.name}/{group.name}"
        means.append(mean_score(scored, f"{name}/mean", f"{group.name} {mean_of(scored, 'set')}"))
        members += scored
        lines += [*scored, means[-1], scorer.pooled(group, scored)]
    if means:
        lines.append(mean_score(means, f"{suite.name}/mean", mean_of(means, suite.group_is)))
        lines.append(mean_score(members, f"{suite.name}/mean-of-sets", mean_of(members, "set")))
    return [*lines, *alone]


def score_name(suite: Suite, group: Group, questions: AnySet) -> str:
    """Return the name of a set's score: ``sts/2012/MSRpar``, ``sick/test``."""
    return "/".join(filter(None, (suite.name, group.name, questions.name)))


class _Scorer:
    """Scorer of the sets of a suite."""

    def __init__(
        self, similarities: Similarities, suite: Suite, resamples: int | None, on_set: Callable[[str], object]
    ) -> None:
        self.similarities, self.suite, self.resamples, self.on_set = similarities, suite, resamples, on_set

    def line(self, group: Group, questions: AnySet) -> Score:
        """Return the score of one set."""
        name = score_name(self.suite, group, questions)
        self.on_set(name)
        label = " ".join(filter(None, (group.name or self.suite.name.replace("pairs", ""), questions.name)))
        counts = self.similarities.counts(questions)
        score = Score(name, label, {}, self.suite.measure, len(questions), *counts)
        if isinstance(questions, ScoredPairs):
            if self.similarities.has_vectors or self.suite.name not in _FEW_WORDS:
                score = self._correlated(score, self.similarities.of(*questions.texts), questions.scores)
            return self._with_covered(score, questions) if self.suite.name in _SHORT else score
        chance = 1 / (2 if isinstance(questions, ThresholdPairs) else questions.first.shape[1])
        score = replace(score, chance=chance)
        return self._answered(score, questions) if self.similarities.has_vectors else score

    def _with_covered(self, score: Score, pairs: ScoredPairs) -> Score:
        """Return the score with additional values for the covered pairs alone, if these are defined."""
        predicted, covered = score.predicted, self.similarities.are_covered(pairs)
        if predicted is None or covered is None:
            return score
        score = replace(score, num_covered=int(covered.sum()))
        none = None if self.resamples is None else 0
        try:
            values, _ = correlations(predicted[covered], pairs.scores[covered], none, score.name)
        except ValueError:  # too few of them, or all alike
            return score
        return replace(score, values={**score.values, f"{self.suite.measure}{COVERED}": values[self.suite.measure]})

    def pooled(self, group: Group, scores: Sequence[Score]) -> Score:
        """Return the correlations over the pairs of all sets in a group, as if they were one set."""
        gold = np.concatenate([pairs.scores for pairs in group.sets if isinstance(pairs, ScoredPairs)])
        predicted = np.concatenate([score.predicted for score in scores if score.predicted is not None])
        score = Score(
            f"{self.suite.name}/{group.name}/pooled",
            f"{group.name} pooled",
            {},
            self.suite.measure,
            len(gold),
            sum(score.num_tokens for score in scores),
            sum(score.num_unknown for score in scores),
            is_pooled=True,
            num_sets=len(scores),
        )
        return self._correlated(score, predicted, gold)

    def _correlated(self, score: Score, predicted: Vector, gold: Vector) -> Score:
        """Return the score with predictions, and with correlations if these are defined."""
        score = replace(score, predicted=predicted)
        try:
            values, replicates = correlations(predicted, gold, self.resamples, score.name)
        except ValueError as error:
            if self.similarities.has_vectors:
                raise ValueError(f"{score.name}: {error}") from None
            return score
        return replace(score, values=values, intervals=intervals(replicates), replicates=replicates)

    def _answered(self, score: Score, questions: ThresholdPairs | Choices) -> Score:
        """Return the score with the accuracy of the answers."""
        try:
            hits = self._hits(questions)
        except ValueError as error:
            raise ValueError(f"{score.name}: {error}") from None
        values = {measure: float(of_measure.mean()) for measure, of_measure in hits.items()}
        replicates = {}
        if self.resamples:
            replicates = {"accuracy": resampled_means(hits["accuracy"], self.resamples, score.name)}
        return replace(score, values=values, measure="accuracy", intervals=intervals(replicates), replicates=replicates)

    def _hits(self, questions: ThresholdPairs | Choices) -> dict[str, Vector]:
        """Return the correctness of each answer, 0 to 1 [n], by measure."""
        if not len(questions):
            raise ValueError("the set is empty; a score needs at least one question")
        if isinstance(questions, ThresholdPairs):
            train, test = (self.similarities.of(*part.texts) for part in (questions.train, questions.test))
            same = test >= best_threshold(train, questions.train.scores)
            return {"accuracy": (same == (questions.test.scores > 0)).astype(float)}
        won, shared = first_place(self.similarities.of_options(questions))
        return {"accuracy": shared, "accuracy_strict": won.astype(float)}


def mean_of(scores: Sequence[Score], what: str) -> str:
    """Return a label such as ``mean of 5 sets``."""
    return f"mean of {len(scores)} {what}{'' if len(scores) == 1 else 's'}"


def mean_score(scores: Sequence[Score], name: str, label: str) -> Score:
    """Return the mean of scores, which has no value if one of them has none; resamples are averaged one by one."""
    measures = [measure for measure in scores[0].values if all(measure in score.values for score in scores)]
    replicates = {
        measure: np.mean([score.replicates[measure] for score in scores], axis=0)
        for measure in measures
        if all(measure in score.replicates for score in scores)
    }
    return Score(
        name,
        label,
        {measure: float(np.mean([score.values[measure] for score in scores])) for measure in measures},
        scores[0].measure,
        sum(score.num_pairs for score in scores),
        sum(score.num_tokens for score in scores),
        sum(score.num_unknown for score in scores),
        intervals(replicates),
        members=tuple(score.name for score in scores),
        num_sets=sum(score.num_sets for score in scores),
        replicates=replicates,
    )


def metric_name(name: str, measure: str, score: Score) -> str:
    """Return a score's name in MLflow: ``name/measure``; for a mean the name, with ``_spearman`` for Spearman's ρ."""
    name = file_stem(re.sub(r"[^/\w.\- :]", "_", name))  # what MLflow takes: few characters, at most 250
    if score.is_mean or score.is_pooled:
        return name if measure == "pearson" else f"{name}_{measure}"
    return f"{name}/{measure}"
