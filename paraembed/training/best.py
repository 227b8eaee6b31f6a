"""Selection of the best checkpoint: dev-set scores, the weights with the best score, early stopping.

The time of the next evaluation is a function of the finished pairs and ``every``, and every worker knows every score.
So all workers stop at the same step, and a resumed run evaluates, selects and stops like an uninterrupted one.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from paraembed.late import Late
from paraembed.training.state import Counters

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch import Tensor
else:
    torch, dist = Late("torch"), Late("torch.distributed")

log = logging.getLogger(__name__)

PATIENCE = timedelta(hours=6)
"""Longest wait of workers for rank 0 while it evaluates; Ray notices at once if it fails."""
_ROUNDING = 1e-9  # 10 · 0.1 epochs are one, whatever float makes of it


class Scorer(Protocol):
    """Interface of a function that scores a model; a higher score is better."""

    keeps_best: ClassVar[bool]
    """Whether a sweep scores a trial by its best epoch so far instead of its last epoch. With the best epoch, a single
    epoch may have no score; with the last epoch, a missing score ends the trial.
    """

    def __call__(self, model: Any, /) -> tuple[float, dict[str, float]]:
        """Return the score, and all metrics by name; raise ValueError if the score is undefined."""


@dataclass(frozen=True)
class Evaluation:
    """How a model is evaluated during training; the checkpoint with the highest score is kept."""

    # A ``Scorer`` or a function like it, called on rank 0; it does not change the model. NaN means no score.
    scorer: Callable[[Any], tuple[float, dict[str, float]]]
    metric: str = "score"  # name of the score
    every: float = 1.0  # epochs between evaluations; the model is also evaluated at the end of the run
    # Number of consecutive evaluations without a new best score that end the run; None: no early stopping.
    patience: int | None = None
    # JSON value that the score depends on; a checkpoint with another value is rejected.
    decides: dict[str, Any] = field(default_factory=dict)
    # Called on rank 0 with the metrics of each evaluation, and its step.
    log_metrics: Callable[[dict[str, float], int], object] = lambda *_: None
    show: Callable[[str], object] = lambda _: None  # called on rank 0 with a line for each evaluation

    def __post_init__(self) -> None:
        """Raise ValueError if a number is not allowed."""
        if not 0 < self.every < math.inf:
            raise ValueError(f"every is {self.every}; expected a number of epochs above 0, such as 0.25")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience is {self.patience}; it must be at least 1, or None for no early stopping")

    def score(self, model: Any, step: int) -> float:
        """Return the score of a model after a step, and log the metrics.

        If the score is undefined (all texts have the same vector), log a warning and return NaN.
        """
        try:
            value, metrics = self.scorer(model)
        except ValueError as error:
            log.warning("the evaluation after step %d has no score: %s", step, error)
            return math.nan
        self.log_metrics(metrics, step)
        return value

    def best_checkpoint(self, counters: Counters) -> "BestCheckpoint | None":
        """Return the best checkpoint; None if no evaluation has a score."""
        return (
            None if counters.best is None else BestCheckpoint(self.metric, self.every, counters.best, counters.scores)
        )


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint that a training keeps, and why."""

    metric: str  # name of the score that selects it
    every: float  # epochs between evaluations
    best: tuple[int, int, float]  # its step, the number of pairs (or examples) finished by then, and its score
    # The same three values of every evaluation; the score is None if it is undefined.
    scores: Sequence[tuple[int, int, float | None]]

    def in_words(self) -> str:
        """Return a sentence that describes the selection."""
        (step, _, score), (last_step, _, last) = self.best, self.scores[-1]
        ends = "the last" if step == last_step else f"the last, after step {last_step:,}: {_hundredfold(last)}"
        return (
            f"of {len(self.scores)} evaluations, one every {self.every:g} epochs, the best by {self.metric} is kept: "
            f"{_hundredfold(score)} after step {step:,} ({ends})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        (step, _, score), (last_step, _, last) = self.best, self.scores[-1]
        return {
            "metric": self.metric,
            "best": {"step": step, "score": score},
            "last": {"step": last_step, "score": last},
            "scores": [[step, score] for step, _, score in self.scores],
        }

    def metrics(self) -> dict[str, float]:
        """Return the metrics for MLflow."""
        last = self.scores[-1][2]
        best = {"best/step": float(self.best[0]), "best/score": self.best[2]}
        return best if last is None else {**best, "last/score": last}


def _hundredfold(score: float | None) -> str:
    return "none" if score is None else f"{100 * score:.2f}"


class Model(Protocol):
    """A model that is trained: an encoder, or an encoder with a head; a torch module with a word matrix."""

    @property
    def matrix(self) -> "Tensor":
        """The word matrix W_w."""

    def state_dict(self) -> "dict[str, Tensor]":
        """Return all parameters by name."""

    def load_state_dict(self, state_dict: "dict[str, Tensor]") -> object:
        """Load all parameters by name."""


class Best:
    """Best score of a run so far; rank 0 keeps the weights of the best encoder in memory.

    Attributes:
        stops: whether the run should end.
    """

    def __init__(
        self, model: Model, evaluation: Evaluation | None, num_pairs: int, epochs: int, rank: int, world: int
    ) -> None:
        self.model, self.evaluation, self.num_pairs, self.epochs = model, evaluation, num_pairs, epochs
        self.rank, self.world = rank, world
        self.counters, self.stops = Counters(), False
        self._weights: dict[str, Tensor] = {}
        # Workers wait for rank 0 on the host, not within a step's collective: that has a limit of minutes.
        self._group = None
        if world > 1 and evaluation is not None:
            self._group = dist.new_group(backend="gloo", timeout=PATIENCE)

    @property
    def decides(self) -> dict[str, Any]:
        """Return the values that decide the selection, for checkpoints."""
        if self.evaluation is None:
            return {}
        evaluation = self.evaluation
        return {"evaluation": {"every": evaluation.every, "patience": evaluation.patience, **evaluation.decides}}

    def restore(self, counters: Counters, tensors: "dict[str, Tensor]") -> None:
        """Restore the state from the counters and tensors of a checkpoint, or initialize it."""
        self.counters = counters
        self._judge()
        if self.rank == 0 and counters.best is not None:
            of = "encoder" if counters.best[0] == counters.step else "best"
            self._weights = {name: tensors[f"{of}.{name}"].to("cpu", copy=True) for name in self.model.state_dict()}

    def tensors(self) -> "dict[str, Tensor]":
        """Return the tensors that a checkpoint needs besides the weights of its own step."""
        if self.counters.best is None or self.counters.best[0] == self.counters.step:
            return {}
        return {f"best.{name}": tensor for name, tensor in self._weights.items()}

    def score_if_due(self, num_pairs: int, flush: Callable[[], None]) -> float:
        """Evaluate the encoder if an evaluation is due after a step over ``num_pairs`` pairs; return the seconds it
        took. ``flush`` is called before.
        """
        if not self._is_due(num_pairs):
            return 0.0
        flush()
        if self.model.matrix.is_cuda:  # the steps before are counted as steps
            torch.cuda.synchronize(self.model.matrix.device)
        started = time.perf_counter()
        self._score()
        return time.perf_counter() - started

    def _is_due(self, num_pairs: int) -> bool:
        if self.evaluation is None:
            return False
        done, apart = self.counters.pairs, self.evaluation.every * self.num_pairs
        passed = math.floor(done / apart + _ROUNDING) > math.floor((done - num_pairs) / apart + _ROUNDING)
        return passed or done == self.num_pairs * self.epochs

    def _score(self) -> None:
        """Evaluate the current encoder, and send the score to all workers."""
        assert self.evaluation is not None
        counters = self.counters
        number = torch.tensor(math.nan, dtype=torch.float64)
        if self.rank == 0:
            number.fill_(self.evaluation.score(self.model, counters.step))
        if self._group is not None:
            dist.broadcast(number, 0, group=self._group)
        score = number.item() if number.isfinite() else None
        counters.scores.append((counters.step, counters.pairs, score))
        since_best = self._judge()
        if self.rank > 0:
            return
        if not since_best:
            for name, tensor in self.model.state_dict().items():
                if name in self._weights:
                    self._weights[name].copy_(tensor)
                else:
                    self._weights[name] = tensor.detach().to("cpu", copy=True)
        self._show(self.evaluation, score, since_best)

    def _show(self, evaluation: Evaluation, score: float | None, since_best: int) -> None:
        counters, best = self.counters, ""
        value = "no score" if score is None else f"{evaluation.metric} {100 * score:.2f}"
        if counters.best is not None:
            best = f", the best is {100 * counters.best[2]:.2f} after step {counters.best[0]:,}"
            best = best if since_best else ", the best so far"
        epoch = counters.pairs / self.num_pairs
        evaluation.show(f"evaluation after step {counters.step:,}, epoch {epoch:.2f}: {value}{best}")
        if self.stops:
            evaluation.show(
                f"stopping early: no improvement in the last {evaluation.patience} evaluations (`patience`)"
            )

    def take(self) -> None:
        """On rank 0, load the best weights into the encoder, unless it already has them.

        On CPUs, other workers may share the word matrix: rank 0 waits until they have read it, and they wait until rank
        0 has written it.
        """
        waits = self._group is not None and not self.model.matrix.is_cuda
        if waits:
            dist.barrier(self._group)
        if self.rank == 0 and self.tensors():
            self.model.load_state_dict(self._weights)
        if waits:
            dist.barrier(self._group)
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    def _judge(self) -> int:
        """Decide whether the run ends; return the number of scores since the best one."""
        scores, best = self.counters.scores, self.counters.best
        since_best = len(scores) if best is None else sum(step > best[0] for step, *_ in scores)
        patience = self.evaluation.patience if self.evaluation else None
        self.stops = patience is not None and since_best >= patience
        return since_best
