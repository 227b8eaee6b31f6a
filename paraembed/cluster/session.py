"""Join the Ray cluster, or start one on this machine; where outputs may go."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

# Read when Ray is imported, and inherited by its processes:
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent outside
os.environ.setdefault("RAY_AUTH_MODE", "token")  # the same on head and clients; unset, the two disagree
os.environ.setdefault("RAY_DATA_USE_DATASOURCE_V2", "0")  # V2 starts 32 reader processes an epoch, 5-10 s
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # a report waits for this poll; default 2 s
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning for every task without a GPU

import ray

_LOOPBACK = "127.0.0.2"  # Ray rewrites 127.0.0.1 to the host's network address
_OBJECT_STORE_BYTES = 2 << 30


@contextmanager
def ray_session(workers: int) -> Iterator[None]:
    """Ray for the length of the block.

    Inside ``ray job submit``, or where RAY_ADDRESS is set, that cluster is joined; else one starts on this machine,
    reachable over loopback only. It gets CPUs for ``workers`` and two more, because a task that finds no free CPU
    waits silently for ever (Ray Data beside Ray Train, readers beside actors).

    Raises:
        ValueError: ``workers`` is not positive.
        ConnectionError: RAY_ADDRESS names no cluster that answers.
    """
    if workers < 1:
        raise ValueError(f"--workers is {workers}; it must be at least 1")
    if ray.is_initialized():
        yield
        return
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=True, logging_level=logging.WARNING)
    else:
        ray.init(
            address="local",
            num_cpus=max(os.cpu_count() or 1, workers) + 2,
            _node_ip_address=_LOOPBACK,
            include_dashboard=False,
            object_store_memory=int(min(_OBJECT_STORE_BYTES, 0.3 * psutil.virtual_memory().available)),
            log_to_driver=True,
            logging_level=logging.WARNING,
        )
        _protect_token()
    try:
        yield
    finally:
        ray.shutdown()


def in_submitted_job() -> bool:
    """Whether this process runs in the temporary copy of the working folder that ``ray job submit`` makes."""
    return "runtime_resources" in Path.cwd().parts


def output_path(path: Path, flag: str) -> Path:
    """An output path made absolute.

    Raises:
        ValueError: a relative path in a submitted job, where it would vanish with the copy of the working folder.
    """
    if in_submitted_job() and not path.is_absolute():
        raise ValueError(
            f"{flag} is {str(path)!r}; a submitted job runs in a temporary copy of the folder: give an absolute path, "
            f'for example {flag} "$PWD/{path}"'
        )
    return path.absolute()


def _protect_token() -> None:
    """Make Ray's token readable by its owner alone; Ray 2.60 creates it with mode 0644."""
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    if token.is_file() and token.stat().st_uid == os.getuid():
        token.chmod(0o600)
