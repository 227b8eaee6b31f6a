"""Benchmark of training, next to what others would write, as ratios in one run.

Every program trains the same word vectors on the same generated pairs, in separate processes. Programs that need Ray
are in ``on_ray``, because this module only needs torch, numpy and pyarrow.
"""

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from infra.bench.command import MEGA_BATCH_SIZE, TEXTS, TRAIN_PROGRAMS, Case, Train, missing_package
from infra.bench.generated import draw_pairs, draw_words
from infra.bench.peers import embedding, embedding_bag, train_static_embedding
from infra.bench.rounds import Clock, Program, Result, Results, has, measure, metrics, show_table, start
from paraembed.compiled import COMPILED
from paraembed.console import say, show
from paraembed.encoders import Encoder, config_from_dict
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words
from paraembed.training.fast import cpu
from paraembed.training.loop import ProgressReport
from paraembed.training.loop import train as train_loop
from paraembed.training.pairs import epoch_batches
from paraembed.training.step import step_for

PARAEMBED, READY, MEGA, RAY, RAY_WORKERS = "paraembed", "ready", "mega", "ray", "ray_workers"
WORKERS = {
    "workers": (2, "without Ray"),
    "machines": (2, "without shared memory, as on two machines,"),
    "machines3": (3, "without shared memory, as on three machines,"),
}
"""Programs of several workers: their number, and what a note says of them."""
PEERS = ("embedding_bag", "embedding", "static_embedding")
_MOST_MEGA_PAIRS = 10_000  # all texts are compared with all: at batch 1,024 a step takes a CPU core a second
_INTERVAL = 20  # steps between two looks at the clock, and of the warm-up
_MOST_READY = 1000  # batches
_STATIC_PAIRS = 50_000  # for sentence-transformers, which has them as text and tokenizes a batch at a time
_WITHOUT_END = 2**31 - 1  # epochs


def run(options: Train, log_metrics: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Measure each case, print its table, return the numbers; raise ValueError if a program failed or cannot run."""
    numbers = []
    for case in options.cases():
        results = measure_case(case, options.programs, 1 if options.scale else options.rounds)
        _show(case, results)
        log_metrics(metrics(results, "pairs", case.batch_size, f"{case.encoder}/{case.texts}/{case.batch_size}/"))
        programs = {key: {"program": result.name, **result.numbers()} for key, result in results.items()}
        numbers.append({"case": vars(case), "programs": programs})
    is_cuda = options.device == "cuda"
    machine = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if is_cuda else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads a process": options.threads,
        "compiled loops": COMPILED,
    }
    say(", ".join(f"{name} {value}" for name, value in machine.items()))
    return {"machine": machine, "cases": numbers}


def measure_case(case: Case, keys: tuple[str, ...], rounds: int) -> dict[str, Result]:
    """Return the results of programs by key: those of ``keys``, or all that the case and the machine allow."""
    on_ray: dict[str, int] = {}
    if not missing_package():
        on_ray = {RAY: 1} if case.device == "cuda" else {RAY: 1, RAY_WORKERS: 2}  # a GPU a worker
    keys = keys or _suitable(case, [*on_ray])
    for key in keys:
        if key in {RAY, RAY_WORKERS} and key not in on_ray:
            raise ValueError(
                f"--programs {key} cannot run here, because it needs Ray, MLflow and one device per worker"
            )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts = {key: partial(_start, key, case, folder, on_ray.get(key, 0)) for key in keys}
        return measure(starts, rounds, f"{case.encoder}, {case.texts}, batch {case.batch_size}: ")


def _suitable(case: Case, on_ray: list[str]) -> tuple[str, ...]:
    if case.epochs:
        return (PARAEMBED,)
    peers = PEERS if case.encoder == "avg" else ()
    mega = [MEGA] if MEGA_BATCH_SIZE * case.batch_size <= _MOST_MEGA_PAIRS else []
    workers = [key for key in WORKERS if case.device == "cpu" and WORKERS[key][0] <= 2]  # there is one GPU
    return (PARAEMBED, READY, *peers, *mega, *workers, *on_ray)


def _start(key: str, case: Case, folder: Path, ray_workers: int) -> Program:
    """Start a program, with ``folder`` for its files."""
    name, is_whole = TRAIN_PROGRAMS[key], case.epochs > 0
    if ray_workers:
        program: Program = import_module("infra.bench.on_ray").start_training(name, ray_workers, case, folder)
        return program
    if key == MEGA:
        case = replace(case, mega_batch_size=MEGA_BATCH_SIZE)
    own = train_ours if key in {PARAEMBED, MEGA, *WORKERS} else train_other
    workers, _ = WORKERS.get(key, (1, ""))
    return start(
        name,
        own,
        {"case": vars(case), "key": key, "folder": str(folder)},
        processes=workers,
        workers=workers,
        threads=case.threads,
        seconds=0.0 if is_whole else case.seconds,
        device=case.device,
        is_loud=is_whole,
    )


def recipe(case: Case) -> Recipe:
    """Return the recipe of a training; all other fields have their defaults: margin 0.4, cosine, MAX negatives."""
    return Recipe(
        config_from_dict({"name": case.encoder}),
        "space",
        epochs=case.epochs or _WITHOUT_END,
        batch_size=case.batch_size,
        mega_batch_size=case.mega_batch_size,
        precision=case.precision,
        seed=case.seed,
    )


def _words(case: Case) -> Words:
    return draw_words(case.words, case.width, case.seed)


def _encoder(case: Case) -> Encoder:
    return Encoder(config_from_dict({"name": case.encoder}), _words(case), "space", case.seed).to(case.device)


def train_ours(clock: Clock, case: dict[str, Any], key: str, folder: str, rank: int = 0, world: int = 1) -> None:
    """Run the unchanged training loop. The first worker measures the time; the others follow it."""
    size = Case(**case)
    if key.startswith("machines"):
        cpu.shared_zeros = lambda *_: None  # what workers on several machines get
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{key}", rank=rank, world_size=world)

    def on_report(report: ProgressReport) -> None:
        if rank == 0 and not size.epochs:
            clock(report.step)
        elif rank == 0 and (report.step % 10_000 == 0 or report.end_of_epoch):
            print(
                f"epoch {report.epoch}/{report.epochs}  step {report.step:,}/{report.steps:,}  loss {report.loss:.4f}  "
                f"{report.pairs_per_second:,.0f} pairs/s  {report.seconds_left:,.0f} s left",
                file=sys.stderr,
            )

    encoder, pairs = _encoder(size), draw_pairs(size)
    step_texts = 2 * size.batch_size * world
    pairs = pairs.slice(0, len(pairs) // step_texts * step_texts)  # all steps have the same size, also of three workers
    if size.epochs:
        clock(0)
    counters = train_loop(encoder, pairs, recipe(size), rank=rank, world=world, on_report=on_report)
    if size.epochs:
        clock(counters.step)


def train_other(clock: Clock, case: dict[str, Any], key: str, folder: str) -> None:
    """Run only our training step, or a peer program."""
    size = Case(**case)
    pairs = draw_pairs(size)

    def on_step(number: int) -> None:
        if number % _INTERVAL == 0:
            clock(number)

    if key == READY:
        steps = _ready(size, pairs)
    elif key == "static_embedding":
        sample = pairs.slice(0, 2 * min(size.num_pairs, max(_STATIC_PAIRS, size.batch_size)))
        train_static_embedding(_words(size), sample, size.batch_size, size.device, folder, on_step)
        return
    else:
        batches = islice(epoch_batches(pairs, epoch=0, seed=size.seed, batch_size=size.batch_size), _MOST_READY)
        peer = embedding_bag if key == "embedding_bag" else embedding
        steps = peer(_words(size), [batch.texts for batch in batches], torch.device(size.device))
    for number, _loss in enumerate(steps, 1):
        on_step(number)


def _ready(case: Case, pairs: Ragged) -> Iterator[Tensor]:
    """Run only our training step, on batches made in advance."""
    step = step_for(_encoder(case), recipe(case), pairs)
    for number, batch in enumerate(cycle(list(islice(step.batches(pairs, 0), _MOST_READY))), 1):
        yield step(batch, number)


def _show(case: Case, results: Results) -> None:
    show(f"### {case.encoder}, {case.texts}, batch {case.batch_size:,}", "")

    def ratio(result: Result) -> str:
        return f"{results[PARAEMBED].rate / result.rate:.2f}" if has(results, PARAEMBED) else ""

    columns = {
        "ms/step": lambda result: _milliseconds(result.seconds),
        "CPU ms/step": lambda result: _milliseconds(result.cpu_seconds) if result.cpu_seconds else "",
        "pairs/s": lambda result: f"{case.batch_size * result.rate:,.0f}",
        "paraembed ×": ratio,
        "peak MB": lambda result: f"{result.peak_bytes / 1e6:,.0f}" if result.peak_bytes else "",
        "warm-up s": lambda result: f"{result.warm_up_seconds:.1f}",
    }
    show_table("program", results.values(), columns)
    show(*(f"* {note}" for note in notes(case, results)), "")


def notes(case: Case, results: Results) -> list[str]:
    """Return notes on the results of a case."""
    lines = []
    for result in results.values():
        if case.epochs and not result.skipped:
            whole = result.rounds[0]
            lines.append(
                f"{result.name}: {case.epochs} epochs of {case.num_pairs:,} pairs, {whole.steps:,} steps: "
                f"{whole.seconds:,.0f} s"
            )
    if has(results, PARAEMBED, READY):
        share = 1 - results[READY].seconds / results[PARAEMBED].seconds
        lines.append(f"making batches takes {share:.1%} of a step; the rest is the step with its batch ready")
    if has(results, PARAEMBED) and results[PARAEMBED].peak_bytes:
        ids = 2 * case.num_pairs * TEXTS[case.texts] * 4
        allowed = (ids + 4 * case.words * case.width * 4 + 1e9) / 1e6  # words, Adam's two moments, one more
        lines.append(
            f"peak memory {results[PARAEMBED].peak_bytes / 1e6:,.0f} MB; "
            f"ids + 4 word matrices + 1 GB are {allowed:,.0f} MB"
        )
    if has(results, PARAEMBED) and case.device == "cuda":
        lines.append(f"peak GPU memory {results[PARAEMBED].rounds[-1].device_bytes / 1e6:,.0f} MB")
    for key, (workers, how) in WORKERS.items():
        if has(results, PARAEMBED, key):
            gain = results[key].rate / results[PARAEMBED].rate
            sent = results[key].median(lambda round_: round_.loopback_bytes / round_.steps) / 1e3
            lines.append(
                f"{how} {workers} workers train {gain:.2f} × the pairs of one; they exchange {sent:,.0f} kB a step"
            )
    if has(results, PARAEMBED, RAY):
        lines.append(f"a step on Ray takes {results[RAY].seconds / results[PARAEMBED].seconds - 1:+.1%}")
    if has(results, RAY, RAY_WORKERS):
        lines.append(f"on Ray 2 workers train {results[RAY_WORKERS].rate / results[RAY].rate:.2f} × the pairs of one")
    return lines


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g}" if seconds < 1 else f"{seconds * 1000:,.0f}"
