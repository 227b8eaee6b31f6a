"""Command line of the benchmarks: ``python jobs/bench.py BENCHMARK [flags]``; each of ``BENCHMARKS`` is a file.

Such a file has ``add_flags``, ``run`` and, if some of its programs can be chosen, ``PROGRAMS``. ``train`` needs only
torch, numpy and pyarrow; if Ray and MLflow are installed, every benchmark logs one MLflow run.
"""

import json
import signal
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paraembed.signals import FAILED, STOP_SIGNALS, STOPPED

BENCHMARKS = ("embed", "encoders", "export", "host", "models", "scale", "search", "shard", "students", "train")
Add = Callable[..., Any]
"""``ArgumentParser.add_argument``."""


def count(text: str) -> int:
    """Return a number of rows, rounds or the like; raise ArgumentTypeError if it is below 1."""
    if (number := int(text)) < 1:
        raise ArgumentTypeError(f"{number} is not allowed; give 1 or more")
    return number


def path(text: str) -> str:
    """Return an absolute path, because programs run in other folders, and a submitted job in a temporary copy."""
    if "runtime_resources" in Path.cwd().parts and not Path(text).is_absolute():
        raise ArgumentTypeError(f'{text!r} is relative, but a submitted job needs an absolute path: "$PWD/{text}"')
    return str(Path(text).absolute())


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the options of a benchmark; ``benchmark`` is its name."""
    parser = ArgumentParser("bench.py", description="Measure the speed of paraembed on this machine.")
    parser.add_argument("benchmark", choices=BENCHMARKS, help="'BENCHMARK --help' prints its flags")
    name = parser.parse_args(arguments[:1]).benchmark
    benchmark = import_module(f"infra.bench.{name}")
    summary = (benchmark.__doc__ or "").partition("\n\n")[0]
    parser = ArgumentParser(f"bench.py {name}", description=summary, formatter_class=ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--rounds", type=count, default=3, help="interleaved rounds; the median counts")
    add("--seed", type=int, default=1, help="seed of the generated data")
    add("--out", type=path, help="JSON file for the numbers")
    if programs := getattr(benchmark, "PROGRAMS", None):
        add("--programs", nargs="+", choices=programs, default=[*programs], metavar="NAME", help="programs to run")
    benchmark.add_flags(add)
    return parser.parse_args(arguments[1:], Namespace(benchmark=name))


def main(arguments: Sequence[str]) -> int:
    """Run a benchmark.

    Return the exit status: 0 done, or skipped because there is no GPU; 1 failed; 130 stopped.
    """
    try:
        options = parse(arguments)
        if getattr(options, "device", "") == "cuda" and not import_module("torch").cuda.is_available():
            message = "skipped: --device cuda: PyTorch sees no GPU on this machine; use --device cpu"
            print(message, file=sys.stderr)  # a script may ask for both devices
            return 0
        for number in STOP_SIGNALS:
            signal.signal(number, signal.default_int_handler)  # so that the programs end, too
        _run(options)
    except KeyboardInterrupt:
        print("stopped; no numbers were kept", file=sys.stderr)
        return STOPPED
    except Exception as error:
        cause = error if isinstance(error, OSError | ValueError) else _explained(error)
        if cause is None:
            raise
        print(f"error: {cause}", file=sys.stderr)
        return FAILED
    return 0


def _explained(error: Exception) -> Exception | None:
    """Return the error to show instead of one of Ray; None without Ray, or for a defect."""
    return None if _missing_package() else import_module("paraembed.commands.job").explained(error)


def _run(options: Namespace) -> None:
    """Run a benchmark and write its numbers, as one MLflow run if Ray and MLflow are installed."""
    from infra.bench.rounds import settings  # noqa: PLC0415 - imports torch
    from paraembed.console import say, shown_status  # noqa: PLC0415 - imports Arrow

    name, out, tracked = options.benchmark, Path(options.out) if options.out else None, None
    with shown_status(), ExitStack() as stack:
        for folder in filter(None, [getattr(options, "folder", None), out.parent if out else None]):
            Path(folder).mkdir(parents=True, exist_ok=True)
        if missing := _missing_package():
            say(f"without Ray and MLflow: {missing} is not installed")
        elif name != "encoders":  # which is over in seconds, and needs neither
            tracking = import_module("paraembed.tracking.runs")
            tracked = stack.enter_context(tracking.tracked_run(f"bench {name}", out or Path.cwd() / "bench"))
            tracked.params({key: str(value) for key, value in settings(options).items()})
        numbers = import_module(f"infra.bench.{name}").run(options, tracked.metrics if tracked else lambda _: None)
        if out:
            out.write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n")
            say(f"wrote {out}")
            if tracked:
                tracked.artifacts(out)


def _missing_package() -> str:
    return next((name for name in ("ray", "mlflow") if find_spec(name) is None), "")
