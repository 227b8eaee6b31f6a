"""Time embedding with averages: in memory next to other libraries, and from text to Parquet next to plain code.

Programs of one table run in interleaved rounds. ``jobs/embed.py`` as a program is in ``on_ray``, because the processes
of the other programs import this module without Ray.
"""

import tempfile
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.nn import functional as F

from infra.bench.command import Add, count, path
from infra.bench.generated import draw_lines, frequent_words
from infra.bench.peers import model2vec_encode, static_embedding_encode
from infra.bench.rounds import Clock, Log, Program, has, measure, ratio, repeat, report, show_table, start
from paraembed import checkpoint
from paraembed.console import doing, show
from paraembed.embedding.part import layout
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.inflate import read_blocks
from paraembed.text.ragged import Ragged
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import word_ids

PROGRAMS = {
    "encode": "paraembed",
    "model2vec": "model2vec StaticModel",
    "static_embedding": "sentence-transformers StaticEmbedding",
    "float32": "jobs/embed.py",
    "float16": "jobs/embed.py --dtype float16",
    "floor": "tokenize, embedding_bag, write_table",
}
GROUPS = {"in memory": ("encode", "model2vec", "static_embedding"), "end to end": ("float32", "float16", "floor")}
TOKENIZER = "ptb-v1"
_BATCH_ROWS = Settings().batch_size
_MEAN_TOKENS = 19.0  # of the sentences of Project Gutenberg and the Brown corpus
_MOST_GENERATED = 200_000  # sentences; more rows begin again
_COUNTED_BYTES = 32 << 20  # of text that the vocabulary comes from
_BLOCK_BYTES = 8 << 20


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--encoder", type=path, help="encoder folder; by default, avg with random vectors")
    add("--texts", type=path, nargs="*", default=[], help="files, a sentence a line; by default, generated")
    add("--rows", type=count, default=776_000, help="sentences embedded from text to Parquet")
    add("--memory-rows", type=count, default=100_000, help="sentences of a call of encode")
    add("--part-rows", type=count, default=100_000, help="rows of an output file")
    add("--workers", type=count, default=2, help="processes, or threads of one process")
    add("--words", type=count, default=40_000, help="words of the encoder that is generated")
    add("--width", type=count, default=300, help="width of its word vectors")
    add("--folder", type=path, help="folder for temporary files, 3 kB a row")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the tables, return the numbers."""
    programs: dict[str, Program] = {}
    with tempfile.TemporaryDirectory(prefix="bench-embed-", dir=options.folder) as name:
        doing("writing sentences and encoder")
        encoder = write_inputs(options, Path(name))
        for group in GROUPS.values():
            keys = [key for key in group if key in options.programs]
            starts = {key: partial(start_program, key, options, Path(name), encoder) for key in keys}
            programs |= measure(starts, options.rounds, log, "rows")
    columns = {
        "rows": lambda program: f"{program.rounds[0].steps:,}",
        "rows/s": lambda program: f"{program.rate:,.0f}",
        "paraembed ×": ratio(programs, {key: group[0] for group in GROUPS.values() for key in group}),
        "peak MB a process": lambda program: f"{program.peak_bytes / 1e6:,.0f}",
    }
    for head, group in GROUPS.items():
        show_table(head, [programs[key] for key in group if key in programs], columns)
    if has(programs, "float32"):
        start_seconds = programs["float32"].median(lambda round_: round_.start_seconds)
        log({"float32/start_seconds": start_seconds})
        show(f"* from the command to the first part: {start_seconds:.1f} s", "")
    return report(options, programs)


def write_inputs(options: Namespace, folder: Path) -> Path:
    """Write the sentences, one per line, and an encoder if none is given; return the encoder's folder."""
    if options.texts:
        data = b"".join(map(_read_lines, options.texts))
    else:
        data = draw_lines(min(_MOST_GENERATED, options.rows), _MEAN_TOKENS, options.words, options.seed)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not len(ends):
        raise ValueError(f"--texts {' '.join(options.texts)}: no lines; give files with one sentence per line")
    with (folder / "texts.txt").open("wb") as file:  # from the first line again after the last
        for _ in range(options.rows // len(ends)):
            file.write(data)
        if rest := options.rows % len(ends):
            file.write(data[: ends[rest - 1]])
    if options.encoder:
        checkpoint.load(options.encoder)  # an encoder that will not do is an error now
        return Path(options.encoder)
    counted = data[: ends[np.searchsorted(ends, min(_COUNTED_BYTES, len(data)))]]
    words = frequent_words(counted, TOKENIZER, options.words, options.width, options.seed)
    encoder = Encoder(AvgConfig(), words, TOKENIZER, options.seed)
    checkpoint.save(encoder, folder / "encoder", recipe={}, provenance={"made by": "bench.py embed"}, model_card="")
    return folder / "encoder"


def _read_lines(name: str) -> bytes:
    data = b"".join(read_blocks(Path(name), _BLOCK_BYTES))
    return data if not data or data.endswith(b"\n") else data + b"\n"


def start_program(key: str, options: Namespace, folder: Path, encoder: Path) -> Program:
    """Start a program of ``PROGRAMS`` on the files that ``write_inputs`` wrote to the folder."""
    texts, out = folder / "texts.txt", folder / key
    if key in {"float32", "float16"}:
        flags = {"encoder": encoder, "input": texts, "dtype": key, "part-rows": options.part_rows}
        job: Program = import_module("infra.bench.on_ray").start_job(PROGRAMS[key], options.workers, flags, folder)
        return job
    given: dict[str, Any] = {"encoder": str(encoder), "texts": str(texts)}
    if key == "floor":
        out.mkdir()
        given |= {"out": str(out), "rows": options.rows, "part_rows": options.part_rows}
        return start(PROGRAMS[key], write_plainly, given, processes=options.workers)
    given |= {"key": key, "rows": min(options.rows, options.memory_rows)}
    return start(PROGRAMS[key], encode_in_memory, given, threads=options.workers)


def encode_in_memory(clock: Clock, key: str, encoder: str, texts: str, rows: int) -> None:
    """Encode texts in memory."""
    loaded, lines = checkpoint.load(encoder), _read(texts, rows).to_pylist()
    peers = {"model2vec": model2vec_encode, "static_embedding": static_embedding_encode}
    encode: Callable[[list[str]], Any] = loaded.encode
    if key in peers:
        encode = peers[key](loaded.vocabulary.to_pylist())
    encode(lines)
    repeat(clock, lambda: encode(lines), len(lines))


def write_plainly(
    clock: Clock, encoder: str, texts: str, out: str, rows: int, part_rows: int, rank: int = 0, world: int = 1
) -> None:
    """Write texts in memory to Parquet with minimal work: no plan, no report, no digest, no fsync."""
    loaded = checkpoint.load(encoder)
    first_row, stop = (rows * number // world for number in (rank, rank + 1))
    lines = _read(texts, stop).slice(first_row)
    kind = pa.list_(pa.float32(), loaded.width)
    schema = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field("embedding", kind, nullable=False)])
    options = layout(schema, Settings())

    def embed(first: int, batch: pa.StringArray) -> pa.Table:
        tokens = tokenize(batch, loaded.tokenizer)
        ids = Ragged(word_ids(tokens.flat, loaded.vocabulary), tokens.offsets)
        bags = torch.from_numpy(ids.ids), loaded.matrix, torch.from_numpy(ids.offsets.astype(np.int32))
        vectors: npt.NDArray[np.float32] = F.embedding_bag(*bags, mode="mean", include_last_offset=True).numpy()
        embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)
        return pa.table([pa.array(first + np.arange(len(vectors))), embedding], schema=schema)

    @torch.inference_mode()
    def work() -> None:
        for begin in range(0, len(lines), part_rows):
            part = lines.slice(begin, part_rows)
            firsts = range(0, len(part), _BATCH_ROWS)
            tables = [embed(first_row + begin + first, part.slice(first, _BATCH_ROWS)) for first in firsts]
            pq.write_table(pa.concat_tables(tables), Path(out) / f"{rank}-{begin}.parquet", **options)

    work()
    repeat(clock, work, len(lines))


def _read(texts: str, rows: int) -> pa.StringArray:
    lines = Path(texts).read_bytes().decode("utf-8", "replace").split("\n")[:-1]
    return pa.array(lines[:rows], pa.string())
