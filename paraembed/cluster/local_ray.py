"""Ray on this machine: its private folder, and all that relies on Ray's private names.

Ray creates the folders of its sockets, logs and code with mode 0777. Here they are inside of a folder with mode 0700,
so that other users can neither read nor replace them.
"""

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from ray._private import parameter, ray_constants, utils
from ray._private.state import state

from paraembed.io.atomic import lock_file
from paraembed.process import on_cluster

_PREFIX = "paraembed-ray-"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")  # as mkdtemp makes them
RAY_FOLDER, _FAILED_MARK = "r", "failed"
_SOCKET_BYTES = 107  # longest path of a Unix socket
_SOCKET = f"/{_PREFIX}12345678/{RAY_FOLDER}/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_LOGS_KEPT_SECONDS = 24 * 3600


@contextmanager
def private_folder() -> Iterator[Path]:
    """Create a temporary folder of mode 0700 for one Ray; it is removed at the end, or a day later after ``keep_logs``.

    Folders of killed processes of this user are removed, too. Raise OSError if no temporary folder is safe from other
    users and short enough for Ray's sockets.
    """
    base = _base()
    _remove_abandoned(base)
    folder, lock = _locked_folder(base)
    try:
        yield folder
    finally:
        _end_processes(folder)
        if not (folder / _FAILED_MARK).exists():
            _remove(folder)
        os.close(lock)


def keep_logs(folder: Path) -> Path:
    """Keep a private folder for a day after its session; return the folder of Ray's logs."""
    with suppress(OSError):
        (folder / _FAILED_MARK).touch()
    return folder / RAY_FOLDER / "session_latest" / "logs"


def machine_types() -> list[tuple[dict[str, float], int]]:
    """Return resources and maximum number of each type of machine that the cluster's autoscaler may start; a negative
    number means no limit; empty without an autoscaler, or if it reports none.
    """
    config = state.get_cluster_config()
    groups = config.node_group_configs if config else []
    return [(dict(group.resources), group.max_count) for group in groups]


@contextmanager
def adapted_ray() -> Iterator[None]:
    """Change behavior for which ``ray.init`` has no parameter.

    Ray's agent gets a free port. With its fixed port, 52365, a head that starts later on this machine accepts no job.
    The handler of SIGTERM is kept, because Ray's own handler raises SystemExit, which the code that starts processes
    swallows. The node of a local Ray is 127.0.0.1 also if Ray was imported before this package: Ray has then read
    ``LOCAL_RAY`` too early, and would listen on all interfaces.
    """
    private: Any = parameter  # mypy knows a class there, which is replaced
    params, set_handler, is_cluster = parameter.RayParams, utils.set_sigterm_handler, ray_constants.ENABLE_RAY_CLUSTER
    private.RayParams = partial(params, dashboard_agent_listen_port=0)
    utils.set_sigterm_handler = lambda _: None
    if not on_cluster():  # else the cluster decides which address a driver has
        ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        private.RayParams, utils.set_sigterm_handler = params, set_handler
        ray_constants.ENABLE_RAY_CLUSTER = is_cluster


def _base() -> Path:
    wanted = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    candidates = [Path(wanted).absolute(), Path("/tmp")]  # noqa: S108  mkdtemp makes the folder
    for candidate in candidates:
        if len(os.fsencode(candidate)) + len(_SOCKET) <= _SOCKET_BYTES and _is_closed(candidate):
            return candidate
    raise OSError(
        f"{candidates[0]} is not usable for Ray's temporary files: the path may have at most "
        f"{_SOCKET_BYTES - len(_SOCKET)} bytes, and no other user may be able to rename files in it; set TMPDIR to "
        "another folder"
    )


def _is_closed(folder: Path) -> bool:
    """Return whether a folder exists in which no other user except root can rename this user's files."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    for path in (folder.resolve(), *folder.resolve().parents):
        status = path.stat()
        others_write = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if others_write or status.st_uid not in {0, os.geteuid()}:
            return False
    return True


def _locked_folder(base: Path) -> tuple[Path, int]:
    """Create a folder and a lock on it, which the kernel releases when this process ends."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another start took it for abandoned
            continue
        with suppress(OSError):  # a file system without locks: nobody removes the folder
            lock_file(lock, waits=True)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _remove_abandoned(base: Path) -> None:
    """Remove the folders of this user's killed processes, whose locks are free."""
    for folder in base.glob(f"{_PREFIX}*"):
        if not _NAME.fullmatch(folder.name):
            continue
        with suppress(OSError):  # another user's, or gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                lock_file(lock)
                if _is_abandoned(folder, os.fstat(lock)):
                    _remove(folder)
            finally:
                os.close(lock)


def _is_abandoned(folder: Path, status: os.stat_result) -> bool:
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return False
    names = {path.name for path in folder.iterdir()}
    logs_wanted = _FAILED_MARK in names and time.time() - status.st_mtime < _LOGS_KEPT_SECONDS
    return names <= {RAY_FOLDER, _FAILED_MARK} and not logs_wanted


def _remove(folder: Path) -> None:
    """Remove a folder in which a process that is ending may still write."""
    for _ in range(10):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def _end_processes(folder: Path) -> None:
    """Kill the children of this process that belong to the Ray in a folder: an interrupted start left them behind."""
    leftovers = []
    with suppress(psutil.Error):
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if any(str(folder) in argument for argument in child.cmdline()):
                    leftovers.append(child)
                    child.kill()
    psutil.wait_procs(leftovers, timeout=5)
