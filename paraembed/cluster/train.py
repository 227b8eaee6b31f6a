"""Train a model from training data and word vectors or a pretrained encoder: in this process, or by workers on Ray."""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paraembed.checkpoint import OWN_FILES
from paraembed.console import doing, duration, is_quiet, say
from paraembed.io.atomic import work_folder, write_json
from paraembed.io.fingerprint import differences, read_json
from paraembed.io.places import shown
from paraembed.io.resume import Work, cannot_overwrite, check_own_files, described, foreign_work
from paraembed.io.staging import Mirror, sibling
from paraembed.late import Late
from paraembed.process import on_cluster, records_graphs
from paraembed.settings import Placement, Workers, check_register
from paraembed.signals import RunFailedError
from paraembed.supervised.labels import TrainingData
from paraembed.tracking.records import Run
from paraembed.tracking.runs import send_left, tracked_run
from paraembed.training.data import Table
from paraembed.training.initial import Coverage, available_memory, check_coverage, check_memory
from paraembed.training.state import Checkpoints, Counters

if TYPE_CHECKING:
    import torch

    from paraembed.cluster import train_worker
    from paraembed.training import loop
else:
    torch, loop = Late("torch"), Late("paraembed.training.loop")
    train_worker = Late("paraembed.cluster.train_worker")

_COVERAGE, _CONFIG = "coverage.json", "config.json"
_FILES = re.compile(
    r"(identity|run|coverage)\.json|(untrained|trained|model|checkpoints|ray|pairs)/.*"
    r"|\.(identity\.json|run\.json|coverage\.json|untrained|trained|model|pairs)\.([0-9a-f]{8}\.)?(tmp|old)(/.*)?",
    re.DOTALL,
)
"""Pattern of the paths in a work folder."""


@dataclass(frozen=True)
class Training:
    """A training job: data, output and placement.

    Until ``out`` is complete, the work is in ``<out>.training``: the untrained model and the latest checkpoints. If the
    output is on an object store, at ``uri``, then ``out`` is the copy on this machine, and the work is also at
    ``<uri>.training``, so that workers and resumed runs need no shared folder.
    """

    name: str  # of the recipe, for the record
    data: TrainingData  # with the recipe
    out: Path
    placement: Workers = field(default_factory=Workers)
    uri: str | None = None
    named: Callable[[str], str] = str  # path of an input → its name for MLflow, such as the URI of a copy
    register: str | None = None  # name in MLflow's model registry; None: the model is logged, but not registered
    earlier_tokenizer: str | None = None  # default of earlier versions, with which their work is resumed

    def __post_init__(self) -> None:
        """Raise ValueError if the name to register is not allowed."""
        check_register(self.register)

    @property
    def work(self) -> Path:
        """Folder of the unfinished training."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def home(self) -> Mirror:
        """The output, with its copy on the object store if it has one."""
        return Mirror(self.out, self.uri)

    @property
    def shared(self) -> Mirror:
        """The unfinished training, with its copy on the object store if it has one."""
        return Mirror(self.work, self.uri and sibling(self.uri, ".training"))

    @property
    def trace(self) -> Path | None:
        """File for the profile of some steps, if requested."""
        asked = isinstance(self.placement, Placement) and self.placement.profile
        return self.out.with_name(f"{self.out.name}.trace.json.gz") if asked else None


@dataclass(frozen=True)
class TrainingResult:
    """Result of ``train_model``: the table of scores, if there are any, and whether nothing was left to do."""

    table: Table | None
    was_finished: bool


def train_model(training: Training, *, overwrite: bool = False) -> TrainingResult:
    """Train a model and write its folder; the same call resumes a killed training.

    ``overwrite`` replaces another model at ``out``, and discards another unfinished training there.

    Raises:
        OSError, ValueError: an input or output cannot be used; then nothing was changed. Or the loss is not finite.
    """
    if training.uri is not None:
        check_output(training.uri, training.placement, training.data.job, overwrite=overwrite)
    _fetch_work(training)
    training = training if overwrite else _as_begun(training)
    data, out, placement = training.data, training.out, training.placement
    work = Work(out, training.work, "identity.json", data.identity(), _FILES, f"jobs/{data.job}.py", overwrite)

    if work.is_finished(data.identity_at):
        send_left(training.home.records)
        say(f"{shown(training.uri or out)} is already finished; nothing to do")
        if training.register is not None:
            say("warning: `register` has no effect after a training; register the model of its MLflow run")
        if work.is_recorded():
            training.shared.remove()
        work.remove_leftover()
        return TrainingResult(data.table_at(out), was_finished=True)
    check_placement(placement)
    check_own_files(out, OWN_FILES, work.job, may_be_link=True)
    data.check(placement.most)
    memory = data.memory(placement.most, gpus=placement.gpus)
    if on_cluster():  # each worker checks its machine; here only the word vectors are read
        memory = replace(memory, copies=0, pairs=0, best=0, mapped=0, workers=1)
    check_memory(memory, available_memory())
    with work_folder(work.folder):
        if _prepare(data, work):
            training.shared.remove()  # what another training left, if the removal of its work was interrupted
            training.shared.push()
        if data.convert(work.folder / "untrained", work.folder / "pairs"):
            training.shared.push("pairs")
        table = _train(training, work)
        work.remove()
        training.shared.remove()
    return TrainingResult(table, was_finished=False)


def check_output(uri: str | None, placement: Workers, job: str, *, overwrite: bool) -> None:
    """Check what can be checked without the inputs, which may take long to download; ``uri`` is None for a folder.

    Raises:
        ValueError: a GPU is missing, or the number of workers is to change on a single machine; the output is to be
            overwritten or a profile to be written, which is only possible for a folder; or the work at the URI holds
            other files.
    """
    check_placement(placement)
    if uri is None:
        return
    if isinstance(placement, Placement) and placement.profile:
        raise ValueError("`profile` writes a file next to `out`, so it needs a folder; leave it out, or change `out`")
    if overwrite:
        raise cannot_overwrite(shown(uri))
    doing(f"looking for earlier work at {shown(uri)}")
    Mirror(Path(), sibling(uri, ".training")).check(_FILES, f"jobs/{job}.py")


def _fetch_work(training: Training) -> None:
    """Download what an earlier run left on the object store; raise ValueError if the output holds other files."""
    if training.uri is None:
        return
    training.home.pull([_CONFIG])
    training.shared.pull(["identity.json", "run.json", _COVERAGE, "untrained", "pairs"])
    names = training.home.names()
    if names and not (training.out / _CONFIG).exists() and not (training.work / "identity.json").exists():
        raise foreign_work(shown(training.uri), names[0], f"jobs/{training.data.job}.py")


def _as_begun(training: Training) -> Training:
    """Return the training with the earlier tokenizer, if output or unfinished training have this recipe with it."""
    begun, tokenizer = [described(training.work / "identity.json")], training.earlier_tokenizer
    with suppress(OSError, ValueError):
        begun.append(training.data.identity_at(training.out))
    recipe = replace(training.data.recipe, tokenizer=tokenizer or training.data.recipe.tokenizer)
    if tokenizer is None or all(identity.get("recipe") != recipe.to_dict() for identity in begun):
        return training
    say(f"{shown(training.uri or training.out)} keeps the tokenizer {tokenizer}, the default of earlier versions")
    return replace(training, data=training.data.with_recipe(recipe))


def check_placement(placement: Workers) -> None:
    """Raise ValueError if the job runs on this machine only, and its number of workers is to change, or it needs
    GPUs and PyTorch finds no GPU.
    """
    if placement.is_elastic and not on_cluster():
        raise ValueError(
            f"`workers` is {placement.workers}, but their number changes only on a Ray cluster, with its machines; "
            "give one number, or run it as a job of a cluster"
        )
    if placement.gpus and not torch.cuda.is_available() and not on_cluster():
        raise ValueError("`gpus` is set, but PyTorch finds no GPU on this machine; leave it out to train on CPUs")


def remove_other(training: Training) -> None:
    """Remove another model, and another unfinished training, from the object store; for an output of the job itself."""
    identity = training.data.identity()
    for copy, record, read in (
        (training.home, _CONFIG, training.data.identity_at),
        (training.shared, "identity.json", lambda folder: read_json(folder / "identity.json")),
    ):
        copy.pull([record])
        if (copy.folder / record).exists() and differences(read(copy.folder), identity):
            copy.remove()
            shutil.rmtree(copy.folder)


def _prepare(data: TrainingData, work: Work) -> bool:
    """Write the untrained model to the work folder, and return True; False if it already holds the same training."""
    saved, about = work.folder / _COVERAGE, (data.min_coverage, data.vectors, data.texts)
    if work.is_begun():
        say(f"resuming the work in {work.folder}")
        try:
            coverage: Coverage = read_json(saved, Coverage)
        except (OSError, ValueError):  # of an older version, or damaged
            _, coverage = data.untrained()
        check_coverage(coverage, *about)
        return False
    doing(f"counting the tokens of {data.texts}, reading {data.vectors}")
    model: Any
    model, coverage = data.untrained()
    say(
        f"{coverage.num_words:,} words of width {coverage.width}; the vectors of {data.vectors} cover "
        f"{coverage.covered:.1%} of the words of {data.texts}; {coverage.num_random:,} words have a random vector"
    )
    check_coverage(coverage, *about)
    work.clear()
    data.save(model, work.folder / "untrained", card="Untrained.\n")
    write_json(saved, asdict(coverage))
    work.begin()
    return True


def _train(training: Training, work: Work) -> Table | None:
    data, out, placement, trace = training.data, training.out, training.placement, training.trace
    doing("starting MLflow")
    name = f"{data.job} {out.name}"
    with tracked_run(name, training.home.records, work.folder / "run.json") as run:
        # What a resumed run may change is a tag: MLflow rejects another value of a parameter.
        run.tags({"recipe": training.name, "workers": str(placement.workers), "gpus": str(placement.gpus)})
        for start, record in data.start_of(work.fingerprint).items():
            run.tags({f"{start}.{key}": str(value) for key, value in record.items()})
        run.params(work.fingerprint["recipe"])
        run.params(data.params(work.fingerprint))
        for input_name, digest, path, rows in data.datasets(work.fingerprint):
            run.dataset(input_name, digest, [training.named(str(path))], "training", rows)
        if (work.folder / "run.json").exists():
            training.shared.push("run.json")
        task = _task(training, run)
        if placement.most == 1 and not on_cluster():  # Ray would take 9 s to start, and bring nothing
            result = train_worker.work_on(task, train_worker.OnlyWorker())
        else:
            from paraembed.cluster.train_ray import fit  # noqa: PLC0415 - with Ray, 3 s

            result = fit(task, placement)
        if "stopped" in result:
            raise KeyboardInterrupt
        if "error" in result:
            raise RunFailedError(result["error"])
        counters: Counters = result["counters"]
        if counters.skipped_pairs:
            say(f"{counters.skipped_pairs} pairs were alone in a batch, had no negative, and were skipped")
        doing(f"scoring and writing the {data.model}")
        rate = counters.pairs / max(counters.seconds, 1e-9)
        run.metrics({f"{data.unit}_per_second/mean": rate, "training_seconds": counters.seconds})
        training.shared.pull(["trained"])
        table = data.finish(training.name, work, counters, run.metrics)
        training.home.push()
        fingerprint = read_json(out / "config.json", dict[str, Any])["fingerprint"]
        run.model(out, data.model, {"fingerprint": fingerprint}, training.register)
        if trace is not None and trace.exists():
            run.artifacts(trace)
            say(f"wrote {trace}, a trace of {loop.TRACED_STEPS} steps; open it at https://ui.perfetto.dev")
        run.tags({"fingerprint": fingerprint})
    say(f"trained on {counters.pairs:,} {data.unit} in {duration(counters.seconds)}: {rate:,.0f} {data.unit}/s")
    return table


def _task(training: Training, run: Run) -> "train_worker.WorkerTask":
    placement = training.placement
    saves = Checkpoints(
        training.work / "checkpoints",
        60 * placement.checkpoint_minutes,
        placement.checkpoint_steps,
        placement.keep_checkpoints,
    )
    assert run.records is not None
    data, device = training.data.for_workers(), "cuda" if placement.gpus else "cpu"
    return train_worker.WorkerTask(
        training.shared,
        data,
        device,
        saves,
        run.records,
        training.trace,
        records_graphs=records_graphs(),
        is_quiet=is_quiet(),
    )
