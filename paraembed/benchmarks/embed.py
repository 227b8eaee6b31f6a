"""Speed of embedding on this machine, as ratios in one run: in memory, end to end, memory, parts, stages.

Programs of a group take turns, and the median over the rounds counts. Those that need Ray are given by the caller.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Protocol

from paraembed.benchmarks.embed_case import EmbedWorkload, Inputs
from paraembed.benchmarks.embed_program import Task
from paraembed.benchmarks.turns import Program, Turn

IN_MEMORY = {
    "encode": "paraembed",
    "encode_1": "paraembed, one thread",
    "model2vec": "model2vec StaticModel",
    "static_embedding": "sentence-transformers StaticEmbedding",
}
JOBS = {
    "float32": "jobs/embed.py",
    "float16": "jobs/embed.py --dtype float16",
    "few": "jobs/embed.py, few rows",
    "many": "jobs/embed.py, few rows in many parts",
    "large": "jobs/embed.py, many rows",
}
FLOOR = {"floor": "tokenise, embedding_bag, write_table"}
STAGES = {
    "read": "read",
    "tokenise": "tokenise, look up",
    "gather": "gather",
    "write": "write",
    "part": "a whole part",
}
SIZES = {
    "few_files": "look at a few input files, plan them",
    "many_files": "look at many input files, plan them",
    "few_groups": "read a part of a Parquet file of few row groups",
    "many_groups": "read a part of a Parquet file of many row groups",
}
NAMES = {**IN_MEMORY, **JOBS, **FLOOR, **STAGES, **SIZES}
GROUPS = ([*IN_MEMORY], ["float32", "float16", "floor"], ["few", "many"], ["large"], [*STAGES], [*SIZES])
"""Which programs take turns with each other; ``large`` is there for its memory, and runs once."""


@dataclass(frozen=True)
class JobTurn(Turn):
    """A run of jobs/embed.py: ``steps`` rows in ``seconds`` from the begin of the first part to the commit.

    Attributes:
        start_seconds: from the command to the begin of the first part.
        whole_seconds: from the command to its end.
        part_seconds: that the workers spent in parts, together.
        parts: how many.
    """

    start_seconds: float = 0.0
    whole_seconds: float = 0.0
    part_seconds: float = 0.0
    parts: int = 0


class Runs(Protocol):
    """A program that takes turns."""

    skipped: str

    @property
    def turns(self) -> Sequence[Turn]:
        """What it did in each."""

    def take_turn(self) -> None:
        """Run once."""

    def close(self) -> None:
        """Let go of what it holds."""


@dataclass(frozen=True)
class Result:
    """What was measured of a program.

    Attributes:
        name: of the program.
        turns: what it did in each round.
        skipped: why it did not run; empty where it did.
    """

    name: str
    turns: Sequence[Turn]
    skipped: str = ""

    def median(self, of: Callable[[Turn], float]) -> float:
        """Of the turns."""
        return median(map(of, self.turns))

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.median(lambda turn: turn.steps / turn.seconds)

    @property
    def cpu_rate(self) -> float:
        """Rows a second of its threads together."""
        return self.median(lambda turn: turn.steps / max(turn.cpu_seconds, 1e-9))

    @property
    def peak_bytes(self) -> int:
        """The most memory of a process."""
        return max(turn.peak_bytes for turn in self.turns)

    @property
    def jobs(self) -> list[JobTurn]:
        """The turns of a job."""
        return [turn for turn in self.turns if isinstance(turn, JobTurn)]


Results = Mapping[str, Result]
StartJob = Callable[[str], Runs]


class Together:
    """Processes that share a program's work, each a row of its own ``Program``; a turn lasts as long as the longest."""

    def __init__(self, name: str, tasks: Sequence[Task]) -> None:
        self._stack, self._programs, self.skipped = ExitStack(), list[Program](), ""
        try:
            for task in tasks:
                self._programs.append(Program(name, [task.command()], task.threads))
                self._stack.callback(self._programs[-1].close)
        except BaseException:
            self.close()
            raise

    @property
    def turns(self) -> list[Turn]:
        """What they did together."""
        return [
            Turn(
                sum(turn.steps for turn in turns),
                max(turn.seconds for turn in turns),
                sum(turn.cpu_seconds for turn in turns),
                max(turn.peak_bytes for turn in turns),
            )
            for turns in zip(*(one.turns for one in self._programs), strict=True)
        ]

    def take_turn(self) -> None:
        """All at once."""
        with ThreadPoolExecutor(len(self._programs)) as pool:
            list(pool.map(Program.take_turn, self._programs))

    def close(self) -> None:
        """End the processes."""
        self._stack.close()


def start(key: str, work: EmbedWorkload, inputs: Inputs, folder: Path) -> Runs:
    """Start a program that needs no Ray; ``folder`` is for what it writes."""
    made = folder / key
    made.mkdir()
    task = Task(key, str(inputs.encoder), str(inputs.texts), str(made), work.rows, work.part_rows, threads=1)
    if key in FLOOR:
        return Together(NAMES[key], [replace(task, rank=rank, world=work.workers) for rank in range(work.workers)])
    if key in SIZES:
        task = replace(task, rows=getattr(work, key))
    elif key in STAGES:
        task = replace(task, texts=str(inputs.small), rows=work.small_rows)
    else:
        task = replace(task, rows=min(work.rows, work.memory_rows), threads=1 if key == "encode_1" else work.workers)
    return Program(NAMES[key], [task.command()], task.threads)


def measure(
    work: EmbedWorkload,
    inputs: Inputs,
    folder: Path,
    keys: Sequence[str],
    start_job: StartJob,
    report: Callable[[str], None],
) -> Iterator[dict[str, Result]]:
    """Let the programs of each group take turns; yields what was measured of a group.

    Args:
        work: sizes.
        inputs: what is embedded.
        folder: for what the programs write.
        keys: which programs.
        start_job: gives the job of a key of ``JOBS``.
        report: is told what is under way.

    Raises:
        ValueError: a program failed.
    """
    for group in GROUPS:
        running: dict[str, Runs] = {}
        with ExitStack() as stack:
            for key in (one for one in group if one in keys):
                report(f"warming up {key}")
                running[key] = start_job(key) if key in JOBS else start(key, work, inputs, folder)
                stack.callback(running[key].close)
            rounds = 1 if group == ["large"] else work.rounds
            for number in range(1, rounds + 1):
                for key, program in running.items():
                    if not program.skipped:
                        report(f"round {number} of {rounds}: {key}")
                        program.take_turn()
        if running:
            yield {key: Result(NAMES[key], one.turns, one.skipped) for key, one in running.items()}
