"""An evaluation as a job: which encoders, which suites; scores, analyses and the page that shows them; MLflow.

It needs no Ray: the suites take seconds on one core.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from paraembed.commands.job import as_flags, run
from paraembed.commands.paths import absolute, existing, existing_data, existing_encoder, existing_pairs
from paraembed.console import doing, print_table, say, show
from paraembed.evaluation.suites import SUITES, read_pairs_files, read_suites
from paraembed.process import one_thread
from paraembed.settings import MADE_OF, PEERS, RESAMPLES, AnalysisOptions
from paraembed.text.vocabulary import LOW_COVERAGE

if TYPE_CHECKING:
    from paraembed.evaluation.candidates import Candidate
    from paraembed.evaluation.report import Report
    from paraembed.evaluation.sets import Suite

HEURISTICS = "ppdb-heuristics"
"""Word overlap, strict and lemmatised, as two baselines; as a suite: those, on the phrases of PPDB."""
_FILE, _FOLDER = tyro.conf.arg(metavar="FILE"), tyro.conf.arg(metavar="FOLDER")
_RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Evaluation:
    """Score encoders, the untrained average of word vectors and baselines, side by side.

    A score is the correlation of two texts' cosine with the score that people gave them, or the share of right
    answers; in the tables ×100, beside the published values for the same sets.
    """

    encoder: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[FOLDER|RUN|st:MODEL|m2v:MODEL ...]")] = ()
    """Encoder folders, as jobs/train.py writes; MLflow runs of it; models of sentence-transformers or model2vec."""
    words: Annotated[Path | None, _FILE] = None
    """Word-vector file, one 'word v1 … vd' a line, plain or .gz; its plain average is scored."""
    max_words: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Rows of the word-vector file to use; the mean of the others stands for unknown words."""
    baseline: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """To beat, besides the plain average: sif, sif-common, inverse-frequency, l1 (of --words), ppdb-heuristics."""
    counts: Annotated[Path | None, _FILE] = None
    """Word counts, 'word count' a line: for sif, sif-common and inverse-frequency."""
    corpus: Annotated[Path | None, _FILE] = None
    """Texts, one a line: sif-common's common component is fitted on them."""
    trained: Annotated[Path | None, _FOLDER] = None
    """Encoder whose word vectors give the weights of l1; left out, the first of --encoder."""
    suite: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[all|NAME ...]")] = ()
    """sts, sick, pit2015, words, bigrams, phrases, semeval2013, turney, ppdb-heuristics, or all of them."""
    data: Annotated[Path | None, _FOLDER] = None
    """Folder of the suites."""
    pairs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[FILE ...]")] = ()
    """Files of scored pairs, each a set: score, sentence1, sentence2, separated by tabs, plain or .gz."""
    held_out: Annotated[Path | None, tyro.conf.arg(metavar="PAIRS")] = None
    """Pair shards or a pair file: which of --choices texts is the paraphrase of a text?"""
    choices: int = 100
    """Texts to choose from, the right one among them."""
    resamples: int = RESAMPLES
    """Resamples behind the 95 % intervals; 0: no intervals."""
    analyses: bool = True
    """The papers' analyses, and report.html of everything; --no-analyses leaves them out."""
    options: Annotated[AnalysisOptions, tyro.conf.arg(name="")] = field(default_factory=AnalysisOptions)
    """Of the analyses."""
    out: Annotated[Path | None, _FOLDER] = None
    """Folder for tables and pictures; left out, ENCODER-scores beside the encoder, or ./scores."""


@dataclass(frozen=True)
class Outcome:
    """What came of an evaluation: the report, the files that were written, and where, analyses that were not made."""

    report: "Report"
    written: tuple[Path, ...]
    out: Path
    not_made: tuple[str, ...]


def main(flags: Evaluation) -> None:
    """Score, print the tables, say where the rest is."""
    outcome = evaluate(flags)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in outcome.report.tables(brief=True):
        show(table.title)
        print_table(table.head, table.rows, width)
        show(*(f"  {note}" for note in table.notes), "")
    say(*(f"note: {note}" for note in outcome.report.notes))
    say(*(as_flags(f"not made: {one}", Evaluation) for one in outcome.not_made))
    following = (
        f"embed.py --encoder {flags.encoder[0]}" if flags.encoder else f"train.py --words {flags.words or 'FILE'}"
    )
    files = f"{len(outcome.written)} files, such as {outcome.written[-1].name}"
    say(f"wrote {files}, to {outcome.out}; next: python jobs/{following} …")


def evaluate(flags: Evaluation) -> Outcome:
    """Score, analyse, write, log.

    Raises:
        ValueError, OSError: what came, what is allowed, what to do.
    """
    check(flags)
    flags = with_absolute_paths(flags)
    assert flags.out is not None, "with_absolute_paths gives it"
    _check_out(flags.out)
    with one_thread():
        return _evaluate(flags)


def _evaluate(flags: Evaluation) -> Outcome:
    from paraembed.evaluation.analyses import Analysis, analyse, check_options, remove_earlier
    from paraembed.evaluation.choose import check_held_out
    from paraembed.evaluation.html import write_html
    from paraembed.evaluation.report import compare
    from paraembed.tracking.runs import tracked_run

    doing("reading the sets")
    suites = read_all(flags)
    candidates = find_candidates(flags)
    out = flags.out
    assert out is not None
    check_held_out(flags.held_out, candidates)
    check_options(flags.options, [one.label for one in candidates])
    made: tuple[Analysis, ...] = ()
    doing("opening MLflow")
    with tracked_run(f"evaluate {candidates[0].description}", out) as tracked:
        settings = asdict(flags)
        settings |= settings.pop("options")
        tracked.params({name: value for name, value in settings.items() if value})
        report = compare(candidates, suites, resamples=flags.resamples, progress=doing)
        _warn_of_unknown_words(report)
        remove_earlier(out)
        written = report.write(out)
        if flags.analyses:
            made = analyse(report, candidates, suites, flags.options, out, doing)
            written += tuple(path for one in made for path in one.files)
            written += (write_html(report, made, out),)
        doing(f"logging {len(written)} files")
        for path in written:
            tracked.artifacts(path)
        tracked.metrics(report.metrics())
        tracked.tags({f"sets behind {name}": str(count) for name, count in report.num_sets().items()})
    not_made = tuple(f"{one.heading.title}: {one.reason}" for one in made if one.reason)
    doing("")
    return Outcome(report, written, out, not_made)


def check(flags: Evaluation) -> None:
    """Raise ValueError for settings that do not go together."""
    wanted = {*names_in(flags.baseline), *names_in(flags.suite)}
    if "" in flags.encoder:
        raise ValueError("--encoder is empty; give a folder, an MLflow run or st:MODEL")
    if not (flags.encoder or flags.words or HEURISTICS in wanted):
        raise ValueError("nothing to score; give --encoder FOLDER, --words FILE or both")
    if not (flags.suite or flags.pairs or flags.held_out):
        raise ValueError("nothing to score on; give --suite all --data FOLDER, --pairs FILE or --held-out PAIRS")
    if bool(flags.suite) != bool(flags.data):
        raise ValueError("--suite and --data go together: --suite all --data FOLDER")
    if flags.max_words is not None and not flags.words:
        raise ValueError("--max-words needs --words FILE: it cuts the rows of that file")
    if flags.resamples < 0:
        raise ValueError(f"--resamples is {flags.resamples}; allowed: 0 (no intervals) or more, as 1000")
    _check_baselines(flags)
    _check_suites(flags)
    if flags.choices != Evaluation.choices and not flags.held_out:
        raise ValueError("--choices needs --held-out PAIRS: it is how many of their texts to choose from")
    if not flags.analyses and flags.options != AnalysisOptions():
        changed = [one.name for one in fields(AnalysisOptions) if getattr(flags.options, one.name)]
        raise ValueError(f"--{changed[0].replace('_', '-')} is for the analyses; leave --no-analyses out")


def _check_baselines(flags: Evaluation) -> None:
    wanted = {*names_in(flags.baseline)}
    allowed = [*MADE_OF, HEURISTICS]
    unknown = sorted(wanted - {*allowed})
    if unknown:
        raise ValueError(f"unknown baseline {unknown[0]!r}; allowed: {', '.join(allowed)}")
    if wanted - {HEURISTICS} and not flags.words:
        raise ValueError("--baseline weights the words of a file; give it with --words FILE")
    for flag in ("counts", "corpus", "trained"):
        users = [name for name, files in MADE_OF.items() if flag in files]
        if getattr(flags, flag) and not wanted & {*users}:
            raise ValueError(f"--{flag} needs --baseline {' or '.join(users)}: nothing else reads it")


def _check_suites(flags: Evaluation) -> None:
    unknown = [name for name in names_in(flags.suite) if name not in {*SUITES, HEURISTICS, "all"}]
    if unknown and unknown[0] in {"choose", "pairs"}:
        flag = "--held-out PAIRS" if unknown[0] == "choose" else "--pairs FILE"
        raise ValueError(f"the suite {unknown[0]!r} has a flag of its own: {flag}")
    if unknown:
        raise ValueError(f"unknown suite {unknown[0]!r}; allowed: all, {', '.join(SUITES)}, {HEURISTICS}")


def _warn_of_unknown_words(report: "Report") -> None:
    """Name each candidate whose vocabulary has few of the tokens that it was scored on."""
    for column in report.columns:
        sets = [score for score in column.scores if not (score.is_mean or score.is_pooled)]
        tokens, unknown = (sum(getattr(score, name) for score in sets) for name in ("num_tokens", "num_unknown"))
        if tokens - unknown < LOW_COVERAGE * tokens:
            say(
                f"warning: {column.label} has a vector for {1 - unknown / tokens:.1%} of the tokens of the sets; check "
                "its --words and its tokenizer: the scores are mostly those of the unknown word"
            )


def _check_out(out: Path) -> None:
    """Raise OSError where no folder can be made or filled, before anything is scored."""
    there = next(parent for parent in (out, *out.parents) if parent.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file; --out needs a folder")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(f"--out {out} cannot be written ({error.strerror}); name another folder") from None


def with_absolute_paths(flags: Evaluation) -> Evaluation:
    """The same with whole paths, ``out`` among them."""
    first = Path(flags.encoder[0]) if flags.encoder else None
    beside = first.with_name(f"{first.name}-scores") if first and first.is_dir() else Path("scores")
    single = {name: getattr(flags, name) for name in ("words", "counts", "corpus", "held_out")}
    whole: dict[str, Any] = {
        name: existing(path, f"--{name.replace('_', '-')}") for name, path in single.items() if path
    }
    options = flags.options
    margin, tagged = options.margin_pairs, options.tagged
    return replace(
        flags,
        encoder=tuple(
            one if _is_elsewhere(one) else str(existing_encoder(Path(one), "--encoder")) for one in flags.encoder
        ),
        pairs=tuple(existing(path, "--pairs") for path in flags.pairs),
        data=flags.data and existing_data(flags.data, "--data"),
        trained=flags.trained and existing_encoder(flags.trained, "--trained"),
        out=absolute(flags.out or beside, "--out"),
        options=replace(
            options,
            margin_pairs=margin and existing_pairs(margin, "--margin-pairs"),
            tagged=tagged and existing(tagged, "--tagged"),
            runs=tuple(
                existing(path, "--runs", "expected an encoder folder, a folder of them, or a table")
                for path in options.runs
            ),
        ),
        **whole,
    )


def _is_elsewhere(text: str) -> bool:
    """Whether an encoder is a model of a peer or an MLflow run, not a folder."""
    is_named = text.partition(":")[0] in PEERS and ":" in text
    return is_named or bool(_RUN_ID.fullmatch(text) and not Path(text).exists())


def read_all(flags: Evaluation) -> "list[Suite]":
    """The suites of an evaluation."""
    from paraembed.evaluation.choose import read_choose

    suites: list[Suite] = []
    if flags.data:
        names = ["phrases" if name == HEURISTICS else name for name in names_in(flags.suite)]
        suites += read_suites(names, flags.data)
    if flags.held_out:
        suites.append(read_choose(flags.held_out, flags.choices))
    return suites + ([read_pairs_files(flags.pairs)] if flags.pairs else [])


def find_candidates(flags: Evaluation) -> "list[Candidate]":
    """The candidates of an evaluation: encoders, the untrained average of the words, baselines."""
    from paraembed.encoders import Encoder
    from paraembed.evaluation.baselines import Sources, baselines, overlap_candidates
    from paraembed.evaluation.candidates import unique_labels, untrained

    candidates = []
    for number, text in enumerate(flags.encoder, start=1):
        doing(f"reading encoder {number} of {len(flags.encoder)}")
        candidates.append(find_candidate(text))
    encoders = [one.encoder for one in candidates if isinstance(one.encoder, Encoder)]
    tokenizer = encoders[0].tokenizer if encoders else "ptb-v1"
    wanted = {*names_in(flags.baseline), *names_in(flags.suite)}
    if flags.words:
        doing(f"reading the words of {flags.words.name}")
        candidates.append(untrained(flags.words, flags.max_words, tokenizer))
        weighted = [name for name in MADE_OF if name in wanted]
        folder = flags.trained or next((Path(text) for text in flags.encoder if Path(text).is_dir()), None)
        sources = Sources(flags.words, flags.counts, flags.corpus, folder, flags.max_words, tokenizer)
        candidates += baselines(weighted, sources, doing) if weighted else []
    return unique_labels([*candidates, *(overlap_candidates() if wanted & {HEURISTICS, "all"} else [])])


def find_candidate(text: str) -> "Candidate":
    """``st:…`` or ``m2v:…``, an MLflow run id, or an encoder folder."""
    from paraembed.evaluation.candidates import is_peer, peer, trained

    if is_peer(text):
        return peer(text)
    if _RUN_ID.fullmatch(text) and not Path(text).exists():
        return of_run(text)
    return trained(absolute(Path(text), "--encoder"))


def of_run(run_id: str) -> "Candidate":
    """The encoder that a training logged to MLflow.

    Raises:
        ValueError: no such run, or none with an encoder.
    """
    from paraembed.evaluation.candidates import trained
    from paraembed.tracking.store import fetch_encoder

    with tempfile.TemporaryDirectory() as folder:
        return trained(fetch_encoder(run_id, Path(folder)), label=f"run {run_id[:8]}")


def names_in(values: Sequence[str]) -> tuple[str, ...]:
    """Names of a flag that takes several, with blanks or commas between."""
    return tuple(name for value in values for name in value.split(",") if name)


def command() -> int:
    """Run the job of this process's command line."""
    return run(main, Evaluation)
