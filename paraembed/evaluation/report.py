"""Scores of one or several encoders side by side: terminal table, Markdown, JSON, metrics.

Tables show correlations ×100, as the papers do, and unknown tokens in %; JSON and metrics hold both as fractions.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.suites import Score, Suite, missing_from_papers, score_suite
from paraembed.files import write_file, write_json


@dataclass(frozen=True)
class Column:
    """The scores of one encoder.

    Attributes:
        label: head of the column.
        description: what the encoder is, one line.
        scores: the same names in the same order for every column of a report.
    """

    label: str
    description: str
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Report:
    """Columns side by side, and notes on what they may be compared with."""

    columns: tuple[Column, ...]
    notes: tuple[str, ...]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows: set, pairs, then three cells an encoder."""
        head = ["set", "pairs"]
        for column in self.columns:
            whose = f"{column.label}: " if len(self.columns) > 1 else ""
            head += [f"{whose}Pearson", "Spearman", "unknown %"]
        rows = []
        for line in zip(*(column.scores for column in self.columns), strict=True):
            row = [line[0].label, f"{line[0].num_pairs:,}"]
            for score in line:
                row += [f"{100 * value:.1f}" for value in (score.pearson, score.spearman, score.unknown_share)]
            rows.append(row)
        return head, rows

    def markdown(self) -> str:
        """The table as a Markdown document, means in bold."""
        head, rows = self.table()
        lines = ["# Scores", "", "Correlation of the cosine with the gold score, ×100.", ""]
        lines += [f"* {column.label}: {column.description}" for column in self.columns]
        lines += ["", _markdown_row(head), "|---|" + "---:|" * (len(head) - 1)]
        for score, row in zip(self.columns[0].scores, rows, strict=True):
            lines.append(_markdown_row([f"**{cell}**" for cell in row] if score.is_mean else row))
        if self.notes:
            lines += ["", *(f"* {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def json(self) -> dict[str, Any]:
        """Every score in full precision, by encoder and name."""
        measures = ("pearson", "spearman", "num_pairs", "num_tokens", "num_unknown")
        encoders = [
            {
                "label": column.label,
                "description": column.description,
                "scores": {
                    score.name: {measure: getattr(score, measure) for measure in measures} for score in column.scores
                },
            }
            for column in self.columns
        ]
        return {"encoders": encoders, "notes": list(self.notes)}

    def metrics(self) -> dict[str, float]:
        """``sts/2012/MSRpar/pearson`` and ``…/spearman``; means as ``sts/mean`` (Pearson) and ``sts/mean_spearman``.

        Columns after the first have their label in front.
        """
        metrics = {}
        for number, column in enumerate(self.columns):
            for score in column.scores:
                name = f"{column.label}/{score.name}" if number else score.name
                name = re.sub(r"[^/\w.\- :]", "_", name)  # what MLflow takes
                metrics[name if score.is_mean else f"{name}/pearson"] = score.pearson
                metrics[f"{name}_spearman" if score.is_mean else f"{name}/spearman"] = score.spearman
        return metrics

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ``scores.json`` and ``scores.md`` into a folder, which is made if it is not there.

        Raises:
            NotADirectoryError: ``folder`` is a file.
        """
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file; scores.json and scores.md need a folder")
        folder.mkdir(parents=True, exist_ok=True)
        data, text = folder / "scores.json", folder / "scores.md"
        write_json(data, self.json())
        write_file(text, lambda file: file.write(self.markdown().encode()))
        return data, text


def compare(candidates: Sequence[Candidate], suites: Sequence[Suite]) -> Report:
    """Score candidates on suites.

    Raises:
        ValueError: a correlation that is not defined, with the names of candidate and set.
    """
    columns = []
    for candidate in candidates:
        try:
            scores = tuple(score for suite in suites for score in score_suite(candidate.encoder, suite))
        except ValueError as error:
            raise ValueError(f"{candidate.label}, {error}") from None
        columns.append(Column(candidate.label, candidate.description, scores))
    return Report(tuple(columns), tuple(note for suite in suites for note in missing_from_papers(suite)))


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
