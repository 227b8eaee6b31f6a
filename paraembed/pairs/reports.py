"""Report of the rows of an input: counts by reason, with examples."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from paraembed.io.atomic import write_file
from paraembed.io.fingerprint import read_json
from paraembed.options import Count, checked

SAMPLED = 100
"""Maximum number of rejected rows to keep as examples, for each reason and input."""


class _Rejected(TypedDict):
    line: Count
    reason: str


@dataclass(frozen=True)
class SourceReport:
    """Report of one input file, or of a span of one.

    Attributes:
        read: rows, without a header.
        parsed: pairs, before duplicates are removed.
        refused: number of rejected rows by reason.
        sample: up to 100 rejected rows for each reason: file, line from 1, reason, text.
        groups: rows of each row group of the parsed file or files.
        lines: lines of the rows; the ranks of the next span begin there.
        version: version of PPDB, ``1.0``, ``2.0`` (which adds the entailment) or ``mixed``; None for other formats.
    """

    read: Count
    parsed: Count
    refused: dict[str, Count]
    sample: list[dict[str, Any]] = field(default_factory=list)
    groups: list[Count] = field(default_factory=list)
    lines: Count = 0
    version: str | None = None


def save_report(report: SourceReport, path: Path) -> None:
    """Write a report as JSON."""
    write_file(path, lambda file: file.write(json.dumps(asdict(report), ensure_ascii=False).encode()))


def load_report(path: Path) -> SourceReport:
    """Read what ``save_report`` wrote.

    Raises:
        ValueError: the file is not a report.
    """
    report: SourceReport = read_json(path, SourceReport)
    checked(list[_Rejected], report.sample, f"{path}: sample")
    if sum(report.groups) != report.parsed:
        raise ValueError(f"{path}: its groups have {sum(report.groups)} rows, parsed is {report.parsed}")
    return report


def sum_counts(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return the sum of counts by reason, sorted by reason."""
    totals = Counter[str]()
    for by_reason in counts:
        totals.update(by_reason)
    return dict(sorted(totals.items()))


def join_reports(spans: Sequence[SourceReport]) -> SourceReport:
    """Return the report of a file from the reports of its spans, in order."""
    sample, shown, before = [], dict[str, int](), 0
    for span in spans:
        for row in span.sample:
            shown[row["reason"]] = shown.get(row["reason"], 0) + 1
            if shown[row["reason"]] <= SAMPLED:
                sample.append({**row, "line": row["line"] + before})
        before += span.lines
    versions = sorted({span.version for span in spans if span.version})
    return SourceReport(
        read=sum(span.read for span in spans),
        parsed=sum(span.parsed for span in spans),
        refused=sum_counts([span.refused for span in spans]),
        sample=sample,
        groups=[rows for span in spans for rows in span.groups],
        lines=before,
        version="mixed" if len(versions) > 1 else next(iter(versions), None),
    )
