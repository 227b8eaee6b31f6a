"""Time what the driver of jobs/embed.py does before and after the embedding, against the size of the corpus.

The object store is ``loopback``: its inputs are generated as they are read, and parts are counted, not written: it
lists as many as the driver has reports of. The encoder costs nothing. Each size has a process of its own; its memory is
the highest so far, with 0.3 GB of imports.
"""

import io
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench.command import Add, count
from infra.bench.loopback import TIME_NS, Generated, ObjectStore, serving
from infra.bench.rounds import Clock, Log, Program, Round, settings, show_table, start
from paraembed.cluster.embed import embed
from paraembed.console import doing
from paraembed.embedding import manifest
from paraembed.embedding.commit import commit
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.part import PartReport
from paraembed.embedding.plan import Part, Plan, make_plan
from paraembed.embedding.settings import Settings
from paraembed.encoders import Embedded
from paraembed.io.limits import DEFAULT_TABLE_LIMITS
from paraembed.io.store import open_store

PROGRAMS = {"first": "text files: to the first row", "text": "text: find and plan", "parts": "parts"}
PHASES = ("find", "plan", "begin", "report half", "resume", "report the rest", "commit", "nothing to do")
"""Steps of the driver for a number of parts; at the end of ``report half``, the run is stopped."""
_GROUPS, _GROUP_ROWS = 100, 100_000  # of a Parquet input; a row group is a part
_LINE = b"the cat sat on the mat and saw\n"
_FIRST_LINES, _LINES = 1_000, 8 << 20  # of a text file
_WIDTH = 8


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--files", type=count, default=10_000, help="text files of 1,000 rows, for the time to the first row")
    add("--text-files", type=count, default=12, help="text files of 8 million rows to plan")
    add("--parts", type=count, nargs="+", default=[10_000, 100_000, 1_000_000], help="parts of 100,000 rows, counted")
    add("--latency", type=float, default=0.025, help="seconds before the store answers a request")
    add("--throughput", type=float, default=100.0, help="MB/s of a connection to the store")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print a table for each size, return the numbers. ``--rounds`` has no effect: a round is a phase."""
    measured: dict[str, Any] = {}
    sizes = {"first": [options.files], "text": [options.text_files], "parts": options.parts}
    for key in options.programs:
        for size in sizes[key]:
            with serving(options.latency, options.throughput) as store:
                phases = _phases(key, size, store)
            measured[f"{key} {size}"] = {phase.name: {**vars(phase.rounds[0]), "requests": n} for phase, n in phases}
            requests = {phase.name: n for phase, n in phases}
            columns: dict[str, Callable[[Program], str]] = {
                "s": lambda phase: f"{phase.rounds[0].seconds:.1f}",
                "CPU s": lambda phase: f"{phase.rounds[0].cpu_seconds:.1f}",
                "MB": lambda phase: f"{phase.peak_bytes / 1e6:,.0f}",
                "requests": partial(_requests, requests),
            }
            show_table(f"{size:,} {PROGRAMS[key]}", [phase for phase, _ in phases], columns)
            log(
                {f"{key}_{size}/{phase.name.replace(' ', '_')}_seconds": phase.rounds[0].seconds for phase, _ in phases}
            )
    return {"settings": settings(options), "cores": os.cpu_count(), "phases": measured}


def _requests(requests: dict[str, int], phase: Program) -> str:
    return f"{requests[phase.name]:,}"


def _phases(key: str, size: int, store: ObjectStore) -> list[tuple[Program, int]]:
    """Return each phase with its only round, and its requests; last, their sum."""
    functions: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
        "first": (first_row, ("find plan begin",)),
        "text": (plan_text, ("find", "plan")),
        "parts": (drive, PHASES),
    }
    function, names = functions[key]
    generate(store, key, size)
    given: dict[str, Any] = {"inputs": store.uri("in")}
    given |= {"out": store.uri("out"), "size": len(_parquet(1, 1))} if key == "parts" else {}
    program = start(f"{size:,} {PROGRAMS[key]}", function, given, threads=os.cpu_count() or 1)
    phases = list[tuple[Program, int]]()
    try:
        for name in names:
            doing(f"{program.name}: {name}")
            before, parts = store.requests, store.folders.get("out/data/")
            if parts:  # those of the reports that the driver has before this phase
                parts.count = {"resume": size // 2, "commit": size}.get(name, parts.count)
            phases.append((Program(name, program.run_round, rounds=[program.run_round()]), store.requests - before))
    finally:
        program.close()
    rounds = [phase.rounds[0] for phase, _ in phases]
    seconds, cpu_seconds = (sum(getattr(round_, name) for round_ in rounds) for name in ("seconds", "cpu_seconds"))
    whole = Round(1, seconds, cpu_seconds, max(round_.peak_bytes for round_ in rounds))
    return [*phases, (Program("all", program.run_round, rounds=[whole]), sum(n for _, n in phases))]


def generate(store: ObjectStore, key: str, size: int) -> None:
    """Add the inputs of a program, and the output of ``parts``, which is empty."""
    if key == "parts":
        store.folders["in/"] = Generated("{:06d}.parquet", _parquet(_GROUPS, _GROUP_ROWS), max(1, size // _GROUPS))
        store.folders["out/data/"] = Generated("part-000-{:06d}.parquet", _parquet(1, 1), 0)
    else:
        lines = _FIRST_LINES if key == "first" else _LINES
        store.folders["in/"] = Generated("{:06d}.txt", _LINE * lines, size)


def _parquet(groups: int, rows: int) -> bytes:
    """Return a Parquet file of equal texts, whose footer has some row groups."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(groups * rows, np.int32)), pa.array(["the cat sat"]))
    with io.BytesIO() as file:
        pq.write_table(pa.table({"text": texts}), file, row_group_size=rows, store_schema=False)
        return file.getvalue()


class _Encoder(SimpleNamespace):
    """Encoder that returns ones, and calls ``begin`` first."""

    def embed(self, texts: pa.StringArray, /, *_: Any, **__: Any) -> Embedded:
        self.begin()
        counts = np.ones(len(texts), np.int32)
        return Embedded(np.ones((len(texts), _WIDTH), np.float32), counts, counts * 0)


def _encoder(begin: Callable[[], object] = lambda: None) -> Any:
    known: dict[str, Any] = {"identity": {}, "max_tokens": None, "reads_trees": False, "gains_from_gpu": False}
    return _Encoder(begin=begin, width=_WIDTH, fingerprint="scale", tokenizer="space", **known)


def first_row(clock: Clock, inputs: str) -> None:
    """Embed until the first row is given to the encoder."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        encoder = _encoder(lambda: clock(1))
        clock(0)
        embed("scale", [inputs], Path(folder) / "out", Settings(), loaded=encoder, engine="local")


def plan_text(clock: Clock, inputs: str) -> None:
    """Find and plan lines of text."""
    clock(0)
    files = find_inputs([inputs])
    clock(1)
    make_plan(files, Settings())
    clock(2)


def drive(clock: Clock, inputs: str, out: str, size: int) -> None:
    """Do what the driver does, but embed nothing: the reports are those of parts of ``size`` bytes."""
    store, settings_, encoder = open_store(out), Settings(text_column="text"), _encoder()

    def of_parts(parts: Sequence[Part]) -> Iterator[PartReport]:
        """Yield reports as they come from other processes: strings are not shared."""
        stamp = f"{size} {TIME_NS}"
        for number, part in enumerate(parts):
            about: dict[str, Any] = {"sha256": f"{number:064x}", "made_of": f"{number:064d}", "stamp": f"{stamp}"}
            report = PartReport(part.name, part.rows, 6 * part.rows, 0, 0, 0, "", 1.0, size=size)
            yield replace(report, **about)

    clock(0)
    files = find_inputs([inputs])
    clock(1)
    run = manifest.EmbeddingRun(encoder.fingerprint, encoder.tokenizer, make_plan(files, settings_))
    clock(2)
    with manifest.begun_run(store, run) as reports:
        clock(3)
        for report in of_parts(run.plan.parts[: len(run.plan.parts) // 2]):
            reports.add(report)
    del reports, run  # of the command that is stopped here
    clock(4)
    files = find_inputs([inputs], known=manifest.known_inputs(store, DEFAULT_TABLE_LIMITS))
    manifest.check_folder(store)
    new = manifest.EmbeddingRun(encoder.fingerprint, encoder.tokenizer, Plan(files, settings_))
    run = manifest.continued_run(store, new)
    with manifest.begun_run(store, run) as reports:
        todo = run.plan.parts.without(reports.names)
        clock(5)
        if len(todo) != len(run.plan.parts) - len(run.plan.parts) // 2:
            raise ValueError(f"{len(todo):,} of {len(run.plan.parts):,} parts are left, not the second half")
        for report in of_parts(todo):
            reports.add(report)
        reports.write()
        clock(6)
        commit(store, run, reports)
    del reports, run, todo, new
    clock(7)
    if not embed("scale", [inputs], out, settings_, loaded=encoder, engine="local").was_finished:
        raise ValueError("the output is not finished after its commit")
    clock(8)
