"""Inputs of an analysis, such as pooled scored pairs, and its results: tables of numbers and usually a plot."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed import encoders
from paraembed.evaluation.candidates import Candidate, tokenizer_of
from paraembed.evaluation.measures import Vector
from paraembed.evaluation.report import Report
from paraembed.evaluation.scoring import score_name
from paraembed.evaluation.sets import ScoredPairs, Suite
from paraembed.settings import AnalysisOptions
from paraembed.text.tokenize import Tokens, tokenize

if TYPE_CHECKING:
    from paraembed.encoders import Encoder

Cell = str | int | float | None
"""Cell of a table; None for an undefined value, for example because of too few pairs."""


def cell(value: float) -> Cell:
    """Return a number as a table cell; None for NaN."""
    return None if math.isnan(value) else float(value)


def defined_or_nan(
    correlation: Callable[[Vector, Vector], float], predicted: Vector, gold: Vector, min_values: int
) -> float:
    """Return a correlation; NaN if it is undefined or there are fewer than ``min_values`` values."""
    if len(gold) < min_values:
        return np.nan
    try:
        return correlation(predicted, gold)
    except ValueError:
        return np.nan


@dataclass(frozen=True, eq=False)
class AnalysisInputs:
    """An evaluation with the user's options. Costly results are cached by the identity of this object."""

    report: Report  # the scores, one column per candidate
    candidates: tuple[Candidate, ...]  # encoders, in the order of the columns
    suites: tuple[Suite, ...]  # data sets that they were scored on
    options: AnalysisOptions

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the candidates, which head their columns."""
        return tuple(column.label for column in self.report.columns)

    def encoders(self) -> "list[tuple[str, Encoder]]":
        """Return the candidates with a word matrix, with their labels; raise CannotMakeError if there is none."""
        labeled = [
            (candidate.label, candidate.encoder)
            for candidate in self.candidates
            if isinstance(candidate.encoder, encoders.Encoder)
        ]
        if not labeled:
            raise CannotMakeError("no candidate has word vectors of its own; add an encoder folder or `words`")
        return labeled


class CannotMakeError(Exception):
    """Error for an analysis whose input is missing; the message names the input and how to provide it."""


@dataclass(frozen=True)
class AnalysisTable:
    """Table of numbers in an analysis."""

    suffix: str  # added to the name of the analysis in the name of its file, such as ``-sts``; may be empty
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]  # cells; numbers in full precision
    decimals: int = 1  # decimals of fractional numbers when they are shown


@dataclass(frozen=True)
class Content:
    """Result of an analysis."""

    text: str  # explanation of the numbers in a few sentences
    tables: tuple[AnalysisTable, ...]
    picture: bytes = b""  # plot as PNG; empty if a table is clearer
    tables_matter: bool = False  # whether the tables are as important as the plot


@dataclass(frozen=True)
class Analysis:
    """An analysis with its result, or the reason why it could not be made."""

    name: str  # name of its files, without suffix
    title: str
    source: str  # paper and table or figure that it reproduces
    content: Content | None  # the result; None if the analysis could not be made
    reason: str = ""  # why it could not be made; empty otherwise
    files: tuple[Path, ...] = ()  # files written: ``<name>.png``, ``<table>.csv``


_PHRASE = 3  # tokens

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """n scored pairs."""

    name: str  # ``sts`` for the sets of all years; ``sick/test`` for a single set
    sets: tuple[str, ...]  # name of the set of each pair [n]
    rows: Ints  # number of each pair in its set, from 1, int64 [n]
    first: pa.StringArray  # string array [n]
    second: pa.StringArray  # string array [n]
    gold: Vector  # gold scores, float64 [n]
    predicted: tuple[Vector, ...]  # cosines, float64 [n] for each candidate; NaN if it does not score such pairs
    tokens: tuple[Tokens, Tokens]  # tokens of ``first`` and tokens of ``second``

    @property
    def lengths(self) -> Ints:
        """Number of tokens of both texts, [2, n]."""
        return np.stack([np.diff(tokens.offsets) for tokens in self.tokens])

    @property
    def are_texts(self) -> bool:
        """Whether most pairs have a text of at least three tokens; the lengths of words and bigrams hardly differ."""
        return bool(np.median(self.lengths.max(axis=0)) >= _PHRASE)

    @property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest gold score."""
        return gold_scale(self.gold)

    @property
    def on_scale(self) -> list[Vector]:
        """Predicted cosines, mapped to the scale of the gold scores."""
        return [on_gold_scale(predicted, *self.scale) for predicted in self.predicted]

    @property
    def errors(self) -> list[Vector]:
        """Absolute errors [n] of each candidate, on the scale of the gold scores."""
        return [np.abs(self.gold - predicted) for predicted in self.on_scale]

    def table(
        self, head: Iterable[str], rows: Iterable[tuple[Cell, ...]], decimals: int = 2, title: str = ""
    ) -> AnalysisTable:
        """Return the table of these pairs; the default title is the name of the pool."""
        suffix = f"-{self.name.replace('/', '-')}"
        return AnalysisTable(suffix, title or self.name, tuple(head), tuple(rows), decimals)


@lru_cache(maxsize=1)  # several analyses ask for the same
def pools(inputs: AnalysisInputs) -> list[Pool]:
    """Return the pools: one per suite for the sets of its named groups, such as the years of STS, and one for every
    other set.

    Groups that the papers' means exclude are left out. Tokens are those of the first candidate whose tokens are words.
    Raise CannotMakeError if no graded pairs were scored.
    """
    tokenizer = tokenizer_of(inputs.candidates)
    pooled = []
    for suite in inputs.suites:
        together: list[tuple[str, ScoredPairs]] = []
        for group in suite.groups:
            graded = [
                (score_name(suite, group, pairs), pairs) for pairs in group.sets if isinstance(pairs, ScoredPairs)
            ]
            if group.name and group.has_mean:
                together += graded
            elif not group.name:
                pooled += [_pool(inputs, name, [(name, pairs)], tokenizer) for name, pairs in graded]
        if together:
            pooled.append(_pool(inputs, suite.name, together, tokenizer))
    if not pooled:
        raise CannotMakeError("no scored pairs were evaluated; add `suite` sts, or `pairs` FILE")
    return pooled


def text_pools(inputs: AnalysisInputs) -> list[Pool]:
    """Return the pools of phrases and sentences; raise CannotMakeError if there are none."""
    of_texts = [pool for pool in pools(inputs) if pool.are_texts]
    if not of_texts:
        raise CannotMakeError(
            "the scored pairs are only words or bigrams; add `suite` sts, or `pairs` FILE with sentences"
        )
    return of_texts


def gold_scale(gold: Vector) -> tuple[float, float]:
    """Return the lowest and highest whole number of a scale, estimated from the scores [n]."""
    return float(np.floor(gold.min())), float(np.ceil(gold.max()))


def on_gold_scale(cosines: Vector, low: float, high: float) -> Vector:
    """Map cosines [n] to the scale of the gold scores: 0 and below become ``low``, 1 becomes ``high``."""
    return low + (high - low) * np.clip(cosines, 0, 1)


def _pool(inputs: AnalysisInputs, name: str, members: list[tuple[str, ScoredPairs]], tokenizer: str) -> Pool:
    first = pa.concat_arrays([pairs.first for _, pairs in members])
    second = pa.concat_arrays([pairs.second for _, pairs in members])
    known = inputs.report.predictions
    return Pool(
        name,
        tuple(name for name, pairs in members for _ in range(len(pairs))),
        np.concatenate([np.arange(1, len(pairs) + 1) for _, pairs in members]),
        first,
        second,
        np.concatenate([pairs.scores for _, pairs in members]),
        tuple(
            np.concatenate([known.get((label, name), np.full(len(pairs), np.nan)) for name, pairs in members])
            for label in inputs.labels
        ),
        (tokenize(first, tokenizer), tokenize(second, tokenizer)),
    )
