"""Pairs as training data: they train an encoder; see also ``supervised.labels``."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint, encoders
from paraembed.console import doing, say
from paraembed.encoders.configs import WordConfig
from paraembed.evaluation.candidates import Candidate, trained
from paraembed.evaluation.report import Report, compare, model_card
from paraembed.evaluation.selection import SuiteScorer, chosen_metric, suites_digest
from paraembed.evaluation.sets import Suite
from paraembed.io.fingerprint import digest_of, sha256_of
from paraembed.io.parquet import chunks_of
from paraembed.io.places import Place
from paraembed.io.resume import Work
from paraembed.late import Late
from paraembed.pairs.shards import has_ptb_tokens, read_pair_manifest
from paraembed.plots import ScoreChange, ScoreCurve, draw_training, shortened
from paraembed.process import versions
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.settings import MAX_BAD_WORDS, MIN_COVERAGE, Selection, check_min_coverage
from paraembed.text import OF_PIECES
from paraembed.text.ragged import Ragged
from paraembed.training.best import BestCheckpoint, Evaluation
from paraembed.training.fast import step_kind
from paraembed.training.initial import Coverage, Memory, estimate, tokenizer_of_pairs, untrained_encoder, words_digest
from paraembed.training.pairs import (
    MappedPairs,
    are_written,
    check_num_pairs,
    ids_of_blocks,
    num_cut,
    num_without_tree,
    pair_columns,
    pairs_to_ids,
    read_pairs,
    write_pairs,
)
from paraembed.training.state import Counters

if TYPE_CHECKING:
    from paraembed.encoders import Encoder
    from paraembed.training import loop, step
else:
    loop, step = Late("paraembed.training.loop"), Late("paraembed.training.step")

PICTURE = "training.png"
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows of a table."""

_BLOCK_ROWS = 65_536
_TOKEN_BYTES = 5  # of the shards' text a token, about
_MOST_SCORES = 45  # lines of the picture
_LABEL = 60  # characters

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pairs:
    """Paraphrase pairs that train an encoder."""

    recipe: Recipe  # recipe of the training
    folder: Path  # folder of pair shards
    words: Path  # word-vector file, or folder of an averaging encoder, whose vectors and tokenizer are taken
    # Sets to score the encoder on before, during and after training; without any, the encoder of the last step is kept.
    suites: Sequence[Suite] = ()
    # How often to evaluate, and how to select the best checkpoint.
    selection: Selection = field(default_factory=Selection)
    # Fraction of the pairs' tokens that must have a word vector; it does not change the result.
    min_coverage: float = MIN_COVERAGE
    # Fraction of bad rows of a word-vector file that are skipped; it does not change the result.
    max_bad_words: float = MAX_BAD_WORDS
    # Memory for the pairs; larger data are read from disk in windows of this size, a window a worker.
    max_bytes: int = 2**62
    # The texts are tokens of ``ptb-v1``, even if the shards have another tokenizer: shards made from shards.
    has_ptb_tokens: bool = False
    license_id: str = ""  # license of the encoder, for its model card

    job: ClassVar[str] = "train"
    model: ClassVar[str] = "encoder"
    unit: ClassVar[str] = "pairs"
    share: ClassVar[str] = "active"
    texts: ClassVar[str] = "the pairs"

    def __post_init__(self) -> None:
        """Raise ValueError if the minimum coverage is not a fraction."""
        check_min_coverage(self.min_coverage)

    @property
    def vectors(self) -> str:
        """Name of the word-vector file."""
        return self.words.name

    @property
    def warns_of_collapse(self) -> bool:
        """Whether the fraction is one of hinge terms."""
        return self.recipe.objective == "margin"

    @cached_property
    def shards(self) -> dict[str, Any]:
        """Manifest of the shards, after a check of their digests."""
        doing(f"checking the digests of {self.folder.name}")
        return read_pair_manifest(self.folder)

    @cached_property
    def paths(self) -> list[Path]:
        """Files of the shards; raise ValueError without any."""
        paths = [self.folder / shard["name"] for shard in self.shards["shards"]]
        if not paths:
            raise ValueError(f"{self.folder}/manifest.json names no pair shards; shard the pairs again")
        return paths

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        kept: int = self.shards["counts"]["kept"]
        return kept

    @cached_property
    def _evaluation(self) -> Evaluation | None:
        if not self.suites:
            return None
        select = chosen_metric(self.selection.select, self.suites)
        decides = {"sets": suites_digest(self.suites), "select": select}
        every, patience = self.selection.eval_every, self.selection.patience
        return Evaluation(self.scorer([(1, select)]), select, every, patience, decides)

    def scorer(self, metric: Sequence[tuple[float, str]]) -> SuiteScorer:
        """Return what scores an encoder on the suites."""
        return SuiteScorer(tuple(self.suites), tuple(metric))

    def evaluation(self, num: int) -> Evaluation | None:  # noqa: ARG002
        """Return how the encoder is evaluated; None: the encoder of the last step is kept."""
        return self._evaluation

    def inputs(self) -> dict[str, Any]:
        """Return the digests of pairs and word vectors, labeled data sets that the vectors know, and the tokenizer
        ``ptb-v1`` if it tokenizes texts that the shards do not say to be its tokens.
        """
        digests: dict[str, Any] = {"pairs": sha256_of(self.folder / "manifest.json"), "words": words_digest(self.words)}
        config = checkpoint.read_config(self.words) if self.words.is_dir() else {}
        if gold := checkpoint.gold_of(config.get("provenance") or {}):
            digests["gold"] = gold  # the fingerprint of an encoder does not cover what it was trained on
        is_ptb = self._tokenizer(config.get("tokeniser", "space")) == "ptb-v1"
        if is_ptb and not (self.has_ptb_tokens or has_ptb_tokens(self.shards)):
            digests["tokenizer"] = "ptb-v1"  # earlier versions took the shards' tokens
        return digests

    def identity(self) -> dict[str, Any]:
        """Return what decides the encoder; raise OSError or ValueError if pairs or word vectors are missing or
        damaged.
        """
        self.shards  # noqa: B018  is read first
        identity = {"recipe": self.recipe.to_dict(), **self.inputs()}
        if self._evaluation is None:
            return identity
        every = {"every": self.selection.eval_every, "patience": self.selection.patience}
        return {**identity, "evaluation": {**self._evaluation.decides, **every}}

    def identity_at(self, out: Path) -> dict[str, Any]:
        """Return what decided the encoder of a folder."""
        return recorded_identity(checkpoint.read_config(out), Recipe)

    def table_at(self, out: Path) -> Table | None:  # noqa: ARG002
        """Return None, since the scores of an encoder are in its README."""
        return None

    def params(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that are logged to MLflow."""
        scored = {"evaluation": identity["evaluation"]} if "evaluation" in identity else {}
        pairs = {"pairs": self.num_pairs, "pairs_digest": identity["pairs"], "words": identity["words"]}
        return {**scored, **pairs}

    def datasets(self, identity: dict[str, Any]) -> list[tuple[str, str, Place, int | None]]:
        """Return the inputs for MLflow: name, digest, path, number of rows."""
        pairs = "pairs", str(identity["pairs"]), self.folder, self.num_pairs
        return [pairs, ("words", identity["words"], self.words, None)]

    def start_of(self, identity: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return name, size and digest of the word vectors, see ``start_record``."""
        return {"words": start_record(self.words, identity["words"])}

    def size(self) -> tuple[int, int, Path]:
        """Return the approximate number of tokens (from the sizes of the columns), the number of pairs, and the
        word-vector file.

        Raises:
            OSError: a column is encrypted.
        """
        text_bytes = 0
        for shard in self.shards["shards"]:
            with pq.ParquetFile(self.folder / shard["name"]) as file:
                groups = chunks_of(file, range(file.num_row_groups), {"first", "second"})
                text_bytes += sum(chunk.total_uncompressed_size for chunks in groups for chunk in chunks)
        return text_bytes // _TOKEN_BYTES, self.num_pairs, self.words

    def check(self, workers: int) -> None:
        """Raise ValueError if there are too few pairs."""
        check_num_pairs(self.num_pairs, self.recipe.batch_size, workers)

    def check_tokens(self) -> None:
        """Raise ValueError if the words are pieces of texts as they are, and the shards have tokens of ``ptb-v1``."""
        if not self.words.is_dir() or self.recipe.encoder.reads_trees:
            return
        tokenizer = checkpoint.read_config(self.words)["tokeniser"]
        if tokenizer in OF_PIECES and has_ptb_tokens(self.shards):
            raise ValueError(
                f"{self.folder} has tokens of ptb-v1, but the words of {self.words.name} are {tokenizer} of texts as "
                "they are; shard the pairs again with `tokenizer` space"
            )

    def check_sweep(self, workers: int, retrained: Path | None) -> None:  # noqa: ARG002
        """Raise OSError or ValueError if a sweep could not start: its trials, or the full training on the shards in
        ``retrained``.
        """
        words_digest(self.words)
        for folder in [self.folder, *([] if retrained is None else [retrained])]:
            read_pair_manifest(folder)

    def _tokenizer(self, of_encoder: str) -> str:
        return tokenizer_of_pairs(self.words, of_encoder, reads_trees=self.recipe.encoder.reads_trees)

    def memory(self, workers: int, *, gpus: bool) -> Memory:
        """Return the memory of a number of workers on one machine."""
        num_tokens, num_pairs, words = self.size()
        device = "cuda" if gpus else "cpu"
        return estimate(
            words,
            self.recipe,
            num_tokens,
            num_pairs,
            workers,
            most_pair_bytes=self.max_bytes,
            are_shared=step_kind(self.recipe.encoder, self.recipe, device, workers) == "shared",
            keeps_best=bool(self.suites),
        )

    def untrained(self) -> "tuple[Encoder, Coverage]":
        """Return the encoder before training, and the coverage of the pairs by its vocabulary."""
        return untrained_encoder(self.words, self._blocks(["first", "second"]), self.recipe, self.max_bad_words)

    def with_recipe(self, recipe: BaseRecipe) -> "Pairs":
        """Return the same pairs with another recipe."""
        assert isinstance(recipe, Recipe)
        return replace(self, recipe=recipe)

    def for_workers(self) -> "Pairs":
        """Return the data unchanged."""
        return self

    def convert(self, untrained: Path, folder: Path) -> bool:
        """Write the pairs to a folder as word ids of the encoder in ``untrained``, and return True; False if they are
        there. Raise OSError or ValueError if shards are damaged, or the folder cannot be written to.
        """
        doing(f"checking the pairs in {folder}")
        encoder = checkpoint.read_config(untrained)
        source = digest_of([self.shards, encoder["fingerprint"], self._tokenizer(encoder["tokeniser"])])
        if are_written(folder, source):
            return False
        unread: Counter[str] = Counter()
        blocks, how = self._to_convert(self.load(untrained), unread)
        write_pairs(folder, ids_of_blocks(blocks, **how), source, unread)
        return True

    def read(self, model: "Encoder", folder: Path | None = None, world: int = 1) -> tuple[Ragged, int, list[str]]:
        """Return the pairs as word ids, their number, and remarks for the user, such as truncated texts.

        ``folder`` is that of ``convert``; None: convert the pairs in memory.
        """
        unread = Counter[str]()
        if folder is None:
            blocks, how = self._to_convert(model, unread)
            pairs = pairs_to_ids(blocks, **how)
        else:
            pairs, counts = read_pairs(folder, self.num_pairs)
            unread.update(counts)
            pairs = pairs if pairs.nbytes <= self.max_bytes else MappedPairs.of(pairs, self.max_bytes)
        lines = [str(pairs)] if isinstance(pairs, MappedPairs) else []
        lines += [f"{count:,} of {len(pairs):,} texts {what}" for what, count in unread.items() if count]
        lines += [step.exchanged(model, self.recipe, world)] if world > 1 else []
        return pairs, self.num_pairs, lines

    def _to_convert(self, model: "Encoder", unread: Counter[str]) -> tuple[Iterator[pa.Table], dict[str, Any]]:
        """Return the blocks of the shards, and the other arguments of ``pairs_to_ids``."""
        with_trees = model.composition.reads_trees
        blocks = self._blocks(pair_columns(pq.read_schema(self.paths[0]), with_trees))
        tokenizer = self._tokenizer(model.tokenizer)
        how = {"vocabulary": model.vocabulary, "with_trees": with_trees, "tokenizer": tokenizer}
        return self._counted(blocks, model, unread), {**how, "max_tokens": model.max_tokens}

    def _blocks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for path in self.paths:
            yield from map(pa.table, pq.ParquetFile(path).iter_batches(_BLOCK_ROWS, columns=columns))

    def _counted(self, blocks: Iterable[pa.Table], encoder: "Encoder", unread: Counter[str]) -> Iterator[pa.Table]:
        num_pairs = 0
        for block in blocks:
            unread.update(_unread(block, encoder))
            num_pairs += len(block)
            yield block
            doing(f"reading the pairs: {num_pairs:,} of {self.num_pairs:,}")
        if num_pairs != self.num_pairs:
            raise ValueError(
                f"read {num_pairs:,} pairs, but the manifest says {self.num_pairs:,}; shard the pairs again"
            )

    def load(self, folder: Path) -> "Encoder":
        """Load an encoder."""
        return checkpoint.load(folder)

    def save(self, model: "Encoder", folder: Path, card: str) -> None:
        """Write an encoder folder that is still in progress."""
        checkpoint.save(model, folder, recipe=self.recipe.to_dict(), provenance={}, model_card=card, overwrite=True)

    def train(self, model: "Encoder", examples: Ragged, **how: Any) -> Counters:
        """Train an encoder in place."""
        return loop.train(model, examples, self.recipe, **how)

    def finish(
        self, name: str, work: Work, counters: Counters, log_metrics: Callable[[dict[str, float], int], object]
    ) -> Table | None:
        """Evaluate the encoder, write its folder with scores and a plot, and return the table of scores.

        ``name`` is that of the recipe; the work folder has the encoder before training in ``untrained``, and the
        trained one in ``trained``.
        """
        best = self._evaluation.best_checkpoint(counters) if self._evaluation else None
        if self._evaluation is not None and best is None:
            log.warning("no evaluation has a score, so the encoder of the last step is kept")
        if best is not None:
            say(best.in_words())
            log_metrics(best.metrics(), counters.step)
        after = trained(work.folder / "trained")
        scores = self._scores(work.folder, after)
        if scores is not None:  # at the last step: the newest value of each is that of the encoder that is kept
            log_metrics(scores.metrics(), counters.step)
        encoder, shards = after.encoder, self.shards
        assert isinstance(encoder, encoders.Encoder)
        sources = {name: counts["pairs"] - counts["duplicates"] for name, counts in shards.get("sources", {}).items()}
        words, title = best.in_words() if best else "", f"{name}: {self.recipe.encoder.name}"
        start = self.start_of(work.fingerprint)
        facts = words, start, self.license_id
        card = model_card(name, self.recipe, encoder, counters.last_loss, sources, scores, *facts)
        checkpoint.save(
            encoder,
            work.out,
            recipe=self.recipe.to_dict(),
            provenance={
                **provenance_of(work.fingerprint, counters, start),
                "data": {"pairs": self.num_pairs, "halvings": shards.get("settings", {}).get("halvings")},
                "loss": counters.last_loss,
                **({"selected": best.to_dict()} if best else {}),
            },
            model_card=f"{card}\n![Loss, share of active terms and scores]({PICTURE})\n",
            written=work.folder / "trained",
            overwrite=work.overwrite,
            write_more=lambda folder: draw(folder / PICTURE, title, counters, self.num_pairs, best, _changes(scores)),
        )
        return None if scores is None else scores.table()

    def _scores(self, folder: Path, after: Candidate) -> Report | None:
        """Return the scores of the selected encoder and of the untrained one; None if either has no score."""
        if not self.suites:
            return None
        before = Candidate("untrained", "before training", checkpoint.load(folder / "untrained"), is_baseline=True)
        try:
            return compare([after, before], self.suites, progress=doing)
        except ValueError as error:
            log.warning("the finished encoder has no scores: %s", error)
            return None


def _unread(block: pa.Table, encoder: "Encoder") -> dict[str, int]:
    """Return the numbers of texts that the encoder reads only in part, by the remark for the user."""
    counts = {}
    if encoder.max_tokens is not None:
        cut = num_cut(block, encoder.max_tokens)
        counts[f"are truncated to max_tokens = {encoder.max_tokens} tokens"] = cut
    if encoder.composition.reads_trees:
        counts["have no parse tree; right-branching trees are used"] = num_without_tree(block)
    if isinstance(encoder.config, WordConfig):
        counts["have several words; the encoder word reads only the first"] = num_cut(block, 1)
    return counts


def recorded_identity(config: dict[str, Any], kind: type[BaseRecipe]) -> dict[str, Any]:
    """Return the identity of a finished training from the configuration in its output; missing recipe fields get their
    defaults.
    """
    provenance = config.get("provenance")
    identity = provenance.get("training") if isinstance(provenance, dict) else None
    identity = identity if isinstance(identity, dict) else {}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        identity = {**identity, "recipe": kind.from_dict(identity["recipe"]).to_dict()}
    return identity


def start_record(place: Path, digest: str) -> dict[str, Any]:
    """Return name, size and digest (known, since reading 2 GB takes 1.5 s) of a file; no size of an encoder folder."""
    of_file = {"bytes": place.stat().st_size, "sha256": digest}
    return {"name": place.name, **({"fingerprint": digest} if place.is_dir() else of_file)}


def provenance_of(identity: dict[str, Any], counters: Counters, start: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the provenance that every finished training records; ``start`` is what it started from.

    All of it follows from inputs, settings and installation, so that equal trainings have equal bytes. What differs
    between them (user, time, command line, Git commit) is in the MLflow run.
    """
    arithmetic = {"arithmetic_from_step": counters.arithmetic} if len(counters.arithmetic) > 1 else {}
    return {
        "training": identity,
        "steps": counters.step,
        "workers_from_step": counters.workers,
        **arithmetic,
        "start": start,
        "versions": versions(),
    }


def draw(
    path: Path,
    title: str,
    counters: Counters,
    num: int,
    best: BestCheckpoint | None,
    changes: Sequence[ScoreChange] = (),
    **words: str,
) -> None:
    """Plot a training with ``num`` examples per epoch; if the file cannot be written, log a warning."""
    try:
        curve = ScoreCurve(best.metric, counters.scores, best.best[0]) if best else None
        draw_training(path, title, counters.curve, num, changes, curve, **words)
    except (OSError, ValueError) as error:
        log.warning("the plot %s could not be written (%s); all other outputs are complete", path.name, error)


def _changes(scores: Report | None) -> list[ScoreChange]:
    if scores is None:
        return []
    after, before = (column.scores for column in scores.columns)
    lines = [pair for pair in zip(after, before, strict=True) if not pair[0].is_pooled]
    if len(lines) > _MOST_SCORES:
        lines = [pair for pair in lines if pair[0].is_mean] or lines[:_MOST_SCORES]
    return [ScoreChange(shortened(new.label, _LABEL), old.value, new.value, new.is_mean) for new, old in lines]
