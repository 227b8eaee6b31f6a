"""Devices on which encoders compute."""

import timeit
from functools import cache
from typing import TYPE_CHECKING, Literal

from paraembed.settings import Device, Precision

if TYPE_CHECKING:
    import torch

ComputeDevice = Literal["cpu", "cuda"]


def chosen_device(device: Device, *, gains: bool) -> ComputeDevice:
    """Return the device for a setting; ``auto`` is a GPU if there is one and it makes the encoder faster."""
    if device == "auto":
        if not gains:
            return "cpu"
        import torch  # noqa: PLC0415 - takes 2 s, and an average of words is computed without it

        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def require_device(device: str, count: int = 1) -> None:
    """Raise ValueError if this machine does not have the device, or not as many GPUs."""
    if device != "cuda":
        return
    import torch  # noqa: PLC0415 - as in ``chosen_device``

    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not available:
        raise ValueError("`device` is cuda, but PyTorch finds no GPU on this machine; use cpu, or check its driver")
    if count > available:
        raise ValueError(f"`gpus` is {count}, but PyTorch finds only {available} on this machine; give fewer")


@cache
def slowdown(precision: Precision) -> float:
    """Return the time of a matrix product in a number type on this processor, divided by that in float32.

    AMD EPYC without AVX-512: 48 in bfloat16; a processor with AMX is faster in bfloat16 than in float32.
    """
    import torch  # noqa: PLC0415 - as in ``chosen_device``

    return _seconds(getattr(torch, precision)) / _seconds(torch.float32)


def _seconds(dtype: "torch.dtype") -> float:
    """Return the shortest of three times of a matrix product as large as in a small transformer, 0.08 GFLOP."""
    import torch  # noqa: PLC0415 - as in ``chosen_device``

    states, weights = torch.ones(256, 384, dtype=dtype), torch.ones(384, 384, dtype=dtype)
    return min(timeit.repeat(lambda: states @ weights, number=1, repeat=3))
