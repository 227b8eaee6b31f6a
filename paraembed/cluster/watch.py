"""Watch the processes that a job's Ray needs, and end the job with a clear error when one is lost.

Ray itself is silent for 30 to 60 s when its head is gone, and then aborts the process without a message of the job.
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
from paraembed.stops import FAILED, STOP_SIGNALS, fail_now, stop_now

_SERVERS = ("gcs_server", "raylet")
_SERVER_SECONDS, _HEAD_SECONDS = 0.2, 3.0
_BEFORE_ABORT_SECONDS = 10.0
_SIGNAL_SECONDS = 0.3  # a signal to all processes of a group reaches them one after the other


class Watch:
    """Thread that asks every so often whether the cluster is lost; if so, it says why and ends the job with status 1.

    The main thread gets the exception of a stop, so that MLflow runs are closed; a process that still runs after
    ``unwind_seconds`` is ended. Where SIGTERM or Ctrl-C has reached this process, too, as where a service manager or
    ``timeout`` stops a whole group of processes, the job was stopped and nothing is lost.
    """

    unwind_seconds = 10.0  # a call to a Ray that is lost blocks for up to 60 s

    def __init__(self, check: Callable[[], str | None], seconds: float) -> None:
        """``check`` returns the reason, or None while all is well; it is called every ``seconds``."""
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
        """Raise SystemExit in place of an error that the loss has caused."""
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
        """Whether the cluster is lost; asked for the first time, it says so, and the process ends soon."""
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
    """Signals that reach this process; known at once, whatever the main thread does and whoever handles them."""

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
        """Whether SIGINT or SIGTERM came since ``open``."""
        with suppress(BlockingIOError):
            while self._ends is not None and (signals := os.read(self._ends[0], 1024)):
                self._arrived += signals
        return any(number in STOP_SIGNALS for number in self._arrived)


def server_watch(folder: Path) -> Watch:
    """Watch over the servers that this process starts from now on, for the Ray in a private folder.

    ``ray.init`` cannot be interrupted while it waits for a server (30 s), and there is little to unwind at that time.
    """
    before = set(psutil.Process().children())
    servers: dict[str, psutil.Process] = {}

    def check() -> str | None:
        if len(servers) < len(_SERVERS):
            for child in psutil.Process().children():
                with suppress(psutil.Error):
                    if child not in before and child.name() in _SERVERS:
                        servers.setdefault(child.name(), child)
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
    """Watch the head of a cluster that was joined, at ``host:port``.

    A head that is reachable again within Ray's time limit (60 s, or RAY_gcs_rpc_server_reconnect_timeout_s) keeps its
    jobs, so a silent head is logged first; shortly before the limit the job ends.
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
                    "same command again when the cluster is back, or unset RAY_ADDRESS to use this machine alone"
                )
            return None
        if silent_since:
            silent_since.clear()
            say(f"the Ray head at {address} is reachable again")
        return None

    return Watch(check, _HEAD_SECONDS)


def _interrupt_main_thread() -> None:
    """Raise in the main thread what its handler of SIGTERM, or else of SIGINT, raises."""
    for number in reversed(STOP_SIGNALS):
        if callable(signal.getsignal(number)):
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            return


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
