"""The benchmark of the encoders: flags, table, JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from paraembed.benchmarks.encoders import Workload, measure, table
from paraembed.cluster.job import print_table, say
from paraembed.cluster.progress import ProgressLine
from paraembed.cluster.session import absolute
from paraembed.files import write_json

_PLAIN_SECONDS = 10  # between progress lines where there is no terminal


@dataclass(frozen=True)
class Encoders:
    """Time the encoders' part of a training step, forward and backward, side by side.

    Attributes:
        encoders: Names; left out, every encoder.
        threads: Threads of torch.
        device: cpu or cuda.
        out: JSON file for the numbers.
    """

    encoders: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]")] = ()
    workload: Annotated[Workload, tyro.conf.arg(name="")] = field(default_factory=Workload)
    threads: int = 1
    device: Literal["cpu", "cuda"] = "cpu"
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None


def bench_encoders(flags: Encoders) -> None:
    """Measure, print the table, write the numbers."""
    if flags.threads < 1:
        raise ValueError(f"--threads is {flags.threads}; it must be at least 1")
    if flags.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch sees no GPU on this machine; take --device cpu")
    out = absolute(flags.out, "--out") if flags.out else None
    torch.set_num_threads(flags.threads)
    progress = ProgressLine(_PLAIN_SECONDS)
    try:
        timings = measure(flags.workload, flags.encoders, torch.device(flags.device), progress.show)
    finally:
        progress.close()
    print_table(*table(timings, flags.workload.batch_size))
    where = torch.cuda.get_device_name() if flags.device == "cuda" else f"CPU, threads: {flags.threads}"
    say(f"forward and backward, median of {flags.workload.rounds} rounds; torch {torch.__version__}, {where}")
    if out:
        settings = asdict(flags.workload) | {"torch": torch.__version__, "device": where}
        write_json(out, {"settings": settings, "encoders": [asdict(one) for one in timings]})
        say(f"wrote {out}")
