"""Programs that take turns: each has a process of its own, which runs when it is told to and then waits.

So none sees the threads or the memory of another, start and warm-up do not count, and what else the machine does slows
all of them alike. A process reads a line from stdin for each turn and writes a line of JSON to stdout behind it.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

import paraembed

WARM_UP, SKIPPED = "warm_up_seconds", "skipped"


@dataclass(frozen=True)
class Turn:
    """What a program did in its turn.

    Attributes:
        steps: it did.
        seconds: it took.
        cpu_seconds: that the process computed meanwhile: less than ``seconds`` where others had the cores.
        peak_bytes: the most resident memory it ever had; 0 where the system does not tell.
        device_bytes: the most GPU memory that PyTorch ever held for it.
        loopback_bytes: what went over this machine's loopback interface meanwhile; 0 where the system does not tell.
    """

    steps: int
    seconds: float
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    device_bytes: int = 0
    loopback_bytes: int = 0


class Finished(Exception):  # noqa: N818 - no error
    """Whoever started the program wants no more turns."""


class Turns:
    """The program's side: called between steps, it counts, reports and waits.

    Args:
        seconds: that a turn lasts, and then to the next call.
        device: that is waited for before the clock is read.
    """

    def __init__(self, seconds: float, device: torch.device) -> None:
        self._seconds, self._device = seconds, device
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
        self._start, self._cpu, self._steps, self._loopback = time.perf_counter(), 0.0, -1, 0

    def __call__(self, steps: int) -> None:
        """Take note that so many steps are done; the first call ends the warm-up.

        Raises:
            Finished: no more turns are wanted.
        """
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._start
        if self._steps < 0:
            self.begin()
        elif seconds >= self._seconds:
            self.end(self._turn(steps, seconds))
        else:
            return
        self._steps, self._loopback = steps, _loopback_bytes()
        self._cpu, self._start = time.process_time(), time.perf_counter()

    def begin(self) -> None:
        """Say that the warm-up is over, and wait for the first turn; raises as a call does."""
        self._answer({WARM_UP: time.perf_counter() - self._start})
        self._wait()

    def end(self, turn: Turn) -> None:
        """Say what was done in a turn, and wait for the next one; raises as a call does."""
        self._answer(vars(turn))
        self._wait()

    def skip(self, why: str) -> None:
        """Say that this program cannot run here."""
        self._answer({SKIPPED: why})

    @staticmethod
    def _wait() -> None:
        if not sys.stdin.readline():
            raise Finished

    def _turn(self, steps: int, seconds: float) -> Turn:
        on_device = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
        cpu_seconds, loopback = time.process_time() - self._cpu, _loopback_bytes() - self._loopback
        return Turn(steps - self._steps, seconds, cpu_seconds, peak_bytes(), on_device, loopback)

    def _answer(self, values: dict[str, Any]) -> None:
        self._answers.write(json.dumps(values) + "\n")
        self._answers.flush()


class Program:
    """The other side: a program's processes, of which the first answers.

    Attributes:
        name: of the program.
        workers: processes.
        skipped: why it does not run; empty where it does.
        warm_up_seconds: from the end of its imports to its first turn.
        turns: that it has had.
    """

    def __init__(self, name: str, commands: Sequence[Sequence[str]], threads: int, loud: bool = False) -> None:
        """Start; returns when the warm-up is over.

        Args:
            name: of the program.
            commands: one a process.
            threads: of each.
            loud: let stderr through, instead of keeping it for the case that a process ends.

        Raises:
            ValueError: a process ended.
        """
        self.name, self.workers = name, len(commands)
        self.turns: list[Turn] = []
        home = str(Path(paraembed.__file__).parents[1])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
        environment = {**os.environ, **numbers, "PYTHONPATH": os.pathsep.join(paths)}
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed in close
        stderr = None if loud else self._complaints
        self._processes = [
            subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
            )
            for command in commands
        ]
        try:
            ready = self._answer()
        except BaseException:  # Ctrl-C, too: nobody else knows of the processes yet
            self.close()
            raise
        self.skipped: str = ready.get(SKIPPED, "")
        self.warm_up_seconds: float = ready.get(WARM_UP, 0.0)

    def take_turn(self) -> None:
        """Let it run for a turn, and keep what it did.

        Raises:
            ValueError: a process ended.
        """
        asked = self._stream(self._processes[0].stdin)
        with contextlib.suppress(BrokenPipeError):
            asked.write(b"\n")
            asked.flush()
        self.turns.append(Turn(**self._answer()))

    def close(self) -> None:
        """End its processes."""
        for process in self._processes:
            process.kill()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    self._stream(stream).close()
            process.wait()
        self._complaints.close()

    def _answer(self) -> dict[str, Any]:
        line = self._stream(self._processes[0].stdout).readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._complaints.seek(0)
        last = [one.strip() for one in self._complaints if one.strip()][-1:]
        raise ValueError(f"{self.name} ended before its turn was over: {last[0] if last else 'it said nothing'}")

    @staticmethod
    def _stream(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None
        return stream


def peak_bytes() -> int:
    """The kernel's count for this process. ``getrusage`` would count the process that started it, too."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _loopback_bytes() -> int:
    try:
        devices = Path("/proc/net/dev").read_text()
    except OSError:
        return 0
    counts = devices.partition("lo:")[2].split()
    return int(counts[0]) if counts else 0
