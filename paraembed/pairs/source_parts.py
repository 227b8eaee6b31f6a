"""Inputs of pair shards: their first rows, and the parts that are parsed, each with its result and its report."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.io.atomic import write_file
from paraembed.io.escape import listed
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.io.inflate import Span
from paraembed.io.lines import INVALID_UTF8, TOO_LONG
from paraembed.io.places import Place, name_of, size_of, without_credentials
from paraembed.pairs.blocks import filled
from paraembed.pairs.formats import Reading, Source, read_pairs, sources_of, spans_of
from paraembed.pairs.schema import Rejected, SourceReport
from paraembed.signals import RunFailedError

_BATCH_BYTES = 8 << 20
SAMPLED = 100
"""Maximum number of rejected rows kept as examples, for each reason and input."""

UNREADABLE = (
    *(INVALID_UTF8, TOO_LONG, "empty line", "empty text", "too few fields", "too many fields", "line break in a field"),
    *("no JSON object", "score is no number"),
)
"""Reasons to reject a row that are not those of a filter, a label or a tree."""


def save_report(report: SourceReport, path: Path) -> None:
    """Write a report as JSON."""
    write_file(path, lambda file: file.write(json.dumps(asdict(report), ensure_ascii=False).encode()))


def load_report(path: Path) -> SourceReport:
    """Read a report that ``save_report`` wrote; raise ValueError if the file is not a report."""
    report: SourceReport = read_json(path, SourceReport)
    return report


def sum_counts(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return the sum of counts for each reason, sorted by reason."""
    totals = Counter[str]()
    for by_reason in counts:
        totals.update(by_reason)
    return dict(sorted(totals.items()))


def join_reports(spans: Sequence[SourceReport]) -> SourceReport:
    """Return the report of a file from the reports of its spans, in order."""
    sample, shown, before = list[Rejected](), dict[str, int](), 0
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
        labels=sum_counts([span.labels for span in spans]),
        groups=[rows for span in spans for rows in span.groups],
        lines=before,
        version="mixed" if len(versions) > 1 else next(iter(versions), None),
    )


@dataclass(frozen=True)
class SourcePart:
    """A source of pairs, or a span of one."""

    source: Source  # pair file, or two aligned ones
    name: str  # name of the source, for messages and the column ``source``
    span: Span | None  # span of its bytes; None for the whole source
    parsed: Path  # file for its pairs (``parse.parse_source``); the other files of the part are named after it
    is_labeled: bool = False  # whether the first rows of the source have labels

    def __str__(self) -> str:
        return self.name if self.span is None else f"{self.name}, bytes {self.span[0]:,} to {self.span[1]:,}"

    @property
    def report(self) -> Path:
        """File of the part's report, written after its pairs."""
        return self.parsed.with_suffix(".json")

    @property
    def columns(self) -> Path:
        """File of the columns of the part's pairs that a selection reads."""
        return self.parsed.with_suffix(".columns")

    @property
    def mask(self) -> Path:
        """File of the mask that marks which of the part's pairs are in an output."""
        return self.parsed.with_name(self.parsed.stem.replace("parsed", "stays") + ".npy")


@dataclass(frozen=True)
class ParsedPart:
    """A parsed part with its counts."""

    part: SourcePart
    report: SourceReport
    first_rank: int  # rank of its first row: the number of lines before it in its source
    stays: npt.NDArray[np.bool_] = field(repr=False)  # bool [report.parsed], False for duplicates

    @property
    def duplicates(self) -> int:
        """Number of pairs in the part that repeat an earlier pair."""
        return len(self.stays) - int(self.stays.sum())


def parsed_parts(parts: Sequence[SourcePart], reports: Sequence[SourceReport]) -> list[ParsedPart]:
    """Return parsed parts in order, with their first ranks; no pair is marked as duplicate yet."""
    files: list[ParsedPart] = []
    for part, report in zip(parts, reports, strict=True):
        before = files[-1] if files and files[-1].part.name == part.name else None
        rank = before.first_rank + before.report.lines if before else 0
        files.append(ParsedPart(part, report, rank, np.ones(report.parsed, bool)))
    return files


def check_pairs(files: Sequence[ParsedPart], max_rejected_share: float) -> None:
    """Raise RunFailedError if no row of the parsed parts is a pair, or more than a share of them cannot be read; the
    message counts the rejected rows by reason. Rows that labels or filters reject can be read.
    """
    reasons, num_read = sum_counts([file.report.refused for file in files]), sum(file.report.read for file in files)
    if not any(file.report.parsed for file in files):
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        raise RunFailedError(f"all {num_read:,} rows were rejected: {why}")
    unreadable = Counter({reason: reasons.get(reason, 0) for reason in UNREADABLE})
    if unreadable.total() > max_rejected_share * num_read:
        ((reason, count),) = unreadable.most_common(1)
        remedy = "give its `encoding`, for example cp1252," if reason == INVALID_UTF8 else "correct the input,"
        raise RunFailedError(
            f"{unreadable.total():,} of {num_read:,} rows cannot be read, but `max_rejected_share` is "
            f"{max_rejected_share:g}; most often ({count:,}): {reason}; {remedy} or give a larger "
            "`max_rejected_share`"
        )


def save_masks(files: Sequence[ParsedPart], masks: Sequence[npt.NDArray[np.bool_]]) -> None:
    """Save masks to files, which the workers map into memory."""
    for file, mask in zip(files, masks, strict=True):
        np.save(file.part.mask, mask)


def about_sources(files: Sequence[ParsedPart]) -> dict[str, dict[str, Any]]:
    """Return the manifest entries of the sources, by name: counts, and the version of PPDB."""
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
            **({"labels": report.labels} if report.labels else {}),
        }
        for name, report in reports.items()
    }


def reports_of(files: Sequence[ParsedPart]) -> dict[str, SourceReport]:
    """Return the reports of whole sources, by name."""
    spans: dict[str, list[SourceReport]] = {}
    for file in files:
        spans.setdefault(file.part.name, []).append(file.report)
    return {name: join_reports(reports) for name, reports in spans.items()}


_SHOWN_PAIRS, _SHOWN_CHARACTERS = 3, 60


@dataclass(frozen=True)
class InputSource:
    """A source of pairs and its first rows."""

    source: Source  # pair file, or two aligned ones
    name: str  # name for messages and for the column ``source``
    form: str
    columns: tuple[tuple[str, str], ...]  # (role, name of the column), in order
    pairs: list[tuple[str, str]]  # the first pairs, at most three
    is_labeled: bool  # whether the first rows have labels


def read_heads(inputs: Sequence[Place], reading: Reading) -> list[InputSource]:
    """Read the first rows of every source, so that an unusable source fails immediately.

    Raise OSError or ValueError if an input is missing, a folder, given twice, unusable, or without rows.
    """
    names, sources = input_names(inputs), sources_of(inputs, reading.form)
    names_of_sources = names[:: len(inputs) // len(sources)]
    return [_read_head(source, name, reading) for source, name in zip(sources, names_of_sources, strict=True)]


def input_names(inputs: Sequence[Place]) -> list[str]:
    """Return the file names of inputs; if two have the same name, each name is prefixed with the input's number."""
    counts = Counter(os.path.realpath(place) if isinstance(place, Path) else place for place in inputs)
    repeated = [without_credentials(str(place)) for place, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(f"an input is given twice: {listed(repeated)}; name each input once")
    names = [name_of(place) for place in inputs]
    return names if len(set(names)) == len(names) else [f"{number}/{name}" for number, name in enumerate(names)]


def _read_head(source: Source, name: str, reading: Reading) -> InputSource:
    for block in read_pairs(source, reading):
        pairs = block.pairs
        rows = np.flatnonzero(pairs.refused.is_null())[:_SHOWN_PAIRS]
        texts = [column.take(pa.array(rows)).to_pylist() for column in (pairs.first, pairs.second)]
        columns, is_labeled = tuple(block.columns.items()), filled(pairs.relation).null_count < len(block)
        return InputSource(source, name, block.form, columns, list(zip(*texts, strict=True)), is_labeled)
    raise ValueError(f"{name} has no rows; leave it out, or write it again")


def describe(sources: Sequence[InputSource], *, with_pairs: bool) -> list[str]:
    """Return lines that show the columns and the first pairs, once for each format and choice of columns."""
    groups: dict[tuple[Any, ...], list[InputSource]] = {}
    for source in sources:
        groups.setdefault((source.form, source.columns), []).append(source)
    lines = []
    for (form, named), (first, *others) in groups.items():
        more = f" and {len(others):,} more" if others else ""
        columns = f": {listed([f'{role} is {column}' for role, column in named])}" if named else ""
        lines.append(f"{first.name[:_SHOWN_CHARACTERS]}{more}, {form}{columns}")
        for pair in first.pairs if with_pairs else ():
            texts = (json.dumps(text[:_SHOWN_CHARACTERS], ensure_ascii=False) for text in pair)
            lines.append(f"  {' | '.join(texts)}")
    return lines


def cut_parts(sources: Sequence[InputSource], folder: Path, span_bytes: int) -> list[SourcePart]:
    """Split sources into the parts that one task parses each; the result files of the parts go to ``folder``."""
    spans = [
        (source, span) for source in sources for span in spans_of(source.source, source.form, span_bytes=span_bytes)
    ]
    return [
        SourcePart(source.source, source.name, span, folder / f"parsed-{number:05d}.parquet", source.is_labeled)
        for number, (source, span) in enumerate(spans)
    ]


def batch_parts(parts: Sequence[SourcePart], sizes: Mapping[str, int], workers: int) -> list[tuple[list[int], int]]:
    """Return, for each task, the numbers of the parts that it parses, in order, and its number of threads.

    Small parts share a task, up to 8 MB or a quarter of a worker's share. The threads are the task's share of the
    workers by its bytes, rounded up: one too many costs less than a worker that is idle while a large compressed file
    is parsed. ``sizes`` are the bytes of the sources by name.
    """
    num_bytes = [sizes[part.name] if part.span is None else part.span[1] - part.span[0] for part in parts]
    total = sum(num_bytes)
    most, batches, filled = min(_BATCH_BYTES, total // (4 * workers)), list[list[int]](), 0
    for number, size in enumerate(num_bytes):
        if not batches or filled + size > most:
            batches.append([])
            filled = 0
        batches[-1].append(number)
        filled += size
    return [(batch, -(-workers * sum(num_bytes[number] for number in batch) // total)) for batch in batches]


def digests_of(inputs: Sequence[Place]) -> list[dict[str, Any]]:
    """Return name, size and SHA-256 of each input."""
    return [
        {"name": name, "bytes": size_of(place), "sha256": sha256_of(place)}
        for name, place in zip(input_names(inputs), inputs, strict=True)
    ]
