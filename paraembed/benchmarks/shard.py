"""Speed of the sharding of PPDB-format lines, as ratios to other programs that read the same files in the same run.

Beside ours stand ``gzip -dc FILES | wc -l``, with as many processes, and two plain Python loops of one process: one
that splits each line on `` ||| `` and does nothing with it, and one that does what the sharding does. The programs take
turns, a round each, and the median over the rounds counts.
"""

import gzip
import io
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.data.duplicates import find_duplicates, partition_writer
from paraembed.data.lines import Lines
from paraembed.data.parse import group_rows, keep_memory, keep_pairs
from paraembed.data.parsed import Block
from paraembed.data.ppdb import parse_ppdb
from paraembed.data.sample import write_sample
from paraembed.data.shards import GROUP_ROWS, PAIRS, ShardSettings
from paraembed.data.training_sets import row_rules
from paraembed.files import read_blocks

OURS, GZIP, SPLIT, LOOP = "shard_pairs", "gzip -dc | wc -l", "Python loop, split only", "Python loop, same work"
_BLOCK_BYTES = 8 << 20
_BROKEN = 0.001  # of the lines
_PARTITIONS = 1000


@dataclass(frozen=True)
class ShardWorkload:
    """What is sharded.

    Attributes:
        lines: Lines in all, of PPDB 2.0 shape: 930 bytes each (the 100 original lines have 860).
        files: Gzipped files that they are spread over.
        workers: Processes.
        rounds: Times each program has its turn; the median counts.
        loop_lines: Lines of the first file that a Python loop reads.
        seed: Decides the lines.
        small_files: Files of ten lines that are sharded to see whether the time is linear in their number; then four
            times as many.
    """

    lines: int = 2_000_000
    files: int = 4
    workers: int = 2
    rounds: int = 3
    loop_lines: int = 100_000
    seed: int = 1
    small_files: int = 100

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        for name in ("lines", "files", "workers", "rounds", "loop_lines", "small_files"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class Timing:
    """How fast a program was.

    Attributes:
        program: its name.
        lines: that it read in a round.
        seconds: of each round.
    """

    program: str
    lines: int
    seconds: list[float]

    @property
    def rate(self) -> float:
        """Lines a second, by the median round."""
        return self.lines / median(self.seconds)


@dataclass(frozen=True)
class Measured:
    """What a benchmark found.

    Attributes:
        timings: of each program, ours first.
        stages: CPU seconds of one process for the first file, by what it does.
        stage_lines: lines of that file.
        peak_bytes: highest resident memory of a worker; None where there was none to be seen.
        line_bytes: mean length of a line.
        growth: by what grows: how many there were, and the seconds.
    """

    timings: list[Timing]
    stages: dict[str, float]
    stage_lines: int
    peak_bytes: int | None
    line_bytes: float
    growth: dict[str, list[tuple[int, float]]]


def write_files(workload: ShardWorkload, folder: Path) -> list[Path]:
    """Write the files, where they do not stand there already."""
    paths = []
    for number in range(workload.files):
        part = folder / f"lines-{workload.lines // workload.files}-seed-{workload.seed + number}"
        paths.append(part.with_suffix(".gz"))
        if not paths[-1].exists():
            sample = write_sample(
                part,
                lines=workload.lines // workload.files,
                seed=workload.seed + number,
                dimension=1,
                sentences=0,
                test_pairs=0,
                ppdb_version="2.0",
                broken=_BROKEN,
            )
            assert sample.ppdb_2
            sample.ppdb_2.rename(paths[-1])
    return paths


def measure(
    workload: ShardWorkload,
    folder: Path,
    shard: Callable[[Sequence[Path], Path, int], object],
    progress: Callable[[str], object] = lambda _: None,
) -> Measured:
    """Time all programs.

    Args:
        workload: what they work on.
        folder: for the files.
        shard: the sharding: files, new folder, workers.
        progress: told what is done.
    """
    progress(f"writing {workload.lines:,} lines")
    files = write_files(workload, folder)
    lines = workload.lines // workload.files * workload.files
    loop_lines = min(workload.loop_lines, lines // workload.files)
    seconds: dict[str, list[float]] = {OURS: [], GZIP: [], SPLIT: [], LOOP: []}
    for turn in range(workload.rounds):
        shutil.rmtree(folder / f"out-{turn}", ignore_errors=True)
        programs: dict[str, Callable[[], object]] = {
            OURS: partial(shard, files, folder / f"out-{turn}", workload.workers),
            GZIP: lambda: _gzip(files, workload.workers),
            SPLIT: lambda: _split_loop(files[0], loop_lines),
            LOOP: lambda: _same_loop(files[0], folder / "loop.tsv", loop_lines),
        }
        for name, program in programs.items():
            progress(f"round {turn + 1} of {workload.rounds}: {name}")
            start = time.perf_counter()
            program()
            seconds[name].append(time.perf_counter() - start)
    counts = {OURS: lines, GZIP: lines, SPLIT: loop_lines, LOOP: loop_lines}
    progress("one process, step by step")
    peak = peak_of_workers()
    stages, num_bytes = _stages(files[0], folder)
    progress("more files, more rows")
    sizes = workload.small_files, 4 * workload.small_files
    growth = {
        "files": [(size, _small_files(size, folder, shard, workload.workers)) for size in sizes],
        f"rows in {_PARTITIONS:,} partitions": [(size, _partitioned(size, folder)) for size in (100_000, 400_000)],
    }
    return Measured(
        [Timing(name, counts[name], taken) for name, taken in seconds.items()],
        stages,
        lines // workload.files,
        peak,
        num_bytes / (lines // workload.files),
        growth,
    )


def _small_files(count: int, folder: Path, shard: Callable[[Sequence[Path], Path, int], object], workers: int) -> float:
    """Seconds that the sharding of small files takes."""
    inputs = [folder / f"small-{number:05d}.tsv" for number in range(count)]
    for number, path in enumerate(inputs):
        path.write_text("".join(f"one {number} {row}\tanother {row}\n" for row in range(10)))
    shutil.rmtree(folder / "out-small", ignore_errors=True)
    start = time.perf_counter()
    shard(inputs, folder / "out-small", workers)
    seconds = time.perf_counter() - start
    for path in inputs:
        path.unlink()
    return seconds


def _partitioned(rows: int, folder: Path) -> float:
    """CPU seconds to cut rows into many partitions and to look for duplicates in one bucket of them."""
    numbers = np.arange(rows)
    table = pa.table({"first": numbers.astype(str), "second": (numbers // 2).astype(str), "rank": numbers})
    path = folder / "by-partition.arrow"
    start = time.thread_time()
    with path.open("wb") as file, partition_writer(file, _PARTITIONS) as partitions:
        for first in range(0, rows, GROUP_ROWS):
            partitions.write(table.slice(first, GROUP_ROWS))
    find_duplicates([path], 0, _PARTITIONS, spill=folder / "spill.arrow")
    path.unlink()
    return time.thread_time() - start


def growth_table(measured: Measured) -> tuple[list[str], list[list[str]]]:
    """Time by size: linear work takes as long for each item of the larger one."""
    rows = [
        [name, f"{count:,}", f"{seconds:.2f}", f"{seconds / count * 1e6:,.1f}"]
        for name, sizes in measured.growth.items()
        for count, seconds in sizes
    ]
    return ["what grows", "count", "seconds", "µs each"], rows


def table(measured: Measured) -> tuple[list[str], list[list[str]]]:
    """Programs, how fast they are, and how many times as fast ours is."""
    ours = measured.timings[0].rate
    rows = [
        [one.program, f"{one.lines:,}", f"{median(one.seconds):.2f}", f"{one.rate:,.0f}", f"{ours / one.rate:.2f}"]
        for one in measured.timings
    ]
    return ["program", "lines", "seconds", "lines/s", "ours ×"], rows


def stage_table(measured: Measured) -> tuple[list[str], list[list[str]]]:
    """Where the CPU time of one process goes."""
    total = sum(measured.stages.values())
    rows = [
        [name, f"{taken:.2f}", f"{taken / measured.stage_lines * 1e6:.2f}", f"{100 * taken / total:.0f} %"]
        for name, taken in measured.stages.items()
    ]
    return ["step", "CPU s", "µs/line", "share"], rows


def peak_of_workers() -> int | None:
    """The highest resident memory that any Ray worker on this machine has had, in bytes, by the kernel's own count."""
    peaks = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::"):
                status = Path(f"/proc/{process.pid}/status").read_text()
                peaks.append(int(status.partition("VmHWM:")[2].split()[0]) << 10)
        except (psutil.Error, OSError, IndexError):
            continue  # it has ended, or is another user's
    return max(peaks, default=None)


def _gzip(files: Sequence[Path], workers: int) -> None:
    running = [
        subprocess.Popen(["sh", "-c", 'gzip -dc "$@" | wc -l', "sh", *some], stdout=subprocess.PIPE)  # noqa: S603, S607
        for some in (files[number::workers] for number in range(min(workers, len(files))))
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


def _stages(path: Path, folder: Path) -> tuple[dict[str, float], int]:
    """CPU seconds by step, for one file in this thread; and the file's bytes."""
    spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def step(name: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        spent[name] += time.thread_time() - start

    keep_memory()
    blocks = read_blocks(path, _BLOCK_BYTES)
    rest, rows, num_bytes = b"", 0, 0
    tables = []
    rules = row_rules(ShardSettings())
    while True:
        with step("read, decompress"):
            block = next(blocks, None)
        if block is None:
            break
        num_bytes += len(block)
        with step("split into lines"):
            end = block.rfind(b"\n") + 1
            lines = Lines.of(b"".join((rest, memoryview(block)[:end])), rows)
            rest, rows = block[end:], rows + len(lines)
        with step("check UTF-8"):
            _ = lines.not_utf8
        with step("split into fields"):
            parsed = Block("ppdb", lines.first, lines, parse_ppdb(lines))
        with step("tokenise, filter"):
            tables.append(keep_pairs(parsed, "lines", "space", (), rules)[0])
    by_partition = folder / "by-partition.arrow"
    with by_partition.open("wb") as file, partition_writer(file, 8) as partitions:
        with step("group rows"):
            groups = list(group_rows(iter(tables)))
        with step("de-duplicate: hash, partition"):
            for group in groups:
                partitions.write(group)
    with step("de-duplicate: compare"):
        for partition in range(8):
            find_duplicates([by_partition], partition, 8)
    dictionaries = ["relation", "source"]
    for name, compression in (("write: parsed rows", "lz4"), ("write: shards", "zstd")):
        with (
            step(name),
            pq.ParquetWriter(io.BytesIO(), PAIRS, compression=compression, use_dictionary=dictionaries) as writer,
        ):
            for group in groups:
                writer.write_table(group)
    by_partition.unlink()
    return dict(spent), num_bytes
