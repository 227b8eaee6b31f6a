"""The benchmark of embedding: flags, jobs/embed.py as one of the programs, tables, JSON, MLflow."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from mlflow.tracking import MlflowClient

import paraembed
from paraembed.benchmarks.embed import JOBS, NAMES, JobTurn, Result, measure
from paraembed.benchmarks.embed_case import EmbedWorkload, Inputs, write_inputs
from paraembed.benchmarks.embed_tables import markdown, metrics
from paraembed.benchmarks.turns import Turn
from paraembed.cluster.job import say
from paraembed.cluster.session import absolute
from paraembed.cluster.tracking import EXPERIMENT, tracked_run
from paraembed.embedding.part import REPORTS
from paraembed.files import SUCCESS, read_json, write_json, write_stream

_HOME = Path(paraembed.__file__).parents[1]


@dataclass(frozen=True)
class Embed:
    """Time embedding beside what others offer, and its parts, memory and stages.

    Every program runs in processes of its own; those of a table take turns.

    Attributes:
        encoder: Encoder folder; left out, one is made: avg on the most frequent words, with random vectors.
        texts: Files of sentences, one a line, plain or compressed; left out, sentences are generated.
        programs: Which to run; left out, all.
        folder: For files on the way, which are removed; room for about 3 kB a row of the large input.
        out: JSON file for the numbers.
    """

    encoder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    texts: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[FILE ...]")] = ()
    workload: Annotated[EmbedWorkload, tyro.conf.arg(name="")] = field(default_factory=EmbedWorkload)
    programs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]")] = ()
    folder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None


def bench_embed(flags: Embed) -> None:
    """Measure, print the tables, write the numbers, log them.

    Raises:
        OSError, ValueError: a flag will not do, or a program failed.
    """
    for key in flags.programs:
        if key not in NAMES:
            raise ValueError(f"--programs {key!r} is unknown; allowed: {', '.join(NAMES)}")
    out = absolute(flags.out, "--out") if flags.out else None
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
    encoder = absolute(flags.encoder, "--encoder") if flags.encoder else None
    texts = [absolute(path, "--texts") for path in flags.texts]
    where = absolute(flags.folder, "--folder") if flags.folder else None
    work, results = flags.workload, dict[str, Result]()
    with tempfile.TemporaryDirectory(prefix="bench-embed-", dir=where) as name:
        folder = Path(name)
        say("writing sentences and encoder")
        inputs = write_inputs(work, encoder, texts, folder)
        with tracked_run("bench embed", out or Path.cwd() / "bench") as tracked:
            settings = {"encoder": str(encoder), "texts": " ".join(map(str, texts)), **asdict(work)}
            tracked.params({name: str(value) for name, value in settings.items()})
            start_job = partial(Job, work=work, inputs=inputs, folder=folder)
            for group in measure(work, inputs, folder, flags.programs or [*NAMES], start_job, say):
                results |= group
                tracked.metrics(metrics(group))
            write_stream(sys.stdout, "\n".join(markdown(work, results)) + "\n")
            say(f"median of {work.rounds} rounds; torch {torch.__version__}, {os.cpu_count()} cores")
            if out:
                numbers = {key: asdict(one) for key, one in results.items()}
                write_json(out, {"settings": settings, "cores": os.cpu_count(), "programs": numbers})
                tracked.artifacts(out)
                say(f"wrote {out}")


class Job:
    """``jobs/embed.py`` from the command line, into a new folder each turn; see ``embed.Runs``."""

    def __init__(self, key: str, *, work: EmbedWorkload, inputs: Inputs, folder: Path) -> None:
        self._folder, self.skipped, self.turns = folder / key, "", list[Turn]()
        texts = {"large": inputs.large, "few": inputs.small, "many": inputs.small}.get(key, inputs.texts)
        part_rows = work.small_part_rows if key == "many" else work.part_rows  # few and large: peaks of equal parts
        dtype = "float16" if key == "float16" else "float32"
        flags = {"encoder": inputs.encoder, "input": texts, "out": self._folder, "dtype": dtype, "part-rows": part_rows}
        given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        self._command = [sys.executable, str(_HOME / "jobs" / "embed.py"), *given, "--workers", str(work.workers)]
        # The experiment's artifacts stay in the working folder of the job that made it, so all of them share one.
        self._name, self._home, self._store = JOBS[key], folder, f"sqlite:///{folder / 'mlflow.db'}"

    def take_turn(self) -> None:
        """Run the job, and read from its output what it did when.

        Raises:
            ValueError: it failed.
        """
        started = time.time()
        done = subprocess.run(  # noqa: S603
            self._command,
            cwd=self._home,
            env={**os.environ, "MLFLOW_TRACKING_URI": self._store, "PYTHONPATH": str(_HOME)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        ended = time.time()
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            raise ValueError(f"{self._name} ended with status {done.returncode}: {last[0] if last else 'no word'}")
        paths = [*(self._folder / REPORTS).glob("part-*.parquet.json")]
        reports = [read_json(path, dict[str, Any]) for path in paths]
        first = min(path.stat().st_mtime - one["seconds"] for path, one in zip(paths, reports, strict=True))
        self.turns.append(
            JobTurn(
                steps=sum(one["rows"] for one in reports),
                seconds=(self._folder / SUCCESS).stat().st_mtime - first,
                peak_bytes=self._peak_bytes(),
                start_seconds=first - started,
                whole_seconds=ended - started,
                part_seconds=sum(one["seconds"] for one in reports),
                parts=len(reports),
            )
        )
        shutil.rmtree(self._folder)

    def _peak_bytes(self) -> int:
        """Of the largest worker, as the job told MLflow."""
        logging.getLogger("alembic").setLevel(logging.WARNING)
        client = MlflowClient(self._store)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        assert experiment is not None
        (run,) = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1)
        return int(run.data.metrics["peak_worker_memory_bytes"])

    def close(self) -> None:
        """Nothing is left of it between turns."""
