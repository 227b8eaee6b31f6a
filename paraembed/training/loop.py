"""The training loop: epochs of steps, reports, checkpoints. No Ray; it runs on a bare machine."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.pairs import epoch_batches, num_steps
from paraembed.training.state import Counters, load_state, save_state
from paraembed.training.step import Step

REPORT_STEPS = 100
"""Steps from report to report; fixed, so that the loss curve of a resumed run is that of an unbroken one."""


@dataclass(frozen=True)
class Report:
    """What a run has done since its last report.

    Attributes:
        epoch: passes over the pairs that have begun, from 1.
        epochs: in all.
        step: of the run, from 1.
        steps: of the run, in all.
        loss: mean loss a pair, without penalties.
        active: share of the objective's terms above zero, 0 to 1.
        pairs_per_second: over all workers.
        seconds_left: at this rate.
        end_of_epoch: whether this report closes an epoch.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    active: float
    pairs_per_second: float
    seconds_left: float
    end_of_epoch: bool


def train(
    encoder: Encoder,
    pairs: Ragged,
    recipe: Recipe,
    *,
    checkpoints: Path | None = None,
    checkpoint_seconds: float = 300.0,
    rank: int = 0,
    world: int = 1,
    on_report: Callable[[Report], None] = lambda _: None,
    before_save: Callable[[], None] = lambda: None,
) -> Counters:
    """Train an encoder in place; goes on from the last checkpoint, if there is one.

    Args:
        encoder: as it was before training (λ_w pulls back to it, also after a resume); trained on the device it is
            on; the same on every worker.
        pairs: 2n texts, none of them empty, n ≥ 2; the same on every worker.
        recipe: how.
        checkpoints: folder for the state; written by rank 0 at the end of every epoch, every ``checkpoint_seconds``
            (after the next report), and, with one worker, when Ctrl-C or SIGTERM asks to stop.
        checkpoint_seconds: time between checkpoints.
        rank: number of this worker.
        world: how many workers; more than one needs ``torch.distributed`` initialised.
        on_report: called on every worker, each ``REPORT_STEPS`` steps and at the end of every epoch.
        before_save: called before a checkpoint is written: what was reported until then is not reported again.

    Returns:
        Totals of the run.

    Raises:
        ValueError: fewer than two pairs, or a loss that is no number (the last good checkpoint stays).
        KeyboardInterrupt: asked to stop; the state is saved.
    """
    num_pairs = len(pairs) // 2
    if num_pairs < 2:
        raise ValueError(f"{num_pairs} pairs to train on; negatives come from other pairs, so at least 2")
    pairs = pairs if recipe.max_tokens is None else pairs.cut(recipe.max_tokens)
    step = Step(encoder, recipe, pairs, rank, world)
    counters = _restore(encoder, step, checkpoints)
    save = partial(_save, encoder, step, counters, checkpoints if rank == 0 else None, before_save)
    meter = _Meter(counters, recipe, num_pairs, world)
    sums = torch.tensor([counters.loss, counters.active], dtype=torch.float64, device=encoder.matrix.device)
    saved_at = time.perf_counter()
    with _stop_between_steps() as stop_asked:
        while counters.epoch < recipe.epochs:
            for batch in epoch_batches(
                pairs,
                epoch=counters.epoch,
                seed=recipe.seed,
                batch_size=recipe.batch_size,
                rank=rank,
                world=world,
                first_step=counters.step_in_epoch,
            ):
                counters.step += 1
                counters.step_in_epoch += 1
                counters.pairs += batch.total
                sums += step(batch, counters.step)
                if meter.report_is_due():
                    on_report(meter.report(_over_workers(sums, world)))
                    sums.zero_()
                    due = time.perf_counter() - saved_at > checkpoint_seconds
                else:
                    due = False
                if (due or stop_asked()) and counters.step_in_epoch < meter.per_epoch:
                    save(sums)
                    saved_at = time.perf_counter()
                    if stop_asked():
                        raise KeyboardInterrupt
            counters.epoch, counters.step_in_epoch = counters.epoch + 1, 0
            save(sums)
            saved_at = time.perf_counter()
            if stop_asked():
                raise KeyboardInterrupt
    return counters


class _Meter:
    """When to report, and what; keeps ``counters.seconds``."""

    def __init__(self, counters: Counters, recipe: Recipe, num_pairs: int, world: int) -> None:
        self.counters, self.recipe = counters, recipe
        self.per_epoch = num_steps(num_pairs, recipe.batch_size, world)
        self.total_pairs = num_pairs * recipe.epochs
        self.clock, self.pairs, self.steps = time.perf_counter(), counters.pairs, _steps_since_report(counters)

    def report_is_due(self) -> bool:
        self.steps += 1
        return self.counters.step % REPORT_STEPS == 0 or self.counters.step_in_epoch == self.per_epoch

    def report(self, sums: Tensor) -> Report:
        """Sums over the steps since the last report → report; the only place that waits for a GPU."""
        counters, now = self.counters, time.perf_counter()
        loss, active = (float(value) / self.steps for value in sums)
        if not math.isfinite(loss):
            raise _astray(f"the loss is {loss}", counters, self.recipe)
        rate = (counters.pairs - self.pairs) / (now - self.clock)
        counters.seconds += now - self.clock
        counters.last_loss = loss
        self.clock, self.pairs, self.steps = now, counters.pairs, 0
        return Report(
            epoch=counters.epoch + 1,
            epochs=self.recipe.epochs,
            step=counters.step,
            steps=self.per_epoch * self.recipe.epochs,
            loss=loss,
            active=active,
            pairs_per_second=rate,
            seconds_left=(self.total_pairs - counters.pairs) / rate,
            end_of_epoch=counters.step_in_epoch == self.per_epoch,
        )


def _steps_since_report(counters: Counters) -> int:
    """Steps whose sums a restored state holds: since the last multiple of REPORT_STEPS or the epoch's start."""
    return min(counters.step % REPORT_STEPS, counters.step_in_epoch)


def _astray(what: str, counters: Counters, recipe: Recipe) -> ValueError:
    return ValueError(
        f"{what} by step {counters.step} (learning rate {recipe.learning_rate}); lower the learning rate or clip "
        "gradients; the last good checkpoint is kept"
    )


def _over_workers(sums: Tensor, world: int) -> Tensor:
    if world > 1:
        dist.all_reduce(sums)
    return sums


def _save(
    encoder: Encoder,
    step: Step,
    counters: Counters,
    folder: Path | None,
    before: Callable[[], None],
    sums: Tensor,
) -> None:
    weights = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    tensors = {**weights, **step.state()}
    # The norm, not the numbers: from 1e19 on their products, and so the vectors of texts, are infinite.
    if not all(math.isfinite(tensor.norm()) for tensor in (sums, *tensors.values())):
        raise _astray("weights or loss are no longer finite", counters, step.recipe)
    if folder is None:
        return
    before()
    counters.loss, counters.active = (float(value) for value in sums)
    counters.skipped_pairs = step.skipped_pairs
    save_state(folder, counters, tensors)


def _restore(encoder: Encoder, step: Step, folder: Path | None) -> Counters:
    saved = load_state(folder) if folder else None
    if saved is None:
        return Counters()
    counters, tensors = saved
    encoder.load_state_dict({name: tensors[f"encoder.{name}"] for name in encoder.state_dict()})
    step.load_state(tensors)
    step.skipped_pairs = counters.skipped_pairs
    return counters


@contextmanager
def _stop_between_steps() -> Iterator[Callable[[], bool]]:
    """Hold back Ctrl-C and SIGTERM, so that a step is never cut in half; the block asks whether one came."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
