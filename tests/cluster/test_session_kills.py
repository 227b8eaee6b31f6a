"""A job whose local Ray loses a process, or that is stopped while Ray starts, ends soon, in one line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from paraembed.process import LOCAL_RAY

JOB = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from paraembed.signals import guard
guard()
import ray
from paraembed.commands.job import run
from paraembed.console import say
from paraembed.cluster.session import ray_session

@dataclass
class Flags:
    "Wait for a task."

@ray.remote
def wait() -> None:
    time.sleep(300)

def main(_: Flags) -> None:
    say("starting")
    with ray_session(1):
        waiting = wait.remote()
        say("ready")
        ray.get(waiting)

sys.exit(run(main, Flags))
"""


RAYS = ["gcs_server", "raylet", "ray::DashboardAgent"]


def start(folder, until):
    """The job, once it has written ``until``."""
    (folder / "job.py").write_text(JOB)
    job = subprocess.Popen([sys.executable, folder / "job.py"], stderr=subprocess.PIPE, text=True, cwd=folder)
    assert job.stderr is not None
    for line in job.stderr:
        if line.startswith(until):
            return job
    raise AssertionError(f"the job ended with status {job.wait()}")


def await_process(job, name):
    """A process of the job's Ray, as soon as it runs."""
    for _ in range(3000):
        for process in psutil.Process(job.pid).children(recursive=True):
            if name in {process.name(), *process.cmdline()[:1]}:
                return process
        time.sleep(0.02)
    raise AssertionError(f"{name} did not start")


def ended(job):
    """Exit status and what it wrote to stderr; Ray by itself needs 60 s to see that its head is gone."""
    _, err = job.communicate(timeout=100)
    assert "Traceback" not in err
    return job.returncode, messages(err)


def messages(stderr):
    return [line for line in stderr.splitlines() if not line.startswith("starting (")]  # progress


@pytest.mark.slow
@pytest.mark.parametrize(
    ("until", "name"), [*(("ready", name) for name in RAYS), *(("starting", name) for name in RAYS[1:])]
)
def test_a_job_whose_ray_loses_a_process(tmp_path, until, name):
    job = start(tmp_path, until)
    await_process(job, name).kill()
    status, lines = ended(job)
    assert status == 1
    (line,) = (line for line in lines if line.startswith("error: "))
    assert until == "starting" or "Finished work is kept" in line
    if until == "starting" or not name.startswith("ray::"):
        assert until == "starting" or f"Ray's process {name} (" in line
        assert Path(line.rpartition(" ")[2]).is_dir(), "no logs where the error says"


@pytest.mark.slow
def test_a_stop_of_all_processes_of_a_job_is_no_error(tmp_path):
    job = start(tmp_path, "ready")
    for process in [await_process(job, "gcs_server"), await_process(job, "raylet"), psutil.Process(job.pid)]:
        process.send_signal(signal.SIGTERM)
    status, lines = ended(job)
    assert status == 130
    assert lines[-1] == "stopped; run the same command again to resume"
    assert not [line for line in lines if line.startswith("error: ")]


@pytest.mark.slow
def test_a_job_whose_cluster_has_lost_its_head(tmp_path):
    code = """
import socket, sys, time
from dataclasses import dataclass
from paraembed.commands.job import run
from paraembed.cluster.watch import head_watch

@dataclass
class Flags:
    "Wait."

def main(_: Flags) -> None:
    head = socket.create_server(("127.0.0.1", 0))
    with head_watch(f"127.0.0.1:{head.getsockname()[1]}") as watch:
        assert not watch.lost()
        head.close()
        time.sleep(60)

sys.exit(run(main, Flags))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "14"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    warning, error = messages(done.stderr)
    assert warning.startswith("the Ray head at 127.0.0.1:")
    assert error.startswith("error: the Ray head at 127.0.0.1:")
    assert done.returncode == 1


IMPORTED_BEFORE = """
import psutil, ray
from paraembed.cluster.session import ray_session

with ray_session(1):
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [socket for process in processes for socket in process.net_connections() if socket.status == "LISTEN"]
    print(*{socket.laddr.ip.removeprefix("::ffff:") for socket in sockets})
"""


@pytest.mark.slow
def test_ray_listens_on_loopback_if_it_was_imported_before_this_package(tmp_path):
    how = {"capture_output": True, "text": True, "cwd": tmp_path}
    fresh = {name: value for name, value in os.environ.items() if name not in LOCAL_RAY}  # pytest has imported both
    done = subprocess.run([sys.executable, "-c", IMPORTED_BEFORE], check=True, env=fresh, **how)
    assert done.stdout.split() == ["127.0.0.1"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_ray_starts(tmp_path, number):
    job = start(tmp_path, "starting")
    server = await_process(job, "raylet")
    job.send_signal(number)
    assert ended(job) == (130, ["stopped; run the same command again to resume"])
    server.wait(timeout=10)
