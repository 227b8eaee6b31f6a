"""Labeled examples as training data: they train an encoder with a head, from word vectors or a pretrained encoder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from paraembed import checkpoint
from paraembed.console import doing, say
from paraembed.encoders import config_from_dict, config_to_dict
from paraembed.evaluation.selection import as_json
from paraembed.io.fingerprint import digest_of, sha256_of
from paraembed.io.places import Place, require_file
from paraembed.io.resume import Work
from paraembed.late import Late
from paraembed.papers.supervised import published_for
from paraembed.recipe import BaseRecipe, SupervisedRecipe, check_recipe
from paraembed.settings import MAX_BAD_WORDS, MIN_COVERAGE, RESAMPLES, check_min_coverage
from paraembed.supervised.folder import read_config
from paraembed.supervised.readers import read_task
from paraembed.supervised.scores import HEAD, DevScorer, model_card, saved_rows, score, score_rows
from paraembed.supervised.tasks import Task, is_filled, write_split
from paraembed.text.tokenize import Tokens
from paraembed.text.tokens import tokens_of
from paraembed.text.vocabulary import Words
from paraembed.training.best import Evaluation
from paraembed.training.data import PICTURE, Pairs, Table, draw, provenance_of, recorded_identity, start_record
from paraembed.training.initial import (
    Coverage,
    Memory,
    check_trainable,
    coverage_of,
    encoder_for,
    estimate,
    with_words_of,
)
from paraembed.training.state import Counters

if TYPE_CHECKING:
    from paraembed.encoders import Encoder
    from paraembed.supervised import model as models
    from paraembed.supervised import step as steps
    from paraembed.supervised.model import Supervised
    from paraembed.supervised.step import ExampleIds
    from paraembed.training import loop
else:
    models, steps, loop = (
        Late(f"paraembed.{name}") for name in ("supervised.model", "supervised.step", "training.loop")
    )


@dataclass(frozen=True)
class Pretrained:
    """Folder of a pretrained encoder, which is loaded when a training begins."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Content of its ``config.json``."""
        return checkpoint.read_config(self.folder)

    @cached_property
    def encoder(self) -> "Encoder":
        """The encoder."""
        return checkpoint.load(self.folder)


@dataclass(frozen=True)
class Labels:
    """Labeled examples of a task; see ``read_labels``."""

    recipe: SupervisedRecipe  # recipe of the training, including what the pretrained encoder determines
    task: Task
    folder: Path  # folder of the evaluation data
    start: Path  # word-vector text file in the mode scratch, folder of the pretrained encoder in the other modes
    pretrained: Pretrained | None = None  # the pretrained encoder, in the same folder
    # Fraction of the training set's tokens that must have a word vector; it does not change the result.
    min_coverage: float = MIN_COVERAGE
    # Fraction of bad rows of a word-vector file that are skipped; it does not change the result.
    max_bad_words: float = MAX_BAD_WORDS

    job: ClassVar[str] = "finetune"
    model: ClassVar[str] = "model"
    unit: ClassVar[str] = "examples"
    share: ClassVar[str] = "right"
    texts: ClassVar[str] = "the training set"
    warns_of_collapse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise ValueError if the minimum coverage is not a fraction."""
        check_min_coverage(self.min_coverage)

    @property
    def vectors(self) -> str:
        """Name of the word-vector file, or of the pretrained encoder."""
        return f"the pretrained encoder {self.start.name}" if self.recipe.starts_from_encoder else self.start.name

    def inputs(self) -> dict[str, Any]:
        """Return what decides the result besides the recipe, as JSON with digests."""
        task = self.task
        return {
            "task": task.name,
            "data_set": task.data_set,
            "data": digest_of(as_json((task.train, task.dev, task.test, task.threshold, task.classes, task.low))),
            "words": None if self.recipe.starts_from_encoder else sha256_of(self.start),
            "prior": self.pretrained.config["fingerprint"] if self.pretrained else None,
        }

    def identity(self) -> dict[str, Any]:
        """Return what decides the model."""
        return {"recipe": self.recipe.to_dict(), **self.inputs()}

    def identity_at(self, out: Path) -> dict[str, Any]:
        """Return what decided the model in a folder."""
        return recorded_identity(read_config(out), SupervisedRecipe)

    def table_at(self, out: Path) -> Table:
        """Return the table of scores in a model folder."""
        return HEAD, saved_rows(read_config(out)["provenance"], str(out))

    def params(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that are logged to MLflow."""
        sizes = {part: len(getattr(self.task, part)) for part in ("train", "dev", "test")}
        return {name: value for name, value in identity.items() if value and name != "recipe"} | sizes

    def datasets(self, identity: dict[str, Any]) -> list[tuple[str, str, Place, int | None]]:
        """Return the inputs for MLflow: name, digest, path, number of rows."""
        (start,), digest = self.start_of(identity), identity["words"] or identity["prior"]
        return [
            (self.task.name, identity["data"], self.folder, len(self.task.train)),
            (start, digest, self.start, None),
        ]

    def start_of(self, identity: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return name, size and digest of the word vectors, or of the pretrained encoder; see ``start_record``."""
        start = "pretrained" if self.recipe.starts_from_encoder else "words"
        return {start: start_record(self.start, identity["words"] or identity["prior"])}

    def size(self) -> tuple[int, int, Path | tuple[int, int]]:
        """Return the numbers of tokens and examples of the training set, and either the word-vector file or rows and
        width of the pretrained encoder.
        """
        num_tokens, num_examples = len(self._tokens().flat), len(self.task.train)
        if not self.recipe.starts_from_encoder:
            return num_tokens, num_examples, self.start
        assert self.pretrained is not None
        rows, width = self.pretrained.encoder.matrix.shape
        return num_tokens, num_examples, (rows, width)

    def _tokens(self) -> Tokens:
        """Return the tokens of the training set: first texts of all examples, then second ones, and so on."""
        texts = pa.concat_arrays(self.task.train.texts)
        if self.pretrained is None:
            return tokens_of(texts, self.recipe.tokenizer, None)
        return tokens_of(texts, self.pretrained.encoder.tokenizer, self.pretrained.encoder.vocabulary)

    def check(self, workers: int) -> None:
        """Raise ValueError if a training could not start, or if its result could not be scored."""
        recipe, task = self.recipe, self.task
        check_recipe(recipe, task.name)
        self._check_split()
        for which, part in (("development", task.dev), ("test", task.test)):
            if len(part) < 2:
                problem = f"{len(part)} example{'s' * (len(part) != 1)}"
            elif task.name == "similarity" and len(set(part.labels.tolist())) < 2:
                problem = f"{len(part)} examples of one gold score"
            else:
                continue
            raise ValueError(
                f"the {which} set of {task.name} ({task.data_set}) has {problem}, so its score is undefined; give "
                f"larger sets in {self.folder}"
            )
        tokens = self._tokens()
        usable = int(is_filled(tokens, len(task.train.texts)).sum())
        if usable < max(2, recipe.batch_size * workers):
            least = f"{recipe.batch_size} for each of {workers} workers" if workers > 1 else str(recipe.batch_size)
            raise ValueError(
                f"only {usable:,} of {len(task.train):,} training examples can be used (the others have a text "
                f"without a token), but batch_size is {least}; use a smaller batch_size, or give more examples"
            )
        if recipe.encoder.reads_trees:
            steps.tree_merges(task.train, tokens, recipe.tokenizer)

    def check_sweep(self, workers: int, retrained: Path | None) -> None:  # noqa: ARG002
        """Raise ValueError if a training could not start, or if its result could not be scored."""
        self.check(workers)

    def memory(self, workers: int, *, gpus: bool) -> Memory:  # noqa: ARG002
        """Return the memory of a number of workers on one machine."""
        num_tokens, num_examples, words = self.size()
        return estimate(words, self.recipe, num_tokens, num_examples, workers, keeps_best=True)

    def _check_split(self) -> None:
        """Raise ValueError if the encoder was trained on another split of the data set, so on test examples."""
        if self.pretrained is None or self.task.split is None:
            return
        for before in checkpoint.gold_of(self.pretrained.config.get("provenance") or {}):
            if before["data_set"] == self.task.data_set and before["seed"] != self.recipe.seed:
                raise ValueError(
                    f"`pretrained` was trained on a split of {self.task.data_set} with seed {before['seed']}, but "
                    f"seed is {self.recipe.seed} here, so its training examples would be in the dev and test sets; "
                    f"use `seed` {before['seed']}, or another pretrained encoder"
                )

    def untrained(self) -> "tuple[Supervised, Coverage]":
        """Return the model before training, and the coverage of the training set by its vocabulary."""
        recipe = self.recipe
        counts = pc.value_counts(self._tokens().flat)
        if not recipe.starts_from_encoder:
            encoder, coverage = encoder_for(self.start, counts, recipe, self.max_bad_words)
        else:
            assert self.pretrained is not None
            encoder = self.pretrained.encoder
            if recipe.mode == "features":
                own = Words(encoder.vocabulary, encoder.matrix.detach().numpy())
                coverage = coverage_of(counts, own.vocabulary, own)
            else:
                encoder, coverage = with_words_of(encoder, counts, recipe)
        return models.Supervised(encoder, models.Kind.of(self.task), models.options_of(recipe), recipe.seed), coverage

    def with_recipe(self, recipe: BaseRecipe) -> "Labels":
        """Return the same examples with another recipe."""
        assert isinstance(recipe, SupervisedRecipe)
        return replace(self, recipe=recipe)

    def for_workers(self) -> "Labels":
        """Return the examples without the pretrained encoder, which is part of the untrained model."""
        return replace(self, pretrained=None)

    def convert(self, *_: object) -> bool:
        """Return False, since the examples are in memory; see ``Pairs.convert``."""
        return False

    def read(self, model: "Supervised", *_: object, **__: object) -> "tuple[ExampleIds, int, list[str]]":
        """Return the training set as word ids, its size, and remarks for the user; see ``Pairs.read``."""
        doing("reading the examples")
        data, total = steps.example_ids(model, self.task.train), len(self.task.train)
        left_out = f"{data.num_dropped:,} of {total:,} examples have a text without a token and are left out"
        return data, len(data), [left_out] if data.num_dropped else []

    def load(self, folder: Path) -> "Supervised":
        """Load a model."""
        return models.load(folder)

    def save(self, model: "Supervised", folder: Path, card: str) -> None:
        """Write a model folder that is still in progress."""
        models.save(model, folder, recipe=self.recipe.to_dict(), provenance={}, model_card=card, overwrite=True)

    def scorer(self, *_: object) -> DevScorer:
        """Return the scorer of the dev set; its metric is the measure of the task."""
        return DevScorer(self.task)

    def evaluation(self, num: int) -> Evaluation:
        """Return how the model is evaluated on the dev set, for ``num`` examples."""
        every = self.recipe.evaluations_apart(num)
        metric = f"dev/{self.task.measure}"
        return Evaluation(self.scorer(), metric, every, self.recipe.patience, {"task": self.task.name})

    def train(self, model: "Supervised", examples: "ExampleIds", rank: int = 0, world: int = 1, **how: Any) -> Counters:
        """Train a model in place; it cannot be profiled."""
        return loop.run_steps(
            model, steps.SupervisedStep(model, self.recipe, rank, world), examples, len(examples), **how
        )

    def finish(
        self, name: str, work: Work, counters: Counters, log_metrics: Callable[[dict[str, float], int], object]
    ) -> Table:
        """Score the model once on the test set, write its folder, and return the table of scores."""
        task, model = self.task, models.load(work.folder / "trained")
        num = (counters.pairs - counters.pairs_in_epoch) // counters.epoch if counters.epoch else len(task.train)
        best = self.evaluation(num).best_checkpoint(counters)
        if best is None:
            raise ValueError(
                "no dev-set evaluation produced a score; check that the words of its texts are in the vocabulary"
            )
        scores = {"dev": score(model, task, "dev"), "test": score(model, task, "test", resamples=RESAMPLES)}
        kind = model.encoder.config.name
        published = published_for(task.name, task.data_set, kind, self.recipe.mode, task.measure)
        values = {
            f"{part}/{name}": value for part, scores_of in scores.items() for name, value in scores_of.values.items()
        }
        log_metrics(values, counters.step)
        rows = score_rows(scores, published)
        step, examples, value = best.best

        def write_more(folder: Path) -> None:
            title, share = f"{name}: {kind}, {task.name} ({task.data_set})", "share of right answers"
            draw(folder / PICTURE, title, counters, num, best, unit="example", share=share)
            write_split(task, folder)

        models.save(
            model,
            work.out,
            recipe=self.recipe.to_dict(),
            provenance={
                **provenance_of(work.fingerprint, counters, self.start_of(work.fingerprint)),
                "best": {"step": step, "examples": examples, "score": value},
                "scores": {part: asdict(scores_of) for part, scores_of in scores.items()},
                "published": {measure: dict(results) for measure, results in published.items()},
                "notes": list(task.notes),
            },
            model_card=model_card(name, self.recipe, model, task, scores["test"], rows, PICTURE),
            written=work.folder / "trained",
            overwrite=work.overwrite,
            write_more=write_more,
        )
        for note in task.notes:
            say(f"note: {note}")
        return HEAD, rows


TrainingData = Pairs | Labels
"""Data of a training job. Both have the same methods, and these attributes:

``job``: name of the job in ``jobs/``; ``model``, ``unit``: names of what is trained, and of an example; ``texts``: name
of the texts whose tokens the words must cover; ``vectors``: name of the word-vector file or pretrained encoder;
``share``: meaning of the second number of a report, a fraction; ``warns_of_collapse``: whether a fraction near 1
indicates that all texts get the same vector.
"""


def read_labels(
    recipe: SupervisedRecipe,
    task: str,
    data_set: str | None,
    folder: Path,
    words: Path | None = None,
    pretrained: Path | None = None,
    *,
    asked: Sequence[str] = (),
    otherwise: str = "give `encoder` {}",
    min_coverage: float = MIN_COVERAGE,
    max_bad_words: float = MAX_BAD_WORDS,
) -> Labels:
    """Read the examples of a training, and its word vectors or pretrained encoder.

    The mode scratch starts from ``words``, a word-vector text file; the others from ``pretrained``, an encoder folder,
    which determines some fields of the recipe; it must not contradict the fields in ``asked``, which the user set.
    ``otherwise`` is the remedy if the architectures differ; ``{}`` is replaced by the pretrained encoder's name. For
    ``task``, ``data_set`` and ``folder`` see ``read_task``, for the other numbers see ``Labels``.

    Raises:
        OSError, ValueError: a file is missing or cannot be read, the mode needs another kind of start, or the
            pretrained encoder is not the recipe's.
    """
    if recipe.mode == "scratch":
        if words is None or pretrained is not None:
            raise ValueError("the mode scratch starts from word vectors; give `words` VECTORS, and no `pretrained`")
        require_file(words)
    elif pretrained is None or words is not None:
        raise ValueError(f"the mode {recipe.mode} needs a trained encoder; give `pretrained` ENCODER, and no `words`")
    doing(f"reading the sets of {task}")
    read = read_task(task, data_set, folder, recipe.seed)
    start = words or pretrained
    assert start is not None
    limits = min_coverage, max_bad_words
    if pretrained is None:
        return Labels(recipe, read, folder, start, None, *limits)
    check_trainable(pretrained)
    given = Pretrained(pretrained)
    recipe = _of_pretrained(recipe, given.config, asked, otherwise)
    return Labels(recipe, read, folder, start, given, *limits)


def _of_pretrained(
    recipe: SupervisedRecipe, pretrained: Mapping[str, Any], asked: Sequence[str], otherwise: str
) -> SupervisedRecipe:
    """Return the recipe with the fields that a pretrained encoder determines, given its configuration."""
    encoder = config_from_dict(pretrained["encoder"])
    wanted, actual = recipe.encoder.name, encoder.name
    if wanted != actual:
        raise ValueError(
            f"the recipe trains the encoder {wanted}, but `pretrained` is {actual}; {otherwise.format(actual)}"
        )
    decided: dict[str, Any] = {
        "encoder": encoder,
        "tokenizer": pretrained["tokeniser"],
        "bos_eos_tokens": pretrained["boundary_tokens"],
        "max_tokens": pretrained["max_tokens"],
    }
    for name, value in decided.items():
        if name in asked and getattr(recipe, name) != value:
            raise ValueError(
                f"{name} is {getattr(recipe, name)!r}, but `pretrained` sets it to {value!r}; leave it out"
            )
    options = ", ".join(f"{name} {value}" for name, value in config_to_dict(encoder).items())
    say(
        f"set by the pretrained encoder: {options}; tokenizer {decided['tokenizer']}, bos_eos_tokens "
        f"{decided['bos_eos_tokens']}"
    )
    return replace(recipe, **decided)
