"""Time training on generated pairs next to what others would write, with each program in its own processes.

Every program trains the same word vectors on the same pairs. This module only needs torch, numpy and pyarrow.
"""

import platform
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, product
from typing import Any

import torch
import torch.distributed as dist

from infra.bench.command import Add, count
from infra.bench.generated import draw_texts, draw_words, word_chances
from infra.bench.peers import embedding, embedding_bag, train_static_embedding
from infra.bench.rounds import Clock, Log, Program, Programs, has, measure, ratio, report, show_table, start
from paraembed.console import show
from paraembed.encoders import ENCODERS, Encoder, config_from_dict
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.fast import cpu
from paraembed.training.loop import ProgressReport
from paraembed.training.loop import train as train_loop
from paraembed.training.pairs import epoch_batches

TEXTS = {"sentences": 15.0, "phrases": 4.0}
"""Mean number of tokens per text; 4 is close to the phrases of PPDB XXL."""
SCALE = {"texts": "phrases", "batch_size": 100, "pairs": 9_100_000, "epochs": 10}
PROGRAMS = {
    "paraembed": "paraembed",
    "embedding_bag": "EmbeddingBag(sparse=True), SparseAdam",
    "embedding": "Embedding, Adam",
    "static_embedding": "sentence-transformers StaticEmbedding",
    "workers": "paraembed, 2 workers",
    "machines": "paraembed, 2 workers without shared memory",
    "machines3": "paraembed, 3 workers without shared memory",
}
PEERS = ("embedding_bag", "embedding", "static_embedding")
WORKERS = {"workers": 2, "machines": 2, "machines3": 3}
_INTERVAL = 20  # steps between two looks at the clock, and of the warm-up
_MOST_READY = 1000  # batches
_STATIC_PAIRS = 50_000  # for sentence-transformers, which has them as text and tokenizes a batch at a time
_WITHOUT_END = 2**31 - 1  # epochs


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--texts", nargs="+", choices=TEXTS, default=[*TEXTS], help="sentences (15 tokens a text) or phrases (4)")
    add("--batch-sizes", type=count, nargs="+", default=[100, 1024], help="pairs a step and worker")
    add("--encoders", nargs="+", choices=ENCODERS, default=["avg"], metavar="NAME", help="the peers train avg only")
    add("--scale", action="store_true", help="instead, one whole training: 9,100,000 pairs of phrases, 10 epochs")
    add("--pairs", type=count, default=200_000, help="generated pairs; rounded down to full batches of two workers")
    add("--words", type=count, default=40_000, help="rows of the word matrix")
    add("--width", type=count, default=300, help="width of a word vector")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="device of the training")
    add("--precision", choices=["float32", "bfloat16"], default="float32", help="bfloat16 needs a GPU")
    add("--threads", type=count, default=1, help="threads of PyTorch in each process")
    add("--seconds", type=float, default=2.0, help="shortest round, in seconds")


@dataclass(frozen=True)
class Case:
    """One training to measure; with ``epochs`` 0 it runs until the rounds end."""

    encoder: str
    texts: str
    batch_size: int
    pairs: int
    words: int
    width: int
    device: str
    precision: str
    seed: int
    epochs: int = 0

    def draw_pairs(self) -> Ragged:
        """Return full batches of two workers, so that all steps have the same size; texts 2i and 2i + 1 are a pair."""
        num_pairs = self.pairs // (2 * self.batch_size) * 2 * self.batch_size
        return draw_texts(2 * num_pairs, TEXTS[self.texts], word_chances(self.words), self.seed)

    def recipe(self) -> Recipe:
        """Return the recipe; all other fields have their defaults: margin 0.4, cosine, MAX negatives."""
        return Recipe(
            config_from_dict({"name": self.encoder}),
            "space",
            epochs=self.epochs or _WITHOUT_END,
            batch_size=self.batch_size,
            precision="bfloat16" if self.precision == "bfloat16" else "float32",
            seed=self.seed,
        )


def cases(options: Namespace) -> Iterator[Case]:
    """Yield the trainings to measure; raise ValueError if one is not possible."""
    if options.device == "cpu" and options.precision != "float32":
        raise ValueError(f"precision is {options.precision!r}, but a CPU trains only in float32; use float32")
    same = {name: getattr(options, name) for name in ("pairs", "words", "width", "device", "precision", "seed")}
    sizes = [
        dict(zip(("texts", "batch_size"), size, strict=True)) for size in product(options.texts, options.batch_sizes)
    ]
    for encoder, size in product(options.encoders, [SCALE] if options.scale else sizes):
        case = Case(**{**same, **size}, encoder=encoder)
        if case.pairs < 2 * case.batch_size:
            raise ValueError(f"pairs is {case.pairs}; two workers of batch size {case.batch_size} need twice as many")
        yield case


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure each case, print its table, return the numbers."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    measured = []
    for case in cases(options):
        keys = [key for key in PROGRAMS if key in options.programs and _suits(key, case)]
        about = f"{case.encoder}/{case.texts}/{case.batch_size}/"
        with tempfile.TemporaryDirectory() as folder:
            starts = {key: partial(_start, key, case, options, folder) for key in keys}
            rounds = 1 if options.scale else options.rounds
            programs = measure(starts, rounds, log, "pairs", per_step=case.batch_size, about=about)
        _show(case, programs)
        notes = device, f"threads a process {options.threads}"
        measured.append({"case": asdict(case), **report(options, programs, *notes)})
    return {"cases": measured}


def _suits(key: str, case: Case) -> bool:
    """Return whether a program can run the case: peers train ``avg``, there is one GPU; a whole training is alone."""
    is_peer, is_alone = key in PEERS, key == "paraembed"
    return is_alone or (not case.epochs and (case.encoder == "avg" if is_peer else case.device == "cpu"))


def _start(key: str, case: Case, options: Namespace, folder: str) -> Program:
    workers, is_whole = WORKERS.get(key, 1), case.epochs > 0
    return start(
        PROGRAMS[key],
        train_peer if key in PEERS else train_paraembed,
        {"case": asdict(case), "key": key, "folder": folder},
        processes=workers,
        workers=workers,
        threads=options.threads,
        seconds=0.0 if is_whole else options.seconds,
        device=case.device,
        is_loud=is_whole,
    )


def train_paraembed(clock: Clock, case: dict[str, Any], key: str, folder: str, rank: int = 0, world: int = 1) -> None:
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
            left = f"{report.pairs_per_second:,.0f} pairs/s  {report.seconds_left:,.0f} s left"
            print(f"epoch {report.epoch}  step {report.step:,}  loss {report.loss:.4f}  {left}", file=sys.stderr)

    words, pairs = draw_words(size.words, size.width, size.seed), size.draw_pairs()
    encoder = Encoder(size.recipe().encoder, words, "space", size.seed).to(size.device)
    step_texts = 2 * size.batch_size * world
    pairs = pairs.slice(0, len(pairs) // step_texts * step_texts)  # all steps have the same size, also of three workers
    if size.epochs:
        clock(0)
    counters = train_loop(encoder, pairs, size.recipe(), rank=rank, world=world, on_report=on_report)
    if size.epochs:
        clock(counters.step)


def train_peer(clock: Clock, case: dict[str, Any], key: str, folder: str) -> None:
    """Run a peer program."""
    size = Case(**case)
    words, pairs = draw_words(size.words, size.width, size.seed), size.draw_pairs()

    def on_step(number: int) -> None:
        if number % _INTERVAL == 0:
            clock(number)

    if key == "static_embedding":
        sample = pairs.slice(0, min(len(pairs), 2 * max(_STATIC_PAIRS, size.batch_size)))
        train_static_embedding(words, sample, size.batch_size, size.device, folder, on_step)
        return
    batches = islice(epoch_batches(pairs, epoch=0, seed=size.seed, batch_size=size.batch_size), _MOST_READY)
    train = embedding_bag if key == "embedding_bag" else embedding
    for number, _ in enumerate(train(words, [batch.texts for batch in batches], torch.device(size.device)), 1):
        on_step(number)


def _show(case: Case, programs: Programs) -> None:
    show(f"### {case.encoder}, {case.texts}, batch {case.batch_size:,}", "")
    columns = {
        "ms/step": lambda program: f"{program.seconds * 1000:,.2f}",
        "CPU ms/step": lambda program: f"{1000 * program.median(lambda r: r.cpu_seconds / r.steps):,.2f}",
        "pairs/s": lambda program: f"{case.batch_size * program.rate:,.0f}",
        "paraembed ×": ratio(programs, dict.fromkeys(PROGRAMS, "paraembed")),
        "peak MB": lambda program: f"{program.peak_bytes / 1e6:,.0f}",
        "GPU MB": lambda program: f"{program.rounds[-1].device_bytes / 1e6:,.0f}",
    }
    show_table("program", programs.values(), columns)
    if case.epochs and has(programs, "paraembed"):
        (whole,) = programs["paraembed"].rounds
        show(f"* {case.epochs} epochs of {case.pairs:,} pairs, {whole.steps:,} steps: {whole.seconds:,.0f} s", "")
