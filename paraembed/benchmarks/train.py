"""Speed of training on this machine beside what others would write, as ratios in one run.

Every program trains the same word vectors on the same generated pairs, in a process of its own; they take turns, and
the median over the rounds counts.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Protocol

from paraembed.benchmarks.train_case import Case
from paraembed.benchmarks.train_program import command
from paraembed.benchmarks.turns import Program, Turn

OURS, READY, MEGA, WORKERS, RAY, RAY_WORKERS = "paraembed", "ready", "mega", "workers", "ray", "ray_workers"
MEGA_BATCHES = 20
_MOST_MEGA_PAIRS = 10_000  # all texts are compared with all: at batch 1,024 a step takes a CPU core a second
PEERS = {
    "embedding_bag": "EmbeddingBag(sparse=True), SparseAdam",
    "embedding": "Embedding, Adam",
    "static_embedding": "sentence-transformers StaticEmbedding",
}
NAMES = {
    OURS: "paraembed",
    READY: "paraembed, batches ready",
    **PEERS,
    MEGA: f"paraembed, mega-batches of {MEGA_BATCHES}",
    WORKERS: "paraembed, 2 workers",
    RAY: "paraembed on Ray",
    RAY_WORKERS: "paraembed on Ray, 2 workers",
}
HEAD = ("program", "ms/step", "CPU ms/step", "pairs/s", "paraembed ×", "peak MB", "warm-up s")


class Runs(Protocol):
    """A program that takes turns; see ``turns.Program``."""

    workers: int
    skipped: str
    warm_up_seconds: float
    turns: list[Turn]

    def take_turn(self) -> None:
        """Run for a turn."""

    def close(self) -> None:
        """Let go of what it holds."""


@dataclass(frozen=True)
class Row:
    """What was measured of a program.

    Attributes:
        program: its name.
        workers: that it had.
        turns: what it did in each round.
        warm_up_seconds: from the end of its imports to its first turn: data, compiling, first steps.
        skipped: why it did not run; empty where it did.
    """

    program: str
    workers: int
    turns: list[Turn]
    warm_up_seconds: float
    skipped: str

    @property
    def seconds(self) -> float:
        """A step, by the median turn."""
        return median(turn.seconds / turn.steps for turn in self.turns)

    @property
    def cpu_seconds(self) -> float:
        """That its first process computes a step, by the median turn; 0 where it is not known."""
        return median(turn.cpu_seconds / turn.steps for turn in self.turns)

    @property
    def loopback_bytes(self) -> float:
        """That went over the loopback interface a step, by the median turn."""
        return median(turn.loopback_bytes / turn.steps for turn in self.turns)

    @property
    def peak_bytes(self) -> int:
        """The most resident memory of its first process."""
        return max(turn.peak_bytes for turn in self.turns)


@dataclass(frozen=True)
class Measured:
    """What was measured of a case; ``rows`` by key of the program."""

    case: Case
    rows: dict[str, Row]

    def rate(self, key: str) -> float:
        """Pairs a second, over all workers."""
        row = self.rows[key]
        return self.case.batch_size * row.workers / row.seconds

    def has(self, *keys: str) -> bool:
        """Whether all of these were measured."""
        return all(key in self.rows and not self.rows[key].skipped for key in keys)


Starters = Mapping[str, Callable[[Case, Path], Runs]]


def start(key: str, case: Case, folder: Path) -> Program:
    """Start a program of ``NAMES`` that needs no Ray; ``folder`` is for what it writes."""
    if key == WORKERS:
        commands = [command(OURS, case, rank=rank, world=2, folder=str(folder)) for rank in range(2)]
    elif key == MEGA:
        commands = [command(OURS, replace(case, mega_batches=MEGA_BATCHES), folder=str(folder))]
    else:
        commands = [command(key, case, folder=str(folder))]
    return Program(NAMES[key], commands, case.threads, loud=case.epochs > 0)


def programs_for(case: Case) -> list[str]:
    """Keys of the programs that are to train a case where it is not said."""
    if case.epochs:
        return [OURS]
    peers = [*PEERS] if case.encoder == "avg" else []
    mega = [MEGA] if MEGA_BATCHES * case.batch_size <= _MOST_MEGA_PAIRS else []
    workers = [WORKERS] if case.device == "cpu" else []  # there is one GPU
    return [OURS, READY, *peers, *mega, *workers]


def measure(
    case: Case, keys: Sequence[str], rounds: int, report: Callable[[str], None], more: Starters | None = None
) -> Measured:
    """Let programs take turns.

    Args:
        case: what they train.
        keys: of the programs.
        rounds: turns of each.
        report: is told what is under way.
        more: how those that need Ray are started: case, folder for what they need → program.

    Raises:
        ValueError: a program failed.
    """
    running: dict[str, Runs] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for key in keys:
            report(f"{case.encoder}, {case.texts}, batch {case.batch_size}: warming up {key}")
            running[key] = more[key](case, folder) if more and key in more else start(key, case, folder)
            stack.callback(running[key].close)
        for number in range(1, rounds + 1):
            for key, program in running.items():
                if not program.skipped:
                    report(f"{case.encoder}, {case.texts}, batch {case.batch_size}: round {number} of {rounds}: {key}")
                    program.take_turn()
    rows = {
        key: Row(NAMES[key], one.workers, one.turns, one.warm_up_seconds, one.skipped) for key, one in running.items()
    }
    return Measured(case, rows)


def markdown(measured: Measured) -> list[str]:
    """Lines of a Markdown table, and what follows from it."""
    case = measured.case
    lines = [
        f"### {case.encoder}, {case.texts}, batch {case.batch_size:,}",
        "",
        _line(HEAD),
        "|---|" + "---:|" * (len(HEAD) - 1),
    ]
    for key, row in measured.rows.items():
        if row.skipped:
            lines.append(_line([row.program, row.skipped, *[""] * (len(HEAD) - 2)]))
            continue
        ratio = f"{measured.rate(OURS) / measured.rate(key):.2f}" if measured.has(OURS) else ""
        lines.append(
            _line(
                [
                    row.program,
                    _milliseconds(row.seconds),
                    _milliseconds(row.cpu_seconds) if row.cpu_seconds else "",
                    f"{measured.rate(key):,.0f}",
                    ratio,
                    f"{row.peak_bytes / 1e6:,.0f}" if row.peak_bytes else "",
                    f"{row.warm_up_seconds:.1f}",
                ]
            )
        )
    return [*lines, "", *(f"* {note}" for note in notes(measured)), ""]


def notes(measured: Measured) -> list[str]:
    """What follows from the numbers, in words."""
    found, case = [], measured.case
    for row in measured.rows.values():
        if case.epochs and not row.skipped:
            steps, seconds = row.turns[0].steps, row.turns[0].seconds
            found.append(
                f"{row.program}: {case.epochs} epochs of {case.num_pairs:,} pairs, {steps:,} steps: {seconds:,.0f} s"
            )
    if measured.has(OURS, READY):
        share = 1 - measured.rows[READY].seconds / measured.rows[OURS].seconds
        found.append(f"making batches takes {share:.1%} of a step; the rest is the step with its batch ready")
    if measured.has(OURS) and measured.rows[OURS].peak_bytes:
        peak, most = measured.rows[OURS].peak_bytes / 1e6, case.allowed_bytes / 1e6
        found.append(f"peak memory {peak:,.0f} MB; ids + 4 word matrices + 1 GB are {most:,.0f} MB")
    if measured.has(OURS) and case.device == "cuda":
        found.append(f"peak GPU memory {measured.rows[OURS].turns[-1].device_bytes / 1e6:,.0f} MB")
    if measured.has(OURS, WORKERS):
        gain, sent = measured.rate(WORKERS) / measured.rate(OURS), measured.rows[WORKERS].loopback_bytes
        found.append(
            f"without Ray 2 workers train {gain:.2f} × the pairs of one; they exchange {sent / 1e3:,.0f} kB a step"
        )
    if measured.has(OURS, RAY):
        found.append(f"a step on Ray takes {measured.rows[RAY].seconds / measured.rows[OURS].seconds - 1:+.1%}")
    if measured.has(RAY, RAY_WORKERS):
        found.append(f"on Ray 2 workers train {measured.rate(RAY_WORKERS) / measured.rate(RAY):.2f} × the pairs of one")
    return found


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
