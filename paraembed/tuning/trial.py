"""A trial: train a model from shared inputs, score it at the end of every epoch."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from paraembed.encoders import Encoder
from paraembed.encoders.base import reads_trees
from paraembed.evaluation.selection import metrics_of
from paraembed.evaluation.sets import Suite
from paraembed.io.escape import listed
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words
from paraembed.training.exchange import gather_texts
from paraembed.training.inputs import check_coverage, untrained_encoder
from paraembed.training.loop import AstrayError, Report, train
from paraembed.training.pairs import pair_columns, pairs_to_ids
from paraembed.training.state import Counters
from paraembed.tuning.ledger import Epoch, Status, counting

Metric = Sequence[tuple[float, str]]
"""Weights and names; their weighted sum is maximised."""

_BLOCK_ROWS = 65_536
DECIDES_INPUTS = (
    *("tokeniser", "max_words", "new_words", "new_words_min_count", "boundary_tokens", "max_tokens", "seed"),
)
"""Fields of a recipe that its inputs depend on, besides the encoder."""


class Inputs(Protocol):
    """What trials share; nothing in it is written to. Of pairs: ``PairInputs``; of gold labels: ``gold.GoldInputs``."""

    def __len__(self) -> int:
        """How many pairs, or examples."""

    def first(self, num: int) -> "Inputs":
        """The first of them."""

    def part(self, share: float, seed: int) -> "Inputs":
        """A share of them, drawn by the seed."""

    def model(self, recipe: Any, device: str = "cpu") -> Any:
        """The encoder, or the encoder with a head, before training."""

    def fit(
        self,
        model: Any,
        recipe: Any,
        *,
        rank: int = 0,
        world: int = 1,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> Counters:
        """Train what ``model`` gave; arguments and errors as for ``training.loop.train``."""


class AnyScorer(Protocol):
    """Gives a model's score, and all metrics: ``Scorer``, or ``gold.GoldScorer``."""

    keeps_best: ClassVar[bool]
    """Whether a trial's score is that of its best epoch so far, or of its last one.

    With the best one, an epoch may be without a score; else that ends the trial.
    """

    def __call__(self, model: Any, /) -> tuple[float, dict[str, float]]:
        """Score a model; ValueError where that is not possible."""


@dataclass(frozen=True)
class PairInputs:
    """What trials on pairs share.

    Attributes:
        vocabulary: string array [V].
        matrix: float32 [V, D], the initial word vectors.
        pairs: 2n texts, the two of a pair side by side.
    """

    vocabulary: pa.StringArray
    matrix: npt.NDArray[np.float32]
    pairs: Ragged

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.pairs) // 2

    def first(self, num: int) -> "PairInputs":
        """The first pairs."""
        return replace(self, pairs=self.pairs.slice(0, 2 * num))

    def part(self, share: float, seed: int) -> "PairInputs":
        """A share of the pairs, at least two, drawn by the seed; a smaller one lies in a larger one."""
        if share >= 1:
            return self
        drawn = np.random.default_rng(seed).permutation(len(self))[: max(2, round(share * len(self)))]
        return replace(self, pairs=self.pairs.take_pairs(np.sort(drawn)))

    def model(self, recipe: Recipe, device: str = "cpu") -> Encoder:
        """The encoder before training; the word matrix is a copy."""
        return Encoder(
            recipe.encoder,
            Words(self.vocabulary, self.matrix.copy()),
            recipe.tokeniser,
            recipe.seed,
            boundary_tokens=recipe.boundary_tokens,
            max_tokens=recipe.max_tokens,
        ).to(device)

    def fit(
        self,
        model: Encoder,
        recipe: Recipe,
        *,
        rank: int = 0,
        world: int = 1,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> Counters:
        """Train an encoder in place."""
        return train(model, self.pairs, recipe, rank=rank, world=world, on_report=on_report)


@dataclass(frozen=True)
class Scorer:
    """What a trial on pairs is scored by.

    Attributes:
        suites: what on.
        metric: what is maximised.
    """

    suites: tuple[Suite, ...]
    metric: tuple[tuple[float, str], ...]
    keeps_best: ClassVar[bool] = False

    def __call__(self, encoder: Encoder) -> tuple[float, dict[str, float]]:
        """The score, and the metrics of all sets.

        Raises:
            ValueError: a correlation that is not defined, or a metric that the suites do not give.
        """
        metrics = metrics_of(encoder, self.suites)
        missing = [name for _, name in self.metric if name not in metrics]
        if missing:
            raise ValueError(f"{missing[0]} is not among the scores: {listed(metrics, 50)}")
        return sum(weight * metrics[name] for weight, name in self.metric), metrics


def needed(suite: Suite, metric: Metric) -> Suite:
    """The groups of a suite, or the sets of a group without a name, that a metric is about; else the whole suite."""
    names = [name for _, name in metric]

    def is_named(part: str) -> bool:
        return any(name.startswith(f"{suite.name}/{part}/") for name in names)

    groups = []
    for group in suite.groups:
        if not group.name:
            sets = tuple(one for one in group.sets if is_named(one.name))
            groups += [replace(group, sets=sets)] if sets else []
        elif is_named(group.name):
            groups.append(group)
    covered = all(any(name.startswith(f"{suite.name}/{part}/") for part in _parts(groups)) for name in names)
    if not covered:
        return suite
    years = tuple(f"STS {group.name} " for group in groups)
    notes = tuple(note for note in suite.notes if not note.startswith("STS ") or note.startswith(years))
    return replace(suite, groups=tuple(groups), notes=notes)


def _parts(groups: Sequence[Any]) -> list[str]:
    return [name for group in groups for name in ([group.name] if group.name else [one.name for one in group.sets])]


def inputs_key(recipe: BaseRecipe) -> str:
    """Recipes of one key have the same inputs."""
    values = [getattr(recipe, name) for name in DECIDES_INPUTS]
    return json.dumps([*values, reads_trees(recipe.encoder)])


def read_inputs(
    words: Path, pairs: Path, shards: Mapping[str, Any], recipe: Recipe, *, min_coverage: float = 0.0
) -> PairInputs:
    """The inputs of a recipe, as ``cluster.train`` makes them.

    Args:
        words: word-vector file.
        pairs: folder of pair shards.
        shards: its manifest.
        recipe: vocabulary, boundary words, cut, seed.
        min_coverage: fraction of the pairs' tokens that must have a vector of their own.

    Raises:
        OSError, ValueError: as ``untrained_encoder`` and ``check_coverage``.
    """
    encoder, coverage = untrained_encoder(words, pairs, dict(shards), recipe)
    check_coverage(coverage, min_coverage, words.name, "the pairs")
    files = [pairs / shard["name"] for shard in shards["shards"]]
    columns = pair_columns(pq.read_schema(files[0]), reads_trees(recipe.encoder))
    blocks = (
        pa.table(batch) for file in files for batch in pq.ParquetFile(file).iter_batches(_BLOCK_ROWS, columns=columns)
    )
    ids = pairs_to_ids(blocks, encoder.vocabulary, reads_trees(recipe.encoder), max_tokens=recipe.max_tokens)
    return PairInputs(encoder.vocabulary, encoder.matrix.detach().numpy(), ids)


class _EndError(Exception):
    """What ends a trial before its last epoch."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Ended:
    """How a trial ended; see ``ledger.Record``."""

    status: Status
    reason: str
    curve: tuple[Epoch, ...]
    seconds: float
    keeps_best: bool = False


def run_trial(
    inputs: Inputs,
    recipe: BaseRecipe,
    share: float,
    scorer: AnyScorer,
    cut_offs: Mapping[int, float],
    *,
    device: str = "cpu",
    rank: int = 0,
    world: int = 1,
    on_epoch: Callable[[Epoch], None] = lambda _: None,
) -> Ended:
    """Train and score; what goes wrong is a result, too.

    Args:
        inputs: shared with other trials.
        recipe: how.
        share: of the pairs.
        scorer: what is maximised; rank 0 asks it.
        cut_offs: scores below which the trial stops, by epoch.
        device: cpu or cuda.
        rank: number of this worker; of several, each is told by rank 0 when to end, and the curve is rank 0's.
        world: how many workers.
        on_epoch: told of every epoch, by rank 0.

    Raises:
        Exception: of several workers, an error of one that the others cannot know of: whoever runs them must end them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two spin at OpenMP's barriers on a busy machine
    started = time.monotonic()
    judge = _Judge(scorer, cut_offs, recipe.epochs, rank, world, on_epoch)
    status: Status = "finished"
    reason = ""
    try:
        judge.model = inputs.model(recipe, device)
        inputs.part(share, recipe.seed).fit(judge.model, recipe, rank=rank, world=world, on_report=judge)
    except _EndError as end:
        status, reason = end.status, end.reason
    except AstrayError as error:
        status, reason = "failed", str(error)
    except Exception as error:
        if world > 1:
            raise
        status, reason = "failed", f"{type(error).__name__}: {error}"
    finally:
        torch.set_num_threads(threads)
    return Ended(status, reason, tuple(judge.curve), time.monotonic() - started, scorer.keeps_best)


class _Judge:
    """Scores a model at the end of every epoch, and ends its trial where that says so."""

    model: Any

    def __init__(
        self,
        scorer: AnyScorer,
        cut_offs: Mapping[int, float],
        epochs: int,
        rank: int,
        world: int,
        on_epoch: Callable[[Epoch], None],
    ) -> None:
        self.scorer, self.cut_offs, self.epochs = scorer, cut_offs, epochs
        self.rank, self.world, self.on_epoch = rank, world, on_epoch
        self.curve: list[Epoch] = []
        self.started = time.monotonic()

    def __call__(self, report: Report) -> None:
        if not report.end_of_epoch:
            return
        status, reason = self._verdict(report) if self.rank == 0 else ("finished", "")
        if self.world > 1:
            told = gather_texts(json.dumps([status, reason]), self.world, self.model.matrix.device)
            status, reason = json.loads(told[0])
        if status != "finished":
            raise _EndError(status, reason)

    def _verdict(self, report: Report) -> tuple[Status, str]:
        score, metrics, problem = self._scored(report.epoch)
        if problem and not self.scorer.keeps_best:
            return "failed", problem
        self.curve.append(Epoch(report.epoch, score, report.loss, metrics, time.monotonic() - self.started))
        self.on_epoch(self.curve[-1])
        reached, counted = counting(self.curve, self.scorer.keeps_best)
        if counted is None and report.epoch == self.epochs:
            return "failed", problem
        cut = self.cut_offs.get(report.epoch, -math.inf)
        if reached < cut:
            return "stopped", f"after epoch {report.epoch} its score {reached:.4f} is below {cut:.4f}"
        return "finished", ""

    def _scored(self, epoch: int) -> tuple[float | None, dict[str, float], str]:
        """Score and metrics, or why there are none."""
        try:
            score, metrics = self.scorer(self.model)
        except ValueError as error:
            return None, {}, str(error)
        if not math.isfinite(score):
            return None, {}, f"the score is {score} after epoch {epoch}"
        return score, metrics, ""
