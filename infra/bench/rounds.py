"""Measure programs in interleaved rounds, and print the table of results.

Every program runs one round, then every program runs the next round, so other load on the machine slows all of them
equally. A program runs in this process, or in separate processes, which share neither threads nor memory with another
program; the warm-up is not counted. A separate process reads one line from stdin before each round and writes one line
of JSON to stdout after it.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import torch

import paraembed
from paraembed.console import doing, show

ROOT = Path(__file__).parents[2]
_CHILD = [sys.executable, "-P", "-c", "from infra.bench.rounds import serve; serve()"]


@dataclass(frozen=True)
class Round:
    """Measurements of a program in one round; 0: unknown or not measured."""

    steps: int  # training steps, rows, lines or files
    seconds: float
    cpu_seconds: float = 0.0  # less than ``seconds`` if other processes had the cores
    peak_bytes: int = 0  # highest resident memory of the process so far
    device_bytes: int = 0  # highest GPU memory that PyTorch held
    loopback_bytes: int = 0  # on the loopback interface of this machine


@dataclass(frozen=True)
class Program:
    """A program that has warmed up; ``run_round`` runs one round of it."""

    name: str
    run_round: Callable[[], Round]
    close: Callable[[], object] = lambda: None
    workers: int = 1  # each of them does ``Round.steps`` steps
    warm_up_seconds: float = 0.0  # from the end of the imports to the first round
    skipped: str = ""  # why it cannot run here


@dataclass(frozen=True)
class Result:
    """Measurements of a program; the fields are those of ``Program``."""

    name: str
    rounds: list[Round]
    workers: int = 1
    warm_up_seconds: float = 0.0
    skipped: str = ""

    def median(self, value: Callable[[Any], float]) -> float:
        """Return the median of a value over the rounds."""
        return median(map(value, self.rounds))

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        return self.median(lambda round_: round_.seconds / round_.steps)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds per step."""
        return self.median(lambda round_: round_.cpu_seconds / round_.steps)

    @property
    def rate(self) -> float:
        """Steps per second of all workers together."""
        return self.workers / self.seconds

    @property
    def peak_bytes(self) -> int:
        """Maximum resident memory of a process."""
        return max(round_.peak_bytes for round_ in self.rounds)

    def numbers(self) -> dict[str, Any]:
        """Return the result for the JSON file."""
        values = asdict(self)
        return values | {"turns": values.pop("rounds")}


Results = Mapping[str, Result]


def measure(starts: Mapping[str, Callable[[], Program]], rounds: int, about: str = "") -> dict[str, Result]:
    """Start programs, run their rounds interleaved, and return their results by key; raise ValueError if one failed."""
    programs, results = dict[str, Program](), dict[str, Result]()
    with contextlib.ExitStack() as stack:
        for key, start in starts.items():
            doing(f"{about}warming up {key}")
            program = programs[key] = start()
            stack.callback(program.close)
            results[key] = Result(program.name, [], program.workers, program.warm_up_seconds, program.skipped)
        for number in range(1, rounds + 1):
            for key, program in programs.items():
                if not program.skipped:
                    doing(f"{about}round {number} of {rounds}: {key}")
                    results[key].rounds.append(program.run_round())
    return results


def has(results: Results, *keys: str) -> bool:
    """Return whether all these programs were measured."""
    return all(key in results and not results[key].skipped for key in keys)


def metrics(results: Results, unit: str, per_step: int = 1, prefix: str = "") -> dict[str, float]:
    """Return rates and peak memory by name, for MLflow; a step has ``per_step`` items of ``unit``."""
    values: dict[str, float] = {}
    for key, result in results.items():
        if not result.skipped:
            values[f"{prefix}{key}/{unit}_per_second"] = result.rate * per_step
            values[f"{prefix}{key}/peak_bytes"] = float(result.peak_bytes)
    return values


def show_table(head: str, results: Iterable[Result], columns: Mapping[str, Callable[[Result], str]]) -> None:
    """Print a Markdown table to stdout, aligned for the terminal; the row of a skipped program gives the reason."""
    rows = [[head, *columns]]
    for result in results:
        cells = [result.skipped] if result.skipped else [cell(result) for cell in columns.values()]
        rows.append([result.name.replace("|", "\\|"), *cells, *[""] * (len(columns) - len(cells))])
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

    def __init__(self, seconds: float, device: str) -> None:
        self._seconds, self._device = seconds, torch.device(device)
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
        self._start, self._cpu, self._steps, self._loopback = time.perf_counter(), 0.0, -1, 0

    def __call__(self, steps: int) -> None:
        """Record the number of finished steps; the first call ends the warm-up, the last one raises Finished."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._start
        if self._steps < 0:
            self.begin()
        elif seconds >= self._seconds:
            on_device = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
            cpu_seconds, loopback = time.process_time() - self._cpu, _loopback_bytes() - self._loopback
            self.end(Round(steps - self._steps, seconds, cpu_seconds, peak_bytes(), on_device, loopback))
        else:
            return
        self._steps, self._loopback = steps, _loopback_bytes()
        self._cpu, self._start = time.process_time(), time.perf_counter()

    def begin(self) -> None:
        """Report the end of the warm-up and wait for the first round; the errors are those of a call."""
        self.answer({"warm_up_seconds": time.perf_counter() - self._start})
        self._wait()

    def end(self, finished: Round) -> None:
        """Report a round and wait for the next one; the errors are those of a call."""
        self.answer(vars(finished))
        self._wait()

    def answer(self, values: Mapping[str, Any]) -> None:
        """Write values to the process that started this one."""
        self._answers.write(json.dumps(values) + "\n")
        self._answers.flush()

    @staticmethod
    def _wait() -> None:
        if not sys.stdin.readline():
            raise Finished


def serve() -> None:
    """Run the task of ``sys.argv`` in this process until no more rounds are needed."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    pa.set_cpu_count(task["threads"])
    clock = Clock(task["seconds"], task["device"])
    module, name = task["function"].split(":")
    try:
        getattr(import_module(module), name)(clock, **task["arguments"])
    except Finished:
        return
    except ModuleNotFoundError as missing:
        if str(missing.name).partition(".")[0] in {"paraembed", "infra"}:
            raise
        clock.answer({"skipped": f"{missing.name} is not installed"})


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

    Each process runs ``function(clock, **arguments)`` of an importable module with JSON values; several processes also
    get their ``rank`` and the ``world``. The function calls the clock between its steps until the clock raises
    ``Finished``. A round ends with the first call after ``seconds`` and is the sum of the processes' reports; of
    several ``workers``, which do each step together, only the first one reports. ``threads`` limits PyTorch, Arrow and
    numba; with ``device`` cuda, the clock waits for the kernels. With ``is_loud``, stderr is shown instead of kept for
    the error message.
    """
    name_of = f"{function.__module__}:{function.__name__}"
    task = {"function": name_of, "threads": threads, "seconds": seconds, "device": device}
    of_rank = [{"rank": rank, "world": processes} for rank in range(processes)] if processes > 1 else [{}]
    tasks = [json.dumps({**task, "arguments": {**arguments, **more}}) for more in of_rank]
    running = _Processes(name, tasks, threads, 1 if workers > 1 else processes, is_loud)
    try:
        ready = running.answers()
    except BaseException:  # Ctrl-C, too: nobody else knows the processes yet
        running.close()
        raise
    return Program(name, running.run_round, running.close, workers, **ready[0])


class _Processes:
    def __init__(self, name: str, tasks: Sequence[str], threads: int, answering: int, is_loud: bool) -> None:
        self._name, self._complaints = name, tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        homes = dict.fromkeys((str(Path(paraembed.__file__).parents[1]), str(ROOT)))
        path = os.pathsep.join([*homes, *filter(None, [os.environ.get("PYTHONPATH")])])
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
        self._running = [
            subprocess.Popen(  # noqa: S603
                [*_CHILD, task],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if is_loud else self._complaints,
                env={**os.environ, **limits, "PYTHONPATH": path},
            )
            for task in tasks
        ]
        self._answering = self._running[:answering]

    def run_round(self) -> Round:
        for process in self._answering:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"\n")
                process.stdin.flush()
        rounds = [Round(**answer) for answer in self.answers()]
        summed = {name: sum(getattr(round_, name) for round_ in rounds) for name in ("steps", "cpu_seconds")}
        return Round(**{name: max(getattr(round_, name) for round_ in rounds) for name in vars(rounds[0])} | summed)

    def answers(self) -> list[dict[str, Any]]:
        lines = [process.stdout.readline() for process in self._answering if process.stdout]
        if all(lines):
            return [json.loads(line) for line in lines]
        self._complaints.seek(0)
        last = [line.strip() for line in self._complaints if line.strip()][-1:]
        raise ValueError(f"{self._name} ended before the end of its round: {(last[0] if last else 'no output')}")

    def close(self) -> None:
        for process in self._running:
            process.kill()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if stream:
                        stream.close()
            process.wait()
        self._complaints.close()


def peak_bytes(process: int | str = "self") -> int:
    """Return the kernel's peak memory of a process, this one or that of an id; 0 if unknown. ``getrusage`` would
    include the process that started it.
    """
    try:
        return int(Path(f"/proc/{process}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10
    except (OSError, IndexError):
        return 0


def _loopback_bytes() -> int:
    try:
        return int(Path("/proc/net/dev").read_text().partition("lo:")[2].split()[0])
    except (OSError, IndexError):
        return 0
