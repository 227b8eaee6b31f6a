"""Trial of a sweep: train a model from shared inputs, and score it at the end of every epoch."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from paraembed.console import say
from paraembed.encoders import Encoder
from paraembed.encoders.configs import Oov
from paraembed.evaluation.selection import SuiteScorer
from paraembed.process import one_thread
from paraembed.recipe import BaseRecipe
from paraembed.supervised.labels import TrainingData
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.step import ExampleIds, SupervisedStep
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words
from paraembed.training.best import Scorer
from paraembed.training.initial import check_coverage, encoder_of
from paraembed.training.loop import ProgressReport, TrainingDivergedError, run_steps, train
from paraembed.training.state import Counters
from paraembed.tuning.ledger import Epoch, Status, counting
from paraembed.tuning.points import Point

DECIDES_INPUTS = (
    *("tokenizer", "max_words", "word_scale", "new_words", "new_words_min_count"),
    *("bos_eos_tokens", "max_tokens", "seed"),
)
"""Recipe fields, besides the encoder, that the inputs depend on."""
_PROBED_STEPS, _PROBE_SECONDS = 20, 1.0
_LEAST_SECONDS = 1.0  # of a trial; the first of a process takes 1.5 s, later ones on 2,000 pairs 0.2 to 0.4 s


@dataclass(frozen=True)
class TrialInputs:
    """Inputs that trials share; they are read-only."""

    vocabulary: pa.StringArray  # string array [V]
    matrix: npt.NDArray[np.float32]  # float32 [V, D], the initial word vectors
    texts: Ragged  # the texts; those of a pair or an example are adjacent
    # For labeled examples, the targets of the model's ``losses`` [n, …]; None: pairs.
    targets: npt.NDArray[Any] | None = None
    kind: Kind | None = None  # for labeled examples, the kind of the model; None: pairs
    # Initial values of the encoder's other parameters, by name; None: drawn with the seed.
    composition: Mapping[str, npt.NDArray[Any]] | None = None
    tokenizer: str = "ptb-v1"  # tokenizer of the encoder, which word vectors from an encoder bring with them
    oov: Oov = "shared"  # the encoder's vectors of OOV tokens, likewise

    @classmethod
    def of(
        cls, model: Encoder | Supervised, examples: Ragged | ExampleIds, *, is_pretrained: bool = False
    ) -> "TrialInputs":
        """Return the inputs of trials that start like a model; with its weights if it is a pretrained encoder."""
        encoder = model.encoder if isinstance(model, Supervised) else model
        own = encoder.vocabulary, encoder.matrix.detach().numpy()
        texts: dict[str, Any] = {"tokenizer": encoder.tokenizer, "oov": encoder.oov}
        if isinstance(examples, Ragged):
            return cls(*own, examples, **texts)
        assert isinstance(model, Supervised)
        weights = {name: tensor.detach().numpy() for name, tensor in encoder.composition.state_dict().items()}
        targets = examples.targets.numpy()
        return cls(*own, examples.texts, targets, model.kind, weights if is_pretrained else None, **texts)

    def __len__(self) -> int:
        """Return the number of pairs or examples."""
        return len(self.texts) // 2 if self.targets is None else len(self.targets)

    def part(self, share: float, seed: int) -> "TrialInputs":
        """Return a random fraction of the pairs, at least two; for one seed, a smaller sample is a subset of a larger
        one.
        """
        if share >= 1:
            return self
        assert self.targets is None  # no space of labeled examples searches the share
        drawn = np.random.default_rng(seed).permutation(len(self))[: max(2, round(share * len(self)))]
        return replace(self, texts=self.texts.take_pairs(np.sort(drawn)))

    def model(self, recipe: Any, device: str = "cpu") -> Any:
        """Return the encoder, or the encoder with a head, before training, with a copy of the word matrix."""
        words = Words(self.vocabulary, self.matrix.copy())
        encoder = encoder_of(recipe, words, self.tokenizer, self.oov)
        if self.composition is not None:
            encoder.composition.load_state_dict({name: _tensor(tensor) for name, tensor in self.composition.items()})
        if self.kind is None:
            return encoder.to(device)
        return Supervised(encoder, self.kind, options_of(recipe), recipe.seed).to(device)

    def fit(self, model: Any, recipe: Any, on_report: Callable[[ProgressReport], None] = lambda _: None) -> Counters:
        """Train a model returned by ``model``, in place; arguments and errors are those of ``training.loop.train``."""
        if self.targets is None:
            return train(model, self.texts, recipe, on_report=on_report)
        data = ExampleIds(self.texts, _tensor(self.targets))
        return run_steps(model, SupervisedStep(model, recipe), data, len(data), on_report=on_report)


def _tensor(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.copy())  # shared memory cannot be written to


def read_inputs(data: TrainingData, recipe: BaseRecipe) -> TrialInputs:
    """Read the inputs of a recipe like its training does.

    Raises:
        OSError, ValueError: a file cannot be read, or the words cover too few of the tokens.
    """
    data = data.with_recipe(recipe)
    model: Any
    model, coverage = data.untrained()
    check_coverage(coverage, data.min_coverage, data.vectors, data.texts)
    examples, _, notes = data.read(model)
    say(*notes)
    return TrialInputs.of(model, examples, is_pretrained=recipe.starts_from_encoder)


def inputs_key(recipe: BaseRecipe) -> str:
    """Return a key; recipes with equal keys have the same inputs."""
    values = [getattr(recipe, name, None) for name in DECIDES_INPUTS]
    return json.dumps([*values, recipe.encoder.reads_trees])


class _EndError(Exception):
    """Error that ends a trial before its last epoch."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Ended:
    """How a trial ended; see ``ledger.TrialRecord``."""

    status: Status
    reason: str
    curve: tuple[Epoch, ...]
    seconds: float
    keeps_best: bool = False
    replicates: tuple[float, ...] = ()


@one_thread()
def run_trial(
    inputs: TrialInputs,
    recipe: BaseRecipe,
    share: float,
    scorer: Scorer,
    cut_offs: Mapping[int, float],
    *,
    device: str = "cpu",
    on_epoch: Callable[[Epoch], None] = lambda _: None,
) -> Ended:
    """Train and score a trial; errors become part of the result.

    Args:
        inputs: inputs shared with other trials.
        recipe: recipe of the trial.
        share: fraction of the pairs.
        scorer: scorer whose score is maximized.
        cut_offs: epoch → score below which the trial stops.
        device: cpu or cuda.
        on_epoch: called at the end of every epoch.
    """
    watcher = _Watcher(scorer, cut_offs, recipe.epochs, on_epoch)
    status: Status = "finished"
    reason, replicates = "", tuple[float, ...]()
    try:
        watcher.model = inputs.model(recipe, device)
        inputs.part(share, recipe.seed).fit(watcher.model, recipe, watcher)
        replicates = replicates_of(scorer, watcher.model)
    except _EndError as end:
        status, reason = end.status, end.reason
    except TrainingDivergedError as error:
        status, reason = "failed", str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, other trials may succeed
        status, reason = "failed", f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - watcher.started
    return Ended(status, reason, tuple(watcher.curve), seconds, scorer.keeps_best, replicates)


def replicates_of(scorer: Scorer, model: Any) -> tuple[float, ...]:
    """Return the score of a model in each resample of the sets, to six decimals; empty for a scorer without them."""
    return tuple(scorer.replicates(model).round(6).tolist()) if isinstance(scorer, SuiteScorer) else ()


@one_thread()
def trial_seconds(
    points: Sequence[Point], inputs: Mapping[str, TrialInputs], scorer: Scorer, share: float, device: str = "cpu"
) -> float:
    """Return the mean time of a trial, in seconds and at least 1, measured on some steps of the points with a ``share``
    of the pairs, and on a trial's evaluations.

    Raise ValueError if a point cannot be trained or scored.
    """
    measured = [_seconds(point, inputs[inputs_key(point.recipe)], scorer, share, device) for point in points]
    return max(_LEAST_SECONDS, sum(measured) / len(measured))


def _seconds(point: Point, inputs: TrialInputs, scorer: Scorer, share: float, device: str) -> float:
    recipe, num = replace(point.recipe, epochs=1), max(1, round(share * point.share * len(inputs)))
    few = inputs.part(min(1.0, _PROBED_STEPS * recipe.batch_size / len(inputs)), recipe.seed)
    model = inputs.model(recipe, device)
    few.fit(model, recipe)  # compiles, warms up
    done, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < _PROBE_SECONDS and done < num:
        done += few.fit(model, recipe).pairs
    started = time.perf_counter()
    scorer(model)
    scored = time.perf_counter()
    replicates_of(scorer, model)
    return point.recipe.epochs * (seconds / done * num + scored - started) + time.perf_counter() - scored


@dataclass
class _Watcher:
    """Scorer at the end of every epoch, which ends the trial if its score is too low."""

    scorer: Scorer
    cut_offs: Mapping[int, float]
    epochs: int
    on_epoch: Callable[[Epoch], None]
    model: Any = None
    curve: list[Epoch] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __call__(self, report: ProgressReport) -> None:
        if not report.end_of_epoch:
            return
        status, reason = self._verdict(report)
        if status != "finished":
            raise _EndError(status, reason)

    def _verdict(self, report: ProgressReport) -> tuple[Status, str]:
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
            return "stopped", f"after epoch {report.epoch} its score {100 * reached:.2f} is below {100 * cut:.2f}"
        return "finished", ""

    def _scored(self, epoch: int) -> tuple[float | None, dict[str, float], str]:
        """Return score and metrics, or the reason why there are none."""
        try:
            score, metrics = self.scorer(self.model)
        except ValueError as error:
            return None, {}, str(error)
        if not math.isfinite(score):
            return None, {}, f"the score is {score} after epoch {epoch}"
        return score, metrics, ""
