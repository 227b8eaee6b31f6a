"""Send the records of a job that has ended; ``sender`` starts this module in a process of its own."""

import logging
from contextlib import suppress
from pathlib import Path

from paraembed.io.places import without_credentials
from paraembed.tracking.records import SUFFIX
from paraembed.tracking.runs import TEMPORARY, send_left
from paraembed.tracking.sender import log_path


class _WithoutCredentials(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_credentials(super().format(record))


def main(path: str) -> None:
    """Send the records of a file; warnings stay in ``log_path``, for the next job."""
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger().handlers[0].setFormatter(_WithoutCredentials("%(message)s"))
    send_left(Path(path.removesuffix(SUFFIX)), "KILLED", waits=True, shows=False)
    messages = log_path(Path(path))
    with suppress(OSError):
        if not messages.stat().st_size:
            messages.unlink()
        if messages.parent.name.startswith(TEMPORARY):
            messages.parent.rmdir()
