"""What a model is trained on, and what comes of it; ``Pairs`` train an encoder."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.console import doing, say
from paraembed.encoders import Encoder, encoder_name
from paraembed.encoders.configs import WordConfig
from paraembed.evaluation.candidates import Candidate, trained
from paraembed.evaluation.report import Report, compare, model_card
from paraembed.evaluation.selection import SuiteScorer, chosen_metric, suites_digest
from paraembed.evaluation.sets import Suite
from paraembed.io.fingerprint import sha256_of
from paraembed.io.parquet import chunks_of
from paraembed.io.places import require_file
from paraembed.io.resume import Work
from paraembed.pairs.shards import read_pair_manifest
from paraembed.plots import ScoreChange, ScoreCurve, draw_training, shortened
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.settings import MIN_COVERAGE, Selection, check_min_coverage
from paraembed.text.ragged import Ragged
from paraembed.training.best import Kept, Scoring
from paraembed.training.fast import step_kind
from paraembed.training.inputs import Coverage, available_memory, check_memory, estimate, untrained_encoder
from paraembed.training.loop import check_num_pairs, train
from paraembed.training.pairs import MappedPairs, MemoryLimit, num_cut, num_without_tree, pair_columns, pairs_to_ids
from paraembed.training.state import Counters
from paraembed.training.step import exchanged

PICTURE = "training.png"
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Head and rows."""

_BLOCK_ROWS = 65_536
_TOKEN_BYTES = 5  # of the shards' text a token, about
_MOST_SCORES = 45  # lines of the picture
_LABEL = 60  # characters

log = logging.getLogger(__name__)


class TrainingData(Protocol):
    """What a model is trained on, and what comes of it: ``Pairs``, or ``supervised.labels.Labels``.

    Attributes:
        job: name of the job in ``jobs/``.
        model: what is trained.
        unit: what it is trained on.
        share: what the second number of a report is the share of.
        warns_of_collapse: whether a share near 1 says that all texts get one vector.
        texts: whose tokens the words must cover, for messages.
        vectors: name of the word-vector file or encoder that training begins with.
        min_coverage: fraction of the tokens that must have a vector of their own; it does not decide the result.
    """

    job: ClassVar[str]
    model: ClassVar[str]
    unit: ClassVar[str]
    share: ClassVar[str]
    texts: ClassVar[str]

    @property
    def recipe(self) -> BaseRecipe:
        """How to train."""

    @property
    def min_coverage(self) -> float: ...  # noqa: D102

    @property
    def vectors(self) -> str: ...  # noqa: D102

    @property
    def warns_of_collapse(self) -> bool: ...  # noqa: D102

    @property
    def about(self) -> str:
        """Task and mode for the name of the run; empty for training on pairs."""

    def inputs(self) -> dict[str, Any]:
        """Return what decides the result besides the recipe and the selection; digests, JSON."""

    def identity(self) -> dict[str, Any]:
        """Return what decides the result; JSON."""

    def identity_at(self, out: Path) -> dict[str, Any]:
        """Return what decided a finished output; OSError, ValueError where it is none of this job."""

    def table_at(self, out: Path) -> Table | None:
        """Return the table of scores of a finished output, where it has one."""

    def params(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return what MLflow logs of it."""

    def check(self, workers: int, workers_here: int, *, gpus: bool) -> None:
        """Raise ValueError where a training could not begin, or this machine is too small for its workers."""

    def size(self) -> tuple[int, int, Path | tuple[int, int]]:
        """Return tokens (about), examples, and the word-vector file, or rows and width of a trained encoder."""

    def untrained(self) -> tuple[Any, Coverage]:
        """Return the model before training, and how well its words cover the tokens."""

    def with_recipe(self, recipe: BaseRecipe) -> Self:
        """Return the same with another recipe."""

    def for_workers(self) -> Self:
        """Return it without what workers do not need."""

    def files(self) -> tuple[list[str], list[str]]:
        """Return the Parquet files that every worker reads, and their columns; empty: it is all here."""

    def read(
        self, model: Any, blocks: Iterable[pa.Table] | None = None, scratch: Path | None = None, world: int = 1
    ) -> tuple[Any, int, list[str]]:
        """Return the examples as the model reads them, how many, and what a user may not expect of them.

        Args:
            model: that is trained.
            blocks: of ``files``; None: read them.
            scratch: folder for examples that are over the memory limit; None: all are kept in memory.
            world: how many workers.
        """

    def load(self, folder: Path) -> Any:
        """Load a model that ``save`` wrote."""

    def save(self, model: Any, folder: Path, card: str) -> None:
        """Write a model folder that is not finished, with this README."""

    def scoring(self, num: int) -> Scoring | None:
        """Return what the model is scored by, with so many examples; None: the last step's is the result."""

    def train(self, model: Any, examples: Any, **how: Any) -> Counters:
        """Train a model in place; arguments and errors as for ``training.loop.train``."""

    def finish(
        self, name: str, work: Work, counters: Counters, log_metrics: Callable[[dict[str, float], int], object]
    ) -> Table | None:
        """Score the trained model, write the output, and return the table of scores.

        Args:
            name: of the recipe.
            work: with the model before training in ``untrained``, and the result in ``trained``.
            counters: where the training ended.
            log_metrics: logs metrics of a step.
        """


@dataclass(frozen=True)
class Pairs:
    """Paraphrase pairs, which train an encoder.

    Attributes:
        recipe: how to train.
        folder: of pair shards.
        words: word-vector text file.
        suites: what to score the encoder on, before, while and after it is trained. Without any, the last step's
            encoder is the result.
        selection: how often, and which encoder is kept.
        min_coverage: fraction of the pairs' tokens that must have a vector of their own; it does not decide the result.
        max_bytes: memory of a worker for the pairs; more of them are kept in files.
    """

    recipe: Recipe
    folder: Path
    words: Path
    suites: Sequence[Suite] = ()
    selection: Selection = field(default_factory=Selection)
    min_coverage: float = MIN_COVERAGE
    max_bytes: int = 2**62

    job: ClassVar[str] = "train"
    model: ClassVar[str] = "encoder"
    unit: ClassVar[str] = "pairs"
    share: ClassVar[str] = "active"
    texts: ClassVar[str] = "the pairs"
    about: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a minimum coverage that is no fraction."""
        check_min_coverage(self.min_coverage)

    @property
    def vectors(self) -> str:
        """Name of the word-vector file."""
        return self.words.name

    @property
    def warns_of_collapse(self) -> bool:
        """Whether the share is one of hinge terms."""
        return self.recipe.objective == "margin"

    @cached_property
    def shards(self) -> dict[str, Any]:
        """Manifest of the shards, whose digests are checked."""
        doing(f"checking the digests of {self.folder.name}")
        return read_pair_manifest(self.folder)

    @property
    def num_pairs(self) -> int:
        """How many pairs there are."""
        kept: int = self.shards["counts"]["kept"]
        return kept

    @cached_property
    def _scoring(self) -> Scoring | None:
        if not self.suites:
            return None
        select = chosen_metric(self.selection.select, self.suites)
        decides = {"sets": suites_digest(self.suites), "select": select}
        scorer = SuiteScorer(tuple(self.suites), ((1, select),))
        return Scoring(scorer, select, self.selection.eval_every, self.selection.patience, decides)

    def scoring(self, num: int) -> Scoring | None:  # noqa: ARG002
        """Return what the encoder is scored by; see ``TrainingData``."""
        return self._scoring

    def inputs(self) -> dict[str, Any]:
        """Return digests of pairs and words."""
        return {"pairs": sha256_of(self.folder / "manifest.json"), "words": sha256_of(self.words)}

    def identity(self) -> dict[str, Any]:
        """Return what decides the encoder; OSError or ValueError where pairs or words are not there, or not whole."""
        self.shards  # noqa: B018  is read first
        require_file(self.words)
        identity = {"recipe": self.recipe.to_dict(), **self.inputs()}
        if self._scoring is None:
            return identity
        every = {"every": self.selection.eval_every, "patience": self.selection.patience}
        return {**identity, "evaluation": {**self._scoring.decides, **every}}

    def identity_at(self, out: Path) -> dict[str, Any]:
        """Return what decided the encoder of a folder."""
        return recorded_identity(checkpoint.read_config(out), Recipe)

    def table_at(self, out: Path) -> Table | None:  # noqa: ARG002
        """Return none: the scores of an encoder are in its README."""
        return None

    def params(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return what MLflow logs of it."""
        scored = {"evaluation": identity["evaluation"]} if "evaluation" in identity else {}
        return {**scored, "pairs": self.num_pairs, "pairs_digest": identity["pairs"], "words": identity["words"]}

    def size(self) -> tuple[int, int, Path]:
        """Return tokens, about, by the sizes of the columns, pairs, and the word-vector file.

        Raises:
            OSError: a column is encrypted.
        """
        text_bytes = 0
        for shard in self.shards["shards"]:
            with pq.ParquetFile(self.folder / shard["name"]) as file:
                groups = chunks_of(file, range(file.num_row_groups), {"first", "second"})
                text_bytes += sum(chunk.total_uncompressed_size for chunks in groups for chunk in chunks)
        return text_bytes // _TOKEN_BYTES, self.num_pairs, self.words

    def check(self, workers: int, workers_here: int, *, gpus: bool) -> None:
        """Raise ValueError for too few pairs or too little memory."""
        check_num_pairs(self.num_pairs, self.recipe.batch_size, workers)
        num_tokens, num_pairs, words = self.size()
        device = "cuda" if gpus else "cpu"
        are_shared = step_kind(self.recipe.encoder, self.recipe, device, workers_here) == "shared"
        memory = estimate(
            *(words, self.recipe, num_tokens, num_pairs, workers_here, self.max_bytes),
            are_shared=are_shared,
            keeps_best=bool(self.suites),
        )
        check_memory(memory, available_memory())

    def untrained(self) -> tuple[Encoder, Coverage]:
        """Return the encoder before training, and how well its words cover the pairs."""
        return untrained_encoder(self.words, self.folder, self.shards, self.recipe)

    def with_recipe(self, recipe: BaseRecipe) -> "Pairs":
        """Return the same pairs with another recipe."""
        assert isinstance(recipe, Recipe)
        return replace(self, recipe=recipe)

    def for_workers(self) -> "Pairs":
        """Return it as it is."""
        return self

    def files(self) -> tuple[list[str], list[str]]:
        """Return the shards, and the columns that the encoder reads."""
        files = [str(self.folder / shard["name"]) for shard in self.shards["shards"]]
        return files, pair_columns(pq.read_schema(files[0]), self.recipe.encoder.reads_trees)

    def read(
        self, model: Encoder, blocks: Iterable[pa.Table] | None = None, scratch: Path | None = None, world: int = 1
    ) -> tuple[Ragged, int, list[str]]:
        """Return the pairs as word ids; see ``TrainingData``."""
        notes = _Notes()
        pairs = pairs_to_ids(
            self._counted(self._blocks() if blocks is None else blocks, model, notes),
            model.vocabulary,
            model.composition.reads_trees,
            max_tokens=model.max_tokens,
            limit=None if scratch is None else MemoryLimit(self.max_bytes, scratch),
        )
        if len(pairs) != 2 * self.num_pairs:
            raise ValueError(f"read {len(pairs) // 2:,} pairs; the manifest says {self.num_pairs:,}: shard them again")
        lines = [str(pairs)] if isinstance(pairs, MappedPairs) else []
        lines += notes.lines(model)
        lines += [exchanged(model, self.recipe, world)] if world > 1 else []
        return pairs, self.num_pairs, lines

    def _blocks(self) -> Iterator[pa.Table]:
        files, columns = self.files()
        for file in files:
            yield from map(pa.table, pq.ParquetFile(file).iter_batches(_BLOCK_ROWS, columns=columns))

    def _counted(self, blocks: Iterable[pa.Table], encoder: Encoder, notes: "_Notes") -> Iterator[pa.Table]:
        for block in blocks:
            notes.add(block, encoder)
            yield block
            doing(f"reading the pairs: {notes.texts // 2:,} of {self.num_pairs:,}")

    def load(self, folder: Path) -> Encoder:
        """Load an encoder."""
        return checkpoint.load(folder)

    def save(self, model: Encoder, folder: Path, card: str) -> None:
        """Write an encoder folder that is not finished."""
        checkpoint.save(model, folder, recipe=self.recipe.to_dict(), provenance={}, model_card=card)

    def train(self, model: Encoder, examples: Ragged, **how: Any) -> Counters:
        """Train an encoder in place."""
        return train(model, examples, self.recipe, **how)

    def finish(
        self, name: str, work: Work, counters: Counters, log_metrics: Callable[[dict[str, float], int], object]
    ) -> Table | None:
        """Score the encoder, write its folder with the scores and a picture; see ``TrainingData``."""
        kept = self._scoring.kept(counters) if self._scoring else None
        if self._scoring is not None and kept is None:
            log.warning("no evaluation has a score: the encoder of the last step is the result")
        if kept is not None:
            say(kept.in_words())
            log_metrics(kept.metrics(), counters.step)
        after = trained(work.folder / "trained")
        scores = self._scores(work.folder, after)
        if scores is not None:  # at the last step: the newest value of each is that of the encoder that is kept
            log_metrics(scores.metrics(), counters.step)
        encoder, shards = after.encoder, self.shards
        assert isinstance(encoder, Encoder)
        sources = {name: counts["pairs"] - counts["duplicates"] for name, counts in shards.get("sources", {}).items()}
        words, title = kept.in_words() if kept else "", f"{name}: {encoder_name(self.recipe.encoder)}"
        card = model_card(name, self.recipe, encoder.width, counters.last_loss, sources, scores, words)
        checkpoint.save(
            encoder,
            work.out,
            recipe=self.recipe.to_dict(),
            provenance={
                **provenance_of(work.fingerprint, counters),
                "data": {"pairs": self.num_pairs, "halvings": shards.get("settings", {}).get("halvings")},
                "loss": counters.last_loss,
                **({"selected": kept.to_dict()} if kept else {}),
            },
            model_card=f"{card}\n![Loss, share of active terms and scores]({PICTURE})\n",
            written=work.folder / "trained",
            write_more=lambda folder: draw(folder / PICTURE, title, counters, self.num_pairs, kept, _changes(scores)),
        )
        return None if scores is None else scores.table()

    def _scores(self, folder: Path, after: Candidate) -> Report | None:
        """Return the scores of the encoder that is kept and of the untrained one; None where one has no score."""
        if not self.suites:
            return None
        before = Candidate("untrained", "before training", checkpoint.load(folder / "untrained"), is_baseline=True)
        try:
            return compare([after, before], self.suites, progress=doing)
        except ValueError as error:
            log.warning("no scores of the finished encoder: %s", error)
            return None


class _Notes:
    """Counts of texts that an encoder does not read as its user may expect."""

    def __init__(self) -> None:
        self.texts = self.cut = self.without_tree = self.several = 0

    def add(self, block: pa.Table, encoder: Encoder) -> None:
        """Count the texts of a block."""
        self.texts += 2 * len(block)
        if encoder.max_tokens is not None:
            self.cut += num_cut(block, encoder.max_tokens)
        if encoder.composition.reads_trees:
            self.without_tree += num_without_tree(block)
        if isinstance(encoder.config, WordConfig):
            self.several += num_cut(block, 1)

    def lines(self, encoder: Encoder) -> list[str]:
        """What to say of them."""
        lines = []
        of = f"of {self.texts:,} texts"
        if self.cut:
            lines.append(f"{self.cut:,} {of} are cut after max_tokens = {encoder.max_tokens} tokens")
        if self.without_tree:
            lines.append(f"{self.without_tree:,} {of} have no parse: right-branching trees are used")
        if self.several:
            lines.append(f"{self.several:,} {of} have several words: the encoder word reads the first")
        return lines


def recorded_identity(config: dict[str, Any], kind: type[BaseRecipe]) -> dict[str, Any]:
    """Return the identity of a finished training, from the configuration of its result; missing fields of the recipe
    have their defaults.
    """
    provenance = config.get("provenance")
    identity = provenance.get("training") if isinstance(provenance, dict) else None
    identity = identity if isinstance(identity, dict) else {}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        identity = {**identity, "recipe": kind.from_dict(identity["recipe"]).to_dict()}
    return identity


def provenance_of(identity: dict[str, Any], counters: Counters) -> dict[str, Any]:
    """Return what every finished training records of itself."""
    arithmetic = {"arithmetic_from_step": counters.arithmetic} if len(counters.arithmetic) > 1 else {}
    return {"training": identity, "steps": counters.step, "workers_from_step": counters.workers, **arithmetic}


def draw(
    path: Path,
    title: str,
    counters: Counters,
    num: int,
    kept: Kept | None,
    changes: Sequence[ScoreChange] = (),
    **words: str,
) -> None:
    """Write the picture of a training on so many examples an epoch; one that cannot be written costs a warning."""
    try:
        curve = ScoreCurve(kept.metric, counters.scores, kept.best[0]) if kept else None
        draw_training(path, title, counters.curve, num, changes, curve, **words)
    except (OSError, ValueError) as error:
        log.warning("the picture %s could not be written (%s); the rest is whole", path.name, error)


def _changes(scores: Report | None) -> list[ScoreChange]:
    if scores is None:
        return []
    after, before = (column.scores for column in scores.columns)
    lines = [pair for pair in zip(after, before, strict=True) if not pair[0].is_pooled]
    if len(lines) > _MOST_SCORES:
        lines = [pair for pair in lines if pair[0].is_mean] or lines[:_MOST_SCORES]
    return [ScoreChange(shortened(new.label, _LABEL), old.value, new.value, new.is_mean) for new, old in lines]
