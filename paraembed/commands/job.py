"""Run a job: parse flags, return an exit status, and turn every error into one clear line."""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from paraembed.commands.flags import (
    COMMON,
    NO_GROUPS,
    CommonFlags,
    Groups,
    TrackedFlags,
    as_flags,
    as_started,
    current_flags,
    parse_flags,
    with_common,
)
from paraembed.console import doing, over_status, quiet, renamed, say, show, shown_status
from paraembed.io.places import without_credentials
from paraembed.process import quiet_libraries
from paraembed.signals import FAILED, NO_SPACE, STOP_SIGNALS, STOPPED, STOPPED_LINE, WRONG_INPUT, RunFailedError
from paraembed.tracking.place import RunLabels, labels

Flags = TypeVar("Flags")

_SHOWN = 500  # characters of an error of Ray
_REPEAT_SECONDS = 0.05
_LOST = (
    "RayActorError",
    "WorkerCrashedError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "OutOfMemoryError",
    "ObjectLostError",
    "RpcError",
    "RuntimeEnvSetupError",
    "RaySystemError",
)


def run(
    main: Callable[[Flags], Mapping[str, Any] | None],
    flags: type[Flags],
    groups: Groups = NO_GROUPS,
    default: Callable[[list[str]], Flags] | None = None,
    listing: Callable[[], Sequence[str]] | None = None,
) -> int:
    """Parse the command line into ``flags``, a dataclass whose docstring describes the job, and call ``main``.

    ``main`` returns what --json prints: counts by name, and ``written`` if that is not --out. ``default`` is a function
    from the arguments to the default values of flags, ``listing`` returns the lines of --list, and ``groups`` is
    title → flags that --help lists together.

    Returns:
        Exit status: 0 done, 1 the run or a check failed, 2 wrong flags or input (see ``exit_status``), 130 stopped by
            Ctrl-C or SIGTERM. An error is printed as one line on stderr; with PARAEMBED_TRACEBACK set, as a traceback.
    """
    line, _ = with_common(flags)
    arguments, started = current_flags(sys.argv[1:], line), time.monotonic()
    logging.basicConfig(
        level=logging.WARNING if "--quiet" in arguments else logging.INFO, stream=sys.stderr, force=True
    )
    logging.getLogger().handlers[0].setFormatter(_AsFlags(line))
    quiet_libraries()
    outcome: dict[str, Any] = {"job": flags.__name__.lower(), "status": 0}
    try:
        with _stops_raise(), renamed(as_started):
            if listing is not None and "--list" in arguments:
                show(*listing())
            else:
                line, defaults = with_common(flags, default and default(arguments))
                values = parse_flags(line, arguments, {**groups, **COMMON}, defaults)
                with quiet() if values.common.quiet else shown_status(), _labeled(values.common):
                    doing("starting")
                    counts = main(values.own) or {}
                out = None if getattr(values.own, "dry_run", False) else getattr(values.own, "out", None)
                outcome |= {"written": [] if out is None else [out], **counts}
    except SystemExit as stop:
        if not (stop.code and isinstance(stop.code, int)):
            raise  # of --help
        outcome |= {"status": stop.code, "error": "stopped by the reason on stderr"}
    except KeyboardInterrupt:
        say(STOPPED_LINE)
        outcome |= {"status": STOPPED, "error": STOPPED_LINE}
    except Exception as error:
        cause = explained(error)
        if cause is None or "PARAEMBED_TRACEBACK" in os.environ:  # None: a defect, which needs its traceback
            raise
        named = _not_utf_8(arguments) if isinstance(cause, UnicodeError) else ""
        message = as_started(named or as_flags(message_of(cause), line))
        say(f"error: {message}")
        outcome |= {"status": exit_status(cause), "error": message}
    if "--json" in arguments:
        outcome["seconds"] = round(time.monotonic() - started, 3)
        show(without_credentials(json.dumps(outcome, default=str)))
    return int(outcome["status"])


@contextmanager
def _labeled(common: CommonFlags) -> Iterator[None]:
    """Give the MLflow runs of the block what ``TrackedFlags`` set."""
    chosen = common if isinstance(common, TrackedFlags) else TrackedFlags()
    tags = dict(tag.split("=", 1) for tag in chosen.tag)
    token = labels.set(RunLabels(chosen.experiment, chosen.run_name, tags))
    try:
        yield
    finally:
        labels.reset(token)


def _not_utf_8(arguments: Sequence[str]) -> str:
    """Return the message for a job whose records or messages cannot represent an argument; empty if all are UTF-8."""
    flag = "an argument"
    for argument in arguments:
        name, _, value = argument.partition("=") if argument.startswith("--") else (flag, "", argument)
        flag = name if argument.startswith("--") else flag
        if any("\ud800" <= character <= "\udfff" for character in value or name):
            return f"{ascii(flag)[1:-1]} is {value!a}, which is not UTF-8; rename the file, or give UTF-8 text"
    return ""


def exit_status(error: Exception) -> int:
    """Return the exit status for an error.

    - 1: the run or a check failed: a failed verification, a limit on rejected rows or failed trials, diverged training,
      a full disk, a lost process, machine or server. The same command may succeed after the cause is removed.
    - 2: a flag, a path or an input is wrong: the command or the file must change.
    """
    of_input = (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError)
    return WRONG_INPUT if isinstance(error, of_input) and not isinstance(error, RunFailedError) else FAILED


class _AsFlags(logging.Formatter):
    """Log formatter that removes the credentials of URIs, and spells parameters as flags."""

    def __init__(self, flags: type) -> None:
        super().__init__("%(message)s")
        self._flags = flags

    def format(self, record: logging.LogRecord) -> str:
        return as_flags(over_status(super().format(record)), self._flags)


def message_of(error: Exception) -> str:
    """Return the message of an error for the user."""
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where = f" for {error.filename}" if error.filename else ""
        return f"no space left on the disk{where}; free some space and run the same command again"
    return str(error)


def explained(error: BaseException) -> Exception | None:
    """Return the error whose message the user gets instead of a traceback; None for a defect."""
    return user_error(error) or _lost(error)


def user_error(error: BaseException) -> Exception | None:
    """Return the ValueError or OSError inside of an error, through Ray's wrappers; None if there is none."""
    seen: list[BaseException] = [error]
    while seen:
        current = seen.pop()
        if _is_of_ray(current, "RayTaskError"):
            seen.append(current.cause)  # type: ignore[attr-defined]
        elif isinstance(current, ValueError | OSError):
            return current
        else:
            seen.extend(getattr(current, "worker_failures", {}).values())
            seen.extend(inner for inner in (getattr(current, "cause", None), current.__cause__) if inner is not None)
    return None


def _is_of_ray(error: BaseException, *names: str) -> bool:
    """Return whether an error is one of the named exceptions of Ray; False if Ray (2 s) is not imported."""
    exceptions = sys.modules.get("ray.exceptions")
    return exceptions is not None and isinstance(error, tuple(getattr(exceptions, name) for name in names))


def _lost(error: BaseException) -> Exception | None:
    """Return an error for a process or machine that Ray has lost for good; None for any other error."""
    if not _is_of_ray(error, *_LOST):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ChildProcessError(
        f"Ray has lost a process or a machine that the job needs ({' '.join(lines)[:_SHOWN]}). Finished work is kept; "
        "run the same command again"
    )


def given_flags() -> set[str]:
    """Return the flags in this process's command line, without their values."""
    return {argument.partition("=")[0] for argument in sys.argv[1:] if argument.startswith("--")}


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag in a command line, ``--flag value`` or ``--flag=value``; None if it is not given.

    If a flag is repeated, its last value counts, as for the parser (tyro).
    """
    for index, argument in reversed([*enumerate(arguments)]):
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None


@contextmanager
def _stops_raise() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt until the end of the block, so that the job cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, hook = {number: signal.getsignal(number) for number in STOP_SIGNALS}, sys.unraisablehook
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)

    def stop_again(dropped: "sys.UnraisableHookArgs") -> None:
        """Repeat a stop that was raised where Python ignores exceptions: in ``__del__``, or in a callback from C."""
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            threading.Timer(_REPEAT_SECONDS, _repeat_stop).start()
        else:
            hook(dropped)

    sys.unraisablehook = stop_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _repeat_stop() -> None:
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is _stop:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            return


def _stop(*_: object) -> None:
    raise KeyboardInterrupt
