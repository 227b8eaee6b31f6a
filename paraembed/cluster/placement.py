"""Where and how a training runs: workers, GPUs, checkpoints."""

import os

import ray
import torch

from paraembed.settings import Workers


def runs_in_process(placement: Workers) -> bool:
    """Whether this process is the worker: 0.1 s instead of 9.5 s to start. A cluster's GPU may be elsewhere."""
    return placement.workers == 1 and not (placement.gpus and "RAY_ADDRESS" in os.environ)


def workers_here(workers: int) -> int:
    """How many of so many processes this machine needs memory for: one of a cluster's, which may be elsewhere."""
    return 1 if "RAY_ADDRESS" in os.environ else workers


def check_gpus(placement: Workers) -> None:
    """Raise ValueError where GPUs are asked for and this machine, alone, has none."""
    if placement.gpus and not torch.cuda.is_available() and "RAY_ADDRESS" not in os.environ:
        raise ValueError("`gpus`: PyTorch sees no GPU on this machine; leave it out to train on CPUs")


def check_resources(placement: Workers) -> None:
    """Raise ValueError where the Ray cluster can never place the workers; Ray Train would wait for ever."""
    kind = "GPU" if placement.gpus else "CPU"
    available = ray.cluster_resources().get(kind, 0)  # type: ignore[no-untyped-call]
    if placement.workers > available:
        raise ValueError(
            f"`workers` is {placement.workers}, each with a {kind}, and the Ray cluster has {available:g}; use fewer"
        )
