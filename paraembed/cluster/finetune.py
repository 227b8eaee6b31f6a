"""Gold labels, word vectors or a trained encoder → an encoder with a head on it, on Ray Train."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paraembed import checkpoint
from paraembed.cluster.finetune_worker import FinetuneTask, finetune_on
from paraembed.cluster.placement import Workers, check_gpus, device_of, workers_here
from paraembed.cluster.session import ray_session
from paraembed.cluster.train_run import (
    COVERAGE,
    begins,
    check_words,
    checkpoints_of,
    clear,
    drop_finished,
    fit,
    is_finished,
    remove_work,
)
from paraembed.console import doing, duration, say
from paraembed.encoders import Encoder, config_from_dict, config_to_dict, encoder_name
from paraembed.encoders.base import reads_trees
from paraembed.evaluation.selection import as_json
from paraembed.io.atomic import new_folder, work_folder, write_json
from paraembed.io.fingerprint import digest_of, sha256_of
from paraembed.io.places import require_file
from paraembed.papers.supervised import published_for
from paraembed.plots import ScoreCurve, draw_training
from paraembed.recipe import SupervisedRecipe, check_recipe, idle_fields
from paraembed.supervised import model as models
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.readers import read_task
from paraembed.supervised.scores import RESAMPLES, TaskScores, model_card, saved_rows, score, score_rows
from paraembed.supervised.step import is_filled, tree_merges
from paraembed.supervised.tasks import Task, write_split
from paraembed.text.tokenize import tokenise
from paraembed.text.vocabulary import Words
from paraembed.tracking.runs import Run, send_left, tracked_run
from paraembed.training.inputs import (
    MIN_COVERAGE,
    Coverage,
    check_coverage,
    check_min_coverage,
    coverage_of,
    encoder_for,
    with_words_of,
)
from paraembed.training.memory import available_memory, check_memory, estimate
from paraembed.training.state import Counters

_PICTURE = "training.png"
_TRAINING_PART = "the training part"


@dataclass(frozen=True)
class Finetuning:
    """What to train, on what, where to.

    Attributes:
        name: of the recipe, for the record.
        recipe: how to train.
        task: similarity, entailment, sentiment, semeval2013 or turney.
        data_set: which one of the task's; None: its first.
        data: folder of the evaluation data.
        words: word-vector text file, in the mode scratch.
        prior: folder of a trained encoder, in the other modes.
        out: model folder to write. Until it is there the work stands in ``<out>.training``.
        placement: workers, GPUs, checkpoints.
        asked: fields of the recipe that were changed by hand, which are named where they decide nothing.
        min_coverage: fraction of the training part's tokens that must have a vector of their own; it does not decide
            the result.
    """

    name: str
    recipe: SupervisedRecipe
    task: str
    data_set: str | None
    data: Path
    words: Path | None
    prior: Path | None
    out: Path
    placement: Workers = field(default_factory=Workers)
    asked: tuple[str, ...] = ()
    min_coverage: float = MIN_COVERAGE

    def __post_init__(self) -> None:
        """Raise ValueError for a minimum coverage that is no fraction."""
        check_min_coverage(self.min_coverage)

    @property
    def work(self) -> Path:
        """Folder of the unfinished training."""
        return self.out.with_name(f"{self.out.name}.training")


@dataclass(frozen=True)
class Finetuned:
    """What a call of ``finetune`` did.

    Attributes:
        rows: of a table: part, measure, ours, coverage, published.
        was_finished: nothing was left to do; the rows are those of the model that is there.
    """

    rows: list[list[str]]
    was_finished: bool


def finetune(tuning: Finetuning, *, overwrite: bool = False) -> Finetuned:
    """Train a model and write its folder; the same call goes on where a killed one was.

    The model of the highest score on the development part is the result; the test part is scored once, at the end.

    Args:
        tuning: what, on what, where to.
        overwrite: replace another model at ``out``, and drop another training that was begun there.

    Raises:
        OSError, ValueError: an input or output will not do; nothing was changed then. Or the loss is no number.
    """
    check_gpus(tuning.placement)
    check_inputs(tuning)
    doing(f"reading the sets of {tuning.task}")
    task = read_task(tuning.task, tuning.data_set, tuning.data, tuning.recipe.seed)
    prior = None
    if tuning.prior is not None:
        prior = checkpoint.load(tuning.prior)
        tuning = replace(tuning, recipe=of_prior(tuning.recipe, prior, tuning.asked))
    identity = {"recipe": tuning.recipe.to_dict(), **inputs_identity(tuning, task, prior)}

    def finished() -> Finetuned | None:
        if not is_finished(tuning.out, models.read_config, SupervisedRecipe, identity, overwrite, "model"):
            return None
        send_left(tuning.out)
        say(f"{tuning.out} is trained already by this recipe on this task; nothing to do")
        return Finetuned(saved_rows(models.read_config(tuning.out)["provenance"], str(tuning.out)), was_finished=True)

    before = finished()
    if before:
        drop_finished(tuning.work, identity)
        return before
    idle = [name for name in idle_fields(tuning.recipe, task.name) if name in tuning.asked]
    if idle:
        say(f"without effect, given the other settings: {', '.join(idle)}")
    check_task(tuning, task, prior)
    with work_folder(tuning.work):
        before = finished()  # by another run, since
        if before:
            return before
        _prepare(tuning, task, prior, identity, overwrite)
        rows = _train(tuning, task, identity)
        remove_work(tuning.work)
    return Finetuned(rows, was_finished=False)


def inputs_identity(tuning: Finetuning, task: Task, prior: Encoder | None) -> dict[str, Any]:
    """What decides a training's result besides its recipe; digests, JSON."""
    return {
        "task": task.name,
        "data_set": task.data_set,
        "data": digest_of(as_json((task.train, task.dev, task.test, task.threshold, task.classes, task.low))),
        "words": sha256_of(tuning.words) if tuning.words else None,
        "prior": prior.fingerprint if prior else None,
    }


def check_inputs(tuning: Finetuning) -> None:
    """Raise OSError or ValueError unless the mode has what it begins with, and no more."""
    mode = tuning.recipe.mode
    if mode == "scratch":
        if tuning.words is None or tuning.prior is not None:
            raise ValueError("the mode scratch begins with word vectors: give --words VECTORS, and no --prior")
        require_file(tuning.words)
    elif tuning.prior is None or tuning.words is not None:
        raise ValueError(f"the mode {mode} begins with a trained encoder: give --prior ENCODER, and no --words")


def check_task(tuning: Finetuning, task: Task, prior: Encoder | None) -> None:
    """Raise ValueError where a training could not begin, or its result not be scored; nothing was changed then."""
    recipe, workers = tuning.recipe, tuning.placement.workers
    check_recipe(recipe, task.name)
    if prior is not None and task.split is not None:
        _check_split(prior, task, recipe.seed)
    for part in (task.dev, task.test):
        which = "development" if part is task.dev else "test"
        if len(part) < 2:
            found = f"{len(part)} example{'s' * (len(part) != 1)}"
        elif task.name == "similarity" and len(set(part.labels.tolist())) < 2:
            found = f"{len(part)} examples of one gold score"
        else:
            continue
        raise ValueError(
            f"the {which} part of {task.name} ({task.data_set}) has {found}: no score is defined on it; give larger "
            f"sets in {tuning.data}"
        )
    tokens = tokenise(pa.concat_arrays(task.train.texts), recipe.tokeniser)
    usable = int(is_filled(tokens, len(task.train.texts)).sum())
    if usable < max(2, recipe.batch_size * workers):
        least = f"{recipe.batch_size} for each of {workers} workers" if workers > 1 else str(recipe.batch_size)
        raise ValueError(
            f"{usable:,} examples to train on (of {len(task.train):,}; the others have a text without a token), and "
            f"batch_size is {least}; take a smaller one, or give more examples"
        )
    if reads_trees(recipe.encoder):
        tree_merges(task.train, tokens, recipe.tokeniser)
    here = workers_here(workers)
    memory = estimate(words_of(tuning, prior), recipe, len(tokens.flat), len(task.train), here, keeps_best=True)
    check_memory(memory, available_memory(), cuts_words=prior is None)


def _check_split(prior: Encoder, task: Task, seed: int) -> None:
    """Raise ValueError where a trained encoder has learned from another draw of the set, which the test part has."""
    for before in checkpoint.gold_of(prior.provenance):
        if before["data_set"] == task.data_set and before["seed"] != seed:
            raise ValueError(
                f"--prior was trained on a split of {task.data_set} that was drawn with seed {before['seed']}; seed "
                f"is {seed} here: what it has learned from would be chosen by or tested on; take --seed "
                f"{before['seed']}, or another prior"
            )


def words_of(tuning: Finetuning, prior: Encoder | None) -> Path | tuple[int, int]:
    """The word vectors that a training begins with: their file, or rows and width of the trained encoder's."""
    if prior is None:
        assert tuning.words is not None
        return tuning.words
    rows, width = prior.matrix.shape
    return rows, width


def of_prior(
    recipe: SupervisedRecipe, prior: Encoder, asked: Sequence[str] = (), otherwise: str = "give --encoder {}"
) -> SupervisedRecipe:
    """The recipe with what a trained encoder decides: architecture, tokeniser, boundary words, cut.

    Args:
        recipe: as asked for.
        prior: the trained encoder.
        asked: fields of the recipe that were changed by hand.
        otherwise: what to do where the architectures differ; ``{}`` stands for the prior's.

    Raises:
        ValueError: the recipe names another architecture, or a field was changed to another value than the prior's.
    """
    wanted, there = encoder_name(recipe.encoder), encoder_name(prior.config)
    if wanted != there:
        raise ValueError(f"the recipe trains the encoder {wanted}, and --prior is {there}; {otherwise.format(there)}")
    decided: dict[str, Any] = {
        "encoder": config_from_dict(config_to_dict(prior.config)),
        "tokeniser": prior.tokeniser,
        "boundary_tokens": prior.boundary_tokens,
        "max_tokens": prior.max_tokens,
    }
    for name, value in decided.items():
        if name in asked and getattr(recipe, name) != value:
            raise ValueError(f"{name} is {getattr(recipe, name)!r}, and --prior decides it: {value!r}; leave it out")
    options = ", ".join(f"{name} {value}" for name, value in config_to_dict(prior.config).items())
    say(f"the prior decides: {options}; tokeniser {prior.tokeniser}, boundary_tokens {prior.boundary_tokens}")
    return replace(recipe, **decided)


def untrained_model(
    recipe: SupervisedRecipe, task: Task, words: Path | None, prior: Encoder | None
) -> tuple[Supervised, Coverage]:
    """Return the model before training, and how much of the training part its words cover."""
    counts = pc.value_counts(tokenise(pa.concat_arrays(task.train.texts), recipe.tokeniser).flat)
    if prior is None:
        assert words is not None
        encoder, coverage = encoder_for(words, counts, recipe)
    elif recipe.mode == "features":
        encoder, own = prior, Words(prior.vocabulary, prior.matrix.detach().numpy())
        coverage = coverage_of(counts, own.vocabulary, own)
    else:
        encoder, coverage = with_words_of(prior, counts, recipe)
    return Supervised(encoder, Kind.of(task), options_of(recipe), recipe.seed), coverage


def check_model_words(coverage: Coverage, tuning: Finetuning) -> None:
    """Say how much of the training part the words cover; ValueError where it is less than ``min_coverage``."""
    say(
        f"{coverage.num_words:,} words of width {coverage.width}; the vectors of {_vectors(tuning)} cover "
        f"{coverage.covered:.1%} of the training part's words; {coverage.num_random:,} words got a random one"
    )
    check_coverage(coverage, tuning.min_coverage, _vectors(tuning), _TRAINING_PART)


def _vectors(tuning: Finetuning) -> str:
    return tuning.words.name if tuning.words else f"the prior {tuning.prior.name}" if tuning.prior else ""


def _prepare(tuning: Finetuning, task: Task, prior: Encoder | None, identity: dict[str, Any], overwrite: bool) -> None:
    """Put the untrained model into the work folder, or find the same training there.

    Raises:
        ValueError: the folder holds another training, which is not to be dropped, or something else; or the words
            cover too few of the training part's tokens.
    """
    work = tuning.work
    inputs = tuning.recipe, task, tuning.words, prior
    if not begins(work, identity, overwrite, "jobs/finetune.py"):
        about = tuning.min_coverage, _vectors(tuning), _TRAINING_PART
        check_words(work, *about, lambda: untrained_model(*inputs)[1])
        return
    doing(f"reading {_vectors(tuning)}")
    model, coverage = untrained_model(*inputs)
    check_model_words(coverage, tuning)
    clear(work)
    models.save(model, work / "untrained", recipe=identity["recipe"], provenance={}, model_card="Untrained.\n")
    write_json(work / "identity.json", identity)
    write_json(work / COVERAGE, asdict(coverage))


def _train(tuning: Finetuning, task: Task, identity: dict[str, Any]) -> list[list[str]]:
    work, placement = tuning.work, tuning.placement
    name = f"finetune {tuning.name} {task.name} {tuning.recipe.mode}"
    doing("starting Ray and MLflow")
    with tracked_run(name, tuning.out, work / "run.json") as run, ray_session(placement.workers):
        run.tags({"recipe": tuning.name, "workers": str(placement.workers), "gpus": str(placement.gpus)})
        run.params(identity["recipe"])
        run.params({one: identity[one] for one in ("task", "data_set", "data", "words", "prior") if identity[one]})
        run.params({part: len(getattr(task, part)) for part in ("train", "dev", "test")})
        told = FinetuneTask(
            work=work,
            recipe=tuning.recipe,
            task=task,
            device=device_of(placement),
            checkpoints=checkpoints_of(placement, work),
            run=run.spool,
        )
        result = fit(finetune_on, told, placement, work, "finetune")
        if result.counters is None:
            raise ValueError(result.error)
        doing("scoring and writing the model")
        rows = _finish(tuning, task, identity, result.counters, run)
        run.tags({"fingerprint": models.read_config(tuning.out)["fingerprint"]})
        run.artifacts(tuning.out, "model")
    rate = result.counters.pairs / max(result.counters.seconds, 1e-9)
    say(f"trained on {result.counters.pairs:,} examples in {duration(result.counters.seconds)}: {rate:,.0f} examples/s")
    return rows


def _finish(tuning: Finetuning, task: Task, identity: dict[str, Any], counters: Counters, run: Run) -> list[list[str]]:
    """Score the kept model on the test part, write its folder; the rows of the table."""
    model = models.load(tuning.work / "trained")
    best = counters.best
    if best is None:
        raise ValueError("no look at the development part gave a score; are the words of its texts in the vocabulary?")
    scores = {"dev": score(model, task, "dev"), "test": score(model, task, "test", resamples=RESAMPLES)}
    kind = encoder_name(model.encoder.config)
    beside = published_for(task.name, task.data_set, kind, tuning.recipe.mode, task.measure)
    run.metrics(_metrics(scores), counters.step)
    rows = score_rows(scores, beside)
    provenance = {
        "training": identity,
        "steps": counters.step,
        "best": {"step": best[0], "examples": best[1], "score": best[2]},
        "workers_from_step": counters.workers,
        **({"arithmetic_from_step": counters.arithmetic} if len(counters.arithmetic) > 1 else {}),
        "scores": {part: one.to_dict() for part, one in scores.items()},
        "published": {measure: dict(rows) for measure, rows in beside.items()},
        "notes": list(task.notes),
    }
    card = model_card(tuning.name, tuning.recipe, model, task, rows, _PICTURE)
    models.save(model, tuning.work / "model", recipe=identity["recipe"], provenance=provenance, model_card=card)
    title = f"{tuning.name}: {kind}, {task.name} ({task.data_set})"
    curve = ScoreCurve(f"{task.measure} on the development part", counters.scores, best[0])
    draw_training(
        tuning.work / "model" / _PICTURE,
        title,
        counters.curve,
        (counters.pairs - counters.pairs_in_epoch) // counters.epoch if counters.epoch else len(task.train),
        score_curve=curve,
        unit="example",
        share="share of right answers",
    )
    write_split(task, tuning.work / "model")
    with new_folder(tuning.out) as new:
        shutil.copytree(tuning.work / "model", new, dirs_exist_ok=True)
    for note in task.notes:
        say(f"note: {note}")
    return rows


def _metrics(scores: dict[str, TaskScores]) -> dict[str, float]:
    return {f"{part}/{measure}": value for part, one in scores.items() for measure, value in one.values.items()}
