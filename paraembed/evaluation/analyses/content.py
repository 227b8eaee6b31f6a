"""What an analysis is made from and what it gives: tables of numbers, and mostly a picture of them."""

import math
from dataclasses import dataclass
from pathlib import Path

from paraembed.encoders import Encoder
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import Report
from paraembed.evaluation.sets import Suite
from paraembed.settings import AnalysisOptions

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
