"""Process-wide settings, each with its reason: environment, logging, threads, precision, memory.

A context manager restores the earlier settings at its end, for callers from Python. The settings of a plain function
last until the process ends; its docstring gives the reason.
"""

import csv
import ctypes
import gc
import logging
import os
import platform
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Protocol, TypeVar

from paraembed import __version__

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

# Read by Ray 2.60 when it is imported, and inherited by its processes.
RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent outside
    "RAY_DATA_USE_DATASOURCE_V2": "0",  # V2 starts 32 reader processes an epoch, 5-10 s
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # a report waits for this poll; default 2 s
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning for every task without a GPU
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # Ray Data's own calls, for its statistics, that fail
    # Else a task waits 7 minutes for a machine that vanishes without closing its connections; default 300 and 120 s.
    # Ray's servers close a connection with a ping more often than every minute, which ends tasks (tried with 30 s).
    "RAY_grpc_client_keepalive_time_ms": "70000",
    "RAY_grpc_client_keepalive_timeout_ms": "20000",
}
# The same, for a cluster of this machine alone: its node is 127.0.0.1, and only then Ray's servers listen on loopback
# alone; with any other address of the machine, 127.0.0.2 too, they listen on all interfaces.
LOCAL_RAY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# Read by Ray 2.60 when it starts on this machine, and while Ray Train runs on it.
RAY_SESSION = {
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one machine is not preempted; it warns
    # Else Ray starts a process per core at once without the environment of the job, in which paraembed cannot run.
    "RAY_prestart_worker_first_driver": "0",
}
# Read by Ray 2.60 while a search runs, also in the processes of its trials. What Ray Tune keeps for its own resume is
# of no use here, and its files for each trial take longer than a trial.
RAY_TUNE = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # else the first Ctrl-C is a normal end
    # Seconds to wait for the thread of an ended trial; after that, the next trial in its process counts as failed.
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints a table even at verbosity 0
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
# Read by MLflow 3.17 when it is imported, and at every request, from the thread that sends.
MLFLOW = {
    # A failed request is sent again by ``tracking.sender``, where nobody waits for it, not by MLflow, for four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # bars on stderr, one a file
    # Else it prints two addresses on stdout, one of the page of traces; ``tracking.sender`` logs that of the runs.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
# Read by the libraries of the Hugging Face hub when they are imported.
HUB = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
HUB_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}  # in workers, which get the files from the driver
_RAY_LOGGERS = {
    "ray": logging.ERROR,
    "ray.data": logging.ERROR,
    "ray.train": logging.ERROR,
    "ray.tune": logging.CRITICAL,  # its stack traces; a trial's record has the reason
}
# Retries and tracebacks; the records wait in a file, and ``tracking.sender`` names the error.
_MLFLOW_LOGGERS = dict.fromkeys(("mlflow.store.db.utils", "urllib3.connectionpool", "alembic"), logging.CRITICAL)
_JOB_LOGGERS = dict.fromkeys(
    ("mlflow", "alembic", "ray", "urllib3", "sentence_transformers", "transformers", "httpx"), logging.WARNING
)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_CSV_LOCK = Lock()
_thread_limit = [0]  # for compiled loops; 0: none


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide the bits of a vector, without importing them."""
    from importlib.metadata import version  # noqa: PLC0415 - 30 ms, which a finished output does without

    packages = {name: version(name) for name in ("numba", "numpy", "pyarrow", "torch")}
    return {"paraembed": __version__, "python": platform.python_version(), **packages}


def on_cluster() -> bool:
    """Return whether a job joins a Ray cluster instead of starting Ray on this machine."""
    return os.environ.get("RAY_ADDRESS", "") not in {"", "local"}  # with these, ray.init starts Ray, too


def set_environment(variables: Mapping[str, str], *, override: bool = False) -> None:
    """Set environment variables for libraries that are imported later; without ``override``, not those that the user
    has set.
    """
    for name, value in variables.items():
        if override or name not in os.environ:
            os.environ[name] = value


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables unless the user has set them, and restore them at the end of the block."""
    added = variables.keys() - os.environ.keys()
    set_environment(variables)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def quiet_ray() -> None:
    """Limit Ray's loggers to errors. This lasts, for Ray's own processes; elsewhere use ``ray_is_quiet``."""
    logging.disable(logging.INFO)  # Ray Train and Ray Data set their loggers' levels anew when they begin
    _set_levels(_RAY_LOGGERS)


def quiet_pooch() -> None:
    """Limit pooch to warnings; below, it logs addresses with their passwords. Nobody else uses its logger."""
    import pooch  # noqa: PLC0415 - only downloads need it

    pooch.get_logger().setLevel(logging.WARNING)


@contextmanager
def ray_is_quiet() -> Iterator[None]:
    """Apply ``quiet_ray`` and restore the loggers at the end of the block."""
    disabled = logging.root.manager.disable
    with _levels(_RAY_LOGGERS):
        quiet_ray()
        try:
            yield
        finally:
            logging.disable(disabled)


@contextmanager
def mlflow_is_quiet() -> Iterator[None]:
    """Let MLflow log through the job's handler, which removes passwords, without its retries and tracebacks."""
    logger = logging.getLogger("mlflow")
    handlers, propagates = logger.handlers[:], logger.propagate
    logger.handlers.clear()
    logger.propagate = True
    try:
        with _levels(_MLFLOW_LOGGERS):
            yield
    finally:
        logger.handlers[:], logger.propagate = handlers, propagates


def quiet_libraries() -> None:
    """Limit libraries to warnings and errors. This lasts, since the process belongs to one job."""
    _set_levels(_JOB_LOGGERS)


@contextmanager
def optuna_is_quiet() -> Iterator[None]:
    """Limit Optuna to warnings until the end of the block. By default it logs a line for every study."""
    import optuna  # noqa: PLC0415 - takes a second

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def transformers_is_quiet() -> Iterator[None]:
    """Let transformers show no progress bar until the end of the block. By default it shows one for every model."""
    bars = import_module("transformers.utils.logging")  # optional
    are_shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if are_shown:
            bars.enable_progress_bar()


@contextmanager
def csv_cell_limit(characters: int) -> Iterator[None]:
    """Let Python's ``csv`` read cells of so many characters until the end of the block; the default is 131,072.

    One thread at a time is in the block, so that none restores the default while another reads.
    """
    with _CSV_LOCK:
        before = csv.field_size_limit(characters)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@contextmanager
def _levels(levels: Mapping[str, int]) -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in levels}
    _set_levels(levels)
    try:
        yield
    finally:
        _set_levels(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit compiled loops, and torch if it is imported before, to one thread until the end of the block.

    Two threads busy-wait at OpenMP's barriers as soon as another process runs: a step of 4 ms takes 300 ms.
    """
    before, torch = _thread_limit[0], sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 1
    _thread_limit[0] = 1
    if torch:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        _thread_limit[0] = before
        if torch:
            torch.set_num_threads(threads)


def use_one_thread() -> None:
    """Limit compiled loops, Arrow, and torch if it is imported, to one thread. This lasts, for one of many workers."""
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s

    _thread_limit[0] = 1
    pa.set_cpu_count(1)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def num_threads() -> int:
    """Return the number of threads for compiled loops: as many as torch uses, or would use."""
    if _thread_limit[0]:
        return _thread_limit[0]
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # 4,2: of nested regions
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def records_graphs() -> bool:
    """Return whether training on a GPU records CUDA graphs; ``PARAEMBED_CUDA_GRAPHS=0`` turns them off."""
    return os.environ.get("PARAEMBED_CUDA_GRAPHS", "1") != "0"


def turn_off_graphs() -> None:
    """Record no CUDA graphs in this worker, like the driver, whose environment does not reach other machines."""
    set_environment({"PARAEMBED_CUDA_GRAPHS": "0"}, override=True)


def use_exact_cudnn() -> None:
    """Let cuDNN compute in float32. By default it rounds to TF32 (10 bits), unlike torch's own matrix products.

    The setting lasts, because the backward pass reads it, too.
    """
    import torch  # noqa: PLC0415 - takes 2 s, and sharding does without it

    torch.backends.cudnn.allow_tf32 = False


def keep_memory() -> None:
    """Make glibc keep blocks of up to 8 MB instead of returning them to the system.

    Otherwise a file of 0.5M lines causes 200,000 page faults, a quarter of the processor time. The setting lasts,
    because glibc cannot report the earlier value.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_TRIM_THRESHOLD, 256 << 20)
        mallopt(_MMAP_THRESHOLD, 32 << 20)


class RunTasks(Protocol):
    """Calls a function with each argument, in this process (``map``) or in others; yields the results in any order."""

    def __call__(
        self, function: Callable[[_Argument], _Result], arguments: Sequence[_Argument], /
    ) -> Iterator[_Result]:
        """Run the tasks."""


@contextmanager
def without_gc() -> Iterator[None]:
    """Make many objects without looking for cycles among them, which takes as long again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def in_threads(function: Callable[[_Argument], _Result], arguments: Sequence[_Argument], threads: int) -> list[_Result]:
    """Return the results of a function for many short calls, in order; a thread takes up to 64 at a time, because to
    hand over one takes 50 µs.
    """
    size = max(1, min(64, len(arguments) // (4 * threads)))
    with ThreadPoolExecutor(threads) as pool:
        groups = [arguments[start : start + size] for start in range(0, len(arguments), size)]
        return [result for results in pool.map(lambda group: [*map(function, group)], groups) for result in results]


def map_in_threads(
    function: Callable[[_Argument], _Result],
    arguments: Iterable[_Argument],
    threads: int,
    stop: Callable[[], object] = bool,
    *,
    ahead: int = 2,
) -> Iterator[_Result]:
    """Yield the results of a function, in order; threads compute the next ``ahead`` results each in the meantime. If
    the caller stops before the end, or a call fails, ``stop`` is called, and running calls are waited for.
    """
    if threads == 1:
        yield from map(function, arguments)
        return
    pool, waiting = ThreadPoolExecutor(threads), deque[Future[_Result]]()
    try:
        for argument in arguments:
            waiting.append(pool.submit(function, argument))
            if len(waiting) > ahead * threads:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)
    finally:
        stop()
        pool.shutdown(cancel_futures=True)


def in_order(
    run: RunTasks, function: Callable[[_Argument], _Result], arguments: Sequence[_Argument]
) -> Generator[_Result, None, None]:
    """Yield the results of tasks in the order of their arguments; results that come early wait in memory."""
    early, number = dict[int, _Result](), 0
    for ended, result in run(partial(_numbered, function), [*enumerate(arguments)]):
        early[ended] = result
        while number in early:
            yield early.pop(number)
            number += 1


def _numbered(function: Callable[[_Argument], _Result], argument: tuple[int, _Argument]) -> tuple[int, _Result]:
    return argument[0], function(argument[1])


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function, also of one with arguments (``partial``), or whose results are put in order."""
    while isinstance(function, partial):
        function = function.args[0] if function.func is _numbered else function.func
    return function.__name__
