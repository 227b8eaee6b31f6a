"""``python jobs/bench.py train``: flags, tables, JSON. Runs where there is nothing but torch, numpy and pyarrow."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from paraembed.benchmarks.train import NAMES, RAY, RAY_WORKERS, Measured, Starters, markdown, measure, programs_for
from paraembed.benchmarks.train_case import TEXTS, Case
from paraembed.compiled import COMPILED

ABOUT = """Time training beside what others would write, on generated pairs, and print a table for each training.

Every program runs in a process of its own; they take turns, and the median over the rounds counts. Start, data,
compiling and the first steps are shown as warm-up and do not count."""
SCALE = {"texts": "phrases", "batch_size": 100, "pairs": 9_100_000, "epochs": 10}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags."""
    default = Case()
    parser = argparse.ArgumentParser(
        "bench.py train", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, metavar, item, given, text in (
        ("--texts", "KIND", str, list(TEXTS), "sentences: 15 tokens a text, on average; phrases: 4"),
        ("--batch-sizes", "N", int, [100, 1024], "pairs a step and worker"),
        ("--encoders", "NAME", str, [default.encoder], "what is trained; the peers can train avg only"),
        (
            "--programs",
            "NAME",
            str,
            None,
            f"which to run, in this order; left out: those that suit ({', '.join(NAMES)})",
        ),
    ):
        shown = f"{text} ({' '.join(map(str, given))})" if given else text
        parser.add_argument(flag, nargs="+", type=item, default=given, metavar=metavar, help=shown)
    for name, kind, text in (
        ("device", str, "cpu or cuda"),
        ("precision", str, "float32 or, on a GPU, bfloat16"),
        ("pairs", int, "generated pairs"),
        ("words", int, "rows of the word matrix"),
        ("width", int, "width of a word vector"),
        ("threads", int, "of torch in each process"),
        ("seconds", float, "that a turn lasts at least"),
        ("seed", int, "decides texts and word vectors"),
    ):
        metavar, value = {int: "N", float: "S", str: "NAME"}[kind], getattr(default, name)
        parser.add_argument(f"--{name}", type=kind, default=value, metavar=metavar, help=f"{text} ({value})")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each program (3)")
    whole = f"one whole training: {SCALE['pairs']:,} pairs of phrases, {SCALE['epochs']} epochs, batch 100"
    parser.add_argument("--scale", action="store_true", help=f"instead, {whole}; without --programs: of paraembed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the numbers")
    return parser.parse_args(arguments)


def why_not(flags: argparse.Namespace) -> str:
    """Why this machine cannot measure what is asked for; empty where it can."""
    if flags.device == "cuda" and not torch.cuda.is_available():
        return "--device cuda: PyTorch sees no GPU on this machine; take --device cpu"
    return ""


def run(flags: argparse.Namespace, more: Starters | None = None) -> list[Measured]:
    """Measure, print the tables, write the numbers.

    Args:
        flags: as ``parse`` returns them.
        more: programs that need Ray, where there is one.

    Raises:
        OSError, ValueError: a flag will not do, or a program failed.
    """
    if flags.rounds < 1:
        raise ValueError(f"--rounds is {flags.rounds}; it must be at least 1")
    for key in flags.programs or ():
        if key not in NAMES:
            raise ValueError(f"--programs {key!r} is unknown; allowed: {', '.join(NAMES)}")
    if flags.out:
        flags.out.absolute().parent.mkdir(parents=True, exist_ok=True)
    cases = _cases(flags)
    found = []
    for case in cases:
        keys = flags.programs or [*programs_for(case), *(() if flags.scale else more or ())]
        absent = [key for key in keys if key in {RAY, RAY_WORKERS} and key not in (more or {})]
        if absent:
            raise ValueError(f"--programs {absent[0]} cannot run here: it needs Ray and MLflow, and a device a worker")
        measured = measure(case, keys, 1 if flags.scale else flags.rounds, _say, more)
        print("\n".join(markdown(measured)))  # noqa: T201 - what the job is for
        found.append(measured)
    machine = describe_machine(cases[0])
    _say(", ".join(f"{name} {value}" for name, value in machine.items()))
    if flags.out:
        numbers = [
            {"case": vars(one.case), "programs": {key: asdict(row) for key, row in one.rows.items()}} for one in found
        ]
        flags.out.write_text(json.dumps({"machine": machine, "cases": numbers}, indent=1) + "\n")
        _say(f"wrote {flags.out}")
    return found


def _cases(flags: argparse.Namespace) -> list[Case]:
    common = {
        name: getattr(flags, name)
        for name in ("pairs", "words", "width", "device", "precision", "threads", "seconds", "seed")
    }
    if flags.scale:
        return [Case(**{**common, **SCALE}, encoder=name) for name in flags.encoders]
    chosen = product(flags.encoders, flags.texts, flags.batch_sizes)
    return [Case(texts, batch_size, encoder, **common) for encoder, texts, batch_size in chosen]


def describe_machine(case: Case) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if case.device == "cuda" else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads a process": case.threads,
        "compiled loops": COMPILED,
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - this runs where the jobs' own ``say`` cannot be imported
