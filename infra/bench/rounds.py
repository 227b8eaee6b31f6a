"""Measure programs in interleaved rounds, and print the table of results.

Every program runs one round, then every program runs the next round, so other load on the machine slows all of them
equally. A program runs in this process, or in separate processes, which share neither threads nor memory with another
program; the warm-up is not counted.
"""

import contextlib
import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from multiprocessing import Pipe, get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import torch

from paraembed.console import doing, say, show

ROOT = Path(__file__).parents[2]
Log = Callable[[dict[str, float]], None]
"""Function that logs metrics to MLflow."""


@dataclass(frozen=True)
class Round:
    """Measurements of a program in one round; 0: unknown or not measured."""

    steps: int  # training steps, rows, lines or texts
    seconds: float
    cpu_seconds: float = 0.0  # less than ``seconds`` if other processes had the cores
    peak_bytes: int = 0  # highest resident memory of the process so far
    device_bytes: int = 0  # highest GPU memory that PyTorch held


@dataclass(frozen=True)
class Program:
    """A program that has warmed up, with its measurements; ``run_round`` runs one round of it."""

    name: str
    run_round: Callable[[], Round]
    close: Callable[[], object] = lambda: None
    workers: int = 1  # each of them does ``Round.steps`` steps
    skipped: str = ""  # why it cannot run here
    rounds: list[Round] = field(default_factory=list)

    def median(self, value: Callable[[Any], float]) -> float:
        """Return the median of a value over the rounds."""
        return median(map(value, self.rounds))

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return self.median(lambda round_: round_.seconds / round_.steps)

    @property
    def rate(self) -> float:
        """Steps per second of all workers together."""
        return self.workers / self.seconds

    @property
    def peak_bytes(self) -> int:
        """Maximum resident memory of a process."""
        return max(round_.peak_bytes for round_ in self.rounds)


Programs = Mapping[str, Program]


def measure(
    starts: Mapping[str, Callable[[], Program]], rounds: int, log: Log, unit: str, *, per_step: int = 1, about: str = ""
) -> dict[str, Program]:
    """Start programs, run their rounds interleaved, and return them by key; raise ValueError if one failed.

    Rates and peak memory are logged; a step has ``per_step`` items of ``unit``, and ``about`` is the prefix of metrics.
    """
    programs: dict[str, Program] = {}
    with contextlib.ExitStack() as stack:
        for key, start in starts.items():
            doing(f"{about}warming up {key}")
            programs[key] = start()
            stack.callback(programs[key].close)
        running = {key: program for key, program in programs.items() if not program.skipped}
        for number in range(1, rounds + 1):
            for key, program in running.items():
                doing(f"{about}round {number} of {rounds}: {key}")
                program.rounds.append(program.run_round())
    for key, program in running.items():
        log(
            {f"{about}{key}/{unit}_per_second": program.rate * per_step, f"{about}{key}/peak_bytes": program.peak_bytes}
        )
    return programs


def has(programs: Programs, *keys: str) -> bool:
    """Return whether all these programs were measured."""
    return all(key in programs and programs[key].rounds for key in keys)


def ratio(programs: Programs, bases: Mapping[str, str]) -> Callable[[Program], str]:
    """Return a column: the rate of the program ``bases[key]`` over that of the program ``key``."""
    by_name = {programs[key].name: programs[base] for key, base in bases.items() if has(programs, key, base)}
    return lambda program: f"{by_name[program.name].rate / program.rate:.2f}" if program.name in by_name else ""


def settings(options: Namespace) -> dict[str, Any]:
    """Return the options that decide the numbers."""
    return {name: value for name, value in vars(options).items() if name not in {"benchmark", "folder", "out"}}


def report(options: Namespace, programs: Programs, *notes: str) -> dict[str, Any]:
    """Print what measured the programs, and return their measurements for the JSON file."""
    say("; ".join([f"median of {options.rounds} rounds", f"torch {torch.__version__}, {os.cpu_count()} cores", *notes]))
    measured = {
        key: {"name": program.name, "workers": program.workers, "turns": [asdict(round_) for round_ in program.rounds]}
        for key, program in programs.items()
    }
    return {"settings": settings(options), "cores": os.cpu_count(), "programs": measured}


def show_table(head: str, programs: Iterable[Program], columns: Mapping[str, Callable[[Program], str]]) -> None:
    """Print a Markdown table to stdout, aligned for the terminal; the row of a skipped program gives the reason."""
    rows = [[head, *columns]]
    for program in programs:
        cells = [program.skipped] if program.skipped else [cell(program) for cell in columns.values()]
        rows.append([program.name.replace("|", "\\|"), *cells, *[""] * (len(columns) - len(cells))])
    if len(rows) == 1:
        return
    widths = [max(3, *map(len, cells)) for cells in zip(*rows, strict=True)]
    rows.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        show(f"| {' | '.join(cells)} |")
    show("")


class Finished(Exception):  # noqa: N818 - no error
    """Signal that no more rounds are needed."""


class Clock:
    """Clock of a program's process: called between steps, it reports each round and waits for the next one."""

    def __init__(self, pipe: Any, seconds: float, device: str) -> None:
        self._pipe, self._seconds, self._is_gpu = pipe, seconds, device == "cuda"
        self._start, self._cpu, self._steps = 0.0, 0.0, -1

    def __call__(self, steps: int) -> None:
        """Record the number of finished steps; the first call ends the warm-up, the last one raises Finished."""
        if self._is_gpu:
            torch.cuda.synchronize()
        seconds, cpu_seconds = time.perf_counter() - self._start, time.process_time() - self._cpu
        if self._steps >= 0 and seconds < self._seconds:
            return
        on_device = torch.cuda.max_memory_allocated() if self._is_gpu else 0
        self._pipe.send(Round(steps - self._steps, seconds, cpu_seconds, peak_bytes(), on_device))
        if not self._pipe.recv():
            raise Finished
        self._steps, self._cpu, self._start = steps, time.process_time(), time.perf_counter()


def _serve(
    pipe: Any, function: Callable[..., None], arguments: Mapping[str, Any], threads: int, is_loud: bool, *clock: Any
) -> None:
    """Run a program in this process until no more rounds are needed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    output = 2 if is_loud else os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(threads)
    pa.set_cpu_count(threads)
    try:
        function(Clock(pipe, *clock), **arguments)
    except Finished:
        return
    except ModuleNotFoundError as missing:
        pipe.send(f"{missing.name} is not installed")
    except Exception as error:  # noqa: BLE001 - shown by the process that started this one
        pipe.send(ValueError(f"{type(error).__name__}: {error}"))


def repeat(clock: Clock, work: Callable[[], object], rows: int) -> None:
    """Do work on ``rows`` rows once per round; the caller has warmed up."""
    done = 0
    while True:
        clock(done)
        work()
        done += rows


def start(
    name: str,
    function: Callable[..., None],
    arguments: Mapping[str, Any],
    *,
    processes: int = 1,
    workers: int = 1,
    threads: int = 1,
    seconds: float = 0.0,
    device: str = "cpu",
    is_loud: bool = False,
) -> Program:
    """Start a program in separate processes and wait until it has warmed up; raise ValueError if one ended.

    Each process runs ``function(clock, **arguments)`` of a module; several processes also get their ``rank`` and the
    ``world``. The function calls the clock between its steps until the clock raises ``Finished``. A round ends with the
    first call after ``seconds`` and is the sum of the processes' reports; of several ``workers``, which do each step
    together, only the first one reports. ``threads`` limits PyTorch, Arrow and numba; with ``device`` cuda, the clock
    waits for the kernels. What a program prints is shown only with ``is_loud``.
    """
    ranks = [{"rank": rank, "world": processes} for rank in range(processes)] if processes > 1 else [{}]
    running = _Processes(name, 1 if workers > 1 else processes)
    try:
        for rank in ranks:
            running.start(threads, function, {**arguments, **rank}, threads, is_loud, seconds, device)
        ready = running.reports()[0]
    except BaseException:  # Ctrl-C, too: nobody else knows the processes yet
        running.close()
        raise
    return Program(name, running.run_round, running.close, workers, skipped=ready if isinstance(ready, str) else "")


class _Processes:
    def __init__(self, name: str, reporting: int) -> None:
        self._name, self._reporting = name, reporting
        self._running, self._pipes = list[SpawnProcess](), list[Any]()

    def start(self, threads: int, *how: Any) -> None:
        pipe, other_end = Pipe()
        process, before = get_context("spawn").Process(target=_serve, args=(other_end, *how)), dict(os.environ)
        # A process reads these limits when it starts.
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
        try:
            process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        other_end.close()  # so that the end of the process is the end of the pipe
        self._running.append(process)
        self._pipes.append(pipe)

    def run_round(self) -> Round:
        for pipe in self._pipes[: self._reporting]:
            with contextlib.suppress(BrokenPipeError):
                pipe.send(True)
        rounds = self.reports()
        summed = {name: sum(getattr(round_, name) for round_ in rounds) for name in ("steps", "cpu_seconds")}
        return Round(**{name: max(getattr(round_, name) for round_ in rounds) for name in vars(rounds[0])} | summed)

    def reports(self) -> list[Any]:
        """Return a round of each process, or why it cannot run here."""
        try:
            received = [pipe.recv() for pipe in self._pipes[: self._reporting]]
        except EOFError:
            received = [ValueError("no report")]
        for report in received:
            if isinstance(report, ValueError):
                raise ValueError(f"{self._name} ended before the end of its round: {report}")
        return received

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.join()


def peak_bytes(process: int | str = "self") -> int:
    """Return the kernel's peak memory of a process, this one or that of an id; 0 if unknown. ``getrusage`` would
    include the process that started it.
    """
    try:
        return int(Path(f"/proc/{process}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10
    except (OSError, IndexError):
        return 0
