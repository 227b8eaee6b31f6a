"""The papers' analyses of encoders, as tables and plots. Each analysis has its own file, and computes apart from
drawing.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from paraembed.evaluation.analyses import gates, margin, pairs, runs, words
from paraembed.evaluation.analyses.content import Analysis, AnalysisInputs, CannotMakeError, Content, Heading
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import Report
from paraembed.evaluation.sets import Suite
from paraembed.io.atomic import write_file
from paraembed.io.escape import csv_text, file_stem
from paraembed.pairs.shards import read_pair_manifest
from paraembed.settings import AnalysisOptions

SCORES, PAGE = "scores.json", "report.html"

ANALYSES: tuple[tuple[Heading, Callable[[AnalysisInputs], Content]], ...] = (
    (pairs.BY_TOKENS, pairs.score_by_length),
    (pairs.BY_GOLD, pairs.error_by_gold),
    (pairs.BY_RATIO, pairs.error_by_ratio),
    (pairs.UNKNOWN, pairs.unknown_words),
    (pairs.DISAGREEMENT, pairs.disagreement),
    (words.NEIGHBORS, words.neighbors),
    (words.NORMS, words.norms),
    (gates.HEADING, gates.gates),
    (margin.HEADING, margin.margin),
    (runs.SCORE, runs.score_by_data),
    (runs.CHOICE, runs.choice_by_data),
)


def analyse(
    report: Report,
    candidates: Sequence[Candidate],
    suites: Sequence[Suite],
    options: AnalysisOptions,
    out: Path,
    progress: Callable[[str], object] = lambda _: None,
) -> tuple[Analysis, ...]:
    """Run every analysis that the inputs allow, and write ``<analysis>.png`` and ``<table>.csv`` to the folder ``out``.

    Return one result for each of ``ANALYSES``; an analysis that cannot be made holds the reason. Raise OSError or
    ValueError if a file of the options cannot be read, or ``out`` is a file.
    """
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file, but plots and tables need a folder; choose another `out`")
    out.mkdir(parents=True, exist_ok=True)
    inputs = AnalysisInputs(report, tuple(candidates), tuple(suites), options)
    analyses = []
    for number, (heading, make) in enumerate(ANALYSES, start=1):
        progress(f"analysis {number} of {len(ANALYSES)}: {heading.title}")
        try:
            content = make(inputs)
        except CannotMakeError as error:
            analyses.append(Analysis(heading, None, str(error)))
        else:
            analyses.append(Analysis(heading, content, files=_write(heading.name, content, out)))
    return tuple(analyses)


def check_options(options: AnalysisOptions, labels: Sequence[str]) -> None:
    """Raise the errors of ``analyse`` for invalid options, before anything is scored."""
    if options.against is not None:
        pairs.check_against(options.against, labels)
    if options.margin_pairs is not None:
        read_pair_manifest(options.margin_pairs, for_training=False)
    if options.tagged is not None:
        gates.read_tagged(options.tagged)
    runs.check_runs(options.runs)


def remove_earlier(out: Path) -> None:
    """Remove the plots, tables and page of an earlier evaluation from its folder; other files are kept."""
    if out.is_dir():
        for name in earlier_files([path.name for path in out.iterdir() if path.is_file()]):
            (out / name).unlink()


def earlier_files(names: Sequence[str]) -> list[str]:
    """Return the plots, tables and page of an earlier evaluation among the files of a folder."""
    if SCORES not in names:
        return []
    plots = "|".join(re.escape(heading.name) for heading, _ in ANALYSES)
    earlier = re.compile(rf"{re.escape(PAGE)}|({plots})(\.png|(-[^/]*)?\.csv)")
    return [name for name in names if earlier.fullmatch(name)]


def _write(name: str, content: Content, out: Path) -> tuple[Path, ...]:
    files = {f"{file_stem(table.name)}.csv": csv_text([table.head, *table.rows]).encode() for table in content.tables}
    if content.picture:
        files[f"{name}.png"] = content.picture
    for file_name, data in files.items():
        write_file(out / file_name, lambda file, data=data: file.write(data))  # type: ignore[misc]
    return tuple(out / file_name for file_name in files)
