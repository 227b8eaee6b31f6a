"""Watch the processes that a job's Ray needs, and end the job with a clear error when one of them is lost.

Without this, Ray waits silently for 30 to 60 s after its head is lost, and then aborts the process without a message.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from paraembed.cluster.local_ray import keep_logs
from paraembed.console import doing, say
from paraembed.signals import FAILED, STOP_SIGNALS, fail_now, stop_now

_SERVERS = ("gcs_server", "raylet")
_SERVER_SECONDS, _HEAD_SECONDS = 0.2, 3.0
_BEFORE_ABORT_SECONDS = 10.0
_SIGNAL_SECONDS = 0.3  # a signal to all processes of a group reaches them one after the other

interrupting = threading.Event()
"""Set as soon as a watch has lost its cluster, and interrupts the main thread with a signal."""


class Watch:
    """Thread that checks regularly whether the cluster is lost; if so, it prints the reason and ends the job with
    status 1.

    The main thread gets the same exception as for a stop, so that MLflow runs are closed; a process that still runs
    after ``unwind_seconds`` is ended. If SIGTERM or Ctrl-C has also reached this process, for example from a service
    manager or ``timeout`` that stops a whole process group, the job was stopped, and the cluster does not count as
    lost.
    """

    unwind_seconds = 10.0  # a call to a Ray that is lost blocks for up to 60 s

    def __init__(self, check: Callable[[], str | None], seconds: float) -> None:
        """Call ``check`` every ``seconds``; it returns the reason of a loss, or None."""
        self._check, self._seconds = check, seconds
        self.reported = False
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch over Ray", daemon=True)
        self._signals, self._stop_asked = _Signals(), False

    def __enter__(self) -> "Watch":
        self._signals.open()
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise SystemExit instead of an error that the loss has caused."""
        try:
            with self._lock:
                self._stopped.set()
                self._signals.close()
            ends = error is not None and self.lost()
        except KeyboardInterrupt:  # the watch's own
            ends = self.reported
            if not ends:
                raise
        if ends:
            raise SystemExit(FAILED) from error

    def lost(self) -> bool:
        """Return whether the cluster is lost; the first call after a loss prints the reason, and the process ends soon
        after.
        """
        with self._lock:
            if not self.reported and not self._stop_asked and (reason := self._check()):
                time.sleep(_SIGNAL_SECONDS)
                self._stop_asked = self._signals.stop_arrived()
                self.reported = not self._stop_asked
                timer = threading.Timer(self.unwind_seconds, stop_now if self._stop_asked else fail_now)
                timer.daemon = True
                timer.start()
                if self.reported:
                    doing("")
                    say(f"error: {reason}")
            return self.reported

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            if self.lost():
                with self._lock:
                    if not self._stopped.is_set():
                        _interrupt_main_thread()
                return


class _Signals:
    """Signals that reach this process, seen immediately, regardless of the main thread and of other handlers."""

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = None
        self._before = -1
        self._arrived = b""

    def open(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)

    def close(self) -> None:
        if self._ends is not None:
            signal.set_wakeup_fd(self._before)
            self.stop_arrived()
            for end in self._ends:
                os.close(end)
            self._ends = None

    def stop_arrived(self) -> bool:
        """Return whether SIGINT or SIGTERM arrived since ``open``."""
        with suppress(BlockingIOError):
            while self._ends is not None and (signals := os.read(self._ends[0], 1024)):
                self._arrived += signals
        return any(number in STOP_SIGNALS for number in self._arrived)


def server_watch(folder: Path) -> Watch:
    """Watch the servers that this process starts from now on, for the Ray in a private folder.

    ``ray.init`` cannot be interrupted while it waits for a server (30 s), and there is little to clean up at that time.
    """
    before = set(psutil.Process().children())
    servers: dict[str, psutil.Process] = {}

    def check() -> str | None:
        if len(servers) < len(_SERVERS):
            for child in psutil.Process().children():
                if child not in before and (name := _name_of(child)) in _SERVERS:
                    servers.setdefault(name, child)
        for name, server in servers.items():
            if _has_ended(server):
                return (
                    f"Ray's process {name} ({server.pid}) ended: killed, out of memory, or the machine is too busy. "
                    f"Finished work is kept; run the same command again. Ray's logs: {keep_logs(folder)}"
                )
        return None

    watch = Watch(check, _SERVER_SECONDS)
    watch.unwind_seconds = 2.0
    return watch


def head_watch(address: str) -> Watch:
    """Watch the head of a joined cluster at ``host:port``.

    A head that is reachable again within Ray's time limit (60 s, or RAY_gcs_rpc_server_reconnect_timeout_s) keeps its
    jobs. So a silent head is first logged, and the job ends shortly before the limit.
    """
    host, _, port = address.rpartition(":")
    ray_limit = float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60"))  # noqa: SIM112  as Ray spells it
    limit = ray_limit - _BEFORE_ABORT_SECONDS
    silent_since: list[float] = []

    def check() -> str | None:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_HEAD_SECONDS).close()
        except OSError as error:
            if not silent_since:
                silent_since.append(time.monotonic())
                say(f"the Ray head at {address} does not answer ({error}); the job ends after {limit:.0f} s of silence")
            if time.monotonic() - silent_since[0] >= limit:
                return (
                    f"the Ray head at {address} has not answered for {limit:.0f} s. Finished work is kept; run the "
                    "same command again when the cluster is back, or unset RAY_ADDRESS to use this machine only"
                )
            return None
        if silent_since:
            silent_since.clear()
            say(f"the Ray head at {address} is reachable again")
        return None

    return Watch(check, _HEAD_SECONDS)


def servers_end(seconds: float) -> bool:
    """Return whether a server of the Ray that this process started ends within some seconds; False on a cluster."""
    servers = [child for child in psutil.Process().children() if _name_of(child) in _SERVERS]
    deadline = time.monotonic() + seconds
    while servers and time.monotonic() < deadline:
        if any(map(_has_ended, servers)):
            return True
        time.sleep(_SIGNAL_SECONDS / 10)
    return False


def _name_of(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _interrupt_main_thread() -> None:
    """Raise, in the main thread, the exception of its handler for SIGTERM, or else for SIGINT."""
    for number in reversed(STOP_SIGNALS):
        if callable(signal.getsignal(number)):
            interrupting.set()
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            return


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
