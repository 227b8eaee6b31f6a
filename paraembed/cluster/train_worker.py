"""What a training worker does: read the pairs, train, report; Ray Train runs it, or for one worker the job itself."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray.train
import ray.train.torch
import torch

from paraembed import checkpoint
from paraembed.cluster import metrics
from paraembed.cluster.session import quiet
from paraembed.cluster.train_evaluation import Evaluating
from paraembed.compiled import arithmetic
from paraembed.console import ProgressLine, doing, duration, say, shown_status
from paraembed.encoders import Encoder
from paraembed.encoders.word import WordConfig
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.tracking.runs import Run, system_metrics
from paraembed.training.exchange import gather_texts
from paraembed.training.growing import MemoryLimit
from paraembed.training.loop import Report, train
from paraembed.training.pairs import num_cut, num_without_tree, pairs_to_ids
from paraembed.training.state import Checkpoints, Counters
from paraembed.training.step import exchanged
from paraembed.training.windows import MappedPairs

_BLOCK_ROWS = 65_536
_PLAIN_SECONDS = 10.0
_COLLAPSED = 0.995  # share of active terms; rnn with MAX stays at 1, with MIX it goes from 0.8 to 0.65


@dataclass(frozen=True)
class Task:
    """What a worker is told.

    Attributes:
        work: folder of the training, seen by all workers, with ``untrained`` in it; ``trained`` goes there.
        recipe: how to train.
        num_pairs: that the dataset holds.
        device: cpu, cuda, or worker: the GPU that Ray Train gives it.
        checkpoints: where and how often to save.
        pairs_limit: memory for the pairs.
        evaluating: what to score on; None: nothing, and the last step's encoder is the result.
        run: file for the records of the MLflow run; None: nothing is logged.
        trace: file for a profile of a few steps.
    """

    work: Path
    recipe: Recipe
    num_pairs: int
    device: str
    checkpoints: Checkpoints
    pairs_limit: MemoryLimit
    evaluating: Evaluating | None
    run: Path | None
    trace: Path | None


@dataclass(frozen=True)
class Result:
    """What rank 0 returns: what went wrong, for the user, else where the run ended."""

    error: str = ""
    counters: Counters | None = None


def work_on(config: dict[str, Task]) -> dict[str, Any]:
    """Train on one worker, ``config["task"]``; rank 0 saves the encoder to ``work/trained``, and its result counts.

    What its user can mend is returned: raised here, it would count as a worker's death, and be tried again.
    """
    return result_of(lambda: _train(config["task"]))


def result_of(train: Callable[[], Counters]) -> dict[str, Any]:
    """What a worker returns of its training: where it ended, or what went wrong that its user can mend."""
    try:
        return vars(Result(counters=train()))
    except ConnectionError:
        raise
    except torch.OutOfMemoryError as error:
        return vars(Result(f"the GPU's memory is too small: {error}; use a smaller --batch-size or --max-words"))
    except (ValueError, OSError) as error:
        return vars(Result(str(error)))


def _train(task: Task) -> Counters:
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    recipe = task.recipe
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two spin at OpenMP's barriers on a busy machine: 4 ms a step become 300 ms
    device = ray.train.torch.get_device() if task.device == "worker" else task.device
    notes = _Notes()
    encoder, pairs, problem = None, None, ""
    try:
        encoder = checkpoint.load(task.work / "untrained").requires_grad_().to(device)
        if encoder.matrix.device.type == "cpu":  # allocated by NumPy, on huge pages: see training.optim
            encoder.matrix.data = torch.from_numpy(encoder.matrix.detach().numpy().copy())
        with shown_status() if rank == 0 else nullcontext():
            pairs = _pairs(encoder, task, notes)
    except (ValueError, OSError, torch.OutOfMemoryError) as error:
        problem = str(error)
    agree(problem, world, torch.device(device))
    assert encoder is not None
    assert pairs is not None
    if rank == 0:
        say(*([str(pairs)] if isinstance(pairs, MappedPairs) else []), *notes.lines(encoder))
        if world > 1:
            say(exchanged(encoder, recipe, world))
    doing("training: the first steps")
    run = Run(task.run if rank == 0 else None)
    show = Reporter(run, rank, warns_of_collapse=recipe.objective == "margin")
    try:
        with system_metrics(run):
            counters = train(
                encoder,
                pairs,
                recipe,
                checkpoints=task.checkpoints,
                rank=rank,
                world=world,
                on_report=show,
                evaluation=task.evaluating.hook(encoder, run, show.say) if task.evaluating else None,
                trace=task.trace if rank == 0 else None,
            )
    finally:
        show.close()
        torch.set_num_threads(threads)  # one worker is the job's own process, which scores afterwards
    if rank == 0:
        _save(encoder, task)
    return counters


def _pairs(encoder: Encoder, task: Task, notes: "_Notes") -> Ragged:
    pairs = pairs_to_ids(
        _blocks(encoder, notes, task.num_pairs),
        encoder.vocabulary,
        encoder.composition.reads_trees,
        max_tokens=encoder.max_tokens,
        limit=task.pairs_limit,
    )
    if len(pairs) != 2 * task.num_pairs:
        raise ValueError(f"read {len(pairs) // 2:,} pairs; the manifest says {task.num_pairs:,}: shard them again")
    return pairs


def agree(problem: str, world: int, device: torch.device) -> None:
    """Raise ValueError on all workers if one of them cannot begin, or computes otherwise: others would wait for it."""
    problems = gather_texts(problem, world, device) if world > 1 else [problem]
    if any(problems):
        raise ValueError(next(filter(None, problems)))
    machines = gather_texts(arithmetic(device), world, device) if world > 1 else []
    if len(set(machines)) > 1:
        raise ValueError(
            f"workers compute with {' and '.join(sorted(set(machines)))}: their weights would drift apart; give the "
            "training machines of one kind, with one set of packages"
        )


def _save(encoder: Encoder, task: Task) -> None:
    try:
        checkpoint.save(encoder, task.work / "trained", recipe=task.recipe.to_dict(), provenance={}, model_card="")
    except OSError as error:
        raise OSError(
            f"the encoder could not be written ({error}); make room on the disk and run the same command again: it "
            f"goes on from the last checkpoint in {task.work}"
        ) from None


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
            lines.append(f"{self.without_tree:,} {of} have no parse: right-branching trees stand in")
        if self.several:
            lines.append(f"{self.several:,} {of} have several words: the encoder word reads the first")
        return lines


def _blocks(encoder: Encoder, notes: _Notes, total: int) -> Iterator[pa.Table]:
    """The blocks of this worker's dataset, in order, counted on the way."""
    quiet()
    doing("reading the pairs")
    shard = ray.train.get_dataset_shard("train")
    num_read = 0
    for block in shard.iter_batches(batch_size=_BLOCK_ROWS, batch_format="pyarrow"):
        notes.add(block, encoder)
        yield block
        num_read += len(block)
        doing(f"reading the pairs: {num_read:,} of {total:,}")


class Reporter:
    """What a worker does with a report: rank 0 shows and logs it, all of them tell Ray Train once an epoch.

    Args:
        run: file for the records of the MLflow run; None: nothing is logged.
        rank: number of the worker.
        unit: what is trained on.
        share: what the share of active terms is called.
        warns_of_collapse: whether a share near 1 says that all texts get one vector.
    """

    def __init__(
        self, run: Run, rank: int, unit: str = "pairs", share: str = "active", *, warns_of_collapse: bool = False
    ) -> None:
        self.run, self.rank, self.unit, self.share = run, rank, unit, share
        self.warns_of_collapse = warns_of_collapse
        self.line = ProgressLine(_PLAIN_SECONDS)

    def __call__(self, report: Report) -> None:
        """Take a report."""
        if self.rank == 0:
            self.run.metrics(
                {
                    "epoch": report.epoch,
                    "loss": report.loss,
                    f"{self.share}_share": report.active,
                    f"{self.unit}_per_second": report.pairs_per_second,
                    "seconds_left": report.seconds_left,
                },
                report.step,
            )
            metrics.trained(report.loss, report.pairs_per_second)
            text = (
                f"epoch {report.epoch}/{report.epochs}  step {report.step:,}/{report.steps:,}  "
                f"{report.pairs_per_second:,.0f} {self.unit}/s  loss {report.loss:.4f}  "
                f"{self.share} {report.active:.0%}  "
                f"{duration(report.seconds_left)} left"
            )
            if not report.end_of_epoch:
                self.line.show(text)
            else:
                self.say(text)
                if self.warns_of_collapse and report.active > _COLLAPSED:
                    say(
                        "nearly every text triggers an update: the encoder may give all texts one vector; try "
                        "--negatives mix, or a lower --learning-rate"
                    )
        if report.end_of_epoch:
            ray.train.report({"epoch": report.epoch, "loss": report.loss})

    def say(self, text: str) -> None:
        """Write a line of its own."""
        self.line.close()
        say(text)

    def close(self) -> None:
        """End the line."""
        self.line.close()
