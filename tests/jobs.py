"""Run jobs as their command lines do, in this process or in one that is killed, and compare what they write."""

import json
import logging
import runpy
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from paraembed.io.fingerprint import sha256_of
from paraembed.signals import STOP_SIGNALS

_CODE = """
import json, sys
from paraembed.commands import main
for name, *line in json.loads(sys.argv[1]):
    sys.argv[1:] = line
    try:
        status = main(name)
    except SystemExit as error:
        status = error.code
    print(json.dumps([name, status, [*sys.modules]]))
"""
JOBS = Path(__file__).parents[1] / "jobs"


def run_job(name, *arguments):
    """Run ``jobs/NAME.py`` in this process, since a new Python imports for seconds; return its exit status."""
    return _run_here(
        lambda: runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__"), f"jobs/{name}.py", arguments
    )


def run_named(*arguments):
    """Run ``python -m paraembed`` in this process; return its exit status."""
    return _run_here(lambda: runpy.run_module("paraembed", run_name="__main__"), "paraembed", arguments)


def _run_here(start, program, arguments):
    root, stops = logging.getLogger(), {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handlers, level = root.handlers[:], root.level
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [program, *map(str, arguments)])
            patch.setattr(sys, "excepthook", sys.excepthook)
            with pytest.raises(SystemExit) as ended:
                start()
    finally:
        root.handlers, root.level = handlers, level
        for number, handler in stops.items():
            signal.signal(number, handler)
    return ended.value.code


def ran(*command, status=0, **options):
    """Run a command, which must end with a status; return the process with what it printed."""
    options = {"capture_output": True, "text": True, "timeout": 280} | options
    done = subprocess.run(list(map(str, command)), check=False, **options)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def job_command(name, *arguments):
    """Return the command line of a job in a Python of its own."""
    return [sys.executable, *map(str, (JOBS / f"{name}.py", *arguments))]


def interrupted(command, when, by=signal.SIGKILL, victims=lambda job: [job], **options):
    """Start a command, send a signal as soon as ``when()`` is true; return its exit status and its stderr.

    Args:
        command: command line.
        when: condition, asked again and again.
        by: signal.
        victims: function from the process to the processes that get the signal.
        options: further arguments of Popen.
    """
    job = psutil.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    deadline = time.monotonic() + 250
    while not when():
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    for victim in victims(job):
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(by)
    stderr = job.communicate(timeout=120)[1]
    return job.returncode, stderr


def contents(folder):
    """Return the bytes of every file of an output, without reports and rejected rows, by its path."""
    paths = [
        path for pattern in ("*", "data/*", "_plan/*", "_manifest/*") for path in folder.glob(pattern) if path.is_file()
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def digests(folder, *names):
    """Return the digest of every file of a folder, by its path; by default, also of the parts of an output."""
    paths = [path for pattern in names or ("*", "data/*") for path in folder.glob(pattern) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_of(path) for path in paths}


def answers(*lines):
    """Name, status and imported packages of each command, all run in one process, and what they print as errors."""
    done = ran(sys.executable, "-c", _CODE, json.dumps([line.split() for line in lines]))
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    assert len(printed) == len(lines), done.stderr
    packages = [{module.partition(".")[0] for module in modules} for *_, modules in printed]
    return [(name, status, found) for (name, status, _), found in zip(printed, packages, strict=True)], done.stderr
