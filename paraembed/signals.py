"""Handle signals and missing packages while a job starts: each ends the job with a one-line message.

This module uses the standard library only, because it runs before all other imports, possibly in an interpreter without
other packages.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

FAILED, WRONG_INPUT, STOPPED = 1, 2, 130
STOPPED_LINE = "stopped; run the same command again to resume"
# Windows, where encoders can be loaded, has neither SIGHUP nor EDQUOT.
STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name))
NO_SPACE: tuple[int, ...] = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_LAST_SECONDS = 4.0
_last_acts: list[Callable[[int], None]] = []


class RunFailedError(ValueError):
    """Error of a run or a check that failed although flags and inputs were valid; the exit status is 1 instead of 2."""


def guard() -> None:
    """End the process with a one-line message on Ctrl-C, SIGTERM or a missing package, until other handlers are
    installed.

    The process exits at once, without unwinding, because modules that are being imported may swallow an exception
    raised by a signal.
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
    """Print that the job was stopped, and end the process."""
    _act(STOPPED)
    os.write(2, f"{STOPPED_LINE}\n".encode())
    os._exit(STOPPED)


def fail_now() -> None:
    """End the process with the status of a failed job; the caller has already printed the error."""
    _act(FAILED)
    os._exit(FAILED)


def _act(status: int) -> None:
    if not _last_acts:
        return
    import threading  # noqa: PLC0415  guard() must run within milliseconds

    def act() -> None:
        for act_last in reversed(_last_acts):
            act_last(status)

    thread = threading.Thread(target=act, name="last acts", daemon=True)  # this one may hold the locks that they need
    thread.start()
    thread.join(_LAST_SECONDS)


@contextmanager
def last_act(act: Callable[[int], None]) -> Iterator[None]:
    """Call ``act`` with the exit status if ``stop_now`` or ``fail_now`` ends the process within the block.

    Both end the process without unwinding. The functions run in another thread, innermost block first, and share a
    limit of 4 seconds.
    """
    _last_acts.append(act)
    try:
        yield
    finally:
        _last_acts.remove(act)


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
