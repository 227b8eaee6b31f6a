"""Parts of pair files: the input of one parsing task, and its result."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paraembed.io.inflate import Span
from paraembed.pairs.formats import Source
from paraembed.pairs.reports import SourceReport, join_reports, sum_counts


@dataclass(frozen=True)
class Part:
    """Source, or a span of one.

    Attributes:
        source: pair file, or two aligned ones.
        name: name of the source, for messages and the column ``source``.
        span: span of its bytes; None for the whole source.
        parsed: file for its pairs (``parse.parse_source``); the other files of the part are named after it.
    """

    source: Source
    name: str
    span: Span | None
    parsed: Path

    def __str__(self) -> str:
        return self.name if self.span is None else f"{self.name}, bytes {self.span[0]:,} to {self.span[1]:,}"

    @property
    def report(self) -> Path:
        """Report of the part, written after its pairs."""
        return self.parsed.with_suffix(".json")

    @property
    def partitions(self) -> Path:
        """Pairs of the part by partition (``deduplicate.partition_writer``)."""
        return self.parsed.with_suffix(".arrow")

    @property
    def columns(self) -> Path:
        """Columns of the part's pairs that a selection reads."""
        return self.parsed.with_suffix(".columns")

    @property
    def mask(self) -> Path:
        """Mask of the part's pairs that are in an output."""
        return self.parsed.with_name(self.parsed.stem.replace("parsed", "stays") + ".npy")


@dataclass(frozen=True)
class ParsedPart:
    """Parsed part.

    Attributes:
        part: the part.
        report: counts of its rows.
        first_rank: rank of its first row: number of lines of its source before it.
        stays: bool [report.parsed], False for duplicates.
    """

    part: Part
    report: SourceReport
    first_rank: int
    stays: npt.NDArray[np.bool_] = field(repr=False)

    @property
    def duplicates(self) -> int:
        """Number of its pairs that repeat another."""
        return len(self.stays) - int(self.stays.sum())


def parsed_parts(parts: Sequence[Part], reports: Sequence[SourceReport]) -> list[ParsedPart]:
    """Return parsed parts in order, with their first ranks; no pair is marked as duplicate yet."""
    files: list[ParsedPart] = []
    for part, report in zip(parts, reports, strict=True):
        before = files[-1] if files and files[-1].part.name == part.name else None
        rank = before.first_rank + before.report.lines if before else 0
        files.append(ParsedPart(part, report, rank, np.ones(report.parsed, bool)))
    return files


def check_pairs(files: Sequence[ParsedPart]) -> None:
    """Raise ValueError if no row of the parsed parts is a pair; the message counts the rejected rows by reason."""
    if not any(file.report.parsed for file in files):
        reasons = sum_counts([file.report.refused for file in files])
        num_read = sum(file.report.read for file in files)
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        raise ValueError(f"no pair is left of {num_read:,} rows: {why}")


def save_masks(files: Sequence[ParsedPart], masks: Sequence[npt.NDArray[np.bool_]]) -> None:
    """Write masks to files, which the workers map into memory."""
    for file, mask in zip(files, masks, strict=True):
        np.save(file.part.mask, mask)


def about_sources(files: Sequence[ParsedPart]) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries of the sources, by name: counts, and the version of PPDB."""
    reports = reports_of(files)
    duplicates = Counter[str]()
    for file in files:
        duplicates[file.part.name] += file.duplicates
    return {
        name: {
            **({} if report.version is None else {"ppdb_version": report.version}),
            "read": report.read,
            "pairs": report.parsed,
            "duplicates": duplicates[name],
            "refused": report.refused,
        }
        for name, report in reports.items()
    }


def reports_of(files: Sequence[ParsedPart]) -> dict[str, SourceReport]:
    """Return the reports of whole sources, by name."""
    spans: dict[str, list[SourceReport]] = {}
    for file in files:
        spans.setdefault(file.part.name, []).append(file.report)
    return {name: join_reports(reports) for name, reports in spans.items()}
