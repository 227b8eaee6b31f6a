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
    first_place,
    interval,
    pearson,
    resampled_correlations,
    resampled_means,
    spearman,
)
from paraembed.evaluation.sets import AnySet, Group, Measure, ScoredPairs, Suite, ThresholdPairs
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
    # For questions, the number whose right answer has no OOV word; None for other sets.
    num_known_answers: int | None = None
    # For graded pairs of words or phrases, the number without an OOV word; None for other sets.
    num_covered: int | None = None
    # Measure → its value in each resample, for the intervals.
    replicates: dict[str, Vector] = field(default_factory=dict, repr=False, compare=False)

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
    def spearman(self) -> float:
        """Spearman's correlation, or the mean of such correlations; NaN if it is undefined."""
        return self.values.get("spearman", float("nan"))

    @property
    def unknown_share(self) -> float:
        """Fraction of the tokens that are not in the vocabulary."""
        return self.num_unknown / max(self.num_tokens, 1)


@dataclass(frozen=True)
class Scored:
    """Scores on a suite."""

    scores: tuple[Score, ...]
    predictions: dict[str, Vector]  # score name of a graded set → its predicted similarities [n], in order
    undefined: tuple[str, ...] = ()  # names of graded scores that are undefined for a scorer of pairs


def score_suite(
    encoder: Embeds | PairScorer,
    suite: Suite,
    *,
    resamples: int = RESAMPLES,
    on_set: Callable[[str], object] = lambda _: None,
) -> Scored:
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
        lines += [*scored, means[-1], scorer.pooled(group)]
    if means:
        lines.append(mean_score(means, f"{suite.name}/mean", mean_of(means, suite.group_is)))
        lines.append(mean_score(members, f"{suite.name}/mean-of-sets", mean_of(members, "set")))
    return Scored((*lines, *alone), scorer.predictions, tuple(scorer.undefined))


def score_name(suite: Suite, group: Group, questions: AnySet) -> str:
    """Return the name of a set's score: ``sts/2012/MSRpar``, ``sick/test``."""
    return "/".join(filter(None, (suite.name, group.name, questions.name)))


_Measured = tuple[dict[str, float], dict[str, Vector]]


class _Scorer:
    """Scorer of the sets of a suite, which keeps the predictions."""

    def __init__(
        self, similarities: Similarities, suite: Suite, resamples: int, on_set: Callable[[str], object]
    ) -> None:
        self.similarities, self.suite, self.resamples, self.on_set = similarities, suite, resamples, on_set
        self.predictions: dict[str, Vector] = {}
        self.undefined: list[str] = []

    def line(self, group: Group, questions: AnySet) -> Score:
        """Return the score of one set."""
        name = score_name(self.suite, group, questions)
        self.on_set(name)
        label = " ".join(filter(None, (group.name or self.suite.name.replace("pairs", ""), questions.name)))
        measured = self._tried(name, lambda: self._measured(questions, name))
        score = self._line(name, label, measured, len(questions), self.similarities.counts(questions))
        if isinstance(questions, ThresholdPairs):
            return replace(score, chance=1 / 2)
        if isinstance(questions, ScoredPairs):
            return self._with_covered(score, questions) if self.suite.name in _SHORT else score
        return replace(
            score, chance=1 / questions.first.shape[1], num_known_answers=self.similarities.num_known_answers(questions)
        )

    def _with_covered(self, score: Score, pairs: ScoredPairs) -> Score:
        """Return the score with additional values for the covered pairs alone, if these are defined."""
        covered = self.similarities.are_covered(pairs)
        if covered is None:
            return score
        score = replace(score, num_covered=int(covered.sum()))
        correlation = pearson if self.suite.measure == "pearson" else spearman
        try:
            value = correlation(self.predictions[score.name][covered], pairs.scores[covered])
        except ValueError:  # too few of them, or all alike
            return score
        return replace(score, values={**score.values, f"{self.suite.measure}{COVERED}": value})

    def pooled(self, group: Group) -> Score:
        """Return the correlations over the pairs of all sets in a group, as if they were one set."""
        name = f"{self.suite.name}/{group.name}"
        sets = [pairs for pairs in group.sets if isinstance(pairs, ScoredPairs)]
        predicted = np.concatenate([self.predictions[f"{name}/{pairs.name}"] for pairs in sets])
        gold = np.concatenate([pairs.scores for pairs in sets])
        measured = self._tried(f"{name}/pooled", lambda: self._correlations(predicted, gold, f"{name}/pooled"))
        tokens, unknown = map(sum, zip(*map(self.similarities.counts, sets), strict=True))
        num_pairs = sum(map(len, sets))
        score = self._line(f"{name}/pooled", f"{group.name} pooled", measured, num_pairs, (tokens, unknown))
        return replace(score, is_pooled=True, num_sets=len(sets))

    def _tried(self, name: str, measure: Callable[[], _Measured]) -> _Measured:
        """Return the measured values; nothing if a scorer of pairs has no value."""
        try:
            return measure()
        except ValueError as error:
            if self.similarities.has_vectors:
                raise ValueError(f"{name}: {error}") from None
            self.undefined.append(name)
            return {}, {}

    def _measured(self, questions: AnySet, name: str) -> _Measured:
        if not self.similarities.has_vectors and self.suite.name in _FEW_WORDS:
            return {}, {}
        if isinstance(questions, ScoredPairs):
            self.predictions[name] = self.similarities.of(questions.first, questions.second)
            return self._correlations(self.predictions[name], questions.scores, name)
        if not self.similarities.has_vectors:
            return {}, {}
        if not len(questions):
            raise ValueError("the set is empty; a score needs at least one question")
        if isinstance(questions, ThresholdPairs):
            train, test = (self.similarities.of(part.first, part.second) for part in (questions.train, questions.test))
            same = test >= best_threshold(train, questions.train.scores)
            return self._accuracy((same == (questions.test.scores > 0)).astype(float), name)
        won, shared = first_place(self.similarities.of_options(questions))
        values, replicates = self._accuracy(shared, name)
        return {**values, "accuracy_strict": float(won.mean())}, replicates

    def _correlations(self, predicted: Vector, gold: Vector, name: str) -> _Measured:
        values = {"pearson": pearson(predicted, gold), "spearman": spearman(predicted, gold)}
        if not self.resamples:
            return values, {}
        rs, rhos = resampled_correlations(predicted, gold, self.resamples, name)
        return values, {"pearson": rs, "spearman": rhos}

    def _accuracy(self, hits: Vector, name: str) -> _Measured:
        values = {"accuracy": float(hits.mean())}
        return values, {"accuracy": resampled_means(hits, self.resamples, name)} if self.resamples else {}

    def _line(self, name: str, label: str, measured: _Measured, num_pairs: int, counts: tuple[int, int]) -> Score:
        values, replicates = measured
        measure: Measure = "accuracy" if "accuracy" in values else self.suite.measure
        intervals = _intervals(replicates)
        return Score(name, label, values, measure, num_pairs, *counts, intervals, replicates=replicates)


def _intervals(replicates: dict[str, Vector]) -> dict[str, tuple[float, float]]:
    intervals = {measure: interval(values) for measure, values in replicates.items()}
    return {measure: bounds for measure, bounds in intervals.items() if bounds is not None}


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
        _intervals(replicates),
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
