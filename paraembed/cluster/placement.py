"""Where and how a training runs: workers, GPUs, checkpoints."""

import math
import os
from dataclasses import dataclass

import ray
import torch

from paraembed.cluster.session import check_workers
from paraembed.options import check_fields


@dataclass(frozen=True)
class Workers:
    """Where and how a training runs."""

    workers: int = 1
    """Training processes; each takes its own batches, so the step grows with them."""
    gpus: bool = False
    """Give each worker a GPU."""
    checkpoint_minutes: float = 5.0
    """Time between checkpoints; every epoch ends with one."""
    checkpoint_steps: int | None = None
    """Steps between checkpoints, besides the time."""
    keep_checkpoints: int = 2
    """How many checkpoints stay; where the last one is damaged the one before it is used."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        check_workers(self.workers)
        check_fields(
            self,
            {"checkpoint_minutes": (0, math.inf), "checkpoint_steps": (1, 2**31 - 1), "keep_checkpoints": (1, 10_000)},
        )


@dataclass(frozen=True)
class Placement(Workers):
    """Where and how a training on pairs runs."""

    pairs_memory_gb: float = 8.0
    """Memory of a worker for the pairs, in GB; more of them stay on disk, and are shuffled in windows that fit."""
    profile: bool = False
    """Write a trace of some steps beside the encoder, for https://ui.perfetto.dev."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        super().__post_init__()
        check_fields(self, {"pairs_memory_gb": (0, math.inf)})

    @property
    def pairs_bytes(self) -> int:
        """Bytes that a worker may use for the pairs."""
        return int(min(self.pairs_memory_gb * 1e9, 2**62))


def runs_in_process(placement: Workers) -> bool:
    """Whether this process is the worker: 0.1 s instead of 9.5 s to start. A cluster's GPU may be elsewhere."""
    return placement.workers == 1 and not (placement.gpus and "RAY_ADDRESS" in os.environ)


def workers_here(workers: int) -> int:
    """How many of so many processes this machine needs memory for: one of a cluster's, which may be elsewhere."""
    return 1 if "RAY_ADDRESS" in os.environ else workers


def check_gpus(placement: Workers) -> None:
    """Raise ValueError where GPUs are asked for and this machine, alone, has none."""
    if placement.gpus and not torch.cuda.is_available() and "RAY_ADDRESS" not in os.environ:
        raise ValueError("--gpus: PyTorch sees no GPU on this machine; leave the flag out to train on CPUs")


def check_resources(placement: Workers) -> None:
    """Raise ValueError where the Ray cluster can never place the workers; Ray Train would wait for ever."""
    kind = "GPU" if placement.gpus else "CPU"
    there = ray.cluster_resources().get(kind, 0)  # type: ignore[no-untyped-call]
    if placement.workers > there:
        raise ValueError(
            f"--workers is {placement.workers}, each with a {kind}, and the Ray cluster has {there:g}; use fewer"
        )
