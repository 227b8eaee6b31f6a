"""Messages, tables and the progress line of a job on the terminal.

On a terminal the progress line is rewritten in place; elsewhere it is repeated every 10 seconds, after a minute every
30. A job that ends within half a second shows no progress.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TextIO

from paraembed.io.escape import printable
from paraembed.io.places import without_credentials
from paraembed.signals import last_act

QUIET_SECONDS = 0.5  # with the half second until a job has read its flags, one until the first line
_EARLY_SECONDS, _PLAIN_SECONDS = 10.0, 30.0  # between lines that are not on a terminal, in the first minute and later
_TICK_SECONDS = 0.25
_ERASE = "\r\x1b[K"


def duration(seconds: float) -> str:
    """Return seconds in readable form: ``45 s``, ``3 min 05 s``, ``2 h 07 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


class Status:
    """Progress line: what a job is doing, and for how long it has been running since ``started``."""

    def __init__(self, started: float) -> None:
        self._started = self._next = started
        self._what = ""
        self._is_open = False
        self._lock = Lock()

    def set(self, what: str) -> None:
        """Set the text of the progress line; an empty text erases the line."""
        with self._lock:
            self._what = what
            if not what and self._is_open:
                write_stream(sys.stderr, _ERASE)
                self._is_open = False

    def draw(self, now: float) -> None:
        """Write the line if it is due."""
        with self._lock:
            seconds = now - self._started
            if not self._what or seconds < QUIET_SECONDS:
                return
            line = printable(_clean(f"{self._what} ({duration(seconds)})"))
            if sys.stderr.isatty():
                write_stream(sys.stderr, f"\r{line[: _width() - 1]}\x1b[K\r")  # what follows is written over it
                self._is_open = True
            elif now >= self._next:
                self._next = now + (_EARLY_SECONDS if seconds < 60 else _PLAIN_SECONDS)
                write_stream(sys.stderr, f"{line}\n")

    def over(self) -> str:
        """Return the characters that erase the line before other output."""
        return _ERASE if self._is_open else ""


_status: list[Status] = []  # of the job that runs in this process, if one does
_quiet: list[bool] = []  # of the blocks of ``quiet``


_renames: list[Callable[[str], str]] = []


@contextmanager
def renamed(rename: Callable[[str], str]) -> Iterator[None]:
    """Apply a function to all messages of the block, such as one that puts URIs in the place of their copies' paths."""
    _renames.append(rename)
    try:
        yield
    finally:
        _renames.remove(rename)


def _clean(text: str) -> str:
    for rename in _renames:
        text = rename(text)
    return without_credentials(text)


@contextmanager
def shown_status() -> Iterator[None]:
    """Show the progress texts of ``doing`` until the block ends; a nested block changes nothing."""
    if _status or _quiet:
        yield
        return
    _status.append(Status(time.monotonic()))
    has_ended = Event()

    def erase(_: int) -> None:
        has_ended.set()
        doing("")

    def redraw() -> None:
        while not has_ended.wait(_TICK_SECONDS):
            _status[0].draw(time.monotonic())

    thread = Thread(target=redraw, name="status line", daemon=True)
    thread.start()
    try:
        with last_act(erase):
            yield
    finally:
        has_ended.set()
        thread.join()
        _status.pop().set("")


@contextmanager
def quiet() -> Iterator[None]:
    """Show no progress until the block ends, and let ``say`` write only errors and warnings."""
    _quiet.append(True)
    try:
        yield
    finally:
        _quiet.pop()


def is_quiet() -> bool:
    """Return whether a block of ``quiet`` is open."""
    return bool(_quiet)


def doing(what: str) -> None:
    """Set the text of the progress line, such as ``reading the words``; an empty text clears it.

    A call takes a microsecond, so loops may call it in every iteration. It has no effect outside of ``shown_status``.
    """
    for status in _status:
        status.set(what)


def over_status(text: str) -> str:
    """Return a text without passwords in URIs; it first erases the progress line, if one is shown."""
    return "".join(status.over() for status in _status) + _clean(text)


def say(*lines: str) -> None:
    """Write lines to the user on stderr, without passwords in URIs; results go to files."""
    lines = tuple(line for line in lines if not _quiet or line.startswith(("error:", "warning:")))
    write_stream(sys.stderr, over_status("".join(f"{line}\n" for line in lines)))


def show(*lines: str) -> None:
    """Write lines of a result to stdout."""
    doing("")
    write_stream(sys.stdout, "".join(f"{line}\n" for line in lines))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int | None = None) -> None:
    """Print a table to stdout; columns after the first are right-aligned.

    A table wider than ``most`` characters is printed in parts that each begin with the first column.
    """
    doing("")
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    parts = [[0]]
    for index in range(1, len(columns)):
        taken = sum(widths[before] + 2 for before in parts[-1]) + widths[index]
        if most is not None and taken > most and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(index)
    for part in parts:
        for row in (head, ["-" * width for width in widths], *rows):
            cells = (
                row[column].rjust(widths[column]) if column else row[column].ljust(widths[column]) for column in part
            )
            write_stream(sys.stdout, "  ".join(cells).rstrip() + "\n")


def write_stream(stream: TextIO, text: str) -> None:
    """Write a text and flush; if the reader has closed the stream (``| head``), discard the output."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
