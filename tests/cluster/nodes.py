"""A Ray of several machines on this one: a head without CPUs, machines with loopback addresses, a token."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(" " in sys.executable, reason="'ray start' of Ray 2.60 does not work from a path with a space"),
]
RAY = Path(sys.executable).with_name("ray")
HEAD = "127.0.0.2"


def free_port(address=HEAD):
    with socket.socket() as listening:
        listening.bind((address, 0))
        return int(listening.getsockname()[1])


@dataclass
class Cluster:
    """Processes of ``ray start --block`` by address; ``environment`` is that of a client that has the token.

    With ``private``, each machine has a file system of its own at that path, for its temporary files.
    """

    folder: Path
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    dashboard: int = field(default_factory=free_port)
    machines: dict[str, psutil.Popen] = field(default_factory=dict)
    vanished: list[psutil.Popen] = field(default_factory=list)
    started: int = 0
    private: Path | None = None

    def start_head(self):
        self.environment["RAY_ADDRESS"] = f"http://127.0.0.1:{self.dashboard}"
        ports = ["--port", self.port, "--dashboard-port", self.dashboard, "--ray-client-server-port", free_port()]
        where = ["--head", "--node-ip-address", HEAD, "--dashboard-host", "127.0.0.1", "--temp-dir", self.folder]
        self._start(HEAD, *where, *ports, "--num-cpus", 0)

    def add(self, cpus):
        """A machine more; its address."""
        self.started += 1
        address = f"127.0.0.{2 + self.started}"
        self._start(address, "--address", f"{HEAD}:{self.port}", "--node-ip-address", address, "--num-cpus", cpus)
        return address

    def _start(self, address, *options, tries=4):
        log = (self.folder / f"{address}.log").open("wb")
        more = ["--block", "--disable-usage-stats", "--object-store-memory", 150_000_000]
        more += ["--dashboard-agent-listen-port", free_port(), "--metrics-export-port", free_port()]
        command = [str(one) for one in (RAY, "start", *options, *more)]
        environment = {key: value for key, value in self.environment.items() if key != "RAY_ADDRESS"}
        if self.private is not None:
            environment["TMPDIR"] = str(self.private)
            mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(self.private)]
            command = mount + command
        with log:
            machine = psutil.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.folder)
        self.machines[address] = machine
        while "Ray runtime started" not in (said := (self.folder / f"{address}.log").read_text()):
            if machine.poll() is not None:
                assert tries > 1, said
                return self._start(address, *options, tries=tries - 1)  # Ray waits 30 s, too few on a busy machine
            time.sleep(0.2)
        return None

    def at_work(self, title="ray::"):
        """Addresses of machines, the head apart, that run a worker whose title begins so, ``ray::PartWorker`` say."""
        titles = {address: titles_of(machine) for address, machine in self.machines.items() if address != HEAD}
        return [address for address, here in titles.items() if any(one.startswith(title) for one in here)]

    def vanish(self, address):
        """Stop all processes of a machine, which then neither answers nor refuses connections."""
        for process in family(self.machines[address]):
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        self.vanished.append(self.machines.pop(address))

    def kill(self, address):
        """Power off a machine: SIGKILL of its raylet and all that it runs."""
        machine = self.machines.pop(address)
        victims = family(machine)
        for process in sorted(victims, key=lambda one: one.name() != "raylet"):
            process.kill()
        psutil.wait_procs(victims, timeout=10)

    def drain(self, address):
        """Announce that a machine will be taken away in a minute, as an autoscaler does for a spot instance."""
        listed = self._ask("list", "nodes", "--format", "json")
        (node,) = [one["node_id"] for one in json.loads(listed[listed.index("[") :]) if one["node_ip"] == address]
        reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
        to = ["--address", f"{HEAD}:{self.port}", "--node-id", node, "--deadline-remaining-seconds", "60"]
        self._ask("drain-node", *reason, *to)

    def _ask(self, *arguments):
        done = subprocess.run([RAY, *arguments], env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def submit(self, script, *arguments):
        """``ray job submit`` of a job of this project, under way."""
        command = [RAY, "job", "submit", "--", sys.executable, script, *arguments]
        return subprocess.Popen(
            list(map(str, command)), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


def power_off_one(cluster, job, title, ready, how="kill"):
    """Lose a machine at work once it is time; another takes its place."""
    busy = wait_until(job, lambda: ready() and cluster.at_work(title))
    getattr(cluster, how)(busy[0])
    cluster.add(cpus=1)


def wait_until(job, condition):
    """Return what the condition returns, once it is true."""
    while not (value := condition()):
        assert job.poll() is None, job.stdout and job.stdout.read()
        time.sleep(0.02)
    return value


def finish(job):
    """Return what a job says, which ends well."""
    said = job.communicate(timeout=600)[0]
    assert job.returncode == 0, said
    return said


def family(machine):
    """A machine's processes that are alive."""
    try:
        return [*machine.children(recursive=True), psutil.Process(machine.pid)]
    except psutil.NoSuchProcess:
        return []


def titles_of(machine):
    """What a machine's workers are at, those apart that wait, or serve the machine itself."""
    titles = []
    for process in family(machine):
        with suppress(psutil.Error):
            titles += process.cmdline()[:1]
    return [one for one in titles if not one.startswith(("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent"))]


@contextmanager
def running(private=None, **more):
    """A head; machines are added."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "MLFLOW_"))}
    environment |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "GLOO_SOCKET_IFNAME": "lo",
        **more,
    }
    environment["PATH"] = f"{RAY.parent}:{environment['PATH']}"
    cluster = Cluster(
        Path(tempfile.mkdtemp(prefix="ray")), environment, private=private
    )  # short: a socket's path has at most 107 bytes
    try:
        cluster.start_head()
        yield cluster
    finally:
        for process in [process for machine in cluster.vanished for process in family(machine)]:
            process.kill()
        alive = [process for machine in cluster.machines.values() for process in family(machine)]
        for machine in cluster.machines.values():
            with suppress(psutil.NoSuchProcess):
                machine.send_signal(signal.SIGTERM)
        for process in psutil.wait_procs(alive, timeout=10)[1]:
            process.kill()
        shutil.rmtree(cluster.folder, ignore_errors=True)
