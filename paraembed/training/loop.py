"""The training loop: epochs of steps, reports, checkpoints. It does not use Ray."""

import hashlib
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, schedule

from paraembed.compiled import arithmetic
from paraembed.console import doing
from paraembed.encoders import Encoder
from paraembed.io.atomic import check_file
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.signals import STOP_SIGNALS
from paraembed.text.ragged import Ragged
from paraembed.training.base_step import TrainingStep
from paraembed.training.best import Best, Evaluation, Model
from paraembed.training.exchange import gather_texts
from paraembed.training.pairs import MappedPairs, check_num_pairs, num_steps
from paraembed.training.state import Checkpoints, Counters, load_state, save_state
from paraembed.training.step import step_for

REPORT_STEPS = 100
"""Steps between reports; a constant, so that a resumed run has the same loss curve as an uninterrupted one."""

_POLL_SECONDS = 2.0
_DIGEST_BLOCK = 1 << 20  # numbers whose bits are summed at a time: 16 MB

SKIPPED_STEPS = 20
"""Steps before the trace starts, because the first steps compile, allocate and read."""
TRACED_STEPS = 10

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProgressReport:
    """Progress of a run since its last report."""

    epoch: int  # number of the current epoch, from 1
    epochs: int  # number of epochs
    step: int  # number of the step in the run, from 1
    steps: int  # number of steps in the run
    loss: float  # mean loss per pair, without penalties
    active: float  # fraction of the objective's terms above zero, 0 to 1
    pairs_per_second: float  # pairs per second of all workers
    seconds_left: float  # estimate of the remaining seconds
    end_of_epoch: bool  # whether this is the last report of an epoch


class SaveRequest(IntEnum):
    """Request to a running training: save the state at once and continue, or save it and stop."""

    NONE = 0
    SAVE = 1
    STOP = 2


def train(
    encoder: Encoder,
    pairs: Ragged,
    recipe: Recipe,
    *,
    checkpoints: Checkpoints | None = None,
    rank: int = 0,
    world: int = 1,
    on_report: Callable[[ProgressReport], None] = lambda _: None,
    evaluation: Evaluation | None = None,
    trace: Path | None = None,
    poll: Callable[[], SaveRequest] | None = None,
) -> Counters:
    """Train an encoder in place; resume from the last checkpoint, if there is one.

    A run on a CPU that is interrupted anywhere and resumed with the same number of workers ends with the same bits as
    an uninterrupted one. With another number of workers, every pair is still seen once per epoch, and a warning says
    that batches differ from this step on.

    Args:
        encoder: the untrained encoder, the same on every worker, on the device to train on; λ_w pulls towards its
            values, also after a resume.
        pairs: 2n texts, none of them empty, n ≥ 2; the same on every worker.
        recipe: recipe of the training.
        checkpoints: where and how often rank 0 saves the state; the state is also saved at the end of every epoch and,
            with one worker, on Ctrl-C, SIGTERM or SIGHUP. If the disk is full, training continues with a warning.
        rank: number of this worker.
        world: number of workers; more than one requires an initialized ``torch.distributed``.
        on_report: called on every worker, every ``REPORT_STEPS`` steps and at the end of every epoch.
        evaluation: dev-set evaluation and early stopping. If set, rank 0 ends with the best encoder, which the returned
            counters name, otherwise with that of the last step. Checkpoints include its state. If workers on one
            machine share the word matrix, the others end with that of rank 0.
        trace: file for a profile of a few steps; see ``traced``.
        poll: returns what is requested from outside, such as ``SAVE`` if a machine is about to be taken away; called
            about every two seconds, on all workers at the same step. A request to one worker counts for all of them.
            Only the first ``SAVE`` counts.

    Returns:
        Counters of the whole run.

    Raises:
        ValueError: there are fewer pairs than a step needs, the checkpoint is of another training, workers have
            different checkpoints, or the loss is not finite (the last good checkpoint is kept).
        KeyboardInterrupt: the run was stopped by ``poll`` or, with one worker, a signal; the state is saved.

    Example:
        >>> from paraembed import checkpoint
        >>> encoder = checkpoint.load("encoder")
        >>> blocks = [pa.table({"first": ["the cat sat", "a dog ran"], "second": ["a cat sat", "the dog ran"]})]
        >>> counters = train(encoder, pairs_to_ids(blocks, encoder.vocabulary), Recipe(epochs=3, batch_size=2))
        >>> counters.step, counters.pairs
        (3, 6)
    """
    num_pairs = len(pairs) // 2
    check_num_pairs(num_pairs, recipe.batch_size, world)
    pairs = pairs if recipe.max_tokens is None else pairs.cut(recipe.max_tokens)
    window = pairs.window if isinstance(pairs, MappedPairs) else "all"
    return run_steps(
        encoder,
        step_for(encoder, recipe, pairs, rank, world),
        pairs,
        num_pairs,
        decides={"pairs per window (--pairs-memory-gb)": window},
        checkpoints=checkpoints,
        on_report=on_report,
        evaluation=evaluation,
        trace=trace,
        poll=poll,
    )


def run_steps(
    model: Model,
    step: TrainingStep,
    data: Any,
    num_pairs: int,
    *,
    decides: dict[str, Any] | None = None,
    checkpoints: Checkpoints | None = None,
    on_report: Callable[[ProgressReport], None] = lambda _: None,
    evaluation: Evaluation | None = None,
    trace: Path | None = None,
    poll: Callable[[], SaveRequest] | None = None,
) -> Counters:
    """Run the steps of all epochs; further arguments, result and errors are those of ``train``.

    A checkpoint with other values in ``decides``, which decides the run besides the recipe and the number of pairs (or
    other examples) per epoch, is rejected.
    """
    recipe, rank, world = step.recipe, step.rank, step.world
    best = Best(model, evaluation, num_pairs, recipe.epochs, rank, world)
    saver = _Saver(model, step, num_pairs, decides or {}, checkpoints, best)
    counters = saver.restore()
    meter = _Meter(counters, recipe, num_pairs, world)
    # Loss, active share, whether it is time to save; in float64 the order of the sums decides the last bit at most.
    sums = torch.zeros(3, dtype=torch.float64, device=model.matrix.device)
    means = sums[:2]
    if rank == 0:
        means += torch.tensor([counters.loss, counters.active], dtype=torch.float64, device=means.device)
    with _said_by_its_worker(rank, world), _stop_between_steps(world) as stop_asked, traced(trace) as traced_step:
        requests = _Requests(poll, stop_asked, world, means.device)
        while counters.epoch < recipe.epochs and not best.stops:
            save_is_due = False
            for batch in step.batches(data, counters.epoch, counters.pairs_in_epoch):
                counters.step += 1
                counters.pairs_in_epoch += batch.total
                counters.pairs += batch.total
                counters.unreported_steps += 1
                step.enqueue(batch, counters.step, means)
                traced_step()
                meter.show_first_steps()
                save_is_due |= saver.is_due_by_steps()
                meter.clock += best.score_if_due(batch.total, step.flush)
                if meter.report_is_due() or best.stops:
                    step.flush()
                    sums[2] = rank == 0 and saver.is_due_by_time()
                    loss, active, by_time = _over_workers(sums, world).tolist()
                    save_is_due |= bool(by_time)
                    on_report(meter.report(loss, active))
                    sums.zero_()
                if best.stops:
                    break
                save_is_due |= requests.must_save()
                if save_is_due and batch.may_pause and counters.pairs_in_epoch < num_pairs:
                    step.flush()
                    saver.save(_over_workers(sums.clone(), world))
                    save_is_due = False
                    if requests.must_stop:
                        raise KeyboardInterrupt
            if counters.pairs_in_epoch == num_pairs:
                counters.epoch, counters.pairs_in_epoch = counters.epoch + 1, 0
            saver.save(sums)
            if requests.must_stop:
                raise KeyboardInterrupt
    best.take()
    return counters


class _Meter:
    """Decides when to report, and creates reports; updates ``counters.seconds`` and ``counters.curve``."""

    def __init__(self, counters: Counters, recipe: BaseRecipe, num_pairs: int, world: int) -> None:
        self.counters, self.recipe, self.num_pairs = counters, recipe, num_pairs
        # Of the steps done not all need to have been of this size: other numbers of workers may have done them.
        left_in_epoch = num_steps(num_pairs, recipe.batch_size, world, counters.pairs_in_epoch)
        epochs_after = recipe.epochs - counters.epoch - 1
        self.steps = counters.step + left_in_epoch + epochs_after * num_steps(num_pairs, recipe.batch_size, world)
        self.clock, self.pairs, self.has_reported = time.perf_counter(), counters.pairs, False

    def show_first_steps(self) -> None:
        """Show the number of a step until the first report: ``lstm_avg`` takes 0.8 s a step on a CPU."""
        if not self.has_reported:
            doing(f"training: step {self.counters.step:,} of {self.steps:,}")

    def report_is_due(self) -> bool:
        return self.counters.step % REPORT_STEPS == 0 or self.counters.pairs_in_epoch == self.num_pairs

    def report(self, loss_sum: float, active_sum: float) -> ProgressReport:
        """Return a report, given sums over the steps since the last report and over all workers."""
        counters, now = self.counters, time.perf_counter()
        loss, active = loss_sum / counters.unreported_steps, active_sum / counters.unreported_steps
        if not math.isfinite(loss):
            raise _diverged(f"the loss is {loss}", counters, self.recipe)
        rate = (counters.pairs - self.pairs) / (now - self.clock)
        counters.seconds += now - self.clock
        counters.unreported_steps = 0
        counters.curve.append((counters.step, counters.pairs, loss, active))
        self.clock, self.pairs, self.has_reported = now, counters.pairs, True
        return ProgressReport(
            epoch=counters.epoch + 1,
            epochs=self.recipe.epochs,
            step=counters.step,
            steps=self.steps,
            loss=loss,
            active=active,
            pairs_per_second=rate,
            seconds_left=(self.num_pairs * self.recipe.epochs - counters.pairs) / rate,
            end_of_epoch=counters.pairs_in_epoch == self.num_pairs,
        )


class _Requests:
    """Requests to a training, which all workers see at the same step.

    The workers poll at the same steps, about every ``_POLL_SECONDS``: as many steps apart as the mean time of the steps
    before allows.
    """

    def __init__(
        self, poll: Callable[[], SaveRequest] | None, stop_asked: Callable[[], bool], world: int, device: torch.device
    ) -> None:
        self._poll, self._stop_asked, self.world, self.device = poll, stop_asked, world, device
        self.every = self.left = 1
        self.polled_at = time.perf_counter()
        self._is_stopped = self._has_saved = False

    @property
    def must_stop(self) -> bool:
        return self._is_stopped or self._stop_asked()

    def must_save(self) -> bool:
        return self._polled() or self.must_stop

    def _polled(self) -> bool:
        """Return whether a poll at this step has brought the first request to save."""
        self.left -= 1
        if self._poll is None or self.left:
            return False
        now, request = time.perf_counter(), self._poll()
        answer = [request == SaveRequest.SAVE, request == SaveRequest.STOP, now - self.polled_at]
        sums = _over_workers(torch.tensor(answer, dtype=torch.float64, device=self.device), self.world)
        num_save, num_stop, seconds = sums.tolist()
        fitting = self.every * _POLL_SECONDS * self.world / max(seconds, 1e-9)
        self.every = self.left = max(1, int(min(fitting, 2 * self.every)))
        self.polled_at = now
        self._is_stopped |= num_stop > 0
        if not num_save or self._has_saved:
            return False
        self._has_saved = True
        log.warning("a machine is about to be taken away; the state is saved now, and training continues")
        return True


class TrainingDivergedError(ValueError):
    """Error for a loss or weights that are not finite, or differ; every worker raises it at the same step."""


def _diverged(what: str, counters: Counters, recipe: BaseRecipe) -> TrainingDivergedError:
    return TrainingDivergedError(
        f"{what} by step {counters.step} (learning rate {recipe.learning_rate}); use a lower learning rate or "
        "gradient clipping; earlier checkpoints are kept"
    )


def _over_workers(sums: Tensor, world: int) -> Tensor:
    if world > 1:
        dist.all_reduce(sums)
    return sums


_OTHER_WORKERS = (
    "resuming after step %(step)d with another number of workers (%(before)d before, now %(now)d): batches differ from "
    "this step on, so the trained encoder will differ, too; every pair is still seen once per epoch"
)
_OTHER_ARITHMETIC = (
    "resuming after step %(step)d with %(now)s, before with %(before)s: the weights will differ in their last bits "
    "from those of an uninterrupted run"
)


class _Saver:
    """Saves model, step and counters to checkpoints, and restores them; rank 0 writes, every worker reads."""

    def __init__(
        self,
        model: Model,
        step: TrainingStep,
        num_pairs: int,
        decides: dict[str, Any],
        checkpoints: Checkpoints | None,
        best: Best,
    ) -> None:
        self.model, self.step, self.checkpoints, self.best = model, step, checkpoints, best
        rows, width = model.matrix.shape
        self.decides = {
            "recipe": step.recipe.to_dict(),
            "pairs": num_pairs,
            **decides,
            "word_matrix": f"{rows} x {width}",
            **best.decides,
        }
        self.counters = Counters()
        self.saved_at = time.perf_counter()
        self.has_failed = False

    def restore(self) -> Counters:
        """Load the last checkpoint into model and step; return its counters, or those of a new run."""
        saved, problem = None, ""
        try:
            weights = {f"encoder.{name}": tensor for name, tensor in self.model.state_dict().items()}
            expected = {**weights, **self.step.update.state()}
            saved = load_state(self.checkpoints.folder, self.decides, expected) if self.checkpoints else None
        except ValueError as error:
            problem = str(error)
        if saved is not None:
            self.counters, tensors = saved
            self.model.load_state_dict({name: tensors[f"encoder.{name}"] for name in self.model.state_dict()})
            self.step.update.load_state(tensors)
            self.step.skipped_pairs = self.counters.skipped_pairs
        self._agree(problem)
        self.best.restore(self.counters, saved[1] if saved is not None else {})
        self._record(self.counters.workers, self.step.world, _OTHER_WORKERS)
        self._record(self.counters.arithmetic, arithmetic(self.model.matrix.device), _OTHER_ARITHMETIC)
        return self.counters

    def _record(self, history: list[tuple[int, Any]], now: Any, warning: str) -> None:
        """Record the step from which the run has the value ``now``; warn if a resumed run had another one before."""
        step = self.counters.step
        if history and history[-1][1] == now:
            return
        if history and self.step.rank == 0:
            log.warning(warning, {"step": step, "before": history[-1][1], "now": now})
        history.append((step + 1, now))

    def _agree(self, problem: str) -> None:
        """Raise ValueError on all workers unless they resume from the same step; wait until all have read the words."""
        if self.checkpoints is None:
            return
        own = problem or f"step {self.counters.step}"
        states = gather_texts(own, self.step.world, self.model.matrix.device)
        if problem:
            raise ValueError(problem)
        if len(set(states)) > 1:
            raise ValueError(
                f"workers have different checkpoints in {self.checkpoints.folder} ({'; '.join(states)}); put it in a "
                "folder that all workers share"
            )

    def _compare_replicas(self, tensors: dict[str, Tensor]) -> None:
        """Raise TrainingDivergedError on all workers unless their tensors are equal to the bit."""
        if self.step.world == 1:
            return
        digest = " ".join(f"{bits_digest(tensor):x}" for tensor in tensors.values())
        digests = gather_texts(hashlib.sha256(digest.encode()).hexdigest(), self.step.world, self.model.matrix.device)
        if len(set(digests)) > 1:
            raise TrainingDivergedError(
                f"the workers' weights or optimizer states differ after step {self.counters.step}, so one of the "
                "machines computes wrongly; run the same command again on other machines: it resumes from the last "
                "checkpoint"
            )

    def is_due_by_steps(self) -> bool:
        return bool(self.checkpoints and self.checkpoints.steps and self.counters.step % self.checkpoints.steps == 0)

    def is_due_by_time(self) -> bool:
        return self.checkpoints is not None and time.perf_counter() - self.saved_at > self.checkpoints.seconds

    def save(self, sums: Tensor) -> None:
        """Check that loss and tensors are finite, and write a checkpoint, with the sums since the last report."""
        counters = self.counters
        weights = {f"encoder.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors = {**weights, **self.step.update.state()}
        # The norm, not the numbers: from 1e19 on their products, and so the vectors of texts, are infinite.
        if not all(math.isfinite(tensor.norm()) for tensor in (sums, *tensors.values())):
            raise _diverged("weights or loss are no longer finite", counters, self.step.recipe)
        self._compare_replicas(tensors)
        self.saved_at = time.perf_counter()
        counters.skipped_pairs = self.step.skipped_pairs
        if self.checkpoints is None or self.step.rank > 0:
            return
        counters.loss, counters.active, _ = sums.tolist()
        try:
            tensors |= self.best.tensors()
            save_state(self.checkpoints.folder, counters, tensors, self.decides, self.checkpoints.keep)
            self.checkpoints.saved()
        except OSError as error:
            if not self.has_failed:
                log.warning(
                    "the checkpoint of step %d could not be written (%s); training continues, and earlier "
                    "checkpoints are kept; free some space on the disk",
                    counters.step,
                    error,
                )
            self.has_failed = True
        else:
            self.has_failed = False


def bits_digest(tensor: Tensor, *, block: int = _DIGEST_BLOCK) -> int:
    """Return a digest of the bits of a tensor, computed on its device: a sum of its numbers' bits times their places.

    Sums of integers wrap, and so do not depend on their order.
    """
    kind = {4: torch.int32, 8: torch.int64}[tensor.element_size()]
    digest = torch.zeros((), dtype=torch.int64, device=tensor.device)
    flat = tensor.detach().contiguous().view(-1).view(kind)
    for first in range(0, len(flat), block):
        bits = flat[first : first + block].long()
        digest += (bits * torch.arange(first + 1, first + 1 + len(bits), device=tensor.device)).sum()
    return int(digest)


@contextmanager
def _said_by_its_worker(rank: int, world: int) -> Iterator[None]:
    """Raise errors of one of several workers as RuntimeError with its rank, so that the others stop, too."""
    try:
        yield
    except TrainingDivergedError:
        raise
    except (torch.OutOfMemoryError, ValueError, OSError) as error:
        if world == 1:
            raise
        cause: Exception = error
        if isinstance(error, torch.OutOfMemoryError):
            cause = ValueError(f"the GPU's memory is too small: {error}; use a smaller `batch_size` or `max_words`")
        raise RuntimeError(f"worker {rank}: {cause}") from cause


@contextmanager
def _stop_between_steps(world: int) -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block asks whether one came; several workers use ``poll``."""
    if world > 1 or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}  # as by nohup
    for number in before:
        signal.signal(number, lambda *_: asked.set())
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def traced(path: Path | None) -> Iterator[Callable[[], None]]:
    """Trace ``TRACED_STEPS`` steps of the block, which must call the yielded function after every step.

    Args:
        path: file for the trace, gzipped JSON in Chrome's trace format for https://ui.perfetto.dev; None: no trace.
    """
    if path is None:
        yield lambda: None
        return
    check_file(path)
    written: list[Path] = []
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    plan = schedule(wait=0, warmup=1, active=TRACED_STEPS, skip_first=SKIPPED_STEPS - 1, repeat=1)

    def write(profiler: profile) -> None:
        check_file(path)
        profiler.export_chrome_trace(str(path))
        written.append(path)

    with profile(activities=activities, schedule=plan, on_trace_ready=write, with_stack=True) as profiler:
        yield profiler.step
    if not written:
        log.warning("no trace was written: it starts after %d steps, and the run had fewer", SKIPPED_STEPS)
