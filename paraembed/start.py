"""The first seconds of a job: a stop while modules are imported, or a missing package, is one line.

Standard library only: it runs before anything else is imported, maybe with an interpreter that has no other package.
"""

from __future__ import annotations

import os
import signal
import sys
from types import TracebackType

FAILED, STOPPED = 1, 130
STOPPED_LINE = "stopped; the same command continues from what is finished"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def guard() -> None:
    """End the process with one line on Ctrl-C, SIGTERM or a missing package, for as long as nobody else handles them.

    The process exits at once, without unwinding: code that imports may swallow an exception that a signal raises.
    """
    if sys.version_info < (3, 11):  # noqa: UP036  the interpreter of a forgotten virtual environment
        sys.exit(
            f"error: {sys.executable} is Python {sys.version.split()[0]}; paraembed needs 3.11 or newer. {_remedy()}"
        )
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's & in a script
            signal.signal(number, stop_now)
    sys.excepthook = _explain


def stop_now(*_: object) -> None:
    """Say that the job was stopped and end the process."""
    os.write(2, f"{STOPPED_LINE}\n".encode())
    os._exit(STOPPED)


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        stop_now()
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing in {"", "paraembed", "tune_spaces"} or "PARAEMBED_TRACEBACK" in os.environ:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write(f"error: {sys.executable} has no package {missing!r}. {_remedy()}\n")


def _remedy() -> str:
    from pathlib import Path  # noqa: PLC0415  guard() must run within milliseconds

    root = Path(__file__).resolve().parents[1]
    environment = root / ".venv"
    if (environment / "bin" / "python").exists() and Path(sys.prefix).resolve() != environment.resolve():
        return f"Activate the virtual environment, then run the same command: source {environment}/bin/activate"
    return f"Install paraembed with its dependencies into a virtual environment: pip install {root}"
