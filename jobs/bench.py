"""Measure how fast paraembed is on this machine, on generated data: see ``python jobs/bench.py --help``.

``train`` needs nothing but torch, numpy and pyarrow, so that it runs on a bare machine with a GPU. Where Ray and MLflow
are installed, it measures training on Ray, too, and is logged.
"""

import sys

if __name__ == "__main__":  # a bare machine has the files, not the package
    sys.path.append(f"{sys.path[0]}/..")
    from paraembed.start import guard

    guard()

import signal
from importlib import import_module

from paraembed.start import FAILED, STOP_SIGNALS, STOPPED, STOPPED_LINE

HOMES = {
    "embed": ("paraembed.cluster.bench_embed", "bench_embed", "Embed"),
    "encoders": ("paraembed.cluster.bench_encoders", "bench_encoders", "Encoders"),
    "shard": ("paraembed.cluster.bench", "bench_shard", "Shard"),
}
HELP = """usage: bench.py {embed,encoders,shard,train} [options]

Measure how fast paraembed is on this machine, on generated data.

  embed     encode beside other libraries; jobs/embed.py from text to Parquet, by stage; its memory, its parts
  encoders  a training step of each encoder, forward and backward, side by side
  shard     the sharding of PPDB-format lines beside gzip and plain Python loops
  train     training beside what others would write, from the first word to the updated matrix

'bench.py WHAT --help' lists the options of each."""


def main(arguments: list[str]) -> int:
    """Run the benchmark that the first argument names; returns the exit status."""
    what, *rest = arguments or [""]
    if what == "train":
        return train(rest)
    if what in HOMES:
        sys.argv = [f"{sys.argv[0]} {what}", *rest]
        home, call, flags = HOMES[what]
        module = import_module(home)
        status: int = import_module("paraembed.cluster.job").run(getattr(module, call), getattr(module, flags))
        return status
    if what in {"-h", "--help"}:
        print(HELP)
        return 0
    print(f"{HELP}\n\nerror: {what!r} is no benchmark; allowed: {', '.join([*HOMES, 'train'])}", file=sys.stderr)
    return 2


def train(arguments: list[str]) -> int:
    """Time training: with Ray and MLflow where they are installed, else without."""
    command = import_module("paraembed.benchmarks.train_command")
    flags = command.parse(arguments)
    if why_not := command.why_not(flags):
        print(f"skipped: {why_not}", file=sys.stderr)
        return 0
    try:
        on_ray = import_module("paraembed.cluster.bench_train")
    except ModuleNotFoundError as missing:
        if str(missing.name).startswith("paraembed"):
            raise
        print(f"without Ray and MLflow: {missing.name} is not installed", file=sys.stderr)
        on_ray = command
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)  # so that the programs end, too
    try:
        on_ray.run(flags)
    except KeyboardInterrupt:
        print(STOPPED_LINE, file=sys.stderr)
        return STOPPED
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
