"""Join a Ray cluster, or start Ray on this machine; check which workers it can place."""

import gc
import logging
import os
import secrets
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import psutil
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from paraembed.cluster.local_ray import RAY_FOLDER, adapted_ray, keep_logs, machine_types, private_folder
from paraembed.cluster.watch import Watch, head_watch, server_watch
from paraembed.console import say
from paraembed.process import (
    RAY_SESSION,
    environment,
    name_of,
    on_cluster,
    quiet_ray,
    ray_is_quiet,
    set_environment,
    without_gc,
)
from paraembed.signals import STOP_SIGNALS, stop_now

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 2 << 30
_PROBE_SECONDS = 5.0
_START_AFTER_STOP_SECONDS = 8.0
_WAITING_SECONDS = 60  # whole ones, as placement groups count; between lines while the cluster has too few machines
COLLECTIVE_SECONDS = 1800
"""Longest wait for other workers in a step, or while rank 0 saves; Ray notices at once if a worker fails."""
_GROWTH_SECONDS = 900  # for machines that join a cluster whose autoscaler reports no machine types


def prepare_worker() -> None:
    """Set up a worker process of a session; Ray calls this function when the process starts."""
    # Ray Train asks for the state of its actors. Without an address, it looks for Rays on this machine and fails if
    # there are several.
    set_environment({"RAY_API_SERVER_ADDRESS": ray.get_runtime_context().gcs_address})
    quiet_ray()


@contextmanager
def ray_session(workers: int) -> Iterator[None]:
    """Connect to Ray for the length of the block.

    Inside ``ray job submit``, or if RAY_ADDRESS is set, that cluster is joined; otherwise Ray starts on this machine
    and accepts only local connections. It gets two CPUs more than ``workers``, because a task that finds no free CPU
    waits forever without a message (Ray Data with Ray Train, readers with actors).

    Raises:
        OSError: no cluster answers at RAY_ADDRESS, or Ray does not start.
        SystemExit: a server of Ray ended during the block, or the cluster's head is lost; the reason is printed.
    """
    with ray_is_quiet():
        if ray.is_initialized():
            yield
            return
        with _joined(os.environ["RAY_ADDRESS"]) if on_cluster() else _started(workers):
            quiet_ray()  # starting Ray set the levels of its loggers
            yield


def run_tasks(
    function: Callable[[_Argument], _Result],
    arguments: Sequence[_Argument],
    workers: int,
    *,
    here: bool = False,
    num_cpus: int = 1,
    num_gpus: int = 0,
) -> Iterator[_Result]:
    """Yield the results of ``function``, in the order in which Ray tasks return them; ``workers`` tasks run at a time,
    each with ``num_cpus`` CPUs and ``num_gpus`` GPUs; those without a CPU are spread over the machines.

    Ray Data could do the same, but its executor takes 0.8 s to start. ``here``: run the tasks on this machine, even if
    it is a head without CPUs, because they read and write files that other machines do not see. Otherwise raise
    ValueError if no machine of the cluster has a CPU for tasks, see ``wait_for_workers``.
    """
    if arguments and num_cpus and not here:
        wait_for_cpu(num_gpus)
    options: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus, "name": name_of(function)}
    options["scheduling_strategy"] = "DEFAULT" if num_cpus else "SPREAD"
    # Ray rejects a ``partial``.
    task: Any = ray.remote(**options)(lambda argument: function(argument))  # noqa: PLW0108
    if here:
        task = task.options(num_cpus=0, scheduling_strategy=on_this_machine())
    waiting = iter(arguments)
    running = [task.remote(argument) for argument in islice(waiting, workers)]
    while running:
        (done,), running = ray.wait(running)
        running += [task.remote(argument) for argument in islice(waiting, 1)]
        yield ray.get(done)


def on_this_machine() -> NodeAffinitySchedulingStrategy:
    """Return the scheduling strategy for tasks and actors that must run on the driver's machine."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def _shut_down() -> None:
    """Leave Ray. Another thread that collects garbage meanwhile could free a reference to an object, for which Ray ends
    the process with status 1 (seen in 2 of about 20 submitted jobs): so all of it is collected before.
    """
    gc.collect()
    with without_gc():
        ray.shutdown()


@contextmanager
def _joined(address: str) -> Iterator[None]:
    _probe(address)
    try:
        _init(f"this job cannot join the Ray cluster at RAY_ADDRESS={address}")
        through_client = address.startswith("ray://")  # Ray's client does not know the head's own address
        with nullcontext() if through_client else head_watch(ray.get_runtime_context().gcs_address):
            yield
    finally:
        _shut_down()


@contextmanager
def _started(workers: int) -> Iterator[None]:
    with private_folder() as folder, environment({**RAY_SESSION, **_provide_token(folder)}):
        watch = server_watch(folder)
        try:
            with watch:
                _init(
                    "Ray does not start on this machine",
                    folder,
                    address="local",
                    num_cpus=max(os.cpu_count() or 1, workers) + 2,
                    _node_ip_address=_LOOPBACK,
                    _temp_dir=str(folder / RAY_FOLDER),
                    include_dashboard=False,
                    object_store_memory=int(min(_OBJECT_STORE_BYTES, 0.3 * psutil.virtual_memory().available)),
                )
                watch.unwind_seconds = Watch.unwind_seconds
                yield
        finally:
            if not watch.reported:
                _shut_down()


def _init(failure: str, folder: Path | None = None, **settings: Any) -> None:
    """Call ``ray.init``; any failure becomes a KeyboardInterrupt, a ValueError or an OSError."""
    runtime_env = {"worker_process_setup_hook": f"{__name__}.prepare_worker"}
    if folder is not None:
        runtime_env["py_executable"] = shlex.quote(sys.executable)  # goes through a shell, unquoted
    try:
        with _stops_deferred(), adapted_ray():
            ray.init(runtime_env=runtime_env, logging_level=logging.ERROR, **settings)
    except (ValueError, OSError):
        raise
    except Exception as error:
        logs = f". Ray's logs: {keep_logs(folder)}" if folder else ""
        reason, *_ = str(error).strip().splitlines() or [repr(error)]
        raise ChildProcessError(f"{failure}: {reason}{logs}") from error


@contextmanager
def _stops_deferred() -> Iterator[None]:
    """Defer a stop to the end of the block, and raise KeyboardInterrupt there; within it, Ray's code may swallow
    exceptions of signal handlers.

    If the block lasts too long after a stop, or a second stop arrives, the process ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    timer = threading.Timer(_START_AFTER_STOP_SECONDS, stop_now)
    timer.daemon = True
    stops = list[int]()

    def note(number: int, _: object) -> None:
        if stops:
            stop_now()
        stops.append(number)
        timer.start()

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, note)
    try:
        yield
    finally:
        timer.cancel()
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        if stops:
            raise KeyboardInterrupt


def _probe(address: str) -> None:
    """Raise ConnectionError if a cluster's host:port does not answer; ray.init would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like: ray.init knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({error}); start one, or unset RAY_ADDRESS to use this "
            "machine only"
        ) from None


def _provide_token(folder: Path) -> dict[str, str]:
    """Create the token of Ray's authentication if it is missing, readable only by its owner; return the environment
    variable that names it, if it is not where Ray looks.

    A cluster that ``ray.init`` starts needs the token, unless RAY_AUTH_MODE says otherwise. If the token is missing,
    Ray creates it with mode 0644, or, with RAY_AUTH_MODE=token, does not start. In a container the home folder may be
    missing or read-only; then the token is in the private ``folder`` of the session.
    """
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return {}
    with suppress(OSError, RuntimeError):  # RuntimeError: no home folder is known
        token = Path.home() / ".ray" / "auth_token"
        token.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            _write_token(token, secrets.token_hex(32))
        except FileExistsError:
            if token.stat().st_uid == os.getuid():
                token.chmod(0o600)
        if os.access(token, os.R_OK) and token.stat().st_size:
            return {}
    _write_token(folder / "token", _own_token())
    return {"RAY_AUTH_TOKEN_PATH": str(folder / "token")}


def _write_token(path: Path, token: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)


@cache
def _own_token() -> str:
    """Return one token for all sessions of this process, because Ray keeps the first that it reads."""
    return secrets.token_hex(32)


def wait_for_workers(count: int, each: Mapping[str, float]) -> None:
    """Wait until the Ray cluster can place workers, and say so every minute; Ray Train would wait without a message.

    The wait is that of a placement group, for which an autoscaler starts machines. It is removed before the workers
    take its place. It has no limit while other jobs use the machines, and lasts at most 15 minutes if the machines are
    too few and the cluster does not report which machines may join. Each worker needs the resources ``CPU``, ``GPU``
    and ``memory`` (bytes) of ``each``. Raise ValueError if neither the machines of the cluster nor those that its
    autoscaler may start are enough.
    """
    _check_size(count, each)
    group, started = placement_group([dict(each)] * count, strategy="PACK"), time.monotonic()
    try:
        while not group.wait(_WAITING_SECONDS):
            _check_size(count, each, may_grow=time.monotonic() - started < _GROWTH_SECONDS)
            free = ray.available_resources()  # type: ignore[no-untyped-call]
            needs = ", ".join(_shown(kind, amount) for kind, amount in each.items())
            has = ", ".join(f"{_shown(kind, free.get(kind, 0), bare=True)} {kind}" for kind in each)
            workers = "1 worker" if count == 1 else f"{count} workers, each"
            say(f"waiting for machines: {workers} with {needs}; the cluster has free: {has}")
    finally:
        remove_placement_group(group)


def wait_for_cpu(num_gpus: int = 0) -> None:
    """Wait until a cluster can place a task, as ``wait_for_workers``; further tasks start when machines join."""
    if on_cluster():
        wait_for_workers(1, {"CPU": 1.0} | ({"GPU": float(num_gpus)} if num_gpus else {}))


def _check_size(count: int, each: Mapping[str, float], *, may_grow: bool = True) -> None:
    for kind, amount in each.items():
        largest, total = _most(kind, may_grow=may_grow)
        if total is None or (amount <= largest and count * amount <= total):
            continue
        if kind == "CPU" and largest < 1:
            raise ValueError("no machine of the Ray cluster has a CPU for tasks; add a worker machine")
        has, remedy = f"{_shown(kind, total, bare=True)} in all", "use fewer workers"
        if amount > largest:
            has, remedy = f"at most {_shown(kind, largest, bare=True)} on a machine", "use a larger machine"
        raise ValueError(
            f"`workers` is {count}, each with {_shown(kind, amount)}, but the Ray cluster has {has}; {remedy}"
        )


def capacity(kind: str) -> float:
    """Return the amount of a resource on all machines of the Ray cluster, with those that its autoscaler may start."""
    _, total = _most(kind)
    return total or float(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def _most(kind: str, *, may_grow: bool = True) -> tuple[float, float | None]:
    """Return the amount of a resource on the largest machine, and on all; (0, None) if Ray does not know the limit."""
    alive = [node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    groups = machine_types() if on_cluster() else []
    is_given = kind != "memory" or all(kind in resources for resources, _ in groups)  # of memory, not always
    types = [(resources.get(kind, 0), number) for resources, number in groups]
    is_open = any(number < 0 for _, number in types) or not is_given if types else may_grow
    if on_cluster() and is_open:
        return 0, None
    possible = sum(amount * number for amount, number in types)
    return max([*alive, *(amount for amount, _ in types)]), max(sum(alive), possible)


def _shown(kind: str, amount: float, *, bare: bool = False) -> str:
    """Return an amount of a resource for messages: a GPU, 9.1 GB of memory; ``bare``: only the amount."""
    if kind == "memory":
        return f"{amount / 1e9:,.1f} GB" + ("" if bare else " of memory")
    return f"{amount:g}" if bare else f"a {kind}" if amount == 1 else f"{amount:g} {kind}"
