"""The papers' analyses of encoders, as tables and plots. Each analysis has its own file, and computes apart from
drawing.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paraembed.console import doing
from paraembed.evaluation.analyses import margin, pairs, runs, sets, words
from paraembed.evaluation.analyses.content import Analysis, AnalysisInputs, CannotMakeError, Content
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import Report, write_files
from paraembed.evaluation.sets import Suite
from paraembed.io.escape import csv_text, file_stem
from paraembed.late import Late
from paraembed.pairs.shards import read_pair_manifest
from paraembed.settings import AnalysisOptions

if TYPE_CHECKING:
    from paraembed.evaluation.analyses import gates
else:
    gates = Late("paraembed.evaluation.analyses.gates")

SCORES, PAGE = "scores.json", "report.html"

ANALYSES: tuple[tuple[str, str, str, Callable[[AnalysisInputs], Content]], ...] = (
    ("score-by-length", "Score by length", "Wieting 2016, table 7", pairs.score_by_length),
    ("error-by-gold-score", "Error by gold score", "Wieting 2015, table 7", pairs.error_by_gold),
    ("error-by-length-and-overlap", "Error by length and overlap ratio", "Wieting 2015, table 9", pairs.error_by_ratio),
    ("across-sets", "Encoders across the sets", "Wieting 2016, §4.3; Wieting 2017, §4.2", sets.across_sets),
    ("raters", "Agreement of the raters", "Wieting 2015, tables 1 and 2", sets.raters),
    ("unknown-words", "Score and rare or OOV words", "Wieting 2016, §5.1", sets.unknown_words),
    ("disagreement", "Where two encoders disagree", "Wieting 2017, table 7", pairs.disagreement),
    ("nearest-neighbours", "Nearest neighbors of words", "Wieting 2016, table 8", words.neighbors),
    ("word-norms", "Longest and shortest word vectors", "Wieting 2016, §6", words.norms),
    ("gates", "Gates of a GRAN", "Wieting 2017, tables 9 to 11", lambda inputs: gates.gates(inputs)),  # noqa: PLW0108 - late
    ("margin", "Margin between paraphrases and negatives", "Wieting 2016, §5", margin.margin),
    ("score-by-data", "Score by amount of training data", "Wieting 2016, figure 1", runs.score_by_data),
    ("choice-by-data", "Choosing the paraphrase, by data share and k", "Zhou 2017, figure 2", runs.choice_by_data),
)
"""Name, title and source of each analysis, and the function that makes it."""


def analyse(
    report: Report, candidates: Sequence[Candidate], suites: Sequence[Suite], options: AnalysisOptions, out: Path
) -> tuple[Analysis, ...]:
    """Run every analysis that the inputs allow, and write ``<analysis>.png`` and ``<table>.csv`` to the folder ``out``,
    which exists.

    Return one result for each of ``ANALYSES``; an analysis that cannot be made holds the reason. Raise OSError or
    ValueError if a file of the options cannot be read.
    """
    inputs = AnalysisInputs(report, tuple(candidates), tuple(suites), options)
    analyses = []
    for number, (name, title, source, make) in enumerate(ANALYSES, start=1):
        doing(f"analysis {number} of {len(ANALYSES)}: {title}")
        try:
            content = make(inputs)
        except CannotMakeError as error:
            analyses.append(Analysis(name, title, source, None, str(error)))
        else:
            analyses.append(Analysis(name, title, source, content, files=_write(name, content, out)))
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
    plots = "|".join(re.escape(name) for name, *_ in ANALYSES)
    earlier = re.compile(rf"{re.escape(PAGE)}|({plots})(\.png|(-[^/]*)?\.csv)")
    return [name for name in names if earlier.fullmatch(name)]


def _write(name: str, content: Content, out: Path) -> tuple[Path, ...]:
    files = {
        f"{file_stem(name + table.suffix)}.csv": csv_text([table.head, *table.rows]).encode()
        for table in content.tables
    }
    if content.picture:
        files[f"{name}.png"] = content.picture
    return write_files(out, files)
