"""Time the sharding of generated PPDB 2.0 lines (980 bytes each), next to gzip and a Python loop that does the same.

``gzip -dc FILES | wc -l`` has as many processes as the sharding, whose Ray session starts before the first round.
"""

import gzip
import shutil
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from infra.bench.command import Add, count, path
from infra.bench.rounds import Log, Program, Round, measure, ratio, report, show_table
from paraembed.cluster.session import ray_session
from paraembed.cluster.shard import shard_pairs
from paraembed.console import doing
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings

PROGRAMS = {"paraembed": "shard_pairs", "gzip": "gzip -dc | wc -l", "loop": "Python loop, same work"}


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--folder", type=path, required=True, help="folder for shards and generated files; the files are reused")
    add("--lines", type=count, default=2_000_000, help="lines in all")
    add("--files", type=count, default=4, help="gzip files that the lines are spread over")
    add("--workers", type=count, default=2, help="processes")
    add("--loop-lines", type=count, default=100_000, help="lines of the first file that the Python loop reads")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    folder = Path(options.folder)
    doing(f"writing {options.lines:,} lines")
    files = _write_files(options, folder)
    lines = options.lines // options.files * options.files
    loop_lines = min(options.loop_lines, lines // options.files)

    def shard() -> None:
        shutil.rmtree(folder / "out", ignore_errors=True)
        shard_pairs(files, folder / "out", ShardSettings(), workers=options.workers)

    works: dict[str, tuple[int, Callable[[], object]]] = {
        "paraembed": (lines, shard),
        "gzip": (lines, partial(_gzip, files, options.workers)),
        "loop": (loop_lines, partial(_loop, files[0], folder / "loop.tsv", loop_lines)),
    }
    starts = {key: partial(Program, PROGRAMS[key], partial(_timed, *works[key])) for key in options.programs}
    with ray_session(options.workers):
        programs = measure(starts, options.rounds, log, "lines")
    columns = {
        "lines": lambda program: f"{program.rounds[0].steps:,}",
        "lines/s": lambda program: f"{program.rate:,.0f}",
        "paraembed ×": ratio(programs, dict.fromkeys(PROGRAMS, "paraembed")),
    }
    show_table("program", programs.values(), columns)
    return report(options, programs, f"{options.workers} workers")


def _timed(steps: int, work: Callable[[], object]) -> Round:
    start = time.perf_counter()
    work()
    return Round(steps, time.perf_counter() - start)


def _write_files(options: Namespace, folder: Path) -> list[Path]:
    """Write the input files, unless an earlier run has written them."""
    paths, lines = [], options.lines // options.files
    for seed in range(options.seed, options.seed + options.files):
        part = folder / f"lines-{lines}-seed-{seed}"
        paths.append(part.with_suffix(".gz"))
        if not paths[-1].exists():
            sizes = {"lines": lines, "dimension": 1, "sentences": 0, "test_pairs": 0}
            sample = write_sample(part, **sizes, seed=seed, ppdb_version="2.0")
            assert sample.ppdb_2
            sample.ppdb_2.rename(paths[-1])
    return paths


def _gzip(files: Sequence[Path], workers: int) -> None:
    running = [
        subprocess.Popen(["sh", "-c", 'gzip -dc "$@" | wc -l', "sh", *batch], stdout=subprocess.PIPE)  # noqa: S603, S607
        for batch in (files[number::workers] for number in range(min(workers, len(files))))
    ]
    for process in running:
        process.communicate()
        assert process.returncode == 0


def _loop(source: Path, out: Path, lines: int) -> None:
    seen = set()
    with gzip.open(source, "rt", encoding="utf-8", errors="replace") as opened, out.open("w") as file:
        for number, line in zip(range(lines), opened, strict=False):
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
