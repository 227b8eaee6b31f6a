"""Benchmark of sharding PPDB-format lines, next to programs that read the same files.

These programs are ``gzip -dc FILES | wc -l``, with as many processes, and two Python loops in one process: one only
splits each line at `` ||| ``, the other does the same work as the sharding. The benchmark also measures the CPU time of
the sharding in one process by stage, and how its time grows with the number of files and of rows.
"""

import gzip
import io
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench.command import Shard
from infra.bench.rounds import Program, Result, Round, measure, metrics, peak_bytes, show_table
from paraembed.cluster.session import ray_session
from paraembed.cluster.shard import shard_pairs
from paraembed.console import doing, say
from paraembed.io.inflate import read_blocks
from paraembed.io.lines import Lines
from paraembed.pairs.blocks import Block
from paraembed.pairs.deduplicate import find_repeats, partition_writer
from paraembed.pairs.parse import group_rows, keep_pairs
from paraembed.pairs.ppdb import parse_ppdb
from paraembed.pairs.sample import write_sample
from paraembed.pairs.schema import PAIRS
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import GROUP_ROWS
from paraembed.pairs.training_sets import row_rules
from paraembed.process import keep_memory

NAMES = {
    "ours": "shard_pairs",
    "gzip": "gzip -dc | wc -l",
    "split": "Python loop, split only",
    "loop": "Python loop, same work",
}
_BLOCK_BYTES = 8 << 20
_BROKEN = 0.001  # of the lines
_PARTITIONS = 1000
_GROWING_ROWS = (100_000, 400_000)


def run(options: Shard, log_metrics: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Measure inside of one Ray session, whose start is not counted; print the tables, return the numbers."""
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    doing(f"writing {options.lines:,} lines")
    files = _write_files(options, folder)
    lines = options.lines // options.files * options.files
    loop_lines = min(options.loop_lines, lines // options.files)

    def shard(inputs: Sequence[Path], steps: int) -> Round:
        shutil.rmtree(folder / "out", ignore_errors=True)
        result = _timed(steps, lambda: shard_pairs(inputs, folder / "out", ShardSettings(), workers=options.workers))
        return replace(result, peak_bytes=_peak_of_workers())

    calls: dict[str, Callable[[], Round]] = {
        "ours": lambda: shard(files, lines),
        "gzip": lambda: _timed(lines, lambda: _gzip(files, options.workers)),
        "split": lambda: _timed(loop_lines, lambda: _split_loop(files[0], loop_lines)),
        "loop": lambda: _timed(loop_lines, lambda: _same_loop(files[0], folder / "loop.tsv", loop_lines)),
    }
    with ray_session(options.workers):
        results = measure({key: partial(Program, NAMES[key], call) for key, call in calls.items()}, options.rounds)
        doing("one process, stage by stage")
        stages, num_bytes = _stages(files[0], folder)
        doing("more files, more rows")
        small = [_small_files(number, folder, shard) for number in (options.small_files, 4 * options.small_files)]
    growth = [*small, *(_partitioned(rows, folder) for rows in _GROWING_ROWS)]
    total = sum(stage.seconds for stage in stages)
    micros: dict[str, Callable[[Result], str]] = {"µs each": lambda result: f"{result.seconds * 1e6:,.2f}"}
    steps: Callable[[Result], str] = lambda result: f"{result.rounds[0].steps:,}"  # noqa: E731
    seconds: Callable[[Result], str] = lambda result: f"{result.seconds * result.rounds[0].steps:,.2f}"  # noqa: E731
    rates = {
        "lines/s": lambda result: f"{result.rate:,.0f}",
        "paraembed ×": lambda result: f"{results['ours'].rate / result.rate:.2f}",
    }
    share: dict[str, Callable[[Result], str]] = {"share": lambda result: f"{result.seconds / total:.0%}"}
    show_table("program", results.values(), {"lines": steps, "seconds": seconds, **rates})
    show_table("stage of one process", stages, {"lines": steps, "CPU s": seconds, **micros, **share})
    show_table("what grows", growth, {"count": steps, "seconds": seconds, **micros})
    log_metrics(metrics(results, "lines"))
    peak, stage_lines = results["ours"].peak_bytes, stages[0].rounds[0].steps
    shown = f"{peak / 2**20:,.0f} MiB" if peak else "unknown"
    line_bytes = num_bytes / stage_lines
    say(f"{line_bytes:.0f} bytes a line; {options.workers} workers; peak memory of a worker: {shown}")
    by_name = defaultdict[str, list[tuple[int, float]]](list)
    for result in growth:
        by_name[result.name].append((result.rounds[0].steps, result.rounds[0].seconds))
    return {
        "settings": options.settings(),
        "timings": [
            {
                "program": result.name,
                "lines": result.rounds[0].steps,
                "seconds": [turn.seconds for turn in result.rounds],
            }
            for result in results.values()
        ],
        "stages": {stage.name: stage.rounds[0].seconds for stage in stages},
        "stage_lines": stage_lines,
        "peak_bytes": peak or None,
        "line_bytes": line_bytes,
        "growth": by_name,
    }


def _timed(steps: int, call: Callable[[], object]) -> Round:
    start = time.perf_counter()
    call()
    return Round(steps, time.perf_counter() - start)


def _write_files(options: Shard, folder: Path) -> list[Path]:
    """Write the input files, unless an earlier run has written them."""
    paths, lines = [], options.lines // options.files
    for seed in range(options.seed, options.seed + options.files):
        part = folder / f"lines-{lines}-seed-{seed}"
        paths.append(part.with_suffix(".gz"))
        if not paths[-1].exists():
            sizes = {"lines": lines, "dimension": 1, "sentences": 0, "test_pairs": 0}
            sample = write_sample(part, **sizes, seed=seed, ppdb_version="2.0", broken=_BROKEN)
            assert sample.ppdb_2
            sample.ppdb_2.rename(paths[-1])
    return paths


def _small_files(count: int, folder: Path, shard: Callable[[Sequence[Path], int], Round]) -> Result:
    """Measure the wall time of sharding many files of ten lines."""
    inputs = [folder / f"small-{number:05d}.tsv" for number in range(count)]
    for number, path in enumerate(inputs):
        path.write_text("".join(f"one {number} {row}\tanother {row}\n" for row in range(10)))
    result = shard(inputs, count)
    for path in inputs:
        path.unlink()
    return Result("files", [result])


def _partitioned(rows: int, folder: Path) -> Result:
    """Measure the CPU time of partitioning rows and of finding duplicates in one bucket."""
    numbers = np.arange(rows)
    table = pa.table({"first": numbers.astype(str), "second": (numbers // 2).astype(str), "rank": numbers})
    path = folder / "by-partition.arrow"
    start = time.thread_time()
    with path.open("wb") as file, partition_writer(file, _PARTITIONS) as write:
        for first in range(0, rows, GROUP_ROWS):
            write(table.slice(first, GROUP_ROWS))
    find_repeats([path], 0, _PARTITIONS, spill=folder / "spill.arrow")
    path.unlink()
    return Result(f"rows in {_PARTITIONS:,} partitions", [Round(rows, time.thread_time() - start)])


def _peak_of_workers() -> int:
    """Return the maximum resident memory of a Ray worker on this machine, by the kernel; 0 without workers."""
    lines = [(process.pid, process.info["cmdline"]) for process in psutil.process_iter(["cmdline"])]
    return max((peak_bytes(number) for number, line in lines if line and line[0].startswith("ray::")), default=0)


def _gzip(files: Sequence[Path], workers: int) -> None:
    running = [
        subprocess.Popen(["sh", "-c", 'gzip -dc "$@" | wc -l', "sh", *batch], stdout=subprocess.PIPE)  # noqa: S603, S607
        for batch in (files[number::workers] for number in range(min(workers, len(files))))
    ]
    for process in running:
        process.communicate()
        assert process.returncode == 0


def _loop_lines(path: Path, count: int) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        for _, line in zip(range(count), file, strict=False):
            yield line


def _split_loop(path: Path, count: int) -> None:
    for line in _loop_lines(path, count):
        line.rstrip("\n").split(" ||| ")


def _same_loop(path: Path, out: Path, count: int) -> None:
    seen = set()
    with out.open("w") as file:
        for number, line in enumerate(_loop_lines(path, count)):
            fields = line.rstrip("\n").split(" ||| ")
            if not 4 <= len(fields) <= 6 or "\ufffd" in line:
                continue
            first, second = (" ".join(text.lower().split()) for text in fields[1:3])
            features = dict(cell.split("=", 1) for cell in fields[3].split(" "))
            pair = (first, second) if first < second else (second, first)
            if not first or not second or first == second or pair in seen:
                continue
            seen.add(pair)
            file.write(f"{first}\t{second}\t{float(features['PPDB2.0Score'])}\t{number}\t{fields[-1]}\n")


def _stages(path: Path, folder: Path) -> tuple[list[Result], int]:
    """Return the CPU time by stage, for one file in this thread, and the bytes of the file."""
    spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        spent[name] += time.thread_time() - start

    keep_memory()
    blocks = read_blocks(path, _BLOCK_BYTES)
    rest, rows, num_bytes = b"", 0, 0
    tables = []
    rules = row_rules(ShardSettings())
    while True:
        with stage("read, decompress"):
            block = next(blocks, None)
        if block is None:
            break
        num_bytes += len(block)
        with stage("split into lines"):
            end = block.rfind(b"\n") + 1
            lines = Lines.of(b"".join((rest, memoryview(block)[:end])), rows)
            rest, rows = block[end:], rows + len(lines)
        with stage("check UTF-8"):
            _ = lines.not_utf8
        with stage("split into fields"):
            parsed = Block("ppdb", lines.first, lines.__getitem__, parse_ppdb(lines))
        with stage("tokenize, filter"):
            tables.append(keep_pairs(parsed, "lines", "space", (), rules)[0])
    by_partition = folder / "by-partition.arrow"
    with by_partition.open("wb") as file, partition_writer(file, 8) as write:
        with stage("group rows"):
            groups = list(group_rows(iter(tables)))
        with stage("de-duplicate: hash, partition"):
            for group in groups:
                write(group)
    with stage("de-duplicate: compare"):
        for partition in range(8):
            find_repeats([by_partition], partition, 8)
    dictionaries = ["relation", "source"]
    for name, compression in (("write: parsed rows", "lz4"), ("write: shards", "zstd")):
        with (
            stage(name),
            pq.ParquetWriter(io.BytesIO(), PAIRS, compression=compression, use_dictionary=dictionaries) as writer,
        ):
            for group in groups:
                writer.write_table(group)
    by_partition.unlink()
    return [Result(name, [Round(rows, seconds)]) for name, seconds in spent.items()], num_bytes
