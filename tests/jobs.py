"""Run a job as its command line does, but in this process: a new Python imports for seconds."""

import logging
import runpy
import signal
import sys
from pathlib import Path

import pytest

from paraembed.stops import STOP_SIGNALS

JOBS = Path(__file__).parents[1] / "jobs"


def run_job(name, *arguments):
    """Run ``jobs/NAME.py`` with a command line; return its exit status."""
    root, stops = logging.getLogger(), {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handlers, level = root.handlers[:], root.level
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [f"jobs/{name}.py", *map(str, arguments)])
            patch.setattr(sys, "excepthook", sys.excepthook)
            with pytest.raises(SystemExit) as ended:
                runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")
    finally:
        root.handlers, root.level = handlers, level
        for number, handler in stops.items():
            signal.signal(number, handler)
    return ended.value.code
