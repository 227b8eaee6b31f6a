"""Evaluation: read candidates and suites by name, score them, run analyses, and write the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paraembed.console import doing
from paraembed.evaluation.analyses import analyse, check_options, remove_earlier
from paraembed.evaluation.analyses.content import Analysis
from paraembed.evaluation.baselines import Sources, baseline, overlap_candidates
from paraembed.evaluation.candidates import Candidate, named, tokenizer_of, unique_labels, untrained
from paraembed.evaluation.choose import check_held_out, read_choose
from paraembed.evaluation.html import write_html
from paraembed.evaluation.ppdb import ppdb_candidates
from paraembed.evaluation.report import Report, compare
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import read_pairs_files, read_suites
from paraembed.evaluation.tables import Column
from paraembed.io.resume import is_scores
from paraembed.loading import Fetch
from paraembed.settings import (
    DEFAULT_INFERENCE,
    HEURISTICS,
    MADE_OF,
    MAX_BAD_WORDS,
    AnalysisOptions,
    Inference,
    is_peer,
)
from paraembed.text.vocabulary import LOW_COVERAGE, read_words


@dataclass(frozen=True)
class EvaluationRequest:
    """Candidates, suites and options of an evaluation."""

    encoders: tuple[str, ...] = ()  # names of encoders, see ``open_encoder``
    words: Path | None = None  # word-vector file, scored as a plain average; weighted baselines use it, too
    max_words: int | None = None  # number of its rows to use; None: all
    max_bad_words: float = MAX_BAD_WORDS  # maximum fraction of its rows that are skipped
    baselines: tuple[str, ...] = ()  # names of ``MADE_OF`` or ``HEURISTICS``
    counts: Path | None = None
    corpus: Path | None = None  # text file on which common components are fitted
    ppdb: tuple[Path, ...] = ()  # PPDB files with the pairs of the suites, best pairs first, see ``ppdb_candidates``
    rated: Path | None = None  # scored pairs of these files, to train the regression on their features
    trained: Path | None = None  # encoder folder with the weights of ``l1``; None: the first of ``encoders``
    suites: tuple[str, ...] = ()  # names of suites, ``all`` or ``HEURISTICS``
    data: Path | None = None
    pairs: tuple[Path, ...] = ()
    pair_columns: tuple[str, ...] = ()  # of both sentences and of the score, see ``read_scored_pairs``
    held_out: Path | None = None  # pairs for the 1-of-k choice of paraphrases
    choices: int = 100  # number of texts to choose from
    resamples: int = 0  # bootstrap resamples; 0: no intervals
    analyses: bool = True  # whether to run analyses and write report.html
    options: AnalysisOptions = field(default_factory=AnalysisOptions)
    # How the encoders compute; what only models of other libraries have applies to these alone.
    inference: Inference = DEFAULT_INFERENCE


@dataclass(frozen=True)
class EvaluationResult:
    """Report of an evaluation, the written files, and the reasons of analyses that could not be made."""

    report: Report
    files: tuple[Path, ...]
    missing: tuple[str, ...]


def prepare(request: EvaluationRequest, fetch: Fetch) -> tuple[list[Candidate], list[Suite]]:
    """Read the candidates and the suites, and check everything that can be checked before scoring."""
    doing("reading the sets")
    suites: list[Suite] = []
    if request.data:
        names = ["phrases" if name == HEURISTICS else name for name in request.suites]
        suites += read_suites(names, request.data)
    if request.held_out:
        suites.append(read_choose(request.held_out, request.choices))
    if request.pairs:
        suites.append(read_pairs_files(request.pairs, request.pair_columns))
    candidates = find_candidates(request, fetch)
    if request.ppdb:
        candidates += ppdb_candidates(request.ppdb, request.rated, suites)
    check_held_out(request.held_out, candidates)
    check_options(request.options, [candidate.label for candidate in candidates])
    return candidates, suites


def evaluate(
    request: EvaluationRequest,
    candidates: Sequence[Candidate],
    suites: Sequence[Suite],
    out: Path,
    spell: Callable[[str], str] = str,
) -> EvaluationResult:
    """Score the candidates on the suites, and write scores, analyses and the report to the folder ``out``.

    ``spell`` is that of ``write_html``.
    """
    report = compare(candidates, suites, resamples=request.resamples, progress=doing)
    check_target(out)
    remove_earlier(out)
    files = report.write(out)
    analyses: tuple[Analysis, ...] = ()
    if request.analyses:
        analyses = analyse(report, candidates, suites, request.options, out)
        files += tuple(path for analysis in analyses for path in analysis.files)
        files += (write_html(report, analyses, out, spell),)
    missing = tuple(f"{analysis.title}: {spell(analysis.reason)}" for analysis in analyses if analysis.reason)
    return EvaluationResult(report, files, missing)


def check_target(out: Path) -> None:
    """Raise NotADirectoryError or ValueError unless a folder is new, empty, or of an earlier evaluation."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; `out` needs a folder")
    other = next((path.name for path in sorted(out.iterdir()) if path.name[0] != "."), "") if out.exists() else ""
    if other and not is_scores(out):
        raise ValueError(
            f"{out} contains {other}, but no scores.json of jobs/evaluate.py, so nothing is written there; choose "
            "another `out`"
        )


def find_candidates(request: EvaluationRequest, fetch: Fetch) -> list[Candidate]:
    """Return the candidates of an evaluation: encoders, the untrained average of the words, baselines."""
    candidates = []
    for number, name in enumerate(request.encoders, start=1):
        doing(f"reading encoder {number} of {len(request.encoders)}")
        candidates.append(named(name, _inference_for(name, request), fetch))
    tokenizer = tokenizer_of(candidates)
    names = {*request.baselines, *request.suites}
    if request.words:
        doing(f"reading the words of {request.words.name}")
        words = read_words(request.words, request.max_words, request.max_bad_words)
        candidates.append(untrained(words, request.words, tokenizer))
        weighted = [name for name in MADE_OF if name in names]
        folder = request.trained or next((Path(name) for name in request.encoders if Path(name).is_dir()), None)
        sources = Sources(request.words, request.counts, request.corpus, folder, request.max_words, tokenizer)
        candidates += [baseline(name, sources, words) for name in weighted]
    return unique_labels([*candidates, *(overlap_candidates() if names & {HEURISTICS, "all"} else [])])


def _inference_for(name: str, request: EvaluationRequest) -> Inference:
    """Return the settings of an encoder, without those that are for the models of other libraries next to it."""
    settings = request.inference
    if is_peer(name) or not any(map(is_peer, request.encoders)):
        return settings
    return Inference(device=settings.device, precision=settings.precision)


def low_coverage(report: Report) -> list[tuple[Column, float]]:
    """Return the candidates without a vector for most tokens of the sets, with their coverage."""
    low = []
    for column in report.columns:
        sets = [score for score in column.scores if not (score.is_mean or score.is_pooled)]
        tokens, unknown = (sum(getattr(score, name) for score in sets) for name in ("num_tokens", "num_unknown"))
        if tokens - unknown < LOW_COVERAGE * tokens:
            low.append((column, 1 - unknown / tokens))
    return low
