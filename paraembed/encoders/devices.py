"""Devices on which encoders compute."""

from typing import Literal

import torch

from paraembed.settings import Device

ComputeDevice = Literal["cpu", "cuda"]


def chosen_device(device: Device, *, gains: bool) -> ComputeDevice:
    """Return the device for a setting; ``auto`` is a GPU if there is one and it makes the encoder faster."""
    if device == "auto":
        return "cuda" if gains and torch.cuda.is_available() else "cpu"
    return device


def require_device(device: str, count: int = 1) -> None:
    """Raise ValueError if this machine does not have the device, or not as many GPUs."""
    if device == "cuda":
        require_gpus(count, torch.cuda.device_count() if torch.cuda.is_available() else 0)


def require_gpus(count: int, available: int) -> None:
    """Raise ValueError if there are fewer GPUs than are wanted."""
    if not available:
        raise ValueError("`device` is cuda, but PyTorch finds no GPU on this machine; use cpu, or check its driver")
    if count > available:
        raise ValueError(f"`gpus` is {count}, but PyTorch finds only {available} on this machine; give fewer")
