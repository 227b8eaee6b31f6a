"""What an analysis is made from, such as pooled scored pairs, and what it gives: tables of numbers and a picture."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.encoders import Encoder
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.measures import Vector
from paraembed.evaluation.report import Report
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import AnalysisOptions
from paraembed.text.tokenize import Tokens, tokenize

Cell = str | int | float | None
"""None: not defined, for example because of too few pairs."""


def cell(value: float) -> Cell:
    """A number for a table; None for NaN."""
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True, eq=False)
class Inputs:
    """An evaluation and what a user adds to it; one object is one evaluation, by which what is costly is remembered.

    Attributes:
        report: the scores, a column a candidate.
        candidates: in the order of the columns.
        suites: what they were scored on.
        options: what a user adds.
    """

    report: Report
    candidates: tuple[Candidate, ...]
    suites: tuple[Suite, ...]
    options: AnalysisOptions

    @property
    def labels(self) -> tuple[str, ...]:
        """Heads of the columns."""
        return tuple(column.label for column in self.report.columns)

    def encoders(self) -> list[tuple[str, Encoder]]:
        """The candidates that have a word matrix, with their labels.

        Raises:
            CannotMakeError: there are none.
        """
        encoders = [
            (candidate.label, candidate.encoder)
            for candidate in self.candidates
            if isinstance(candidate.encoder, Encoder)
        ]
        if not encoders:
            raise CannotMakeError("no candidate has word vectors of its own; it needs an encoder folder or `words`")
        return encoders


class CannotMakeError(Exception):
    """An analysis needs something that is not there; the message says what, and how to give it."""


@dataclass(frozen=True)
class Heading:
    """What an analysis is called.

    Attributes:
        name: of its files, without the ending.
        title: for people.
        source: paper and table or figure that it repeats.
    """

    name: str
    title: str
    source: str


@dataclass(frozen=True)
class Table:
    """Numbers of an analysis.

    Attributes:
        name: of its file, without the ending.
        title: for people.
        head: heads of the columns.
        rows: cells; numbers in full precision.
        decimals: of the fractional numbers, for people.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    decimals: int = 1


@dataclass(frozen=True)
class Content:
    """What an analysis gives.

    Attributes:
        text: what the numbers are, a few sentences.
        tables: the numbers.
        picture: a PNG; empty where a table says it better.
        tables_matter: whether a reader wants the tables as much as the picture.
    """

    text: str
    tables: tuple[Table, ...]
    picture: bytes = b""
    tables_matter: bool = False


@dataclass(frozen=True)
class Analysis:
    """An analysis that was made, or the reason why it was not.

    Attributes:
        heading: what it is.
        content: what it gives; None where it was not made.
        reason: why it was not made; empty where it was.
        files: what was written: ``<name>.png``, ``<table>.csv``.
    """

    heading: Heading
    content: Content | None
    reason: str = ""
    files: tuple[Path, ...] = ()


_PHRASE = 3  # tokens

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """n scored pairs.

    Attributes:
        name: ``sts``: the sets of all years; ``sick/test``: one set.
        sets: name of the set of each pair [n].
        rows: number of each pair in its set, from 1, int64 [n].
        first: string array [n].
        second: string array [n].
        gold: float64 [n].
        predicted: cosines, float64 [n] a candidate; NaN where it scores no such pairs.
        tokens: of the texts of ``first``, then of ``second``.
    """

    name: str
    sets: tuple[str, ...]
    rows: Ints
    first: pa.StringArray
    second: pa.StringArray
    gold: Vector
    predicted: tuple[Vector, ...]
    tokens: tuple[Tokens, Tokens]

    @property
    def lengths(self) -> Ints:
        """Tokens of both texts, [2, n]."""
        return np.stack([np.diff(tokens.offsets) for tokens in self.tokens])

    @property
    def are_texts(self) -> bool:
        """Whether most pairs have a text of three or more tokens; lengths of words and bigrams do not differ."""
        return bool(np.median(self.lengths.max(axis=0)) >= _PHRASE)

    @property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest gold score."""
        return gold_scale(self.gold)

    @property
    def on_scale(self) -> list[Vector]:
        """The predicted cosines on the scale of the gold scores."""
        return [on_gold_scale(predicted, *self.scale) for predicted in self.predicted]

    @property
    def errors(self) -> list[Vector]:
        """Absolute errors [n] a candidate, on the scale of the gold scores."""
        return [np.abs(self.gold - predicted) for predicted in self.on_scale]

    def table(
        self,
        heading: Heading,
        head: Iterable[str],
        rows: Iterable[tuple[Cell, ...]],
        decimals: int = 2,
        title: str = "",
    ) -> Table:
        """Return the table of an analysis on these pairs, called as the pool where it has no title."""
        name = f"{heading.name}-{self.name.replace('/', '-')}"
        return Table(name, title or self.name, tuple(head), tuple(rows), decimals)


@lru_cache(maxsize=1)  # several analyses ask for the same
def pools(inputs: Inputs) -> list[Pool]:
    """Sets of named groups, as the years of STS, in one pool a suite; every other set in one of its own.

    Groups that the papers' means leave out are left out. Tokens are those of the first candidate with a tokenizer.

    Raises:
        CannotMakeError: nothing was scored on graded pairs.
    """
    encoders = [candidate.encoder for candidate in inputs.candidates]
    tokenizer = next((encoder.tokenizer for encoder in encoders if isinstance(encoder, Encoder)), "ptb-v1")
    pooled = []
    for suite in inputs.suites:
        together: list[tuple[str, ScoredPairs]] = []
        for group in suite.groups:
            graded = [(_set_name(suite, group, pairs), pairs) for pairs in group.sets if isinstance(pairs, ScoredPairs)]
            if group.name and group.has_mean:
                together += graded
            elif not group.name:
                pooled += [_pool(inputs, name, [(name, pairs)], tokenizer) for name, pairs in graded]
        if together:
            pooled.append(_pool(inputs, suite.name, together, tokenizer))
    if not pooled:
        raise CannotMakeError("no set of scored pairs was asked for; add `suite` sts, or `pairs` FILE")
    return pooled


def text_pools(inputs: Inputs) -> list[Pool]:
    """The pools of phrases and sentences; raises CannotMakeError where there are none."""
    of_texts = [pool for pool in pools(inputs) if pool.are_texts]
    if not of_texts:
        raise CannotMakeError("the scored pairs are words or bigrams; add `suite` sts, or `pairs` FILE with sentences")
    return of_texts


def gold_scale(gold: Vector) -> tuple[float, float]:
    """Lowest and highest score of a scale, from the scores [n] that were given on it: whole numbers."""
    return float(np.floor(gold.min())), float(np.ceil(gold.max()))


def on_gold_scale(cosines: Vector, low: float, high: float) -> Vector:
    """Cosines [n] mapped onto the scale of the gold scores: 0 and below become ``low``, 1 becomes ``high``."""
    return low + (high - low) * np.clip(cosines, 0, 1)


def _set_name(suite: Suite, group: Group, pairs: ScoredPairs) -> str:
    """Name of a set's score: ``sts/2012/MSRpar``, ``sick/test``."""
    return "/".join(filter(None, (suite.name, group.name, pairs.name)))


def _pool(inputs: Inputs, name: str, members: list[tuple[str, ScoredPairs]], tokenizer: str) -> Pool:
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
