"""Command ``evaluate``, from encoders to scores next to published ones: see ``python jobs/evaluate.py --help``.

It does not use Ray, because the suites take seconds on one core.
"""

import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from paraembed.aliases import did_you_mean, on_disk
from paraembed.commands.flags import as_flags, flag_of, names_in
from paraembed.commands.job import run
from paraembed.commands.paths import (
    absolute,
    existing,
    existing_data,
    existing_encoder,
    existing_pairs,
    named_encoder,
    staged_input,
    staged_output,
    staged_places,
)
from paraembed.console import doing, print_table, say, show
from paraembed.io.fingerprint import sha256_of
from paraembed.io.resume import is_output
from paraembed.process import one_thread
from paraembed.settings import (
    DEFAULT_INFERENCE,
    HEURISTICS,
    MADE_OF,
    MAX_BAD_WORDS,
    RESAMPLES,
    AnalysisOptions,
    Inference,
)

if TYPE_CHECKING:
    from paraembed.evaluation.evaluate import EvaluationRequest, EvaluationResult
    from paraembed.io.staging import Mirror, Staging

_FILE, _FOLDER = tyro.conf.arg(metavar="FILE"), tyro.conf.arg(metavar="FOLDER")


GROUPS = {
    "data": "max_words max_bad_words counts corpus trained ppdb rated choices",
    "evaluation": "resamples analyses",
    "model": "device precision prompt backend pooling batch_tokens trust_remote_code",
    "analyses": "neighbors_of against margin_pairs tagged show_texts runs",
}


@dataclass(frozen=True)
class Evaluate:
    """Score encoders, the untrained average of word vectors and baselines; print the tables next to published results.

    A score is the correlation of cosine similarities with human ratings, or the fraction of correct answers, ×100.
    --list prints the suites.
    """

    encoder: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[FOLDER|small|st:MODEL|m2v:MODEL|onnx:FOLDER|RUN ...]")
    ] = ()
    """Encoders to score, with names as in jobs/embed.py."""
    words: Annotated[str | None, _FILE] = None
    """Word-vector file with lines 'word v1 … vd', plain or .gz, or its URI; its average is scored as a baseline."""
    max_words: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Number of rows of --words to use; the mean of the other rows becomes the vector of <unk>; default: all."""
    max_bad_words: float = MAX_BAD_WORDS
    """Maximum fraction of rows of --words that are skipped because they are no word vectors, 0 to 1; 0: none."""
    baseline: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Further baselines from --words: sif, sif-common, inverse-frequency, l1; or ppdb-heuristics, which needs no
    words.
    """
    counts: Annotated[Path | None, _FILE] = None
    """File of word counts, lines 'word count', for sif, sif-common and inverse-frequency."""
    corpus: Annotated[Path | None, _FILE] = None
    """Text file, one text per line, on which the common components of sif-common are fitted."""
    trained: Annotated[Path | None, _FOLDER] = None
    """Encoder folder whose word vectors give the weights of l1; default: the first of --encoder."""
    ppdb: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[FILE ...]")] = ()
    """Original files of PPDB that have the pairs of the sets, best pairs first; its confidence is scored as a baseline.
    """
    rated: Annotated[str | None, _FILE] = None
    """Scored pairs of --ppdb other than those of the sets: score, phrase1, phrase2, separated by tabs; a regression on
    PPDB's features is trained on them and scored as a baseline.
    """
    suite: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[all|NAME ...]")] = ()
    """Suites in --data to score on, or all; --list prints them."""
    data: Annotated[str | None, _FOLDER] = None
    """Folder of the suites, or its URI (s3://, gs://)."""
    pairs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[FILE ...]")] = ()
    """Tab-separated files of scored pairs, plain or .gz, or their URIs: score, sentence1, sentence2."""
    pair_columns: Annotated[tuple[str, str, str] | tuple[()], tyro.conf.arg(metavar="TEXT1 TEXT2 SCORE")] = ()
    """Columns of both texts and of the score in the files of --pairs, by name in the first line or by number from 1,
    for example sentence1 sentence2 score; default: score, sentence1, sentence2, and no others.
    """
    held_out: Annotated[str | None, tyro.conf.arg(metavar="PAIRS")] = None
    """Held-out pairs, as pair shards or a pair file, or their URI, for the test of finding a text's paraphrase among
    --choices texts.
    """
    choices: int = 100
    """Number of texts to choose from, including the correct one."""
    resamples: int = RESAMPLES
    """Number of bootstrap resamples for the 95 % intervals and the paired tests; 0: neither."""
    analyses: bool = True
    """Run the papers' analyses and write report.html."""
    options: Annotated[AnalysisOptions, tyro.conf.arg(name="")] = field(default_factory=AnalysisOptions)
    inference: Annotated[Inference, tyro.conf.arg(name="")] = DEFAULT_INFERENCE
    out: Annotated[str | None, _FOLDER] = None
    """Folder for tables and figures, or its URI; default: ENCODER-scores next to the encoder, or ./scores."""
    list: bool = False
    """Print the suites with their sources, and exit."""


def main(flags: Evaluate) -> dict[str, Any]:
    """Score, log the run to MLflow, print the tables and the folder of the files."""
    check(flags)
    with staged_places() as stage:
        paths = paths_of(flags, stage)
        from paraembed.evaluation.analyses import earlier_files

        home = stage.mirror(paths["out"])
        _check_out(home.folder)
        with one_thread():
            outcome = _evaluate(flags, paths, home, stage.in_uris)
        for name in earlier_files(home.names()):
            home.remove(name)
        stage.upload(home)
        out = stage.in_uris(str(home.folder))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in outcome.report.tables(brief=True):
        show(table.title)
        print_table(table.head, table.rows, width)
        show(*(f"  {note}" for note in table.notes), "")
    say(*(f"note: {note}" for note in outcome.report.notes))
    say(*(f"not made: {reason}" for reason in outcome.missing))
    following = f"train.py --words {flags.words or 'FILE'}"
    if flags.encoder:
        following = f"embed.py --encoder {flags.encoder[0]}"
    elif flags.ppdb and not flags.words:
        following = f"shard.py --input {flags.ppdb[0]}"
    files = f"{len(outcome.files)} files, such as {outcome.files[-1].name}"
    say(f"wrote {files}, to {out}; next: python jobs/{following} …")
    return {"written": [out], "files": len(outcome.files), "scores": outcome.report.metrics()}


def _evaluate(
    flags: Evaluate, paths: Mapping[str, Any], home: "Mirror", named: Callable[[str], str]
) -> "EvaluationResult":
    from paraembed.evaluation.evaluate import evaluate, low_coverage, prepare
    from paraembed.evaluation.selection import suites_digest
    from paraembed.tracking.fetch import fetch_encoder
    from paraembed.tracking.runs import tracked_run

    request, out = request_of(flags, paths), home.folder
    candidates, suites = prepare(request, fetch_encoder)
    doing("opening MLflow")
    with tracked_run(f"evaluate {out.name}", home.records) as run:
        settings = asdict(replace(flags, **paths))
        settings |= settings.pop("options") | settings.pop("inference")
        run.params(on_disk({name: named(str(value)) for name, value in settings.items() if value}))
        sources = [named(str(path)) for path in (request.data, *request.pairs, request.held_out) if path]
        run.dataset("evaluation sets", suites_digest(suites), sources, "evaluation")
        for name in ("words", "counts", "corpus", "rated"):
            if paths[name]:
                run.dataset(name, sha256_of(paths[name]), [named(str(paths[name]))], "evaluation")
        outcome = evaluate(request, candidates, suites, out, lambda text: as_flags(text, Evaluate))
        for column, coverage in low_coverage(outcome.report):
            say(
                f"warning: {column.label} has a vector for only {coverage:.1%} of the tokens of the sets, so the "
                "scores are mostly those of <unk>; check --words and the tokenizer"
            )
        doing(f"logging {len(outcome.files)} files")
        for path in outcome.files:
            run.artifacts(path)
        run.metrics(outcome.report.metrics())
        run.tags({f"sets behind {name}": str(count) for name, count in outcome.report.num_sets().items()})
    doing("")
    return outcome


def request_of(flags: Evaluate, paths: Mapping[str, Any]) -> "EvaluationRequest":
    """Return the flags, with the paths of ``paths_of``, as a request for the core."""
    from paraembed.evaluation.evaluate import EvaluationRequest

    renamed = {"encoders": paths["encoder"], "baselines": names_in(flags.baseline), "suites": names_in(flags.suite)}
    same = [own.name for own in fields(EvaluationRequest) if own.name not in renamed]
    return EvaluationRequest(**renamed, **{name: paths.get(name, getattr(flags, name)) for name in same})


def check(flags: Evaluate) -> None:
    """Raise ValueError for flags that contradict each other."""
    wanted = {*names_in(flags.baseline), *names_in(flags.suite)}
    if "" in flags.encoder:
        raise ValueError("--encoder has an empty value; give a folder, an MLflow run or st:MODEL")
    if not (flags.encoder or flags.words or flags.ppdb or HEURISTICS in wanted):
        raise ValueError("no encoder to score; give --encoder FOLDER, --words FILE or both")
    if not (flags.suite or flags.pairs or flags.held_out):
        raise ValueError("no data to score on; give --suite all --data FOLDER, --pairs FILE or --held-out PAIRS")
    if flags.pair_columns and not flags.pairs:
        raise ValueError("--pair-columns names the columns of --pairs; add --pairs FILE")
    if bool(flags.suite) != bool(flags.data):
        raise ValueError("--suite and --data must be given together, for example --suite all --data FOLDER")
    if flags.max_words is not None and not flags.words:
        raise ValueError("--max-words sets the number of rows to use from --words; add --words FILE")
    if flags.resamples < 0:
        raise ValueError(f"--resamples is {flags.resamples}; it must be 0 (no intervals) or more, for example 1000")
    _check_baselines(flags)
    _check_suites(flags)
    if flags.choices != Evaluate.choices and not flags.held_out:
        raise ValueError("--choices sets how many texts of --held-out to choose from; add --held-out PAIRS")
    if not flags.analyses and flags.options != AnalysisOptions():
        changed = [field.name for field in fields(AnalysisOptions) if getattr(flags.options, field.name)]
        raise ValueError(f"{flag_of(changed[0])} is an option of the analyses; leave --no-analyses out")


def _check_baselines(flags: Evaluate) -> None:
    wanted = {*names_in(flags.baseline)}
    allowed = [*MADE_OF, HEURISTICS]
    unknown = sorted(wanted - {*allowed})
    if unknown:
        raise ValueError(
            f"unknown baseline {unknown[0]!r}; allowed: {', '.join(allowed)}{did_you_mean(unknown[0], allowed)}"
        )
    if wanted - {HEURISTICS} and not flags.words:
        raise ValueError("--baseline weights the words of a file; add --words FILE")
    if flags.rated and not flags.ppdb:
        raise ValueError("--rated trains a regression on the features of --ppdb; add --ppdb FILE")
    for flag in ("counts", "corpus", "trained"):
        users = [name for name, files in MADE_OF.items() if flag in files]
        if getattr(flags, flag) and not wanted & {*users}:
            raise ValueError(
                f"--{flag} is only used by --baseline {' or '.join(users)}; add that baseline, or leave --{flag} out"
            )


def _check_suites(flags: Evaluate) -> None:
    from paraembed.evaluation.suites import SUITES

    unknown = [name for name in names_in(flags.suite) if name not in {*SUITES, HEURISTICS, "all"}]
    if unknown and unknown[0] in {"choose", "pairs"}:
        flag = "--held-out PAIRS" if unknown[0] == "choose" else "--pairs FILE"
        raise ValueError(f"the suite {unknown[0]!r} is not in --data; give it with {flag}")
    if unknown:
        allowed, near = ["all", *SUITES, HEURISTICS], did_you_mean(unknown[0], SUITES)
        raise ValueError(f"unknown suite {unknown[0]!r}; allowed: {', '.join(allowed)}{near}")


def _check_out(out: Path) -> None:
    """Raise ValueError or NotADirectoryError before anything is scored if the output folder cannot be written."""
    from paraembed.evaluation.evaluate import check_target

    check_target(out)
    folder = next(parent for parent in (out, *out.parents) if parent.exists())
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; --out needs a folder")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written ({error.strerror}); give another folder") from None


def paths_of(flags: Evaluate, stage: "Staging") -> dict[str, Any]:
    """Return the absolute paths of the flags that name files, or of their copies, by field; with ``out``."""
    first = Path(flags.encoder[0]).absolute() if flags.encoder else None  # Path(".") has no name
    while first is not None and is_output(first.parent):  # the encoder of a fine-tuned model, or of a search
        first = first.parent
    default_out = first.with_name(f"{first.name}-scores") if first and first.is_dir() else Path("scores")
    files = {name: getattr(flags, name) for name in ("words", "counts", "corpus", "rated", "held_out")}
    options = flags.options
    margin, tagged = options.margin_pairs, options.tagged
    inputs = *flags.encoder, *flags.pairs, *flags.ppdb, *files.values(), flags.trained, margin, tagged
    names = [str(staged_input(stage, name, "--encoder", absolute)) if "://" in name else name for name in flags.encoder]
    return {
        "encoder": tuple(named_encoder(name, "--encoder") for name in names),
        "pairs": tuple(staged_input(stage, file, "--pairs") for file in flags.pairs),
        "ppdb": tuple(staged_input(stage, file, "--ppdb") for file in flags.ppdb),
        "data": flags.data and staged_input(stage, flags.data, "--data", existing_data),
        "trained": flags.trained and existing_encoder(flags.trained, "--trained"),
        "out": staged_output(stage, flags.out or default_out, "--out", *inputs),
        "options": replace(
            options,
            margin_pairs=margin and existing_pairs(margin, "--margin-pairs"),
            tagged=tagged and existing(tagged, "--tagged"),
            runs=tuple(existing(path, "--runs", "expected a folder of one or more encoders") for path in options.runs),
        ),
        **{name: file and staged_input(stage, file, flag_of(name)) for name, file in files.items()},
    }


def listing() -> list[str]:
    """Return the lines of --list: name and source of each suite."""
    from paraembed.evaluation.suites import SUITES

    texts = {name: inspect.cleandoc(read.__doc__ or "").partition("\n")[0] for name, read in SUITES.items()}
    texts[HEURISTICS] = "The suite phrases, scored by word overlap, strict and lemmatized."
    return [f"{name:<15} {text.replace('`', '')}" for name, text in texts.items()]


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Evaluate, GROUPS, listing=listing)
