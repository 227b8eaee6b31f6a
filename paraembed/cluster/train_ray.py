"""Train by workers of Ray Train."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from paraembed.cluster import metrics
from paraembed.cluster.relay import Relay, relayed
from paraembed.cluster.session import COLLECTIVE_SECONDS, ray_session, wait_for_workers
from paraembed.cluster.train_worker import OnlyWorker, WorkerTask, work_on
from paraembed.cluster.watch import interrupting, servers_end
from paraembed.process import on_cluster, turn_off_graphs
from paraembed.settings import Workers
from paraembed.signals import STOP_SIGNALS
from paraembed.tracking.records import RecordFile
from paraembed.training.loop import ProgressReport, SaveRequest

_RESTARTS = 3  # of the workers, after one of them failed
_RESIZE_CHECKPOINTS = 4  # times between checkpoints: so a resize, without a checkpoint first, repeats at most a quarter
_RESIZE_SECONDS = 10.0  # at least between two resizes
_STOP_SECONDS = 30.0  # for the workers to save; the pods of infra/kuberay get 60 s
_GROUP_SECONDS = 2.0  # in which a signal to all processes of a job has ended Ray's servers


class RayWorker(OnlyWorker):
    """A worker of Ray Train."""

    def __init__(self, relay: Relay) -> None:
        context = ray.train.get_context()
        self.rank, self.world = context.get_world_rank(), context.get_world_size()
        self.local_rank, self.local_world = context.get_local_rank(), context.get_local_world_size()
        self._relay = relay

    def device(self, name: str) -> torch.device:
        """Return the GPU that Ray Train assigns, or the CPU."""
        return ray.train.torch.get_device() if name == "cuda" else torch.device(name)

    def report(self, report: ProgressReport) -> None:
        """Report to Prometheus, and once per epoch to Ray Train."""
        if self.rank == 0:
            metrics.trained(report.loss, report.pairs_per_second)
        if report.end_of_epoch:
            ray.train.report({"epoch": report.epoch, "loss": report.loss})

    def poll(self) -> SaveRequest:
        """Return whether Ray knows that a machine of a worker is about to be removed, or the driver was stopped."""
        is_preempted = ray.train.get_preemption_info() is not None  # all workers have to ask
        if self.rank == 0 and self._relay.is_stopped():
            return SaveRequest.STOP
        return SaveRequest.SAVE if is_preempted else SaveRequest.NONE

    def close(self) -> None:
        """Wait until all records are in the file of the job."""
        if self.rank == 0:
            self._relay.is_stopped()


def fit(task: WorkerTask, placement: Workers) -> dict[str, Any]:
    """Train on Ray Train; return the result of rank 0."""
    with ray_session(placement.most):
        return _fit(task, placement)


def _fit(task: WorkerTask, placement: Workers) -> dict[str, Any]:
    data = task.data
    memory = data.memory(placement.most, gpus=placement.gpus) if on_cluster() else None
    resources = {"GPU" if placement.gpus else "CPU": 1.0}
    if memory is not None:
        resources["memory"] = float(memory.of_workers(1, placement.most).needed)
    wait_for_workers(placement.least, resources)
    assert isinstance(task.run, RecordFile)
    relay = relayed(task.run)
    storage, filesystem = task.work.place("ray")
    trainer = TorchTrainer(
        _work,  # type: ignore[arg-type]
        train_loop_config={"task": replace(task, run=relay, memory=memory)},
        scaling_config=ScalingConfig(  # type: ignore[call-arg]  # mypy sees the configs of Ray Train v1
            num_workers=(placement.least, placement.most) if placement.is_elastic else placement.most,  # type: ignore[arg-type]
            elastic_resize_monitor_interval_s=max(_RESIZE_SECONDS, _RESIZE_CHECKPOINTS * task.checkpoints.seconds),
            use_gpu=placement.gpus,
            resources_per_worker=resources,
        ),
        torch_config=TorchConfig(backend="nccl" if placement.gpus else "gloo", timeout_s=COLLECTIVE_SECONDS),
        run_config=RunConfig(  # type: ignore[call-arg]
            name=f"{data.job}-{os.getpid()}",
            storage_path=storage,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=_RESTARTS),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with _stops_sent(relay):
            return dict(trainer.fit().return_value)  # type: ignore[attr-defined]
    except SystemExit:  # what Ray Train makes of Ctrl-C, with status 0
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray Train leaves its own handler behind
            signal.signal(signal.SIGINT, on_interrupt)


def _work(config: dict[str, WorkerTask]) -> dict[str, Any]:
    task = config["task"]
    assert isinstance(task.run, Relay)
    if not task.records_graphs:
        turn_off_graphs()
    return work_on(task, RayWorker(task.run))


@contextmanager
def _stops_sent(relay: Relay) -> Iterator[None]:
    """Send the first SIGTERM or SIGHUP to the workers, which save and stop. A second signal, or no answer within
    ``_STOP_SECONDS``, ends the block with the effect of the earlier handler.

    A signal to the whole process group ends Ray's servers, too, so the workers cannot save: the block ends at once.
    Ray Train has its own handler for Ctrl-C, which ends the workers at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOP_SIGNALS if number != signal.SIGINT}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    stops = list[int]()
    timer = threading.Timer(_STOP_SECONDS, lambda: signal.pthread_kill(threading.main_thread().ident or 0, stops[0]))
    timer.daemon = True

    def send(number: int, frame: Any) -> None:
        if stops or interrupting.is_set():
            before[number](number, frame)
            return
        stops.append(number)
        timer.start()
        threading.Thread(target=relay.stop, daemon=True).start()  # the main thread may hold locks of Ray
        if servers_end(_GROUP_SECONDS):  # they got the signal, too; back in Ray, this process would be aborted
            before[number](number, frame)

    for number in before:
        signal.signal(number, send)
    try:
        yield
    except Exception:
        if stops:  # the signal reached processes of Ray, too
            raise KeyboardInterrupt from None
        raise
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
