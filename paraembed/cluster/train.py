"""Pair shards and word vectors → encoder folder, on Ray Data and Ray Train."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray.data
import ray.train
import torch
from ray.train import DataConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from paraembed import checkpoint
from paraembed.cluster.job import say
from paraembed.cluster.progress import ProgressLine
from paraembed.cluster.session import check_workers, quiet, ray_session
from paraembed.cluster.tracking import Run, RunAddress, tracked_run
from paraembed.encoders import Encoder
from paraembed.encoders.base import reads_trees
from paraembed.encoders.word import WordConfig
from paraembed.evaluation.candidates import Candidate, trained
from paraembed.evaluation.report import Report as Scores
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import Suite
from paraembed.files import differences, empty_folder, read_json, require_file, sha256_of, work_folder, write_json
from paraembed.model_card import model_card
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.inputs import read_pair_manifest, untrained_encoder
from paraembed.training.loop import Report, train
from paraembed.training.pairs import num_without_tree, pair_columns, pairs_to_ids
from paraembed.training.state import Counters

_BLOCK_ROWS = 65_536
_PLAIN_SECONDS = 10.0
_COLLAPSED = 0.995  # share of active terms; rnn with MAX stays at 1, with MIX it goes from 0.8 to 0.65
_RESTARTS = 3  # of the workers, after one of them died


@dataclass(frozen=True)
class Placement:
    """Where and how a training runs; of these only ``workers`` decides the result.

    Attributes:
        workers: training processes; one runs inside the job's own process.
        gpus: whether each worker takes a GPU.
        checkpoint_minutes: time between checkpoints; the end of every epoch makes one, too.
    """

    workers: int = 1
    gpus: bool = False
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        check_workers(self.workers)
        if not self.checkpoint_minutes >= 0:
            raise ValueError(f"checkpoint_minutes is {self.checkpoint_minutes}; it must be 0 or above")


@dataclass(frozen=True)
class Training:
    """What to train, on what, where to.

    Attributes:
        name: of the recipe, for the record.
        recipe: how to train.
        pairs: folder of pair shards.
        words: word-vector text file.
        out: encoder folder to write. Until it is there the work stands in ``<out>.training``: the untrained encoder
            and the last checkpoints.
        placement: workers, GPUs, checkpoints.
        suites: what to score the untrained and the trained encoder on.
    """

    name: str
    recipe: Recipe
    pairs: Path
    words: Path
    out: Path
    placement: Placement = Placement()
    suites: Sequence[Suite] = ()

    @property
    def work(self) -> Path:
        """Folder of the unfinished training."""
        return self.out.with_name(f"{self.out.name}.training")


@dataclass(frozen=True)
class Outcome:
    """What a call of ``train_encoder`` did.

    Attributes:
        scores: of the trained and the untrained encoder, where there are suites.
        was_finished: nothing was left to do.
    """

    scores: Scores | None
    was_finished: bool


def train_encoder(training: Training, *, overwrite: bool = False) -> Outcome:
    """Train an encoder and write its folder; the same call goes on where a killed one was.

    Args:
        training: what, on what, where to.
        overwrite: replace another encoder at ``out``, and drop another training that was begun there.

    Raises:
        OSError, ValueError: an input or output will not do; nothing was changed then. Or the loss is no number.
    """
    shards = read_pair_manifest(training.pairs)
    require_file(training.words)
    if training.placement.gpus and not torch.cuda.is_available() and "RAY_ADDRESS" not in os.environ:
        raise ValueError("--gpus: PyTorch sees no GPU on this machine; leave the flag out to train on CPUs")
    identity: dict[str, Any] = {
        "recipe": training.recipe.to_dict(),
        "pairs": sha256_of(training.pairs / "manifest.json"),
        "words": sha256_of(training.words),
        "workers": training.placement.workers,
    }
    if is_trained(training.out, identity, overwrite):
        say(f"{training.out} is trained already by this recipe on these pairs and words; nothing to do")
        return Outcome(None, was_finished=True)
    with work_folder(training.work):
        _prepare(training, shards, identity, overwrite)
        scores = _train(training, shards, identity)
        shutil.rmtree(training.work)
    return Outcome(scores, was_finished=False)


def _train(training: Training, shards: dict[str, Any], identity: dict[str, Any]) -> Scores | None:
    work, workers, gpus = training.work, training.placement.workers, training.placement.gpus
    with tracked_run(f"train {training.name}", training.out, work / "run.json") as run, ray_session(workers):
        run.params({"recipe_name": training.name, **identity["recipe"], "workers": workers, "gpus": gpus})
        run.params({"pairs": shards["counts"]["kept"], "pairs_digest": identity["pairs"], "words": identity["words"]})
        result = _fit(training, shards, run.address)
        if result["error"]:
            raise ValueError(result["error"])
        counters = Counters(**result["counters"])
        if counters.skipped_pairs:
            say(f"{counters.skipped_pairs} pairs were left alone in a batch, without a negative, and skipped")
        rate = counters.pairs / counters.seconds
        run.metrics({"pairs_per_second/mean": rate, "training_seconds": counters.seconds})
        scores = None
        if training.suites:
            before = Candidate("untrained", "before training", checkpoint.load(work / "untrained"))
            scores = compare([trained(work / "trained"), before], training.suites)
            run.metrics(scores.metrics())
        _save(training, shards, identity, counters, scores)
        run.artifacts(training.out, "encoder")
        run.tags({"fingerprint": checkpoint.read_config(training.out)["fingerprint"]})
    say(f"trained on {counters.pairs:,} pairs in {counters.seconds:,.0f} s: {rate:,.0f} pairs/s")
    return scores


def _save(
    training: Training, shards: dict[str, Any], identity: dict[str, Any], counters: Counters, scores: Scores | None
) -> None:
    """Write the encoder folder, with what is known by now."""
    encoder = checkpoint.load(training.work / "trained")
    kept = {source: counts["pairs"] - counts["duplicates"] for source, counts in shards["sources"].items()}
    checkpoint.save(
        encoder,
        training.out,
        recipe=training.recipe.to_dict(),
        provenance={"training": identity, "steps": counters.step, "loss": counters.last_loss},
        model_card=model_card(training.name, training.recipe, encoder.width, counters.last_loss, kept, scores),
    )


def is_trained(out: Path, identity: dict[str, Any], overwrite: bool) -> bool:
    """Whether ``out`` is the encoder that this training would give.

    Raises:
        ValueError: ``out`` holds something else, or another encoder that is not to be overwritten.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    changed = differences((checkpoint.read_config(out).get("provenance") or {}).get("training", {}), identity)
    if not changed:
        return True
    if overwrite:
        return False
    raise ValueError(f"{out} holds another encoder: {changed}; choose another --out, or replace it with --overwrite")


def _prepare(training: Training, shards: dict[str, Any], identity: dict[str, Any], overwrite: bool) -> None:
    """Put the untrained encoder into the work folder, or find the same training there.

    Raises:
        ValueError: the folder holds another training, which is not to be dropped, or something else.
    """
    work = training.work
    saved = work / "identity.json"
    if saved.is_file():
        changed = differences(read_json(saved), identity)
        if not changed:
            say(f"going on with the training in {work}")
            return
        if not overwrite:
            raise ValueError(
                f"{work} holds a training that was begun with another {changed}; go back to that, choose another "
                "--out, or start afresh with --overwrite"
            )
    elif any(entry.name not in {"untrained", ".untrained.tmp"} for entry in work.iterdir()):
        raise ValueError(f"{work} holds something that jobs/train.py did not write; move it away")
    encoder, coverage = untrained_encoder(training.words, training.pairs, shards, training.recipe)
    say(
        f"{coverage.num_words:,} words of width {coverage.width}; the vectors of {training.words.name} cover "
        f"{coverage.covered:.1%} of the pairs' words; {coverage.num_random:,} words got a random one"
    )
    saved.unlink(missing_ok=True)
    empty_folder(work)
    checkpoint.save(encoder, work / "untrained", recipe=identity["recipe"], provenance={}, model_card="Untrained.\n")
    write_json(saved, identity)


def _fit(training: Training, shards: dict[str, Any], address: RunAddress | None) -> dict[str, Any]:
    """Run ``_worker`` on Ray Train; returns what rank 0 returned."""
    workers, gpus = training.placement.workers, training.placement.gpus
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # else the blocks come in another order each time
    files = [str(training.pairs / shard["name"]) for shard in shards["shards"]]
    columns = pair_columns(pq.read_schema(files[0]), reads_trees(training.recipe.encoder))
    data = ray.data.read_parquet(files, columns=columns)
    options = ray.data.ExecutionOptions(preserve_order=True)
    trainer = TorchTrainer(
        _worker,  # type: ignore[arg-type]
        train_loop_config={
            "work": str(training.work),
            "recipe": training.recipe.to_dict(),
            "pairs": shards["counts"]["kept"],
            "gpus": gpus,
            "checkpoint_seconds": 60 * training.placement.checkpoint_minutes,
            "run": (address.uri, address.run_id) if address else None,
        },
        # One worker runs in this process: 0.1 s instead of 9.5 s to start.
        scaling_config=ScalingConfig(num_workers=workers if workers > 1 else 0, use_gpu=gpus),
        torch_config=TorchConfig(backend="nccl" if gpus else "gloo"),
        datasets={"train": data},
        # Every worker reads all pairs (XXL: 0.3 GB of ids) and takes its share of every step, so that no row is lost
        # to an equal split and the order of an epoch does not depend on the number of workers.
        dataset_config=DataConfig(datasets_to_split=[], execution_options=options),
        run_config=RunConfig(  # type: ignore[call-arg]  # mypy sees the RunConfig of Ray Train v1
            name=f"train-{os.getpid()}",
            storage_path=str(training.work / "ray"),
            failure_config=FailureConfig(max_failures=_RESTARTS),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    try:
        result: dict[str, Any] = trainer.fit().return_value  # type: ignore[attr-defined]
    except SystemExit:  # what Ray Train makes of Ctrl-C, with status 0
        raise KeyboardInterrupt from None
    return result


def _worker(config: dict[str, Any]) -> dict[str, Any]:
    """Train on one worker; rank 0 saves the encoder to ``work/trained``."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    work, recipe = Path(config["work"]), Recipe.from_dict(config["recipe"])
    torch.set_num_threads(1)  # two spin at OpenMP's barriers on a busy machine: 4 ms a step become 300 ms
    device = ray.train.torch.get_device() if config["gpus"] and world > 1 else "cuda" if config["gpus"] else "cpu"
    encoder = checkpoint.load(work / "untrained").requires_grad_().to(device)
    without_tree: list[int] = []
    with_trees = encoder.composition.reads_trees
    pairs = pairs_to_ids(_blocks(without_tree if with_trees else None), encoder.vocabulary, with_trees)
    if rank == 0:
        say(*_notes(encoder, pairs, sum(without_tree)))
    if len(pairs) != 2 * config["pairs"]:
        return {"error": f"read {len(pairs) // 2:,} pairs; the manifest says {config['pairs']:,}: shard them again"}
    run = Run(RunAddress(*config["run"]) if config["run"] and rank == 0 else None)
    show = _Reporter(run, rank, recipe)
    try:
        counters = train(
            encoder,
            pairs,
            recipe,
            checkpoints=work / "checkpoints",
            checkpoint_seconds=config["checkpoint_seconds"],
            rank=rank,
            world=world,
            on_report=show,
            before_save=run.flush,
        )
    except ValueError as error:  # raised again by the job; here it would count as a worker's death and be tried again
        return {"error": str(error)}
    finally:
        show.close()
    if rank == 0:
        checkpoint.save(encoder, work / "trained", recipe=recipe.to_dict(), provenance={}, model_card="")
    return {"error": "", "counters": vars(counters)}


def _blocks(without_tree: list[int] | None) -> Iterator[pa.Table]:
    """The blocks of this worker's dataset, in order; counts of texts without a tree go into the list."""
    quiet()
    shard = ray.train.get_dataset_shard("train")
    for block in shard.iter_batches(batch_size=_BLOCK_ROWS, batch_format="pyarrow"):
        if without_tree is not None:
            without_tree.append(num_without_tree(block))
        yield block


def _notes(encoder: Encoder, pairs: Ragged, without_tree: int) -> list[str]:
    """What an encoder does not read as its user may expect."""
    notes = []
    if encoder.max_tokens is not None and (cut := int((pairs.lengths > encoder.max_tokens).sum())):
        notes.append(f"{cut:,} of {len(pairs):,} texts are cut after max_tokens = {encoder.max_tokens} tokens")
    if without_tree:
        notes.append(f"{without_tree:,} of {len(pairs):,} texts have no parse: right-branching trees stand in")
    if isinstance(encoder.config, WordConfig) and (several := int((pairs.lengths > 1).sum())):
        notes.append(f"{several:,} of {len(pairs):,} texts have several words: the encoder word reads the first")
    return notes


class _Reporter:
    """What a worker does with a report: rank 0 shows and logs it, all of them tell Ray Train once an epoch."""

    def __init__(self, run: Run, rank: int, recipe: Recipe) -> None:
        self.run, self.rank = run, rank
        self.warns_of_collapse = recipe.objective == "margin"
        self.line = ProgressLine(_PLAIN_SECONDS)

    def __call__(self, report: Report) -> None:
        if self.rank == 0:
            self.run.metrics(
                {"loss": report.loss, "active_share": report.active, "pairs_per_second": report.pairs_per_second},
                report.step,
            )
            text = (
                f"epoch {report.epoch}/{report.epochs}  step {report.step:,}/{report.steps:,}  loss {report.loss:.4f}  "
                f"active {report.active:.0%}  {report.pairs_per_second:,.0f} pairs/s  {report.seconds_left:,.0f} s left"
            )
            self.line.show(text)
            if report.end_of_epoch:
                self.line.close()
                say(text)
                if self.warns_of_collapse and report.active > _COLLAPSED:
                    say(
                        "nearly every text triggers an update: the encoder may give all texts one vector; try "
                        "--negatives mix, or a lower --learning-rate"
                    )
        if report.end_of_epoch:
            ray.train.report({"epoch": report.epoch, "loss": report.loss})

    def close(self) -> None:
        """End the line and write what waits."""
        self.line.close()
        self.run.flush()
