"""Benchmark of embedding, as ratios in one run: in memory, from text to Parquet, memory, parts, stages.

Programs of one table run in interleaved rounds. ``jobs/embed.py`` as a program is in ``on_ray``, because the processes
of the other programs import this module without Ray.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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

from infra.bench.command import EMBED_PROGRAMS, Embed
from infra.bench.generated import draw_lines, frequent_words
from infra.bench.peers import model2vec_encode, static_embedding_encode
from infra.bench.rounds import Clock, Program, Result, Results, Round, has, measure, metrics, repeat, show_table, start
from paraembed import checkpoint
from paraembed.console import doing, say, show
from paraembed.embedding.columns import carried_fields
from paraembed.embedding.inputs import check_apart, find_inputs, hash_inputs
from paraembed.embedding.part import REPORTS, embed_part, embedded, layout
from paraembed.embedding.plan import Plan, make_plan, part_name
from paraembed.embedding.rows import InputRows, read_part
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.atomic import write_file
from paraembed.io.inflate import read_blocks
from paraembed.io.store import Folder
from paraembed.text.ragged import Ragged
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import word_ids

IN_MEMORY = ("encode", "encode_1", "model2vec", "static_embedding")
JOBS = ("float32", "float16", "few", "many", "large")
STAGES = ("read", "tokenize", "gather", "write", "part")
SIZES = ("few_files", "many_files", "few_groups", "many_groups")
GROUPS = (IN_MEMORY, ("float32", "float16", "floor"), ("few", "many"), ("large",), STAGES, SIZES)
"""Programs whose rounds are interleaved; ``large`` measures only memory, and runs once."""
TOKENIZER = "ptb-v1"
_BATCH_ROWS = Settings().batch_size
_GROUPS_A_PART, _PARTS = 100, 8
_MEAN_TOKENS = 19.0  # of the sentences of Project Gutenberg and the Brown corpus
_MOST_GENERATED = 200_000  # sentences; more rows begin again
_COUNTED_BYTES = 32 << 20  # of text that the vocabulary comes from
_BLOCK_BYTES = 8 << 20


def run(options: Embed, log_metrics: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Measure, print the tables, return the numbers."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="bench-embed-", dir=options.folder) as name:
        doing("writing sentences and encoder")
        encoder = write_inputs(options, Path(name))
        for group in GROUPS:
            keys = [key for key in group if not options.programs or key in options.programs]
            starts = {key: partial(start_program, key, options, Path(name), encoder) for key in keys}
            measured = measure(starts, 1 if group == ("large",) else options.rounds)
            log_metrics(metrics(measured, "rows") | _start_seconds(measured))
            results |= measured
    show_tables(options, results)
    say(f"median of {options.rounds} rounds; torch {torch.__version__}, {os.cpu_count()} cores")
    settings = options.settings() | {"encoder": str(options.encoder), "texts": " ".join(options.texts)}
    programs = {key: result.numbers() for key, result in results.items()}
    return {"settings": settings, "cores": os.cpu_count(), "programs": programs}


def write_inputs(options: Embed, folder: Path) -> Path:
    """Write the sentences, one per line, and an encoder if none is given; return the encoder's folder."""
    if options.texts:
        data = b"".join(map(_read_lines, options.texts))
    else:
        most = max(options.rows, options.small_rows, options.large_rows)
        data = draw_lines(min(_MOST_GENERATED, most), _MEAN_TOKENS, options.words, options.seed)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not len(ends):
        raise ValueError(f"--texts {' '.join(options.texts)}: no lines; give files with one sentence per line")
    for name, rows in (("texts", options.rows), ("small", options.small_rows), ("large", options.large_rows)):
        with (folder / f"{name}.txt").open("wb") as file:  # from the first line again after the last
            for _ in range(rows // len(ends)):
                file.write(data)
            if rest := rows % len(ends):
                file.write(data[: ends[rest - 1]])
    if options.encoder:
        checkpoint.load(options.encoder)  # an encoder that will not do is an error now
        return Path(options.encoder)
    counted = data[: ends[np.searchsorted(ends, min(_COUNTED_BYTES, len(data)))]]
    words = frequent_words(counted, TOKENIZER, options.words, options.width, options.seed)
    encoder = Encoder(AvgConfig(), words, TOKENIZER, options.seed)
    checkpoint.save(encoder, folder / "encoder", recipe={}, provenance={"made by": "bench.py embed"}, model_card="")
    return folder / "encoder"


def _read_lines(path: str) -> bytes:
    data = b"".join(read_blocks(Path(path), _BLOCK_BYTES))
    return data if not data or data.endswith(b"\n") else data + b"\n"


@dataclass(frozen=True)
class Work:
    """Work of a program's process: ``rows`` texts, input files or row groups; paths are strings, for JSON."""

    key: str
    encoder: str
    texts: str
    folder: str
    rows: int
    part_rows: int
    rank: int = 0
    world: int = 1

    def load(self) -> Encoder:
        """Return the encoder."""
        return checkpoint.load(self.encoder)

    def read(self) -> pa.StringArray:
        """Return the texts, string array [rows], or all of the file if it has fewer."""
        lines = Path(self.texts).read_bytes().decode("utf-8", "replace").split("\n")[:-1]
        return pa.array(lines[: self.rows], pa.string())

    def plan(self) -> Plan:
        """Return the plan of an embedding of the texts."""
        return make_plan(hash_inputs(find_inputs([self.texts])), Settings(part_rows=self.part_rows))


def start_program(key: str, options: Embed, folder: Path, encoder: Path) -> Program:
    """Start a program of ``EMBED_PROGRAMS`` on the files that ``write_inputs`` wrote to the folder."""
    name, rows, processes, threads = EMBED_PROGRAMS[key], options.rows, 1, 1
    texts = folder / (
        "small.txt" if key in ("few", "many", *STAGES) else "large.txt" if key == "large" else "texts.txt"
    )
    if key in JOBS:
        dtype = "float16" if key == "float16" else "float32"
        part_rows = options.small_part_rows if key == "many" else options.part_rows  # few, large: peaks of equal parts
        flags = {"encoder": encoder, "input": texts, "dtype": dtype, "part-rows": part_rows}
        job: Program = import_module("infra.bench.on_ray").start_job(name, options.workers, flags, folder)
        return job
    if key == "floor":
        processes = options.workers
    elif key in SIZES:
        rows = getattr(options, key)
    elif key in STAGES:
        rows = options.small_rows
    else:
        rows, threads = min(rows, options.memory_rows), 1 if key == "encode_1" else options.workers
    (folder / key).mkdir()
    work = Work(key, str(encoder), str(texts), str(folder / key), rows, options.part_rows)
    return start(name, run_program, vars(work), processes=processes, threads=threads)


def run_program(clock: Clock, **work: Any) -> None:
    """Do the work once as warm-up, and then once per round."""
    once = PROGRAMS[work["key"]](Work(**work))
    repeat(clock, once, once())


Pass = Callable[[], int]
"""Function that does the work once and returns the number of rows."""


def _encode(work: Work) -> Pass:
    encoder, texts = work.load(), work.read().to_pylist()
    return lambda: len(encoder.encode(texts))


def _peer(work: Work) -> Pass:
    build = model2vec_encode if work.key == "model2vec" else static_embedding_encode
    texts, encode = work.read().to_pylist(), build(work.load().vocabulary.to_pylist())
    return lambda: len(encode(texts))


def _floor(work: Work) -> Pass:
    """Write texts in memory to Parquet with minimal work: no plan, no report, no digest, no fsync."""
    encoder = work.load()
    first_row, stop = (work.rows * rank // work.world for rank in (work.rank, work.rank + 1))
    texts = replace(work, rows=stop).read().slice(first_row)
    kind = pa.list_(pa.float32(), encoder.width)
    schema = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field("embedding", kind, nullable=False)])
    options = layout(schema, Settings())

    def embed(first: int, batch: pa.StringArray) -> pa.Table:
        tokens = _tokens(batch, encoder)
        bags = torch.from_numpy(tokens.ids), encoder.matrix, torch.from_numpy(tokens.offsets.astype(np.int32))
        vectors: npt.NDArray[np.float32] = F.embedding_bag(*bags, mode="mean", include_last_offset=True).numpy()
        embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)
        return pa.table([pa.array(first + np.arange(len(vectors))), embedding], schema=schema)

    @torch.inference_mode()
    def once() -> int:
        for begin in range(0, len(texts), work.part_rows):
            part = texts.slice(begin, work.part_rows)
            firsts = range(0, len(part), _BATCH_ROWS)
            tables = [embed(first_row + begin + first, part.slice(first, _BATCH_ROWS)) for first in firsts]
            pq.write_table(pa.concat_tables(tables), Path(work.folder) / f"{work.rank}-{begin}.parquet", **options)
        return len(texts)

    return once


def _read(work: Work) -> Pass:
    plan = work.plan()
    return lambda: sum(len(rows.texts) for rows in _rows(plan))


def _tokenize(work: Work) -> Pass:
    encoder, texts = work.load(), [rows.texts for rows in _rows(work.plan())]
    return lambda: sum(len(_tokens(batch, encoder)) for batch in texts)


def _gather(work: Work) -> Pass:
    encoder = work.load()
    tokens = [_tokens(rows.texts, encoder) for rows in _rows(work.plan())]
    filled = [batch.take(np.flatnonzero(batch.lengths > 0)) for batch in tokens]

    @torch.inference_mode()
    def once() -> int:
        for batch in filled:
            encoder(encoder.with_boundaries(batch))
        return sum(map(len, tokens))

    return once


def _write(work: Work) -> Pass:
    encoder, plan = work.load(), work.plan()
    parts = {part.name: list(embedded(encoder, plan.inputs[0], part, plan.settings)) for part in plan.parts}

    def write_batches(file: Any, batches: list[pa.RecordBatch]) -> None:
        with pq.ParquetWriter(file, batches[0].schema, **layout(batches[0].schema, plan.settings)) as writer:
            for batch in batches:
                writer.write_table(pa.Table.from_batches([batch]), row_group_size=len(batch))

    def once() -> int:
        for name, batches in parts.items():
            write_file(Path(work.folder) / name, partial(write_batches, batches=batches))
        return plan.rows

    return once


def _part(work: Work) -> Pass:
    encoder, plan = work.load(), work.plan()
    (Path(work.folder) / REPORTS).mkdir()

    def once() -> int:
        for part in plan.parts:
            embed_part(encoder, plan.inputs[0], part, plan.settings, Folder(Path(work.folder)))
        return plan.rows

    return once


def _files(work: Work) -> Pass:
    """Measure the start of a job with many input files, each named, as a shell does with ``--input dir/*.txt``."""
    folder = Path(work.folder)
    paths = [str(folder / f"{number}.txt") for number in range(work.rows)]
    for path in paths:
        Path(path).write_text("the cat sat\n")

    def once() -> int:
        files = hash_inputs(find_inputs(paths))
        check_apart(paths, files, folder / "out", part_name(0, 1))
        make_plan(files, Settings())
        return len(files)

    return once


def _groups(work: Work) -> Pass:
    """Measure the first parts of a Parquet file, 100 row groups each."""
    path = Path(work.folder) / "t.parquet"
    pq.write_table(pa.table({"text": ["the cat sat"] * work.rows}), path, row_group_size=1)
    plan = make_plan(hash_inputs(find_inputs([path])), Settings("text", part_rows=_GROUPS_A_PART))
    parts = plan.parts[:_PARTS]

    def once() -> int:
        for part in parts:
            carried_fields(plan.inputs, plan.settings)  # as ``embed_part`` does
            for _ in read_part(plan.inputs[0], part, plan.settings):
                pass
        return len(parts)

    return once


PROGRAMS: dict[str, Callable[[Work], Pass]] = {
    **dict.fromkeys(("encode", "encode_1"), _encode),
    **dict.fromkeys(("model2vec", "static_embedding"), _peer),
    "floor": _floor,
    **dict(zip(STAGES, (_read, _tokenize, _gather, _write, _part), strict=True)),
    **dict.fromkeys(("few_files", "many_files"), _files),
    **dict.fromkeys(("few_groups", "many_groups"), _groups),
}


def _rows(plan: Plan) -> Iterator[InputRows]:
    for part in plan.parts:
        yield from read_part(plan.inputs[0], part, plan.settings)


def _tokens(texts: pa.StringArray, encoder: Encoder) -> Ragged:
    tokens = tokenize(texts, encoder.tokenizer)
    return Ragged(word_ids(tokens.flat, encoder.vocabulary), tokens.offsets)


def show_tables(options: Embed, results: Results) -> None:
    """Print the tables and notes on them."""

    def ratio(to: str) -> Callable[[Result], str]:
        return lambda result: f"{results[to].rate / result.rate:.2f}" if has(results, to) else ""

    def of(*keys: str) -> list[Result]:
        return [results[key] for key in keys if key in results]

    def job(cell: Callable[[Result], str]) -> Callable[[Result], str]:
        return lambda result: cell(result) if hasattr(result.rounds[0], "parts") else ""

    peak: Callable[[Result], str] = lambda result: f"{result.peak_bytes / 1e6:,.0f}"  # noqa: E731
    columns = {
        "sentences/s": lambda result: f"{result.rate:,.0f}",
        "sentences/s of CPU": lambda result: f"{1 / max(result.cpu_seconds, 1e-12):,.0f}",
        "paraembed ×": ratio("encode"),
        "peak MB": peak,
    }
    show_table("in memory", of(*IN_MEMORY), columns)
    columns = {
        "rows": lambda result: f"{result.rounds[0].steps:,}",
        "parts": job(lambda result: f"{result.rounds[0].parts:,}"),  # type: ignore[attr-defined]
        "rows/s": lambda result: f"{result.rate:,.0f}",
        "float32 ×": ratio("float32"),
        "rows/s with start": job(
            lambda result: f"{result.rounds[0].steps / result.median(lambda run: run.whole_seconds):,.0f}"
        ),
        "start s": job(lambda result: f"{result.median(lambda run: run.start_seconds):.1f}"),
        "peak MB a process": peak,
    }
    show_table("end to end", of("float32", "float16", "floor", "few", "many", "large"), columns)
    if has(results, *STAGES):
        stages = _stages(options, results)
        whole = sum(stages.values())
        show_table(
            "stage",
            [Result(name, [Round(1, seconds)]) for name, seconds in (stages | {"all": whole}).items()],
            {
                "rows/s of a worker": lambda result: f"{result.rate:,.0f}" if result.seconds > 0 else "",
                "share": lambda result: f"{result.seconds / whole:.1%}",
            },
        )
    sizes = {EMBED_PROGRAMS[key]: (key, getattr(options, key)) for key in SIZES}
    columns = {
        "files or row groups": lambda result: f"{sizes[result.name][1]:,}",
        "ms a file or part": lambda result: f"{1000 * result.seconds:,.2f}",
        "s at the start": lambda result: (
            f"{sizes[result.name][1] * result.seconds:,.1f}" if sizes[result.name][0].endswith("files") else ""
        ),
    }
    show_table("size of the input", of(*SIZES), columns)
    show(*(f"* {note}" for note in notes(options, results)))


def _stages(options: Embed, results: Results) -> dict[str, float]:
    """Return the seconds per row of one worker by stage; Ray and the commit account for the time outside of parts."""
    seconds = {results[key].name: results[key].seconds for key in STAGES}
    whole = seconds.pop(results["part"].name)
    seconds["the rest of a part"] = whole - sum(seconds.values())
    if has(results, "float32"):
        outside = results["float32"].median(
            lambda run: (options.workers * run.seconds - run.part_seconds) / run.steps  # all workers, for as long
        )
        seconds["Ray, commit"] = outside
    return seconds


def notes(options: Embed, results: Results) -> list[str]:
    """Return notes on the numbers."""
    lines = []
    for peer in ("model2vec", "static_embedding"):
        if has(results, "encode", peer):
            ratio = results["encode"].rate / results[peer].rate
            lines.append(f"encode makes {ratio:.1f} × the vectors of {EMBED_PROGRAMS[peer]}")
    if has(results, "float32", "float16"):
        lines.append(f"float16 reaches {results['float16'].rate / results['float32'].rate:.2f} × the rows of float32")
    if has(results, "float32", "floor"):
        share = results["float32"].rate / results["floor"].rate
        lines.append(f"float32 reaches {share:.0%} of the bare floor, {options.workers} processes without Ray")
    if has(results, "float32"):
        start_seconds = results["float32"].median(lambda run: run.start_seconds)
        lines.append(f"from the command to the first part: {start_seconds:.1f} s")
    if has(results, "few", "large"):
        sizes = [
            (f"{result.peak_bytes / 1e6:,.0f} MB", result.rounds[0].steps)
            for result in (results["few"], results["large"])
        ]
        more = results["large"].peak_bytes / results["few"].peak_bytes - 1
        words = ", ".join(f"{peak} for {rows:,} rows" for peak, rows in sizes)
        lines.append(f"peak memory of a worker: {words}: {more:+.1%}")
    if has(results, "few", "many"):
        parts, seconds = (
            results["many"].median(value) - results["few"].median(value)
            for value in (lambda run: run.parts, lambda run: run.seconds)
        )
        cost = 1000 * options.workers * seconds / parts
        lines.append(f"a part costs {cost:.1f} ms of a worker ({parts:,.0f} more parts for the same rows)")
    return lines


def _start_seconds(results: Results) -> dict[str, float]:
    jobs = {key: result for key, result in results.items() if key in JOBS}
    return {f"{key}/start_seconds": job.median(lambda run: run.start_seconds) for key, job in jobs.items()}
