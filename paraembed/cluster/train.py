"""Pair shards and word vectors → encoder folder, on Ray Data and Ray Train."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import ray
import ray.data
from ray.train import DataConfig

from paraembed import checkpoint
from paraembed.cluster.placement import Placement, check_gpus, device_of, workers_here
from paraembed.cluster.session import ray_session
from paraembed.cluster.train_evaluation import Evaluating, Selection, evaluating
from paraembed.cluster.train_result import PICTURE, draw_result, scores_of, selection_of
from paraembed.cluster.train_run import (
    COVERAGE,
    begins,
    check_words,
    checkpoints_of,
    clear,
    drop_finished,
    fit,
    is_finished,
    remove_work,
)
from paraembed.cluster.train_worker import Result, Task, work_on
from paraembed.console import doing, duration, say
from paraembed.encoders import encoder_name
from paraembed.encoders.base import reads_trees
from paraembed.evaluation.report import Report as Scores
from paraembed.evaluation.sets import Suite
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.io.limits import chunks_of
from paraembed.io.places import require_file
from paraembed.model_card import Selected, model_card
from paraembed.pairs.shards import read_pair_manifest
from paraembed.recipe import Recipe
from paraembed.tracking.runs import send_left, tracked_run
from paraembed.training.fast.cpu import shares_words
from paraembed.training.growing import MemoryLimit
from paraembed.training.inputs import MIN_COVERAGE, check_coverage, check_min_coverage, untrained_encoder
from paraembed.training.loop import check_num_pairs
from paraembed.training.memory import available_memory, check_memory, estimate
from paraembed.training.pairs import pair_columns
from paraembed.training.profiler import TRACED_STEPS
from paraembed.training.state import Counters

_RESTARTS = 3  # of the workers, after one of them died
_PATIENCE_SECONDS = 6 * 3600  # of workers for rank 0 while it scores or saves; a dead one is noticed at once, by Ray
_TOKEN_BYTES = 5  # of the shards' text a token, about


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
        suites: what to score the encoder on, before, while and after it is trained. Without any, the last step's
            encoder is the result.
        selection: how often, and which encoder is kept.
        min_coverage: fraction of the pairs' tokens that must have a vector of their own; it does not decide the result.
    """

    name: str
    recipe: Recipe
    pairs: Path
    words: Path
    out: Path
    placement: Placement = field(default_factory=Placement)
    suites: Sequence[Suite] = ()
    selection: Selection = field(default_factory=Selection)
    min_coverage: float = MIN_COVERAGE

    def __post_init__(self) -> None:
        """Raise ValueError for a minimum coverage that is no fraction."""
        check_min_coverage(self.min_coverage)

    @property
    def work(self) -> Path:
        """Folder of the unfinished training."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def trace(self) -> Path:
        """File for the profile of some steps."""
        return self.out.with_name(f"{self.out.name}.trace.json.gz")


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
    doing(f"checking the digests of {training.pairs.name}")
    shards = read_pair_manifest(training.pairs)
    require_file(training.words)
    check_gpus(training.placement)
    identity: dict[str, Any] = {
        "recipe": training.recipe.to_dict(),
        "pairs": sha256_of(training.pairs / "manifest.json"),
        "words": sha256_of(training.words),
    }
    scored_on = evaluating(training.suites, training.selection)
    if scored_on is not None:
        identity["evaluation"] = scored_on.decides

    def finished() -> bool:
        if not is_finished(training.out, checkpoint.read_config, Recipe, identity, overwrite, "encoder"):
            return False
        send_left(training.out)
        say(f"{training.out} is trained already by this recipe on these pairs and words; nothing to do")
        return True

    if finished():
        drop_finished(training.work, identity)
        return Outcome(None, was_finished=True)
    check_num_pairs(shards["counts"]["kept"], training.recipe.batch_size, training.placement.workers)
    _check_memory(training, shards)
    with work_folder(training.work):
        if finished():  # by another run, since
            return Outcome(None, was_finished=True)
        _prepare(training, shards, identity, overwrite)
        scores = _train(training, shards, identity, scored_on)
        remove_work(training.work)
    return Outcome(scores, was_finished=False)


def _train(
    training: Training, shards: dict[str, Any], identity: dict[str, Any], scored_on: Evaluating | None
) -> Scores | None:
    work, placement = training.work, training.placement
    doing("starting Ray and MLflow")
    with tracked_run(f"train {training.name}", training.out, work / "run.json") as run, ray_session(placement.workers):
        # What a run that goes on may change is a tag: MLflow refuses another value of a parameter.
        run.tags({"recipe": training.name, "workers": str(placement.workers), "gpus": str(placement.gpus)})
        run.params(identity["recipe"])
        run.params({"evaluation": scored_on.decides} if scored_on else {})
        run.params({"pairs": shards["counts"]["kept"], "pairs_digest": identity["pairs"], "words": identity["words"]})
        result = _fit(training, shards, scored_on, run.spool)
        counters = result.counters
        if counters is None:
            raise ValueError(result.error)
        if counters.skipped_pairs:
            say(f"{counters.skipped_pairs} pairs were left alone in a batch, without a negative, and skipped")
        doing("scoring and writing the encoder")
        rate = counters.pairs / max(counters.seconds, 1e-9)
        run.metrics({"pairs_per_second/mean": rate, "training_seconds": counters.seconds})
        selected, scores = selection_of(scored_on, counters), None
        if selected is not None:
            say(selected.in_words())
            run.metrics(selected.metrics(), counters.step)
        if training.suites:
            scores = scores_of(work, training.suites)
        if scores is not None:  # at the last step: the newest value of each is that of the encoder that is kept
            run.metrics(scores.metrics(), counters.step)
        _save(training, shards, identity, counters, selected, scores)
        run.artifacts(training.out, "encoder")
        if placement.profile and training.trace.exists():
            run.artifacts(training.trace)
            say(f"wrote {training.trace}, a trace of {TRACED_STEPS} steps; open it at https://ui.perfetto.dev")
        run.tags({"fingerprint": checkpoint.read_config(training.out)["fingerprint"]})
    say(f"trained on {counters.pairs:,} pairs in {duration(counters.seconds)}: {rate:,.0f} pairs/s")
    return scores


def _save(
    training: Training,
    shards: dict[str, Any],
    identity: dict[str, Any],
    counters: Counters,
    selected: Selected | None,
    scores: Scores | None,
) -> None:
    """Write the encoder folder, with what is known by now, and the picture in it."""
    encoder = checkpoint.load(training.work / "trained")
    kept = {source: counts["pairs"] - counts["duplicates"] for source, counts in shards.get("sources", {}).items()}
    card = model_card(training.name, training.recipe, encoder.width, counters.last_loss, kept, scores, selected)
    checkpoint.save(
        encoder,
        training.out,
        recipe=training.recipe.to_dict(),
        provenance={
            "training": identity,
            "data": {"pairs": shards["counts"]["kept"], "halvings": shards.get("settings", {}).get("halvings")},
            "workers_from_step": counters.workers,
            **({"arithmetic_from_step": counters.arithmetic} if len(counters.arithmetic) > 1 else {}),
            "steps": counters.step,
            "loss": counters.last_loss,
            **({"selected": selected.to_dict()} if selected else {}),
        },
        model_card=f"{card}\n![Loss, share of active terms and scores]({PICTURE})\n",
    )
    title = f"{training.name}: {encoder_name(training.recipe.encoder)}"
    draw_result(training.out / PICTURE, title, shards["counts"]["kept"], counters, selected, scores)


def _check_memory(training: Training, shards: dict[str, Any]) -> None:
    """Raise ValueError where this machine is too small; on a cluster it only reads the words."""
    placement = training.placement
    workers = workers_here(placement.workers)
    memory = estimate(
        training.words,
        training.recipe,
        about_tokens(training.pairs, shards),
        shards["counts"]["kept"],
        workers,
        placement.pairs_bytes,
        are_shared=not placement.gpus and shares_words(training.recipe, workers),
        keeps_best=bool(training.suites),
    )
    check_memory(memory, available_memory())


def about_tokens(pairs: Path, shards: dict[str, Any]) -> int:
    """How many tokens pair shards have, about, by the sizes of their columns.

    Raises:
        OSError: a column is encrypted.
    """
    text_bytes = 0
    for shard in shards["shards"]:
        with pq.ParquetFile(pairs / shard["name"]) as file:
            groups = chunks_of(file, range(file.num_row_groups), {"first", "second"})
            text_bytes += sum(chunk.total_uncompressed_size for chunks in groups for chunk in chunks)
    return text_bytes // _TOKEN_BYTES


def _prepare(training: Training, shards: dict[str, Any], identity: dict[str, Any], overwrite: bool) -> None:
    """Put the untrained encoder into the work folder, or find the same training there.

    Raises:
        ValueError: the folder holds another training, which is not to be dropped, or something else; or the words
            cover too few of the pairs' tokens.
    """
    work, words = training.work, training.words
    about = training.min_coverage, words.name, "the pairs"
    inputs = words, training.pairs, shards, training.recipe
    if not begins(work, identity, overwrite, "jobs/train.py"):
        check_words(work, *about, lambda: untrained_encoder(*inputs)[1])
        return
    doing(f"counting the tokens of {training.pairs.name}, reading {words.name}")
    encoder, coverage = untrained_encoder(*inputs)
    check_coverage(coverage, *about)
    say(
        f"{coverage.num_words:,} words of width {coverage.width}; the vectors of {training.words.name} cover "
        f"{coverage.covered:.1%} of the pairs' words; {coverage.num_random:,} words got a random one"
    )
    clear(work)
    checkpoint.save(encoder, work / "untrained", recipe=identity["recipe"], provenance={}, model_card="Untrained.\n")
    write_json(work / "identity.json", identity)
    write_json(work / COVERAGE, asdict(coverage))


def _fit(training: Training, shards: dict[str, Any], scored_on: Evaluating | None, spool: Path | None) -> Result:
    """Train on Ray Train; returns what rank 0 returned."""
    placement, work = training.placement, training.work
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # else the blocks come in another order each time
    files = [str(training.pairs / shard["name"]) for shard in shards["shards"]]
    columns = pair_columns(pq.read_schema(files[0]), reads_trees(training.recipe.encoder))
    data = ray.data.read_parquet(files, columns=columns)
    options = ray.data.ExecutionOptions(preserve_order=True)
    task = Task(
        work=work,
        recipe=training.recipe,
        num_pairs=shards["counts"]["kept"],
        device=device_of(placement),
        checkpoints=checkpoints_of(placement, work),
        pairs_limit=MemoryLimit(placement.pairs_bytes, work / "pairs"),
        evaluating=scored_on,
        run=spool,
        trace=training.trace if placement.profile else None,
    )
    # Every worker reads all pairs (XXL: 0.3 GB of ids) and takes its share of every step, so that no row is lost to an
    # equal split and the order of an epoch does not depend on the number of workers.
    split = DataConfig(datasets_to_split=[], execution_options=options)
    return fit(work_on, task, placement, work, "train", datasets={"train": data}, dataset_config=split)
