"""A progress line: rewritten in place on a terminal, a plain line now and then elsewhere."""

import sys
import time

from paraembed.cluster.job import say
from paraembed.files import write_stream


def duration(seconds: float) -> str:
    """Seconds for a reader: ``45 s``, ``3 min 05 s``, ``2 h 07 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


class ProgressLine:
    """Shows the newest line.

    Args:
        seconds: between plain lines, where stderr is no terminal.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._shown = seconds, time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._open = False

    def show(self, line: str) -> None:
        """Show a line, now on a terminal, else when it is due."""
        if self._terminal:
            write_stream(sys.stderr, f"\r{line}\x1b[K")
            self._open = True
        elif time.monotonic() - self._shown >= self._seconds:
            self._shown = time.monotonic()
            say(line)

    def close(self) -> None:
        """End the line, so that what follows begins on a new one."""
        if self._open:
            say("")
            self._open = False
